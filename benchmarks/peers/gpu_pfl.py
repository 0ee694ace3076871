"""pfl's rounds of the work in benchmarks.gpu: `python -m benchmarks.peers.gpu_pfl [--json FILE]`.

20 clients x 2,500 random images of 3x32x32, batches of 128, E=1, SGD, McMahan's CNN, without evaluation. The images lie
normalised on the device before the clock starts. Needs torch, numpy and, on PYTHONPATH, pfl 0.6.0 with multiprocess,
dill and packaging. What pfl imports for privacy accounting is stood in for: a round without privacy does not use it.
"""

import argparse
import json
import platform
import statistics
import sys
import time
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from unittest.mock import MagicMock

_PRIVACY = (
    "dp_accounting",
    "dp_accounting.pld",
    "dp_accounting.rdp",
    "prv_accountant",
    "scipy",
    "scipy.special",
    "scipy.stats",
)
sys.modules.update({name: MagicMock() for name in _PRIVACY if name not in sys.modules})

import torch  # noqa: E402
from pfl.aggregate.simulate import SimulatedBackend  # noqa: E402
from pfl.aggregate.weighting import WeightByDatapoints  # noqa: E402
from pfl.algorithm.base import NNAlgorithmParams  # noqa: E402
from pfl.algorithm.federated_averaging import FederatedAveraging  # noqa: E402
from pfl.callback.base import TrainingProcessCallback  # noqa: E402
from pfl.data.federated_dataset import FederatedDataset  # noqa: E402
from pfl.data.pytorch import PyTorchTensorDataset  # noqa: E402
from pfl.data.sampling import get_user_sampler  # noqa: E402
from pfl.hyperparam import NNTrainHyperParams  # noqa: E402
from pfl.internal.ops.pytorch_ops import get_default_device  # noqa: E402
from pfl.metrics import Metrics, Weighted  # noqa: E402
from pfl.model.pytorch import PyTorchModel  # noqa: E402
from torch import Tensor, nn  # noqa: E402
from torch.nn import functional  # noqa: E402

LR, BATCH, WARM_UP = 0.01, 128, 3


class CNN(nn.Module):
    """McMahan's CNN in the shape that pfl asks for."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(
            nn.Conv2d(3, 32, 5),
            nn.ReLU(),
            nn.MaxPool2d(2),
            nn.Conv2d(32, 64, 5),
            nn.ReLU(),
            nn.MaxPool2d(2),
            nn.Flatten(),
            nn.Linear(64 * 5 * 5, 512),
            nn.ReLU(),
            nn.Linear(512, 10),
        )

    def loss(self, x: Tensor, y: Tensor) -> Tensor:
        return functional.cross_entropy(self.layers(x), y)

    def metrics(self, x: Tensor, y: Tensor) -> dict[str, Weighted]:
        """Asked for in the first round only, which does not count."""
        return {"loss": Weighted(self.loss(x, y).item() * len(y), len(y))}


class Clock(TrainingProcessCallback):
    """When each round ended, the device included."""

    def __init__(self) -> None:
        self.times: list[float] = []

    def _look(self) -> None:
        if torch.cuda.is_available():
            torch.cuda.synchronize()
        self.times.append(time.perf_counter())

    def on_train_begin(self, *, model: object) -> Metrics:
        self._look()
        return Metrics()

    def after_central_iteration(
        self, aggregate_metrics: Metrics, model: object, *, central_iteration: int
    ) -> tuple[bool, Metrics]:
        self._look()
        return False, Metrics()


def rounds(clients: int, images: int, count: int, precision: str) -> list[float]:
    """Milliseconds of each round after the warm-up."""
    device = get_default_device()
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = precision == "tf32"
    x = torch.randint(0, 256, (clients, images, 3, 32, 32), dtype=torch.uint8).to(device).float().sub_(120).div_(64)
    y = torch.randint(0, 10, (clients, images)).to(device)

    def shuffled(client: int) -> PyTorchTensorDataset:
        order = torch.randperm(images, device=device)
        return PyTorchTensorDataset((x[client][order], y[client][order]))

    module, clock = CNN().to(device), Clock()
    data = FederatedDataset(shuffled, get_user_sampler("minimize_reuse", list(range(clients))))
    FederatedAveraging().run(
        algorithm_params=NNAlgorithmParams(
            central_num_iterations=WARM_UP + count,
            evaluation_frequency=10**9,
            train_cohort_size=clients,
            val_cohort_size=None,
        ),
        backend=SimulatedBackend(training_data=data, val_data=data, postprocessors=[WeightByDatapoints()]),
        model=PyTorchModel(
            module,
            torch.optim.SGD,
            torch.optim.SGD(module.parameters(), lr=1.0),
            amp_dtype=torch.bfloat16 if precision == "bf16" else None,
        ),
        model_train_params=NNTrainHyperParams(local_num_epochs=1, local_learning_rate=LR, local_batch_size=BATCH),
        callbacks=[clock],
        send_metrics_to_platform=False,
    )
    ends = zip(clock.times, clock.times[1:], strict=False)
    return [1e3 * (after - before) for before, after in ends][WARM_UP:]


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.peers.gpu_pfl", description=__doc__)
    parser.add_argument("--json", type=Path, metavar="FILE", help="write every figure to this file")
    parser.add_argument("--clients", type=int, default=20)
    parser.add_argument("--images", type=int, default=2_500, help="of each client")
    parser.add_argument("--rounds", type=int, default=10, help=f"after {WARM_UP} that do not count")
    parser.add_argument("--precision", default="bf16,tf32", help="bf16, tf32 or fp32; several by commas")
    options = parser.parse_args()
    cuda = torch.cuda.is_available()
    result = {
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "device": torch.cuda.get_device_name() if cuda else "cpu",
        "versions": {"python": platform.python_version(), "torch": torch.__version__, "pfl": version("pfl")},
        "clients": options.clients,
        "images": options.images,
        "rounds": [],
    }
    for precision in options.precision.split(","):
        times = rounds(options.clients, options.images, options.rounds, precision)
        row = {"what": "pfl", "model": "mcmahan", "precision": precision, "ms": statistics.median(times), "all": times}
        result["rounds"].append(row)
        print(f"pfl, {precision}: {row['ms']:,.1f} ms a round ({min(times):,.1f} to {max(times):,.1f})", flush=True)
    if options.json:
        options.json.write_text(json.dumps(result, indent=1) + "\n")


if __name__ == "__main__":
    main()

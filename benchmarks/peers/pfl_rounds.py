"""pfl, one process: `python -m benchmarks.peers.pfl_rounds CLIENTS ROUNDS OUT`."""

import time

import torch
from pfl.aggregate.simulate import SimulatedBackend
from pfl.aggregate.weighting import WeightByDatapoints
from pfl.algorithm.base import NNAlgorithmParams
from pfl.algorithm.federated_averaging import FederatedAveraging
from pfl.callback.base import TrainingProcessCallback
from pfl.data.federated_dataset import FederatedDataset
from pfl.data.pytorch import PyTorchTensorDataset
from pfl.data.sampling import get_user_sampler
from pfl.hyperparam import NNTrainHyperParams
from pfl.metrics import Metrics, Weighted
from pfl.model.pytorch import PyTorchModel
from torch import Tensor, nn
from torch.nn import functional

from benchmarks.peers.work import asked, clients, model, tell
from benchmarks.sizes import BATCH, COHORT, LR


class Logistic(nn.Module):
    """The model in the shape that pfl asks for."""

    def __init__(self, linear: nn.Linear) -> None:
        super().__init__()
        self.linear = linear

    def loss(self, x: Tensor, y: Tensor) -> Tensor:
        return functional.cross_entropy(self.linear(x), y)

    def metrics(self, x: Tensor, y: Tensor) -> dict[str, Weighted]:
        """Asked for in the first round only, which does not count."""
        return {"loss": Weighted(self.loss(x, y).item() * len(y), len(y))}


class Clock(TrainingProcessCallback):
    def __init__(self) -> None:
        self.times: list[float] = []

    def on_train_begin(self, *, model: object) -> Metrics:
        self.times.append(time.perf_counter())
        return Metrics()

    def after_central_iteration(
        self, aggregate_metrics: Metrics, model: object, *, central_iteration: int
    ) -> tuple[bool, Metrics]:
        self.times.append(time.perf_counter())
        return False, Metrics()


def main() -> None:
    file, rounds, out = asked()
    held, linear, clock = clients(file), model(file), Clock()

    def shuffled(client: int) -> PyTorchTensorDataset:
        x, y = held[client]
        order = torch.randperm(len(y))
        return PyTorchTensorDataset((x[order], y[order]))

    module = Logistic(linear)
    data = FederatedDataset(shuffled, get_user_sampler("random", list(range(len(held)))))
    FederatedAveraging().run(
        algorithm_params=NNAlgorithmParams(
            central_num_iterations=rounds, evaluation_frequency=10**9, train_cohort_size=COHORT, val_cohort_size=None
        ),
        backend=SimulatedBackend(training_data=data, val_data=data, postprocessors=[WeightByDatapoints()]),
        model=PyTorchModel(module, torch.optim.SGD, torch.optim.SGD(module.parameters(), lr=1.0)),
        model_train_params=NNTrainHyperParams(local_num_epochs=1, local_learning_rate=LR, local_batch_size=BATCH),
        callbacks=[clock],
        send_metrics_to_platform=False,
    )
    seconds = [after - before for before, after in zip(clock.times, clock.times[1:], strict=False)]
    tell(out, seconds, linear, file)


if __name__ == "__main__":
    main()

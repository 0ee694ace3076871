"""Small runs whose numbers are pinned. A refactor leaves them alone; where they must change, RESULT_VERSION rises."""

from typing import Any

import pytest
import torch

from fedskew import Run, simulate
from tests.helpers import OWN

RUNS: dict[str, dict[str, Any]] = {
    "synthetic": {
        "dataset": "synthetic:1,1,max_size=120",
        "clients": 8,
        "clients_per_round": 5,
        "algorithm": "fedlc:tau=1+scaffold:mean=uniform",
        "rounds": 4,
        "local_epochs": 2,
        "batch_size": 16,
        "lr": 0.05,
        "momentum": 0.9,
        "engine": "stacked",
        "seed": 11,
    },
    "digits": {
        "dataset": "digits",
        "partition": "dirichlet:0.3",
        "model": "mlp:hidden=8",
        "clients": 5,
        "algorithm": "fedlc:tau=2,missing=mask+fednova",
        "rounds": 2,
        "batch_size": 64,
        "lr": 0.1,
        "dropout_rate": 0.2,
        "engine": "stacked",
        "seed": 1,
    },
    "batch norm": {
        "dataset": f"{OWN}:ragged_digits",
        "partition": "natural",
        "model": "cnn:padding=1,width=4",
        "clients": 4,
        "clients_per_round": 3,
        "algorithm": "fedla+fedprox:mu=0.1+fedopt:server=yogi,eta=0.1",
        "rounds": 3,
        "local_epochs": 2,
        "batch_size": 16,
        "lr": 0.05,
        "weight_decay": 0.001,
        "grad_clip": 1.0,
        "weighting": "uniform",
        "engine": "serial",
        "seed": 2,
    },
}


PINNED: dict[str, dict[str, list[float]]] = {
    "synthetic": {
        "clients": [5.0, 5.0, 5.0, 5.0],
        "train_loss": [1.5354972949094214, 1.6251048021789298, 2.227325704599292, 0.44215911137112246],
        "loss": [3.215757737556442, 3.9727489680734336, 1.7655136230100408, 1.437392599502517],
        "accuracy": [0.26865671641791045, 0.4925373134328358, 0.7910447761194029, 0.7910447761194029],
        "linear.weight": [16.385751227693103, 5.176665595997094],
        "linear.bias": [0.10269863511373953, -0.7322409888302885],
    },
    "digits": {
        "clients": [4.0, 3.0],
        "train_loss": [1.7579379056061977, 1.4729178673173704],
        "loss": [2.2783216332193907, 2.182279724273557],
        "accuracy": [0.10985915492957747, 0.2084507042253521],
        "hidden.0.weight": [2.7671065125963006, 1.508496432856585],
        "hidden.0.bias": [0.028636022094288217, 0.3303672325136495],
        "linear.weight": [3.45807655822179, -0.652430362748305],
        "linear.bias": [0.25318722731995114, 0.5525300452144755],
    },
    "batch norm": {
        "clients": [3.0, 3.0, 3.0],
        "train_loss": [1.5205374305188541, 1.3077107286679335, 1.3102177389783298],
        "loss": [2.3125639889047336, 2.256212667920608, 2.1967286697884205],
        "accuracy": [0.1, 0.21666666666666667, 0.23333333333333334],
        "convs.0.weight": [1.426362402393608, -3.8355793025382523],
        "convs.0.bias": [0.09534727600780123, 0.2762923621581117],
        "convs.1.weight": [1.6822563863144573, 1.0219878131397575],
        "convs.1.bias": [0.04629365318504544, 0.1446171682992306],
        "convs.2.weight": [1.7705284427859347, 1.8412162629572855],
        "convs.2.bias": [0.02565448273286226, 0.37016631765238006],
        "norms.0.weight": [3.968671649851853, 5.9674692589046305],
        "norms.0.bias": [0.002483995148213297, -0.08962762533722253],
        "norms.1.weight": [3.9730577748729194, 5.974164300823274],
        "norms.1.bias": [0.0006505022270451315, -0.0584563530320765],
        "norms.2.weight": [4.125574520537603, 6.091658723485393],
        "norms.2.bias": [0.024454050363478336, -0.23935648289876532],
        "linear.weight": [3.7349196609311583, -1.3349202924544699],
        "linear.bias": [0.42319022027978437, -0.4582134104014425],
        "norms.0.running_mean": [0.036218530695367894, -0.028580354047609086],
        "norms.0.running_var": [0.8265929824949633, 2.612168196874316],
        "norms.1.running_mean": [0.17707994392905588, -0.1626807057458412],
        "norms.1.running_var": [0.5431299185516081, 2.1849617877511855],
        "norms.2.running_mean": [0.32113055761876463, 0.92600566311136],
        "norms.2.running_var": [0.6445011609777587, 2.3940247253912696],
    },
}


def numbers(fields: dict[str, Any]) -> dict[str, list[float]]:
    """Losses of every round, and of each leaf of the final model its sum and a sum that sees the order."""
    records = list(simulate(Run(**fields, precision="fp64")))
    server = records[-1].server
    assert server is not None
    found = {
        "clients": [float(record.clients) for record in records],
        "train_loss": [record.train_loss or 0.0 for record in records],
        "loss": [record.loss or 0.0 for record in records],
        "accuracy": [record.accuracy or 0.0 for record in records],
    }
    for name, leaf in {**server.params, **server.buffers}.items():
        flat = leaf.flatten()
        found[name] = [
            flat.square().sum().item(),
            (flat * torch.linspace(1, 2, len(flat), dtype=flat.dtype)).sum().item(),
        ]
    return found


def closeness() -> float:
    """PyTorch draws first weights in float32, and without fused multiply-add their last bit is another."""
    return 1e-5 if torch.backends.cpu.get_cpu_capability() == "DEFAULT" else 1e-9


@pytest.mark.parametrize("name", RUNS)
def test_pinned(name: str) -> None:
    found = numbers(RUNS[name])
    assert list(found) == list(PINNED[name])
    for key, values in PINNED[name].items():
        assert found[key] == pytest.approx(values, rel=closeness(), abs=1e-3 * closeness()), key

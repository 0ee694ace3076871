"""Parts of the user's own that look at the whole batch never see padding: they are found out, and run by `serial`."""

from pathlib import Path
from typing import Any

import pytest
import torch

from fedskew import Run, simulate
from fedskew.simulation.simulation import Simulation
from tests.helpers import OWN, assert_trees_close

FIELDS: dict[str, Any] = {
    "dataset": f"{OWN}:ragged_digits",
    "partition": "natural",
    "clients": 4,
    "rounds": 2,
    "batch_size": 16,
    "lr": 0.1,
    "precision": "fp64",
    "model": "mlp:hidden=8",
}
MINE = '''
import torch
from torch import nn
from fedskew import Algorithm
from fedskew.losses import cross_entropy
from fedskew.models import Network


def centred():
    """Looks at the mean over the batch, padding included."""
    return lambda logits, labels, counts: cross_entropy(logits - logits.mean(-2, keepdim=True), labels, counts)


def one_client():
    """Knows no leading axes."""
    return lambda logits, labels, counts: nn.functional.cross_entropy(logits, labels, reduction="none")


def mixed_up():
    """Right for one client; of several it takes the wrong axis for the classes."""
    return lambda logits, labels, counts: -logits.log_softmax(1).gather(-1, labels.unsqueeze(-1)).squeeze(-1)


def fine():
    return lambda logits, labels, counts: 2 * cross_entropy(logits, labels, counts)


def masked():
    """The same mean with a view: padding is left out."""
    def loss(view):
        logits = view.outputs.logits
        if view.mask is None:
            mean = logits.mean(-2, keepdim=True)
        else:
            kept = view.mask.unsqueeze(-1).to(logits)
            mean = (logits * kept).sum(-2, keepdim=True) / kept.sum(-2, keepdim=True)
        return cross_entropy(logits - mean, view.labels, view.counts)
    return loss


class Centred(nn.Module):
    def __init__(self):
        super().__init__()
        self.flat, self.head = nn.Flatten(), nn.Linear(64, 10)
        nn.init.zeros_(self.head.weight)

    def forward(self, x):
        h = self.flat(x)
        return self.head(h - h.mean(0))


def centred_model():
    return Centred()


def normed_model():
    return nn.Sequential(nn.Flatten(), nn.Linear(64, 8), nn.BatchNorm1d(8, track_running_stats=False), nn.Linear(8, 10))


class WithAMask(nn.Module):
    """A module that calls something else a mask, and drops features at random."""
    def __init__(self):
        super().__init__()
        self.flat, self.drop, self.head = nn.Flatten(), nn.Dropout(0.5), nn.Linear(64, 10)

    def forward(self, x, mask=None):
        x = self.drop(self.flat(x))
        return self.head(x if mask is None else x * mask)


def with_a_mask():
    return WithAMask()


class Declared(Network):
    def __init__(self, drop):
        super().__init__()
        from fedskew.models.layers import Linear
        self.linear, self.drop = Linear(64, 10), nn.Dropout(0.5) if drop else nn.Identity()

    def embed(self, x, mask):
        return self.drop(x.flatten(-3))


def declared(drop: bool = False):
    return Declared(drop)
'''


@pytest.fixture
def mine(tmp_path: Path) -> Path:
    path = tmp_path / "mine.py"
    path.write_text(MINE)
    return path


def params_of(run: Run) -> dict[str, torch.Tensor]:
    last = list(simulate(run))[-1].server
    assert last is not None
    return last.params


@pytest.mark.parametrize("name", ["centred", "one_client", "mixed_up"])
def test_a_loss_over_the_batch_is_left_to_serial(mine: Path, name: str) -> None:
    given = {**FIELDS, "algorithm": f"{mine}:{name}"}
    chosen = Simulation(Run(**given))
    assert chosen.engine_name == "serial"
    assert "the loss of this run" in chosen.engine_reason
    with pytest.raises(ValueError, match=r"engine is 'stacked', but the loss of this run .*; engine=serial runs it"):
        Simulation(Run(**given, engine="stacked"))


def test_one_client_at_a_time_needs_no_leading_axes(mine: Path) -> None:
    given = {**FIELDS, "model": "cnn:padding=1,width=4", "algorithm": f"{mine}:one_client"}
    assert_trees_close(params_of(Run(**given, engine="graphed")), params_of(Run(**given, engine="serial")), rtol=1e-9)
    with pytest.raises(ValueError, match="gives different numbers in batches with padding"):
        Simulation(Run(**{**given, "algorithm": f"{mine}:centred"}, engine="graphed"))


@pytest.mark.parametrize("name", ["fine", "masked"])
def test_a_loss_that_leaves_padding_out_is_stacked(mine: Path, name: str) -> None:
    given = {**FIELDS, "algorithm": f"{mine}:{name}"}
    assert Simulation(Run(**given)).engine_name == "stacked"
    assert_trees_close(params_of(Run(**given, engine="stacked")), params_of(Run(**given, engine="serial")), rtol=1e-9)


@pytest.mark.parametrize("name", ["centred_model", "normed_model"])
def test_a_module_over_the_batch_is_left_to_serial(mine: Path, name: str) -> None:
    """Also where it begins at zero, so that its first gradients hide it."""
    chosen = Simulation(Run(**{**FIELDS, "model": f"{mine}:{name}"}))
    assert chosen.engine_name == "serial"
    assert "the model of this run" in chosen.engine_reason
    with pytest.raises(ValueError, match="engine=serial runs it"):
        Simulation(Run(**{**FIELDS, "model": f"{mine}:{name}"}, engine="stacked"))


def test_an_argument_called_mask_promises_nothing(mine: Path) -> None:
    """Dropout is seeded by the run: the same numbers whatever the generator was, and `auto` takes serial."""
    run = Run(**{**FIELDS, "model": f"{mine}:with_a_mask"})
    assert Simulation(run).engine_name == "serial"
    torch.manual_seed(1)
    first = params_of(run)
    torch.manual_seed(2)
    assert all(torch.equal(leaf, first[name]) for name, leaf in params_of(run).items())


def test_a_network_declares_itself(mine: Path) -> None:
    run = Run(**{**FIELDS, "model": f"{mine}:declared"})
    chosen = Simulation(run)
    assert (chosen.engine_name, chosen.model.quiet) == ("stacked", True)
    serial = params_of(run.model_copy(update={"engine": "serial"}))
    assert_trees_close(params_of(run), serial, rtol=1e-9)


def test_a_network_that_draws_is_not_stacked(mine: Path) -> None:
    run = Run(**{**FIELDS, "model": f"{mine}:declared,drop=on"})
    assert Simulation(run).engine_name == "serial"
    for engine, message in (("stacked", "dropout"), ("threaded", "random numbers"), ("graphed", "without dropout")):
        with pytest.raises(ValueError, match=message):
            list(simulate(run.model_copy(update={"engine": engine})))

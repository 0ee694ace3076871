"""What parts of the user's own give one client is checked before round 1, with any engine."""

from dataclasses import dataclass
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from fedskew import Algorithm, Correction, Run, cross_entropy, simulate
from fedskew.core import tree
from fedskew.core.round import Context
from fedskew.core.tree import Params
from fedskew.simulation.simulation import Simulation
from tests.helpers import OWN, assert_trees_equal

FIELDS: dict[str, Any] = {
    "dataset": f"{OWN}:ragged_digits",
    "partition": "natural",
    "clients": 4,
    "rounds": 1,
    "batch_size": 16,
    "model": "mlp:hidden=8",
}
CHANGES: dict[str, Any] = {
    "summed": lambda leaves: tree.map(torch.sum, leaves),
    "missing": lambda leaves: {name: leaf for name, leaf in leaves.items() if name != "hidden.0.bias"},
    "unknown": lambda leaves: {**leaves, "momentum": leaves["hidden.0.bias"]},
    "numbers": lambda leaves: dict.fromkeys(leaves, 0.0),
    "nothing": lambda leaves: None,
    "listed": lambda leaves: list(leaves.values()),
    "spoilt": lambda leaves: {name: leaf * torch.nan for name, leaf in leaves.items()},
    "copied": lambda leaves: tree.map(torch.clone, leaves),
}
SAME = "allowed: the same names and shapes as"
PROBLEMS = [
    ("summed", r"returned shape \[\] for 'hidden\.0\.weight', whose shape is \[8, 64\]; " + SAME),
    ("missing", r"returned no 'hidden\.0\.bias'; " + SAME),
    ("unknown", r"returned an unknown 'momentum'; " + SAME),
    ("numbers", r"returned a float for 'hidden\.0\.weight'; " + SAME),
    ("nothing", "returned nothing; " + SAME),
    ("listed", "returned a list; " + SAME),
    ("spoilt", r"gives nan in the first step of client 2; allowed: finite numbers$"),
]


@dataclass(frozen=True)
class Bending(Correction):
    change: str

    def bend(self, grads: Params, params: Params, context: Context) -> Params:
        return CHANGES[self.change](grads)


@dataclass(frozen=True)
class Finishing(Correction):
    change: str

    def finish(self, context: Context, delta: Params) -> tuple[Params, Params, Params]:
        return CHANGES[self.change](delta), {}, {}


@dataclass(frozen=True)
class Telling(Correction):
    def finish(self, context: Context, delta: Params) -> tuple[Params, Params, Params]:
        return delta, {}, tree.divide(delta, context.travel * 0)


@dataclass(frozen=True)
class Silent(Correction):
    def finish(self, context: Context, delta: Params) -> Any:
        return delta


@dataclass(frozen=True)
class Climbing:
    change: str

    def __call__(self, params: Params, grads: Params, context: Context) -> Params:
        return CHANGES[self.change](params)


def refused(message: str, engine: str = "auto", **fields: Any) -> None:
    with pytest.raises(ValueError, match=message):
        Simulation(Run(**{**FIELDS, "engine": engine, **fields}))


@pytest.mark.parametrize("engine", ["auto", "serial", "stacked", "threaded", "graphed"])
@pytest.mark.parametrize(("change", "problem"), PROBLEMS)
def test_what_a_correction_bends_keeps_names_and_shapes_and_is_finite(change: str, problem: str, engine: str) -> None:
    algorithm = Algorithm("mine", correction=Bending(change))
    refused(f"^bend of this run's correction {problem}", engine, algorithm=algorithm)


@pytest.mark.parametrize(("change", "problem"), PROBLEMS)
def test_so_does_what_it_makes_of_a_delta(change: str, problem: str) -> None:
    told = rf"^finish of this run's correction \(its delta\) {problem}"
    refused(told, algorithm=Algorithm("mine", correction=Finishing(change)))


@pytest.mark.parametrize(("change", "problem"), PROBLEMS)
def test_so_does_where_an_ascent_leads(change: str, problem: str) -> None:
    refused(f"^the ascent of this run {problem}", algorithm=Algorithm("mine", ascents=(Climbing(change),)))


def test_what_else_a_correction_returns() -> None:
    told = "finish of this run's correction returned a dict; allowed: a delta, a client's state and a message"
    refused(told, algorithm=Algorithm("mine", correction=Silent()))
    told = r"finish of this run's correction \(its message\) gives nan"
    refused(told, algorithm=Algorithm("mine", correction=Telling()))


def test_where_a_part_leads_that_is_given_too_much_is_not_its_fault() -> None:
    """The step is too long: the correction only passes it on."""
    fields = {**FIELDS, "lr": 1e300, "algorithm": Algorithm("mine", correction=Finishing("copied"))}
    assert list(simulate(Run(**fields)))[-1].diverged


@dataclass(frozen=True)
class InPlace(Correction):
    def bend(self, grads: Params, params: Params, context: Context) -> Params:
        for leaf in context.anchor.values():
            leaf.add_(1)
        return grads


def test_the_global_model_stays_as_it_is() -> None:
    changing = Simulation(Run(**FIELDS, algorithm=Algorithm("mine", correction=InPlace())))
    assert_trees_equal(Simulation(Run(**FIELDS)).server.params, changing.server.params)


def spoilt(logits: Tensor, labels: Tensor, counts: Tensor) -> Tensor:
    return cross_entropy(logits, labels, counts) * float("nan")


def endless(logits: Tensor, labels: Tensor, counts: Tensor) -> Tensor:
    return cross_entropy(logits, labels, counts) / 0


def rooted(logits: Tensor, labels: Tensor, counts: Tensor) -> Tensor:
    """Finite, but not its gradient."""
    return cross_entropy(logits, labels, counts) + (logits - logits).sum(-1).sqrt()


def less_log_counts(logits: Tensor, labels: Tensor, counts: Tensor) -> Tensor:
    return cross_entropy(logits - counts.log().unsqueeze(-2), labels, counts)


def plus_log_counts(logits: Tensor, labels: Tensor, counts: Tensor) -> Tensor:
    """Classes that a client lacks are masked by -inf: every loss and gradient is finite."""
    return cross_entropy(logits + counts.log().unsqueeze(-2), labels, counts)


@pytest.mark.parametrize("engine", ["auto", "serial", "stacked"])
@pytest.mark.parametrize(
    ("loss", "problem"),
    [
        (spoilt, "^the loss of this run gives nan in the first step of client 2; allowed: finite numbers$"),
        (endless, "^the loss of this run gives infinite numbers in the first step of client 2; allowed"),
        (rooted, "^the gradient of the loss of this run gives nan"),
        (less_log_counts, r"allowed: finite numbers\. It has no example of 8 of the 10 classes, and log\(0\)"),
    ],
)
def test_a_loss_that_is_not_finite(engine: str, loss: Any, problem: str) -> None:
    refused(problem, engine, algorithm=loss)


def test_counts_are_not_blamed_if_every_client_has_every_class() -> None:
    fields = {**FIELDS, "dataset": "digits", "partition": "iid"}
    assert not list(simulate(Run(**{**fields, "algorithm": less_log_counts})))[-1].diverged
    refused(r"client 0; allowed: finite numbers$", **{**fields, "algorithm": spoilt})


def test_classes_may_be_masked_by_infinite_logits() -> None:
    assert not list(simulate(Run(**FIELDS, algorithm=plus_log_counts)))[-1].diverged


class Spoiling(nn.Linear):
    def __init__(self) -> None:
        super().__init__(64, 10)

    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x.flatten(1)) * (torch.nan if self.training else 1.0)


def test_a_model_that_is_not_finite() -> None:
    for algorithm in ("fedavg", plus_log_counts):
        refused("^the model of this run gives nan", model=Spoiling, algorithm=algorithm)


def spoilt_for_nines(logits: Tensor, labels: Tensor, counts: Tensor) -> Tensor:
    return cross_entropy(logits, labels, counts) + torch.where(labels == 9, torch.nan, 0.0)


def test_what_is_no_number_is_not_taken_for_a_difference_between_engines() -> None:
    simulation = Simulation(Run(**FIELDS, algorithm=spoilt_for_nines))
    assert simulation.engine_name == "stacked"
    assert "different numbers" not in simulation.engine_reason

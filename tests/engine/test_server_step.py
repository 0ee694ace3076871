"""A server's part of the user's own gives what a round needs, or is refused before the first one."""

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest
import torch

from fedskew import Algorithm, Correction, Run, simulate
from fedskew.aggregators import weighted_mean
from fedskew.core import tree
from fedskew.optimizers import sgd
from fedskew.simulation.simulation import Simulation

FIELDS: dict[str, Any] = {"dataset": "digits", "clients": 3, "rounds": 2, "model": "logistic", "weighting": "uniform"}


@dataclass(frozen=True)
class Shares(weighted_mean):
    made: Callable[[Any], Any]

    def coefficients(self, weights: Any, travel: Any) -> Any:
        return self.made(weights / weights.sum())


@dataclass(frozen=True)
class Merge(weighted_mean):
    made: Callable[[Any], Any]

    def merge(self, values: Any, coefficients: Any) -> Any:  # type: ignore[override]
        return self.made(values)


@dataclass(frozen=True)
class Step(sgd):
    made: Callable[[Any], Any] = dict

    def update(self, grads: Any, state: Any, params: Any, rate: Any) -> Any:
        return self.made(grads)


@dataclass(frozen=True)
class Remembering(Correction):
    absorbed: Callable[[Any], Any] = dict
    shifted: Callable[[Any], Any] = lambda server: {}

    def server_state(self, params: Any) -> Any:
        return tree.zeros_like(params)

    def absorb(self, server: Any, sums: Any, fraction: float) -> Any:
        return self.absorbed(sums.delta)

    def shift(self, server: Any) -> Any:
        return self.shifted(server)


def without_bias(leaves: Any) -> Any:
    return {name: leaf for name, leaf in leaves.items() if "bias" not in name}


def mean(leaves: Any) -> Any:
    return tree.map(lambda leaf: leaf.mean(0), leaves)


def infinite(leaves: Any) -> Any:
    return tree.map(lambda leaf: leaf.mean(0) / 0, leaves)


def half_back(grads: Any) -> Any:
    return {name: -0.5 * grad for name, grad in grads.items()}, {}


def half(server: Any) -> Any:
    return {name: 0.5 * leaf for name, leaf in server.items()}


SHARES, MERGED = "coefficients of this run's aggregate", "merge of this run's aggregate"
STEPPED, KEPT = "update of this run's server", "the same names, shapes and types as"
PARTS = [
    ({"aggregate": Shares(torch.mean)}, f"{SHARES} returned shape [] for two clients; allowed: a tensor with one"),
    ({"aggregate": Shares(list)}, f"{SHARES} returned a list for two clients"),
    ({"aggregate": Shares(lambda shares: shares / 0)}, f"{SHARES} gives nan or infinite numbers for finite deltas"),
    ({"aggregate": Merge(dict)}, f"{MERGED} returned shape [2, 10, 64] for 'linear.weight', whose shape is [10, 64]"),
    ({"aggregate": Merge(infinite)}, f"{MERGED} gives nan or infinite numbers"),
    ({"server": Step(made=dict)}, f"{STEPPED} returned a dict; allowed: what to add to the parameters, and a state"),
    ({"server": Step(made=lambda g: (without_bias(g), {}))}, f"{STEPPED} (what to add) returned no 'linear.bias'"),
    ({"server": Step(made=lambda g: (g, None))}, f"{STEPPED} (its state) returned nothing; allowed: a dictionary"),
    ({"correction": Remembering(without_bias)}, f"returned no 'linear.bias'; allowed: {KEPT} server_state has"),
    ({"correction": Remembering(shifted=without_bias)}, f"allowed: nothing, or {KEPT} the parameters"),
]


@pytest.mark.parametrize(("part", "message"), PARTS, ids=[message for _, message in PARTS])
def test_what_no_round_can_use_is_refused(part: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=re.escape(message)):
        Simulation(Run(**FIELDS, algorithm=Algorithm("mine", **part)))


def test_an_error_in_a_part_is_explained_by_the_first_round() -> None:
    def fails(deltas: Any) -> Any:
        raise KeyError("delta")

    run = Run(**FIELDS, algorithm=Algorithm("mine", aggregate=Merge(fails)))
    with pytest.raises(RuntimeError, match=r"test_server_step.py, line \d+, in fails: KeyError: 'delta'"):
        list(simulate(run))


def test_right_parts_run() -> None:
    """Half a step by the optimiser and half of it by the correction are FedAvg's."""
    halves = Algorithm(
        "halves", aggregate=Merge(mean), server=Step(made=half_back), correction=Remembering(shifted=half)
    )
    ours, plain = (list(simulate(Run(**FIELDS, algorithm=algorithm)))[-1].server for algorithm in (halves, "fedavg"))
    assert ours is not None
    assert plain is not None
    torch.testing.assert_close(ours.params, plain.params)


class ByTravel(weighted_mean):
    def coefficients(self, weights: Any, travel: Any) -> Any:
        return weights / weights.sum() / travel


class TravelKept(Correction):
    def server_state(self, params: Any) -> Any:
        return {"gone": torch.zeros((), dtype=torch.float64)}

    def absorb(self, server: Any, sums: Any, fraction: float) -> Any:
        return {"gone": server["gone"] + sums.travel}


@pytest.mark.parametrize("part", [{"aggregate": ByTravel()}, {"correction": TravelKept()}])
def test_a_part_that_uses_travel_says_so(part: dict[str, Any]) -> None:
    (name,) = part
    with pytest.raises(ValueError, match=f"^on the server the {name} of this run uses travel, .*needs_travel = True"):
        Simulation(Run(**FIELDS, algorithm=Algorithm("mine", **part)))
    kind = type(part[name])
    saying = type(kind.__name__, (kind,), {"needs_travel": True})()
    assert Algorithm("mine", **{name: saying}).needs_travel


class Fading(sgd):
    def update(self, grads: Any, state: Any, params: Any, rate: Any) -> Any:
        object.__setattr__(self, "steps", getattr(self, "steps", 0) + 1)
        return tree.map(lambda leaf: leaf / self.steps, tree.neg(grads)), state  # type: ignore[attr-defined]


def test_a_part_must_not_change_itself() -> None:
    with pytest.raises(ValueError, match=r"^the server of this run changes itself when it is called \(steps\): "):
        Simulation(Run(**FIELDS, algorithm=Algorithm("mine", server=Fading(1.0))))


class Rounds(Correction):
    """The number of the round, as a state: steps become shorter by it."""

    def server_state(self, params: Any) -> Any:
        return {"n": tree.first(params).new_zeros(())}

    def bend(self, grads: Any, params: Any, context: Any) -> Any:
        return {name: leaf / (1 + tree.lead(context.server["n"], leaf)) for name, leaf in grads.items()}

    def absorb(self, server: Any, sums: Any, fraction: float) -> Any:
        return {"n": server["n"] + 1}


def test_rounds_can_be_counted() -> None:
    run = Run(**FIELDS, lr=0.1, algorithm=Algorithm("mine", correction=Rounds()))
    one, together = (list(simulate(run.replace(engine=engine)))[-1] for engine in ("serial", "stacked"))
    assert one.server is not None
    assert one.server.correction == {"n": torch.tensor(2.0)}
    assert together.train_loss == pytest.approx(one.train_loss)
    step = run.replace(lr_schedule="step:1,0.5", algorithm="fedavg")
    assert list(simulate(step))[-1].train_loss == pytest.approx(one.train_loss)

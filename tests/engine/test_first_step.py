"""What parts of the user's own give one client is checked before round 1, with any engine."""

import threading
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from fedskew import Algorithm, Correction, Run, View, cross_entropy, simulate
from fedskew.aggregators import weighted_mean
from fedskew.core import tree
from fedskew.core.own import kept_by
from fedskew.core.round import Context
from fedskew.core.tree import Params
from fedskew.simulation.session import simulate_many
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
SAME = "allowed: the same names, shapes and types as"
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


class Counting(Correction):
    """Its first gradients count twice."""

    def __init__(self) -> None:
        object.__setattr__(self, "steps", 0)

    def bend(self, grads: Params, params: Params, context: Context) -> Params:
        object.__setattr__(self, "steps", self.steps + 1)  # type: ignore[attr-defined]
        return tree.map(lambda leaf: leaf / self.steps, grads)  # type: ignore[attr-defined]


class Keeping(Correction):
    """It keeps the last gradient where no digest sees it."""

    def __init__(self) -> None:
        object.__setattr__(self, "box", threading.local())

    def bend(self, grads: Params, params: Params, context: Context) -> Params:
        self.box.grads = grads  # type: ignore[attr-defined]
        return grads


class Warming:
    """A loss with a state; `ready` is computed once, as a cached property may be."""

    def __init__(self) -> None:
        self.heat = torch.zeros(())

    @cached_property
    def ready(self) -> float:
        return 1.0

    def __call__(self, logits: Tensor, labels: Tensor, counts: Tensor) -> Tensor:
        self.heat += self.ready
        return cross_entropy(logits, labels, counts) * self.heat


def memory() -> Any:
    seen = []

    def loss(logits: Tensor, labels: Tensor, counts: Tensor) -> Tensor:
        seen.append(len(labels))
        return cross_entropy(logits, labels, counts)

    return loss


class Repeating(nn.Linear):
    """A module with a state of Python's, or one that keeps what it has computed once and notes what it has seen."""

    def __init__(self, changing: bool) -> None:
        super().__init__(64, 10)
        self.passes, self.scale, self.changing = 0, None, changing
        self.seen: list[Tensor] = []

    def forward(self, x: Tensor) -> Tensor:
        if self.scale is None:
            self.scale = torch.ones(64)
        self.passes += self.changing
        self.seen = [x]
        return super().forward(x.flatten(1) * self.scale)


@pytest.mark.parametrize("engine", ["auto", "serial", "stacked"])
@pytest.mark.parametrize(
    ("fields", "told"),
    [
        ({"algorithm": lambda: Algorithm("mine", correction=Counting())}, r"the correction .* itself .*\(steps\)"),
        ({"algorithm": lambda: Algorithm("mine", correction=Keeping())}, r"the correction .* itself .*\(box.grads\)"),
        ({"algorithm": lambda: Algorithm("mine", loss=Warming())}, r"the loss .* itself .*\(heat\)"),
        ({"algorithm": memory}, r"the loss of this run changes itself when it is called: "),
        ({"model": lambda: Repeating(True)}, r"the model of this run changes itself when it is called \(passes\)"),
    ],
)
def test_a_part_must_not_change_itself(fields: dict[str, Any], told: str, engine: str) -> None:
    refused(told, engine, **fields)


def test_a_model_may_keep_what_it_has_computed_once() -> None:
    Simulation(Run(**{**FIELDS, "model": lambda: Repeating(False)}))


class Noting(nn.Linear):
    """It notes what its last pass did, and knows many words."""

    def __init__(self) -> None:
        super().__init__(64, 10)
        self.size, self.said, self.words = 0.0, torch.zeros(()), {str(i): i for i in range(100_000)}

    def forward(self, x: Tensor) -> Tensor:
        logits = super().forward(x.flatten(1))
        if not torch._C._functorch.is_batchedtensor(logits):  # type: ignore[attr-defined]
            self.size = float(logits.detach().norm())
        self.said = logits.detach()
        return logits


@pytest.mark.parametrize("engine", ["auto", "serial", "stacked"])
def test_a_model_may_note_what_its_last_pass_did(engine: str) -> None:
    runs = [Run(**{**FIELDS, "model": Noting, "engine": engine}, seed=seed) for seed in range(2)]
    assert len(list(simulate_many(runs))) == 2


def test_large_tables_of_a_model_count_by_their_size() -> None:
    model = Noting()
    before = kept_by(model)
    model.words["0"] = 1
    assert kept_by(model) == before
    model.words["more"] = 1
    assert kept_by(model).keys() == before.keys()
    assert kept_by(model)["words"] != before["words"]


class Odd:
    """A loss whose attributes have no digest."""

    def __init__(self) -> None:
        self.graph, self.tree = torch.eye(10).to_sparse(), dict[str, Any]()
        self.tree["self"] = [self.tree]

    def __call__(self, logits: Tensor, labels: Tensor, counts: Tensor) -> Tensor:
        return cross_entropy(logits, labels, counts)


class OddModel(nn.Linear):
    def __init__(self) -> None:
        super().__init__(64, 10)
        self.odd, self.tree = Odd(), Odd().tree

    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x.flatten(1))


def odd() -> Algorithm:
    return Algorithm("odd", loss=Odd())


def odd_model() -> nn.Module:
    return OddModel()


def test_parts_without_a_digest_pass() -> None:
    Simulation(Run(**FIELDS, algorithm=f"{__file__}:odd"))
    Simulation(Run(**{**FIELDS, "model": f"{__file__}:odd_model"}))


class Skipping(nn.Module):
    """It draws from the global generators, and notes what it drew."""

    def __init__(self) -> None:
        super().__init__()
        self.inner, self.linear, self.skipped = nn.Linear(64, 64), nn.Linear(64, 10), False

    def forward(self, x: Tensor) -> Tensor:
        self.skipped = bool(torch.rand(()) < 0.5)
        inner = x.flatten(1) if self.skipped else self.inner(x.flatten(1))
        said: Tensor = self.linear(nn.functional.dropout(inner, 0.5, self.training))
        return said


def test_a_model_may_draw() -> None:
    Simulation(Run(**{**FIELDS, "model": Skipping}))


class Drawing:
    """A loss with a generator of its own."""

    def __init__(self) -> None:
        self.generator = torch.Generator().manual_seed(0)

    def __call__(self, logits: Tensor, labels: Tensor, counts: Tensor) -> Tensor:
        return cross_entropy(logits, labels, counts) * torch.rand((), generator=self.generator)


class DrawingModel(nn.Linear):
    def __init__(self) -> None:
        super().__init__(64, 10)
        self.generator = torch.Generator().manual_seed(0)

    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x.flatten(1)) * torch.rand((), generator=self.generator)


def test_a_part_with_a_generator_of_its_own() -> None:
    told = r"^the {} of this run gives other numbers when it is called again with the same: .* generator of its own"
    refused(told.format("loss"), algorithm=lambda: Algorithm("mine", loss=Drawing()))
    refused(told.format("model"), model=DrawingModel)


class Paced(Correction):
    """It divides by how far the client has gone."""

    def finish(self, context: Context, delta: Params) -> tuple[Params, Params, Params]:
        return delta, {}, tree.divide(delta, context.travel)


class PacedSaying(Paced):
    needs_travel = True


class Branching(Correction):
    """No number of its result is nan."""

    def bend(self, grads: Params, params: Params, context: Context) -> Params:
        return grads if bool((context.travel < 3).all()) else tree.neg(grads)


def paced_loss(view: View) -> Tensor:
    return cross_entropy(view.outputs.logits, view.labels, view.counts) * view.travel.unsqueeze(-1)


def paced_ascent(params: Params, grads: Params, context: Context) -> Params:
    return {name: leaf + grads[name] / tree.lead(context.travel, leaf) for name, leaf in params.items()}


@pytest.mark.parametrize(
    ("algorithm", "who"),
    [
        (Algorithm("mine", correction=Paced()), "correction"),
        (Algorithm("mine", correction=Branching()), "correction"),
        (Algorithm("mine", loss=paced_loss), "loss"),
        (Algorithm("mine", ascents=(paced_ascent,)), "ascent"),
    ],
)
def test_a_part_that_uses_travel_says_so(algorithm: Algorithm, who: str) -> None:
    refused(rf"^the {who} of this run uses travel, .*; set needs_travel = True in its class", algorithm=algorithm)


def test_one_that_says_so_has_it() -> None:
    assert Algorithm("mine", correction=PacedSaying()).needs_travel
    Simulation(Run(**FIELDS, algorithm=Algorithm("mine", correction=PacedSaying())))
    paced_ascent.needs_travel = True  # type: ignore[attr-defined]
    try:
        Simulation(Run(**FIELDS, algorithm=Algorithm("mine", ascents=(paced_ascent,))))
    finally:
        del paced_ascent.needs_travel  # type: ignore[attr-defined]


class PacedBySteps(Paced):
    needs_travel = False


class BySteps(weighted_mean):
    needs_travel = False

    def coefficients(self, weights: Tensor, travel: Tensor) -> Tensor:
        return weights / travel / (weights / travel).sum()


@pytest.mark.parametrize("parts", [{"correction": PacedBySteps()}, {"aggregate": BySteps()}])
def test_the_number_of_steps_may_be_meant(parts: dict[str, Any]) -> None:
    Simulation(Run(**FIELDS, algorithm=Algorithm("mine", **parts), optimizer="adam"))


class Words(nn.Module):
    """`max_norm` shortens rows of the table in the forward pass, here none in the first step."""

    def __init__(self) -> None:
        super().__init__()
        self.table, self.linear = nn.Embedding(17, 8, max_norm=1e6), nn.Linear(8, 10)

    def forward(self, x: Tensor) -> Tensor:
        said: Tensor = self.linear(self.table(x.flatten(1).clamp(0, 16).long()).mean(-2))
        return said


class Clipped(nn.Linear):
    def __init__(self) -> None:
        super().__init__(64, 10)

    def forward(self, x: Tensor) -> Tensor:
        self.weight.data.clamp_(-0.01, 0.01)
        return super().forward(x.flatten(1))


@pytest.mark.parametrize("engine", ["auto", "serial"])
@pytest.mark.parametrize(("model", "name"), [(Words, "table.weight"), (Clipped, "weight")])
def test_a_model_leaves_its_parameters_as_they_are(model: Any, name: str, engine: str) -> None:
    refused(rf"the model of this run changes its parameter '{name}' in a forward pass", engine, model=model)


def detached(logits: Tensor, labels: Tensor, counts: Tensor) -> Tensor:
    return cross_entropy(logits, labels, counts).detach()


class Detached(nn.Linear):
    def __init__(self) -> None:
        super().__init__(64, 10)

    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x.flatten(1)).detach()


@pytest.mark.parametrize("engine", ["auto", "serial", "stacked"])
def test_a_loss_without_a_gradient(engine: str) -> None:
    refused("^the loss of this run has no gradient; allowed: ", engine, algorithm=detached)
    refused("^the model of this run has no gradient; allowed: ", engine, model=Detached)


@dataclass(frozen=True)
class Numbered(Correction):
    """Its states are numbers of Python."""

    on_server: bool

    def client_state(self, params: Params) -> Any:
        return {} if self.on_server else {"n": 0}

    def server_state(self, params: Params) -> Any:
        return {"n": 0} if self.on_server else {}

    def finish(self, context: Context, delta: Params) -> tuple[Params, Params, Params]:
        return delta, context.client, {}


@pytest.mark.parametrize(("on_server", "name"), [(True, "server_state"), (False, "client_state")])
def test_a_state_is_tensors(on_server: bool, name: str) -> None:
    told = f"^{name} of this run's correction returned an int for 'n'; allowed: a dictionary of tensors"
    refused(told, algorithm=Algorithm("mine", correction=Numbered(on_server)))


class Wide(Correction):
    def bend(self, grads: Params, params: Params, context: Context) -> Params:
        return tree.map(torch.Tensor.double, grads)


def test_what_a_correction_bends_keeps_its_type() -> None:
    told = r"^bend of this run's correction returned float64 for 'hidden\.0\.weight', whose type is float32; allowed"
    refused(told, algorithm=Algorithm("mine", correction=Wide()))


class Both(nn.Linear):
    def __init__(self) -> None:
        super().__init__(64, 10)

    def forward(self, x: Tensor) -> Any:
        said = super().forward(x.flatten(1))
        return said, said


def test_a_model_returns_logits_alone() -> None:
    refused(r"^Both@\w+: the module returns a tuple; allowed: a tensor, its logits", model=Both)

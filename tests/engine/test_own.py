"""Parts of the user's own: an engine agrees with `serial` on them or refuses them, and `auto` avoids those that do."""

from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from fedskew import Algorithm, Run, Store, cross_entropy, simulate
from fedskew.core import rng
from fedskew.core.own import own_parts
from fedskew.core.round import Recipe
from fedskew.diagnostics.observing import observe
from fedskew.engine import ENGINES, Graphed, Serial, Stacked, Threaded, choose_engine
from fedskew.engine.trial import capturable
from fedskew.losses import OnExamples
from fedskew.simulation.simulation import Simulation, advance
from tests.helpers import OWN, assert_trees_close, assert_trees_equal
from tests.helpers.own_methods import Climb, Noise, Trusting, Unit, weighing
from tests.helpers.parts import METHODS

METHODS_OF_ONES_OWN = OWN.parent / "own_methods.py"
FIELDS: dict[str, Any] = {
    "dataset": f"{OWN}:ragged_digits",
    "partition": "natural",
    "clients": 4,
    "rounds": 3,
    "batch_size": 16,
    "lr": 0.1,
    "momentum": 0.5,
    "precision": "fp64",
    "model": "mlp:hidden=8",
}
OTHERS = [name for name in ENGINES if name != "serial"]


def run_of(algorithm: str = "fedavg", **more: Any) -> Run:
    own = "" if algorithm in METHODS else f"{METHODS_OF_ONES_OWN}:"
    return Run(**{**FIELDS, "algorithm": f"{own}{algorithm}", **more})


def params_of(run: Run, **more: Any) -> dict[str, torch.Tensor]:
    last = list(simulate(run, **more))[-1].server
    assert last is not None
    return dict(last.used)


def updates(make: Any, simulation: Simulation, recipe: Recipe) -> Any:
    return make(simulation.settings).train(recipe, [simulation.server], [simulation.cohort(1)], 1)[0]


@dataclass(frozen=True)
class Doubled:
    """A loss around one of ours."""

    function: OnExamples

    def __call__(self, logits: Tensor, labels: Tensor, counts: Tensor) -> Tensor:
        return 2 * self.function(logits, labels, counts)


def test_own_parts_are_named() -> None:
    recipe = Simulation(run_of()).recipe(1)
    assert own_parts(recipe) == []
    own = Algorithm("own", loss=weighing(), correction=Unit(whole=False), ascents=(Climb(whole=False),))
    parts = ["loss", "correction", "ascent", "optimizer"]
    assert own_parts(replace(recipe, algorithm=own, optimizer=Trusting())) == parts
    assert own_parts(replace(recipe, algorithm=Algorithm("own", terms=(Doubled(cross_entropy),)))) == ["loss"]


@pytest.mark.parametrize(
    ("algorithm", "part"), [("unit", "correction"), ("remembered", "correction"), ("climb", "ascent")]
)
def test_a_part_that_mixes_clients_is_left_to_serial(algorithm: str, part: str) -> None:
    chosen = Simulation(run_of(f"{algorithm},whole=on"))
    assert chosen.engine_name == "serial"
    assert f"the {part} of this run gives different numbers to clients together" in chosen.engine_reason
    with pytest.raises(ValueError, match=rf"engine is 'stacked', but the {part} .*; engine=serial runs it"):
        Simulation(run_of(f"{algorithm},whole=on", engine="stacked"))
    serial = params_of(run_of(f"{algorithm},whole=on", engine="serial"))
    for engine in ("graphed", "threaded"):
        assert_trees_close(params_of(run_of(f"{algorithm},whole=on", engine=engine)), serial, rtol=1e-9)


@pytest.mark.parametrize("algorithm", ["unit", "remembered", "climb", "weighing", "reading", "masking"])
def test_a_part_that_keeps_clients_separate_runs_in_every_engine(
    algorithm: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert Simulation(run_of(algorithm)).engine_name == "stacked"
    serial = params_of(run_of(algorithm, engine="serial"))
    reads = algorithm in ("reading", "masking")
    for engine in OTHERS if not reads else ("stacked", "threaded"):
        assert_trees_close(params_of(run_of(algorithm, engine=engine)), serial, rtol=1e-9)
    monkeypatch.setitem(ENGINES, "stacked", partial(Stacked, captured=True))
    assert_trees_close(params_of(run_of(algorithm, engine="stacked")), serial, rtol=1e-9)


@pytest.mark.parametrize("algorithm", ["unit", "remembered", "climb"])
def test_seeds_together_equal_each_alone(algorithm: str) -> None:
    together = [Simulation(run_of(algorithm, seed=seed)) for seed in (0, 1)]
    assert together[0].engine_name == "stacked"
    for _ in range(FIELDS["rounds"]):
        advance(together)
    for simulation in together:
        alone = params_of(simulation.run.model_copy(update={"engine": "serial"}))
        assert_trees_close(simulation.server.params, alone, rtol=1e-9)


def test_an_optimiser_is_tried_too() -> None:
    simulation = Simulation(run_of())
    data = simulation.federation.dataset
    right, wrong = (replace(simulation.recipe(1), optimizer=Trusting(0.1, 0.5, whole=whole)) for whole in (False, True))
    assert choose_engine("auto", right, simulation.server, data)[0] == "stacked"
    engine, reason = choose_engine("auto", wrong, simulation.server, data)
    assert engine == "serial"
    assert "the optimizer of this run gives different numbers" in reason
    expected = updates(Serial, simulation, right)
    for make in (Stacked, partial(Stacked, captured=True), Graphed, Threaded):
        assert_trees_close(updates(make, simulation, right).delta, expected.delta, rtol=1e-9)


DRAWING = [
    ("noise", "mlp:hidden=8", "correction"),
    ("noise,share=0.001", "mlp:hidden=8", "correction"),
    ("scaled_by_numpy", "mlp:hidden=8", "loss"),
    ("scaled_by_python", "mlp:hidden=8", "loss"),
    ("fedavg", f"{METHODS_OF_ONES_OWN}:dropping", "model"),
    ("fedavg", f"{METHODS_OF_ONES_OWN}:dropping_one", "model"),
]


ELSEWHERE = "private", "started", "blurred", "guessed"
"""Methods that draw outside a client's steps."""


@pytest.mark.parametrize(("algorithm", "model", "part"), DRAWING)
def test_parts_that_draw_are_found_out(algorithm: str, model: str, part: str) -> None:
    chosen = Simulation(run_of(algorithm, model=model))
    assert chosen.engine_name == "serial"
    assert f"the {part} of this run draws random numbers" in chosen.engine_reason
    for engine in OTHERS:
        with pytest.raises(ValueError, match=rf"engine is '{engine}', but the {part} of this run draws random numbers"):
            Simulation(run_of(algorithm, model=model, engine=engine))


def test_a_network_for_threads_that_draws_is_left_to_serial(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fedskew.engine.cores", lambda: 2)
    fields = {"model": "cnn:padding=1,width=4"}
    assert Simulation(run_of("unit", **fields)).engine_name == "threaded"
    assert Simulation(run_of("noise", **fields)).engine_name == "serial"


@pytest.mark.parametrize(
    ("algorithm", "model"), [*((a, m) for a, m, _ in DRAWING), *((a, "mlp:hidden=8") for a in ELSEWHERE)]
)
def test_what_parts_draw_depends_on_the_run_alone(algorithm: str, model: str) -> None:
    """Not on global generators, which are left where they were."""
    run = run_of(algorithm, model=model)
    made = []
    for seed in (1, 2):
        with rng.seeded(seed, "elsewhere"):
            before = rng.position()
            made.append(params_of(run))
            assert rng.position() == before
    assert_trees_equal(made[0], made[1])


@pytest.mark.parametrize("algorithm", ELSEWHERE)
def test_looking_at_a_method_that_draws_leaves_the_generators_alone(algorithm: str) -> None:
    """A round under another method, and what its clients would send."""
    plain, mine = Simulation(run_of()), run_of(algorithm)
    seen = []
    for seed in (1, 2):
        with rng.seeded(seed, "elsewhere"):
            before = rng.position()
            made = observe(plain, algorithm=mine.algorithm)
            assert rng.position() == before
            seen.append(made.update.delta)
    assert_trees_equal(seen[0], seen[1])
    plan, before = plain.plan.with_run(mine), rng.position()
    plan.message_like(plain.server)
    assert rng.position() == before


@pytest.mark.parametrize("algorithm", ["noise", *ELSEWHERE, "lazy"])
def test_a_run_of_ones_own_is_resumed_to_the_bit(algorithm: str, tmp_path: Path) -> None:
    """Also if a method draws, or if its server has a state only after the first round."""
    run, store = run_of(algorithm), Store(tmp_path)
    expected = params_of(run)
    first = simulate(run, store=store)
    next(first)
    first.close()
    with rng.seeded(3, "elsewhere"):
        assert_trees_equal(params_of(run, store=store), expected)


def test_clients_and_rounds_draw_different_numbers() -> None:
    simulation = Simulation(run_of())
    recipe = replace(simulation.recipe(1), algorithm=Algorithm("noise", correction=Noise(1.0)))
    cohort, engine = simulation.cohort(1), Serial(simulation.settings)
    other = replace(cohort, clients=cohort.clients[::-1].copy())
    first, again = (engine.train(recipe, [simulation.server], [given], 1)[0].delta for given in (cohort, other))
    assert_trees_equal({name: leaf.flip(0) for name, leaf in again.items()}, first)


def test_what_a_server_sends_is_drawn_in_every_round() -> None:
    simulation = Simulation(run_of("blurred"))
    first, again, other = (simulation.plan.sent(simulation.server, round).params for round in (1, 1, 2))
    assert_trees_equal(first, again)
    assert not any(torch.equal(leaf, other[name]) for name, leaf in first.items())


@pytest.mark.parametrize(
    ("algorithm", "reads"),
    [("reading", True), ("masking", True), ("tabled", True), ("inverting", True), ("weighing", False)],
)
def test_a_loss_that_reads_numbers_is_not_captured(algorithm: str, reads: bool) -> None:
    simulation = Simulation(run_of(algorithm))
    engine = Stacked(simulation.settings, captured=True)
    engine.train(simulation.recipe(1), [simulation.server], [simulation.cohort(1)], 1)
    assert (engine._rounds.lanes is None) == reads
    if reads:
        with pytest.raises(ValueError, match="the loss of this run reads numbers from tensors"):
            Simulation(run_of(algorithm, engine="graphed"))


@pytest.mark.parametrize("name", METHODS)
def test_parts_of_ours_beside_ones_own_are_captured(name: str) -> None:
    """Nothing of ours reads a number in a step, so that only the user's part decides."""
    simulation = Simulation(run_of())
    recipe = replace(simulation.recipe(1), algorithm=replace(METHODS[name], terms=(*METHODS[name].terms, weighing())))
    ours = Simulation(run_of(name, **({} if METHODS[name].aggregate.linear else {"weighting": "uniform"})))
    assert capturable(recipe, ours.server, ours.federation.dataset)
    assert choose_engine("stacked", recipe, ours.server, ours.federation.dataset)[0] == "stacked"
    assert choose_engine("graphed", recipe, ours.server, ours.federation.dataset)[0] == "graphed"


def test_another_method_is_tried_before_it_is_observed() -> None:
    method = f"{METHODS_OF_ONES_OWN}:unit,whole=on"
    simulation = Simulation(run_of())
    assert simulation.engine_name == "stacked"
    seen, expected = (observe(each, algorithm=method) for each in (simulation, Simulation(run_of(engine="serial"))))
    assert_trees_close(seen.update.delta, expected.update.delta)
    assert simulation.engine_name == "stacked"


@pytest.mark.parametrize("engine", ["serial", "stacked", "threaded", "auto"])
@pytest.mark.parametrize(("begins", "ends"), [("on", "off"), ("off", "on")])
def test_a_state_that_would_be_lost_is_refused(engine: str, begins: str, ends: str) -> None:
    run = run_of(f"forgetful,begins={begins},ends={ends}", engine=engine, rounds=1)
    told = r"finish of this run's correction \(its state\) returned (no|an unknown) 'hidden\.0\.weight'; allowed"
    with pytest.raises(ValueError, match=told):
        Simulation(run)
    assert list(simulate(run_of(f"forgetful,begins={begins},ends={begins}", engine=engine, rounds=1)))


def test_a_state_with_other_names_is_refused_in_a_round_too(monkeypatch: pytest.MonkeyPatch) -> None:
    """A node of a federation takes no first step before round 1."""
    monkeypatch.setattr("fedskew.simulation.simulation.check_parts", lambda *_: None)
    with pytest.raises(RuntimeError, match="other names than client_state has"):
        list(simulate(run_of("forgetful,ends=on", engine="serial", rounds=1)))

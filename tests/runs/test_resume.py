"""A run that goes on from its checkpoint is the run that never stopped, to the last bit, for every kind of model."""

import json
import math
from pathlib import Path
from typing import Any

import pytest
import torch

from fedskew import Run, Store, engine, load_model, simulate
from fedskew.core import tree
from fedskew.engine.stacked import Stacked
from fedskew.runs.export import export_model
from fedskew.runs.results import Result
from fedskew.runs.store import StoreError
from fedskew.simulation.plan import build_federation
from fedskew.simulation.session import note_run, simulate_many
from fedskew.simulation.simulation import Simulation, advance
from tests.helpers import OWN

FIELDS: dict[str, Any] = {"dataset": "digits", "clients": 4, "partition": "iid", "batch_size": 64, "lr": 0.1}


def last(run: Run, store: Store | None = None) -> dict[str, torch.Tensor]:
    *_, record = simulate(run, store=store)
    assert record.server is not None
    return record.server.params


@pytest.mark.parametrize(
    "more",
    [
        {"grad_clip": 0.5},
        {"model": f"{OWN}:plain"},
        {"model": "cnn:width=4,padding=1", "engine": "threaded"},
        {"algorithm": "fedlc+scaffold", "clients_per_round": 3},
        {"algorithm": "fedopt", "batch_size": 1023},
    ],
)
def test_to_the_last_bit(tmp_path: Path, more: dict[str, Any]) -> None:
    fields, store = {**FIELDS, **more}, Store(tmp_path)
    last(Run(**fields, rounds=2), store)
    resumed, straight = last(Run(**fields, rounds=4), store), last(Run(**fields, rounds=4))
    assert list(resumed) == list(straight)
    assert all(torch.equal(resumed[name], straight[name]) for name in straight)


@pytest.mark.parametrize("name", ["graphed", "stacked"])
@pytest.mark.parametrize("algorithm", ["fedavg", "scaffold"])
def test_a_stored_and_a_fresh_seed_together(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, algorithm: str
) -> None:
    monkeypatch.setitem(engine.ENGINES, "stacked", lambda settings: Stacked(settings, captured=True))
    fields = {**FIELDS, "engine": name, "model": "mlp", "precision": "fp64", "algorithm": algorithm}
    store, ends = Store(tmp_path), {}
    last(Run(**fields, seed=0, rounds=2), store)
    for position, record in simulate_many([Run(**fields, seed=s, rounds=4) for s in (0, 1)], store=store):
        ends[position] = record.server
    for seed, server in ends.items():
        alone = last(Run(**fields, seed=seed, rounds=4))
        assert server is not None
        assert all(torch.allclose(server.params[leaf], alone[leaf], atol=1e-12) for leaf in alone)


def test_seeds_that_train_together_are_saved_together(tmp_path: Path) -> None:
    """One that had to catch up alone would end with other bits."""
    store, simulations = Store(tmp_path), [Simulation(Run(**FIELDS, rounds=2, seed=seed)) for seed in (0, 1)]
    for simulation in simulations:
        note_run(simulation.run, folder := store.folder(simulation.run.hash))
        simulation.attach(folder)
    simulations[1]._saved_at = -math.inf
    advance(simulations)
    assert [folder.saved() for folder in store] == [1, 1]


def test_a_length_whose_end_was_not_evaluated_is_no_result(tmp_path: Path) -> None:
    store = Store(tmp_path)
    fields = {**FIELDS, "eval_every": 40}
    short, long = Run(**fields, rounds=12), Run(**fields, rounds=24)
    for record in simulate(short, store=store):
        if record.round == 1:
            break
    list(simulate(long, store=store))
    folder = store.folder(long.hash)
    assert folder.lengths() == [12, 24]
    assert [result.rounds for result in Result.of(folder)] == [24]
    list(simulate(short, store=store))
    assert [result.rounds for result in Result.of(folder)] == [12, 24]


def test_a_shorter_length_computed_again_is_noted_at_once(tmp_path: Path) -> None:
    store = Store(tmp_path)
    fields = {**FIELDS, "eval_every": 40}
    list(simulate(Run(**fields, rounds=24), store=store))
    list(simulate(Run(**fields, rounds=12), store=store))
    assert [result.rounds for result in Result.of(store.folder(Run(**fields).hash))] == [12, 24]


def test_the_end_of_an_interrupted_run_that_becomes_shorter_is_evaluated(tmp_path: Path) -> None:
    """Round 8 of 24 was not, but is one of the last rounds of 14."""
    store, fields = Store(tmp_path), {**FIELDS, "algorithm": "scaffold", "clients_per_round": 2, "eval_every": 40}
    begun = simulate(Run(**fields, rounds=24), store=store)
    assert [next(begun).accuracy for _ in range(9)] == [None] * 9
    begun.close()
    short = Run(**fields, rounds=14)
    resumed, straight = list(simulate(short, store=store)), list(simulate(short))
    assert [record.accuracy for record in resumed] == [record.accuracy for record in straight]
    assert resumed[-1].server is not None
    assert straight[-1].server is not None
    assert tree.digest(resumed[-1].server.params) == tree.digest(straight[-1].server.params)
    folder = store.folder(short.hash)
    assert [result.rounds for result in Result.of(folder)] == [14]
    assert [session["from_round"] for session in folder.sessions()] == [0, 9]


def test_a_record_without_its_figures_is_damaged(tmp_path: Path) -> None:
    store, run = Store(tmp_path), Run(**FIELDS, rounds=1)
    list(simulate(run, store=store))
    with (store.folder(run.hash).path / "records.jsonl").open("a") as file:
        file.write('{"round": 2}\n')
    with pytest.raises(StoreError, match="line 2 is damaged"):
        store.folder(run.hash).records()


def test_a_store_may_be_given_as_its_folder(tmp_path: Path) -> None:
    run = Run(**FIELDS, rounds=1)
    list(simulate(run, store=str(tmp_path / "runs")))
    assert Store(tmp_path / "runs").folder(run.hash).exists()
    with pytest.raises(TypeError, match="'digits' is not a run; write Run"):
        list(simulate("digits"))  # type: ignore[arg-type]


@pytest.mark.parametrize("fields", [{"lr": 1e30}, {"lr": 1e9, "model": "mlp", "dataset": "digits"}])
def test_a_diverged_model_is_not_exported(tmp_path: Path, fields: dict[str, Any]) -> None:
    store, run = Store(tmp_path), Run(**{**FIELDS, **fields}, rounds=1)
    list(simulate(run, store=store))
    with pytest.raises(StoreError, match="has diverged"):
        export_model(store.folder(run.hash), tmp_path / "x.safetensors")
    assert not (tmp_path / "x.safetensors").exists()


def test_a_file_of_python_runs_only_when_allowed(tmp_path: Path) -> None:
    store, run = Store(tmp_path), Run(**FIELDS, model=f"{OWN}:plain", rounds=1)
    list(simulate(run, store=store))
    export_model(store.folder(run.hash), tmp_path / "x.safetensors")
    with pytest.raises(ValueError, match="pass own_files=True to allow it"):
        load_model(tmp_path / "x.safetensors")
    assert load_model(tmp_path / "x.safetensors", own_files=True)


def test_a_replayed_split_keeps_its_owners_beside_held_out_examples(tmp_path: Path) -> None:
    plain = build_federation(Run(**{**FIELDS, "partition": "dirichlet:0.3"}))
    parts = [part.tolist() for part in plain.indices]
    (tmp_path / "split.json").write_text(json.dumps(parts))
    run = Run(**{**FIELDS, "partition": f"replay:{tmp_path / 'split.json'}"}, validation=0.2)
    federation = build_federation(run)
    held_out = set(federation.held_out.tolist())
    assert len(held_out) > 100
    for part, kept in zip(parts, federation.indices, strict=True):
        assert set(kept.tolist()) == set(part) - held_out

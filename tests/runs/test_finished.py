"""A run is finished when its last model is kept, whatever stopped it on the way."""

import json
import os
import threading
from pathlib import Path

import pytest

from fedskew import Run, Store, simulate
from fedskew.core import tree
from fedskew.report.page.entries import read_entries
from fedskew.runs.export import export_model
from fedskew.runs.results import Result
from fedskew.runs.store import Folder
from fedskew.simulation import simulation
from tests.cli.calling import call
from tests.runs.test_store import FIELDS, final, same


def without_the_last_checkpoint(run, store, monkeypatch):
    """Do a run on a disk that is full when the checkpoint of its last round is written."""
    save = simulation.save_checkpoint

    def full(folder, round, server, *states):
        if round == run.rounds or not tree.finite(server.params):
            raise OSError(28, "No space left on device", str(folder.checkpoint))
        save(folder, round, server, *states)

    with monkeypatch.context() as patched:
        patched.setattr(simulation, "save_checkpoint", full)
        patched.setattr(simulation, "_CHECKPOINT_SECONDS", -1.0)
        patched.setattr(simulation, "_CHECKPOINT_SHARE", 0)
        with pytest.raises(OSError, match="No space"):
            final(run, store)


@pytest.mark.parametrize("algorithm", ["fedavg", "scaffold+fedopt"])
def test_a_run_whose_last_model_was_not_kept_goes_on(tmp_path, monkeypatch, algorithm):
    run, store = Run(**FIELDS, algorithm=algorithm), Store(tmp_path / "runs")
    without_the_last_checkpoint(run, store, monkeypatch)
    folder = store.folder(run.hash)
    assert len(folder.records()) == run.rounds
    assert folder.saved() == run.rounds - 1
    assert Result.of(folder) == []
    assert read_entries([folder])[0][0].state == "unfinished"
    whole = final(run)
    assert same(final(run, store), whole)
    assert export_model(folder, tmp_path / "model.safetensors") == run.rounds
    assert [result.rounds for result in Result.of(folder)] == [run.rounds]


def test_a_diverged_run_whose_last_model_was_not_kept_diverges_again(tmp_path, monkeypatch):
    run, store = Run(**FIELDS, lr=1e20, weight_decay=1e20), Store(tmp_path)
    without_the_last_checkpoint(run, store, monkeypatch)
    folder = store.folder(run.hash)
    assert folder.records()[-1]["diverged"]
    assert folder.saved() < len(folder.records())
    assert (Result.of(folder), read_entries([folder])[0][0].state) == ([], "unfinished")
    last = final(run, store)
    assert last.diverged
    assert folder.saved() == last.round
    assert read_entries([folder])[0][0].state == "diverged"


def test_a_length_that_was_finished_stays_so_while_a_longer_one_is_not(tmp_path, monkeypatch):
    short, long, store = Run(**FIELDS), Run(**{**FIELDS, "rounds": 11}), Store(tmp_path)
    final(short, store)
    without_the_last_checkpoint(long, store, monkeypatch)
    folder = store.folder(short.hash)
    assert (len(folder.records()), folder.saved()) == (11, 10)
    assert [result.rounds for result in Result.of(folder)] == [short.rounds]
    monkeypatch.setattr("fedskew.simulation.session.Simulation", None)
    assert final(short, store).round == short.rounds


def test_a_length_between_the_checkpoint_and_the_records_goes_on(tmp_path, monkeypatch):
    """Its records are there, its model is not."""
    long, store = Run(**{**FIELDS, "rounds": 11}), Store(tmp_path)
    final(Run(**{**FIELDS, "rounds": 5}), store)
    monkeypatch.setattr(simulation, "save_checkpoint", lambda *_: None)
    final(long, store)
    monkeypatch.undo()
    between = Run(**FIELDS)
    assert same(final(between, store), final(between))
    assert store.folder(between.hash).saved() == between.rounds
    assert same(final(long, store), final(long))


def test_the_list_says_what_is_not_finished(tmp_path, monkeypatch, capsys):
    run, store = Run(**FIELDS), Store(tmp_path)
    without_the_last_checkpoint(run, store, monkeypatch)
    (row,) = json.loads(call(capsys, "runs", "list", "--json", "--runs", str(tmp_path))[1])
    assert (row["state"], row["progress"]) == ("unfinished", "8/8")


def test_records_are_on_the_disk_before_their_checkpoint(tmp_path, monkeypatch):
    """Else a loss of power could leave a checkpoint without its records."""
    synced, replaced, events = os.fsync, Path.replace, []

    def sync(handle):
        events.append(Path(os.readlink(f"/proc/self/fd/{handle}")).name)
        synced(handle)

    def replace(part, path):
        events.append(f"-> {path.name}")
        return replaced(part, path)

    run, store = Run(**{**FIELDS, "rounds": 2}), Store(tmp_path)
    records = simulate(run, store=store)
    next(records)
    monkeypatch.setattr(os, "fsync", sync)
    monkeypatch.setattr(Path, "replace", replace)
    list(records)
    assert events == [
        "records.jsonl",
        f".checkpoint.safetensors.{os.getpid()}-{threading.get_ident()}.part",
        "-> checkpoint.safetensors",
        run.hash,
    ]


def test_a_run_at_work_is_read_without_a_lock(tmp_path, monkeypatch):
    """A record and its checkpoint may be written while somebody reads the records."""
    run, store = Run(**FIELDS), Store(tmp_path)
    monkeypatch.setattr(simulation, "_CHECKPOINT_SECONDS", -1.0)
    monkeypatch.setattr(simulation, "_CHECKPOINT_SHARE", 0)
    records, folder = simulate(run, store=store), store.folder(run.hash)
    next(records)
    lines = Folder._lines

    def meanwhile(self, *asked):
        found = lines(self, *asked)
        monkeypatch.setattr(Folder, "_lines", lines)
        next(records)
        return found

    monkeypatch.setattr(Folder, "_lines", meanwhile)
    assert len(folder.records()) == 1
    assert len(folder.records()) == folder.saved() == 2
    records.close()


def test_a_finished_run_is_read_where_nothing_can_be_written(tmp_path, monkeypatch):
    run, store = Run(**FIELDS), Store(tmp_path)
    final(run, store)

    def refused(*_, **__):
        raise OSError(30, "Read-only file system")

    monkeypatch.setattr("fedskew.runs.store.write_whole", refused)
    monkeypatch.setattr(Path, "mkdir", refused)
    opened = Path.open
    monkeypatch.setattr(
        Path, "open", lambda path, mode="r", *a: opened(path, mode, *a) if mode[0] == "r" else refused()
    )
    assert final(run, store).round == run.rounds
    assert final(Run(**{**FIELDS, "rounds": 3}), store).round == 3  # a length that cannot be noted

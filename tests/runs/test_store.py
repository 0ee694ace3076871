import json
import os
import subprocess
import sys

import pytest
import torch

from fedskew import Run, Store, simulate
from fedskew.core.files import write_whole
from fedskew.runs.checkpoint import load_checkpoint
from fedskew.runs.sealed import seal
from fedskew.runs.store import Folder, StoreBusy, StoreError
from fedskew.simulation import session
from fedskew.simulation.simulation import Simulation

FIELDS = {
    "dataset": "synthetic:1,1,max_size=120",
    "clients": 6,
    "clients_per_round": 4,
    "batch_size": 16,
    "momentum": 0.9,
    "rounds": 8,
}
METHODS = ["fedlc+scaffold", "fedopt", "fednova", "scaffold+fedopt:server=yogi"]


def final(run, store=None):
    return list(simulate(run, store=store))[-1]


def same(a, b):
    trees = [(getattr(a.server, part), getattr(b.server, part)) for part in vars(a.server)]
    return all(torch.equal(x[name], y[name]) for x, y in trees for name in x) and a.accuracy == b.accuracy


@pytest.mark.parametrize("algorithm", METHODS)
@pytest.mark.parametrize("engine", ["serial", "stacked"])
def test_an_interrupted_run_ends_bit_identical(tmp_path, algorithm, engine):
    run = Run(**FIELDS, algorithm=algorithm, engine=engine, dropout_rate=0.2)
    whole = final(run)
    store = Store(tmp_path)
    for stop in (3, 5):
        records = simulate(run, store=store)
        for record in records:
            if record.round == stop:
                break
        records.close()
    assert same(final(run, store), whole)
    assert [r["round"] for r in store.folder(run.hash).records()] == list(range(1, 9))


def test_buffers_survive_an_interruption(tmp_path):
    run = Run(clients=4, model="cnn:width=4,padding=1", rounds=4, batch_size=64, lr=0.1)
    whole = final(run)
    records = simulate(run, store=Store(tmp_path))
    next(records)
    next(records)
    records.close()
    assert whole.server.buffers
    assert same(final(run, Store(tmp_path)), whole)


def test_a_finished_run_is_not_run_again(tmp_path, monkeypatch):
    run, store = Run(**FIELDS), Store(tmp_path)
    first = final(run, store)
    monkeypatch.setattr("fedskew.simulation.session.Simulation", None)
    again = final(run, store)
    assert again.accuracy == first.accuracy
    assert again.server is None


def test_more_rounds_extend_a_run(tmp_path):
    store = Store(tmp_path)
    final(Run(**FIELDS), store)
    longer = Run(**{**FIELDS, "rounds": 11})
    records = list(simulate(longer, store=store))
    assert [record.round for record in records] == list(range(1, 12))
    assert same(records[-1], final(longer))
    assert store.folder(longer.hash).checkpoint.exists()


def test_fewer_rounds_are_read_from_a_longer_run(tmp_path):
    store = Store(tmp_path)
    final(Run(**FIELDS), store)
    shorter = Run(**{**FIELDS, "rounds": 3})
    assert final(shorter, store).accuracy == final(shorter).accuracy
    assert len(store.folder(shorter.hash).records()) == 8


def test_fewer_rounds_of_a_sparsely_evaluated_run_lose_nothing(tmp_path):
    store = Store(tmp_path)
    long = Run(**{**FIELDS, "rounds": 25, "eval_every": 5})
    final(long, store)
    short = Run(**{**FIELDS, "rounds": 13})
    assert final(short, store).accuracy == final(short).accuracy
    assert len(store.folder(long.hash).records()) == 25


def test_a_half_written_record_is_dropped(tmp_path):
    run, store = Run(**FIELDS), Store(tmp_path)
    records = simulate(run, store=store)
    for record in records:
        if record.round == 4:
            break
    records.close()
    path = store.folder(run.hash).path / "records.jsonl"
    path.write_bytes(path.read_bytes() + b'{"round": 5, "accur')
    assert same(final(run, store), final(run))


def test_rounds_after_the_checkpoint_are_computed_again(tmp_path):
    run, store = Run(**FIELDS), Store(tmp_path)
    final(run, store)
    folder = store.folder(run.hash)
    early = Run(**{**FIELDS, "rounds": 5})
    final(early, Store(tmp_path / "early"))
    os.replace(Store(tmp_path / "early").folder(early.hash).checkpoint, folder.checkpoint)
    (folder.path / "records.jsonl").write_bytes(
        b"".join((folder.path / "records.jsonl").read_bytes().splitlines(True)[:7])
    )
    assert same(final(run, store), final(run))


def test_a_damaged_checkpoint_is_an_error_and_nothing_is_lost(tmp_path):
    run, store = Run(**FIELDS), Store(tmp_path)
    records = simulate(run, store=store)
    next(records)
    records.close()
    folder = store.folder(run.hash)
    whole = folder.checkpoint.read_bytes()
    folder.checkpoint.write_bytes(whole[: len(whole) // 2])
    with pytest.raises(StoreError, match=r"checkpoint .* is damaged .*runs remove"):
        final(run, store)
    assert folder.checkpoint.exists()
    assert len((folder.path / "records.jsonl").read_bytes().splitlines()) == 1


@pytest.mark.parametrize("content", [b"not json", b"[]", b"\xff\xfe"])
def test_a_damaged_run_file(tmp_path, content):
    run, store = Run(**FIELDS), Store(tmp_path)
    final(run, store)
    (store.folder(run.hash).path / "run.json").write_bytes(content)
    with pytest.raises(StoreError, match="damaged"):
        final(run, store)


def test_a_damaged_record_in_the_middle(tmp_path):
    run, store = Run(**FIELDS), Store(tmp_path)
    final(run, store)
    path = store.folder(run.hash).path / "records.jsonl"
    lines = path.read_bytes().splitlines(True)
    path.write_bytes(b"".join([*lines[:2], b"nonsense\n", *lines[3:]]))
    with pytest.raises(StoreError, match="line 3 is damaged"):
        final(run, store)


def test_a_folder_of_another_version(tmp_path):
    run, store = Run(**FIELDS), Store(tmp_path)
    final(run, store)
    path = store.folder(run.hash).path / "run.json"
    path.write_bytes(seal({**store.folder(run.hash).about(), "format": 99}))
    with pytest.raises(StoreError, match="format 99"):
        final(run, store)


def test_two_iterators_do_not_share_a_run(tmp_path):
    run, store = Run(**FIELDS), Store(tmp_path)
    first = simulate(run, store=store)
    next(first)
    with pytest.raises(StoreError, match="this process is already working"):
        next(simulate(run, store=Store(tmp_path)))
    first.close()
    final(run, store)


def test_continuing_with_other_versions_is_said(tmp_path):
    run, store = Run(**FIELDS), Store(tmp_path)
    records = simulate(run, store=store)
    next(records)
    records.close()
    folder = store.folder(run.hash)
    path = folder.path / "sessions.jsonl"
    path.write_text(json.dumps({**folder.sessions()[0], "torch": "1.0"}) + "\n")
    final(run, store)
    assert folder.sessions()[-1]["changed"] == {"torch": ["1.0", torch.__version__]}


def test_find_by_the_beginning_of_a_hash(tmp_path):
    run, store = Run(**FIELDS), Store(tmp_path)
    final(run, store)
    assert store.find(run.hash[:5]).path.name == run.hash
    assert store.find(f"{tmp_path}/{run.hash}/").path.name == run.hash
    with pytest.raises(ValueError, match="no run 'elsewhere/"):
        store.find(f"elsewhere/{run.hash}")
    with pytest.raises(ValueError, match="no run 'zz'"):
        store.find("zz")
    final(Run(**{**FIELDS, "seed": 1}), store)
    with pytest.raises(ValueError, match="several runs"):
        store.find("")


def test_write_whole_leaves_nothing_behind_when_it_fails(tmp_path, monkeypatch):
    target = tmp_path / "file"
    target.write_bytes(b"before")

    def full(handle):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="No space"):
        write_whole(target, b"after")
    assert target.read_bytes() == b"before"
    assert list(tmp_path.iterdir()) == [target]


def test_the_checkpoint_holds_states_of_seen_clients_only(tmp_path):
    fields = {**FIELDS, "clients": 12, "clients_per_round": 2, "rounds": 3, "algorithm": "scaffold"}
    run, store = Run(**fields), Store(tmp_path)
    final(run, store)
    checkpoint = load_checkpoint(store.folder(run.hash).checkpoint)
    assert 2 <= len(checkpoint.clients) <= 6
    assert all(len(leaf) == len(checkpoint.clients) for leaf in checkpoint.states.values())


def test_a_wrong_request_leaves_nothing_in_the_store(tmp_path):
    for fields in ({"partition": "shards:1000"}, {"model": "cnn"}, {"partition": "dirichlet:0.01,min_size=70"}):
        with pytest.raises(ValueError, match=r"."):
            next(simulate(Run(**fields), store=Store(tmp_path)))
    assert list(Store(tmp_path)) == []


def test_the_store_says_how_a_run_was_asked_for_last(tmp_path):
    store = Store(tmp_path)
    final(Run(**{**FIELDS, "rounds": 3}), store)
    final(Run(**{**FIELDS, "rounds": 5}), store)
    assert store.folder(Run(**FIELDS).hash).run()["rounds"] == 5
    final(Run(**{**FIELDS, "rounds": 2}), store)
    assert store.folder(Run(**FIELDS).hash).run()["rounds"] == 5


def test_the_mean_of_the_last_ten_rounds_does_not_depend_on_what_is_stored(tmp_path):
    store = Store(tmp_path)
    final(Run(**{**FIELDS, "rounds": 45, "eval_every": 20}), store)
    short = Run(**{**FIELDS, "rounds": 40, "eval_every": 20})
    served, fresh = list(simulate(short, store=store)), list(simulate(short))
    assert [r.accuracy for r in served[-10:]] == [r.accuracy for r in fresh[-10:]]
    stored = store.folder(short.hash).records()
    assert len(stored) == 45
    assert [r["accuracy"] for r in stored[30:40]] == [r.accuracy for r in fresh[-10:]]


@pytest.mark.parametrize("rounds", [1, None], ids=["at work", "finished"])
def test_a_run_that_another_process_began_meanwhile_is_not_done_twice(tmp_path, monkeypatch, rounds):
    """Building a simulation takes seconds, in which a second process may begin the same run."""
    store, run, others = Store(tmp_path), Run(**FIELDS), []

    class Slow(Simulation):
        def __init__(self, run):
            monkeypatch.setattr(session, "Simulation", Simulation)
            others.append(simulate(run, store=store))
            for _ in range(rounds or run.rounds):
                next(others[0])
            if rounds is None:
                others[0].close()
            super().__init__(run)

    monkeypatch.setattr(session, "Simulation", Slow)
    mine = simulate(run, store=store)
    if rounds is None:
        assert [record.round for record in mine] == list(range(1, run.rounds + 1))
    else:
        with pytest.raises(StoreBusy):
            next(mine)
        list(others[0])
    assert [record["round"] for record in store.folder(run.hash).records()] == list(range(1, run.rounds + 1))
    assert len(store.folder(run.hash).sessions()) == 1


def test_a_second_lock_is_busy_and_one_that_cannot_be_made_names_its_folder(tmp_path):
    folder = Store(tmp_path).folder("a" * 16)
    with folder.lock(), pytest.raises(StoreBusy, match="a" * 16), folder.lock():
        pass
    with folder.lock():  # free again
        pass
    (folder.path / "lock").unlink()
    (folder.path / "lock").mkdir()
    with pytest.raises(StoreError, match=f"cannot write to {folder.path}"), folder.lock():
        pass


def test_measurements_are_added_under_the_lock_of_the_run(tmp_path, monkeypatch):
    store, run = Store(tmp_path), Run(**FIELDS)
    final(run, store)
    folder, read, tried = store.folder(run.hash), Folder._all_measured, []

    def reading(self):
        with pytest.raises(StoreBusy), folder.lock():
            pass
        tried.append(True)
        return read(self)

    folder.write_measured(3, {"one": 1})
    monkeypatch.setattr(Folder, "_all_measured", reading)
    folder.write_measured(3, {"two": 2, "three": 3})
    monkeypatch.undo()
    assert tried
    assert folder.measured(3) == {"one": 1, "two": 2, "three": 3}


def test_a_measurement_is_not_added_to_a_run_that_goes_on(tmp_path, monkeypatch):
    monkeypatch.setattr("fedskew.runs.store._PATIENCE", 0.0)
    store, run = Store(tmp_path), Run(**FIELDS)
    final(run, store)
    folder = store.folder(run.hash)
    with folder.lock(), pytest.raises(StoreBusy, match="this process is already working on run"):
        folder.write_measured(3, {"one": 1})
    assert folder.measured(3) == {}


def test_another_process_is_told_from_an_iterator_of_this_one(tmp_path):
    store, run = Store(tmp_path), Run(**FIELDS)
    left = simulate(run, store=store)
    next(left)
    with pytest.raises(StoreBusy, match=r"this process is already working on run \w+: an iterator .*; call close\(\)"):
        next(simulate(run, store=store))
    code = (
        "import sys; from fedskew.runs.store import Store, StoreBusy\n"
        "try:\n    with Store(sys.argv[1]).folder(sys.argv[2]).lock(): pass\n"
        "except StoreBusy as error: print(error)"
    )
    told = subprocess.run([sys.executable, "-c", code, str(tmp_path), run.hash], capture_output=True, text=True)
    assert told.stdout == f"another process is working on run {run.hash}\n", told.stderr
    left.close()
    assert next(simulate(run, store=store)).round == 1

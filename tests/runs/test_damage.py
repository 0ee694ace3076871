"""Whatever happens to a file of the store, what is read is what was written, or an error that names the place."""

import json
import os
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors import safe_open
from safetensors.torch import save

from fedskew import Run, Store, simulate
from fedskew.paper.execute import missing
from fedskew.paper.table import EVERYTHING
from fedskew.runs.checkpoint import load_checkpoint
from fedskew.runs.export import export_model
from fedskew.runs.results import Result, Results, read_lines, write_lines
from fedskew.runs.sealed import Damaged, seal, unseal
from fedskew.runs.store import StoreError
from fedskew.simulation.execute import execute
from tests.cli.calling import call
from tests.runs.test_store import FIELDS, final, same


@pytest.fixture
def stored(tmp_path):
    """A finished run with all files that a run can have."""
    run, store = Run(**{**FIELDS, "rounds": 3}, algorithm="scaffold"), Store(tmp_path / "runs")
    final(run, store)
    folder = store.folder(run.hash)
    folder.write_measured(3, {"figure": {"value": 1.5}})
    folder.write_diagnosis({"round": 3, "ece": 0.25})
    return folder


def everything(folder):
    """All that can be read of a run."""
    return (
        folder.about(), folder.lengths(), folder.card(), folder.records(), folder.sessions(), folder.saved(),
        folder.measured(3), folder.diagnosis(), [result.line() for result in Result.of(folder)],
    )  # fmt: skip


@pytest.mark.parametrize(
    "name", ["run.json", "records.jsonl", "sessions.jsonl", "partition.json", "measured.json", "diagnosis.json"]
)
def test_a_flipped_bit_of_a_text_is_noticed(stored, name):
    path, known = stored.path / name, everything(stored)
    text, rng = path.read_bytes(), np.random.default_rng(0)
    for position in rng.integers(0, 8 * len(text), 60):
        flipped = bytearray(text)
        flipped[position // 8] ^= 1 << (position % 8)
        path.write_bytes(flipped)
        try:
            found = everything(stored)
        except StoreError:
            continue
        assert found == known or (name in ("measured.json", "diagnosis.json") and stored.damaged_extras()), position


def test_a_flipped_bit_of_a_checkpoint_is_noticed(stored):
    whole, known = stored.checkpoint.read_bytes(), load_checkpoint(stored.checkpoint)
    rng = np.random.default_rng(0)
    noticed = 0
    for position in [*range(0, 8 * 400, 7), *rng.integers(0, 8 * len(whole), 200)]:
        flipped = bytearray(whole)
        flipped[position // 8] ^= 1 << (position % 8)
        stored.checkpoint.write_bytes(flipped)
        try:
            found = load_checkpoint(stored.checkpoint)
        except StoreError:
            noticed += 1
            continue
        assert found.round == known.round
        assert all(torch.equal(found.server.params[name], leaf) for name, leaf in known.server.params.items())
        assert all(torch.equal(found.states[name], leaf) for name, leaf in known.states.items())
    assert noticed > 600


def rewritten(path: Path, checksum: bool, change=lambda tensors: None) -> None:
    with safe_open(path, "pt") as file:
        tensors = {name: file.get_tensor(name).clone() for name in file.keys()}  # noqa: SIM118
        about = {key: value for key, value in file.metadata().items() if checksum or key != "checksum"}
    change(tensors)
    path.write_bytes(save(tensors, about))


def test_a_checkpoint_of_a_version_without_checksums_is_taken_and_said(tmp_path):
    run, store = Run(**FIELDS), Store(tmp_path)
    final(Run(**{**FIELDS, "rounds": 3}), store)
    rewritten(store.folder(run.hash).checkpoint, checksum=False)
    with pytest.warns(UserWarning, match="version without checksums"):
        resumed = final(run, store)
    assert same(resumed, final(run))


@pytest.mark.filterwarnings("ignore:.*without checksums")
@pytest.mark.parametrize("checksum", [True, False])
@pytest.mark.parametrize("name", ["params", "states", "correction"])
def test_a_number_that_is_not_finite_is_damage(stored, checksum, name):
    def change(tensors):
        leaf = next(leaf for key, leaf in sorted(tensors.items()) if key.startswith(f"{name}/"))
        leaf.view(-1)[0] = float("nan")

    rewritten(stored.checkpoint, checksum, change)
    with pytest.raises(StoreError, match=r"is damaged: it (holds numbers|was changed)"):
        load_checkpoint(stored.checkpoint)


def test_a_checkpoint_of_another_model_is_damage(stored, tmp_path):
    other = Run(**{**FIELDS, "rounds": 3, "model": "mlp:hidden=7"})
    final(other, Store(tmp_path / "other"))
    os.replace(Store(tmp_path / "other").folder(other.hash).checkpoint, stored.checkpoint)
    with pytest.raises(StoreError, match="not those of this run's model"):
        final(Run(**{**FIELDS, "rounds": 5}, algorithm="scaffold"), Store(stored.path.parent))


def replaced(path: Path, line: int | None, change: dict) -> None:
    """A file in which a field of an object or a line is another, as an editor leaves it: without a seal."""
    lines = path.read_bytes().splitlines() if line else [path.read_bytes()]
    content = json.loads(lines[(line or 1) - 1])
    del content["seal"]
    for name, value in change.items():
        owner, _, key = name.rpartition(".")
        (content[owner] if owner else content)[key] = value
    lines[(line or 1) - 1] = json.dumps(content).encode()
    path.write_bytes(b"\n".join(lines) + b"\n" if line else lines[0])


@pytest.mark.parametrize(
    ("file", "line", "change", "said"),
    [
        ("run.json", None, {"run.seed": "x"}, 'run.seed is "x"; allowed: a valid integer'),
        ("run.json", None, {"run.rounds": True}, "run.rounds is true"),
        ("run.json", None, {"run": {}}, "run.dataset is missing"),
        ("run.json", None, {"short.title": "\x1b[2J"}, r'short.title is "\\u001b\[2J"; allowed: text without control'),
        ("run.json", None, {"lengths": []}, r"lengths is \[\]"),
        ("records.jsonl", 2, {"accuracy": "high"}, 'line 2 is damaged: accuracy is "high"'),
        ("records.jsonl", 2, {"round": 3}, "line 2 is damaged: it is for round 3"),
        ("records.jsonl", 1, {"diverged": None}, "line 1 is damaged: diverged is null"),
        ("records.jsonl", 1, {"per_class_accuracy": [1, "a"]}, "per_class_accuracy.1 is"),
        ("sessions.jsonl", 1, {"engine": 7}, "line 1 is damaged: engine is 7"),
        ("sessions.jsonl", 1, {"changed": {"torch": [1]}}, "changed.torch is"),
        ("partition.json", None, {"hash": 5}, "hash is 5; allowed: a valid string"),
        ("partition.json", None, {"counts": [[1]]}, "counts does not have a row for each client"),
    ],
)
def test_a_field_that_is_wrong_is_named_with_its_place(stored, capsys, file, line, change, said):
    replaced(stored.path / file, line, change)
    runs = ["--runs", str(stored.path.parent)]
    with pytest.raises(StoreError, match=said) as refused:
        everything(stored)
    assert str(stored.path / file) in str(refused.value)
    other = final(Run(**FIELDS, seed=4), Store(stored.path.parent))
    assert other.round == 8
    code, out, err = call(capsys, "runs", "list", *runs)
    assert code == 0
    assert out.count("8/8") == 1
    if file != "partition.json" and file != "sessions.jsonl":
        assert str(stored.path / file) in err.replace("\n", "")
    results = Results(Store(stored.path.parent))
    assert [result.seed for result in results] == [4]
    assert file in results.problems[0]
    code, out, err = call(capsys, "runs", "condense", str(stored.path / "all.jsonl"), *runs)
    assert (code, len(read_lines(stored.path / "all.jsonl"))) == (0, 1)
    assert file in err
    code, out, err = call(capsys, "report", "-o", str(stored.path / "page.html"), *runs)
    assert code == 0
    assert f"left out: run {stored.path.name} cannot be read" in err


def test_a_pipe_in_the_place_of_a_file_is_not_waited_for(stored):
    for name in ("records.jsonl", "checkpoint.safetensors"):
        (stored.path / name).unlink()
        os.mkfifo(stored.path / name)
        with pytest.raises(StoreError, match=rf"{name}.*(a regular file is needed|cannot be read)"):
            everything(stored)
        (stored.path / name).unlink()


def test_half_a_line_is_cut_off_before_the_next(tmp_path):
    run, store = Run(**FIELDS), Store(tmp_path)
    records = simulate(run, store=store)
    next(records)
    records.close()
    folder = store.folder(run.hash)
    path = folder.path / "records.jsonl"
    path.write_bytes(path.read_bytes() + b'{"round": 2, "acc')
    assert same(final(run, store), final(run))
    assert len(folder.records()) == run.rounds
    assert [session["from_round"] for session in folder.sessions()] == [0, 1]


@pytest.mark.parametrize("name", ["records.jsonl", "sessions.jsonl"])
def test_an_end_that_is_missing_is_noticed(stored, name):
    path = stored.path / name
    path.write_bytes(path.read_bytes()[:-1])
    with pytest.raises(StoreError, match=rf"{name} is damaged: it(s last line has no end| ends with round 2)"):
        everything(stored)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"hash": None}, "hash is null"),
        ({"run.seed": "1"}, 'run.seed is "1"'),
        ({"summary": True}, "summary is true; allowed: an object"),
        ({"summary.accuracy": None}, "summary has no accuracy"),
        ({"summary.diverged": 1}, "summary.diverged is 1"),
        ({"curve": [[1]]}, "curve.0.1 is missing"),
        ({"curve": "a"}, 'curve is "a"'),
        ({"sessions": [1]}, "sessions.0 is 1"),
        ({"short.algorithm": "\x07"}, "short.algorithm is"),
        ({"real": "0123456789abcdef"}, "its checksum is damaged"),
    ],
)
def test_a_line_of_results_that_is_wrong_is_named_with_its_field(stored, tmp_path, change, said):
    path = tmp_path / "published" / "x.jsonl"
    other = Run(**{**FIELDS, "rounds": 3}, seed=1)
    final(other, Store(tmp_path / "runs"))
    write_lines(path, [*Result.of(stored), *Result.of(Store(tmp_path / "runs").folder(other.hash))])
    left = read_lines(path)[1].hash
    replaced(path, 1, change)
    with pytest.raises(StoreError, match=f"x.jsonl, line 1 is damaged: .*{said}"):
        read_lines(path)
    results = Results(None, tmp_path / "published")
    assert [result.hash for result in results] == [left]
    assert "x.jsonl, line 1" in results.problems[0]
    before = path.read_bytes()
    with pytest.raises(StoreError):
        write_lines(path, Result.of(stored))
    assert path.read_bytes() == before


def test_a_full_disk_is_said_with_the_file(tmp_path, monkeypatch, capsys):
    def full(handle):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    code, _, err = call(capsys, "run", "--rounds", "1", "--clients", "3", "--runs", str(tmp_path))
    assert code == 1
    assert "No space left on device" in err
    assert str(tmp_path) in err
    assert "None" not in err


def test_control_characters_do_not_reach_the_terminal(tmp_path, capsys):
    (tmp_path / "a\x1b[2J").mkdir()
    (tmp_path / "a\x1b[2J" / "run.json").write_text("{}")
    for command in (["runs", "list"], ["runs", "list", "--quiet"], ["report"], ["runs", "show", "a"]):
        _, out, err = call(capsys, *command, "--runs", str(tmp_path))
        assert "\x1b" not in out + err
    with pytest.raises(ValueError, match=r"dataset is .*x1b.*allowed: text without control characters"):
        Run(dataset="npz:\x1b[2J.npz")


def test_brackets_in_a_title_are_no_markup(tmp_path, capsys):
    run, store = Run(**FIELDS), Store(tmp_path)
    final(run, store)
    folder = store.folder(run.hash)
    about = folder.about()
    (folder.path / "run.json").write_bytes(seal({**about, "short": {**about["short"], "title": "[/red] [bold]x"}}))
    code, out, _ = call(capsys, "runs", "list", "--runs", str(tmp_path))
    assert code == 0
    assert "[/red]" in out


def test_a_stored_run_that_makes_no_sense_is_named_with_its_file(stored, tmp_path):
    replaced(stored.path / "run.json", None, {"run.lr": -1.0})
    with pytest.raises(StoreError, match=r"run\.json: lr is '-1'"):
        export_model(stored, tmp_path / "x.safetensors")


@pytest.mark.filterwarnings("ignore:.*without checksums")
def test_a_store_of_an_earlier_version_goes_on(tmp_path):
    """Nothing in it has a checksum, and nothing says which data it was."""
    run, store = Run(**FIELDS), Store(tmp_path)
    final(Run(**{**FIELDS, "rounds": 3}), store)
    folder = store.folder(run.hash)
    for path in folder.path.glob("*.json*"):
        lines = path.read_bytes().splitlines() if path.suffix == ".jsonl" else [path.read_bytes()]
        old = [{k: v for k, v in json.loads(line).items() if not k.startswith(("seal", "data"))} for line in lines]
        path.write_text("".join(json.dumps(content) + "\n" for content in old))
    rewritten(folder.checkpoint, checksum=False)
    assert [result.rounds for result in Result.of(folder)] == [3]
    assert same(final(run, store), final(run))
    assert ["data" in session for session in folder.sessions()] == [False, True]


def test_a_seal_covers_all_but_itself():
    content = {"a": [1, 2.5, None], "b": {"c": "é"}}
    for indent in (None, 1):
        text = seal(content, indent)
        assert json.loads(text).keys() == {"a", "b", "seal"}
        assert unseal(dict, text) == content
        with pytest.raises(Damaged, match="checksum"):
            unseal(dict, text.replace(b"2.5", b"2.6"))
    assert unseal(dict, b'{"a": 1}') == {"a": 1}


def test_a_damaged_run_does_not_stop_the_others_of_a_table(tmp_path):
    damaged, sound = (Run(**{**FIELDS, "rounds": 1}, algorithm=name) for name in ("fedavg", "fedlc"))
    store = Store(tmp_path)
    final(damaged, store)
    path = store.folder(damaged.hash).path / "records.jsonl"
    path.write_text("x\n")

    class Item:
        def runs(self, choice, results):
            return [damaged, sound]

    groups = missing(Item(), EVERYTHING, "1/1", store, None, ())
    problem, (run, record) = execute(groups, store)
    assert (problem.runs, run, record.round) == ((damaged,), sound, 1)
    assert f"{path}, line 1 is damaged: it is not JSON" in problem.reason

"""`fedskew advise` as a user calls it."""

import json
import shlex

import pytest

from fedskew.partition.cards import skew_indices
from fedskew.partition.count_file import read_counts
from tests.cli.calling import call

pytestmark = pytest.mark.usefixtures("in_a_folder_of_its_own")


@pytest.fixture
def card(capsys, tmp_path):
    _, out, _ = call(capsys, "inspect", "--dataset", "digits", "--partition", "dirichlet:0.1", "--seed", "3", "--json")
    path = tmp_path / "card.json"
    path.write_text(out)
    return path


def test_the_text_ends_with_a_command_that_runs(capsys, card):
    code, out, err = call(capsys, "advise", str(card))
    assert (code, err) == (0, "")
    assert "would need another label" in out
    assert "distance" in out
    command = out.partition("Try it:\n")[2].splitlines()[0].strip()
    _, quiet, _ = call(capsys, "advise", str(card), "--quiet")
    assert quiet.strip() == command
    words = shlex.split(command)
    assert words[:2] == ["fedskew", "compare"]
    short = ["--rounds", "1", "--seeds", "1", "--local-epochs", "1", "--json"]
    code, out, err = call(capsys, *words[1:], *short)
    assert (code, err) == (0, "")
    assert "fedavg" in json.loads(out)["runs"]


def test_the_verdict_comes_first_and_the_command_tries_what_it_names(capsys, card):
    said = call(capsys, "advise", str(card))[1].splitlines()
    first = said[0]
    shown = json.loads(call(capsys, "advise", str(card), "--json")[1])
    assert shown["verdict"] == said[: len(shown["verdict"])]
    assert first.startswith(f"Use {', or else '.join(shown['methods']).replace(', or', ' (or', 1)}): on digits/")
    assert f"--algorithm fedavg,{','.join(shown['methods'])}" in shown["command"]
    assert (shown["do"], shown["kind"], shown["own"]) == ("use", "small, simple images with an MLP", [])


def test_cited_settings_are_shown_and_all_of_them_if_asked(capsys, card):
    few, whole = (call(capsys, "advise", str(card), *more)[1] for more in ([], ["--all"]))
    number = len(json.loads(call(capsys, "advise", str(card), "--json")[1])["evidence"])
    assert number > 3
    assert f"\n[{number}] " in whole
    assert f"\n[{number}] " not in few
    assert few.partition("\nSettings (")[0] == whole.partition("\nSettings (")[0]


def test_the_kind_is_that_of_the_data_set_named(capsys, tmp_path, card):
    rows = json.loads(card.read_text())["counts"]
    (tmp_path / "counts.csv").write_text("\n".join(",".join(map(str, row)) for row in rows))
    kinds = {}
    for words in ([], ["--dataset", "cifar10"], ["--dataset", "folder:imgs"]):
        shown = json.loads(call(capsys, "advise", "counts.csv", *words, "--json")[1])
        kinds[" ".join(words[1:])] = shown["kind"]
    images = "natural images with a convolutional network"
    assert kinds == {"": "unknown", "cifar10": images, "folder:imgs": "unknown"}
    assert json.loads(call(capsys, "advise", str(card), "--dataset", "svhn", "--json")[1])["kind"] == images


def test_ones_own_runs_on_the_split_come_first(capsys, tmp_path):
    fields = [
        "--dataset",
        "synthetic:1,1,max_size=60",
        "--clients",
        "5",
        "--rounds",
        "3",
        "--lr",
        "0.1",
        "--seeds",
        "3",
    ]
    compare = ["compare", *fields, "--algorithm", "fedavg,fedlc,fedprox", "--runs", "mine", "--json"]
    rows = json.loads(call(capsys, *compare)[1])["rows"]
    found = next(row["against_baseline"] for row in rows if row["method"] == "fedlc")
    card = next(tmp_path.glob("mine/*/partition.json"))
    code, out, err = call(capsys, "advise", str(card), "--runs", "mine")
    assert (code, err) == (0, "")
    assert out.splitlines()[1].startswith("Evidence: your own runs on synthetic:1,1,max_size=60, 3 rounds [1], 3 seeds")
    shown = json.loads(call(capsys, "advise", str(card), "--runs", "mine", "--json")[1])
    (gain,) = (gain for gain in shown["evidence"][0]["gains"] if gain["algorithm"] == "fedlc")
    assert (gain["verdict"], gain["seeds"]) == (found["verdict"], [0, 1, 2])
    assert gain["points"]["mean"] == pytest.approx(found["mean"], abs=1e-3)
    assert shown["evidence"][0]["own"]
    assert json.loads(call(capsys, "advise", str(card), "--json")[1])["own"] == []
    counts = json.loads(card.read_text())["counts"]
    (tmp_path / "counts.csv").write_text("\n".join(",".join(map(str, row)) for row in counts))
    from_csv = json.loads(call(capsys, "advise", "counts.csv", "--runs", "mine", "--json")[1])
    assert (from_csv["own"], from_csv["kind"]) == (shown["own"], "generated vectors with a linear model")
    assert (
        "--dataset synthetic:1,1,max_size=60 --partition natural --seed 0 --clients 5 --rounds 3" in from_csv["command"]
    )


def test_a_damaged_run_of_the_store_is_named_and_advice_is_given(capsys, tmp_path, card):
    call(capsys, "run", "--dataset", "digits", "--rounds", "1", "-q")
    (path,) = tmp_path.glob("runs/*/records.jsonl")
    path.write_text("{\n")
    code, out, err = call(capsys, "advise", str(card))
    assert (code, out.startswith("Use ")) == (0, True)
    assert err.startswith("left out: ")
    assert path.parent.name in err


def test_indices_are_those_of_the_card(capsys, card):
    shown = json.loads(call(capsys, "advise", str(card), "--json")[1])
    assert shown["skew"] == json.loads(card.read_text())["skew"] == skew_indices(read_counts(card)[0])
    assert set(shown) == {
        "verdict", "training", "command", "clients", "classes", "classes_held", "samples", "sizes", "skew", "kind",
        "nearest", "do", "methods", "chosen", "better", "own", "like", "evidence",
    }  # fmt: skip


def test_a_runs_own_card_leads_to_its_data(capsys, tmp_path):
    call(capsys, "run", "--dataset", "synthetic:1,1,max_size=100", "--clients", "5", "--rounds", "1", "--quiet")
    (path,) = tmp_path.glob("runs/*/partition.json")
    _, out, _ = call(capsys, "advise", str(path), "--quiet")
    assert "--dataset synthetic:lam=1,mu=1,max_size=100 --partition natural --seed 0 --clients 5" in out
    assert call(capsys, "advise", str(path.parent), "--quiet") == (0, out, "")


def test_a_run_is_named_by_the_beginning_of_its_hash(capsys, tmp_path):
    command = ["run", "--dataset", "synthetic:1,1,max_size=100", "--clients", "5", "--rounds", "1", "--quiet"]
    call(capsys, *command, "--runs", "mine")
    (folder,) = tmp_path.glob("mine/*")
    by_folder = call(capsys, "advise", str(folder))
    assert by_folder[0] == 0
    assert call(capsys, "advise", folder.name[:6], "--runs", "mine") == by_folder
    code, _, err = call(capsys, "advise", folder.name[:6])
    assert code == 2
    assert f"there is no run '{folder.name[:6]}' in runs" in err


@pytest.mark.parametrize("dataset", ["digits", "folder:imgs"])
def test_data_without_clients_of_their_own_need_a_split(capsys, tmp_path, dataset):
    (tmp_path / "counts.csv").write_text("50,0,3\n1,20,9\n")
    _, out, _ = call(capsys, "advise", "counts.csv", "--dataset", dataset)
    assert f"--dataset {dataset} --partition replay:SPLIT.json --clients 2" in out
    assert "where SPLIT.json is" in out


def test_the_command_for_a_split_runs_once_the_split_is_there(capsys, tmp_path):
    (tmp_path / "counts.csv").write_text("50,0,3\n1,20,9\n")
    words = shlex.split(call(capsys, "advise", "counts.csv", "--dataset", "digits", "--quiet")[1])
    (tmp_path / "SPLIT.json").write_text(json.dumps([list(range(100)), list(range(100, 200))]))
    short = ["--rounds", "1", "--seeds", "1", "--local-epochs", "1", "--json"]
    code, _, err = call(capsys, *words[1:], *short)
    assert (code, err) == (0, "")


@pytest.mark.parametrize("dataset", ["npz:mine.npz", "femnist", "synthetic:1,1"])
def test_data_with_clients_of_their_own_keep_them(capsys, tmp_path, dataset):
    (tmp_path / "counts.csv").write_text("50,0,3\n1,20,9\n")
    _, out, _ = call(capsys, "advise", "counts.csv", "--dataset", dataset)
    assert f"--dataset {dataset} --partition natural --clients 2" in out
    assert ("where mine.npz holds" in out) == (dataset == "npz:mine.npz")


def test_the_data_set_of_a_card_named_again_keeps_its_partition(capsys, card):
    assert call(capsys, "advise", str(card), "--dataset", "digits") == call(capsys, "advise", str(card))


def test_a_run_of_a_federation_has_no_counts(capsys, tmp_path):
    (folder := tmp_path / "runs" / ("a" * 16)).mkdir(parents=True)
    (folder / "run.json").write_text("{}")
    code, out, err = call(capsys, "advise", str(folder))
    assert (code, out) == (2, "")
    assert "has no label counts: the nodes of a federation keep theirs; allowed: a CSV" in err


def test_a_folder_that_is_no_runs_is_named(capsys, tmp_path):
    code, out, err = call(capsys, "advise", str(tmp_path))
    assert (code, out) == (2, "")
    assert "there is no file" in err
    assert "partition.json" in err


def test_a_first_line_of_class_numbers_is_said_beside_the_advice(capsys, tmp_path):
    (tmp_path / "counts.csv").write_text("0,1,2\n5,0,3\n1,2,9\n")
    code, out, err = call(capsys, "advise", "counts.csv", "--json")
    assert (code, err) == (0, "line 1 was taken for class numbers\n")
    assert json.loads(out)["clients"] == 2


def test_counts_without_data_leave_a_place_for_them(capsys, tmp_path):
    (tmp_path / "counts.csv").write_text("5,0,3\n1,2,9\n")
    _, out, _ = call(capsys, "advise", "counts.csv")
    assert "--dataset npz:DATA.npz --partition natural --clients 2" in out
    assert "where DATA.npz holds" in out


@pytest.mark.parametrize(
    ("text", "word"),
    [
        (b"", "empty"),
        (b"5,-1\n", "negative"),
        (b"5,0.5\n", "0.5"),
        (b"5,\n", "missing"),
        (b"5,x\n1,2\n", "'x'"),
        (b"1,2\n3\n", "line 2"),
        (b"1,2\n0,0\n", "no example"),
        (b"\xff\xff", "UTF-8"),
    ],
)
def test_a_wrong_table_is_one_line_and_exit_code_2(capsys, tmp_path, text, word):
    (tmp_path / "counts.csv").write_bytes(text)
    code, out, err = call(capsys, "advise", "counts.csv")
    assert (code, out, err.count("\n")) == (2, "", 1)
    assert word in err


@pytest.mark.parametrize(("text", "word"), [("5,3\n", "There is one client"), ("5\n3\n", "There is one class")])
def test_one_client_or_class_is_legal(capsys, tmp_path, text, word):
    (tmp_path / "counts.csv").write_text(text)
    code, out, _ = call(capsys, "advise", "counts.csv")
    assert code == 0
    assert word in out
    assert "Try it" not in out

"""`fedskew tune` as a user calls it."""

import csv
import json

import pytest

from fedskew.simulation import jobs
from tests.cli.calling import call

pytestmark = pytest.mark.usefixtures("in_a_folder_of_its_own")

SMALL = ["--dataset", "digits", "--clients", "3", "--rounds", "3", "--model", "logistic", "--budget", "3"]
OWN = """from fedskew import Algorithm, cross_entropy

def doubled(factor: float = 2.0):
    return Algorithm("doubled", loss=lambda logits, labels, counts: factor * cross_entropy(logits, labels, counts))
"""
TUNE = ["tune", *SMALL, "--algorithm", "fedavg,fedlc", "--seeds", "2"]


def test_it_says_what_was_tried_and_chosen_and_what_the_test_set_was_for(capsys, tmp_path):
    code, out, _ = call(capsys, *TUNE)
    assert code == 0
    assert [line.split()[0] for line in out.splitlines() if line.rstrip().endswith("chosen")] == ["fedavg", "fedlc"]
    for words in (
        "best of 3 tries",
        "10 % of training examples held out",
        "2 seeds (mean ± std)",
        "last 2 rounds: fedlc",
    ):
        assert words in out
    assert "no choice used the test set; the table has the chosen settings on it" in out
    assert "seeds 1 to 2 here, seed 0 for choices" in out
    lines = list(csv.DictReader((tmp_path / "tuning" / "tries.csv").read_text().splitlines()))
    assert [line["method"] for line in lines] == ["fedavg"] * 3 + ["fedlc"] * 3
    assert [line["chosen"] for line in lines].count("True") == 2
    assert {line["tau"] for line in lines[:3]} == {""}
    made = {path.name for path in (tmp_path / "tuning").iterdir()}
    assert {"tries.md", "table.md", "table.csv", "curves.png"} <= made


def test_tries_are_listed_with_what_they_reach_on_held_out_examples(capsys):
    document = json.loads(call(capsys, *TUNE, "--json")[1])
    _, out, _ = call(capsys, "runs")
    tries = [(each, run) for method in document["methods"].values() for each in method["tries"] for run in each["runs"]]
    assert len(tries) == 6
    head, *rows = [line for line in out.splitlines() if "%" in line or line[:8].isalnum()]
    at, beside = head.index("accuracy %"), head.index("held out %")
    for row in rows:
        tried = [each["held_out"] for each, run in tries if row.startswith(run[:8])]
        assert bool(row[at : at + 10].strip()) == (not tried)
        assert bool(row[beside : beside + 10].strip()) == bool(tried)
    listed = json.loads(call(capsys, "runs", "--sort", "held_out", "--json")[1])
    assert [row["held_out"] is None for row in listed] == [False] * 6 + [True] * 4
    found = [row["held_out"] for row in listed[:6]]
    assert found == sorted(found, reverse=True)


def test_if_every_chosen_run_diverged_the_command_fails_after_it_has_told(capsys):
    asked = ["tune", *SMALL, "--algorithm", "fedavg", "--lr", "1.58e37", "--seeds", "1"]  # the tries get through
    code, out, err = call(capsys, *asked)
    assert "1 diverged" in out
    assert (code, err.splitlines()[-1]) == (1, "fedskew: every run diverged; a smaller lr may help")
    code, out, _ = call(capsys, *asked, "--json")
    assert (code, json.loads(out)["rows"][0]["diverged"]) == (1, 1)


def test_it_says_if_methods_had_unequal_numbers_of_tries(capsys):
    listed = ["--algorithm", "fedavg,fedlc", "--tau", "1,2", "--lr", "0.1", "--seeds", "1"]
    said = "methods had unequal numbers of tries, which favours those with more: fedavg 1, fedlc 2"
    assert said in call(capsys, "tune", *SMALL, *listed)[2]
    assert "unequal" not in call(capsys, *TUNE)[2]


def test_jobs_choose_what_one_process_chooses(capsys, monkeypatch):
    found, used, in_jobs = [], [], jobs.in_jobs
    monkeypatch.setattr(jobs, "in_jobs", lambda groups, *how: used.append(len(groups)) or in_jobs(groups, *how))
    for number in ("1", "2"):
        where = ["--runs", f"runs{number}", "--jobs", number, "--halving", "--choosing-seeds", "2"]
        code, out, err = call(capsys, *TUNE, *where, "--json")
        assert (code, err) == (0, "")
        found.append(json.loads(out))
    one, two = found
    assert used == [6, 4, 2], "all tries, the better ones, and the comparison"
    assert two["runs"] == one["runs"]
    for name, method in one["methods"].items():
        assert two["methods"][name]["chosen"] == method["chosen"]
        for mine, other in zip(method["tries"], two["methods"][name]["tries"], strict=True):
            assert {**other, "held_out": None} == {**mine, "held_out": None}
            assert other["held_out"] == pytest.approx(mine["held_out"])


def test_it_judges_against_another_baseline_and_calls_methods_as_asked(capsys, tmp_path):
    (tmp_path / "own.py").write_text(OWN)
    methods = ["--algorithm", "fedlc,own.py:doubled", "--seeds", "3", "--lr", "0.1"]
    code, out, err = call(capsys, "tune", *SMALL, *methods, "--baseline", "fedlc", "--name", "own.py:doubled=Ours")
    assert code == 0, err
    assert "last 2 rounds: Ours is" in out.replace(" against fedlc is", " is")
    table = (tmp_path / "tuning" / "table.tex").read_text()
    assert "difference to fedlc" in table
    assert "\nOurs & " in table
    code, out, err = call(capsys, "tune", *SMALL, *methods, "--baseline", "fedavg", "--runs", "elsewhere")
    assert (code, out) == (2, "")
    assert err == "fedskew: baseline is 'fedavg'; allowed: one of the tuned methods, fedlc; doubled\n"
    assert not (tmp_path / "elsewhere").exists(), "before any work"
    assert (
        "no verdicts: fedavg is not among the methods; `--baseline fedlc`" in call(capsys, "tune", *SMALL, *methods)[1]
    )


def test_a_value_that_a_method_of_ones_own_refuses(capsys, tmp_path):
    refusal = "    if not factor <= 2:\n        raise ValueError(f'factor is {factor:g}; allowed: at most 2')\n"
    (tmp_path / "own.py").write_text(OWN.replace("2.0):\n", f"2.0):\n{refusal}"))
    code, out, err = call(capsys, "tune", *SMALL, "--algorithm", "fedavg,own.py:doubled", "--runs", "elsewhere")
    assert (code, out) == (2, "")
    assert err.startswith("fedskew: own.py:doubled refuses the try factor=")
    assert err.endswith("; allowed: at most 2; name the values to try, for example --set factor=1,2\n")
    assert not (tmp_path / "elsewhere").exists(), "before any work"
    named = ["--algorithm", "own.py:doubled", "--set", "factor=1,2", "--quiet"]
    assert call(capsys, "tune", *SMALL, *named)[0] == 0


def test_a_method_without_knobs_has_one_try(capsys):
    out = call(capsys, *TUNE, "--lr", "0.1")[1]
    fedavg, fedlc = (line for line in out.splitlines() if "held out, " in line)
    assert fedavg.startswith("fedavg: unchanged: ")
    assert fedavg.endswith("held out, the only try")
    assert fedlc.endswith("held out, best of 3 tries (of tau 0.2 to 20)")


def test_the_document(capsys, tmp_path):
    document = json.loads(call(capsys, *TUNE, "--json", "--search", "grid", "--validation", "0.2", "--halving")[1])
    assert set(document) == {
        "search", "budget", "validation", "halving", "chosen_with_seeds", "seeds", "methods", "runs", "target", "rows",
        "files",
    }  # fmt: skip
    assert (document["validation"], document["seeds"], document["chosen_with_seeds"]) == (0.2, [1, 2], [0])
    for name, method in document["methods"].items():
        assert len(method["tries"]) == 3
        assert method["chosen"] in [each["values"] for each in method["tries"]]
        told = {"method", "values", "rounds", "held_out", "chosen", "runs"}  # nothing of the test set
        assert all(set(each) == told for each in method["tries"])
        files = [tmp_path / "runs" / hash / "run.json" for hash in document["runs"][name]]
        tested = [json.loads(file.read_text())["run"] for file in files]
        assert [(run["seed"], run["validation"]) for run in tested] == [(1, 0.0), (2, 0.0)]
        assert all(run["lr"] == method["chosen"]["lr"] for run in tested)


def test_the_ranges_are_listed_with_the_methods(capsys):
    methods = {method["name"]: method["knobs"] for method in json.loads(call(capsys, "methods", "--json")[1])}
    assert methods["fedavg"] == {}
    assert methods["fedlc"] == {"tau": {"low": 0.2, "high": 20, "log": True}}


def test_what_is_fixed_and_what_is_listed_is_not_searched(capsys):
    arguments = [*TUNE, "--lr", "0.1", "--tau", "1,2", "--json"]
    methods = json.loads(call(capsys, *arguments)[1])["methods"]
    assert [each["values"] for each in methods["fedavg"]["tries"]] == [{}]
    assert sorted(each["values"]["tau"] for each in methods["fedlc"]["tries"]) == [1.0, 2.0]


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--algorithm", "fedavg", "--validation", "0"], ["validation is 0"]),
        (["--algorithm", "fedavg", "--tua", "1"], ["tua", "nor an argument of fedavg"]),
        (["--algorithm", "fedavg", "--search", "best"], ["search is 'best'", "random, grid"]),
        (["--algorithm", "fedavg", "--partition", "iid,shards:2"], ["partition cannot be tuned"]),
        ([], ["tune needs methods", "rounds"]),
        (["--algoritm", "fedlc"], ["tune needs methods", "algoritm"]),
    ],
)
def test_a_wrong_request_is_explained_and_nothing_is_begun(capsys, tmp_path, arguments, words):
    code, out, err = call(capsys, "tune", *SMALL, *arguments)
    assert (code, out) == (2, "")
    assert all(word in err for word in words), err
    assert list(tmp_path.iterdir()) == []

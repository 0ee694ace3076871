"""Runs side by side, from Python."""

import sys
from dataclasses import replace
from types import SimpleNamespace

import pytest

from fedskew import Algorithm, Compared, Run, Store, compare, cross_entropy, fedlc, simulate
from fedskew.optimizers import sgd
from tests.cli.calling import call

FIELDS = {"clients": 4, "rounds": 3, "lr": 0.1, "batch_size": 32, "partition": "dirichlet:0.3"}
BASE = Run(**FIELDS)


def doubled(logits, labels, counts):
    return 2 * cross_entropy(logits, labels, counts)


@pytest.fixture(scope="module")
def compared():
    return compare(BASE, [fedlc(tau=1), "fedavg", doubled], seeds=2)


def test_methods_and_seeds(compared):
    assert list(compared) == ["fedlc:tau=1", "fedavg", "doubled"]
    assert len(compared) == 3
    assert [one.run.seed for one in compared["fedavg"]] == [0, 1]
    assert compared["fedavg"][0].accuracy == simulate(BASE).result().accuracy
    assert compared["doubled"][1].model.round == 3
    with pytest.raises(KeyError, match="fedrs is not among these runs; allowed: fedlc:tau=1; fedavg; doubled"):
        compared["fedrs"]


def test_the_rows_are_those_of_the_command_line(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    found = compare(BASE, ["fedavg", "fedlc"], seeds=2, store="runs")
    options = ["--clients", "4", "--rounds", "3", "--lr", "0.1", "--batch-size", "32", "--partition", "dirichlet:0.3"]
    call(capsys, "compare", "--algorithm", "fedavg,fedlc", "--seeds", "2", "--quiet", *options)
    assert found.table() == (tmp_path / "comparison" / "table.md").read_text()
    assert found.table("csv") == (tmp_path / "comparison" / "table.csv").read_text()
    assert found.table("latex") == (tmp_path / "comparison" / "table.tex").read_text()
    assert f"% method fedlc: {' '.join(one.run.hash for one in found['fedlc'])}\n" in found.table("latex")
    assert len(list(Store("runs"))) == 4


def test_tables_figures_and_rounds(compared):
    assert str(compared) == compared.table() == compared._repr_markdown_()
    assert "rounds to 50 %" in compared.table(target=0.5)
    assert compared.table("latex").count("\\\\") == 4
    lines = compared.plot().axes[0].lines
    assert [line.get_label() for line in lines] == ["fedlc:tau=1", "fedavg", "doubled"]
    low = min(one.records[0].accuracy for one in compared["fedavg"])
    assert compared.rounds_to(low)["fedavg"].rounds == 1
    assert compared.rows(target=low)[1]["rounds_to_reach"] == vars(compared.rounds_to(low)["fedavg"])
    assert compared.bytes_sent["fedavg"][0] == compared["fedavg"][0].bytes_sent
    for wrong in (lambda: compared.rounds_to(0), lambda: compared.rows(1.5), lambda: compared.table(target=60)):
        with pytest.raises(ValueError, match="allowed: above 0, at most 1"):
            wrong()


def test_to_pandas_has_a_row_for_each_method_and_seed(compared, monkeypatch):
    monkeypatch.setitem(sys.modules, "pandas", SimpleNamespace(DataFrame=list))
    rows = compared.to_pandas()
    assert [(row["method"], row["seed"]) for row in rows][:3] == [("fedlc:tau=1", 0), ("fedlc:tau=1", 1), ("fedavg", 0)]
    assert rows[2]["accuracy"] == compared["fedavg"][0].accuracy


def test_another_baseline(compared):
    found = compare(BASE, ["fedavg", "fedlc"], seeds=3, baseline=fedlc())
    base, other = found.rows()
    assert (base["baseline"], other["against_baseline"]) == ("fedlc", None)
    gaps = [
        100 * (a.summary["accuracy_last10"] - b.summary["accuracy_last10"])
        for a, b in zip(*found.runs.values(), strict=True)
    ]
    assert base["against_baseline"]["mean"] == pytest.approx(sum(gaps) / 3)
    assert other["rounds_to_reach"]["seeds"] == 3
    assert "− fedlc, points | rounds to fedlc's end |" in found.table()
    assert "to fedavg" not in found.table("latex")
    assert "difference to fedlc (points)" in found.table("latex")
    assert compared.baseline == "fedavg"
    for wrong in ("fedrs", "fedlc:tau=1", "none such"):
        with pytest.raises(
            ValueError, match=f"baseline is '{wrong}'; allowed: one of the compared methods, fedavg; fe"
        ):
            compare(BASE, ["fedavg", "fedlc"], baseline=wrong)
    named = compare([BASE, Run(**{**FIELDS, "lr": 0.2})], baseline="fedavg, lr=0.2")
    assert named.rows()[0]["against_baseline"]["seeds"] == 1


def test_a_list_of_runs_is_named_by_what_differs():
    faster = Run(**{**FIELDS, "lr": 0.2})
    found = compare([BASE, faster, Run(**FIELDS, seed=5)])
    assert isinstance(found, Compared)
    assert {name: [one.run.seed for one in runs] for name, runs in found.runs.items()} == {
        "fedavg, lr=0.1": [0, 5],
        "fedavg, lr=0.2": [0],
    }
    assert list(compare([BASE, Run(**FIELDS, algorithm="fedlc")])) == ["fedavg", "fedlc"]
    assert list(compare(BASE)) == ["fedavg"]


def test_two_files_that_name_their_methods_alike_are_told_apart_as_they_were_written(tmp_path):
    texts = []
    for folder, tau in (("one", 1.0), ("other", 2.0)):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "own.py").write_text(f"from fedskew import fedlc\ndef mine(): return fedlc(tau={tau})\n")
        texts.append(f"{tmp_path}/{folder}/own.py:mine")
    assert list(compare(BASE, ["fedavg", *texts])) == ["fedavg", *texts]
    with pytest.raises(ValueError, match="mine appears twice"):
        compare(BASE, [texts[0], texts[0]])


def test_what_cannot_be_compared_says_why():
    with pytest.raises(ValueError, match="fedavg with seed 0 appears twice"):
        compare([BASE, BASE])
    with pytest.raises(ValueError, match="fedlc appears twice"):
        compare(BASE, ["fedlc", fedlc()])
    halved, doubled = (Algorithm("mine", server=sgd(rate)) for rate in (0.5, 2.0))
    with pytest.raises(ValueError, match=r'^mine appears twice; .*: dataclasses.replace\(method, name="..."\) gives'):
        compare(BASE, [halved, doubled])
    assert list(compare(BASE, [halved, replace(doubled, name="doubled")])) == ["mine", "doubled"]
    for wrong in ("fedavg,fedlc", "fedavg", fedlc(), []):
        with pytest.raises(ValueError, match=r"^algorithms is .*; allowed: a list of methods, for example "):
            compare(BASE, wrong)
    with pytest.raises(ValueError, match="algorithms are for a single run"):
        compare([BASE], ["fedlc"])
    with pytest.raises(ValueError, match="seeds is 0"):
        compare([BASE], seeds=0)
    for wrong in ([], ["fedavg"]):
        with pytest.raises(ValueError, match=r"allowed: a Run with algorithms"):
            compare(wrong)

"""Tables of the paper as text."""

import csv
import io
from dataclasses import replace
from typing import Any

from fedskew.paper import TABLES, formats
from fedskew.paper.choice import Choice
from fedskew.paper.sections import Section, by_data, sections
from tests.paper.test_tables import Known, result

CHOICE = Choice(cells=("cifar10/dirichlet:0.1", "cifar10/dirichlet:0.5"), methods=("fedavg", "fedlc"), seeds=2)


def rows(**more: Any) -> list[dict[str, Any]]:
    runs = TABLES["table1"].runs(CHOICE)
    found = [result(run, 0.5 + run.seed / 100, **more) for run in runs if run.partition.startswith("dirichlet:b=0.1")]
    return TABLES["table1"].rows(Known(found), CHOICE)


def test_markdown_has_ours_the_printed_figure_and_what_it_rests_on() -> None:
    text = formats.markdown(rows())
    assert "| method | dirichlet:0.1 |\n" in text  # a cell that nobody ran is left out
    assert "| fedlc | 50.50 ± 0.71 (65.91) |" in text
    assert "| fedlc | +0.00 (+17.84) |" in text
    assert (
        "**Accuracy after 400 rounds, %: mean of the last ten rounds ± standard deviation over seeds (the paper" in text
    )
    assert "- Rounds 400; E 1; momentum 0; lr 0.01; batch 128" in text
    assert "Seeds 0, 1; " in text
    assert "fedlc:tau=5,missing=floor,denominator=all" in text


def test_figures_over_different_seeds_are_said_to_be() -> None:
    run, choice = TABLES["table1"].run, Choice(cells=("cifar10/dirichlet:0.1",))
    seeds = {"fedavg": (0, 1, 2), "fedlc": (0,)}
    runs = [run("cifar10/dirichlet:0.1", m, choice, seed=seed) for m, some in seeds.items() for seed in some]
    text = formats.markdown(TABLES["table1"].rows(Known([result(one) for one in runs]), choice))
    assert "Seeds 0 or 0, 1, 2 (a figure without ± is of one seed; only gains compare methods" in text


def test_shortened_and_diverged_runs_are_marked() -> None:
    short = [result(run.model_copy(update={"rounds": 60}), 0.5) for run in TABLES["table1"].runs(CHOICE)]
    text = formats.markdown(TABLES["table1"].rows(Known(short), CHOICE))
    assert "50.00 ± 0.00 (48.07)" in text
    assert "Accuracy after 60 rounds" in text
    assert "- All have fewer rounds than in the paper." in text
    varied = [*short[:2], *(result(run) for run in TABLES["table1"].runs(CHOICE)[4:])]  # FedAvg at 0.1, all at 0.5
    text = formats.markdown(TABLES["table1"].rows(Known(varied), CHOICE))
    assert "| method | dirichlet:0.1 [60 rounds] | dirichlet:0.5 [400 rounds] |" in text
    assert "- Some have fewer rounds than in the paper." in text
    assert "2 diverged, round 9 (65.91)" in formats.markdown(rows(diverged=True, rounds=9))
    lost = rows(diverged=True, rounds=9)
    lost[0]["ours"]["diverged"] = {0: 30, 1: 12}
    assert "2 diverged, round 12 (48.07)" in formats.markdown(lost)
    both = rows()
    both[1]["ours"] |= {"diverged": {1: 7}, "each_last_ten": [50.0], "last_ten": 50.0}
    assert "50.00, 1 diverged, round 7 (65.91)" in formats.markdown(both)


def on_iid(text: str, method: str) -> dict[str, str]:
    """What a method gains on IID data, by column."""
    lines = [line.strip("| ").split(" | ") for line in text.splitlines() if line.startswith("|")]
    found = {}
    for i, heads in enumerate(lines):
        for line in lines[i:]:
            found |= {h: c for h, c in zip(heads, line, strict=False) if "IID data" in h and line[0] == method}
    return found


def test_gains_on_iid_data_are_told_apart_by_data_set() -> None:
    cells = ("svhn/dirichlet:0.1", "cifar10/dirichlet:0.1", "cifar10/dirichlet:0.5")
    choice, gain = Choice(cells=cells, methods=("fedavg", "fedlc"), seeds=1), {"svhn": 0.03, "cifar10": 0.01}
    found = []
    for run in TABLES["table1"].runs(choice):
        level = run.model_copy(update={"partition": "iid"})
        found += [result(run, 0.5), result(level, 0.7 + (run.algorithm != "fedavg") * gain[run.short["dataset"]])]
    svhn, cifar10 = formats.markdown(TABLES["table1"].rows(Known(found), choice)).split("### cifar10")
    assert svhn.startswith("### svhn\n")
    assert (on_iid(svhn, "fedlc"), on_iid(cifar10, "fedlc")) == ({"IID data": "+3.00"}, {"IID data": "+1.00"})
    without = Known([one for one in found if one.run["partition"] != "iid" or one.short["dataset"] == "svhn"])
    svhn, cifar10 = formats.markdown(TABLES["table1"].rows(without, choice)).split("### cifar10")
    assert (on_iid(svhn, "fedlc"), on_iid(cifar10, "fedlc")) == ({"IID data": "+3.00"}, {})


def test_gains_on_iid_data_are_told_apart_by_what_a_table_varies() -> None:
    table, choice = TABLES["table6"], Choice(cells=("m=10", "m=30"), methods=("fedavg", "fedlc"), seeds=1)
    found = []
    for run in table.runs(choice):
        level = run.model_copy(update={"partition": "iid"})
        found += [result(run, 0.5), result(level, 0.7 + (run.algorithm != "fedavg") * run.clients / 1000)]
    text = formats.markdown(table.rows(Known(found), choice))
    assert on_iid(text, "fedlc") == {"m=10, IID data": "+1.00", "m=30, IID data": "+3.00"}


def test_gains_on_iid_data_are_told_apart_by_rounds() -> None:
    table, choice = TABLES["table1"], replace(CHOICE, seeds=1)
    found = []
    for run in table.runs(choice):
        run = run.model_copy(update={"rounds": 200 if run.partition.startswith("dirichlet:b=0.1") else 400})
        level = run.model_copy(update={"partition": "iid"})
        found += [result(run, 0.5), result(level, 0.7 + (run.algorithm != "fedavg") * run.rounds / 10000)]
    text = formats.markdown(table.rows(Known(found), choice))
    assert on_iid(text, "fedlc") == {"IID data [200 rounds]": "+2.00", "IID data [400 rounds]": "+4.00"}


def shares(**seeds: int) -> list[Section]:
    """Tables of the share of the IID gap that is closed, by FedLC over these numbers of seeds in two cells."""
    found = []
    for run in TABLES["table1"].runs(replace(CHOICE, seeds=max(seeds.values()))):
        level = run.model_copy(update={"partition": "iid"})
        strong = run.partition.startswith("dirichlet:b=0.1")
        if run.seed < seeds["strong" if strong else "mild"]:
            found += [result(run, 0.5 + (run.algorithm != "fedavg") * 0.1), result(level, 0.7)]
    return [one for one in sections(TABLES["table1"].rows(Known(found), CHOICE)) if one.title.startswith("Share")]


def test_a_share_of_the_gap_says_over_how_many_seeds() -> None:
    (same,) = shares(strong=2, mild=2)
    assert (same.title, same.rows) == ("Share of the IID gap closed (2 seeds)", [["fedlc", "50 %", "50 %"]])
    (other,) = shares(strong=2, mild=1)
    assert other.rows == [["fedlc", "50 % (2 seeds)", "50 % (one seed)"]]
    assert other.title == "Share of the IID gap closed"


def test_balanced_accuracy_is_shown_where_it_differs() -> None:
    found, title = rows(), "Balanced accuracy of the last round, %"
    assert title not in [section.title for section in sections(found)]
    found[0]["ours"]["balanced"] -= 1
    assert title in [section.title for section in sections(found)]


def test_cells_are_named_by_what_they_differ_in() -> None:
    table = TABLES["table5"]
    cells = [cell for cell in table.cells if cell.startswith(("E=1/", "E=5/"))]
    choice = Choice(cells=tuple(cells), methods=("fedavg",), seeds=1)
    found = by_data(table.rows(Known([result(run) for run in table.runs(choice)]), choice))
    heads = {data: sections(rows)[0].heads[1:] for data, rows in found.items()}
    assert list(heads) == ["cifar10", "svhn"]
    for shown in heads.values():
        assert shown == ["E=1/dirichlet:0.5", "E=1/shards:5", "E=5/dirichlet:0.5", "E=5/shards:5"]


def test_cells_that_were_not_run_stand_with_their_data_set() -> None:
    table, choice = TABLES["table1"], Choice(methods=("fedavg",), seeds=1)
    ran = [result(run) for run in table.runs(choice) if run.partition.startswith("dirichlet:b=0.1")]
    shown = by_data(table.rows(Known(ran), choice))
    assert {data: len(rows) for data, rows in shown.items()} == {"svhn": 4, "cifar10": 4, "cifar100": 4}
    assert by_data(table.rows(Known([]), choice)).keys() == {""}


def test_the_end_of_a_short_run_is_its_last_half() -> None:
    def of(*lengths: int) -> str:
        runs = TABLES["table1"].runs(replace(CHOICE, seeds=1))
        first = runs[0].partition
        short = [run.model_copy(update={"rounds": lengths[run.partition != first]}) for run in runs]
        return formats.markdown(TABLES["table1"].rows(Known([result(run) for run in short]), CHOICE))

    assert "Of fewer than 19 rounds, the last half stands for the last ten." in of(18, 60)
    assert "the last half" not in of(19, 60)


def test_nothing_run_yet() -> None:
    text = formats.markdown(TABLES["table1"].rows(Known([]), CHOICE))
    assert formats.NOT_RUN in text
    assert "| fedavg | - (48.07) | - (60.18) |" in text
    assert ", one seed" not in text


def test_latex_is_for_booktabs_and_escaped() -> None:
    text = formats.latex(rows())
    assert text.startswith("% cifar10: Accuracy after 400 rounds, %")
    assert "\n\\begin{tabular}{lc}\n\\toprule" in text
    assert text.endswith("\\bottomrule\n\\end{tabular}\n")
    assert "50.50 $\\pm$ 0.71 (65.91) \\\\" in text


def test_csv_has_everything_a_figure_rests_on() -> None:
    lines = list(csv.DictReader(io.StringIO(formats.csv_text(rows()))))
    assert len(lines) == 4
    done = next(line for line in lines if line["cell"] == "cifar10/dirichlet:0.1" and line["method"] == "fedlc")
    assert done["ours_mean"] == "50.5"
    assert done["printed_mean"] == "65.91"
    assert done["seeds"] == "0 1"
    assert done["rounds"] == "400"
    assert done["precision"] == "fp32"
    assert len(done["hashes"].split()) == 2
    assert next(line for line in lines if line["cell"].endswith("0.5"))["ours_mean"] == ""


def test_stand_in_data_are_marked_in_every_format() -> None:
    choice = Choice(cells=("cifar10/dirichlet:0.1",), methods=("fedavg",), seeds=1, stand_in=True, rounds=2)
    (run,) = TABLES["table1"].runs(choice)
    found = TABLES["table1"].rows(Known([result(run)]), choice)
    assert "STAND-IN DATA: digits" in formats.markdown(found)
    assert "% STAND-IN DATA" in formats.latex(found)
    (line,) = csv.DictReader(io.StringIO(formats.csv_text(found)))
    assert (line["stand_in"], line["dataset"]) == ("True", "digits")

"""Tables of the paper as text."""

import csv
import io
from dataclasses import replace
from typing import Any

from fedskew.paper import TABLES, formats
from fedskew.paper.choice import Choice
from tests.paper.test_tables import Known, result

CHOICE = Choice(cells=("cifar10/dirichlet:0.1", "cifar10/dirichlet:0.5"), methods=("fedavg", "fedlc"), seeds=2)


def rows(**more: Any) -> list[dict[str, Any]]:
    runs = TABLES["table1"].runs(CHOICE)
    found = [result(run, 0.5 + run.seed / 100, **more) for run in runs if run.partition.startswith("dirichlet:b=0.1")]
    return TABLES["table1"].rows(Known(found), CHOICE)


def test_markdown_has_ours_the_printed_figure_and_what_it_rests_on() -> None:
    text = formats.markdown(rows())
    assert "| method | cifar10/dirichlet:0.1 |\n" in text  # a cell that nobody ran is left out
    assert "| fedlc | 50.50 ± 0.71 · 50.50 (65.91; -15.41) |" in text
    assert "Rounds 400; E 1; momentum 0; lr 0.01; batch 128" in text
    assert "Seeds 0, 1; " in text
    assert "fedlc:tau=5,missing=floor,denominator=all" in text


def test_figures_over_different_seeds_are_said_to_be() -> None:
    run, choice = TABLES["table1"].run, Choice(cells=("cifar10/dirichlet:0.1",))
    seeds = {"fedavg": (0, 1, 2), "fedlc": (0,)}
    runs = [run("cifar10/dirichlet:0.1", m, choice, seed=seed) for m, some in seeds.items() for seed in some]
    text = formats.markdown(TABLES["table1"].rows(Known([result(one) for one in runs]), choice))
    assert "Seeds 0 or 0, 1, 2 (a figure without ± is of one seed; only gains compare methods" in text


def test_a_share_of_the_gap_over_fewer_seeds_than_the_gain_says_so() -> None:
    share = {"share": 0.38, "gap": 0.2, "seeds": 1}
    assert formats.share_text({"gap_closed": share, "gain": {"seeds": 3}}) == "38 % (one seed)"
    assert formats.share_text({"gap_closed": {**share, "seeds": 3}, "gain": {"seeds": 5}}) == "38 % (3 seeds)"
    assert formats.share_text({"gap_closed": share, "gain": {"seeds": 1}}) == "38 %"
    assert formats.share_text({"gap_closed": None, "gain": None}) == "-"


def test_shortened_and_diverged_runs_are_marked() -> None:
    short = [result(run.model_copy(update={"rounds": 60}), 0.5) for run in TABLES["table1"].runs(CHOICE)]
    text = formats.markdown(TABLES["table1"].rows(Known(short), CHOICE))
    assert "50.00 ± 0.00 · 50.00 (48.07; +1.93)" in text
    assert "cifar10/dirichlet:0.1 [60 rounds]" in text
    assert "square brackets" in text
    assert "diverged (2 diverged, round 9)" in formats.markdown(rows(diverged=True, rounds=9))


def test_gains_on_iid_data_are_told_apart_by_data_set() -> None:
    cells = ("svhn/dirichlet:0.1", "cifar10/dirichlet:0.1", "cifar10/dirichlet:0.5")
    choice, gain = Choice(cells=cells, methods=("fedavg", "fedlc"), seeds=1), {"svhn": 0.03, "cifar10": 0.01}
    found = []
    for run in TABLES["table1"].runs(choice):
        level = run.model_copy(update={"partition": "iid"})
        found += [result(run, 0.5), result(level, 0.7 + (run.algorithm != "fedavg") * gain[run.short["dataset"]])]
    text = formats.markdown(TABLES["table1"].rows(Known(found), choice))
    assert "Gain on IID data, points: svhn: fedlc +3.00; cifar10: fedlc +1.00." in text
    without = Known([one for one in found if one.run["partition"] != "iid" or one.short["dataset"] == "svhn"])
    assert "points: svhn: fedlc +3.00." in formats.markdown(TABLES["table1"].rows(without, choice))
    one = replace(choice, cells=cells[1:])
    assert "Gain on IID data, points: fedlc +1.00." in formats.markdown(TABLES["table1"].rows(Known(found), one))


def test_gains_on_iid_data_are_told_apart_by_what_a_table_varies() -> None:
    table, choice = TABLES["table6"], Choice(cells=("m=10", "m=30"), methods=("fedavg", "fedlc"), seeds=1)
    found = []
    for run in table.runs(choice):
        level = run.model_copy(update={"partition": "iid"})
        found += [result(run, 0.5), result(level, 0.7 + (run.algorithm != "fedavg") * run.clients / 1000)]
    text = formats.markdown(table.rows(Known(found), choice))
    assert "Gain on IID data, points: m=10: fedlc +1.00; m=30: fedlc +3.00." in text


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


def test_latex_is_for_booktabs_and_escaped() -> None:
    text = formats.latex(rows())
    assert text.startswith("\\begin{tabular}{lc}\n\\toprule")
    assert text.endswith("\\bottomrule\n\\end{tabular}\n")
    assert "50.50 $\\pm$ 0.71 · 50.50 (65.91; -15.41) \\\\" in text


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

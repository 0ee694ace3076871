"""Tables and the figure of a sweep, from rows that were never computed."""

import csv
import statistics
from pathlib import Path

import pytest

from fedskew.report.figures import save
from fedskew.report.style import COLUMN, drawn_for
from fedskew.report.sweep_figure import across_of, interval_of, lines_of, places_of, points_of, swept_figure
from fedskew.report.swept import SweepTable
from fedskew.runs.summary import MEASURES
from tests.report.test_latex import cells_of

EACH = {1: [0.5, 0.6, 0.55], 2: [0.7, 0.8, 0.75], 100: [0.2, 0.1, 0.15]}


def row(values, each, diverged=0, **measures):
    known = {"accuracy": each, "accuracy_last10": each, **measures}
    found = {
        name: {
            "mean": statistics.fmean(known[name]) if name in known else None,
            "std": statistics.stdev(known[name]) if name in known and len(each) > 1 else None,
            "each": known.get(name, [None] * len(each)),
        }
        for name in MEASURES
    }
    about = {"values": values, "rounds": 20, "runs": ["3fa9", "77aa"], "seeds": list(range(len(each)))}
    about["diverged"] = diverged
    return {**about, "against_reference": None, **found}


def swept(**measures):
    rows = [row({"tau": tau, "lr": lr}, each, **measures) for tau, each in EACH.items() for lr in (0.1, 0.2)]
    return SweepTable("digits", rows, 2)


def test_the_table_says_what_the_reference_is():
    heads, lines = swept().table()
    assert heads == ["tau", "lr", "accuracy %", "last ten rounds %", "last ten rounds − (tau=2, lr=0.1), points"]
    assert lines[0][:4] == ["1", "0.1", "55.00 ± 5.00", "55.00 ± 5.00"]
    assert lines[2][-1] == "reference"
    assert lines[0][-1] == "below, -20.00 [-20.00, -20.00] over 3 seeds"
    assert swept().markdown().count("\n") == 8


def test_methods_are_compared_on_each_split():
    """FedLC on IID data is not above FedAvg because IID data are easier."""
    found = {("fedavg", "D"): 0.5, ("fedavg", "iid"): 0.8, ("fedlc", "D"): 0.6, ("fedlc", "iid"): 0.7}
    rows = [row({"algorithm": a, "partition": p}, [x, x + 0.01, x]) for (a, p), x in found.items()]
    heads, lines = SweepTable("digits", rows, 0).table()
    assert heads[-1] == "last ten rounds − (fedavg), points"
    assert [line[-1].partition(" [")[0] for line in lines] == [
        "reference",
        "reference",
        "above, +10.00",
        "below, -10.00",
    ]
    assert [line[4] for line in cells_of(SweepTable("digits", rows, 0).latex())[1:]] == [
        "",
        "",
        r"$\uparrow$",
        r"$\downarrow$",
    ]


def test_splits_are_compared_where_nothing_else_differs():
    rows = [row({"partition": split}, [x, x + 0.01, x]) for split, x in (("D", 0.5), ("iid", 0.8))]
    heads, lines = SweepTable("digits", rows, 0).table()
    assert heads[-1] == "last ten rounds − (partition=D), points"
    assert [line[-1].partition(" [")[0] for line in lines] == ["reference", "above, +30.00"]


def test_a_split_without_the_reference_is_not_compared():
    rows = [row({"algorithm": a, "partition": p}, [0.5, 0.5]) for a, p in (("fedavg", "D"), ("fedlc", "iid"))]
    assert [line[-1] for line in SweepTable("digits", rows, 0).table()[1]] == ["reference", "-"]


def test_a_paper_gets_the_table_that_methods_get():
    heads, first, *_ = cells_of(swept().latex())
    assert heads == ["tau", "lr", r"accuracy, last ten rounds (\%)", "difference to tau=2, lr=0.1 (points)", ""]
    assert first == ["1", "0.1", r"55.00 $\pm$ 5.00", "$-20.00$ $[-20.00, -20.00]$", r"$\downarrow$"]
    heads, *_ = cells_of(swept(validation_accuracy=[0.5, 0.5, 0.5]).latex())
    assert heads[3:5] == [r"held out (\%)", "difference to tau=2, lr=0.1, held out (points)"]
    assert "\n% tau 1, lr 0.2: 3fa9 77aa\n" in swept().latex()


def test_the_mean_of_short_runs_is_over_their_last_half():
    found = swept()
    for row in found.rows:
        row["rounds"] = 10
    heads, _ = found.table()
    assert heads[3:] == ["last 5 rounds %", "last 5 rounds − (tau=2, lr=0.1), points"]
    (axes,) = swept_figure(found).axes
    assert axes.get_ylabel() == "accuracy on the test set, mean of the last 5 rounds (%)"
    found.rows[0]["rounds"] = 11
    assert "last 5 to 6 rounds %" in found.table()[0]


def test_held_out_examples_decide_where_there_are_some():
    found = swept(validation_accuracy=[0.5, 0.5, 0.5])
    assert (swept().measure, found.measure) == ("accuracy_last10", "validation_accuracy")
    heads, lines = found.table()
    assert heads[-2:] == ["held out %", "held out − (tau=2, lr=0.1), points"]
    assert lines[0][-1].startswith("tied, +0.00")


def test_held_out_examples_do_not_decide_where_a_setting_has_none():
    some = row({"validation": 0.1}, EACH[1], validation_accuracy=EACH[2])
    found = SweepTable("digits", [row({"validation": 0.0}, EACH[2]), some], 0)
    assert found.measure == "accuracy_last10"
    assert found.table()[1][1][-1] == "below, -20.00 [-20.00, -20.00] over 3 seeds"


def test_a_setting_that_lost_a_seed_says_so_once():
    rows = [row({"tau": 1}, [0.1, 0.2, 0.15, 0.1]), row({"tau": 2}, [0.7, 0.8, 0.75, 0.7], diverged=1)]
    rows[1]["accuracy_last10"]["each"] = [0.7, 0.8, 0.75, None]
    _, lines = SweepTable("digits", rows, 0).table()
    assert lines[1][-1] == "open, +60.00 [+60.00, +60.00] over 3 seeds (1 more diverged)"


def test_what_does_not_differ_is_no_column():
    rows = [row({"tau": tau, "lr": 0.1}, each) for tau, each in EACH.items()]
    assert SweepTable("digits", rows, 0).names == ["tau"]


def test_the_csv_reads_back():
    lines = list(csv.DictReader(swept().csv().splitlines()))
    assert [(line["tau"], line["lr"]) for line in lines[:2]] == [("1", "0.1"), ("1", "0.2")]
    assert float(lines[0]["accuracy_last10_mean"]) == pytest.approx(0.55)
    assert lines[0]["client_accuracy_mean"] == ""


def test_the_figure_is_against_the_parameter_with_most_numbers():
    found = swept()
    assert across_of(found) == "tau"
    assert list(lines_of(found, "tau")) == ["lr=0.1", "lr=0.2"]
    assert places_of(found, "tau") == {1: 1, 2: 2, 100: 100}
    words = SweepTable("digits", [row({"partition": name}, [0.5, 0.6]) for name in ("iid", "shards:2", "labels:1")], 0)
    assert places_of(words, across_of(words)) == {"iid": 0, "shards:2": 1, "labels:1": 2}


def test_an_interval_is_students():
    found = interval_of(points_of(row({}, [0.5, 0.6, 0.55]), "accuracy"))
    assert found.mean == pytest.approx(55)
    assert found.half == pytest.approx(4.302653 * 5 / 3**0.5, rel=1e-4)


@pytest.mark.parametrize("seeds", [1, 2])
def test_seeds_too_few_for_an_interval_are_dots(seeds):
    rows = [row({"tau": tau}, each[:seeds]) for tau, each in EACH.items()]
    figure = swept_figure(SweepTable("digits", rows, 0))
    (axes,) = figure.axes
    assert not axes.containers  # no error bar
    dots = [line for line in axes.get_lines() if line.get_linestyle() == "None" and line.get_label() != "_break"]
    drawn = sorted((x, round(y, 6)) for line in dots for x, y in line.get_xydata().tolist())
    assert drawn == [(tau, round(100 * y, 6)) for tau, each in EACH.items() for y in sorted(each[:seeds])]
    words = {1: "one seed", 2: "a dot for each of two seeds"}
    assert figure.get_suptitle() == f"digits, {words[seeds]}"


def test_three_seeds_have_an_interval():
    (axes,) = swept_figure(swept()).axes
    assert len(axes.containers) == 6


def test_for_a_paper_it_is_a_column_wide_without_a_title(tmp_path: Path):
    with drawn_for("paper"):
        figure = swept_figure(swept())
        made = save(swept_figure(swept()), tmp_path / "sweep")
    assert figure.get_figwidth() == COLUMN
    assert figure.get_suptitle() == ""
    assert [path.name for path in made] == ["sweep.pdf"]


@pytest.mark.parametrize(("values", "scale"), [((1, 2, 100), "log"), ((1, 2, 5), "linear"), ((0, 1, 100), "linear")])
def test_decades_are_drawn_by_their_logarithm_and_all_dots_are_inside(tmp_path: Path, values, scale):
    rows = [row({"algorithm": "fedlc", "tau": tau}, each) for tau, each in zip(values, EACH.values(), strict=True)]
    rows.append(row({"algorithm": "fedavg", "tau": None}, [0.9, 0.92, 0.91]))
    made = save(swept_figure(SweepTable("digits", rows, 3)), tmp_path / "sweep")
    assert [path.name for path in made] == ["sweep.png", "sweep.svg"]
    (axes,) = swept_figure(SweepTable("digits", rows, 3)).axes
    assert axes.get_xscale() == scale
    low, high = axes.get_ylim()
    assert 0 <= low < 15 < 91 < high <= 100
    left, right = axes.get_xlim()
    assert left < min(values) < max(values) < right
    assert [text.get_text() for text in axes.get_xticklabels()] == [str(value) for value in values]


def test_words_are_dots_without_a_line():
    rows = [row({"partition": name}, [0.5, 0.6]) for name in ("iid", "shards:2", "labels:1")]
    (axes,) = swept_figure(SweepTable("digits", rows, 0)).axes
    assert {line.get_linestyle() for line in axes.get_lines()} == {"None"}

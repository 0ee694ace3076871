import statistics

import pytest

from fedskew.report import figures
from fedskew.report.comparison import csv_text, markdown
from fedskew.report.style import look
from fedskew.report.text_tables import as_markdown
from fedskew.runs.summary import over_seeds, percent, summarise


def records(accuracies, diverged=False):
    return [
        {
            "round": i + 1, "accuracy": a, "balanced_accuracy": a, "client_accuracy": None, "loss": 1.0,
            "per_class_accuracy": [a], "seconds": 0.5, "engine": "serial", "device": "cpu", "diverged": False,
        }
        for i, a in enumerate(accuracies)
    ] if not diverged else [{**records(accuracies)[-1], "diverged": True}]  # fmt: skip


RUN = {"algorithm": "fedavg", "seed": 0}


def test_summary_is_the_last_round_with_the_mean_of_the_last_ten():
    values = [i / 20 for i in range(20)]
    result = summarise(RUN, records(values), {"hash": "abc"})
    assert result["accuracy"] == 0.95
    assert result["accuracy_last10"] == pytest.approx(statistics.fmean(values[10:]))
    assert result["seconds"] == 10
    assert result["partition_hash"] == "abc"


def test_rounds_without_evaluation_are_passed_over():
    result = summarise(RUN, records([0.5, None, 0.7, None]), None)
    assert result["accuracy"] == 0.7
    assert result["rounds"] == 4


def test_over_seeds_uses_the_sample_standard_deviation():
    rows = [summarise({**RUN, "seed": s}, records([a]), None) for s, a in enumerate([0.5, 0.6, 0.8])]
    row = over_seeds(rows)
    assert row["accuracy"] == {
        "mean": pytest.approx(0.6333333),
        "std": pytest.approx(statistics.stdev([0.5, 0.6, 0.8])),
        "each": [0.5, 0.6, 0.8],
    }
    assert over_seeds(rows[:1])["accuracy"]["std"] is None


def test_a_diverged_seed_is_counted_apart():
    rows = [summarise(RUN, records([0.5]), None), summarise(RUN, records([0.1], diverged=True), None)]
    row = over_seeds(rows)
    assert row["diverged"] == 1
    assert (row["accuracy"]["mean"], row["accuracy"]["each"]) == (0.5, [0.5, None])


def test_tables():
    made = (("fedavg", 0.25), ("fedlc", 0.5))
    more = {"rounds_to_reach": {"rounds": None, "reached": 0, "seeds": 1}, "gap_closed": None, "iid": None}
    gains = {"fedavg": None, "fedlc": {"mean": 25.0, "half": None, "seeds": 1, "verdict": "not decided"}}
    rows = [
        {
            "method": name,
            "rounds": 20,
            "baseline": "fedavg",
            "against_baseline": gains[name],
            **more,
            **over_seeds([summarise(RUN, records([a]), None)]),
        }
        for name, a in made
    ]
    assert "| last ten rounds % | last ten rounds − fedavg, points |" in markdown(rows)
    short = [{**row, "rounds": 6} for row in rows]
    assert "| last 3 rounds % | last 3 rounds − fedavg, points |" in markdown(short)
    assert csv_text(short) == csv_text(rows)
    assert "| fedavg | 25.00 | 25.00 | 25.00 | - | never | 1 |" in markdown(rows)
    assert "| fedlc | 50.00 | 50.00 | 50.00 | not decided: one seed, +25.00 | never | 1 |" in markdown(rows)
    plain, calibrated = csv_text(rows).splitlines()[1:]
    assert plain.startswith("fedavg,1,0,0.25,")
    assert plain.endswith(",,,,,,0,,,,,,,")
    assert calibrated.endswith(",25.0,,1,not decided,,0,,,,,,,")
    assert percent(0.5, 0.011) == "50.00 ± 1.10"
    assert percent(None) == "-"


def test_the_same_data_give_the_same_figure(tmp_path):
    series = {"fedavg": [records([0.1, 0.2, 0.3])], "fedlc:tau=5": [records([0.2, 0.3, 0.4]), records([0.1, 0.2, 0.5])]}
    card = {"counts": [[3, 0], [1, 5]], "clients": 2}
    for folder in ("one", "two"):
        figures.curves(tmp_path / folder / "curves", series, "title")
        figures.rectangles(tmp_path / folder / "split", card, "title")
    for name in ("curves.png", "curves.svg", "split.png", "split.svg"):
        assert (tmp_path / "one" / name).read_bytes() == (tmp_path / "two" / name).read_bytes()


def test_a_method_looks_the_same_everywhere():
    assert look("fedlc", 0) == look("fedlc", 7)
    assert look("fedlc") != look("fedavg")
    assert look("fedlc:tau=5", 0) != look("fedlc:tau=2", 1)


def test_a_bar_in_a_name_begins_no_column():
    assert as_markdown(["method", "a|b"], [["ours | best", "1"]])[::2] == [
        "| method | a\\|b |",
        "| ours \\| best | 1 |",
    ]

"""What the report gathers from a store."""

import statistics

import pytest

from fedskew.report import figures
from fedskew.report.page.entries import MOST_COLUMNS, MOST_POINTS, read_entries
from fedskew.report.page.federations import federations
from fedskew.report.page.files import latex, results_csv, runs_csv, write_files
from fedskew.report.page.measured import deviations, effects
from fedskew.report.page.series import curve, drawn, heat
from fedskew.runs.store import Store
from tests.report.page_store import RUN, accuracy_of, effect, example_store, gathered, write_run

EVALUATED = ("accuracy", "balanced_accuracy", "loss", "per_class_accuracy")


def test_the_difference_is_paired_over_common_seeds(tmp_path):
    store = Store(tmp_path)
    for seed, (base, other) in enumerate([(0.0, 0.01), (0.1, 0.13), (0.2, 0.22)]):
        write_run(store, f"a{seed}", seed=seed, gain=base)
        write_run(store, f"b{seed}", seed=seed, gain=other, algorithm="fedlc")
    write_run(store, "b9", seed=9, gain=0.3, algorithm="fedlc")
    (found,) = gathered(store)
    difference = found.difference(found.methods[1])
    last_ten = [accuracy_of(number, 0.1) - accuracy_of(number, 0) for number in range(11, 21)]
    reach = sum(last_ten) / 10 / 0.1  # of the mean of the last ten rounds, for a gain of one
    assert difference.seeds == 3
    assert difference.mean == pytest.approx(100 * reach * 0.02, abs=1e-3)
    assert difference.half == pytest.approx(100 * reach * 4.3026527 * 0.01 / 3**0.5, rel=1e-3)
    assert found.difference(found.methods[0]) is None


def test_without_fedavg_there_is_no_difference(tmp_path):
    store = Store(tmp_path)
    write_run(store, "a", algorithm="fedlc")
    (found,) = gathered(store)
    assert found.difference(found.methods[0]) is None


def test_unfinished_and_diverged_runs_are_in_no_mean(tmp_path):
    store = example_store(tmp_path)
    write_run(store, "x1", seed=7, done=4, gain=5)
    write_run(store, "x2", seed=8, done=6, diverged=True, gain=5)
    (found,) = gathered(store)
    method = found.methods[0]
    assert [entry.state for entry in method.entries] == ["done", "done", "done", "unfinished", "diverged"]
    values = [entry.summary["accuracy"] for entry in method.finished]
    assert method.row["accuracy"]["mean"] == statistics.fmean(values)
    assert curve(method.drawn)["round"][-1] == 20


def test_a_seed_that_diverged_counts_against_its_method(tmp_path):
    store = example_store(tmp_path)
    above = gathered(store)[0]
    assert above.difference(above.method("fedlc")).verdict == "above"
    write_run(store, "x1", seed=8)
    write_run(store, "x2", seed=8, algorithm="fedlc", done=6, diverged=True)
    write_run(store, "x3", seed=9)
    write_run(store, "x4", seed=9, algorithm="fedlc", done=4)  # unfinished: not lost
    (found,) = gathered(store)
    difference = found.difference(found.method("fedlc"))
    assert (difference.verdict, difference.seeds, difference.lost) == ("open", 3, 1)


def test_a_method_with_no_finished_run_has_a_curve_and_no_number(tmp_path):
    store = Store(tmp_path)
    write_run(store, "a", done=3)
    (found,) = gathered(store)
    assert found.methods[0].row["accuracy"]["mean"] is None
    (method,) = drawn(found)["methods"]
    assert method["state"] == "unfinished"
    assert method["curve"]["round"] == [1, 2, 3]


def test_a_run_that_has_not_begun(tmp_path):
    store = Store(tmp_path)
    write_run(store, "a", done=0)
    (found,) = gathered(store)
    assert drawn(found)["methods"][0]["curve"]["round"] == []
    assert drawn(found)["methods"][0]["heat"] is None


def test_curves_are_means_in_per_cent(tmp_path):
    (found,) = gathered(example_store(tmp_path))
    entries = found.methods[0].drawn
    shown = curve(entries)
    values = [accuracy_of(20, 0.003 * k) for k in (0, 2, 1)]
    assert shown["accuracy"][-1] == pytest.approx(100 * statistics.fmean(values), abs=0.01)
    assert shown["accuracy_std"][-1] == pytest.approx(100 * statistics.stdev(values), abs=0.01)
    assert len(heat(entries)["values"]) == 10
    assert "accuracy_std" not in curve(entries[:1])


def test_long_runs_are_thinned_to_the_same_rounds(tmp_path):
    store = Store(tmp_path)
    write_run(store, "a", rounds=1000)
    write_run(store, "b", rounds=1000, seed=1, done=500)
    (found,) = gathered(store)
    one, other = found.methods[0].entries
    assert len(one.points) == MOST_POINTS
    assert len(one.classes) == MOST_COLUMNS
    assert one.points[-1]["round"] == 1000
    assert {point["round"] for point in other.points} <= {point["round"] for point in one.points}


@pytest.mark.parametrize("never", [(), ("balanced_accuracy", "per_class_accuracy")], ids=["all", "as nodes measure"])
def test_curves_that_are_dense_at_the_end_alone_have_a_line_with_its_mean(never, tmp_path):
    store = Store(tmp_path)
    rounds = [10, 20, 30, *range(31, 41)]
    for seed in range(2):
        folder = write_run(store, f"a{seed}", rounds=40, seed=seed)
        without = [never if record["round"] in rounds else EVALUATED for record in folder.records()]
        kept = [{**r, **dict.fromkeys(names)} for r, names in zip(folder.records(), without, strict=True)]
        (folder.path / "records.jsonl").write_bytes(b"")
        for each in kept:
            folder.append_record(each)
    (found,) = gathered(store)
    (method,) = drawn(found)["methods"]
    assert method["curve"]["round"] == rounds
    assert method["line"]["round"] == [10, 20, 30, 35.5, 40]
    mean = 100 * found.methods[0].row["accuracy_last10"]["mean"]
    assert method["line"]["accuracy"][-2:] == pytest.approx([mean, mean], abs=0.01)
    assert "accuracy_std" in method["line"]
    assert (set(method["line"]["balanced_accuracy"]) == {None}) == bool(never)
    write_files(tmp_path / "files", [found])
    files = {path.stem for path in (tmp_path / "files").rglob("*.png")}
    assert ("accuracy" in files, "balanced_accuracy" in files) == (True, not never)
    (even,) = gathered(example_store(tmp_path / "even"))
    assert drawn(even)["methods"][0]["line"] is None


@pytest.mark.parametrize(
    ("file", "content"),
    [
        ("records.jsonl", "no record\n"),
        ("records.jsonl", '{"round": 1, "accuracy": "high"}\n'),
        ("records.jsonl", '{"round": 1}\n'),
        ("run.json", "{}"),
        ("run.json", '{"format": 1, "result_version": 1, "run": {}, "short": {}}'),
        ("partition.json", '{"hash": 1}'),
        ("partition.json", "[]"),
    ],
)
def test_a_damaged_run_is_left_out_and_named(tmp_path, file, content):
    store = example_store(tmp_path)
    (tmp_path / ("00" + "0" * 14) / file).write_text(content)
    entries, left_out = read_entries(store)
    assert len(entries) == 8
    assert [each.hash for each in left_out] == ["0" * 16]
    assert left_out[0].problem


def test_measured_panels_are_read_where_there_are_any(tmp_path):
    store = Store(tmp_path)
    folder = write_run(store, "a")
    folder.write_measured(RUN["rounds"], {"local_effect": {"fedavg": effect(0.9, 0.5), "fedlc": {"groups": 3}}})
    pair = {"client": 0, "j": 1, "r": 2, "kind": "minority", "ratio": 8.0, "bound": 2.0, "own": -0.1}
    rows = [pair, {**pair, "ratio": None}, {**pair, "bound": -1.0}, {**pair, "bound": None}, "?"]
    deviation = {"class_accuracy": None, "deviation": {"pairs": rows}}
    methods = {"fedlc": deviation, "odd": None, "none": {"deviation": None}}
    folder.write_diagnosis({"round": RUN["rounds"], "methods": methods})
    (entry,) = read_entries(store)[0]
    assert list(effects(entry)) == ["fedavg"]
    assert effects(entry)["fedavg"].groups["missing"] == {"before": 0.9, "after": 0.5, "aggregated": None}
    (found,) = deviations(entry).values()
    assert [(pair.ratio, pair.falls) for pair in found.pairs] == [(8.0, True), (None, True)]
    assert (found.stated, found.above, entry.notes) == (2, 2, [])


@pytest.mark.parametrize("content", ["?", "[]", '{"local_effect": 3}', b"\xff"])
def test_damaged_measurements_do_not_take_the_run_out(tmp_path, content):
    store = Store(tmp_path)
    folder = write_run(store, "a")
    for name in ("measured.json", "diagnosis.json"):
        (folder.path / name).write_bytes(content if isinstance(content, bytes) else content.encode())
    (entry,), left_out = read_entries(store)
    assert (left_out, effects(entry), deviations(entry)) == ([], {}, {})
    assert "`fedskew diagnose a`" in "; ".join(entry.notes)
    assert [note for note in entry.notes if "measured.json is damaged" in note and "`fedskew paper run" in note]
    folder.write_measured(RUN["rounds"], {"local_effect": {"fedavg": effect(0.9, 0.5)}})
    assert list(effects(read_entries(store)[0][0])) == ["fedavg"]


def test_a_diagnosis_of_an_earlier_round_is_not_shown_as_the_runs(tmp_path):
    store = Store(tmp_path)
    folder = write_run(store, "a", rounds=30)
    folder.write_diagnosis({"round": 20, "methods": {"fedavg": {"class_accuracy": effect(0.9, 0.5)}}})
    (entry,) = read_entries(store)[0]
    assert effects(entry) == {}
    assert entry.notes == ["the diagnosis was measured at round 20; `fedskew diagnose a` measures round 30"]


def test_tables_beside_the_page(tmp_path):
    store = example_store(tmp_path)
    write_run(store, "x", algorithm="my_loss.py:50%&", done=2)
    (found,) = gathered(store)
    lines = results_csv(found).splitlines()
    assert len(lines) == 5
    assert lines[0].startswith("method,seeds,unfinished,diverged,accuracy_mean,accuracy_std")
    assert len(runs_csv(found).splitlines()) == 11
    table = latex(found)
    assert table.count("\\textbf{") == 1
    assert "my\\_loss.py:50\\%\\&" in table
    assert all(rule in table for rule in ("\\toprule", "\\midrule", "\\bottomrule"))


def test_progress_is_told_for_every_section(tmp_path):
    store = Store(tmp_path / "runs")
    write_run(store, "a")
    write_run(store, "b", lr=0.5)
    told = []
    made = write_files(tmp_path / "figures", gathered(store), lambda *now: told.append(now)).made
    assert told == [(0, 2), (1, 2)]
    assert all(path.is_file() for path in made)


@pytest.mark.parametrize(("count", "first", "last"), [(9, "1-data-0", "9-data-8"), (10, "01-data-0", "10-data-9")])
def test_folders_of_sections_are_listed_in_their_order(tmp_path, monkeypatch, count, first, last):
    for name in ("curves", "rectangles"):
        monkeypatch.setattr(figures, name, lambda *_, **__: [])
    store = Store(tmp_path / "runs")
    for k in range(count):
        write_run(store, f"a{k}", title=f"data {k}", rounds=2)
    write_files(tmp_path / "figures", gathered(store))
    made = sorted(path.name for path in (tmp_path / "figures").iterdir() if path.is_dir())
    assert (made[0], made[-1], len(made)) == (first, last, count)


def test_rounds_and_the_iid_gap_are_those_of_the_sibling_section(tmp_path):
    store = example_store(tmp_path)
    for seed in range(2):
        write_run(store, f"a{seed}" + "0" * 14, algorithm="fedavg", seed=seed, gain=0.2, partition="iid", title="iid")
        write_run(store, f"b{seed}" + "0" * 14, algorithm="fedlc", seed=seed, gain=0.22, partition="iid", title="iid")
    entries, _ = read_entries(store)
    skewed, level = federations(entries)
    assert (skewed.iid, level.iid) == (level, None)
    fedavg, fedlc = (skewed.method(name) for name in ("fedavg", "fedlc"))
    reach, share = skewed.reach(fedlc), skewed.gap_closed(fedlc)
    assert (reach.reached, reach.seeds) == (3, 3)
    assert reach.rounds < skewed.reach(fedavg).rounds < 20
    ends = {e.hash[:2]: e.summary["accuracy_last10"] for e in entries}
    gain = ends["10"] + ends["11"] - ends["00"] - ends["01"]
    assert share.share == pytest.approx(gain / (ends["a0"] + ends["a1"] - ends["00"] - ends["01"]))
    assert share.seeds == 2
    assert skewed.difference_on_iid(fedlc).mean > 0
    assert skewed.difference_on_iid(skewed.method("scaffold")) is None
    assert federations(entries, target=0.99)[0].reach(fedlc).rounds is None
    line = results_csv(skewed).splitlines()[3].split(",")
    named = dict(zip(results_csv(skewed).splitlines()[0].split(","), line, strict=True))
    assert (named["method"], named["rounds_to_reach"]) == ("fedlc", str(reach.rounds))
    assert float(named["iid_gap_closed"]) == pytest.approx(share.share)
    assert "iid_difference_points" in named

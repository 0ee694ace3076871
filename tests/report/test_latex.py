"""Tables for a paper: they must compile as they are, and be small enough to print."""

import csv
import re

import pytest

from fedskew.report.comparison import FinishedRun, csv_text, latex, markdown, method_rows
from fedskew.report.page.entries import read_entries
from fedskew.report.page.federations import federations
from fedskew.report.page.files import latex as section_latex
from fedskew.report.page.files import results_csv
from fedskew.report.page.overview import overview_latex
from fedskew.report.text_tables import tex
from fedskew.runs.store import Store
from tests.report.page_store import example_store, record, write_run

GAINS = {"fedavg": (0.5, 0.51, 0.52), "fedlc": (0.6, 0.61, 0.63), "fedrs": (0.45, 0.44, 0.47)}


def compared(gains=GAINS, **options):
    methods = {
        name: [
            FinishedRun({"algorithm": name, "seed": seed}, [record(i, value) for i in range(1, 13)])
            for seed, value in enumerate(values)
        ]
        for name, values in gains.items()
    }
    return method_rows(methods, **options)


def cells_of(table):
    """The cells of a tabular, as text, after a check of what LaTeX needs: one kind of columns, braces and dollars in
    pairs, no special character that is not escaped."""
    code = [line for line in table.splitlines() if not line.startswith("%")]
    assert table.startswith("% \\usepackage{booktabs}\n")
    columns = re.fullmatch(r"\\begin\{tabular\}\{(l[lc]*)\}", code[0])[1]
    assert (code[1], code[3], code[-2], code[-1]) == (r"\toprule", r"\midrule", r"\bottomrule", r"\end{tabular}")
    rows = []
    for line in [code[2], *code[4:-2]]:
        assert line.endswith(r" \\")
        assert not line.startswith(("[", "*"))
        cells = re.split(r"(?<!\\)&", line.removesuffix(r" \\"))
        assert len(cells) == len(columns)
        for cell in cells:
            plain = re.sub(r"\\[{}$_%&#^~]", "", cell)
            assert plain.count("$") % 2 == 0
            assert not re.search(r"[%#~]", plain)
            assert not re.search(r"[_^<>|]", plain)
            assert plain.count("{") == plain.count("}")
            assert plain.isascii()
        rows.append([cell.strip() for cell in cells])
    return rows


def test_a_comparison_is_four_columns_with_bold_and_minus_signs():
    heads, *rows = cells_of(latex(compared()))
    assert heads == ["method", r"accuracy, last 6 rounds (\%)", "difference to fedavg (points)", ""]
    assert rows[0] == ["fedavg", r"51.00 $\pm$ 1.00", "--", ""]
    assert rows[1] == ["fedlc", r"\textbf{61.33 $\pm$ 1.53}", "$+10.33$ $[+8.90, +11.77]$", r"$\uparrow$"]
    assert rows[2][2:] == ["$-5.67$ $[-8.54, -2.80]$", r"$\downarrow$"]


def test_nothing_is_bold_that_the_rule_does_not_call_best():
    table = latex(compared({name: values[:2] for name, values in GAINS.items()}))
    assert "textbf" not in table
    assert cells_of(table)[2][2:] == ["$+10.00$", r"$\cdot$"]
    assert "Mean and standard deviation over 2 seeds." in table
    assert "Bold" not in table
    assert "intervals" not in table
    assert "Bold" in latex(compared())
    assert "paired by seed, with their 95 % intervals." in latex(compared())


def test_a_single_method_has_no_difference():
    assert cells_of(latex(compared({"fedlc": (0.5,)}))) == [
        ["method", r"accuracy, last 6 rounds (\%)"],
        ["fedlc", "50.00"],
    ]


def test_comments_name_the_runs_behind_each_line():
    rows = [{**row, "name": "Ours %" if row["method"] == "fedlc" else row["method"]} for row in compared()]
    hashes = {row["method"]: [f"{row['method']}{seed}" for seed in row["seeds"]] for row in rows}
    table = latex(rows, hashes)
    assert "% method Ours %: fedlc0 fedlc1 fedlc2\n" in table
    assert cells_of(table) == cells_of(latex(rows))
    assert "runs show" not in latex(rows)


def test_without_a_baseline_there_is_no_column_for_differences():
    heads = markdown(compared({"fedlc": (0.5, 0.6), "scaffold": (0.4, 0.5)})).splitlines()[0]
    assert "points" not in heads
    assert "last 6 rounds − fedavg, points" in markdown(compared()).splitlines()[0]
    assert "points" not in markdown(compared({"fedavg": (0.5, 0.6)})).splitlines()[0]


def test_report_and_compare_write_one_table(tmp_path):
    store = example_store(tmp_path)
    (found,) = federations(read_entries(store)[0])
    finished = {m.name: [stored(store, entry) for entry in m.entries] for m in found.methods}
    assert section_latex(found) == latex(method_rows(finished))


def stored(store, entry):
    folder = store.folder(entry.hash)
    return FinishedRun(folder.run(), folder.records(), folder.card())


def test_both_tables_of_numbers_have_differences_in_points(tmp_path):
    store = example_store(tmp_path)
    (found,) = federations(read_entries(store)[0])
    finished = {m.name: [stored(store, entry) for entry in m.entries] for m in found.methods}
    one, other = (
        {row["method"]: row for row in csv.DictReader(text.splitlines())}
        for text in (results_csv(found), csv_text(method_rows(finished)))
    )
    names = ("difference_points", "difference_half_points", "difference_seeds", "verdict", "accuracy_last10_mean")
    for method in ("fedlc", "scaffold"):
        assert [one[method][name] for name in names] == [other[method][name] for name in names]
        share = float(one[method]["accuracy_last10_mean"]) - float(one["fedavg"]["accuracy_last10_mean"])
        assert float(one[method]["difference_points"]) == pytest.approx(100 * share)


@pytest.mark.parametrize("name", [r"a_b%&#{}\^~$<|>", "[ours]", "*ours", "±−"])
def test_any_name_is_printed_as_it_is(name):
    rows = [{**row, "name": name if row["method"] == "fedlc" else row["method"]} for row in compared()]
    assert cells_of(latex(rows))[2][0] in (tex(name), "{}" + tex(name))


def test_the_overview_names_splits_by_what_differs(tmp_path):
    store = Store(tmp_path)
    for p, partition in enumerate(("iid", "shards:a=2")):
        for m, method in enumerate(("fedavg", "fedlc")):
            for seed in range(3):
                gain = p * m * (0.1 + 0.001 * seed)
                write_run(store, f"{p}{m}{seed}", algorithm=method, seed=seed, gain=gain, partition=partition, lr=0.1)
    found = federations(read_entries(store)[0])
    heads, base, other = cells_of(overview_latex(found))
    assert heads == ["method", "digits, partition iid", r"digits, partition shards:a=2"]
    assert [cell.split()[-1] for cell in other] == ["fedlc", "$=$", r"$\uparrow$"]
    assert [cell.startswith(r"\textbf") for cell in other] == [False, False, True]
    assert base[0] == "fedavg"
    assert not any("arrow" in cell for cell in base)


def test_where_splits_differ_in_many_fields_they_are_named_as_sections(tmp_path):
    store = Store(tmp_path)
    for hash, fields in {"a": {}, "b": {"lr": 0.2}, "c": {"momentum": 0.9}, "d": {"batch_size": 8}}.items():
        write_run(store, hash, **fields)
    heads, _ = cells_of(overview_latex(federations(read_entries(store)[0])))
    assert sorted(heads[1:]) == ["digits", "digits, batch size 8", "digits, lr 0.2", "digits, momentum 0.9"]


def test_many_splits_are_lines_and_a_method_that_is_not_there_is_an_empty_cell(tmp_path):
    store = Store(tmp_path)
    for n in range(7):
        write_run(store, f"a{n}", lr=0.1 * (n + 1))
    write_run(store, "b", algorithm="fedlc", lr=0.1)
    heads, *rows = cells_of(overview_latex(federations(read_entries(store)[0])))
    assert heads == ["federation", "fedavg", "fedlc"]
    assert len(rows) == 7
    assert sorted(row[2] != "" for row in rows) == [False] * 6 + [True]


def test_a_method_that_diverged_says_so():
    gone = FinishedRun({"algorithm": "fedlc", "seed": 2}, [record(1, 0.1, diverged=True)])
    methods = {
        name: [
            FinishedRun({"algorithm": name, "seed": seed}, [record(i, 0.5) for i in range(1, 13)]) for seed in range(2)
        ]
        for name in ("fedavg", "fedlc")
    }
    assert cells_of(latex(method_rows({**methods, "fedlc": [*methods["fedlc"], gone]})))[2][0] == "fedlc (1 diverged)"


def test_a_method_that_diverged_early_does_not_change_what_the_end_of_the_others_is():
    gone = FinishedRun({"algorithm": "fedrs", "seed": 0}, [record(1, 0.1, diverged=True)])
    done = FinishedRun({"algorithm": "fedavg", "seed": 0}, [record(i, 0.5) for i in range(1, 25)])
    rows = method_rows({"fedavg": [done], "fedlc": [done], "fedrs": [gone]})
    assert cells_of(latex(rows))[0][1] == r"accuracy, last ten rounds (\%)"
    assert "| last ten rounds % | last ten rounds − fedavg, points |" in markdown(rows)
    short = FinishedRun({"algorithm": "fedlc", "seed": 0}, [record(i, 0.5) for i in range(1, 7)])
    assert "| last 3 to ten rounds % |" in markdown(method_rows({"fedavg": [done], "fedlc, rounds=6": [short]}))

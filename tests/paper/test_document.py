"""The generated pages are what the committed results say."""

import importlib.util
import re
from dataclasses import replace
from pathlib import Path

import pytest

from docs.pages import table_page
from docs.pages.claims import by_seed, claims, common_seeds, in_short, on_common_seeds, rank
from docs.pages.reproduction import BEGIN, END, between, reproduction
from fedskew.paper import FIGURES, TABLES
from fedskew.paper.choice import Choice
from fedskew.paper.formats import NOT_RUN, behind, rests_on
from fedskew.paper.profiles import PROFILES
from fedskew.paper.sections import accuracy_text, sections
from fedskew.runs.results import Results, read_lines
from fedskew.runs.run import Run
from fedskew.runs.versions import result_version
from tests.paper.test_tables import Known, result

ROOT = Path(__file__).parents[2]
PUBLISHED = ROOT / "results" / "paper"
DATA_SETS = ("cifar10", "cifar100")


def test_the_pages_are_regenerated_to_the_byte() -> None:
    where = importlib.util.spec_from_file_location("generate", ROOT / "docs" / "generate.py")
    assert where is not None
    assert where.loader is not None
    generate = importlib.util.module_from_spec(where)
    where.loader.exec_module(generate)
    for path, text in generate.pages(ROOT).items():
        assert path.read_text() == text, f"{path} is not what `make reproduction` writes"


def test_every_published_line_names_the_run_it_says() -> None:
    files = [*PUBLISHED.glob("*.jsonl"), *PUBLISHED.with_name("tuned").glob("*.jsonl")]
    lines = [line for path in sorted(files) for line in read_lines(path)]
    assert lines
    for line in lines:
        run = Run(**line.run)
        assert run.hash == line.hash, line.hash
        assert line.short == {**run.short, "title": run.title}, line.hash
        assert line.result_version == result_version(line.run["algorithm"])
        assert line.summary["partition_hash"]
        assert line.sessions
        assert line.summary["accuracy"] is not None
        assert line.curve[-1] == (line.summary["rounds"], round(line.summary["accuracy"], 4))


def test_figures_on_the_page_change_with_the_results() -> None:
    choice = Choice(cells=("cifar10/dirichlet:0.1",), methods=("fedavg", "fedlc"), seeds=1)
    plain, calibrated = TABLES["table1"].runs(choice)
    results = Known([result(plain, 0.4), result(calibrated, 0.61)])
    pages = reproduction(results, Path("nowhere"))
    assert "| fedlc | 61.00 (65.91) |" in pages["tables/table1.md"]
    assert "| fedlc | +21.00 (+17.84) |" in pages["tables/table1.md"]
    assert "None of this has been run yet." in pages["tables/table2.md"]
    summary = pages["reproduction.md"]
    assert "| cifar10 D(0.1) | 48.07 → 65.91 (+17.84) | 40.00 → 61.00 (+21.00; 1 of 2) |" in summary
    assert "| cifar10 D(0.3) | 55.95 → 72.18 (+16.23) | - |" in summary


def test_a_summary_has_common_seeds_the_verdict_and_the_rank() -> None:
    """FedOpt is ahead of FedLC in the seed that it has, FedRS over the seeds that both have, and logit adjustment is
    none of the paper's methods."""
    cell = "cifar10/dirichlet:0.1"
    reached = {"fedavg": [40] * 4, "fedlc": [60] * 3, "fedopt": [70], "fedrs": [50, 80, 80], "fedla": [90]}
    runs = [
        result(TABLES["table1"].run(cell, method, Choice(), seed=seed), value / 100)
        for method, values in reached.items()
        for seed, value in enumerate(values)
    ]
    page = reproduction(Known(runs), Path("nowhere"))["reproduction.md"]
    assert "| split | the paper | `stated`, 400 rounds |" in page
    assert "| 48.07 → 65.91 (+17.84) | 40.00 → 60.00 (+20.00 above; 3 of 4) |" in page


def test_the_commands_of_a_page_do_the_runs_that_it_names_and_no_others() -> None:
    results = Results(None, PUBLISHED)
    for name, table in TABLES.items():
        for part in "\n\n".join(table_page.page(table, results)).split("\n## Profile ")[1:]:
            named = set(re.findall(r"\d: ([0-9a-f]{16})", part))
            asked = set[str]()
            for line in re.findall(r"^fedskew paper run .*", part, re.M):
                _, _, _, item, *words = line.split()
                options = [*zip(words[::2], words[1::2], strict=True)]
                given = dict(options)
                choice = Choice(
                    cells=tuple(value for option, value in options if option == "--cells"),
                    methods=(given["--methods"],),
                    seeds=int(given["--seeds"]),
                    rounds=int(given["--rounds"]) if "--rounds" in given else None,
                    profile=PROFILES[given["--profile"]],
                    fields={"precision": given["--precision"], "device": given.get("--device", "cpu")},
                )
                assert item == name
                asked |= {run.hash for run in table.runs(choice)}
            assert named
            assert named == asked


def test_data_sets_of_a_table_are_shown_apart() -> None:
    cells = ("cifar10/dirichlet:0.1", "cifar100/dirichlet:0.1")
    runs = TABLES["table1"].runs(Choice(cells=cells, methods=("fedavg",), seeds=1))
    page = reproduction(Known([result(run, 0.5) for run in runs]), Path("nowhere"))["tables/table1.md"]
    one, other = (page.partition(f"## Profile `stated`, {data}\n")[2].partition("##")[0] for data in DATA_SETS)
    for part in (one, other):
        assert "| method | D(0.1) |" in part
    assert "- Not run: cifar10/dirichlet:0.05, cifar10/dirichlet:0.3, cifar10/dirichlet:0.5." in one
    assert "svhn/dirichlet:0.05" in other  # not run, named once
    alone = reproduction(Known([result(runs[0], 0.5)]), Path("nowhere"))["tables/table1.md"]
    assert "## Profile `stated`, cifar10\n" in alone
    assert f"- `fedavg`: {cells[0]} 0: {runs[0].hash}" in alone


def test_what_was_run_is_counted_in_short() -> None:
    choice = Choice(cells=("cifar10/dirichlet:0.3", "svhn/dirichlet:0.3"), methods=("fedavg", "fedlc"), seeds=1)
    runs = TABLES["table1"].runs(choice)
    assert [run.dataset.partition(":")[0] for run in runs] == ["svhn", "svhn", "cifar10", "cifar10"]
    accuracies = (0.8, 0.7, 0.6, 0.725)
    first, second = in_short(Known([result(*pair) for pair in zip(runs, accuracies, strict=True)]), TABLES.values())
    assert first[:7] == ["`stated`", "svhn", "1", "400", "1", "not decided in 1", "-10.00"]
    told = ["`stated`", "cifar10", "1", "400", "1", "not decided in 1", "+12.50", "+16.23", "+0.32", "+4.05"]
    assert second == told  # a cell of two tables, once
    assert in_short(Results(), TABLES.values()) == []


def test_verdicts_over_seeds_are_counted() -> None:
    choice = Choice(cells=("cifar10/dirichlet:0.1", "cifar10/dirichlet:0.5"), methods=("fedavg", "fedlc"), seeds=3)
    accuracies = (0.4, 0.5, 0.6, 0.45, 0.56, 0.67, 0.4, 0.5, 0.6, 0.45, 0.49, 0.6)
    found = [result(*pair) for pair in zip(TABLES["table1"].runs(choice), accuracies, strict=True)]
    (said,) = in_short(Known(found), TABLES.values())
    assert said[2:6] == ["2", "400", "3", "above in 1, open in 1"]
    assert said[6] == "+1.33 to +6.00"


def test_a_gain_over_seeds_is_paired() -> None:
    table, choice = TABLES["table1"], Choice(cells=("cifar10/dirichlet:0.1",), methods=("fedavg", "fedlc"), seeds=3)
    runs = table.runs(choice)
    accuracies = (0.4, 0.5, 0.6, 0.45, 0.56, 0.67)  # of different seeds, far apart, but FedLC always ahead
    results = Known([result(*pair) for pair in zip(runs, accuracies, strict=True)])
    (claim,) = claims(table, table.rows(results, choice))
    assert str(claim.against("fedavg")) == "above, +6.00 [+3.52, +8.48] over 3 seeds"
    assert claim.against("fedavg", "each").mean == pytest.approx(6)


def test_a_run_done_twice_is_told_with_its_largest_difference() -> None:
    (run,) = TABLES["table1"].runs(Choice(cells=("cifar10/dirichlet:0.1",), methods=("fedavg",), seeds=1))
    first = replace(result(run, 0.5), curve=[(100, 0.4), (400, 0.5)])
    again = replace(result(run, 0.52), curve=[(100, 0.45), (200, 0.9), (400, 0.52)])
    pages = reproduction(Known([first]), Path("nowhere"), [again])
    assert (
        f"- {run.hash}, fedavg on cifar10 dirichlet:0.1, 20 clients, E 1: at most 5.00 points apart; 400 rounds by "
        "`stacked` to 50.00 · 50.00, 400 rounds by `stacked` to 52.00 · 52.00 (last round · last ten)."
    ) in pages["tables/repeats.md"]
    extent = "Of 96 pairs of split and method (`fedla` added by us) we ran 1 under `stated` (1 with one seed)."
    assert extent in pages["reproduction.md"]


def test_a_longer_run_that_agrees_is_counted_and_not_listed() -> None:
    (run,) = TABLES["table1"].runs(Choice(cells=("cifar10/dirichlet:0.1",), methods=("fedavg",), seeds=1))
    longer = replace(result(run.model_copy(update={"rounds": 800}), 0.6), curve=[(400, 0.5), (800, 0.6)])
    page = reproduction(Known([result(run, 0.5), longer]), Path("nowhere"))["tables/repeats.md"]
    assert "1 run is among the results more than once" in page
    assert "In 1 of them the accuracies of all rounds in common are equal" in page
    assert "points apart" not in page


def test_accuracy_over_classes_and_clients_is_told_where_it_differs() -> None:
    (run,) = TABLES["table4"].runs(Choice(cells=("synthetic:1,1",), methods=("fedavg",), seeds=1))

    def told(**more: float) -> dict[str, list[list[str]]]:
        rows = TABLES["table4"].rows(Known([result(run, 0.5, **more)]))
        return {section.title: section.rows for section in sections(rows)[1:]}

    balanced, client = "Balanced accuracy of the last round, %", "Mean of the clients' accuracies, last round, %"
    reached = {"Rounds to FedAvg's end": [["fedavg", "300"]]}
    assert told() == reached
    assert told(balanced_accuracy=0.3) == {**reached, balanced: [["fedavg", "30.00"]]}
    assert told(client_accuracy=0.2) == {**reached, client: [["fedavg", "20.00"]]}
    even = TABLES["table4"].rows(Known([result(run, 0.5)]))
    assert "Not run: synthetic:0,0, synthetic:0.5,0.5, femnist." in rests_on(even)


def test_methods_with_fewer_seeds_are_compared_over_those_that_both_have() -> None:
    """FedOpt has one seed less, and is above FedLC in those that it has."""
    cell, table = "cifar10/dirichlet:0.1", TABLES["table1"]
    reached = {"fedavg": [0.5] * 4, "fedlc": [0.6] * 4, "fedopt": [0.7] * 3}
    runs = [
        result(table.run(cell, method, Choice(), seed=seed), accuracy)
        for method, values in reached.items()
        for seed, accuracy in enumerate(values)
    ]
    (claim,) = claims(table, table.rows(Known(runs)))
    known = {method: by_seed(ours) for method, ours in claim.ours.items()}
    assert (claim.seeds, len(common_seeds(known)), rank(known, "fedlc")) == (4, 3, 2)
    assert on_common_seeds(known) == pytest.approx({"fedavg": 50, "fedlc": 60, "fedopt": 70})


def test_what_was_not_run_still_shows_the_printed_figure_and_other_versions() -> None:
    row = next(row for row in TABLES["table1"].rows(Results()) if row["method"] == "fedlc")
    assert accuracy_text(row) == f"- ({row['printed']['mean']:.2f})"
    assert rests_on([{**row, "other_versions": 3}]) == [NOT_RUN, "3 runs of another result version are not shown."]


def test_a_figure_names_the_runs_it_rests_on() -> None:
    figure = FIGURES["figure5"]
    some = figure.runs(Choice(cells=("imagenet12/dirichlet:0.1",), seeds=1, rounds=7))
    results = Known([result(run, 0.3) for run in some])
    rows = figure.rows(results)
    said = "30.00 % after 7 rounds, mean of the last 4 rounds 30.00 %, shortened"
    assert [line.endswith(said) for line in figure.lines(rows)] == [True, True]
    text = "\n".join(behind(rows, results))
    assert "Rounds 7; E 1;" in text
    assert "clients 40; model resnet18" in text
    for run in some:
        assert f"{run.hash} (partition {'p' * 16})" in text
    assert behind([], results) == []


def test_the_figure_of_fedavg_under_skew_shows_no_other_method() -> None:
    figure = FIGURES["figure1"]
    runs = [TABLES["table1"].run("cifar10/dirichlet:0.1", m, Choice()) for m in ("fedavg", "scaffold:mean=uniform")]
    (row,) = figure.rows(Known([result(run) for run in runs]))
    assert row["hashes"] == [runs[0].hash]
    published = figure.rows(Results(None, PUBLISHED))
    assert len({row["label"] for row in published}) == len(published) == len(figure.cells)


@pytest.mark.parametrize("name", ["figure1", "figure2", "figure5", "figure6", "figure7"])
def test_every_published_figure_carries_its_runs(name: str) -> None:
    page = (ROOT / "docs" / "tables" / "figures.md").read_text()
    part = page.partition(f"## Figure {name[-1]}:")[2].partition("##")[0]
    assert re.search(r"Rounds \d+; E \d+; .* device ", part)
    assert re.search(r"Runs: [0-9a-f]{16} \(partition [0-9a-f]{16}\)", part)
    assert (name in ("figure2", "figure6", "figure7")) == ("Local updates of that model were measured on " in part)


def test_a_worse_fedlc_is_said_to_be_below() -> None:
    choice = Choice(cells=("cifar10/dirichlet:0.1",), methods=("fedavg", "fedlc"), seeds=3)
    runs = TABLES["table1"].runs(choice)
    found = [result(*pair) for pair in zip(runs, (0.6, 0.5, 0.7, 0.4, 0.29, 0.5), strict=True)]
    page = reproduction(Known(found), Path("nowhere"))["tables/table1.md"]
    assert "| fedlc | -20.33 [-21.77, -18.90] below (+17.84) |" in page


def test_runs_of_different_seeds_are_not_held_against_each_other() -> None:
    choice = Choice(cells=("cifar10/dirichlet:0.1",), methods=("fedavg", "fedlc"), seeds=1)
    plain, calibrated = TABLES["table1"].runs(choice)
    results = Known([result(plain.model_copy(update={"seed": 1}), 0.1), result(calibrated, 0.6)])
    pages = reproduction(results, Path("nowhere"))
    assert "**Points over FedAvg" not in pages["tables/table1.md"]
    assert "| 48.07 → 65.91 (+17.84) |" not in pages["reproduction.md"]


def test_only_the_marked_part_is_replaced() -> None:
    assert between(f"a\n{BEGIN}\nold\n{END}\nb", "new") == f"a\n{BEGIN}\nnew\n{END}\nb"
    with pytest.raises(ValueError, match="no part"):
        between("a", "new")


def test_nothing_published_is_an_empty_page() -> None:
    pages = reproduction(Results(), Path("nowhere"))
    assert pages["reproduction.md"].count("None of this has been run yet") == len(TABLES)
    assert all(pages[f"tables/{name}.md"].count("None of this has been run yet") == 1 for name in TABLES)


def test_the_page_on_the_reproduction_is_one_to_read() -> None:
    assert len((ROOT / "docs" / "reproduction.md").read_text().splitlines()) <= 300

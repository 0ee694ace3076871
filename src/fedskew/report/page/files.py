"""Files with the page: figures as PNG and PDF, tables as CSV and LaTeX, in a folder per federation."""

import re
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

from fedskew.core.files import write_whole
from fedskew.report import figures
from fedskew.report.page.entries import DRAWN
from fedskew.report.page.federations import Federation, Method
from fedskew.report.page.overview import overview_latex
from fedskew.report.page.series import partition_of
from fedskew.report.result_table import DIFFERENCE_COLUMNS, difference_values, result_latex, shown_measures
from fedskew.report.text_tables import as_csv
from fedskew.report.written import Replaced, check_replaceable, replacing_results
from fedskew.runs.summary import MEASURES, mean_head
from fedskew.runs.verdict import Difference

Progress = Callable[[int, int], None]
"""Called with how many sections are done, and how many there are."""
_MORE = ("rounds_to_reach", "seeds_that_reached", "iid_gap", "iid_gap_closed")


def write_files(
    folder: Path, federations: Sequence[Federation], progress: Progress = lambda done, of: None
) -> Replaced:
    """`FOLDER/1-digits/` and so on, with curves, the partition, results and runs; `overview.tex` where there are
    several federations. They take the place of those that were written there before."""
    sections = _sections(folder, federations)
    with replacing_results("report", folder, {}, _targets(folder, sections), "--figures") as found:
        for done, (section, federation) in enumerate(sections.items()):
            progress(done, len(sections))
            found.made += _of_federation(section, federation)
        found.made += _overview(folder, federations)
    return found


def check_files(folder: Path, federations: Sequence[Federation]) -> None:
    """Refuse before any work if `write_files` would replace what is not ours."""
    check_replaceable("report", folder, _targets(folder, _sections(folder, federations)), "--figures")


def _sections(folder: Path, federations: Sequence[Federation]) -> dict[Path, Federation]:
    """Folders that a listing has in the order of the page."""
    width = len(str(len(federations)))
    return {folder / f"{n:0{width}}-{file_name(each.name)}": each for n, each in enumerate(federations, 1)}


def _targets(folder: Path, sections: Iterable[Path]) -> list[Path]:
    """All that may be written."""
    names = (*DRAWN[:2], "partition")
    drawn = [file for section in sections for name in names for file in figures.files_of(section / name)]
    return [folder / "overview.tex", *(section / name for section in sections for name in _TEXTS), *drawn]


def _overview(folder: Path, federations: Sequence[Federation]) -> list[Path]:
    if len(federations) < 2:
        return []
    write_whole(folder / "overview.tex", overview_latex(federations).encode())
    return [folder / "overview.tex"]


def file_name(title: str) -> str:
    return re.sub(r"[^\w.-]+", "-", title).strip("-")[:80]


def _of_federation(folder: Path, federation: Federation) -> list[Path]:
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in _TEXTS.items():
        write_whole(folder / name, text(federation).encode())
    made = [folder / name for name in _TEXTS]
    series = {method.name: [entry.points for entry in method.drawn] for method in federation.methods}
    names = {method.name: method.label for method in federation.methods}
    known = [point for runs in series.values() for points in runs for point in points]
    for measure in (name for name in DRAWN[:2] if any(point[name] is not None for point in known)):
        made += figures.curves(folder / f"{measure}.pdf", series, federation.name, measure, names)
    card = partition_of(federation)
    if card is not None:
        made += figures.rectangles(folder / "partition.pdf", card, f"{federation.name}, seed {card['seed']}")
    return made


def results_csv(federation: Federation) -> str:
    """One line per method: fractions, the paired difference to FedAvg in the mean of the last ten rounds with half its
    interval, both in points, rounds to the target, the IID gap, and the difference on IID data."""
    parts = [f"{measure}_{part}" for measure in MEASURES for part in ("mean", "std")]
    heads = ["method", "seeds", "unfinished", "diverged", *parts, *DIFFERENCE_COLUMNS, *_MORE]
    heads += [f"iid_{name}" for name in DIFFERENCE_COLUMNS]
    return as_csv(heads, [_result(federation, method) for method in federation.methods])


def runs_csv(federation: Federation) -> str:
    """One line per run."""
    heads = ["run", "method", "seed", "state", "rounds", *MEASURES, "seconds", "engine", "device", "partition_hash"]
    names = [name for name in heads if name not in ("run", "method", "seed", "state")]
    rows = [
        [entry.hash, method.label, entry.run["seed"], entry.state, *(entry.summary[name] for name in names)]
        for method in federation.methods
        for entry in method.entries
    ]
    return as_csv(heads, rows)


def latex(federation: Federation) -> str:
    """For a paper."""
    names, rows = [[method.label] for method in federation.methods], [method.row for method in federation.methods]
    differences = [federation.difference(method) for method in federation.methods]
    measures = shown_measures(rows, mean_head([federation.rounds]))
    return result_latex(["method"], names, rows, measures, differences, federation.base_label)


_TEXTS = {"results.csv": results_csv, "results.tex": latex, "runs.csv": runs_csv}


def _result(federation: Federation, method: Method) -> list[object]:
    values = [method.row[measure][part] for measure in MEASURES for part in ("mean", "std")]
    states = [len(method.finished), method.count("unfinished"), method.count("diverged")]
    reach, share = federation.reach(method), federation.gap_closed(method)
    more: list[object] = [None, None] if reach is None else [reach.rounds, reach.reached]
    more += [None, None] if share is None else [share.gap, share.share]
    here, on_iid = (_values(found) for found in (federation.difference(method), federation.difference_on_iid(method)))
    return [method.label, *states, *values, *here, *more, *on_iid]


def _values(found: Difference | None) -> list[object]:
    return difference_values(None if found is None else found.as_dict())

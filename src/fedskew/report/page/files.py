"""Files with the page: figures as PNG and PDF, tables as CSV and LaTeX, in a folder per federation."""

import re
from collections.abc import Sequence
from pathlib import Path

from fedskew.report import figures
from fedskew.report.page.entries import MEASURES
from fedskew.report.page.federations import Federation, Method
from fedskew.report.page.overview import overview_latex
from fedskew.report.page.series import partition_of
from fedskew.report.result_table import DIFFERENCE_COLUMNS, difference_values, method_latex
from fedskew.report.text_tables import as_csv
from fedskew.runs.store import write_whole
from fedskew.runs.summary import MEASURES as SUMMARISED
from fedskew.runs.verdict import Difference

_MORE = ("rounds_to_reach", "seeds_that_reached", "iid_gap", "iid_gap_closed")


def write_files(folder: Path, federations: Sequence[Federation]) -> list[Path]:
    """`FOLDER/1-digits/` and so on, with curves, the partition, results and runs; `overview.tex` where there are
    several federations."""
    made = []
    for number, federation in enumerate(federations, 1):
        made += _of_federation(folder / f"{number}-{file_name(federation.name)}", federation)
    if len(federations) > 1:
        write_whole(folder / "overview.tex", overview_latex(federations).encode())
        made.append(folder / "overview.tex")
    return made


def file_name(title: str) -> str:
    return re.sub(r"[^\w.-]+", "-", title).strip("-")[:80]


def _of_federation(folder: Path, federation: Federation) -> list[Path]:
    folder.mkdir(parents=True, exist_ok=True)
    texts = {"results.csv": results_csv(federation), "results.tex": latex(federation), "runs.csv": runs_csv(federation)}
    for name, text in texts.items():
        write_whole(folder / name, text.encode())
    made = [folder / name for name in texts]
    series = {method.name: [entry.points for entry in method.drawn] for method in federation.methods}
    names = {method.name: method.label for method in federation.methods}
    for measure in MEASURES[:2]:
        made += figures.curves(folder / measure, series, federation.name, measure, "pdf", names)
    card = partition_of(federation)
    if card is not None:
        title = f"{federation.name}, seed {card['seed']}"
        made += figures.rectangles(folder / "partition", card, title, vector="pdf")
    return made


def results_csv(federation: Federation) -> str:
    """One line per method: fractions, the paired difference to FedAvg in the mean of the last ten rounds with half its
    interval, both in points, rounds to the target, the IID gap, and the difference on IID data."""
    parts = [f"{measure}_{part}" for measure in SUMMARISED for part in ("mean", "std")]
    heads = ["method", "seeds", "unfinished", "diverged", *parts, *DIFFERENCE_COLUMNS, *_MORE]
    heads += [f"iid_{name}" for name in DIFFERENCE_COLUMNS]
    return as_csv(heads, [_result(federation, method) for method in federation.methods])


def runs_csv(federation: Federation) -> str:
    """One line per run."""
    heads = ["run", "method", "seed", "state", "rounds", *SUMMARISED, "seconds", "engine", "device", "partition_hash"]
    names = [name for name in heads if name not in ("run", "method", "seed", "state")]
    rows = [
        [entry.hash, method.label, entry.run["seed"], entry.state, *(entry.summary[name] for name in names)]
        for method in federation.methods
        for entry in method.entries
    ]
    return as_csv(heads, rows)


def latex(federation: Federation) -> str:
    """For a paper."""
    names, rows = [method.label for method in federation.methods], [method.row for method in federation.methods]
    differences = [federation.difference(method) for method in federation.methods]
    return method_latex(names, rows, [federation.rounds], differences, federation.base_label)


def _result(federation: Federation, method: Method) -> list[object]:
    values = [method.row[measure][part] for measure in SUMMARISED for part in ("mean", "std")]
    states = [len(method.finished), method.count("unfinished"), method.count("diverged")]
    reach, share = federation.reach(method), federation.gap_closed(method)
    more: list[object] = [None, None] if reach is None else [reach.rounds, reach.reached]
    more += [None, None] if share is None else [share.gap, share.share]
    here, on_iid = (_values(found) for found in (federation.difference(method), federation.difference_on_iid(method)))
    return [method.label, *states, *values, *here, *more, *on_iid]


def _values(found: Difference | None) -> list[object]:
    return difference_values(None if found is None else found.as_dict())

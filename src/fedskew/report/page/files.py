"""Files with the page: figures as PNG and PDF, tables as CSV and LaTeX, in a folder per federation."""

import re
from collections.abc import Sequence
from pathlib import Path

from fedskew.report import figures
from fedskew.report.page.entries import MEASURES
from fedskew.report.page.federations import Federation, Method
from fedskew.report.page.series import partition_of
from fedskew.report.page.tables import more_cells, more_heads, shown_measures, verdict_text
from fedskew.report.text_tables import as_csv, tabular, tex
from fedskew.runs.store import write_whole
from fedskew.runs.summary import MEASURES as SUMMARISED
from fedskew.runs.summary import mean_head, percent
from fedskew.runs.verdict import MEASURE, Difference, best

_DIFFERENCE = ("difference", "difference_half", "difference_seeds", "verdict")
_MORE = ("rounds_to_reach", "seeds_that_reached", "iid_gap", "iid_gap_closed")


def write_files(folder: Path, federations: Sequence[Federation]) -> list[Path]:
    """`FOLDER/1-digits/` and so on, with curves, the partition, results and runs."""
    made = []
    for number, federation in enumerate(federations, 1):
        made += _of_federation(folder / f"{number}-{file_name(federation.name)}", federation)
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
    interval, rounds to the target, the IID gap, and the difference on IID data."""
    parts = [f"{measure}_{part}" for measure in SUMMARISED for part in ("mean", "std")]
    heads = ["method", "seeds", "unfinished", "diverged", *parts, *_DIFFERENCE, *_MORE]
    heads += [f"iid_{name}" for name in _DIFFERENCE]
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
    """For booktabs: percentages, the best by the verdict rule in bold, the difference to FedAvg in points."""
    mean = mean_head([federation.rounds])
    shown = {"accuracy": "accuracy", "balanced_accuracy": "balanced", MEASURE: mean, "validation_accuracy": "held out"}
    measures = shown_measures(federation, shown)
    leaders = {measure: best([method.row for method in federation.methods], measure) for measure in measures}
    apart = f"{mean} − {federation.base_label} (95 % interval)"
    heads = ["method", *(f"{shown[measure]} (%)" for measure in measures), apart, *more_heads(federation)]
    rows = []
    for i, method in enumerate(federation.methods):
        cells = [tex(method.label)]
        for measure in measures:
            text = tex(percent(method.row[measure]["mean"], method.row[measure]["std"]))
            cells.append(f"\\textbf{{{text}}}" if leaders[measure] == i else text)
        difference = federation.difference(method)
        cells.append(tex("-" if difference is None else verdict_text(difference)))
        cells += map(tex, more_cells(federation, method))
        rows.append(cells)
    return "\n".join(tabular(heads, rows)) + "\n"


def _result(federation: Federation, method: Method) -> list[object]:
    values = [method.row[measure][part] for measure in SUMMARISED for part in ("mean", "std")]
    states = [len(method.finished), method.count("unfinished"), method.count("diverged")]
    reach, share = federation.reach(method), federation.gap_closed(method)
    more: list[object] = [None, None] if reach is None else [reach.rounds, reach.reached]
    more += [None, None] if share is None else [share.gap, share.share]
    gains = [*_difference(federation.difference(method)), *more, *_difference(federation.difference_on_iid(method))]
    return [method.label, *states, *values, *gains]


def _difference(found: Difference | None) -> list[object]:
    if found is None:
        return [None] * len(_DIFFERENCE)
    half = None if found.half is None else found.half / 100
    return [found.mean / 100, half, found.seeds, found.verdict]

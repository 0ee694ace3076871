"""A comparison of methods, read from the store: rows, tables and figures."""

import csv
import io
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from fedskew.experiments.store import Store, write_whole
from fedskew.report import figures
from fedskew.report.summary import MEASURES, over_seeds, percent, summarise
from fedskew.report.verdict import BASELINE, against_baseline

Hashes = Mapping[str, Sequence[str]]


def comparison_rows(store: Store, hashes: Hashes, rounds: int) -> list[dict[str, Any]]:
    """One row per method: each measure's mean and std over seeds, and its verdict against FedAvg, if that is there."""
    rows = []
    for name, group in hashes.items():
        folders = [store.folder(hash) for hash in group]
        summaries = [summarise(f.run(), f.records()[:rounds], f.card()) for f in folders]
        rows.append({"method": name, **over_seeds(summaries)})
    for row, found in zip(rows, against_baseline(rows), strict=True):
        row["against_fedavg"] = None if found is None else {**asdict(found), "verdict": found.verdict}
    return rows


def write_comparison(store: Store, hashes: Hashes, rounds: int, out: Path) -> list[Path]:
    """Curves, partition, and the table as Markdown and CSV."""
    out.mkdir(parents=True, exist_ok=True)
    rows = comparison_rows(store, hashes, rounds)
    write_whole(out / "table.md", markdown(rows).encode())
    write_whole(out / "table.csv", as_csv(rows).encode())
    series = {name: [store.folder(hash).records()[:rounds] for hash in group] for name, group in hashes.items()}
    first = store.folder(next(iter(hashes.values()))[0])
    title, card = first.short()["title"], first.card()
    made = [out / "table.md", out / "table.csv", *figures.curves(out / "curves", series, title)]
    if card is not None:
        made += figures.rectangles(out / "partition", card, f"{title}, seed {first.run()['seed']}")
    return made


def markdown(rows: Sequence[dict[str, Any]]) -> str:
    heads = ["method", "accuracy %", "balanced %", "last ten rounds %", f"last ten − {BASELINE}, points", "seeds"]
    lines = ["| " + " | ".join(heads) + " |", "|" + " --- |" * len(heads)]
    for row, difference in zip(rows, against_baseline(rows), strict=True):
        cells = [percent(row[m]["mean"], row[m]["std"]) for m in ("accuracy", "balanced_accuracy", "accuracy_last10")]
        cells.append("-" if difference is None else str(difference))
        lines.append("| " + " | ".join([row["method"], *cells, str(len(row["seeds"]))]) + " |")
    return "\n".join(lines) + "\n"


def as_csv(rows: Sequence[dict[str, Any]]) -> str:
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    measures = [f"{m}_{part}" for m in MEASURES for part in ("mean", "std")]
    writer.writerow(["method", "seeds", "diverged", *measures, "difference", "difference_half", "verdict"])
    for row, found in zip(rows, against_baseline(rows), strict=True):
        values = [row[m][part] for m in MEASURES for part in ("mean", "std")]
        values += [None] * 3 if found is None else [found.mean, found.half, found.verdict]
        writer.writerow([row["method"], len(row["seeds"]), row["diverged"], *("" if v is None else v for v in values)])
    return out.getvalue()

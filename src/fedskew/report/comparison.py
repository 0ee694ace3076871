"""A comparison of methods, read from the store: rows, tables and figures."""

import csv
import io
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from fedskew.experiments.store import Store, write_whole
from fedskew.report import figures
from fedskew.report.summary import MEASURES, over_seeds, percent, summarise

Hashes = Mapping[str, Sequence[str]]


def comparison_rows(store: Store, hashes: Hashes, rounds: int) -> list[dict[str, Any]]:
    """One row per method: each measure's mean and std over seeds."""
    rows = []
    for name, group in hashes.items():
        folders = [store.folder(hash) for hash in group]
        summaries = [summarise(f.run(), f.records()[:rounds], f.card()) for f in folders]
        rows.append({"method": name, **over_seeds(summaries)})
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
    heads = ["method", "accuracy %", "balanced %", "last ten rounds %", "seeds"]
    lines = ["| " + " | ".join(heads) + " |", "|" + " --- |" * len(heads)]
    for row in rows:
        cells = [percent(row[m]["mean"], row[m]["std"]) for m in ("accuracy", "balanced_accuracy", "accuracy_last10")]
        lines.append("| " + " | ".join([row["method"], *cells, str(len(row["seeds"]))]) + " |")
    return "\n".join(lines) + "\n"


def as_csv(rows: Sequence[dict[str, Any]]) -> str:
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(["method", "seeds", "diverged", *(f"{m}_{part}" for m in MEASURES for part in ("mean", "std"))])
    for row in rows:
        values = [row[m][part] for m in MEASURES for part in ("mean", "std")]
        writer.writerow([row["method"], len(row["seeds"]), row["diverged"], *("" if v is None else v for v in values)])
    return out.getvalue()

"""A comparison of methods: rows, tables and figures."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from fedskew.core.files import write_whole
from fedskew.report import figures
from fedskew.report.result_table import DIFFERENCE_COLUMNS, difference_values, result_latex, shown_measures
from fedskew.report.text_tables import as_csv, as_markdown
from fedskew.runs.measures import Curves, Reach, Share, gap_closed, rounds_to_reach, target_words
from fedskew.runs.store import Store
from fedskew.runs.summary import MEASURES, held_out, mean_head, over_seeds, percent, summarise
from fedskew.runs.verdict import BASELINE, Difference, against_baseline

Hashes = Mapping[str, Sequence[str]]
_HEADS = {
    "accuracy": "accuracy %",
    "balanced_accuracy": "balanced %",
    "client_accuracy": "per client %",
    "validation_accuracy": "held out %",
}


def heads_of(end: str) -> dict[str, str]:
    """What tables call a measure, `end` being what they call the end of a run."""
    return {**_HEADS, "accuracy_last10": f"{end} %"}


def end_of(rows: Iterable[Mapping[str, Any]]) -> str:
    """What the end of runs is called; those that diverged have none, unless all did."""
    rows = list(rows)
    return mean_head(row["rounds"] for row in [r for r in rows if r["accuracy_last10"]["mean"] is not None] or rows)


@dataclass(frozen=True)
class FinishedRun:
    """A finished run of one seed: its fields, its records and the card of its partition."""

    run: dict[str, Any]
    records: Sequence[dict[str, Any]]
    card: dict[str, Any] | None = None


Methods = Mapping[str, Sequence[FinishedRun]]


def stored(store: Store, hash: str, rounds: int) -> FinishedRun:
    """A run in a store, up to a round."""
    folder = store.folder(hash)
    return FinishedRun(folder.run(), folder.records()[:rounds], folder.card())


def stored_methods(store: Store, hashes: Hashes, rounds: int) -> Methods:
    """Runs in a store by method, up to a round."""
    return {name: [stored(store, hash, rounds) for hash in group] for name, group in hashes.items()}


def method_rows(
    methods: Methods, *, target: float | None = None, iid: Methods | None = None, baseline: str = BASELINE
) -> list[dict[str, Any]]:
    """One row per method: each measure's mean and std over seeds, its verdict against the baseline, if that is among
    them, and how many rounds it takes to the target (the baseline's end). With the same methods on IID data, also their
    accuracy there and the share of the baseline's gap that they close."""
    rows, level = _rows(methods, baseline), _rows(iid or {}, baseline)
    curves, plain = method_curves(methods), method_curves(iid or {})
    base = curves.get(baseline, {})
    for row in rows:
        mine = curves[row["method"]]
        row["rounds_to_reach"] = _as_dict(rounds_to_reach(mine, base if target is None else target))
        row["gap_closed"] = _as_dict(gap_closed(mine, base, plain.get(baseline, {})))
        row["iid"] = next((other for other in level if other["method"] == row["method"]), None)
    return rows


def _rows(methods: Methods, baseline: str) -> list[dict[str, Any]]:
    rows = []
    for name, group in methods.items():
        summaries = [summarise(one.run, one.records, one.card) for one in group]
        longest = max(summary["rounds"] for summary in summaries)
        rows.append({"method": name, "rounds": longest, "baseline": baseline, **over_seeds(summaries)})
    for row, found in zip(rows, differences(rows), strict=True):
        row["against_baseline"] = None if found is None else found.as_dict()
    return rows


def differences(rows: Sequence[Mapping[str, Any]]) -> list[Difference | None]:
    """Each row against the baseline of the comparison."""
    return against_baseline(rows, rows[0]["baseline"]) if rows else []


def method_curves(methods: Methods) -> dict[str, Curves]:
    """The accuracy of every evaluated round, by method and seed; a run that diverged has no final accuracy and is left
    out."""
    return {
        name: {
            one.run["seed"]: [(r["round"], r["accuracy"]) for r in one.records if r["accuracy"] is not None]
            for one in group
            if one.records and not one.records[-1]["diverged"]
        }
        for name, group in methods.items()
    }


def _as_dict(found: Reach | Share | None) -> dict[str, Any] | None:
    return None if found is None else asdict(found)


def write_comparison(
    methods: Methods, rows: Sequence[dict[str, Any]], hashes: Hashes, out: Path, title: str, target: float | None
) -> list[Path]:
    """Curves, the first seed's partition, and the table as Markdown, LaTeX and CSV, which names the runs."""
    out.mkdir(parents=True, exist_ok=True)
    made = write_texts(out / "table", {"md": markdown(rows, target), "tex": latex(rows, hashes), "csv": csv_text(rows)})
    series = {name: [one.records for one in group] for name, group in methods.items()}
    names = {row["method"]: name_of(row) for row in rows}
    made += figures.curves(out / "curves", series, title, names=names)
    first = next(iter(methods.values()))[0]
    if first.card is not None:
        made += figures.rectangles(out / "partition", first.card, f"{title}, seed {first.run['seed']}")
    return made


def comparison_files(out: Path) -> list[Path]:
    """All that `write_comparison` may write."""
    drawn = [file for name in ("curves", "partition") for file in figures.files_of(out / name)]
    return [*(out / f"table.{kind}" for kind in ("md", "tex", "csv")), *drawn]


def write_texts(path: Path, texts: Mapping[str, str]) -> list[Path]:
    """A table in several forms: `PATH.md` and so on."""
    made = {path.with_suffix(f".{kind}"): text for kind, text in texts.items()}
    for file, text in made.items():
        write_whole(file, text.encode())
    return [*made]


def name_of(row: Mapping[str, Any]) -> str:
    """What a row's method is called."""
    return str(row.get("name", row["method"]))


def base_name(rows: Sequence[Mapping[str, Any]]) -> str:
    """What the baseline is called."""
    baseline: str = rows[0]["baseline"]
    return next((name_of(row) for row in rows if row["method"] == baseline), baseline)


def more_columns(rows: Sequence[dict[str, Any]], target: float | None) -> dict[str, list[str]]:
    """Rounds to reach the target if there is one, and results on IID data if they were requested."""
    columns: dict[str, list[str]] = {}
    if any(row["rounds_to_reach"] for row in rows):
        columns[f"rounds to {_goal(rows, target)}"] = [_text(row["rounds_to_reach"], Reach) for row in rows]
    if any(row["iid"] for row in rows):
        columns["IID gap closed"] = [_text(row["gap_closed"], Share) for row in rows]
        columns[f"{end_of(rows)} on IID data % (− {base_name(rows)})"] = [_on_iid(row["iid"]) for row in rows]
    return columns


def _goal(rows: Sequence[Mapping[str, Any]], target: float | None) -> str:
    if target is None and rows[0]["baseline"] != BASELINE:
        return f"{base_name(rows)}'s end"
    return target_words(target)


def _text(found: dict[str, Any] | None, kind: type[Reach] | type[Share]) -> str:
    return "-" if found is None else str(kind(**found))


def _on_iid(row: dict[str, Any] | None) -> str:
    """`83.10 ± 0.25 (+0.12)`"""
    if row is None:
        return "-"
    gain = row["against_baseline"]
    text = percent(row["accuracy_last10"]["mean"], row["accuracy_last10"]["std"])
    return text if gain is None else f"{text} ({gain['mean']:+.2f})"


def markdown(rows: Sequence[dict[str, Any]], target: float | None = None) -> str:
    return "\n".join(as_markdown(*_cells(rows, target))) + "\n"


def latex(rows: Sequence[dict[str, Any]], hashes: Hashes | None = None) -> str:
    """For a paper; with the hashes of the runs, a comment names them."""
    names, measures = [[name_of(row)] for row in rows], shown_measures(rows, end_of(rows))
    runs = [hashes[row["method"]] for row in rows] if hashes else ()
    return result_latex(["method"], names, rows, measures, differences(rows), base_name(rows), runs)


def _cells(rows: Sequence[dict[str, Any]], target: float | None) -> tuple[list[str], list[list[str]]]:
    more = more_columns(rows, target)
    measures = ["accuracy", "balanced_accuracy", "accuracy_last10", *held_out(rows)]
    known, judged = heads_of(end_of(rows)), differences(rows)
    apart = [f"{end_of(rows)} − {base_name(rows)}, points"] if any(judged) else []
    heads = ["method", *(known[measure] for measure in measures), *apart, *more, "seeds"]
    lines = []
    for i, (row, difference) in enumerate(zip(rows, judged, strict=True)):
        cells = [percent(row[m]["mean"], row[m]["std"]) for m in measures]
        cells += ["-" if difference is None else str(difference)] if apart else []
        cells += [column[i] for column in more.values()]
        lines.append([name_of(row), *cells, str(len(row["seeds"]))])
    return heads, lines


_REACH = {"rounds_to_reach": "rounds", "seeds_that_reached": "reached"}
_SHARE = {"iid_gap": "gap", "iid_gap_closed": "share"}


def csv_text(rows: Sequence[dict[str, Any]]) -> str:
    """A line per method: accuracies are fractions, differences points."""
    measures = [f"{m}_{part}" for m in MEASURES for part in ("mean", "std")]
    on_iid = ["iid_accuracy_last10_mean", *(f"iid_{name}" for name in DIFFERENCE_COLUMNS)]
    heads = ["method", "seeds", "diverged", *measures, *DIFFERENCE_COLUMNS, *_REACH, *_SHARE, *on_iid]
    lines = []
    for row in rows:
        iid = row["iid"] or {"accuracy_last10": {}, "against_baseline": None}
        values = [row[m][part] for m in MEASURES for part in ("mean", "std")]
        values += difference_values(row["against_baseline"])
        values += [*_values(row["rounds_to_reach"], _REACH), *_values(row["gap_closed"], _SHARE)]
        values += [iid["accuracy_last10"].get("mean"), *difference_values(iid["against_baseline"])]
        lines.append([name_of(row), len(row["seeds"]), row["diverged"], *values])
    return as_csv(heads, lines)


def _values(found: Mapping[str, Any] | None, names: Mapping[str, str]) -> list[Any]:
    return [None if found is None else found[name] for name in names.values()]

"""Runs for the report: read from the store once, checked, and thinned."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from fedskew.runs.store import Folder, StoreError
from fedskew.runs.summary import contents, is_finished, state_of, summarise

DRAWN = ("accuracy", "balanced_accuracy", "loss")
"""Measures with a curve."""
MOST_POINTS, MOST_COLUMNS, MOST_CLIENTS = 200, 50, 60


@dataclass(frozen=True)
class Entry:
    """One run at one of its lengths; it is `cut` if the run went further. `curve` is the accuracy of every evaluated
    round; `points` are those that are drawn, at most MOST_POINTS; `classes` those with accuracies per class. `measured`
    belongs to the model after the last record; `notes` name measurements that are left out.
    """

    hash: str
    result_version: int
    run: dict[str, Any]
    short: dict[str, str]
    summary: dict[str, Any]
    curve: list[tuple[int, float]]
    points: list[dict[str, Any]]
    classes: list[dict[str, Any]]
    card: dict[str, Any] | None
    sessions: list[dict[str, Any]]
    measured: dict[str, Any]
    notes: list[str]
    saved: int
    cut: bool = False

    @property
    def state(self) -> str:
        return state_of(self.summary["rounds"], self.run["rounds"], self.saved, diverged=self.summary["diverged"])

    @property
    def method(self) -> str:
        return str(self.short["algorithm"])

    @property
    def contents(self) -> dict[str, str]:
        """A digest of the user's own files by the field that names them."""
        return contents(self.short)


@dataclass(frozen=True)
class LeftOut:
    """A run that cannot be read, and why."""

    hash: str
    problem: str


def read_entries(folders: Iterable[Folder]) -> tuple[list[Entry], list[LeftOut]]:
    """What can be read, a run once for each of its lengths, and what cannot."""
    entries, left_out = list[Entry](), []
    for folder in folders:
        try:
            entries += _lengths_of(folder)
        except StoreError as error:
            left_out.append(LeftOut(folder.path.name, str(error)))
    return entries, left_out


def part_held_out(entries: Sequence[Entry]) -> tuple[list[Entry], list[Entry]]:
    """Runs that train on all examples, and those that hold some out, as tries of `tune` do. Where no run trains on all,
    none is set apart."""
    whole = [entry for entry in entries if not entry.run.get("validation")]
    apart = [entry for entry in entries if entry.run.get("validation")]
    return (whole, apart) if whole else (apart, [])


def held_out_words(apart: Sequence[Entry]) -> str:
    """That such runs are left out, and how to see them; nothing if there are none."""
    if not apart:
        return ""
    count = len({entry.hash for entry in apart})
    runs, them = ("1 run that holds", "it") if count == 1 else (f"{count} runs that hold", "them")
    first, *more = sorted({entry.run["validation"] for entry in apart})
    also = f" (or {', '.join(map(str, more))})" if more else ""
    return (
        f"{runs} out training examples, as tries of fedskew tune do, {'is' if count == 1 else 'are'} left out; "
        f"`fedskew report --where validation={first}`{also} shows {them}"
    )


def _lengths_of(folder: Folder) -> list[Entry]:
    """The run as far as it goes, and its first rounds where it was also asked for fewer."""
    records, saved = folder.records(), folder.saved()
    whole = folder.aim(len(records))
    fewer = [n for n in folder.lengths() if n < whole and is_finished(records, n, saved)]
    return [_entry(folder, records, whole), *(_entry(folder, records[:n], n, cut=True) for n in fewer)]


def _entry(folder: Folder, records: Sequence[dict[str, Any]], rounds: int, *, cut: bool = False) -> Entry:
    """A run in which the store has checked every number."""
    about, card = folder.about(), folder.card()
    run = {**about["run"], "rounds": rounds}
    evaluated = [record for record in records if record["accuracy"] is not None]
    spread = max(rounds, len(records))
    with_classes = [record for record in evaluated if record["per_class_accuracy"]]
    diagnosis, notes = _diagnosis(folder, len(records), rounds)
    return Entry(
        hash=folder.path.name,
        result_version=about["result_version"],
        run=run,
        short=about["short"],
        summary=summarise(run, records, card),
        curve=[(int(record["round"]), float(record["accuracy"])) for record in evaluated],
        points=[{name: r[name] for name in ("round", *DRAWN)} for r in thin(evaluated, spread, MOST_POINTS)],
        classes=[
            {"round": record["round"], "values": record["per_class_accuracy"]}
            for record in thin(with_classes, spread, MOST_COLUMNS)
        ],
        card=None if card is None else _thin_card(card),
        sessions=folder.sessions(),
        measured={**folder.measured(len(records)), "diagnosis": diagnosis},
        notes=[] if cut else [*folder.damaged_extras(), *notes],
        saved=folder.saved(),
        cut=cut,
    )


def _diagnosis(folder: Folder, done: int, rounds: int) -> tuple[dict[str, Any], list[str]]:
    """The diagnosis of the model after the last record; one of an earlier round is ignored, with a note."""
    found = folder.diagnosis()
    if found is None or found.get("round") == done:
        return found or {}, []
    next_one = f"round {done}" if done >= rounds else "the last checkpoint"
    return {}, [
        f"the diagnosis was measured at round {found.get('round')}; "
        f"`fedskew diagnose {folder.path.name[:8]}` measures {next_one}"
    ]


def thin(records: Sequence[dict[str, Any]], rounds: int, most: int) -> list[dict[str, Any]]:
    """The last record of each of `most` equal spans of rounds: runs of one length keep the same rounds. All of them
    where there are no more."""
    if len(records) <= most:
        return list(records)
    kept = {(record["round"] - 1) * most // rounds: record for record in records}
    return list(kept.values())


def _thin_card(card: dict[str, Any]) -> dict[str, Any]:
    """Only the first clients; `clients` keeps the total number."""
    kept = {name: card[name] for name in ("hash", "clients", "samples", "skew")}
    return {**kept, "counts": card["counts"][:MOST_CLIENTS]}

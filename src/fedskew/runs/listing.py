"""The runs of a store as rows: each run's fields and progress, and how the runs differ. Never needs torch."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from fedskew.core import spec
from fedskew.core.checks import check_choice
from fedskew.runs.store import Folder, StoreError
from fedskew.runs.summary import contents, state_of, summarise
from fedskew.runs.versions import DECIDING_NOTHING

STATES = ("done", "unfinished", "diverged", "unreadable")
_SORTED_DOWN = ("accuracy", "held_out", "date")
_OWN_COLUMN = ("algorithm", "dataset", "partition", "clients", "rounds", "seed")
_SPECS = ("algorithm", "dataset", "partition", "model", "lr_schedule")
_CONTENT = "_content"


@dataclass(frozen=True)
class Listed:
    """A run in a row. `fields` are those of the run with specs as people write them, the arguments of its method, and
    digests of the user's own files (`model_content`); `whole` has its specs with every default. A run that cannot be
    read has a `problem` and no fields."""

    hash: str
    state: str
    fields: dict[str, Any]
    whole: dict[str, Any]
    title: str = ""
    progress: str = ""
    accuracy: float | None = None
    held_out: float | None = None
    written: datetime | None = None
    problem: str | None = None

    def as_dict(self) -> dict[str, Any]:
        """JSON-ready."""
        shown: dict[str, Any] = {"hash": self.hash, "state": self.state, "progress": self.progress}
        if self.problem is not None:
            return {**shown, "problem": self.problem}
        written = None if self.written is None else self.written.isoformat(timespec="seconds")
        named = {"algorithm": self.fields["algorithm"], "title": self.title, "seed": self.fields["seed"]}
        measured = {"accuracy": self.accuracy, "held_out": self.held_out}
        return {**shown, **named, **measured, "written": written, "fields": self.fields}


def listed(folder: Folder) -> Listed:
    try:
        about, records, saved = folder.about(), folder.records(), folder.saved()
        done = len(records)
        rounds, written = folder.aim(done), folder.written()
    except StoreError as error:
        return Listed(folder.path.name, "unreadable", {}, {}, problem=str(error))
    run, short = about["run"], about["short"]
    summary = summarise(run, records, None)
    named = {name: short[name] for name in ("dataset", "partition", "model", "algorithm")}
    named |= {f"{name}{_CONTENT}": digest for name, digest in contents(short).items()}
    return Listed(
        hash=folder.path.name,
        state=state_of(done, rounds, saved, diverged=summary["diverged"]),
        fields={**arguments(run["algorithm"]), **run, **named},
        whole=run,
        title=short["title"],
        progress=f"{done}/{rounds}",
        accuracy=summary["accuracy"],
        held_out=summary["validation_accuracy"],
        written=None if written is None else datetime.fromtimestamp(written, UTC),
    )


def arguments(algorithm: str) -> dict[str, Any]:
    """All arguments of a method by name; if two parts of a combination share a name, the first part's."""
    found: dict[str, Any] = {}
    for part in algorithm.split("+"):
        found = {**spec.parse(part)[2], **found}
    return found


def differing(rows: Iterable[Listed]) -> list[str]:
    """Settings and method arguments that have several values among the rows; digests, where what is called the same has
    several."""
    readable = [row for row in rows if row.problem is None]
    names = dict.fromkeys(name for row in readable for name in row.fields)
    found = []
    for name in names.keys() - {*_OWN_COLUMN, *DECIDING_NOTHING}:
        values: dict[str, set[str]] = {}
        for row in readable:
            if name in row.fields:
                values.setdefault(_called(row, name), set()).add(spec.show(row.fields[name]))
        if any(len(several) > 1 for several in values.values()):
            found.append(name)
    return [name for name in names if name in found]


def _called(row: Listed, name: str) -> str:
    """What a digest is of, as people name it; nothing for any other field."""
    if not name.endswith(_CONTENT):
        return ""
    text = str(row.fields[name.removesuffix(_CONTENT)])
    return spec.family(text) if name.startswith(("algorithm", "model")) else text


def select(rows: Sequence[Listed], where: Sequence[str] = (), state: str | None = None) -> list[Listed]:
    """The rows in a state that satisfy every condition such as `lr=0.1`; `algorithm=fedlc` holds for any tau."""
    if state is not None:
        check_choice("state", state, STATES)
    kept = [row for row in rows if state in (None, row.state)]
    for text in where:
        name, equals, wanted = text.partition("=")
        name = name.strip().replace("-", "_")
        if not equals or not name:
            raise ValueError(f"where is {text!r}; allowed: NAME=VALUE, for example lr=0.1 or algorithm=fedlc")
        _check_name("where", name, rows)
        kept = [row for row in kept if _holds(row, name, wanted.strip())]
    return kept


def in_order(rows: Sequence[Listed], by: str | None) -> list[Listed]:
    """Sorted: accuracies from the highest, dates from the newest, fields from the lowest; rows without a value come
    last. By default, seeds of a method, methods of a setting and settings of a federation stay together."""
    if by is None:
        names = [*differing(rows), "algorithm", "seed"]
        ranks = {row.hash: [(name in row.fields, _rank(row.fields.get(name))) for name in names] for row in rows}
        return sorted(rows, key=lambda row: (row.title, ranks[row.hash]))
    name = by.replace("-", "_")
    if name not in _SORTED_DOWN:
        _check_name("sort", name, rows, _SORTED_DOWN)
    known = [(value, row) for row in rows if (value := _value(row, name)) is not None]
    known.sort(key=lambda pair: _rank(pair[0]), reverse=name in _SORTED_DOWN)
    return [*(row for _, row in known), *(row for row in rows if _value(row, name) is None)]


def _value(row: Listed, name: str) -> Any:
    if name == "date":
        return None if row.written is None else row.written.timestamp()
    if name == "accuracy" and row.held_out is not None:
        return None  # tries are not to be ranked on the test set
    return getattr(row, name) if name in _SORTED_DOWN else row.fields.get(name)


def _rank(value: Any) -> tuple[bool, Any]:
    """Numbers before words."""
    return (False, value) if isinstance(value, int | float) else (True, str(value))


def _holds(row: Listed, name: str, wanted: str) -> bool:
    if name not in row.fields:
        return False
    value, whole = row.fields[name], row.whole.get(name)
    if isinstance(value, int | float) and not isinstance(value, bool):
        try:
            return float(wanted) == value
        except ValueError:
            return False
    texts = {spec.show(value), spec.show(whole)}
    return wanted in texts | ({spec.family(text) for text in texts} if name in _SPECS else set())


def _check_name(option: str, name: str, rows: Sequence[Listed], more: Sequence[str] = ()) -> None:
    known: Mapping[str, None] = dict.fromkeys([*more, *(name for row in rows for name in sorted(row.fields))])
    if rows and name not in known:
        raise ValueError(f"{option} names {name!r}; allowed: {', '.join(known)}")

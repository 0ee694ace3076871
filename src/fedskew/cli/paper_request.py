"""What a command about the paper asks for: its items, choices and known results."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fedskew.cli.terminal.progress import note
from fedskew.runs.summary import counted

if TYPE_CHECKING:
    from fedskew.cli.documents import PaperItem
    from fedskew.paper.choice import Choice
    from fedskew.runs.results import Results
    from fedskew.runs.store import Store


RESULTS = Path("results/paper")


def named_item(name: str) -> Any:
    from fedskew.core import spec
    from fedskew.paper import ITEMS

    if name not in ITEMS:
        raise ValueError(spec.unknown("table or figure", name, ITEMS))
    return ITEMS[name]


def every_item(cells: Sequence[str] | None, methods: Sequence[str] | None) -> Any:
    from fedskew.paper import Everything

    if cells or methods:
        raise ValueError("--cells and --methods are for one table or figure; they are not allowed with all")
    return Everything()


def extended(item: str, within: float | None) -> Any:
    """What the tables lack, or one of them."""
    from fedskew.core.checks import check_number
    from fedskew.paper import TABLES
    from fedskew.paper.extended import Extended

    if within is not None:
        check_number("within", within, 0)
    if item != "all" and item not in TABLES:
        raise ValueError(f"item is {item!r}; allowed with --extend: {', '.join(TABLES)}, all")
    return Extended([table for name, table in TABLES.items() if item in (name, "all")], within)


def chosen(
    cells: Sequence[str] | None = None,
    methods: Sequence[str] | None = None,
    seeds: int = 5,
    rounds: int | None = None,
    profile: str = "stated",
    device: str = "cpu",
    precision: str | None = None,
    data_dir: str | None = None,
    stand_in: bool = False,
) -> "Choice":
    from fedskew.paper.choice import Choice
    from fedskew.paper.profiles import find_profile

    where = {"device": device, "precision": precision, "data_dir": data_dir}
    return Choice(
        tuple(cells or ()),
        tuple(methods or ()),
        seeds,
        rounds,
        find_profile(profile),
        {name: value for name, value in where.items() if value is not None},
        stand_in,
    )


def known_results(store: "Store", published: Path) -> "Results":
    from fedskew.runs.results import Results

    if published != RESULTS and not published.is_dir():
        raise ValueError(f"there is no folder of results {published}")
    results = Results(store, published)
    for problem in results.problems:
        note(f"left out: {problem}")
    return results


def listed(item: Any, choices: "Sequence[Choice]", results: "Results", speeds: Any) -> "Iterator[PaperItem]":
    """An item under the first choice, and under each other one that shows runs of its own: how many are done, and the
    time of the others as far as it is known."""
    told: set[tuple[str, int]] = set()
    for choice in choices:
        row, found = max((_listed(item, one, results, speeds) for one in _arithmetics(choice, results)), key=_known)
        if choice is choices[0] or (found - told and row["measured"] is not False):
            yield row
        told |= found


def _known(listing: "tuple[PaperItem, set[tuple[str, int]]]") -> int:
    return listing[0]["done"] + listing[0]["shortened"]


def _arithmetics(choice: "Choice", results: "Results") -> "list[Choice]":
    """A choice in each arithmetic that it may mean, its default first."""
    from fedskew.runs.run import Run

    default = Run.model_fields["precision"].default
    asked = choice.fields.get("precision")
    names = [asked] if asked else dict.fromkeys([default, *results.precisions])
    return [replace(choice, fields={**choice.fields, "precision": name}) for name in names]


def _listed(item: Any, choice: "Choice", results: "Results", speeds: Any) -> "tuple[PaperItem, set[tuple[str, int]]]":
    """An item in one arithmetic, and the hashes and lengths of the results that it has."""
    results = results.only(choice.fields["precision"])
    runs = list(dict.fromkeys(item.runs(choice, results)))
    found = {run: [r for r in results.answering(run.model_dump()) if r.seed == run.seed] for run in runs}
    done = {run for run in runs if any(r.rounds == run.rounds for r in found[run])}
    left = [speeds.seconds(run) for run in runs if run not in done]
    row: PaperItem = {
        "name": item.name,
        "title": item.title,
        "profile": choice.profile.name,
        "precision": choice.fields["precision"],
        "runs": len(runs),
        "done": len(done),
        "shortened": sum(1 for run in runs if found[run] and run not in done),
        "measured": None if not hasattr(item, "measure") else bool(item.rows(results, choice)),
        "seconds_left": sum(seconds for seconds in left if seconds is not None),
        "of_unknown_time": sum(seconds is None for seconds in left),
    }
    return row, {(result.hash, result.rounds) for group in found.values() for result in group}


def say_where_else(item: Any, choice: "Choice", results: "Results", rows: Sequence[dict[str, Any]]) -> None:
    """Note which other profiles have entries that these rows lack."""
    from fedskew.paper.profiles import PROFILES

    here = _entries(rows)
    for name, profile in PROFILES.items():
        if more := len(_entries(item.rows(results, replace(choice, profile=profile))) - here):
            note(f"{counted(more, 'more result')} with --profile {name}")


def _entries(rows: Sequence[dict[str, Any]]) -> set[tuple[Any, Any]]:
    """What was run: the cells and methods of a table, or of a figure."""
    return {(row.get("cell"), row.get("method")) for row in rows if row.get("ours", row)}


def say_no_folder(published: Path) -> None:
    if not published.is_dir():
        note(f"there is no {published} here; published results are in a clone of the repository: --results names them")

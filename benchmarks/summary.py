"""Tables of docs/performance.md that take more than one file, or one without a list of figures: `make reproduction`."""

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

from benchmarks import gpu_tables, tables
from benchmarks.gpu_tables import FLOORS, TITLES, day
from benchmarks.tables import read, shown
from fedskew.report.text_tables import as_markdown

HEAD = "| a round of | fedskew | others | others / fedskew | floor | fedskew / floor |"
SMALL = "logistic regression, 100 of 1,000 clients of 50 examples"
IMAGES = "20 clients of 2,500 images, one GPU"


@dataclass(frozen=True)
class Row:
    """A comparison within one run of a benchmark; what it has no floor or no peer for stays empty."""

    work: str
    ours: tuple[str, float]
    other: tuple[str, float] | None = None
    floor: tuple[str, float] | None = None

    def __str__(self) -> str:
        name, ms = self.ours
        others = ("", "") if self.other is None else (_named(*self.other), f"{self.other[1] / ms:.3g}x")
        floor = ("", "") if self.floor is None else (_named(*self.floor), f"{ms / self.floor[1]:.2g}x")
        return f"| {' | '.join((self.work, _named(f'`{name}`', ms), *others, *floor))} |"


def summary(results: Path) -> str:
    """The table, and the goals that are missed."""
    files = {name: read(results, name) for name in ("peers", "core", "convnet", "gpu", "cohorts")}
    rows = [*_small(files), *_convolutional(files["convnet"]), *_on_gpu(files["gpu"]), *_together(files["cohorts"])]
    return "\n".join([HEAD, "| --- | --- | --- | --- | --- | --- |", *map(str, rows), "", goals(results)])


def goals(results: Path) -> str:
    """How many goals are met, and which are not."""
    (many, on_cpu), (more, on_gpu) = tables.missed(results, "core", "convnet", "peers"), gpu_tables.missed(results)
    over = [*on_cpu, *on_gpu]
    told = f"Of {many + more} goals, {many + more - len(over)} are met. Missed (on the CPU if nothing else is said):"
    return "\n".join([told, "", *as_markdown(["", "measured", "goal"], over)])


def sources(results: Path) -> str:
    """When and where each file was measured, and how much of the processor other programs used meanwhile."""
    rows = []
    for name, what in _FILES.items():
        file = read(results, name)
        where = f"{file['cpu']}, {file['cores']} cores" if "cpu" in file else file["device"]
        torch = file["versions"]["torch"] if "versions" in file else file["torch"]
        busy = f"{100 * file['used elsewhere']:.1f} %" if "used elsewhere" in file else ""
        rows.append(f"| {what} | `{name}` | {_at(file)} | {where} | {file.get('threads', '')} | {torch} | {busy} |")
    head = "| | `results/benchmark_*.json` | measured | on | threads | torch | used by other programs |"
    return "\n".join([head, "| --- | --- | --- | --- | --- | --- | --- |", *rows])


_FILES = {
    "core": "logistic regression, methods, seeds, import",
    "convnet": "convolutional clients on the CPU",
    "models": "model size",
    "peers": "Flower, pfl, fluke and ours beside them",
    "cohorts": "all clients in one launch, and a client per stream",
    "gpu": "rounds and methods on a GPU",
}


def _small(files: dict[str, Any]) -> Iterable[Row]:
    peers, core = _medians(files["peers"]), _medians(files["core"])
    versions = dict(v.split("==") for held in files["peers"]["environments"].values() for v in held)
    ours = "stacked", peers["fedskew, stacked"]
    yield Row(SMALL, ours, (f"pfl {versions['pfl']}", peers["pfl"]))
    yield Row("the same", ours, (f"Flower {versions['flwr']}, simulation", peers["flwr, simulation"]))
    if "fluke" in peers:
        yield Row("the same", ours, (f"fluke {versions['fluke-fl']}", peers["fluke"]))
    ours = "stacked", core["stacked"]
    usual, tuned = core["by hand, plain gradient"], core["by hand, tuned gradient"]
    autograd = "by hand, autograd", core["by hand, autograd"]
    yield Row("the same, another run", ours, autograd, ("gradient on paper, usual layout", usual))
    yield Row("the same", ours, floor=("gradient on paper, tuned layout", tuned))


def _convolutional(file: dict[str, Any]) -> Iterable[Row]:
    found = _medians(file)
    bare = "one model, all images", found["bare loop"]
    yield Row("McMahan's CNN, 4 clients of 512 images, CPU", ("threaded", found["threaded"]), bare)


def _on_gpu(file: dict[str, Any]) -> Iterable[Row]:
    rows = [row for row in (*file["rounds"], *file["pfl"]["rounds"]) if row["precision"] == "bf16"]
    found = {(row["what"], row["model"]): row["ms"] for row in rows}
    pfl = f"pfl {file['pfl']['versions']['pfl']} on {day(file['pfl'])}"
    for model, name, other in (
        ("mcmahan", "pfl", pfl),
        ("cnn", "plain loop over clients", "a plain loop over clients"),
    ):
        ours = "stacked", found["fedskew stacked", model]
        floor = "memory, estimated", FLOORS[model]
        yield Row(f"{TITLES[model]}, {IMAGES}, bf16", ours, (other, found[name, model]), floor)


def _together(file: dict[str, Any]) -> Iterable[Row]:
    found = {row["model"]: row["ms"] for row in file["rounds"] if row["partition"] == "iid"}
    for model, ms in found.items():
        work = f"{TITLES[model]}, {IMAGES}, bf16, momentum and crops"
        yield Row(work, ("stacked", ms["stacked"]), ("`graphed`", ms["graphed"]), ("memory, estimated", FLOORS[model]))


def _medians(file: dict[str, Any]) -> dict[str, float]:
    return {row["name"]: row["value"]["median"] for row in file["figures"] if row["unit"] == "ms"}


def _named(name: str, ms: float) -> str:
    return f"{name}: {shown(ms)}"


def _at(file: dict[str, Any]) -> str:
    return datetime.fromisoformat(file["date"]).strftime("%-d %B %Y, %H:%M UTC")

"""Tables of docs/performance.md from results/, which `make reproduction` writes: the one that opens it, what recording
steps is worth, and what launching all clients at once is worth."""

import json
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

FLOORS = {"mcmahan": 10.0, "cnn": 21.0}
"""Milliseconds that the memory traffic of a round on the GPU needs at 4.3 TB/s: an estimate, no measurement."""
TITLES = {"mcmahan": "McMahan's CNN", "cnn": "the paper's CNN"}
HEAD = "| a round of | fedskew | others | of ours | floor | ours of it |"
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
    """The table and a line on where each part of it comes from."""
    files = {name: json.loads((results / f"benchmark_{name}.json").read_text()) for name in _FILES}
    rows = [*_small(files), *_convolutional(files["convnet"]), *_on_gpu(files["gpu"]), *_together(files["cohorts"])]
    return "\n".join([HEAD, "| --- | --- | --- | --- | --- | --- |", *map(str, rows), "", *_sources(files)])


_FILES = {
    "peers": "Flower, pfl, fluke and ours beside them",
    "core": "by hand and ours beside it",
    "convnet": "convolutional clients on the CPU",
    "gpu": "the GPU",
    "cohorts": "all clients in one launch",
}


def recorded_steps(results: Path) -> str:
    """Rounds with and without recorded steps."""
    file = json.loads((results / "benchmark_recorded.json").read_text())
    found, rows = _medians(file), []
    for name in dict.fromkeys(name.partition(",")[0] for name in found):
        plain, replayed = found[f"{name}, as it is"], found[f"{name}, recorded"]
        fedavg = "" if "seed" in name or name == "fedavg" else f"{replayed / found['fedavg, recorded']:.2f}x"
        rows.append(f"| {name} | {_ms(plain)} | {_ms(replayed)} | {plain / replayed:.2f}x | {fedavg} |")
    head = "| | not recorded | recorded | gain | recorded, against FedAvg |", "| --- | --- | --- | --- | --- |"
    busy = f"Other programs used {100 * file['used elsewhere']:.0f} % of the processor meanwhile ({_at(file)})."
    return "\n".join([*head, *rows, "", busy])


def cohorts(results: Path) -> str:
    """Rounds of all clients in one launch, and of a client per stream."""
    file = json.loads((results / "benchmark_cohorts.json").read_text())
    rows = [
        f"| {TITLES[row['model']]}, {row['partition']} | {_ms(row['ms']['stacked'])} | {_ms(row['ms']['graphed'])} | "
        f"{row['ms']['graphed'] / row['ms']['stacked']:.2f}x | {row['ms']['stacked'] / FLOORS[row['model']]:.1f}x | "
        f"{row['apart']['stacked']:.3f}, {row['apart']['graphed']:.3f} |"
        for row in file["rounds"]
    ]
    head = "| | `stacked` | `graphed` | gain | of the floor | away from `serial` in fp32 |"
    cold = file["rounds"][0]["first_round_s"]  # later ones find kernels of the same layers
    warm = f"The first round took {cold['stacked']:.1f} s, that of `graphed` {cold['graphed']:.1f} s, caches empty."
    return "\n".join(
        [head, "| --- | --- | --- | --- | --- | --- |", *rows, "", f"{file['device']}, {_at(file)}. {warm}"]
    )


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
    pfl = f"pfl {file['pfl']['versions']['pfl']}"
    for model, name, other in (
        ("mcmahan", "pfl", pfl),
        ("cnn", "plain loop over clients", "a plain loop over clients"),
    ):
        ours = "graphed", found["fedskew graphed", model]
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
    return f"{name}: {_ms(ms)}"


def _ms(ms: float) -> str:
    return f"{ms:,.0f} ms" if ms >= 100 else f"{ms:.3g} ms"


def _at(file: dict[str, Any]) -> str:
    return datetime.fromisoformat(file["date"]).strftime("%-d %B %Y, %H:%M UTC")


def _sources(files: dict[str, Any]) -> Iterable[str]:
    for name, what in _FILES.items():
        file = files[name]
        where = (
            file["device"] if "device" in file else f"{file['cpu']}, {file['cores']} cores, {file['threads']} threads"
        )
        elsewhere = file.get("used elsewhere")
        busy = "" if elsewhere is None else f", {100 * elsewhere:.1f} % of the processor used by other programs"
        yield f"- {what[0].upper()}{what[1:]}: `results/benchmark_{name}.json`, {_at(file)}, {where}{busy}."

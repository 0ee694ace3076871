"""Tables of docs/performance.md, each from one file in results/. `make reproduction` writes them."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.data import LIMITS
from fedskew.report.text_tables import as_markdown

Row = dict[str, Any]


def read(results: Path, name: str) -> dict[str, Any]:
    file: dict[str, Any] = json.loads((results / f"benchmark_{name}.json").read_text())
    return file


def shown(number: float, unit: str = "ms") -> str:
    """A figure in its unit, as short as it stays useful."""
    if not unit:
        return f"{number:.5g}"
    digits = f"{number:,.0f}" if number >= 100 else f"{number:.2f}" if unit == "x" and number < 10 else f"{number:.3g}"
    return f"{digits}x" if unit == "x" else f"{digits} {unit}"


def missed(results: Path, *names: str) -> tuple[int, list[tuple[str, str, str]]]:
    """How many goals files have, and those that are missed: what, measured, goal."""
    rows = [row for name in names for row in read(results, name)["figures"] if row["limit"] is not None]
    over = [row for row in rows if not row["kept"]]
    return len(rows), [
        (row["name"], _cell(row), f"{at_most(row['limit'], row['unit'])}{by(row['value']['median'], row['limit'])}")
        for row in over
    ]


def by(value: float, limit: float) -> str:
    """How much a goal is missed by."""
    return f", missed by {100 * (value / limit - 1):.2g} %"


def loading(results: Path) -> str:
    """How long data sets take to load; what has no peak of memory was not a load."""
    lines = []
    for name, row in read(results, "data").items():
        kept = all(row[key] <= limit for key, limit in LIMITS[name].items())
        limits = ", ".join(filter(None, _loaded(LIMITS[name])))
        lines.append([_LOADED.get(name, name), *_loaded(row), f"at most {limits}: {'met' if kept else '**missed**'}"])
    return "\n".join(as_markdown(["", "time", "peak memory above the start", "goal"], lines))


def _loaded(row: Mapping[str, float]) -> list[str]:
    seconds = row["seconds"]
    time = shown(seconds, "s") if seconds >= 0.1 else shown(1e3 * seconds, "ms")
    return [time, shown(row["peak_mb"], "MB") if "peak_mb" in row else ""]


@dataclass(frozen=True)
class Table:
    """A row for each name, and in each column the figure called after it. What is not in the file stays empty."""

    file: str
    rows: Mapping[str, str]
    """What a row is called on the page, by its name in the file."""
    columns: Mapping[str, str]
    """What a column's figures are called in the file, `{}` standing for the row's name."""
    inverse: str = ""
    """Figures that have a limit for the inverse of what the table has."""

    def __call__(self, results: Path) -> str:
        figures = read(results, self.file)["figures"]
        found = {key: row for row in figures for key in (row["name"], f"{row['part']}: {row['name']}")}
        lines = []
        for name, title in self.rows.items():
            row = [found.get(called.format(name)) for called in self.columns.values()]
            if not any(row):
                raise ValueError(f"benchmark_{self.file}.json has no figure of {name!r}")
            inverse = found.get(self.inverse.format(name))
            goal = _goal(inverse, inverted=True) if inverse else "".join(map(_goal, filter(None, row)))
            lines.append([title, *(_cell(figure) if figure else "" for figure in row), goal])
        width = len(self.columns) + (2 if any(line[-1] for line in lines) else 1)
        return "\n".join(as_markdown(["", *self.columns, "goal"][:width], [line[:width] for line in lines]))


def at_most(limit: float, unit: str) -> str:
    return f"at most {limit:g}{'' if unit == 'x' else ' '}{unit}"


def _goal(row: Row, inverted: bool = False) -> str:
    limit, unit = row["limit"], row["unit"]
    if limit is None:
        return ""
    said = f"at least {1 / limit:.3g}x" if inverted else at_most(limit, unit)
    return f"{said}: {'met' if row['kept'] else '**missed**'}"


def _cell(row: Row) -> str:
    """The median; a ratio and what has a goal also with its quartiles."""
    unit = row["unit"]
    median, low, high = (shown(row["value"][name], unit) for name in ("median", "low", "high"))
    if low == high or (unit != "x" and row["limit"] is None):
        return median
    return f"{median} ({low.removesuffix(unit).strip()} to {high.removesuffix(unit).strip()})"


_LOADED = {
    "cifar10": "CIFAR-10 from its binary files",
    "svhn": "SVHN, train and test",
    "imagenet12, first time": "imagenet12, 6,600 JPEGs of 64x64, first time",
}
METHODS = {"fedavg": "FedAvg", "fedlc": "FedLC", "fedrs": "FedRS", "fedprox": "FedProx", "scaffold": "SCAFFOLD"}
_SIZES = [f"100 of {clients} clients" for clients in ("100", "1,000", "10,000", "100,000")]

TABLES = {
    "round": Table(
        "core",
        {
            "stacked": "`stacked`",
            "by hand, autograd": "by hand, autograd",
            "by hand, plain gradient": "by hand, gradient on paper, usual layout",
            "by hand, tuned gradient": "by hand, gradient on paper, tuned layout",
            "client by client": "one client after another, `torch.optim.SGD`",
            "serial": "`serial`",
        },
        {
            "a round": "{}",
            "`stacked` against it": "stacked / {}",
            "one client after another against it": "client by client / {}",
        },
    ),
    "growth": Table(
        "core",
        {name: name for name in [*_SIZES, "10 of 10,000 clients", "1,000 of 10,000 clients"]},
        {"a round": "{}", "data": "{}: data", "peak memory": "{}: peak memory"},
    ),
    "population": Table(
        "core",
        {
            "of 100,000 clients / of 1,000 clients": "a round of 100,000 clients / of 1,000",
            "peak memory above a small run / data": "peak memory of 100,000 clients above a small run / data",
            "scaffold's states / (clients seen x model)": "SCAFFOLD's states / (clients seen x model)",
        },
        {"measured": "{}"},
    ),
    "model size": Table(
        "models",
        {name: name for name in ("578 parameters", "5,974 parameters", "60,005 parameters", "599,960 parameters")},
        {
            f"`{name}`": f"processor time of a round, {{}}: {name}"
            for name in ("stacked", "serial", "threaded", "stacked / serial", "stacked / threaded")
        },
    ),
    "methods against FedAvg": Table("core", METHODS, {"a round": "{}", "against FedAvg": "{} / fedavg"}),
    "five seeds": Table(
        "core",
        {
            "five seeds together": "five seeds together",
            "the slowest seed alone": "the slowest of the five alone",
            "a seed alone, on average": "one seed alone, on average",
            "most steps of a client: the slowest seed / a seed on average": "steps of the slowest / average seed",
        },
        {"measured": "{}", "five together against it": "five seeds together / {}"},
    ),
    "convolutional clients": Table(
        "convnet",
        {
            "bare loop": "bare loop",
            "threaded": "`threaded`, fp32",
            "threaded, memory given back": "`threaded`, fp32, memory given back",
            "serial": "`serial`, fp32",
            "stacked": "`stacked`, fp32",
            "threaded, bf16": "`threaded`, bf16",
        },
        {
            "a round": "{}",
            "processor time": "{}: processor time",
            "of it the system's": "{}: of it the system's",
            "against the bare loop": "{} / bare loop",
        },
    ),
    "imports": Table(
        "core",
        {
            "fedskew beyond torch": "`from fedskew import Run, simulate` beyond `import torch`",
            "import torch": "`import torch`",
            "fedskew --help": "`fedskew --help`",
            "fedskew --help imports torch": "`fedskew --help` imports torch",
        },
        {"measured": "{}"},
    ),
    "peers": Table(
        "peers",
        {
            "fedskew, stacked": "fedskew, `stacked`",
            "pfl": "pfl",
            "flwr, simulation": "Flower's simulation",
            "fluke": "fluke",
        },
        {
            "a round": "{}",
            "against ours": "{} / fedskew, stacked",
            "mean loss before": "loss before the first round",
            "after 12 rounds": "loss after 12 rounds: {}",
        },
        inverse="fedskew, stacked / {}",
    ),
}

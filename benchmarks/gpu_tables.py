"""Tables of docs/performance.md on one GPU, from results/benchmark_gpu.json and results/benchmark_cohorts.json:
`make reproduction`."""

from collections.abc import Iterable, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any

from benchmarks.tables import METHODS, at_most, by, read, shown
from fedskew.report.text_tables import as_markdown

TITLES = {"mcmahan": "McMahan's CNN", "cnn": "the paper's CNN"}
FLOORS = {"mcmahan": 10.0, "cnn": 21.0}
"""Milliseconds that the memory traffic of a round needs at 4.3 TB/s: an estimate, no measurement."""
_GOALS = {"mcmahan": 25.0, "cnn": 45.0, "logistic": 3.0, "resnet18": 200.0}
_OF_METHODS = {"fedlc": 1.05, "fedrs": 1.05, "fedprox": 1.05, "scaffold": 1.15}
_TIMES, _FIRST_ROUND, _MEMORY = 20.0, 10.0, 8.0

Found = dict[str, Any]


def rounds(results: Path) -> str:
    """A round of each network with SGD and with momentum and crops, and others."""
    gpu, together = read(results, "gpu"), read(results, "cohorts")
    now = _ms(gpu["rounds"])
    iid, service = ({row["model"]: row["ms"] for row in _iid(each)} for each in (together, together[_SERVICE]))
    pfl = {row["precision"]: row["ms"] for row in gpu["pfl"]["rounds"]}
    other = f"pfl {gpu['pfl']['versions']['pfl']}, {{}}, {day(gpu['pfl'])}".format

    def both(what: str, precision: str = "bf16") -> list[float]:
        return [now[what, model, precision] for model in TITLES]

    def more(engine: str, found: Found) -> list[float]:
        return [found[model][engine] for model in TITLES]

    ours, crops, loop = both("fedskew stacked"), more("stacked", iid), both("plain loop over clients")
    slow, memory = both("fedskew graphed", "tf32"), [row["peak_gb"] for row in gpu["rounds"] if _ours(row)]
    lines = [
        ("`stacked`, bf16", _cells(ours), _both_goals(ours)),
        ("the same with momentum 0.9, crops and mirror images", _cells(crops), _both_goals(crops)),
        ("`graphed` beside it, bf16, momentum, crops and mirror images", _cells(more("graphed", iid)), ""),
        ("the same under the multi-process service", _cells(more("graphed", service)), ""),
        ("`stacked` beside it under the service", _cells(more("stacked", service)), ""),
        ("`graphed`, tf32", _cells(slow), ""),
        ("a plain loop over clients, bf16 autocast", _cells(loop), ""),
        ("a bare centralised loop over the same batches, bf16 autocast", _cells(both("bare centralised loop")), ""),
        (other("bf16 autocast"), [shown(pfl["bf16"]), ""], ""),
        (other("tf32"), [shown(pfl["tf32"]), ""], ""),
        (
            "the plain loop / `stacked`",
            [shown(a / b, "x") for a, b in zip(loop, ours, strict=True)],
            _times(loop, ours),
        ),
        ("pfl / `stacked`, both in bf16", [shown(pfl["bf16"] / ours[0], "x"), ""], _times([pfl["bf16"]], ours[:1])),
        ("pfl / `graphed`, both in tf32", [shown(pfl["tf32"] / slow[0], "x"), ""], ""),
        ("peak memory of `stacked`, bf16", [f"{gb:.1f} GB" for gb in memory], _goal(max(memory), _MEMORY, "GB")),
    ]
    return _table(["", *TITLES.values(), "goal"], ([name, *cells, goal] for name, cells, goal in lines))


def cohorts(results: Path) -> str:
    """Rounds of all clients in one launch and of a client per stream, taking turns."""
    file = read(results, "cohorts")
    rows = []
    for row in file["rounds"]:
        ours, graphed, apart = row["ms"]["stacked"], row["ms"]["graphed"], row["apart"]
        cells = shown(ours), shown(graphed), f"{graphed / ours:.2f}x", f"{ours / FLOORS[row['model']]:.1f}x"
        distances = f"{apart['stacked']:.3f}, {apart['graphed']:.3f}"
        rows.append([f"{TITLES[row['model']]}, {row['partition']}", *cells, distances])
    head = ["", "`stacked`", "`graphed`", "gain", "of the floor", "away from `serial` in fp32"]
    return f"{_table(head, rows)}\n\n{_first_rounds(file, read(results, 'gpu'))}"


def methods(results: Path) -> str:
    """Rounds of methods against FedAvg's."""
    rows = {row["algorithm"]: row for row in read(results, "gpu")["methods"]}
    lines = []
    for name, row in rows.items():
        ratio, against = row["ms"] / rows["fedavg"]["ms"], ["", ""]
        if name in _OF_METHODS:
            against = [shown(ratio, "x"), _goal(ratio, _OF_METHODS[name], "x")]
        lines.append([METHODS[name], _with_quartiles(row), *against])
    return _table(["the paper's CNN, bf16", "a round", "against FedAvg", "goal"], lines)


def missed(results: Path) -> tuple[int, list[tuple[str, str, str]]]:
    """How many goals there are on the GPU, and those that are missed: what, measured, goal."""
    gpu, together = read(results, "gpu"), read(results, "cohorts")
    by_method = {row["algorithm"]: row["ms"] for row in gpu["methods"]}
    iid = {row["model"]: row["ms"]["stacked"] for row in _iid(together)}
    now = {row["model"]: row for row in gpu["rounds"] if _ours(row)}
    loop = _ms(gpu["rounds"])
    slower = [loop["plain loop over clients", model, "bf16"] / now[model]["ms"] for model in TITLES]
    slower += [row["ms"] / now["mcmahan"]["ms"] for row in gpu["pfl"]["rounds"] if row["precision"] == "bf16"]
    logistic, resnet = gpu["logistic"][0]["ms"], gpu["resnet"][0]["ms"]
    checked = [
        *((f"{TITLES[model]}, GPU", now[model]["ms"], _GOALS[model], "ms") for model in TITLES),
        *((f"{TITLES[model]}, GPU, momentum and crops", iid[model], _GOALS[model], "ms") for model in TITLES),
        ("logistic regression, GPU", logistic, _GOALS["logistic"], "ms"),
        ("ResNet-18, GPU", resnet, _GOALS["resnet18"], "ms"),
        *(
            (f"{name} / fedavg, GPU", by_method[name] / by_method["fedavg"], at, "x")
            for name, at in _OF_METHODS.items()
        ),
        ("first round of `stacked`, empty cache", together["rounds"][0]["first_round_s"]["stacked"], _FIRST_ROUND, "s"),
        ("peak memory of `stacked`, GPU", max(row["peak_gb"] for row in now.values()), _MEMORY, "GB"),
    ]
    over = [
        (name, shown(value, unit), f"{at_most(limit, unit)}{by(value, limit)}")
        for name, value, limit, unit in checked
        if value > limit
    ]
    over += [("others / `stacked`, GPU", shown(x, "x"), f"at least {_TIMES:g}x") for x in slower if x < _TIMES]
    return len(checked) + len(slower), over


def others(results: Path) -> str:
    """Logistic regression and ResNet-18, before and after."""
    gpu = read(results, "gpu")
    before = gpu["before"]
    named = {
        "logistic": "logistic regression, 100 of 1,000 clients, `stacked`, tf32",
        "resnet": "ResNet-18, 20 clients, 6,000 images of 64x64, dirichlet:0.1, momentum, crops, `graphed`, bf16",
    }
    rows = []
    for part, title in named.items():
        (now,), (then,) = gpu[part], before[part]
        dated = f"{shown(then['ms'])}, {day(before, f'{part}_date')}"
        rows.append([title, dated, _with_quartiles(now), _goal(now["ms"], _GOALS[now["model"]])])
    return _table(["a round", "before", "now", "goal"], rows)


TABLES = {
    "rounds on a GPU": rounds,
    "cohorts": cohorts,
    "methods on a GPU": methods,
    "other models on a GPU": others,
}
_SERVICE = "under_the_service"


def day(file: Found, name: str = "date") -> str:
    """A file's date; a part's own if it has one."""
    return datetime.fromisoformat(file.get(name, file["date"])).strftime("%-d %B %Y")


def _first_rounds(together: Found, gpu: Found) -> str:
    first, once = (file["rounds"][0]["first_round_s"] for file in (together, together[_SERVICE]))
    later = [row["warm_up_s"] for row in (*gpu["rounds"], *gpu["methods"]) if _ours(row)]
    cold = f"The first round of `stacked` took {first['stacked']:.1f} s with an empty cache"
    goal = _goal(first["stacked"], _FIRST_ROUND, "s")
    return (
        f"{cold} ({goal}; {once['stacked']:.1f} s in\nthe run under the service), that of `graphed` "
        f"{first['graphed']:.1f} s. In a later process, with the kernels in its cache,\n`stacked` needed at most "
        f"{max(later):.1f} s more for its first three rounds than for others, with every model and method here."
    )


def _ms(rows: Iterable[Found]) -> Found:
    return {(row["what"], row["model"], row["precision"]): row["ms"] for row in rows}


def _iid(file: Found) -> list[Found]:
    return [row for row in file["rounds"] if row["partition"] == "iid"]


def _goal(value: float, limit: float, unit: str = "ms") -> str:
    return f"{at_most(limit, unit)}: {'met' if value <= limit else f'**missed** by {100 * (value / limit - 1):.2g} %'}"


def _both_goals(times: Iterable[float]) -> str:
    return "; ".join(_goal(ms, _GOALS[model]) for ms, model in zip(times, TITLES, strict=True))


def _times(theirs: Iterable[float], ours: Iterable[float]) -> str:
    kept = all(a / b >= _TIMES for a, b in zip(theirs, ours, strict=True))
    return f"at least {_TIMES:g}x: {'met' if kept else '**missed**'}"


def _ours(row: Found) -> bool:
    return bool(row["what"] == "fedskew stacked")


def _cells(times: Iterable[float]) -> list[str]:
    return [shown(ms) for ms in times]


def _with_quartiles(row: Found) -> str:
    low, high = (shown(ms).removesuffix(" ms") for ms in row["quartiles"])
    return f"{shown(row['ms'])} ({low} to {high})"


def _table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    return "\n".join(as_markdown(head, list(rows)))

"""Sentences that pages of docs/ say by hand, against the published runs."""

from collections.abc import Iterable
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from docs.pages import rivals, small_data
from docs.pages.claims import by_seed
from docs.pages.depends import CELLS
from fedskew.paper import TABLES, mapped
from fedskew.paper.choice import Choice
from fedskew.paper.map import Map
from fedskew.paper.profiles import PROFILES
from fedskew.paper.table import SEVEN, printed
from fedskew.paper.trained import CELL
from fedskew.runs.measures import IID
from fedskew.runs.results import Results, read_lines
from fedskew.runs.verdict import Difference, paired

ROOT = Path(__file__).parents[2]
SYNTHETIC = ("stated", "usual")


@cache
def published() -> Results:
    return Results(None, ROOT / "results" / "paper")


@cache
def gains(data: str, method: str, other: str = "fedavg", profile: str = "usual") -> dict[str, Difference]:
    return rivals.against(rivals.cells(published(), data, profile), method, other)


def verdicts(data: str, method: str, other: str = "fedavg", profile: str = "usual") -> list[str]:
    return [gain.verdict for gain in gains(data, method, other, profile).values()]


def gained(table: str, cell: str, method: str, measure: str = "gain") -> str:
    """The verdict on a method against FedAvg in a cell of a table, or on IID data, and the points."""
    found = Difference(**ours(table, cell, method)[measure])
    return f"{found.verdict} {found.mean:+.1f}"


def ours(table: str, cell: str, method: str) -> dict[str, Any]:
    rows = TABLES[table].rows(published(), Choice(cells=(cell,), methods=("fedavg", method), profile=PROFILES["usual"]))
    return next(row["ours"] for row in rows if row["method"] == method)


def strong(method: str, other: str) -> list[str]:
    """In the most skewed splits of CIFAR-10."""
    return [gains("cifar10", method, other)[cell].verdict for cell in CELLS]


def whole(data: str, method: str, cells: Iterable[str] | None = None, profile: str = "usual") -> list[int]:
    """From how many points a method gains over FedAvg to how many."""
    found = gains(data, method, profile=profile)
    means = [found[cell].mean for cell in cells or found]
    return [round(min(means)), round(max(means))]


def test_cifar10() -> None:
    assert [whole("cifar10", method, CELLS) for method in ("fedlc", "fedla", "fedla+fedacg")] == [
        [12, 16],
        [16, 20],
        [19, 22],
    ]
    assert gained("table1", "cifar10/dirichlet:0.1", "fedla+fedacg", "iid_gain") == "not decided +3.0"
    assert [round(gains("cifar10", "refit")[cell].mean) for cell in CELLS] == [28, 11, 21]
    assert strong("fedla", "fedlc") == ["open", "open", "tied"]
    assert strong("fedlc", "fedavg") == ["above"] * 3
    assert strong("fedla", "fedavg") == strong("fedla+fedacg", "fedavg") == ["above", "open", "above"]
    assert strong("fedla+fedacg", "fedlc") == ["above"] * 3
    assert all(gains("cifar10", "fedvls", "fedla")[cell].mean < 0 for cell in CELLS)
    fitted = [gains("cifar10", "refit", "fedlc")[cell] for cell in CELLS]
    assert [gain.verdict for gain in fitted] == ["above", "not decided", "above"]


def test_methods_against_drift() -> None:
    steered = gains("cifar10", "scaffold")
    decided = {cell: gain for cell, gain in steered.items() if gain.verdict in ("above", "below")}
    assert {cell: (gain.verdict, round(gain.mean)) for cell, gain in decided.items()} == {
        "cifar10/shards:4": ("above", 2),
        "cifar10/shards:8": ("below", -1),
    }
    for method, points in {"scaffold": [6, 6, 8], "feddyn": [-7, 0, 4]}.items():
        assert [round(gains("cifar10", method)[cell].mean) for cell in CELLS] == points
        assert set(strong(method, "fedavg")) == {"open", "not decided"}
    nova = gains("cifar10", "fednova")
    assert {cell for cell, gain in nova.items() if gain.verdict == "above"} == {"cifar10/shards:2"}
    lost = [nova[cell] for cell in CELLS[:2]]
    assert [(gain.verdict, round(gain.mean)) for gain in lost] == [("open", -5), ("not decided", -11)]
    assert gained("table7", "cifar10/shards:5", "scaffold") == "open +2.2"


def test_more_clients() -> None:
    many = {
        (method, cell): Difference(**ours("table6", cell, method)["gain"])
        for method in ("fedlc", "fedla", "fedopt")
        for cell in ("m=30", "m=50", "m=100")
    }
    assert [key for key, gain in many.items() if gain.verdict != "above"] == [("fedla", "m=30")]
    assert {round(gain.mean) for gain in many.values()} == {6, 8, 9, 10, 11, 12, 13, 14}
    assert {gained("table6", "m=10", method)[:4] for method in ("fedlc", "fedla", "fedopt")} == {"open"}
    known = {method: by_seed(ours("table6", "m=100", method)) for method in (*SEVEN, "fedla")}
    ends = {method: sum(of.values()) for method, of in known.items() if len(of) == 3}
    assert max(ends, key=lambda method: ends[method]) == "fedopt"
    ahead = [paired(known[a], known[b]) for a, b in (("fedla", "fedlc"), ("fedopt", "fedlc"), ("fedopt", "fedla"))]
    assert [gain.verdict for gain in ahead if gain] == ["above", "open", "open"]
    assert f"{ahead[0].mean:.1f}" == "1.6" if ahead[0] else False
    steered = {cell: ours("table6", cell, "scaffold") for cell in ("m=30", "m=50", "m=100")}
    assert [round(of["gain"]["mean"]) for of in steered.values() if of["gain"]] == [5, 8]
    assert {cell: [len(of["seeds"]), len(of["diverged"])] for cell, of in steered.items()} == {
        "m=30": [1, 0],
        "m=50": [1, 1],
        "m=100": [3, 1],
    }


def test_local_epochs() -> None:
    methods, epochs = ("fedlc", "fedla", "fedrs", "fedprox"), (1, 5, 10, 20)
    found = {
        (method, place, number): Difference(**ours("table5", f"E={number}/{place}", method)["gain"])
        for method in methods
        for place in ("cifar10/shards:5", "cifar10/dirichlet:0.5", "svhn/shards:5", "svhn/dirichlet:0.5")
        for number in epochs
    }
    there = {key: gain for key, gain in found.items() if key[1] == "cifar10/shards:5"}
    assert {key for key, gain in there.items() if gain.verdict != "above"} == {("fedprox", "cifar10/shards:5", 1)}
    points = {
        method: [round(there[method, "cifar10/shards:5", number].mean) for number in epochs] for method in methods
    }
    assert points == {"fedlc": [4, 8, 9, 12], "fedla": [4, 9, 9, 12], "fedrs": [3, 8, 8, 9], "fedprox": [0, 5, 8, 9]}
    ends = {
        method: [ours("table5", f"E={number}/cifar10/shards:5", method)["last_ten"] for number in epochs]
        for method in ("fedavg", *methods)
    }
    assert all(of[-1] < of[0] - 5 for of in ends.values())
    assert [[round(of[0]), round(of[-1])] for of in (ends["fedavg"], ends["fedlc"])] == [[75, 58], [79, 70]]
    elsewhere = {key: gain for key, gain in found.items() if key not in there and gain.verdict in ("above", "below")}
    assert set(elsewhere) == {("fedla", "svhn/dirichlet:0.5", 10), ("fedrs", "svhn/dirichlet:0.5", 1)}
    assert all(abs(gain.mean) - gain.half < 0.01 for gain in elsewhere.values() if gain.half)
    mild = {(key[0] == "fedprox", gain.verdict) for key, gain in found.items() if key[1] == "cifar10/dirichlet:0.5"}
    assert mild == {(False, "open"), (True, "tied"), (True, "open")}


def test_mild_skew() -> None:
    mild = [f"cifar10/{split}" for split in ("dirichlet:0.3", "dirichlet:0.5", "shards:6", "shards:8")]
    server, margins = gains("cifar10", "fedopt"), gains("cifar10", "fedlc")
    assert [server[cell].verdict for cell in mild] == ["open", "above", "above", "above"]
    assert all(2 < server[cell].mean < 3.5 for cell in mild)
    assert [gains("cifar10", "fedopt", "fedlc")[cell].verdict for cell in mild] == ["open", "open", "above", "above"]
    assert [margins[cell].verdict for cell in mild] == ["open", "open", "above", "open"]
    assert {round(margins[cell].mean) for cell in mild} == {1, 2, 3}
    assert gained("table1", "cifar10/dirichlet:0.5", "fedopt", "iid_gain") == "above +2.0"
    there = [gains("svhn", "fedopt")[f"svhn/dirichlet:{beta}"].verdict for beta in (0.3, 0.5)]
    assert there == ["below", "tied"]
    assert round(gains("svhn", "fedopt")["svhn/dirichlet:0.3"].mean, 1) == -0.4


def test_without_momentum() -> None:
    behind = [
        gains("cifar10", method, profile="stated")[cell]
        for method in ("fedopt", "scaffold:mean=uniform")
        for cell in CELLS[:2]
    ]
    assert [round(gain.mean) for gain in behind] == [-5, -1, -4, -2]
    assert {gain.seeds for gain in behind} == {1}


def test_what_the_paper_prints() -> None:
    ahead = set[tuple[str, str]]()
    for table in (TABLES[f"table{number}"] for number in range(1, 8)):
        figures = printed(table.name)
        for cell in table.cells:
            means = {method: of[cell][0] or 0 for method, of in figures.items() if cell in of}
            ahead |= {(table.name, method) for method in means if means[method] > means["fedlc"]}
    assert ahead == {("table7", "fedlc+scaffold"), ("table7", "fedlc+fedprox")}
    assert len(set(printed("table7")) & set(SEVEN)) == 2


def test_what_was_chosen_for_fedlc() -> None:
    """Held-out accuracy by tau and rule, in the two settings of the map."""
    held: dict[str, list[float]] = {}
    for row in Map(mapped(CELL), CELL).rows(published(), Choice()):
        if row["part"] == "margin" and row["algorithm"].startswith("fedlc"):
            held.setdefault(row["algorithm"], []).append(row["validation"])
    assert len(held) == 12
    assert {len(both) for both in held.values()} == {2}
    default, low = "fedlc:tau=5,missing=floor", "fedlc:tau=0.1,missing=floor"
    assert max(held, key=lambda spec: sum(held[spec])) == default
    assert max(held, key=lambda spec: held[spec][0]) == low
    assert round(held[low][0] - held[default][0], 1) == 0.2


def test_the_map() -> None:
    """Around one epoch without momentum: what FedLC gains as more or fewer clients train, or at another rate."""
    reached: dict[str, dict[str, float]] = {}
    for row in Map(mapped(CELL), CELL).rows(published(), Choice()):
        if row["part"] == "around":
            reached.setdefault(row["setting"], {})[row["method"]] = row["last_ten"]
    settings = "half of the clients a round", "nothing changed", "lr 0.1"
    assert [round(reached[name]["fedlc"] - reached[name]["fedavg"]) for name in settings] == [7, 1, 1]


def test_what_rounding_does() -> None:
    at = rivals.cells(published(), "cifar10")
    apart = {cell: abs(of["fednova"][0] - of["fedavg"][0]) for cell, of in at.items() if "shards" in cell}
    assert [round(apart.pop(f"cifar10/shards:{pieces}"), 2) for pieces in (2, 6)] == [1.24, 0.23]
    assert set(apart) == {"cifar10/shards:4", "cifar10/shards:8"}
    assert max(apart.values()) < 0.03
    same = gains("cifar10", "fednova")["cifar10/shards:2"]
    assert (same.verdict, same.seeds, round(same.mean, 1)) == ("above", 3, 2.0)


def test_cifar100() -> None:
    assert all(gain.mean < 3 for method in ("fedlc", "fedla") for gain in gains("cifar100", method).values())
    ours_there = gains("cifar100", "fedlc")
    at = {word: {c: g.mean for c, g in ours_there.items() if g.verdict == word} for word in ("above", "below", "tied")}
    assert set(at["above"]) == {f"cifar100/dirichlet:{beta}" for beta in (0.05, 0.1, 0.3)}
    assert [f"{end(at['above'].values()):.1f}" for end in (min, max)] == ["0.8", "2.3"]
    assert {cell: round(mean, 1) for cell, mean in at["below"].items()} == {"cifar100/shards:60": -0.3}
    assert len(at["tied"]) == 4
    opt, best, scaffold = (gains("cifar100", method) for method in ("fedopt", "fedla+fedacg", "scaffold"))
    assert {gain.verdict for gain in (*opt.values(), *best.values())} == {"above"}
    assert len(opt) == len(best) == 8
    assert [whole("cifar100", method) for method in ("fedla+fedacg", "fedopt")] == [[4, 7], [3, 5]]
    over = {cell.partition("/")[2]: gain.verdict for cell, gain in gains("cifar100", "fedla+fedacg", "fedopt").items()}
    assert over == {split: "open" if split == "dirichlet:0.05" else "above" for split in over}
    closed = {
        row["cell"].partition("/")[2]: row["ours"]["gap_closed"]
        for table in ("table1", "table2")
        for row in TABLES[table].rows(published(), Choice(cells=("cifar100",), profile=PROFILES["usual"]))
        if row["method"] == "fedla+fedacg"
    }
    assert {split for split, share in closed.items() if share["share"] > 2} == {
        "dirichlet:0.5",
        "shards:40",
        "shards:60",
        "shards:80",
    }
    assert {share["seeds"] for share in closed.values()} == {1}
    above = {cell.partition("/")[2]: gain.mean for cell, gain in scaffold.items() if gain.verdict == "above"}
    assert set(above) == {"dirichlet:0.5", "shards:60", "shards:80"}
    assert (round(min(above.values()), 1), round(max(above.values()), 1)) == (0.5, 1.3)
    below = {cell.partition("/")[2]: round(gain.mean, 1) for cell, gain in scaffold.items() if gain.verdict == "below"}
    assert below == {"dirichlet:0.05": -2.4, "shards:20": -2.2}


def test_svhn() -> None:
    assert all(gain.mean < 0 for gain in gains("svhn", "fedla+fedacg").values())
    best = gains("svhn", "fedla+fedacg")
    assert {cell for cell, gain in best.items() if gain.verdict == "below"} == {
        "svhn/dirichlet:0.3",
        "svhn/dirichlet:0.5",
    }
    assert min(best, key=lambda cell: best[cell].mean) == "svhn/dirichlet:0.05"
    assert best["svhn/dirichlet:0.05"].seeds == 1
    lost = gains("svhn", "fedla")["svhn/dirichlet:0.05"]
    assert (lost.verdict, round(lost.mean)) == ("below", -5)
    assert round(gains("svhn", "fedlc")["svhn/dirichlet:0.3"].mean, 1) == -0.1
    assert sorted(verdicts("svhn", "fedla", "fedlc")) == ["below", "below", "open", "open"]
    assert "above" not in [*verdicts("svhn", "fedlc"), *verdicts("svhn", "fedla")]
    best = gains("svhn", "fedla+fedacg+refit")
    assert best["svhn/dirichlet:0.05"].verdict == "above"
    below = {cell: round(gain.mean, 1) for cell, gain in best.items() if gain.verdict == "below"}
    assert below == {"svhn/dirichlet:0.3": -0.9, "svhn/dirichlet:0.5": -0.8}
    assert best["svhn/dirichlet:0.1"].verdict == "open"


@pytest.mark.parametrize("profile", SYNTHETIC)
def test_synthetic(profile: str) -> None:
    for method in ("scaffold", "feddyn", "fedopt", "fedavgm", "fedacg"):
        assert verdicts("synthetic", method, profile=profile) == ["above"] * 3
    for method in ("fedlc", "fedla", "fedla+fedacg", "fedvls"):
        assert verdicts("synthetic", method, profile=profile) == ["below"] * 3
    nova = ["above", "above", "above" if profile == "stated" else "open"]
    assert verdicts("synthetic", "fednova", profile=profile) == nova
    points = [round(gain.mean) for gain in gains("synthetic", "fednova", profile=profile).values()]
    assert points == {"stated": [10, 10, 12], "usual": [12, 11, 5]}[profile]
    assert verdicts("synthetic", "refit", profile=profile) == ["above"] * 3
    assert set(whole("synthetic", "refit", profile=profile)) <= {12, 13, 14}
    assert verdicts("synthetic", "fedla", "fedlc", profile) == ["below"] * 3
    ends = [whole("synthetic", method, profile=profile) for method in ("scaffold", "feddyn")]
    assert min(low for low, _ in ends) >= 9
    assert max(high for _, high in ends) <= 12
    servers = [whole("synthetic", method, profile=profile) for method in ("fedopt", "fedavgm", "fedacg")]
    assert min(low for low, _ in servers) >= 3
    assert max(high for _, high in servers) <= 7
    low, high = whole("synthetic", "fedexp", profile=profile)
    assert 2 <= low <= high <= 3
    low, high = whole("synthetic", "fedlc", profile=profile)
    assert -12 <= low <= high <= -8
    travelled = {"stated": ["above", "tied", "above"], "usual": ["tied", "tied", "open"]}
    assert verdicts("synthetic", "fedlc:travel=1", profile=profile) == travelled[profile]


def test_digits() -> None:
    files = sorted((ROOT / "results" / "digits").glob("*.jsonl"))
    found = small_data.ways([line for file in files for line in read_lines(file)])
    for method in ("scaffold", "fedopt", "fedexp"):
        gained = small_data.gains(found[0.0], method)
        assert [gain.verdict for gain in gained.values()] == ["above"] * 3
        assert {round(gained[split].mean) for split in ("dirichlet:0.1", "shards:2")} <= {2, 3}
    for at in found.values():
        lost, less = (small_data.gains(at, method) for method in ("fedlc", "fedlc:tau=1"))
        assert all(lost[cell].mean < less[cell].mean < 0 for cell in lost)
    level = found[0.9][IID]["fedavg"]
    apart = [paired(of["fedavg"], level) for cell, of in found[0.9].items() if cell != IID]
    assert all(gap is not None and abs(gap.mean) < 0.5 and gap.verdict == "tied" for gap in apart)
    for method in ("fedlc", "fedla"):
        skewed = small_data.gains(found[0.9], method)
        assert {skewed[split].verdict for split in ("dirichlet:0.1", "shards:2")} == {"below"}
    fitted = small_data.gains(found[0.9], "refit")
    assert {gain.verdict for gain in fitted.values()} == {"tied"}


def test_fedla_below_fedlc() -> None:
    lost = {
        cell: round(gain.mean, 1)
        for data in ("cifar10", "cifar100")
        for cell, gain in gains(data, "fedla", "fedlc").items()
        if gain.verdict == "below"
    }
    assert lost == {"cifar10/shards:8": -0.2, "cifar100/shards:20": -0.5}

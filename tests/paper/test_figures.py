import copy
import random

import pytest

from fedskew.paper import figures
from fedskew.paper.map_figure import map_figure, signed
from fedskew.report import class_figures
from fedskew.report.style import RC, look, looks
from tests.helpers.artists import shown

ABOUT = {"title": "digits, 2 clients", "local_epochs": 1, "seed": 0, "round": 3}


def effect(clients=2, classes=3):
    draw = random.Random(0)
    shares = lambda: [draw.random() for _ in range(classes)]  # noqa: E731
    return {
        **ABOUT,
        "classes": classes,
        "before": shares(),
        "mean_after": shares(),
        "aggregated": shares(),
        "clients": [{"client": k, "counts": list(range(1, classes + 1)), "after": shares()} for k in range(clients)],
    }


def feature_map(points=4):
    group = {"count": 5, "neighbours": 0.5, "points": [[i, i % 2] for i in range(points)]}
    kinds = ("majority", "minority", "missing")
    groups = [{**group, "kind": kind, "class": c} for c, kind in enumerate(kinds)]
    return {**ABOUT, "client": 1, "class_names": ["cat", "dog", "owl"], "groups": groups}


def plane():
    method = {
        "global": [[0, 0, 0], [1, 1, 0]],
        "local": [[[0, 2, 0], [2, 0, 0]]],
        "optima": [[-1, 1, 0], [1, 1, 0]],
        "pooled_loss": 0.6,
        "per_class_accuracy": {"before": [0.5, 0.5], "after": [[0.9, 0.1], [0.2, 0.8]], "aggregated": [0.6, 0.6]},
    }
    return {
        "seed": 0, "rounds": 1, "local_epochs": 2, "counts": [[9, 1], [1, 9]],
        "pooled_optimum": [0, 0, 0], "client_optima": [[-2, 1, 0], [2, 1, 0]], "pooled_loss": 0.5,
        "contour": {"u": [-3, 0, 3], "v": [-1, 0, 3], "loss": [[2, 1, 2], [1, 0.5, 1], [2, 1, 3]]},
        "methods": [{**method, "algorithm": name} for name in ("fedavg", "fedlc:tau=5")],
    }  # fmt: skip


def rows():
    row = {"accuracy": {"mean": 0.6, "std": 0.02}, "printed_drop": 26.07}
    return [
        {**row, "group": "alpha", "label": "α = 2"},
        {"group": "iid", "label": "IID", "accuracy": {"mean": 0.9, "std": None}, "printed_drop": None},
    ]


def cells(count=3):
    records = [{"round": r, "accuracy": r / 10} for r in range(1, 6)]
    return {f"cell {i}": {"fedlc": [records], "fedrs": [records, records]} for i in range(count)}


def base(value=1.0):
    return [{"title": "E=1", "taus": [0.1, 1], "missing": ["floor", "mask"], "difference": [[value, -2.0], [None, 0]]}]


def varied():
    return [{"name": f"{v} epochs", "differences": {"fedlc": v, "fedrs": None}} for v in (1, 5)]


DRAWINGS = {
    "figure1": (figures.figure1, (rows(), "title"), lambda data: data[0][0]["accuracy"].update(mean=0.7123), 71.23),
    "figure2": (
        class_figures.before_and_after,
        ({"fedavg": effect(), "fedlc": effect()},),
        lambda data: data[0]["fedlc"]["clients"][1]["after"].__setitem__(0, 0.7123),
        71.23,
    ),
    "figure3": (figures.figure3, (plane(),), lambda data: data[0]["methods"][1]["global"].append([2, 7.25, 0]), 7.25),
    "figure4": (
        figures.figure4,
        ({"Q(4)": {"counts": [[3, 0], [1, 5]]}, "D(0.5)": {"counts": [[2, 2], [2, 3]]}}, "title"),
        lambda data: data[0]["Q(4)"].update(counts=[[3, 16], [1, 5]]),
        4.0,
    ),
    "figure5": (
        figures.figure5,
        (cells(), "title"),
        lambda data: data[0]["cell 2"]["fedlc"][0][1].update(accuracy=0.7123),
        71.23,
    ),
    "figure6": (
        figures.figure6,
        ({"fedavg": effect(), "fedlc": effect()},),
        lambda data: data[0]["fedavg"]["aggregated"].__setitem__(2, 0.7123),
        71.23,
    ),
    "figure7": (
        class_figures.feature_maps,
        ({"fedavg": feature_map(), "fedlc": feature_map()},),
        lambda data: data[0]["fedlc"]["groups"][0]["points"].append([9, 7.25]),
        7.25,
    ),
    "map": (
        map_figure,
        (base(), varied(), "title"),
        lambda data: data[0][0]["difference"][1].__setitem__(0, 7.25),
        7.25,
    ),
}
"""A drawing, its data, a change of them, and the number that the change puts into the figure."""


@pytest.fixture(autouse=True)
def _coarse(monkeypatch):
    """Few pixels: what is drawn matters here, not how fine."""
    monkeypatch.setitem(RC, "figure.dpi", 40)


@pytest.mark.parametrize("name", DRAWINGS)
def test_a_figure_shows_its_data(name, tmp_path, monkeypatch):
    draw, data, change, number = DRAWINGS[name]
    before, _ = shown(monkeypatch, lambda: draw(tmp_path / name, *data))
    changed = copy.deepcopy(data)
    change(changed)
    note = {} if name in ("figure3", "figure4") else {"note": "to 30 rounds"}
    after, texts = shown(monkeypatch, lambda: draw(tmp_path / name, *changed, **note))
    assert (number in before, number in after) == (False, True)
    assert any("to 30 rounds" in text for text in texts) == bool(note)


def test_the_same_data_give_the_same_files(tmp_path):
    first, again = (
        [file.read_bytes() for file in figures.figure1(tmp_path / name, rows(), "title")] for name in ("one", "two")
    )
    assert first == again
    assert len(first) == 2


@pytest.mark.parametrize("classes", [1, 100])
def test_one_method_one_client_and_few_or_many_classes(classes, tmp_path):
    single = {"fedavg": effect(1, classes)}
    assert class_figures.before_and_after(tmp_path / "two", single)
    assert figures.figure6(tmp_path / "six", single)
    assert figures.figure4(tmp_path / "four", {"one": {"counts": [[7] * classes]}}, "title")


def test_nothing_to_compare_with(tmp_path):
    assert figures.figure1(tmp_path / "one", rows()[:1], "no IID")
    assert figures.figure5(tmp_path / "five", cells(1), "one cell")
    assert class_figures.feature_maps(tmp_path / "seven", {"fedavg": feature_map(1)})
    assert map_figure(tmp_path / "map", base(0.0), varied()[:1], "title")


def test_a_variant_keeps_the_look_of_its_method_where_it_is_alone():
    assert looks(["fedavg", "fedlc:tau=5"])["fedlc:tau=5"] == look("fedlc")
    assert looks(["FedLC"])["FedLC"] == look("fedlc")
    several = looks(["fedlc:tau=1", "fedlc:tau=5", "fedavg"])
    assert several["fedlc:tau=1"] != several["fedlc:tau=5"]
    assert several["fedavg"] == look("fedavg")


def test_signs():
    assert [signed(value) for value in (1.25, -0.44, None)] == ["+1.2", "−0.4", "·"]

import random

import pytest

from fedskew.report.diagnostic_figures import FIGURES, diagnostic_figures
from fedskew.report.style import RC
from tests.helpers.artists import shown

ABOUT = {"title": "digits, 2 clients", "local_epochs": 1, "seed": 0, "round": 3, "algorithm": "fedavg"}


def method(classes=3):
    draw = random.Random(0)
    shares = lambda: [draw.random() for _ in range(classes)]  # noqa: E731
    groups = {
        "majority": {"classes": [0]},
        "minority": {"classes": [1] if classes > 1 else []},
        "missing": {"classes": list(range(2, classes))},
    }
    clients = [
        {"client": k, "counts": [5, 1, *[0] * 98][:classes], "after": shares(), "groups": groups} for k in (0, 1)
    ]
    pairs = [
        {"kind": "minority", "ratio": 5.0, "bound": 2.0, "own": -1.0},
        {"kind": "minority", "ratio": 5.0, "bound": 20.0, "own": 1.0},
        {"kind": "missing", "ratio": None, "bound": 20.0, "own": -1.0},
        {"kind": "missing", "ratio": None, "bound": None, "own": None},
        {"kind": "minority", "ratio": 5.0, "bound": -1.0, "own": -1.0},
    ]
    summary = {"stated": 3, "above": 2 / 3, "signs": {"above": {"update": {"own": 1.0}}}}
    points = {"kind": "majority", "class": 0, "count": 5, "neighbours": 0.5, "points": [[0, 0], [1, 1]]}
    return {
        "class_accuracy": {**ABOUT, "before": shares(), "clients": clients},
        "deviation": {"softmax": True, "summary": summary, "pairs": pairs},
        "drift": {"classifier": {"before": {"norm": shares()}, "client_norm": [shares(), shares()]}},
        "features": {**ABOUT, "client": 0, "class_names": None, "groups": [points]},
    }


def document(classes=3):
    curve = [{"low": b / 2, "high": (b + 1) / 2, "count": b, "confidence": 0.8, "accuracy": 0.7} for b in (0, 1)]
    confusion = [[4 if a == b else 1 for a in range(classes)] for b in range(classes)]
    calibration = {"ece": 0.1, "reliability": curve, "confusion": confusion}
    return {**ABOUT, "methods": {name: method(classes) for name in ("fedavg", "fedlc")}, "calibration": calibration}


CHANGES = {
    "before_after": (
        lambda d: d["methods"]["fedlc"]["class_accuracy"]["clients"][0]["after"].__setitem__(0, 0.7123),
        71.23,
    ),
    "deviation_bound": (lambda d: d["methods"]["fedlc"]["deviation"]["pairs"][0].update(bound=7.25), 7.25),
    "reliability": (lambda d: d["calibration"]["reliability"][1].update(accuracy=0.2125), 0.2125),
    "confusion": (lambda d: d["calibration"]["confusion"].__setitem__(0, [5, 1, 2]), 0.625),
    "classifier_norms": (
        lambda d: d["methods"]["fedavg"]["drift"]["classifier"]["client_norm"][1].__setitem__(0, 7.25),
        7.25,
    ),
    "features": (lambda d: d["methods"]["fedlc"]["features"]["groups"][0]["points"].append([2, 7.25]), 7.25),
}
"""A change of a document, and the number that it puts into the figure."""


@pytest.fixture(autouse=True)
def _coarse(monkeypatch):
    monkeypatch.setitem(RC, "figure.dpi", 40)


@pytest.mark.parametrize("name", FIGURES)
def test_a_figure_shows_its_data(name, tmp_path, monkeypatch):
    change, number = CHANGES[name]
    before, _ = shown(monkeypatch, lambda: FIGURES[name](tmp_path / name, document()))
    changed = document()
    change(changed)
    after, _ = shown(monkeypatch, lambda: FIGURES[name](tmp_path / name, changed))
    assert (number in before, number in after) == (False, True)


@pytest.mark.parametrize("classes", [1, 30])
def test_few_and_many_classes(classes, tmp_path):
    assert len(diagnostic_figures(tmp_path, document(classes))) == 12


def test_what_there_is_nothing_for(tmp_path):
    bare = document()
    nothing = {"softmax": True, "summary": {"stated": 0}, "pairs": []}
    bare["methods"]["fedavg"] |= {"features": None, "deviation": {"softmax": False, "summary": None, "pairs": []}}
    bare["methods"]["fedlc"] |= {"features": None, "deviation": nothing}
    made = diagnostic_figures(tmp_path, bare)
    assert len(made) == 10
    assert not any(path.stem == "features" for path in made)

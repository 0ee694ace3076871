import re
from pathlib import Path

import pytest

from fedskew.tracking import metrics
from tests.cli.test_watch import record


def test_what_was_measured_by_name():
    values = metrics(record(3, 0.5, drift_norm=2.0, drift_cosine=None))
    assert values == {
        "accuracy": 0.5, "balanced_accuracy": 0.5, "loss": 1.0, "train_loss": 0.125, "seconds": 0.1, "clients": 3.0,
        "diverged": 0.0, "class_accuracy/0": 0.25, "class_accuracy/1": 0.75, "drift/norm": 2.0,
    }  # fmt: skip


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_what_is_not_finite_is_left_out(value):
    assert "accuracy" not in metrics(record(1, value))


def test_every_name_is_documented():
    text = (Path(__file__).parents[2] / "docs" / "tracking.md").read_text()
    documented = set(re.findall(r"^\| `([^`]+)` \|", text, re.M))
    names = {re.sub(r"class_accuracy/\d+", "class_accuracy/C", name) for name in metrics(_full())}
    assert names == documented


def _full():
    from dataclasses import replace

    return replace(record(1, drift_norm=1.0, drift_cosine=0.5), client_accuracy=0.5, validation_accuracy=0.5)

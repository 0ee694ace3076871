"""Measures of the global model against counting by hand."""

import pytest
import torch
from torch import Tensor, nn

from fedskew.core import evaluation as evaluate
from fedskew.core.dataset import Dataset
from fedskew.core.evaluation import evaluate_model, predict
from fedskew.models import Model, build_model
from tests.helpers import assert_close, clones, normal

DTYPE = torch.float64


def dataset(x: Tensor, y: Tensor, classes: int = 4, owners: Tensor | None = None) -> Dataset:
    return Dataset("toy", x, y, x, y, classes, client_test=owners)


def identity(classes: int = 4) -> tuple[Model, dict[str, Tensor]]:
    """Inputs are the logits."""
    return Model(nn.Linear(classes, classes, bias=False)), {"weight": torch.eye(classes, dtype=DTYPE)}


def test_by_hand() -> None:
    """Predictions 0 0 1 1 2 0 for labels 0 0 0 1 2 2; class 3 is not in the test set."""
    x = torch.eye(4, dtype=DTYPE)[[0, 0, 1, 1, 2, 0]]
    y = torch.tensor([0, 0, 0, 1, 2, 2])
    model, params = identity()
    found = evaluate_model(model, params, {}, dataset(x, y, owners=torch.tensor([0, 0, 0, 2, 2, 2])))
    assert found.accuracy == pytest.approx(4 / 6)
    assert found.per_class_accuracy == pytest.approx([2 / 3, 1.0, 0.5, None])
    assert found.balanced_accuracy == pytest.approx((2 / 3 + 1.0 + 0.5) / 3)
    assert found.client_accuracy == pytest.approx((2 / 3 + 2 / 3) / 2)  # client 1 has no test example
    assert found.loss == pytest.approx(nn.functional.cross_entropy(x, y).item(), rel=1e-12)


def test_clients_weigh_the_same_whatever_their_size() -> None:
    x = torch.eye(4, dtype=DTYPE)[[0, 0, 0, 0]]
    model, params = identity()
    owners = torch.tensor([0, 0, 0, 1])
    found = evaluate_model(model, params, {}, dataset(x, torch.tensor([0, 0, 0, 1]), owners=owners))
    assert found.accuracy == 0.75
    assert found.client_accuracy == 0.5
    without = evaluate_model(model, params, {}, dataset(x, torch.tensor([0, 0, 0, 1])))
    assert without.client_accuracy is None


def test_pieces_make_the_whole(monkeypatch: pytest.MonkeyPatch, generator: torch.Generator) -> None:
    model, params = identity()
    data = dataset(normal(generator, 23, 4), torch.zeros(23, dtype=torch.int64))
    whole = predict(model, params, {}, data, data.x_test)
    for values in (1, 8, 20):
        monkeypatch.setattr(evaluate, "_BATCH_VALUES", values)
        assert_close(predict(model, params, {}, data, data.x_test), whole)
    assert_close(whole, data.x_test)


def test_stored_values_are_prepared() -> None:
    x = torch.tensor([[10, 30], [30, 10]], dtype=torch.uint8)
    data = Dataset("toy", x, torch.tensor([0, 1]), x, torch.tensor([0, 1]), 2, mean=(20.0,), std=(-10.0,))
    model, params = identity(2)
    assert predict(model, params, {}, data, data.x_test).tolist() == [[1.0, -1.0], [-1.0, 1.0]]
    assert evaluate_model(model, params, {}, data).accuracy == 1.0


def test_batch_norm_uses_running_statistics_and_leaves_them(generator: torch.Generator) -> None:
    """So an image's logits do not depend on the images beside it."""
    model = build_model("cnn:padding=1,width=4", (1, 8, 8), 10, 0)
    params, buffers = model.init(DTYPE, "cpu")
    buffers = {name: leaf + 0.3 for name, leaf in buffers.items()}
    before = clones(buffers)
    data = dataset(normal(generator, 6, 1, 8, 8), torch.zeros(6, dtype=torch.int64), 10)
    together = predict(model, params, buffers, data, data.x_test)
    alone = torch.cat([predict(model, params, buffers, data, x[None]) for x in data.x_test])
    assert_close(together, alone, rtol=1e-9)
    assert all(torch.equal(buffers[name], before[name]) for name in before)
    assert not together.requires_grad


def test_nothing_is_calibrated_at_test_time(generator: torch.Generator) -> None:
    """The training counts take no part: another training set, the same measures."""
    model, params = identity()
    x, y = normal(generator, 12, 4), torch.arange(12) % 4
    skewed = Dataset("toy", x, torch.zeros(12, dtype=torch.int64), x, y, 4)
    assert evaluate_model(model, params, {}, skewed) == evaluate_model(model, params, {}, dataset(x, y))

"""Drawn shapes: always the same images, balanced classes, each shape its own mirror image."""

import numpy as np
import pytest
import torch

from fedskew.data import load_dataset
from fedskew.data.shapes import _SHAPES, NAMES, shapes


def test_the_images_are_always_the_same_and_balanced() -> None:
    one, other = shapes(200, 50), load_dataset("shapes:train=200,test=50", seed=7, clients=3)
    assert torch.equal(one.x_train, other.x_train)
    assert one.x_train.shape == (200, 1, 16, 16)
    assert one.x_train.dtype == torch.uint8
    assert torch.bincount(one.y_train).tolist() == [20] * 10
    assert torch.bincount(one.y_test).tolist() == [5] * 10
    assert one.class_names == NAMES
    assert not torch.equal(one.x_train[:50], one.x_test)
    values = one.prepare(one.x_train, torch.float64)
    assert values.mean().item() == pytest.approx(0, abs=1e-6)
    assert values.std().item() == pytest.approx(1, abs=1e-2)


def test_a_mirror_image_shows_the_same_shape() -> None:
    u, v = np.meshgrid(np.linspace(-1.2, 1.2, 41), np.linspace(-1.2, 1.2, 41))
    for inside in _SHAPES:
        np.testing.assert_allclose(inside(u, v), inside(-u, v), atol=1e-12)
    painted = [inside(u, v) > 0 for inside in _SHAPES]
    assert all(picture.any() for picture in painted)
    apart = [(a != b).mean() for i, a in enumerate(painted) for b in painted[:i]]
    assert min(apart) > 0.02


def test_a_shape_is_brighter_than_what_is_around_it() -> None:
    data = shapes(1000, 10)
    mean = torch.stack([data.x_train[data.y_train == c].double().mean(0) for c in range(10)])
    assert (mean[:, 0, 5:11, 5:11].mean((-1, -2)) > mean[:, 0, :2, :2].mean((-1, -2)) + 10).all()


@pytest.mark.parametrize(("train", "test"), [(0, 10), (15, 10), (10, -10), (10_000_010, 10)])
def test_wrong_numbers(train: int, test: int) -> None:
    with pytest.raises(ValueError, match="allowed: a multiple of 10, from 10 to 1000000"):
        shapes(train, test)

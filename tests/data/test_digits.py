"""The digits: a fixed, stratified split of all of them."""

import torch
from sklearn.datasets import load_digits

from fedskew.data.digits import digits
from tests.helpers.cached import whole_digits


def test_every_image_is_used_once() -> None:
    data, (images, labels) = whole_digits(), load_digits(return_X_y=True)
    both = torch.cat([data.x_train, data.x_test]).flatten(1).tolist()
    assert sorted(both) == sorted(images.astype(int).tolist())
    assert torch.bincount(torch.cat([data.y_train, data.y_test])).tolist() == [(labels == k).sum() for k in range(10)]


def test_the_first_fifth_of_each_class_is_for_testing() -> None:
    data, (images, labels) = whole_digits(), load_digits(return_X_y=True)
    for label in range(10):
        own = images[labels == label].astype(int).tolist()
        cut = len(own) // 5
        assert data.x_test[data.y_test == label].flatten(1).tolist() == own[:cut]
        assert data.x_train[data.y_train == label].flatten(1).tolist() == own[cut:]


def test_shape_type_and_normalisation() -> None:
    data = whole_digits()
    assert data.input_shape == (1, 8, 8)
    assert data.num_classes == 10
    assert data.x_train.dtype == torch.uint8
    assert data.y_train.dtype == torch.int64
    assert (len(data.y_train), len(data.y_test)) == (1442, 355)
    ready = data.prepare(data.x_train, torch.float64)
    assert abs(ready.mean().item()) < 1e-12
    assert abs(ready.std(correction=0).item() - 1) < 1e-12
    assert data.client_train is None


def test_the_same_every_time() -> None:
    one, two = whole_digits(), digits()
    assert torch.equal(one.x_train, two.x_train)
    assert torch.equal(one.y_test, two.y_test)
    assert one.mean == two.mean

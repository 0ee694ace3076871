"""What a data set refuses, and how stored values become inputs."""

from typing import Any

import numpy as np
import pytest
import torch

from fedskew.core.dataset import Dataset
from fedskew.data import DATASETS, USUAL, load_dataset
from tests.helpers import OWN

X, Y = torch.zeros(3, 2), torch.tensor([0, 1, 2])


def make(**fields: Any) -> Dataset:
    return Dataset(**{"name": "toy", "x_train": X, "y_train": Y, "x_test": X, "y_test": Y, "num_classes": 3, **fields})


@pytest.mark.parametrize("part", ["train", "test"])
@pytest.mark.parametrize("label", [3, -1])
def test_a_label_outside_the_range_is_refused(part: str, label: int) -> None:
    with pytest.raises(ValueError, match=rf"toy: {part} label {label} is outside 0\.\.2"):
        make(**{f"y_{part}": torch.tensor([0, label, 1])})


@pytest.mark.parametrize("part", ["train", "test"])
def test_labels_are_whole_numbers_of_64_bits(part: str) -> None:
    with pytest.raises(ValueError, match=rf"toy: {part} labels are torch.int32; allowed: torch.int64"):
        make(**{f"y_{part}": Y.int()})


@pytest.mark.parametrize("part", ["train", "test"])
def test_examples_and_labels_must_match(part: str) -> None:
    with pytest.raises(ValueError, match=f"toy: 3 {part} examples with 2 labels"):
        make(**{f"y_{part}": Y[:2]})
    with pytest.raises(ValueError, match=f"toy: 0 {part} examples with 0 labels"):
        make(**{f"x_{part}": X[:0], f"y_{part}": Y[:0]})


@pytest.mark.parametrize(
    ("examples", "share", "owner", "said"),
    [
        (3, 0.3, None, "validation is 0.3, less than one example of any class; allowed: 0.334 or more"),
        (1, 0.9, None, "validation is 0.9, less than one example of any class; allowed: 0"),
        (3, 0.1, torch.zeros(9, dtype=torch.int64), "of any client; allowed: 0.112 or more"),
    ],
)
def test_a_share_that_holds_out_no_example_is_refused(
    examples: int, share: float, owner: torch.Tensor | None, said: str
) -> None:
    """Else nothing could be chosen on the examples held out."""
    data = make(x_train=X.repeat(examples, 1), y_train=Y.repeat(examples), client_train=owner)
    with pytest.raises(ValueError, match=f"{said}$"):
        data.held_out(share, np.random.default_rng(0))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("lead", [(5,), (2, 5), (3, 2, 5)], ids=str)
def test_bytes_are_normalised_per_channel(lead: tuple[int, ...], dtype: torch.dtype) -> None:
    stored = torch.randint(0, 256, (*lead, 2, 4, 3), dtype=torch.uint8, generator=torch.Generator().manual_seed(1))
    images = torch.zeros(3, 2, 4, 3, dtype=torch.uint8)
    data = make(x_train=images, x_test=images, mean=(100.0, 50.0), std=(20.0, 4.0))
    ready = data.prepare(stored, dtype)
    assert ready.dtype == dtype
    assert ready.shape == stored.shape
    assert torch.equal(ready[..., 0, :, :], (stored[..., 0, :, :].to(dtype) - 100) / 20)
    assert torch.equal(ready[..., 1, :, :], (stored[..., 1, :, :].to(dtype) - 50) / 4)
    assert stored.dtype == torch.uint8


def test_without_mean_values_are_used_as_they_are() -> None:
    stored = torch.tensor([[7, 255]], dtype=torch.uint8)
    assert make().prepare(stored, torch.float64).tolist() == [[7.0, 255.0]]


def test_the_shape_of_an_example() -> None:
    data = make(num_classes=5, y_train=torch.tensor([2, 2, 0]))
    assert data.input_shape == (2,)


def test_moved_as_a_whole() -> None:
    data = make(client_train=torch.tensor([0, 0, 1]), class_names=("a", "b", "c"))
    moved = data.to("cpu")
    assert moved.class_names == data.class_names
    assert moved.num_classes == 3
    assert moved.client_train is not None
    assert moved.client_train.tolist() == [0, 0, 1]


def test_names() -> None:
    assert {"synthetic", "digits"} <= set(DATASETS)
    assert set(USUAL) <= set(DATASETS)
    with pytest.raises(ValueError, match="unknown dataset 'digit': did you mean digits"):
        load_dataset("digit", 0, 2)


def test_a_users_data_set() -> None:
    assert load_dataset(f"{OWN}:ragged_digits", 0, 4).name == "ragged"
    assert load_dataset(f"{OWN}:seed_scaled_digits", 3, 4).mean == (3.0,)
    with pytest.raises(ValueError, match="has no argument seed"):
        load_dataset(f"{OWN}:seed_scaled_digits,seed=3", 3, 4)
    with pytest.raises(ValueError, match="needs input_shape"):
        load_dataset(f"{OWN}:plain", 0, 4)

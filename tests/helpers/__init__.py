"""What several tests share."""

from pathlib import Path

import torch
from torch import Tensor

from fedskew.core.tree import Params
from fedskew.models import Model

OWN = Path(__file__).parent / "own.py"
"""A user's file: data sets and models for specs such as `{OWN}:ragged_digits`."""

FLOAT64 = torch.float64


def normal(generator: torch.Generator, *shape: int, dtype: torch.dtype = FLOAT64) -> Tensor:
    return torch.randn(*shape, generator=generator, dtype=dtype)


def integers(generator: torch.Generator, low: int, high: int, *shape: int) -> Tensor:
    return torch.randint(low, high, shape, generator=generator)


def assert_close(actual: Tensor, expected: Tensor, rtol: float = 1e-12, atol: float = 1e-12) -> None:
    torch.testing.assert_close(actual, expected, rtol=rtol, atol=atol)


def assert_trees_close(actual: Params, expected: Params, rtol: float = 1e-12, atol: float = 1e-12) -> None:
    assert list(actual) == list(expected)
    for name, leaf in actual.items():
        torch.testing.assert_close(leaf, expected[name], rtol=rtol, atol=atol, msg=lambda m, name=name: f"{name}: {m}")


def apply(
    model: Model, params: Params, buffers: Params, x: Tensor, mask: Tensor | None = None, *, train: bool
) -> tuple[Tensor, Params]:
    """A model's logits, and its buffers after the pass."""
    outputs, after = model.apply(params, buffers, x, mask, train=train)
    return outputs.logits, after


def clones(tree: Params) -> Params:
    return {name: leaf.clone() for name, leaf in tree.items()}


def assert_trees_equal(actual: Params, expected: Params) -> None:
    assert list(actual) == list(expected)
    for name, leaf in actual.items():
        assert torch.equal(leaf, expected[name]), name

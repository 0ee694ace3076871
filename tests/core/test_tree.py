"""Arithmetic on trees against plain tensors."""

import math

import numpy as np
import pytest
import torch

from fedskew.core import tree
from fedskew.core.tree import Params
from tests.helpers import assert_close, assert_trees_equal, normal


@pytest.fixture
def a(generator: torch.Generator) -> Params:
    return {"w": normal(generator, 3, 4, 2), "b": normal(generator, 3, 5), "s": normal(generator, 3)}


@pytest.fixture
def b(generator: torch.Generator, a: Params) -> Params:
    return {name: normal(generator, *leaf.shape) for name, leaf in reversed(a.items())}


def test_leaf_by_leaf(a: Params, b: Params) -> None:
    """Leaves are matched by name, not by order, and the first tree's order is kept."""
    for result, expected in (
        (tree.add(a, b), {n: a[n] + b[n] for n in a}),
        (tree.sub(a, b), {n: a[n] - b[n] for n in a}),
        (tree.neg(a), {n: -a[n] for n in a}),
        (tree.zeros_like(a), {n: torch.zeros_like(a[n]) for n in a}),
        (tree.map(lambda x, y, z: x * y - z, a, b, a), {n: a[n] * b[n] - a[n] for n in a}),
        (tree.rows(a, 1), {n: a[n][1] for n in a}),
        (tree.rows(a, slice(1, None)), {n: a[n][1:] for n in a}),
        (tree.rows(a, torch.tensor([2, 0])), {n: a[n][[2, 0]] for n in a}),
    ):
        assert_trees_equal(result, expected)


def test_lead_broadcasts_over_the_trailing_axes() -> None:
    vector = torch.tensor([1.0, 2.0], dtype=torch.float64)
    leaf = torch.ones(2, 3, 4, dtype=torch.float32)
    shaped = tree.lead(vector, leaf)
    assert shaped.shape == (2, 1, 1)
    assert shaped.dtype == torch.float32
    assert (leaf * shaped)[1, 2, 3] == 2.0
    assert tree.lead(torch.ones(2, 3), leaf).shape == (2, 3, 1)
    assert tree.lead(torch.tensor(5.0), leaf).shape == (1, 1, 1)


def test_divide_by_a_number_per_client(a: Params) -> None:
    vector = torch.tensor([1.0, 2.0, 4.0], dtype=torch.float64)
    quotient = tree.divide(a, vector)
    for name, leaf in a.items():
        for k in range(3):
            assert torch.equal(quotient[name][k], leaf[k] / 2**k)


def test_weighted_sum(a: Params) -> None:
    coefficients = torch.tensor([0.2, -1.0, 3.0], dtype=torch.float64)
    total = tree.weighted_sum(a, coefficients)
    for name, leaf in a.items():
        assert_close(total[name], 0.2 * leaf[0] - leaf[1] + 3.0 * leaf[2])


def test_weighted_sum_keeps_the_type_of_real_numbers() -> None:
    a = {"w": torch.ones(3, 2, dtype=torch.float32), "n": torch.tensor([3, 5, 5])}
    total = tree.weighted_sum(a, torch.full((3,), 1 / 3, dtype=torch.float64))
    assert total["w"].dtype == torch.float32
    assert total["n"].dtype == torch.float64
    assert total["n"].item() == pytest.approx(13 / 3)


def test_large_counters_are_summed_exactly() -> None:
    a = {"n": torch.tensor([2**24 + 1, 2**24 + 1])}
    assert tree.weighted_sum(a, torch.tensor([0.5, 0.5]))["n"] == 2**24 + 1


@pytest.mark.parametrize("axes", [0, 1])
def test_norm(a: Params, axes: int) -> None:
    norm = tree.norm(a, axes)
    flat = torch.cat([leaf.reshape(3, -1) for leaf in a.values()], 1)
    expected = flat.square().sum().sqrt() if axes == 0 else flat.square().sum(1).sqrt()
    assert_close(norm, expected)


def test_norm_over_two_leading_axes(generator: torch.Generator) -> None:
    a = {"w": normal(generator, 2, 3, 4), "s": normal(generator, 2, 3)}
    norm = tree.norm(a, 2)
    assert norm.shape == (2, 3)
    assert norm[1, 2].item() == pytest.approx(math.sqrt((a["w"][1, 2] ** 2).sum() + a["s"][1, 2] ** 2))


def test_stack_and_concatenate(a: Params, b: Params) -> None:
    stacked, joined = tree.stack([a, b]), tree.concatenate([a, b])
    for name in a:
        assert torch.equal(stacked[name][0], a[name])
        assert torch.equal(stacked[name][1], b[name])
        assert torch.equal(joined[name][:3], a[name])
        assert torch.equal(joined[name][3:], b[name])
    assert tree.stack([{}, {}]) == {}


def test_prefixes_come_off_again(a: Params, b: Params) -> None:
    both = tree.prefix(a, "m") | tree.prefix(b, "mm")
    assert set(both) == {"m/w", "m/b", "m/s", "mm/w", "mm/b", "mm/s"}
    assert_trees_equal(tree.unprefix(both, "m"), a)
    assert_trees_equal(tree.unprefix(both, "mm"), b)
    assert tree.unprefix(both, "v") == {}


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
def test_finite(a: Params, bad: float) -> None:
    a["n"] = torch.tensor([1, 2])
    assert tree.finite(a)
    a["b"][1, 3] = bad
    assert not tree.finite(a)


def test_nbytes() -> None:
    a = {"w": torch.zeros(3, 4, dtype=torch.float64), "n": torch.zeros(5, dtype=torch.int16)}
    assert tree.nbytes([a, a]) == 2 * (96 + 10)


def test_an_empty_array_of_numpy_has_the_digest_of_an_empty_tensor() -> None:
    empty = torch.from_numpy(np.zeros(0, dtype=np.int64))
    assert tree.digest({"a": empty}) == tree.digest({"a": torch.zeros(0, dtype=torch.int64)})


def test_numbers_that_are_not_finite_may_only_stay_as_they_were() -> None:
    like = {"mask": torch.tensor([0.0, -torch.inf]), "count": torch.tensor(3)}
    same = {"mask": torch.tensor([1.0, -torch.inf]), "count": torch.tensor(4)}
    assert tree.as_finite(same, like)
    for other in (torch.nan, torch.inf):
        assert not tree.as_finite({"mask": torch.tensor([0.0, other])}, like)
        assert not tree.as_finite({"mask": torch.tensor([other, -torch.inf])}, like)

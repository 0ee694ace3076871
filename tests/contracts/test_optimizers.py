"""What every optimiser must do."""

import dataclasses

import pytest
import torch

from fedskew.core import tree
from fedskew.core.tree import Params
from fedskew.optimizers import Optimizer
from tests.helpers import assert_trees_close, assert_trees_equal, clones, normal
from tests.helpers.parts import OPTIMIZERS

EVERY = pytest.mark.parametrize("part", OPTIMIZERS.values(), ids=OPTIMIZERS)


def params(generator: torch.Generator, *lead: int, dtype: torch.dtype = torch.float64) -> Params:
    return {"w": normal(generator, *lead, 3, 2, dtype=dtype), "b": normal(generator, *lead, 4, dtype=dtype)}


def walk(part: Optimizer, start: Params, gradients: list[Params]) -> tuple[Params, Params]:
    state = part.init(start)
    for grads in gradients:
        updates, state = part.update(grads, state, start, part.lr)
        start = tree.add(start, updates)
    return start, state


@EVERY
def test_the_rate_scales_a_step(part: Optimizer, generator: torch.Generator) -> None:
    """A number or a tensor in fixed memory alike."""
    start, grads = params(generator), params(generator)
    first = part.init(start)
    once, _ = part.update(grads, first, start, part.lr)
    twice, _ = part.update(grads, first, start, torch.tensor(2 * part.lr, dtype=torch.float64))
    assert_trees_close(twice, tree.add(once, once))


@EVERY
def test_what_is_sent_out_looks_like_the_model(part: Optimizer, generator: torch.Generator) -> None:
    start = params(generator)
    fresh = part.look(start, part.init(start))
    assert_trees_equal(fresh, start)
    later = part.look(start, tree.map(lambda leaf: leaf + 1, part.init(start)))
    assert [(name, leaf.shape) for name, leaf in later.items()] == [(n, leaf.shape) for n, leaf in start.items()]


@EVERY
def test_leading_axes_are_free(part: Optimizer, generator: torch.Generator) -> None:
    start, gradients = params(generator, 2, 3), [params(generator, 2, 3) for _ in range(3)]
    end, state = walk(part, start, gradients)
    for s in range(2):
        for k in range(3):
            one = [tree.rows(tree.rows(g, s), k) for g in gradients]
            alone, own = walk(part, tree.rows(tree.rows(start, s), k), one)
            assert_trees_close(alone, tree.rows(tree.rows(end, s), k))
            assert_trees_close(own, tree.rows(tree.rows(state, s), k))


@EVERY
def test_pure(part: Optimizer, generator: torch.Generator) -> None:
    start, grads = params(generator), params(generator)
    _, state = part.update(grads, part.init(start), start, part.lr)
    before = [clones(one) for one in (start, grads, state)]
    first, second = part.update(grads, state, start, part.lr), part.update(grads, state, start, part.lr)
    for one, copy in zip((start, grads, state), before, strict=True):
        assert_trees_equal(one, copy)
    for a, b in zip(first, second, strict=True):
        assert_trees_equal(a, b)


@EVERY
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_the_type_is_kept(part: Optimizer, dtype: torch.dtype, generator: torch.Generator) -> None:
    start = params(generator, dtype=dtype)
    end, state = walk(part, start, [params(generator, dtype=dtype) for _ in range(2)])
    assert all(leaf.dtype == dtype for leaf in [*end.values(), *state.values()])


@EVERY
@pytest.mark.parametrize("scale", [0.0, 1e-20, 1e4])
def test_finite(part: Optimizer, scale: float, generator: torch.Generator) -> None:
    start = params(generator, dtype=torch.float32)
    gradients = [tree.map(lambda g: g * scale, params(generator, dtype=torch.float32)) for _ in range(20)]
    end, state = walk(part, start, gradients)
    assert tree.finite(end)
    assert tree.finite(state)


@EVERY
def test_trees_keep_their_names(part: Optimizer, generator: torch.Generator) -> None:
    start, grads = params(generator), params(generator)
    first = part.init(start)
    updates, state = part.update(grads, first, start, part.lr)
    assert list(updates) == list(start)
    assert list(state) == list(first)
    assert all(updates[name].shape == leaf.shape for name, leaf in start.items())
    assert all(state[name].shape == leaf.shape for name, leaf in first.items())


@EVERY
def test_a_step_goes_downhill(part: Optimizer, generator: torch.Generator) -> None:
    start, grads = tree.zeros_like(params(generator)), params(generator)
    updates, _ = part.update(grads, part.init(start), start, part.lr)
    assert all((updates[name] * grads[name] < 0).all() for name in grads)


@EVERY
def test_hashable_and_equal_by_value(part: Optimizer) -> None:
    twin = dataclasses.replace(part)  # type: ignore[type-var]
    assert twin == part
    assert hash(twin) == hash(part)


def test_optimizers_with_other_arguments_are_other_optimizers() -> None:
    assert len(set(OPTIMIZERS.values())) == len(OPTIMIZERS)

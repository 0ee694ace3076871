"""What every correction must do."""

import dataclasses
import inspect
from dataclasses import replace

import pytest
import torch
from torch import Tensor

from fedskew import corrections
from fedskew.core import tree
from fedskew.core.round import Context, Sums, take
from fedskew.core.tree import Params
from fedskew.corrections import Correction
from tests.helpers import assert_trees_close, assert_trees_equal, clones, normal
from tests.helpers.parts import CORRECTIONS, METHODS

EVERY = pytest.mark.parametrize("part", CORRECTIONS.values(), ids=CORRECTIONS)
FLOATS = pytest.mark.parametrize("dtype", [torch.float32, torch.float64])


def params(generator: torch.Generator, *lead: int, dtype: torch.dtype = torch.float64) -> Params:
    shapes = {"body": (3, 2), "bias": (4,), "classifier": (2, 4)}
    return {name: normal(generator, *lead, *shape, dtype=dtype) for name, shape in shapes.items()}


def noise(generator: torch.Generator, like: Params) -> Params:
    return tree.map(lambda leaf: normal(generator, *leaf.shape, dtype=leaf.dtype), like)


def context(part: Correction, generator: torch.Generator, *lead: int, dtype: torch.dtype = torch.float64) -> Context:
    """A client's, or several clients', in the middle of training."""
    anchor = params(generator, *lead, dtype=dtype)
    client, server = noise(generator, part.client_state(anchor)), noise(generator, part.server_state(anchor))
    travel = 1 + torch.rand(lead, generator=generator, dtype=torch.float64)
    return Context(anchor, {}, client, server, torch.ones(*lead, 2), travel)


def sums(part: Correction, seen: Context, delta: Params, shares: Tensor) -> Sums:
    """What a cohort of clients leaves for the server."""
    delta, _, message = part.finish(seen, delta)
    travel = (seen.travel * shares).sum()
    return Sums(tree.weighted_sum(delta, shares), {}, tree.weighted_sum(message, shares), travel, *torch.zeros(2))


def test_no_correction_is_left_out() -> None:
    exported = {getattr(corrections, name) for name in corrections.__all__} - {Correction}
    known = {type(part) for part in CORRECTIONS.values()} | {type(a) for m in METHODS.values() for a in m.ascents}
    assert {part for part in exported if inspect.isclass(part)} <= known


@EVERY
def test_leading_axes_are_free(part: Correction, generator: torch.Generator) -> None:
    """[K, ...] equals a loop; the server's state and the anchor may broadcast from [1, ...]."""
    grads, here, delta = (params(generator, 3) for _ in range(3))
    seen = context(part, generator, 3)
    shared = replace(seen, anchor=tree.rows(seen.anchor, slice(1)), server=tree.rows(seen.server, slice(1)))
    bent, left = part.bend(grads, here, shared), part.finish(shared, delta)
    for k in range(3):
        alone = replace(take(seen, k), anchor=tree.rows(seen.anchor, 0), server=tree.rows(seen.server, 0))
        assert_trees_close(part.bend(tree.rows(grads, k), tree.rows(here, k), alone), tree.rows(bent, k))
        for one, all_ in zip(part.finish(alone, tree.rows(delta, k)), left, strict=True):
            assert_trees_close(one, tree.rows(all_, k))


@EVERY
def test_pure(part: Correction, generator: torch.Generator) -> None:
    grads, here, delta = (params(generator, 3) for _ in range(3))
    seen, server = context(part, generator, 3), noise(generator, part.server_state(tree.rows(here, 0)))
    given = [grads, here, delta, seen.anchor, seen.client, seen.server, server]
    before = [clones(one) for one in given]
    part.client_state(here)
    part.bend(grads, here, seen)
    part.shift(part.absorb(server, sums(part, seen, delta, torch.full((3,), 1 / 3)), 0.3))
    for one, copy in zip(given, before, strict=True):
        assert_trees_equal(one, copy)


@EVERY
@FLOATS
def test_the_type_is_kept(part: Correction, dtype: torch.dtype, generator: torch.Generator) -> None:
    """Also where travel is float64."""
    grads, here, delta = (params(generator, 3, dtype=dtype) for _ in range(3))
    seen = context(part, generator, 3, dtype=dtype)
    server = noise(generator, part.server_state(tree.rows(here, 0)))
    absorbed = part.absorb(server, sums(part, seen, delta, torch.full((3,), 1 / 3, dtype=torch.float64)), 0.3)
    for made in (part.bend(grads, here, seen), *part.finish(seen, delta), absorbed, part.shift(absorbed)):
        assert all(leaf.dtype == dtype for leaf in made.values())
        assert tree.finite(made)


@EVERY
def test_trees_keep_their_names_and_shapes(part: Correction, generator: torch.Generator) -> None:
    grads, here, delta = (params(generator, 3) for _ in range(3))
    seen, server = context(part, generator, 3), noise(generator, part.server_state(tree.rows(here, 0)))
    left, client, _ = part.finish(seen, delta)
    absorbed = part.absorb(server, sums(part, seen, delta, torch.full((3,), 1 / 3)), 0.3)
    shift = part.shift(absorbed)
    pairs = [(part.bend(grads, here, seen), grads), (left, delta), (client, seen.client), (absorbed, server)]
    for made, like in [*pairs, *([(shift, tree.rows(here, 0))] if shift else [])]:
        assert list(made) == list(like)
        assert all(leaf.shape == like[name].shape for name, leaf in made.items())


@EVERY
def test_a_message_says_what_it_reveals(part: Correction, generator: torch.Generator) -> None:
    _, _, message = part.finish(context(part, generator, 3), params(generator, 3))
    assert bool(message) == bool(part.reveals)


@EVERY
def test_weights_of_messages_are_weights(part: Correction) -> None:
    weights = torch.tensor([3.0, 1.0, 6.0], dtype=torch.float64)
    given = part.weigh(weights)
    assert given.shape == weights.shape
    assert (given > 0).all()


@EVERY
def test_hashable_and_equal_by_value(part: Correction) -> None:
    twin = dataclasses.replace(part)
    assert twin == part
    assert hash(twin) == hash(part)
    assert len(set(CORRECTIONS.values())) == len(CORRECTIONS)

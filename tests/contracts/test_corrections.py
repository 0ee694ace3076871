"""What every correction must do."""

import dataclasses

import pytest
import torch
from torch import Tensor

from fedskew import corrections, tree
from fedskew.corrections import Correction
from fedskew.tree import Params
from tests.helpers import assert_trees_close, assert_trees_equal, clones, normal
from tests.helpers.parts import CORRECTIONS

EVERY = pytest.mark.parametrize("part", CORRECTIONS.values(), ids=CORRECTIONS)
FLOATS = pytest.mark.parametrize("dtype", [torch.float32, torch.float64])


def params(generator: torch.Generator, *lead: int, dtype: torch.dtype = torch.float64) -> Params:
    return {"w": normal(generator, *lead, 3, 2, dtype=dtype), "b": normal(generator, *lead, 4, dtype=dtype)}


def state(part: Correction, generator: torch.Generator, like: Params) -> Params:
    return tree.map(lambda leaf: normal(generator, *leaf.shape, dtype=leaf.dtype), part.init(like))


def travels(*lead: int) -> Tensor:
    count = int(torch.tensor(lead).prod()) if lead else 1
    return torch.arange(1, count + 1, dtype=torch.float64).reshape(lead)


def test_no_correction_is_left_out() -> None:
    assert {name.split("-")[0] for name in CORRECTIONS} == set(corrections.__all__) - {"Correction"}


@EVERY
def test_leading_axes_are_free(part: Correction, generator: torch.Generator) -> None:
    """[S, K, ...] equals a loop; the server's state and the anchor may broadcast from [S, 1, ...]."""
    grads, here, delta = (params(generator, 2, 3) for _ in range(3))
    anchor = params(generator, 2, 1)
    client, server = state(part, generator, here), state(part, generator, anchor)
    bent = part.grad(grads, here, anchor, client, server)
    new, message = part.finish(client, server, delta, travels(2, 3))
    for s in range(2):
        for k in range(3):
            grads_, here_, delta_, client_ = (tree.rows(tree.rows(one, s), k) for one in (grads, here, delta, client))
            anchor_, server_ = (tree.rows(tree.rows(one, s), 0) for one in (anchor, server))
            assert_trees_close(part.grad(grads_, here_, anchor_, client_, server_), tree.rows(tree.rows(bent, s), k))
            new_, message_ = part.finish(client_, server_, delta_, travels(2, 3)[s, k])
            assert_trees_close(new_, tree.rows(tree.rows(new, s), k))
            assert_trees_close(message_, tree.rows(tree.rows(message, s), k))


@EVERY
def test_pure(part: Correction, generator: torch.Generator) -> None:
    grads, here, anchor, delta = (params(generator, 3) for _ in range(4))
    client, server = state(part, generator, here), state(part, generator, tree.rows(here, 0))
    given = [grads, here, anchor, delta, client, server]
    before = [clones(one) for one in given]
    part.init(here)
    part.grad(grads, here, anchor, client, server)
    _, message = part.finish(client, server, delta, travels(3))
    part.absorb(server, message, 0.3)
    for one, copy in zip(given, before, strict=True):
        assert_trees_equal(one, copy)


@EVERY
@FLOATS
def test_the_type_is_kept(part: Correction, dtype: torch.dtype, generator: torch.Generator) -> None:
    """Also where travel is float64."""
    grads, here, anchor, delta = (params(generator, 3, dtype=dtype) for _ in range(4))
    client, server = state(part, generator, here), state(part, generator, tree.rows(here, 0))
    new, message = part.finish(client, server, delta, travels(3))
    absorbed = part.absorb(server, message, 0.3)
    bent = part.grad(grads, here, anchor, client, server)
    for made in (bent, new, message, absorbed, part.init(here)):
        assert all(leaf.dtype == dtype for leaf in made.values())
        assert tree.finite(made)


@EVERY
def test_trees_keep_their_names(part: Correction, generator: torch.Generator) -> None:
    grads, here, anchor, delta = (params(generator, 3) for _ in range(4))
    first = part.init(here)
    client, server = state(part, generator, here), state(part, generator, tree.rows(here, 0))
    assert list(part.grad(grads, here, anchor, client, server)) == list(grads)
    new, message = part.finish(client, server, delta, travels(3))
    assert list(new) == list(first)
    assert all(leaf.shape == first[name].shape for name, leaf in new.items())
    absorbed = part.absorb(server, message, 0.3)
    assert list(absorbed) == list(first)
    assert all(leaf.shape == server[name].shape for name, leaf in absorbed.items())


@EVERY
def test_the_first_gradient_is_unchanged(part: Correction, generator: torch.Generator) -> None:
    """At the global model, with fresh states, every method's gradient is FedAvg's."""
    grads, here = params(generator), params(generator)
    fresh = part.init(here)
    assert_trees_equal(part.grad(grads, here, here, fresh, fresh), grads)


@EVERY
def test_absorb_ignores_the_order_of_clients(part: Correction, generator: torch.Generator) -> None:
    delta, here = params(generator, 3), params(generator, 3)
    client, server = state(part, generator, here), state(part, generator, tree.rows(here, 0))
    _, message = part.finish(client, server, delta, travels(3))
    turned = tree.rows(message, torch.tensor([2, 0, 1]))
    assert_trees_close(part.absorb(server, turned, 0.3), part.absorb(server, message, 0.3))


@EVERY
def test_absorb_needs_no_more_than_the_mean(part: Correction, generator: torch.Generator) -> None:
    """So a cohort can be split over machines, which add up means."""
    delta, here = params(generator, 3), params(generator, 3)
    client, server = state(part, generator, here), state(part, generator, tree.rows(here, 0))
    _, message = part.finish(client, server, delta, travels(3))
    mean = tree.map(lambda leaf: leaf.mean(0, keepdim=True), message)
    assert_trees_close(part.absorb(server, mean, 0.3), part.absorb(server, message, 0.3))


@EVERY
def test_frozen_hashable_equal(part: Correction) -> None:
    twin = dataclasses.replace(part)  # type: ignore[type-var]
    assert twin == part
    assert hash(twin) == hash(part)
    assert isinstance(part.needs_travel, bool)
    with pytest.raises(dataclasses.FrozenInstanceError):
        part.mu = 0.5  # type: ignore[attr-defined]


def test_corrections_with_other_arguments_are_other_corrections() -> None:
    assert len(set(CORRECTIONS.values())) == len(CORRECTIONS)

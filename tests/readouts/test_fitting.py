import math

import pytest
import torch
from torch.nn import functional

from fedskew.core.reading import client_gradient
from fedskew.readouts import Fewer, as_trained, fitted

CLASSES, FEATURES, EXAMPLES = 4, 6, 80


def drawn(seed=0):
    numbers = torch.Generator().manual_seed(seed)
    known = torch.randn(EXAMPLES, FEATURES, generator=numbers, dtype=torch.float64)
    labels = torch.randint(0, CLASSES, (EXAMPLES,), generator=numbers)
    weight = torch.randn(CLASSES, FEATURES, generator=numbers, dtype=torch.float64)
    return known, labels, weight, torch.randn(CLASSES, generator=numbers, dtype=torch.float64)


def asking(known, labels, asked):
    def ask(weight, bias):
        asked.append((weight, bias))
        return tuple(part / len(labels) for part in client_gradient(known, labels, weight, bias))

    return ask


def test_a_clients_gradient_is_that_of_cross_entropy():
    known, labels, weight, bias = drawn()
    leaves = weight.clone().requires_grad_(), bias.clone().requires_grad_()
    loss = functional.cross_entropy(known @ leaves[0].mT + leaves[1], labels, reduction="sum")
    by_weight, by_bias = torch.autograd.grad(loss, leaves)
    found = client_gradient(known, labels, weight, bias)
    for ours, theirs in zip(found, (loss.detach(), by_weight, by_bias), strict=True):
        torch.testing.assert_close(ours, theirs)


def test_the_clients_sums_are_those_of_all_examples():
    known, labels, weight, bias = drawn()
    parts = [slice(0, 11), slice(11, 12), slice(12, None)]
    sums = [client_gradient(known[part], labels[part], weight, bias) for part in parts]
    for added, whole in zip(zip(*sums, strict=True), client_gradient(known, labels, weight, bias), strict=True):
        torch.testing.assert_close(sum(added), whole)


@pytest.mark.parametrize("pull", [0.01, 1.0])
def test_the_minimum_has_no_slope(pull):
    """At the minimum, the gradient of the mean loss is -pull (layer - trained layer)."""
    known, labels, weight, bias = drawn()
    found = fitted(asks=500, pull=pull).fit(weight, bias, asking(known, labels, []))
    _, by_weight, by_bias = asking(known, labels, [])(*found)
    torch.testing.assert_close(by_weight, -pull * (found[0] - weight), atol=1e-4, rtol=0)
    torch.testing.assert_close(by_bias, -pull * (found[1] - bias), atol=1e-4, rtol=0)


@pytest.mark.parametrize("asks", [2, 3, 7])
def test_clients_are_not_asked_more_often_than_allowed(asks):
    known, labels, weight, bias = drawn()
    asked: list = []
    found = fitted(asks=asks, pull=0.0).fit(weight, bias, asking(known, labels, asked))
    assert len(asked) == asks
    torch.testing.assert_close(asked[0], (weight, bias))  # it starts at the trained layer
    loss = functional.cross_entropy(known @ found[0].mT + found[1], labels)
    assert loss <= functional.cross_entropy(known @ weight.mT + bias, labels)


def losing(known, labels, asked, lost_at):
    """Some examples are lost at the asks of these numbers, and stay lost."""
    left = [len(labels)]

    def ask(weight, bias):
        asked.append((weight, bias))
        if len(asked) in lost_at:
            left[0] -= 20
            raise Fewer
        return asking(known[: left[0]], labels[: left[0]], [])(weight, bias)

    return ask


def objective(layer, trained, known, labels, pull):
    away = sum(((a - b) ** 2).sum() for a, b in zip(layer, trained, strict=True))
    return functional.cross_entropy(known @ layer[0].mT + layer[1], labels) + pull / 2 * away


@pytest.mark.parametrize("lost_at", [{1}, {5}, {5, 6, 9}])
def test_a_fit_goes_on_without_lost_clients_from_the_best_layer(lost_at):
    known, labels, weight, bias = drawn()
    asked: list = []
    found = fitted(asks=500, pull=0.1).fit(weight, bias, losing(known, labels, asked, lost_at))
    left = EXAMPLES - 20 * len(lost_at)
    expected = fitted(asks=500, pull=0.1).fit(weight, bias, asking(known[:left], labels[:left], []))
    torch.testing.assert_close(found, expected, atol=1e-4, rtol=0)
    first = min(lost_at)
    before = [(weight, bias), *asked[: first - 1]]
    best = min(before, key=lambda layer: objective(layer, (weight, bias), known, labels, 0.1))
    torch.testing.assert_close(asked[first], best)


def test_if_no_ask_is_left_the_best_layer_so_far_is_kept():
    known, labels, weight, bias = drawn()
    asked: list = []
    found = fitted(asks=7, pull=0.0).fit(weight, bias, losing(known, labels, asked, {7}))
    assert len(asked) == 7
    best = min(asked[:6], key=lambda layer: objective(layer, (weight, bias), known, labels, 0.0))
    torch.testing.assert_close(found, best)
    assert not torch.equal(found[0], weight)


def test_a_fit_of_which_every_ask_fails_ends_with_the_trained_layer():
    _, _, weight, bias = drawn()
    asked: list = []

    def ask(*layer):
        asked.append(layer)
        raise Fewer

    assert all(map(torch.equal, fitted(asks=9, pull=0.1).fit(weight, bias, ask), (weight, bias)))
    assert len(asked) == 9


def test_as_trained_asks_nobody():
    _, _, weight, bias = drawn()

    def ask(weight, bias):
        raise AssertionError

    assert as_trained().asks == 0
    assert as_trained().fit(weight, bias, ask) == (weight, bias)


@pytest.mark.parametrize(
    ("asks", "pull", "named"), [(1, 0.0, "asks is 1"), (5, -1.0, "pull is -1"), (5, math.nan, "pull")]
)
def test_a_bad_knob_is_named(asks, pull, named):
    with pytest.raises(ValueError, match=named):
        fitted(asks, pull)

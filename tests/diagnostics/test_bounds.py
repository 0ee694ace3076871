import math

import pytest
import torch

from fedskew.diagnostics.bounds import (
    class_means,
    deviation_bound,
    factored_bound,
    printed_shares,
    probabilities,
    slopes,
    step_scores,
)
from fedskew.diagnostics.pairwise_margins import offsets, pairwise_margins
from fedskew.losses import adjusted, calibrated, cross_entropy, restricted
from tests.helpers import FLOAT64, assert_close, normal

FEATURES = torch.tensor([[2.0, 0.0], [1.0, 1.0], [0.0, 3.0]], dtype=FLOAT64)
SHARES = torch.tensor([[0.8, 0.1, 0.1], [0.3, 0.5, 0.2], [0.25, 0.25, 0.5]], dtype=FLOAT64)


def test_the_bound_by_hand():
    """j = 0, r = 1: (1 - 0.5) 2 / (0.1 * 2) = 5; j = 2, r = 1: 0.5 * 2 / (0.25 * 3) = 4/3; j = 1, r = 0: 0.2 * 4 /
    (0.3 * 2) = 4/3; j = 1, r = 2: 0.5 * 9 / (0.2 * 3) = 7.5. Classes 0 and 2 have orthogonal means."""
    bound = deviation_bound(FEATURES, SHARES)
    assert bound[0, 1].item() == pytest.approx(5)
    assert bound[2, 1].item() == pytest.approx(4 / 3)
    assert bound[1, 0].item() == pytest.approx(4 / 3)
    assert bound[1, 2].item() == pytest.approx(7.5)
    assert bound[0, 2].item() == bound[2, 0].item() == math.inf


def test_its_two_printed_forms_agree():
    assert_close(deviation_bound(FEATURES, SHARES), factored_bound(FEATURES, SHARES, torch.ones(3, 3, dtype=FLOAT64)))


def example(generator):
    counts = torch.tensor([40, 5, 0, 15])
    labels = torch.repeat_interleave(torch.arange(4), torch.tensor([40, 5, 7, 15]))
    return counts, labels, normal(generator, len(labels), 4) * 2, normal(generator, len(labels), 3).abs()


def test_theorem_3_is_the_softmax_of_the_calibrated_loss_with_an_exponential_in_it(generator):
    counts, labels, logits, values = example(generator)
    h, tau = class_means(values, labels, 4), 3.0
    exact = probabilities(calibrated(tau), logits, counts)
    printed = class_means(printed_shares(logits, offsets(counts, tau)), labels, 4)
    delta = pairwise_margins(counts, tau)
    assert_close(deviation_bound(h, class_means(exact, labels, 4)), factored_bound(h, printed, delta.exp()), rtol=1e-10)
    literal = factored_bound(h, printed, delta)
    assert (literal[:, 0] < 0).all()  # the most frequent class
    assert not factored_bound(h, printed, 0 * delta).any()  # tau = 0


def test_theorem_3_as_printed_term_by_term(generator):
    counts, labels, logits, values = example(generator)
    h, tau, j, r = class_means(values, labels, 4), 3.0, 0, 1
    n = [max(1, c) for c in counts.tolist()]
    below = sum((logits[:, i] - tau * n[i] ** -0.25).exp() for i in range(4))
    p = [[(logits[:, y].exp() / below)[labels == c].mean() for y in range(4)] for c in range(4)]
    terms = [tau * (n[r] ** -0.25 - n[y] ** -0.25) * p[r][y] * h[r].dot(h[r]) for y in (0, 2, 3)]
    shares = class_means(printed_shares(logits, offsets(counts, tau)), labels, 4)
    ours = factored_bound(h, shares, pairwise_margins(counts, tau))[j, r]
    assert_close(ours, sum(terms) / (p[j][r] * h[r].dot(h[j])), rtol=1e-10)


@pytest.mark.parametrize(
    "loss", [cross_entropy, calibrated(2.0), calibrated(2.0, "mask"), adjusted(), restricted(), restricted(0.0)]
)
def test_probabilities_are_read_off_any_softmax_loss(loss, generator):
    counts, _, logits, _ = example(generator)
    shares = probabilities(loss, logits, counts)
    assert_close(shares.sum(-1), torch.ones(len(logits), dtype=FLOAT64))
    if loss is cross_entropy:
        assert_close(shares, logits.softmax(-1))
    if loss == calibrated(2.0, "mask"):
        assert not shares[:, 2].any()


def test_a_loss_without_a_softmax_has_none(generator):
    counts, _, logits, _ = example(generator)
    assert probabilities(calibrated(2.0, denominator="others"), logits, counts) is None


@pytest.mark.parametrize(
    "loss", [cross_entropy, calibrated(2.0), adjusted(), restricted(), restricted(0.0), restricted(0.3, "proportional")]
)
def test_a_step_is_the_gradient_of_the_mean_loss(loss, generator):
    counts, labels, _, values = example(generator)
    weight = normal(generator, 4, 3).requires_grad_()
    logits = values @ weight.T
    (grad,) = torch.autograd.grad(loss(logits, labels, counts).mean(), weight)
    h = class_means(values, labels, 4)
    shares = probabilities(loss, logits.detach(), counts)
    assert_close(step_scores(values, shares, labels, h, slopes(loss, counts)), -grad @ h.T)


def test_slopes():
    counts = torch.tensor([40, 5, 0, 15])
    assert_close(slopes(restricted(0.5), counts), torch.tensor([1.0, 1.0, 0.5, 1.0], dtype=FLOAT64))
    assert_close(slopes(calibrated(2.0, "mask"), counts), torch.tensor([1.0, 1.0, 0.0, 1.0], dtype=FLOAT64))
    assert_close(slopes(cross_entropy, torch.tensor([3])), torch.zeros(1, dtype=FLOAT64))


def test_means_of_a_class_that_is_not_there():
    means = class_means(torch.tensor([[1.0], [3.0]]), torch.tensor([2, 2]), 3)
    assert means[2].item() == 2
    assert means[:2].isnan().all()

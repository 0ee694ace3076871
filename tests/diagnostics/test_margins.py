import json
import math

import pytest
import torch

from fedskew import Run
from fedskew.diagnostics.observing import observe
from fedskew.diagnostics.pairwise_margins import (
    bound_terms,
    class_margins,
    example_margins,
    margins,
    offsets,
    pairwise_margins,
)
from fedskew.simulation.simulation import Simulation

LOGITS = torch.tensor([[3.0, 1.0, 0.0], [2.0, 0.0, 1.5], [0.0, 4.0, 1.0], [1.0, 0.5, 0.0]], dtype=torch.float64)
LABELS = torch.tensor([0, 0, 1, 1])


def test_margins_by_hand():
    assert example_margins(LOGITS, LABELS).tolist() == [2.0, 0.5, 3.0, -0.5]
    found = class_margins(LOGITS, LABELS, 3)
    assert found["minimum"][:2].tolist() == [0.5, -0.5]
    assert found["mean"][:2].tolist() == [1.25, 1.25]
    assert found["minimum"][2].isnan()


def test_the_bound_by_hand():
    """d = (0.5, 2), n = (16, 25): 1 / (0.5 * 4) + 1 / (2 * 5) = 0.6."""
    terms = bound_terms(torch.tensor([0.5, 2.0, -1.0, 3.0]), torch.tensor([16, 25, 9, 0]))
    assert terms[:2].tolist() == [0.5, pytest.approx(0.1)]
    assert terms[2:].isnan().all()
    assert (terms[0] + terms[1]).item() == pytest.approx(0.6)


def test_optimal_margins_by_hand():
    """n = (16, 1, 0) and tau = 2: n^(-1/4) = (1/2, 1, 1 for a missing class)."""
    expected = [[0.0, -1.0, -1.0], [1.0, 0.0, 0.0], [1.0, 0.0, 0.0]]
    assert pairwise_margins(torch.tensor([16, 1, 0]), 2.0).tolist() == expected


def test_margins_in_the_ratio_of_the_offsets_minimise_the_bound():
    counts = torch.tensor([81, 16])
    best = 3 * offsets(counts, 5.0) / offsets(counts, 5.0).sum()

    def bound(step):
        return bound_terms(best + torch.tensor([step, -step]), counts).sum().item()

    assert all(bound(0.0) < bound(step) for step in (-0.01, 0.01))


def test_one_class_has_no_boundary():
    assert example_margins(torch.zeros(2, 1), torch.zeros(2, dtype=torch.long)).tolist() == [math.inf] * 2


def test_the_probe():
    simulation = Simulation(Run(model="mlp", partition="dirichlet:0.1", clients=3, lr=0.1, batch_size=16))
    found = margins(observe(simulation, algorithm="fedlc:tau=2"), client_limit=2)["margins"]
    assert json.loads(json.dumps(found)) == found
    assert found["tau"] == 2
    assert len(found["clients"]) == 2
    for row in found["clients"]:
        for c, n in enumerate(row["counts"]):
            assert (row["minimum"][c] is None) == (n == 0)
            assert row["offset"][c] == pytest.approx(2 * max(1, n) ** -0.25, rel=1e-5)
            if n:
                assert row["minimum"][c] <= row["mean"][c]
                assert (row["term"]["minimum"][c] is None) == (row["minimum"][c] <= 0)
        terms = [term for term, n in zip(row["term"]["mean"], row["counts"], strict=True) if n]
        if None not in terms:
            assert row["bound"]["mean"] == pytest.approx(sum(sorted(terms)[-2:]), rel=1e-4)
        else:
            assert row["bound"]["mean"] is None

"""The correction of FedAvg changes nothing and remembers nothing."""

import torch

from fedskew.core.round import Context, Sums
from fedskew.corrections import Correction
from tests.helpers import normal


def test_changes_nothing(generator: torch.Generator) -> None:
    part, grads = Correction(), {"w": normal(generator, 3, 2)}
    seen = Context(grads, {}, {}, {}, torch.ones(3), torch.tensor(1.0))
    assert part.client_state(grads) == part.server_state(grads) == part.shift({}) == {}
    assert part.bend(grads, grads, seen)["w"] is grads["w"]
    assert part.finish(seen, grads) == (grads, {}, {})
    assert part.absorb({}, Sums(grads, {}, {}, torch.tensor(1.0), *torch.zeros(2)), 0.5) == {}
    assert not part.needs_travel
    assert part.pull == 0

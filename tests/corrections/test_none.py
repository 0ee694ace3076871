"""No correction changes nothing and remembers nothing."""

import torch

from fedskew.corrections import none
from tests.helpers import normal


def test_changes_nothing(generator: torch.Generator) -> None:
    part, grads = none(), {"w": normal(generator, 3, 2)}
    assert part.init(grads) == {}
    assert part.grad(grads, grads, grads, {}, {})["w"] is grads["w"]
    assert part.finish({}, {}, grads, torch.tensor(1.0)) == ({}, {})
    assert part.absorb({}, {}, 0.5) == {}
    assert not part.needs_travel

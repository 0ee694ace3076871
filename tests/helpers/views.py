"""Views for losses that look at more than logits, labels and counts."""

import torch
from torch import Tensor

from fedskew.core.view import Outputs, View


def view(
    logits: Tensor,
    labels: Tensor,
    counts: Tensor,
    *,
    mask: Tensor | None = None,
    features: Tensor | None = None,
    teacher: Tensor | None = None,
    travel: float | Tensor = 1.0,
) -> View:
    """A view of these; a teacher is its logits, and asking for one that was not given is an error."""

    def teach() -> Outputs:
        assert teacher is not None, "nobody should ask"
        return Outputs(teacher)

    far = torch.as_tensor(travel, dtype=torch.float64)
    return View(Outputs(logits, features), labels, mask, counts, far, teach)

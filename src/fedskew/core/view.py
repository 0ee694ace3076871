"""What a model returns, and everything that a loss may use. Leading axes are free."""

from collections.abc import Callable
from dataclasses import dataclass

from torch import Tensor


@dataclass(frozen=True)
class Outputs:
    """Logits [..., B, C] and features [..., B, F], the input of the linear layer that runs last.

    A module without a linear layer has no features.
    """

    logits: Tensor
    features: Tensor | None = None


@dataclass(frozen=True)
class View:
    """One batch of one client, or of each client on the leading axes.

    `mask` [..., B] is False for padding, or None without padding: a term over the whole batch must leave padding out.
    `counts` [..., C] are the client's label counts, `travel` [...] is how far its optimiser travels in the round under
    a unit gradient (see `needs_travel`). `teacher()` returns the received global model's outputs for the same batch, in
    evaluation mode and without a gradient; each call costs a forward pass.
    """

    outputs: Outputs
    labels: Tensor
    mask: Tensor | None
    counts: Tensor
    travel: Tensor
    teacher: Callable[[], Outputs]

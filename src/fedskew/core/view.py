"""What a model gives, and all that a loss may look at. Leading axes are free."""

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

    `mask` [..., B] is False for padding and None where there is none: a term over the whole batch must leave padding
    out. `counts` [..., C] are the client's label counts, `travel` [...] is how far its optimiser travels in the round
    under a unit gradient (see `needs_travel`). `teacher()` is what the global model that the client received says of
    the same batch, in evaluation mode and without a gradient; it costs a pass where it is called.
    """

    outputs: Outputs
    labels: Tensor
    mask: Tensor | None
    counts: Tensor
    travel: Tensor
    teacher: Callable[[], Outputs]

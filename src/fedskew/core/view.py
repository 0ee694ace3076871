"""What a model returns, and what losses, terms and corrections may use. Leading axes are free."""

from collections.abc import Callable
from dataclasses import dataclass, field

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
    evaluation mode and without a gradient; `teacher(params)` those of a model with other parameters. Each call costs a
    forward pass. `client` and `server` are the states of the method's correction, which stay fixed during a round.
    """

    outputs: Outputs
    labels: Tensor
    mask: Tensor | None
    counts: Tensor
    travel: Tensor
    teacher: Callable[..., Outputs]
    client: dict[str, Tensor] = field(default_factory=dict)
    server: dict[str, Tensor] = field(default_factory=dict)


@dataclass(frozen=True)
class Context:
    """What stays fixed during a client's update: the global model that it received, the correction's states of client
    and server, the label counts, and how far its optimiser will travel."""

    anchor: dict[str, Tensor]
    buffers: dict[str, Tensor]
    client: dict[str, Tensor]
    server: dict[str, Tensor]
    counts: Tensor
    travel: Tensor


@dataclass(frozen=True)
class Sums:
    """What the server needs from a round. Each part of a cohort has its own sums; added up, they are those of the
    whole.

    `delta` is the aggregate, `message` the mean by the correction's weights, `travel` the mean by the clients' weights.
    So is `square`, of the squared norms of the clients' deltas: 0 unless the server's optimiser `needs_square`.
    """

    delta: dict[str, Tensor]
    buffers: dict[str, Tensor]
    message: dict[str, Tensor]
    travel: Tensor
    loss: Tensor
    square: Tensor

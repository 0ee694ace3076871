"""The contract that lets a whole cohort run as one tensor program."""

from torch import Tensor, nn


class Network(nn.Module):
    """A module with free leading axes in which masked examples do not affect the others. A subclass has `embed` and a
    last layer `linear`. Whoever subclasses it promises both things: parameters [..., *shape] meet examples [..., B,
    *shape], and what `embed` gives for an example does not depend on examples that the mask leaves out. Any other
    module runs one client at a time, or with `torch.vmap`.
    """

    linear: nn.Module

    @property
    def together(self) -> bool:
        """Whether our GPU kernels with a client axis serve its layers in training."""
        return False

    def embed(self, x: Tensor, mask: Tensor | None) -> Tensor:
        """Features [..., B, F] of examples [..., B, *shape]; the mask [..., B] is False for padding."""
        raise NotImplementedError

    def forward(
        self, x: Tensor, mask: Tensor | None = None, *, with_features: bool = False
    ) -> Tensor | tuple[Tensor, Tensor]:
        features = self.embed(x, mask)
        logits: Tensor = self.linear(features)
        return (logits, features) if with_features else logits

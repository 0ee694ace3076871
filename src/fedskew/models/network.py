"""The contract that lets a whole cohort run as one tensor program."""

from torch import Tensor, nn


class Network(nn.Module):
    """A module that can take all clients at once. Any other module runs one client at a time, or with `torch.vmap`.

    A subclass has `embed` and a last layer `linear`, and promises two things. It takes parameters [..., *shape] with
    examples [..., B, *shape]. And the features of an example do not depend on examples that the mask leaves out.
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

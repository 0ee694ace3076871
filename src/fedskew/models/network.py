"""The contract that lets a whole cohort run as one tensor program."""

from collections.abc import Callable

from torch import Tensor, nn


def check_images(
    name: str, input_shape: tuple[int, ...], side_after: Callable[[int], int] = lambda size: size, hint: str = ""
) -> None:
    """Refuse inputs that are not images, and images of which a network leaves nothing: `side_after` is a side of its
    last feature map."""
    if len(input_shape) != 3:
        raise ValueError(f"{name} takes images [channels, height, width], not inputs of shape {list(input_shape)}")
    if min(map(side_after, input_shape[1:])) < 1:
        least = next(size for size in range(1, 64) if side_after(size) >= 1)
        shape = "x".join(map(str, input_shape[1:]))
        raise ValueError(f"{name}: images of {shape} are too small; it needs at least {least}x{least}{hint}")


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

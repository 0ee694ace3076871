"""A module seen as a pure function of its parameters and buffers."""

import copy
import inspect
from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor, nn
from torch.func import functional_call

from fedskew.tree import Params

_BATCH_NORMS = (nn.modules.batchnorm._BatchNorm,)
_RANDOM = (nn.modules.dropout._DropoutNd,)


@dataclass(frozen=True)
class Model:
    """`apply` runs the module on any parameters; the module's own are only where `init` reads the first ones.

    A module whose `forward(x, mask)` takes a mask promises that leading axes are free and that masked examples
    change nothing. Any other module is taken one client at a time, or by `torch.vmap` if it has neither batch norm
    nor dropout.
    """

    module: nn.Module

    @cached_property
    def takes_mask(self) -> bool:
        return "mask" in inspect.signature(self.module.forward).parameters

    @cached_property
    def random(self) -> bool:
        """Whether a training step draws random numbers of its own (dropout)."""
        return any(isinstance(part, _RANDOM) for part in self.module.modules())

    @cached_property
    def stackable(self) -> bool:
        """Whether a cohort can run as one tensor program."""
        plain = not any(isinstance(part, _BATCH_NORMS + _RANDOM) for part in self.module.modules())
        return self.takes_mask or plain

    def init(self, dtype: torch.dtype, device: torch.device | str) -> tuple[Params, Params]:
        """Fresh copies of the module's parameters and buffers."""

        def copied(leaf: Tensor) -> Tensor:
            return leaf.detach().clone().to(device, dtype if leaf.is_floating_point() else None)

        params = {name: copied(leaf) for name, leaf in self.module.named_parameters()}
        return params, {name: copied(leaf) for name, leaf in self.module.named_buffers()}

    def apply(
        self, params: Params, buffers: Params, x: Tensor, mask: Tensor | None = None, *, train: bool
    ) -> tuple[Tensor, Params]:
        """Logits [..., B, C] and the buffers as the pass leaves them."""
        if self.module.training != train:
            self.module.train(train)
        if self.takes_mask:
            state = {**params, **buffers}
            logits: Tensor = functional_call(self.module, state, (x, mask), strict=True)
            return logits, {name: state[name] for name in buffers}
        if next(iter(params.values())).ndim > next(self.module.parameters()).ndim:
            return torch.vmap(lambda p, b, one: self._plain(p, b, one)[0])(params, buffers, x), buffers
        return self._plain(params, buffers, x)

    def _plain(self, params: Params, buffers: Params, x: Tensor) -> tuple[Tensor, Params]:
        norms = [part for part in self.module.modules() if isinstance(part, _BATCH_NORMS)]
        for part in norms:
            part.train(self.module.training and len(x) > 1)  # one example has no batch statistics
        own = {name: leaf.clone() for name, leaf in buffers.items()}  # modules change their buffers in place
        state = {**params, **own}
        logits: Tensor = functional_call(self.module, state, (x,), strict=True)
        return logits, {name: state[name] for name in buffers}

    def copy(self) -> "Model":
        """A model of its own for another thread: a functional call borrows the module while it runs."""
        return Model(copy.deepcopy(self.module))

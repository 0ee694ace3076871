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
        return self.takes_mask or not (self.random or any(True for _ in self.module.buffers()))

    @cached_property
    def names(self) -> set[str]:
        """What parameters and buffers together are called."""
        return {name for name, _ in (*self.module.named_parameters(), *self.module.named_buffers())}

    @cached_property
    def tied(self) -> bool:
        """Whether a parameter or buffer goes by several names."""
        every = self.module.named_parameters(remove_duplicate=False), self.module.named_buffers(remove_duplicate=False)
        return sum(1 for named in every for _ in named) > len(self.names)

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
            return self._call(params, buffers, x, mask)
        name, leaf = next(self.module.named_parameters())
        if params[name].ndim > leaf.ndim:
            return torch.vmap(lambda p, b, one: self._plain(p, b, one)[0])(params, buffers, x), buffers
        return self._plain(params, buffers, x)

    def _plain(self, params: Params, buffers: Params, x: Tensor) -> tuple[Tensor, Params]:
        norms = [part for part in self.module.modules() if isinstance(part, _BATCH_NORMS)]
        for part in norms:
            part.train(self.module.training and len(x) > 1)  # one example has no batch statistics
        own = {name: leaf.clone() for name, leaf in buffers.items()}  # modules change their buffers in place
        return self._call(params, own, x)

    def _call(self, params: Params, buffers: Params, *inputs: Tensor | None) -> tuple[Tensor, Params]:
        """The module on this state. What PyTorch would check at every call is looked up once for all."""
        state = {**params, **buffers}
        if state.keys() != self.names:
            raise ValueError(f"the model has {sorted(self.names)}, not {sorted(state)}")
        logits: Tensor = functional_call(self.module, state, inputs, tie_weights=self.tied)
        return logits, {name: state[name] for name in buffers}

    def features(self, params: Params, buffers: Params, x: Tensor) -> Tensor:
        """The input [..., B, features] of the linear layer that runs last, in evaluation mode."""
        inputs: list[Tensor] = []

        def note(_: nn.Module, given: tuple[Tensor, ...]) -> None:
            inputs.append(given[0])

        def noted(_: nn.Module, __: tuple[Tensor, ...], logits: Tensor) -> Tensor:
            if not inputs:
                raise ValueError(f"{type(self.module).__name__} has no linear layer whose input could be its features")
            return inputs[-1]

        linears = [part for part in self.module.modules() if isinstance(part, nn.Linear)]
        hooks = [part.register_forward_pre_hook(note) for part in linears]
        hooks.append(self.module.register_forward_hook(noted))
        try:
            return self.apply(params, buffers, x, train=False)[0]
        finally:
            for hook in hooks:
                hook.remove()

    def fused(self) -> "Model":
        """A model of its own that uses our kernels where it knows how; a module says so by an attribute `fused`."""
        own = self.copy()
        for part in own.module.modules():
            if hasattr(part, "fused"):
                setattr(part, "fused", True)  # noqa: B010
        return own

    def copy(self) -> "Model":
        """A model of its own for another thread: a functional call borrows the module while it runs."""
        return Model(copy.deepcopy(self.module))

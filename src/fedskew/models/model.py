"""A module seen as a pure function of its parameters and buffers."""

import copy
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import torch
from torch import Tensor, nn
from torch.func import functional_call

from fedskew.core.checks import made_of
from fedskew.core.tree import Params
from fedskew.core.view import Outputs
from fedskew.models.network import Network

_BATCH_NORMS = (nn.modules.batchnorm._BatchNorm,)
_RANDOM = (nn.modules.dropout._DropoutNd,)


class OutputError(ValueError):
    """A module returns something other than logits."""


@dataclass(frozen=True)
class Model:
    """`apply` runs the module on any parameters; only `init` reads the module's own.

    Parameters that need no gradient are frozen: they stay in the module, and nothing else uses them. A `Network` takes
    leading axes and a mask. Any other module runs one client at a time, or with `torch.vmap` if it has neither buffers
    nor dropout.
    """

    module: nn.Module

    @cached_property
    def takes_mask(self) -> bool:
        return isinstance(self.module, Network)

    @cached_property
    def random(self) -> bool:
        """Whether it has dropout, which draws random numbers at every step; a trial finds other modules that do."""
        return any(isinstance(part, _RANDOM) for part in self.module.modules())

    @cached_property
    def quiet(self) -> bool:
        """Whether it takes a mask and has no dropout: clients can then be trained in any order, on any thread."""
        return self.takes_mask and not self.random

    @cached_property
    def stackable(self) -> bool:
        """Whether a cohort may run as one tensor program."""
        return not self.random and (self.takes_mask or not any(True for _ in self.module.buffers()))

    @cached_property
    def together(self) -> bool:
        """Whether our GPU kernels with a client axis serve its layers."""
        return isinstance(self.module, Network) and self.module.together

    @cached_property
    def size(self) -> int:
        """How many numbers its parameters have."""
        return sum(leaf.numel() for leaf in self.module.parameters())

    @cached_property
    def convolutional(self) -> bool:
        return any(isinstance(part, nn.Conv2d) for part in self.module.modules())

    @cached_property
    def names(self) -> set[str]:
        """The names of trained parameters and buffers."""
        return {*self._trained, *(name for name, _ in self.module.named_buffers())}

    @cached_property
    def frozen(self) -> list[str]:
        """The names of parameters that are not trained."""
        return [name for name, leaf in self.module.named_parameters() if not leaf.requires_grad]

    @cached_property
    def tied(self) -> bool:
        """Whether a parameter or buffer has several names."""
        every = self.module.named_parameters(remove_duplicate=False), self.module.named_buffers(remove_duplicate=False)
        return sum(1 for named in every for _ in named) > len(self.names) + len(self.frozen)

    @cached_property
    def _trained(self) -> dict[str, int]:
        """Trained parameters by name, with how many axes they have for one client."""
        return {name: leaf.ndim for name, leaf in self.module.named_parameters() if leaf.requires_grad}

    @cached_property
    def evaluating(self) -> "Model":
        """A separate model that stays in evaluation mode, for use between the steps of a training one."""
        own = self.copy()
        own.module.eval()
        return own

    def init(self, dtype: torch.dtype, device: torch.device | str) -> tuple[Params, Params]:
        """Fresh copies of the module's trained parameters and of its buffers; frozen parameters move to the same
        device."""
        if not self._trained:
            raise ValueError(f"{type(self.module).__name__} has no parameter to train")
        self.place(dtype, device)
        params = {name: _moved(self.module.get_parameter(name), dtype, device).clone() for name in self._trained}
        return params, {name: _moved(leaf, dtype, device).clone() for name, leaf in self.module.named_buffers()}

    def place(self, dtype: torch.dtype, device: torch.device | str) -> None:
        """Move frozen parameters to where a model that somebody else has made is applied."""
        for name in self.frozen:
            leaf = self.module.get_parameter(name)
            leaf.data = _moved(leaf, dtype, device)

    def whole_state(self, params: Params, buffers: Params) -> Params:
        """Everything that a state dict of the module holds."""
        return {**params, **{name: self.module.get_parameter(name).detach() for name in self.frozen}, **buffers}

    def apply(
        self, params: Params, buffers: Params, x: Tensor, mask: Tensor | None = None, *, train: bool
    ) -> tuple[Outputs, Params]:
        """The module's output for examples [..., B, *shape], and the buffers after the pass."""
        if self.module.training != train:
            self.module.train(train)
        name, axes = next(iter(self._trained.items()))
        lead = params[name].shape[: params[name].ndim - axes]
        if self.takes_mask:
            fixed = {other: self.module.get_parameter(other) for other in self.frozen} if lead else {}
            spread = {other: leaf.expand(*lead, *leaf.shape) for other, leaf in fixed.items()}
            (logits, features), buffers = self._call(params, buffers, spread, (x, mask), {"with_features": True})
            return Outputs(logits, features), buffers
        if lead:
            return Outputs(*torch.vmap(lambda p, b, one: self._plain(p, b, one)[0])(params, buffers, x)), buffers
        made, buffers = self._plain(params, buffers, x)
        return Outputs(*made), buffers

    def _plain(self, params: Params, buffers: Params, x: Tensor) -> tuple[tuple[Tensor, ...], Params]:
        """Logits and, if a linear layer has run, the input of the last one."""
        norms = [part for part in self.module.modules() if isinstance(part, _BATCH_NORMS)]
        for part in norms:
            part.train(self.module.training and len(x) > 1)  # one example has no batch statistics
        own = {name: leaf.clone() for name, leaf in buffers.items()}  # modules change their buffers in place
        with self.linear_inputs() as noted:
            logits, after = self._call(params, own, {}, (x,), {})
        if not isinstance(logits, Tensor):
            raise OutputError(f"the module returns {made_of(logits)}; allowed: a tensor, its logits [batch, classes]")
        return (logits, *(given for _, given in noted[-1:])), after

    @contextmanager
    def linear_inputs(self) -> Iterator[list[tuple[str, Tensor]]]:
        """Inside, record the name and input of every linear layer that runs."""
        noted: list[tuple[str, Tensor]] = []

        def noting(name: str, part: nn.Module) -> torch.utils.hooks.RemovableHandle:
            return part.register_forward_pre_hook(lambda _, given: noted.append((name, given[0])))

        hooks = [noting(name, part) for name, part in self.module.named_modules() if isinstance(part, nn.Linear)]
        try:
            yield noted
        finally:
            for hook in hooks:
                hook.remove()

    def _call(
        self, params: Params, buffers: Params, fixed: Params, inputs: tuple[Tensor | None, ...], named: dict[str, Any]
    ) -> tuple[Any, Params]:
        """The module on this state. What PyTorch would check at every call is looked up only once."""
        state = {**params, **buffers}
        if state.keys() != self.names:
            raise ValueError(f"the model has {sorted(self.names)}, not {sorted(state)}")
        state |= fixed
        given: Any = functional_call(self.module, state, inputs, named, tie_weights=self.tied)
        return given, {name: state[name] for name in buffers}

    def settle(self) -> None:
        """Do all one-time lookups now: a compiler cannot trace them."""
        for name, kind in vars(Model).items():
            if isinstance(kind, cached_property) and name != "evaluating":
                getattr(self, name)

    def fused(self) -> "Model":
        """A separate model that uses our kernels where the module supports them, by an attribute `fused`."""
        own = self.copy()
        for part in own.module.modules():
            if hasattr(part, "fused"):
                setattr(part, "fused", True)  # noqa: B010
        return own

    def copy(self) -> "Model":
        """A separate model for another thread: a functional call borrows the module while it runs."""
        return Model(copy.deepcopy(self.module))


def _moved(leaf: Tensor, dtype: torch.dtype, device: torch.device | str) -> Tensor:
    return leaf.detach().to(device, dtype if leaf.is_floating_point() else None)

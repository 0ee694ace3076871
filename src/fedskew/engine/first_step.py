"""The first step of a client with parts of the user's own, taken before round 1: whether each part gives what a round
needs. A loss has a value per example; what a correction or an ascent makes has the names and shapes of parameters; and
all of it is finite.

The client is one of the run's, with its own examples and label counts: the one with the fewest classes of the first
ones, because most mistakes are about classes that a client lacks.
"""

from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from fedskew.core import rng, tree
from fedskew.core.checks import made_of
from fedskew.core.federation import Federation
from fedskew.core.own import check_like, check_unchanged, kept_by, own_parts, says_of_travel, unchanged
from fedskew.core.round import Batch, Context, Recipe, Server, begin, check_losses, gradient
from fedskew.core.settings import kernels_of
from fedskew.core.tree import Params
from fedskew.core.view import Outputs
from fedskew.engine.trial import close, few_examples

_LOOKED_AT = 64


class FailsError(Exception):
    """A part raises an error, which the first round explains."""


class _NotFiniteError(ValueError):
    """A part gives numbers that are not finite, from numbers that are."""


def check_parts(recipe: Recipe, server: Server, federation: Federation) -> None:
    """Refuse parts of the user's own that give one client something that no round can use."""
    if not own_parts(recipe):
        return
    with suppress(FailsError), rng.seeded(0, "trial"), kernels_of("fp32"):
        step = _FirstStep.of(recipe, server, federation)
        try:
            with unchanged(recipe):
                made = step.check()
        except _NotFiniteError as error:
            raise ValueError(f"{error}{step.about_counts()}") from None
        step.check_travel(made)


@dataclass(frozen=True)
class _FirstStep:
    """A client at the global model, with a batch of its examples, which are used again if it has few."""

    recipe: Recipe
    client: int
    context: Context
    batch: Batch
    again: bool = False
    """Whether it has been taken before, so that what the model does besides is known."""

    @classmethod
    def of(cls, recipe: Recipe, server: Server, federation: Federation) -> "_FirstStep":
        data, device = federation.dataset, federation.dataset.x_train.device
        counts = federation.counts(np.arange(min(federation.num_clients, _LOOKED_AT)))
        client = int((counts > 0).sum(1).argmin())
        held = federation.order[federation.offsets[client] : federation.offsets[client + 1]]
        rows = torch.from_numpy(np.resize(held, 2 * few_examples(data.num_classes))).to(device)
        batch = Batch(data.prepare(data.x_train[rows], tree.first(server.params).dtype), data.y_train[rows])
        params = tree.map(torch.clone, server.params)
        state = tried(recipe.algorithm.correction.client_state, params)
        travel = recipe.travel(torch.ones((), dtype=torch.int64, device=device))
        own = torch.from_numpy(counts[client]).to(device)
        return cls(recipe, client, Context(params, server.buffers, state, server.correction, own, travel), batch)

    def check(self) -> list[Params]:
        """Every part in turn: loss and model, ascents, correction. What they make of the client."""
        given = self.context
        sent = given.anchor, given.buffers, given.client, given.server
        anchor, buffers, client, server = (tree.map(torch.clone, part) for part in sent)  # changed in place, perhaps
        with rng.seeded(0, "step"):
            context = replace(given, anchor=anchor, buffers=buffers, client=client, server=server)
            return replace(self, context=context)._check_all()

    def check_travel(self, made: list[Params]) -> None:
        """Refuse parts that use the travel without saying so."""
        if says_of_travel(self.recipe) or self.recipe.algorithm.needs_travel:
            return
        unknown = replace(self.context, travel=torch.full_like(self.context.travel, torch.nan))
        if differs(made, replace(self, context=unknown, again=True).check):
            own = own_parts(self.recipe)
            if differs(made, replace(self, again=True).check):
                raise unsteady(f"the {' or '.join(own)} of this run")
            users = [part for part in own if part in ("loss", "correction", "ascent")]
            raise undeclared(f"the {' or '.join(users)} of this run")

    def _check_all(self) -> list[Params]:
        recipe, context, own = self.recipe, self.context, own_parts(self.recipe)
        grads = self._gradient(own)
        made = [grads]
        with torch.no_grad():
            for ascend in recipe.ascents:
                there = tried(ascend, context.anchor, grads, context)
                if "ascent" in own:
                    what, allowed = "the ascent of this run", "the same names, shapes and types as the parameters"
                    self._check(what, there, grads, context.anchor, allowed)
                grads = tried(gradient, recipe, context, there, context.buffers, self.batch)[0]
                made.append(grads)
            return [*made, *(self._check_correction(grads) if "correction" in own else [])]

    def _gradient(self, own: list[str]) -> Params:
        """The gradient of the loss. Both are checked if the loss or the model is the user's own."""
        recipe, context, batch = self.recipe, self.context, self.batch
        params, given = context.anchor, {**context.anchor, "": batch.x}
        theirs = [part for part in ("loss", "model") if part in own]
        if theirs:
            with rng.seeded(0, "pass"):  # the rest draws the same, however many passes there are
                outputs, losses = self._check_pure() if "model" in own and not self.again else self._pass(params)
            if not isinstance(losses, Tensor):
                raise ValueError(f"the loss returned {made_of(losses)}; allowed: a tensor with one value per example")
            check_losses(losses, batch.y)
            if not losses.requires_grad:
                who = "model" if "model" in own and not outputs.logits.requires_grad else "loss"
                raise ValueError(
                    f"the {who} of this run has no gradient; allowed: what it returns follows from what it was given "
                    "by PyTorch's operations, without detach, item, NumPy or torch.no_grad"
                )
            losses = losses.detach()
            theirs = ["model"] if "model" in own and outputs.logits.isnan().any() else theirs
            self._check_finite(f"the {theirs[0]} of this run", {"": losses}, given)
        grads: Params = tried(gradient, recipe, context, params, context.buffers, batch)[0]
        if theirs:
            self._check_finite(f"the gradient of the {theirs[0]} of this run", grads, given)
        return grads

    def _pass(self, params: Params) -> tuple[Outputs, Any]:
        """What the model says of the batch, and the losses."""
        recipe, context, batch = self.recipe, self.context, self.batch
        with torch.enable_grad():
            leaves = {name: leaf.detach().requires_grad_() for name, leaf in params.items()}
            outputs = tried(recipe.model.apply, leaves, context.buffers, batch.x, train=True)[0]
            return outputs, tried(recipe.losses, leaves, context.buffers, batch, context)[0]

    def _check_pure(self) -> tuple[Outputs, Any]:
        """The same. A model whose passes change its parameters, or anything else of it but buffers, is refused; it may
        keep what its first pass computes, and note what the last one did."""
        module, params = self.recipe.model.module, self.context.anchor
        said = self._pass(tree.map(torch.clone, params))
        wide = tree.map(lambda leaf: 2 * leaf, params)  # what is shortened may have been so before
        versions = {name: leaf._version for name, leaf in wide.items()}
        self._pass(wide)
        changed = [n for n, leaf in wide.items() if leaf._version > versions[n] or not leaf.equal(2 * params[n])]
        if changed:
            raise ValueError(
                f"the model of this run changes its parameter {changed[0]!r} in a forward pass, so engines would give "
                "other numbers; allowed: a forward that leaves parameters as they are (nn.Embedding without max_norm)"
            )
        kept = []
        for _ in range(2):  # the same pass twice: what it notes about its input is the same, what it counts is not
            with rng.seeded(0, "pass"):
                self._pass(tree.map(torch.clone, params))
            kept.append(kept_by(module))
        check_unchanged("model", *kept)
        return said

    def _check_correction(self, grads: Params) -> list[Params]:
        context, correction = self.context, self.recipe.algorithm.correction
        what, same = "bend of this run's correction", "the same names, shapes and types as"
        bent = tried(correction.bend, grads, context.anchor, context)
        self._check(what, bent, grads, grads, f"{same} the gradients")
        local = begin(self.recipe, context.anchor, context.buffers, torch.Size())
        delta = tree.sub(tried(self.recipe.move, grads, local, context)[0], context.anchor)
        what, ended = "finish of this run's correction", tried(correction.finish, context, delta)
        if not isinstance(ended, tuple | list) or len(ended) != 3:
            raise ValueError(f"{what} returned {made_of(ended)}; allowed: a delta, a client's state and a message")
        self._check(f"{what} (its delta)", ended[0], delta, delta, f"{same} the delta that it gets")
        self._check(f"{what} (its state)", ended[1], delta, context.client, f"{same} client_state has")
        self._check(f"{what} (its message)", ended[2], delta, None, "a dictionary of tensors")
        return [bent, *ended]

    def _check(self, what: str, made: Any, given: Params, like: Params | None, allowed: str) -> None:
        """Refuse anything but finite tensors with the names and shapes of others."""
        check_like(what, made, like, allowed)
        self._check_finite(what, made, given)

    def _check_finite(self, what: str, made: Params, given: Params) -> None:
        if tree.finite(made) or not tree.finite(given):
            return
        word = "nan" if any(leaf.isnan().any() for leaf in made.values()) else "infinite numbers"
        raise _NotFiniteError(f"{what} gives {word} in the first step of client {self.client}; allowed: finite numbers")

    def about_counts(self) -> str:
        """What to do if numbers are not finite because the client lacks classes."""
        counts = self.context.counts
        missing = int((counts == 0).sum())
        try:
            replace(self, context=replace(self.context, counts=counts.clamp(min=1)), again=True).check()
        except (ValueError, FailsError):
            return ""
        return (
            f". It has no example of {missing} of the {len(counts)} classes, and log(0) and 1 / 0 are not finite; with "
            "counts.clamp(min=1) all numbers are"
        )


def tried(call: Callable[..., Any], *given: Any, **named: Any) -> Any:
    try:
        return call(*given, **named)
    except Exception as error:
        raise FailsError from error


def differs(made: list[Params], anew: Callable[[], list[Params]]) -> bool:
    """Whether a step that is taken anew comes out differently, or fails."""
    try:
        other = anew()
    except (ValueError, FailsError):
        return True
    return not all(close(*pair) for pair in zip(made, other, strict=True))


def unsteady(what: str) -> ValueError:
    return ValueError(
        f"{what} gives other numbers when it is called again with the same: it keeps something, such as a generator of "
        "its own; allowed: numbers drawn from the global generators of torch, NumPy or Python, which fedskew seeds"
    )


def undeclared(what: str) -> ValueError:
    return ValueError(
        f"{what} uses travel, which without needs_travel = True is just the number of steps; set needs_travel = True "
        "in its class, or as an attribute of its function; or False if it means the number of steps"
    )

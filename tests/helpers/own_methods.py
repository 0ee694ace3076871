"""Methods and models as users write them: right ones, ones that know one client only, and ones that draw."""

import random
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from fedskew import Algorithm, Correction, cross_entropy
from fedskew.aggregators import weighted_mean
from fedskew.core import tree
from fedskew.core.round import Context
from fedskew.core.tree import Params
from fedskew.models import Network
from fedskew.models.layers import Linear
from fedskew.optimizers import sgd
from fedskew.readouts import Ask


def _norm(trees: Params) -> Tensor:
    """Over everything, all clients included."""
    return torch.stack([leaf.square().sum() for leaf in trees.values()]).sum().sqrt()


@dataclass(frozen=True)
class Unit(Correction):
    """A gradient of norm 1."""

    whole: bool

    def bend(self, grads: Params, params: Params, context: Context) -> Params:
        norm = _norm(grads) if self.whole else tree.norm(grads, context.travel.ndim)
        return tree.divide(grads, norm)


@dataclass(frozen=True)
class Remembered(Correction):
    """Adds the direction in which the client moved in its last round, and tells the server that direction, which is
    shorter where the model was large."""

    whole: bool

    def client_state(self, params: Params) -> Params:
        return tree.zeros_like(params)

    def server_state(self, params: Params) -> Params:
        return tree.zeros_like(params)

    def bend(self, grads: Params, params: Params, context: Context) -> Params:
        return {
            name: grad - 0.1 * context.client[name] - 0.1 * context.server[name] + 0.1 * (params[name] - anchor)
            for (name, grad), anchor in zip(grads.items(), context.anchor.values(), strict=True)
        }

    def finish(self, context: Context, delta: Params) -> tuple[Params, Params, Params]:
        norm = _norm(delta) if self.whole else tree.norm(delta, context.travel.ndim)
        direction = tree.divide(delta, norm + tree.norm(context.anchor, context.travel.ndim))
        return delta, direction, direction

    def absorb(self, server: Params, sums: object, fraction: float) -> Params:
        return sums.message  # type: ignore[attr-defined, no-any-return]


@dataclass(frozen=True)
class Climb:
    whole: bool

    def __call__(self, params: Params, grads: Params, context: Context) -> Params:
        up = tree.divide(grads, _norm(grads) if self.whole else tree.norm(grads, context.travel.ndim))
        return {name: leaf + 0.5 * up[name] for name, leaf in params.items()}


@dataclass(frozen=True)
class Trusting(sgd):
    """LARS with one rate for the whole model: a step in proportion to the parameters."""

    whole: bool = False

    def update(self, grads: Params, state: Params, params: Params, rate: float | Tensor) -> tuple[Params, Params]:
        updates, state = super().update(grads, state, params, rate)
        axes = 0 if self.whole else params["linear.bias"].ndim - 1
        ratio = tree.norm(params, axes) / tree.norm(updates, axes)
        return {name: leaf * tree.lead(0.01 * ratio, leaf) for name, leaf in updates.items()}, state


def unit(whole: bool = False) -> Algorithm:
    return Algorithm("unit", correction=Unit(whole))


def remembered(whole: bool = False) -> Algorithm:
    return Algorithm("remembered", correction=Remembered(whole))


def climb(whole: bool = False) -> Algorithm:
    return Algorithm("climb", ascents=(Climb(whole),))


@dataclass(frozen=True)
class Noise(Correction):
    share: float

    def bend(self, grads: Params, params: Params, context: Context) -> Params:
        if torch.rand(()) > self.share:
            return grads
        return {name: grad + 0.5 * torch.randn_like(grad) for name, grad in grads.items()}


def noise(share: float = 1.0) -> Algorithm:
    """Noise in this share of the steps; whether there is any is drawn at every step."""
    return Algorithm("noise", correction=Noise(share))


def scaled_by_numpy():
    return lambda logits, labels, counts: cross_entropy(np.random.beta(2, 2) * logits, labels, counts)  # noqa: NPY002


def scaled_by_python():
    return lambda logits, labels, counts: cross_entropy(random.random() * logits, labels, counts)


@dataclass(frozen=True)
class Private(weighted_mean):
    """A mean with noise, drawn by the server."""

    def merge(self, values: Params, coefficients: Tensor) -> Params:  # type: ignore[override]
        mean = tree.weighted_sum(values, coefficients)
        return {name: leaf + 0.01 * torch.randn_like(leaf) for name, leaf in mean.items()}


@dataclass(frozen=True)
class Started(Correction):
    """Every client starts from a state that is drawn, and bends its gradients by it."""

    def client_state(self, params: Params) -> Params:
        return tree.map(torch.randn_like, params)

    def bend(self, grads: Params, params: Params, context: Context) -> Params:
        return {name: grad + 0.1 * context.client[name] for name, grad in grads.items()}

    def finish(self, context: Context, delta: Params) -> tuple[Params, Params, Params]:
        return delta, context.client, {}


def started() -> Algorithm:
    return Algorithm("started", correction=Started())


@dataclass(frozen=True)
class Attached(Started):
    """Every client is pulled to the model that the run began with."""

    def client_state(self, params: Params) -> Params:
        return tree.map(torch.clone, params)

    def bend(self, grads: Params, params: Params, context: Context) -> Params:
        return {name: grad + 0.5 * (params[name] - context.client[name]) for name, grad in grads.items()}


def attached() -> Algorithm:
    return Algorithm("attached", correction=Attached())


@dataclass(frozen=True)
class Blurred(sgd):
    """A server that sends its model with noise."""

    def look(self, params: Params, state: Params) -> Params:
        return {name: leaf + 0.01 * torch.randn_like(leaf) for name, leaf in params.items()}


def blurred() -> Algorithm:
    return Algorithm("blurred", server=Blurred(1.0))


@dataclass(frozen=True)
class Guessed:
    """A readout that takes one step of a random length."""

    asks: int = 1

    def fit(self, weight: Tensor, bias: Tensor, ask: Ask) -> tuple[Tensor, Tensor]:
        _, by_weight, by_bias = ask(weight, bias)
        step = float(np.random.rand())  # noqa: NPY002
        return weight - step * by_weight, bias - step * by_bias


@dataclass(frozen=True)
class Tossed(Guessed):
    """The same, of Python's numbers, which other libraries draw from as well."""

    def fit(self, weight: Tensor, bias: Tensor, ask: Ask) -> tuple[Tensor, Tensor]:
        _, by_weight, by_bias = ask(weight, bias)
        step = random.random()
        return weight - step * by_weight, bias - step * by_bias


@dataclass(frozen=True)
class Halved(Guessed):
    """A readout that may ask, and does not."""

    def fit(self, weight: Tensor, bias: Tensor, ask: Ask) -> tuple[Tensor, Tensor]:
        return weight / 2, bias / 2


def halved() -> Algorithm:
    return Algorithm("halved", readout=Halved())


def tossed() -> Algorithm:
    return Algorithm("tossed", readout=Tossed())


@dataclass(frozen=True)
class Lazy(sgd):
    """Momentum whose state begins with the first update."""

    def init(self, params: Params) -> Params:
        return {}

    def update(self, grads: Params, state: Params, params: Params, rate: float | Tensor) -> tuple[Params, Params]:
        state = {name: grad + 0.5 * state[name] if state else grad for name, grad in grads.items()}
        return {name: -rate * leaf for name, leaf in state.items()}, state


def lazy() -> Algorithm:
    return Algorithm("lazy", server=Lazy(1.0))


def guessed() -> Algorithm:
    return Algorithm("guessed", readout=Guessed())


def private() -> Algorithm:
    return Algorithm("private", aggregate=Private())


def reading():
    """A loss that looks at a number to decide what to do."""

    def loss(logits: Tensor, labels: Tensor, counts: Tensor) -> Tensor:
        losses = cross_entropy(logits, labels, counts)
        return losses if float(losses.detach().sum()) > -1 else 2 * losses

    return loss


def masking():
    """A loss that takes some of the examples out and puts them back."""

    def loss(logits: Tensor, labels: Tensor, counts: Tensor) -> Tensor:
        losses = cross_entropy(logits, labels, counts)
        many = labels > 4
        return losses.index_put((many,), 2 * losses[many])

    return loss


def tabled():
    """A loss with a table of Python numbers, which comes to the device at every step."""

    def loss(logits: Tensor, labels: Tensor, counts: Tensor) -> Tensor:
        table = torch.tensor([1.0, 2.0] * 5, device=logits.device)
        return table[labels] * cross_entropy(logits, labels, counts)

    return loss


def inverting():
    """A loss with an inverse, which fails for some matrices."""

    def loss(logits: Tensor, labels: Tensor, counts: Tensor) -> Tensor:
        turned = torch.linalg.inv(2 * torch.eye(logits.shape[-1], dtype=logits.dtype, device=logits.device))
        return cross_entropy(logits @ turned, labels, counts)

    return loss


def weighing():
    """A loss with a table that is looked up by label, which reads nothing."""

    def loss(logits: Tensor, labels: Tensor, counts: Tensor) -> Tensor:
        return torch.linspace(1, 2, counts.shape[-1], device=logits.device)[labels] * cross_entropy(
            logits, labels, counts
        )

    return loss


class Dropping(Network):
    """Dropout without a module for it."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = Linear(64, 10)

    def embed(self, x: Tensor, mask: Tensor | None) -> Tensor:
        return F.dropout(x.flatten(-3), 0.5, self.training)


class DroppingOne(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(64, 10)

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.linear(F.dropout(x.flatten(1), 0.5, self.training))
        return out


class Masked(nn.Module):
    """A class that is never said, by a mask that is not finite."""

    mask: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(64, 10)
        self.register_buffer("mask", torch.tensor([0.0] * 9 + [-torch.inf]))

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.linear(x.flatten(1)) + self.mask.clamp(min=-9)
        return out


def masked() -> nn.Module:
    return Masked()


def probe() -> nn.Module:
    """A last layer on features that are not trained."""
    module = nn.Sequential(nn.Flatten(), nn.Linear(64, 16), nn.ReLU(), nn.Linear(16, 10))
    module[1].requires_grad_(False)
    return module


def dropping() -> nn.Module:
    return Dropping()


def dropping_one() -> nn.Module:
    return DroppingOne()


@dataclass(frozen=True)
class Forgetful(Correction):
    """Its first state and what it returns have different names."""

    begins: bool
    ends: bool

    def client_state(self, params: Params) -> Params:
        return tree.zeros_like(params) if self.begins else {}

    def finish(self, context: Context, delta: Params) -> tuple[Params, Params, Params]:
        return delta, delta if self.ends else {}, {}


def forgetful(begins: bool = False, ends: bool = False) -> Algorithm:
    return Algorithm("forgetful", correction=Forgetful(begins, ends))

"""The same round of federated logistic regression without this package, written for this one model and plain SGD.

`AUTOGRAD` is the loop that a person would write: batched matrix products, PyTorch's cross entropy and its gradient. The
other two work the gradient out on paper: `PLAIN` in the usual layout, `TUNED` in the layout that is fastest here.
"""

import copy
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from benchmarks.sizes import BATCH, CLASSES, COHORT, FEATURES, LR
from fedskew.core.federation import Federation


@dataclass(frozen=True)
class Step:
    """One step of all clients, in place: weight [K, C, D], bias [K, C, 1], x [K, B, D], y, share [K, B, 1].

    `y` is [K, B] labels, or `targets[labels]`, where each class has a row in `targets`.
    """

    run: Callable[[Tensor, Tensor, Tensor, Tensor, Tensor], None]
    targets: Tensor


def autograd_step(weight: Tensor, bias: Tensor, x: Tensor, y: Tensor, share: Tensor) -> None:
    weight.requires_grad_()
    bias.requires_grad_()
    with torch.enable_grad():
        logits = torch.baddbmm(bias.mT, x, weight.mT)
        losses = functional.cross_entropy(logits.flatten(0, 1), y.flatten(), reduction="none")
        moves = torch.autograd.grad((losses * share.flatten()).sum(), (weight, bias))
    weight.sub_(moves[0], alpha=LR)
    bias.sub_(moves[1], alpha=LR)


def plain_step(weight: Tensor, bias: Tensor, x: Tensor, y: Tensor, share: Tensor) -> None:
    error = (torch.baddbmm(bias.mT, x, weight.mT).softmax(-1) - y) * share
    weight.baddbmm_(error.mT, x, alpha=-LR)
    bias.mT.sub_(error.sum(1, keepdim=True), alpha=LR)


def tuned_step(weight: Tensor, bias: Tensor, x: Tensor, y: Tensor, share: Tensor) -> None:
    """The same with classes before examples, which suits both the matrix products and the softmax of this shape."""
    shares = torch.baddbmm(bias, weight, x.mT).transpose(0, 1).softmax(0).transpose(0, 1)
    error = shares.sub_(y.mT).mul_(share.mT)
    weight.baddbmm_(error, x, alpha=-LR)
    bias.sub_(error.sum(-1, keepdim=True), alpha=LR)


AUTOGRAD = Step(autograd_step, torch.arange(CLASSES))
PLAIN = Step(plain_step, torch.eye(CLASSES))
TUNED = Step(tuned_step, torch.eye(CLASSES))


class Batched:
    """A cohort as batched matrix products."""

    def __init__(self, federation: Federation, weight: Tensor, bias: Tensor, step: Step) -> None:
        self.x, self.y = federation.dataset.x_train, federation.dataset.y_train
        self.starts, self.sizes = (
            torch.from_numpy(federation.offsets[:-1]),
            torch.from_numpy(np.diff(federation.offsets)),
        )
        self.steps = -(-int(self.sizes.max()) // BATCH)
        self.column = torch.arange(self.steps * BATCH)
        self.weight, self.bias, self.step = weight, bias, step

    def round(self) -> None:
        clients = torch.randperm(len(self.sizes))[:COHORT]
        absent = self.column >= self.sizes[clients, None]
        order = torch.rand(absent.shape).masked_fill_(absent, 2.0).argsort(1)
        self.train(clients, (self.starts[clients, None] + order).masked_fill_(absent, 0))

    @torch.no_grad()
    def train(self, clients: Tensor, examples: Tensor) -> None:
        """`examples` [K, steps * B] in the order of use; those beyond a client's size are not used."""
        sizes = self.sizes[clients]
        index = examples.view(COHORT, self.steps, BATCH).transpose(0, 1).flatten()
        x = self.x.index_select(0, index).view(self.steps, COHORT, BATCH, FEATURES)
        y = self.step.targets.index_select(0, self.y.index_select(0, index)).unflatten(0, (self.steps, COHORT, BATCH))
        used = (self.column < sizes[:, None]).float().view(COHORT, self.steps, BATCH, 1).transpose(0, 1)
        share = used / used.sum(2, keepdim=True).clamp_(min=1)
        weight, bias = self.weight.repeat(COHORT, 1, 1), self.bias.repeat(COHORT, 1)[..., None]
        for batch in zip(x, y, share, strict=True):
            self.step.run(weight, bias, *batch)
        shares = sizes / sizes.sum()
        self.weight, self.bias = torch.tensordot(shares, weight, 1), shares @ bias[..., 0]


class OneByOne:
    """One client after another, each with its copy of the model and its own torch.optim.SGD."""

    def __init__(self, federation: Federation, weight: Tensor, bias: Tensor) -> None:
        self.clients = [
            (federation.dataset.x_train[index], federation.dataset.y_train[index]) for index in federation.indices
        ]
        self.model = nn.Linear(FEATURES, CLASSES)
        self.model.load_state_dict({"weight": weight, "bias": bias})

    def round(self) -> None:
        chosen = [self.clients[k] for k in torch.randperm(len(self.clients))[:COHORT].tolist()]
        states = [self.local(x, y) for x, y in chosen]
        sizes = torch.tensor([len(y) for _, y in chosen], dtype=torch.float32)
        shares = sizes / sizes.sum()
        mean = {
            name: torch.stack([share * state[name] for share, state in zip(shares, states, strict=True)]).sum(0)
            for name in states[0]
        }
        self.model.load_state_dict(mean)

    def local(self, x: Tensor, y: Tensor) -> dict[str, Tensor]:
        model = copy.deepcopy(self.model)
        optimizer = torch.optim.SGD(model.parameters(), lr=LR)
        for index in torch.randperm(len(y)).split(BATCH):
            optimizer.zero_grad()
            functional.cross_entropy(model(x[index]), y[index]).backward()
            optimizer.step()
        return model.state_dict()

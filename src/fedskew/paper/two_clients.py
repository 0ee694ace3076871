"""Two clients with opposite label skew, seen in a plane of parameters (the paper's figure 3, which is a sketch there).

The data are Gaussian clouds in two dimensions, the model is logistic regression, and the plane goes through the optimum
of each client's own data and the optimum of all data. Everything is trained by the same engine and round as any run.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from fedskew.algorithms import build_algorithm
from fedskew.core import rng, tree
from fedskew.core.client import client_update
from fedskew.core.dataset import Dataset
from fedskew.core.evaluation import evaluate_model
from fedskew.core.federation import Cohort, Federation
from fedskew.core.round import Recipe, received, server_update, start_server
from fedskew.core.settings import one_thread
from fedskew.core.tree import Params
from fedskew.engine import Settings, Stacked
from fedskew.models import Model, build_model
from fedskew.optimizers import sgd

_TYPE = torch.float64
_CHUNK, _MOST_CHUNKS, _STILL, _GRID = 200, 100, 1e-7, 41


@dataclass(frozen=True)
class Setting:
    """`counts` are the training examples of each class at each client. Every class needs one at both, because a class
    that a client never sees has no finite optimum; together the clients hold as many of each class, as the test set
    does."""

    counts: tuple[tuple[int, ...], tuple[int, ...]] = ((150, 60, 6), (6, 96, 150))
    test_per_class: int = 1000
    spread: float = 0.8
    rounds: int = 20
    local_epochs: int = 20
    batch_size: int = 20
    lr: float = 0.1
    seed: int = 0


@dataclass(frozen=True)
class Plane:
    """Points origin + u * first + v * second; `first` and `second` are orthonormal."""

    origin: Tensor
    first: Tensor
    second: Tensor

    def coordinates(self, point: Tensor) -> list[float]:
        """(u, v) of the nearest point of the plane, and the distance from it."""
        offset = point - self.origin
        u, v = offset @ self.first, offset @ self.second
        rest = offset - u * self.first - v * self.second
        return [round(float(value), 5) for value in (u, v, rest.norm())]

    def at(self, u: Tensor, v: Tensor) -> Tensor:
        """Parameters [..., P] of coordinates."""
        return self.origin + u[..., None] * self.first + v[..., None] * self.second


def two_clients(algorithms: Sequence[str] = ("fedavg", "fedlc"), setting: Setting | None = None) -> dict[str, Any]:
    """The paths of the global and the local models in the plane, and the pooled loss over it.

    Points are [u, v, distance from the plane]; the optimum of all data is the origin of the plane.
    """
    with one_thread():  # steps this small only lose time on a second one
        return _measured(algorithms, setting or Setting())


def _measured(algorithms: Sequence[str], setting: Setting) -> dict[str, Any]:
    federation = _federation(setting)
    model = build_model("logistic", (2,), len(setting.counts[0]), setting.seed)
    pooled = Federation.split(federation.dataset, [torch.arange(len(federation.labels))])
    alone = [Federation.split(federation.dataset, [part]) for part in federation.indices]
    optima = [flat(optimum(model, data, "fedavg", setting)) for data in (pooled, *alone)]
    plane = _plane(*optima)
    methods = []
    for name in algorithms:
        own = [flat(optimum(model, data, name, setting)) for data in alone]
        methods.append(
            {**_path(model, federation, name, setting, plane), "optima": [plane.coordinates(o) for o in own]}
        )
    reached = [point for m in methods for point in (*m["global"], *m["optima"], *(p for r in m["local"] for p in r))]
    corners = [plane.coordinates(point) for point in optima]
    return {
        "seed": setting.seed,
        "rounds": setting.rounds,
        "local_epochs": setting.local_epochs,
        "counts": [list(row) for row in setting.counts],
        "pooled_optimum": corners[0],
        "client_optima": corners[1:],
        "pooled_accuracy": _accuracy(model, unflat(model, optima[0]), federation.dataset),
        "pooled_loss": _rounded(_pooled_loss(model, federation.dataset, optima[0])),
        "contour": _contour(model, federation.dataset, plane, [*reached, *corners]),
        "methods": methods,
    }


def optimum(model: Model, federation: Federation, algorithm: str, setting: Setting) -> Params:
    """Where a one-client federation converges: whole-batch steps with momentum until they stand still."""
    recipe = Recipe(model, build_algorithm(algorithm), sgd(1.0, 0.9))
    settings = Settings(_CHUNK, len(federation.labels), "fp64")
    server, cohort = start_server(recipe, *_zeros(model)), _everyone(federation, setting.seed)
    for chunk in range(_MOST_CHUNKS):
        update = client_update(recipe, settings, server, cohort, 0, chunk)
        server = replace(server, params=tree.add(server.params, update.delta))
        if float(tree.norm(update.delta, 0)) < _STILL:
            return server.params
    raise ValueError(f"no optimum after {_CHUNK * _MOST_CHUNKS} steps; allowed: data that no line separates")


def flat(params: Params) -> Tensor:
    return torch.cat([leaf.flatten() for leaf in params.values()])


def unflat(model: Model, vector: Tensor) -> Params:
    """Parameters of vectors [..., P]."""
    shapes = {name: leaf.shape for name, leaf in model.module.named_parameters()}
    pieces = vector.split([math.prod(shape) for shape in shapes.values()], dim=-1)
    return {
        name: piece.reshape(*vector.shape[:-1], *shape)
        for (name, shape), piece in zip(shapes.items(), pieces, strict=True)
    }


def _federation(setting: Setting) -> Federation:
    """Class c lies around a corner of a regular polygon; examples of a class are alike at both clients."""
    generator, classes = rng.stream(setting.seed, "two clients"), len(setting.counts[0])
    angles = 2 * math.pi * np.arange(classes) / classes + math.pi / 2
    centers = np.stack([np.cos(angles), np.sin(angles)], 1)
    train = np.concatenate([np.repeat(np.arange(classes), row) for row in setting.counts])
    test = np.repeat(np.arange(classes), setting.test_per_class)
    x_train, x_test = (torch.from_numpy(generator.normal(centers[y], setting.spread)) for y in (train, test))
    owner = torch.arange(2).repeat_interleave(torch.tensor([sum(row) for row in setting.counts]))
    y_train, y_test = torch.from_numpy(train), torch.from_numpy(test)
    return Federation.natural(
        Dataset("two clients", x_train, y_train, x_test, y_test, num_classes=classes, client_train=owner)
    )


def _zeros(model: Model) -> tuple[Params, Params]:
    """Start without a preferred class; a sum over classes that starts at zero stays there."""
    params, buffers = model.init(_TYPE, "cpu")
    return tree.zeros_like(params), buffers


def _everyone(federation: Federation, seed: int) -> Cohort:
    """All clients, without states: the methods shown here keep no client states."""
    return Cohort(federation, np.arange(federation.num_clients), {}, seed)


def _plane(pooled: Tensor, one: Tensor, two: Tensor) -> Plane:
    """Through the three optima; its first axis runs along the line from client 1's to client 2's."""
    first = (two - one) / (two - one).norm()
    up = (one + two) / 2 - pooled
    second = up - (up @ first) * first
    return Plane(pooled, first, second / second.norm())


def _path(model: Model, federation: Federation, name: str, setting: Setting, plane: Plane) -> dict[str, Any]:
    """The global model after each round (the first point is the start), the local models of each round, and accuracy
    per class before, after and after aggregation in the last round."""
    recipe = Recipe(model, build_algorithm(name), sgd(setting.lr))
    engine = Stacked(Settings(setting.local_epochs, setting.batch_size, "fp64"))
    server, cohort = start_server(recipe, *_zeros(model)), _everyone(federation, setting.seed)
    sizes = torch.from_numpy(federation.sizes(cohort.clients)).to(_TYPE)
    path, local, measured = [plane.coordinates(flat(server.params))], [], dict[str, Any]()
    for round in range(1, setting.rounds + 1):
        (update,) = engine.train(recipe, [received(recipe.algorithm, server)], [cohort], round)
        models = [tree.add(server.params, tree.rows(update.delta, k)) for k in range(2)]
        measured = {"before": _accuracy(model, server.params, federation.dataset)}
        measured["after"] = [_accuracy(model, params, federation.dataset) for params in models]
        server = server_update(recipe.algorithm, server, update, sizes)
        local.append([plane.coordinates(flat(params)) for params in models])
        path.append(plane.coordinates(flat(server.params)))
    measured["aggregated"] = _accuracy(model, server.params, federation.dataset)
    loss = _rounded(_pooled_loss(model, federation.dataset, flat(server.params)))
    return {"algorithm": name, "global": path, "local": local, "per_class_accuracy": measured, "pooled_loss": loss}


def _accuracy(model: Model, params: Params, data: Dataset) -> list[float | None]:
    return evaluate_model(model, params, {}, data).per_class_accuracy


def _pooled_loss(model: Model, data: Dataset, vectors: Tensor) -> Tensor:
    """Mean cross entropy of all training data for parameters [..., P]."""
    lead = vectors.shape[:-1]
    x, labels = data.x_train.expand(*lead, *data.x_train.shape), data.y_train.expand(*lead, -1)
    with torch.no_grad():
        logits = model.apply(unflat(model, vectors), {}, x, train=False)[0].logits
        return -logits.log_softmax(-1).gather(-1, labels.unsqueeze(-1)).mean((-1, -2))


def _contour(model: Model, data: Dataset, plane: Plane, points: Sequence[Sequence[float]]) -> dict[str, Any]:
    """The pooled loss over a rectangle that holds all points with a margin; a row of `loss` is a value of v."""
    spans = np.array(points)[:, :2]
    low, high = spans.min(0), spans.max(0)
    margin = 0.12 * float((high - low).max())
    u, v = (
        torch.linspace(float(a) - margin, float(b) + margin, _GRID, dtype=_TYPE) for a, b in zip(low, high, strict=True)
    )
    loss = _pooled_loss(model, data, plane.at(*torch.meshgrid(u, v, indexing="xy")))
    return {"u": _rounded(u), "v": _rounded(v), "loss": _rounded(loss)}


def _rounded(values: Tensor) -> Any:
    """Nested lists, or a number, of four decimals."""
    return np.asarray(values).round(4).tolist()

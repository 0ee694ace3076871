"""Options of the models: standardised filters, features of unit length, and a fixed simplex as the last layer."""

from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn import functional

from fedskew import Run, simulate
from fedskew.core import tree
from fedskew.core.round import Server
from fedskew.core.tree import Params
from fedskew.models import MODELS, build_model
from fedskew.models.heads import simplex
from fedskew.models.layers import StandardConv2d
from fedskew.simulation.simulation import Simulation
from tests.helpers import assert_close
from tests.parity.test_engines import DIGITS, assert_same

SHAPE = (2, 22, 22)
SPECS = [
    "cnn:norm=group,width=8,weights=standard",
    "cnn:width=8,weights=standard",
    "cnn:width=8,head=unit",
    "cnn:norm=group,width=8,weights=standard,head=etf",
    "mcmahan:head=unit",
    "mcmahan:head=etf",
    "mlp:hidden=9,head=unit",
    "mlp:hidden=9,head=etf",
]
DEFAULTS = {
    "cnn": "cnn:norm=batch,width=128,padding=0",
    "mcmahan": "mcmahan:padding=0",
    "mlp": "mlp:hidden=64,depth=1",
    "resnet18": "resnet18:norm=batch",
}


def built(spec: str, classes: int = 5) -> tuple[Any, Params, Params]:
    model = build_model(spec, SHAPE, classes, seed=3)
    return model, *model.init(torch.float64, "cpu")


@pytest.mark.parametrize("name", DEFAULTS)
def test_defaults_leave_runs_their_names_and_models_theirs(name: str) -> None:
    assert Run(model=name).model == DEFAULTS[name]
    assert Run(model=f"{name}:head=linear").hash == Run(model=name).hash
    assert Run(model=f"{name}:head=unit").hash != Run(model=name).hash
    with torch.device("meta"):
        names = [key for key, _ in MODELS[name]((3, 32, 32), 10).named_parameters()]
    assert names[-2:] == ["linear.weight", "linear.bias"]


@pytest.mark.parametrize("train", [True, False])
@pytest.mark.parametrize("spec", [*SPECS, "resnet18:norm=group,weights=standard,head=unit"])
def test_leading_axes_are_a_loop_over_clients(spec: str, train: bool, generator: torch.Generator) -> None:
    shape = (2, 8, 8) if spec.startswith("resnet") else SHAPE
    model = build_model(spec, shape, 5, seed=3)
    params, buffers = model.init(torch.float64, "cpu")

    def near(leaf: Tensor) -> Tensor:
        return leaf + 0.05 * torch.randn(2, *leaf.shape, generator=generator, dtype=torch.float64) * leaf.abs().mean()

    params, buffers = tree.map(near, params), tree.map(lambda leaf: near(leaf).abs() + 0.1, buffers)
    x = torch.randn(2, 4, *shape, generator=generator, dtype=torch.float64)
    leaves = tree.map(lambda leaf: leaf.clone().requires_grad_(), params)
    both, _ = model.apply(leaves, buffers, x, train=train)
    grads = torch.autograd.grad(both.logits.square().sum(), list(leaves.values()))
    for k in range(2):
        own = {name: leaf[k].clone().requires_grad_() for name, leaf in params.items()}
        one, _ = model.apply(own, tree.rows(buffers, k), x[k], train=train)
        torch.testing.assert_close(both.logits[k], one.logits, rtol=1e-8, atol=1e-8)
        assert both.features is not None
        torch.testing.assert_close(both.features[k], one.features, rtol=1e-8, atol=1e-8)
        single = torch.autograd.grad(one.logits.square().sum(), list(own.values()))
        for all_, grad in zip(grads, single, strict=True):
            torch.testing.assert_close(all_[k], grad, rtol=1e-6, atol=1e-6)


def test_standardised_filters_by_hand(generator: torch.Generator) -> None:
    conv = StandardConv2d(3, 4, 3, padding=1).double()
    x = torch.randn(2, 3, 6, 6, generator=generator, dtype=torch.float64)
    rows = conv.weight.detach().flatten(1)
    wanted = 1e-3 * (rows - rows.mean(1, keepdim=True)) / (rows.std(1, keepdim=True) + 1e-5)
    assert conv.bias is None
    assert_close(conv.filters().flatten(1), wanted)
    assert_close(conv(x), functional.conv2d(x, wanted.view_as(conv.weight), padding=1))


def test_the_length_and_mean_of_a_standardised_filter_do_not_matter(generator: torch.Generator) -> None:
    """So its gradient is at right angles to the filter, and sums to zero, up to the 1e-5 beside the deviation."""
    model, params, buffers = built("cnn:norm=group,width=8,weights=standard")
    x = torch.randn(3, *SHAPE, generator=generator, dtype=torch.float64)
    moved = {name: 3 * leaf + 0.7 if name.startswith("convs") else leaf for name, leaf in params.items()}
    one, other = (model.apply(each, buffers, x, train=True)[0].logits for each in (params, moved))
    torch.testing.assert_close(one, other, rtol=1e-3, atol=1e-4)
    leaves = tree.map(lambda leaf: leaf.clone().requires_grad_(), params)
    total = model.apply(leaves, buffers, x, train=True)[0].logits.square().sum()
    (grad,) = torch.autograd.grad(total, [leaves["convs.1.weight"]])
    size = grad.flatten(1).norm(dim=1)
    assert (size > 0).all()
    assert (grad.flatten(1).sum(1).abs() / size < 1e-9).all()
    along = (grad * params["convs.1.weight"]).flatten(1).sum(1) / (
        size * params["convs.1.weight"].flatten(1).norm(dim=1)
    )
    assert (along.abs() < 1e-3).all()


def test_a_filter_of_equal_weights_has_a_gradient() -> None:
    conv = StandardConv2d(1, 2, 3)
    torch.nn.init.constant_(conv.weight, 0.5)
    conv(torch.ones(1, 1, 3, 3)).sum().backward()
    assert conv.weight.grad is not None
    assert torch.isfinite(conv.weight.grad).all()


def test_features_of_unit_length_by_hand(generator: torch.Generator) -> None:
    model, params, buffers = built("mlp:hidden=9,head=unit")
    x = torch.randn(4, *SHAPE, generator=generator, dtype=torch.float64)
    hidden = functional.linear(x.flatten(1), params["hidden.0.weight"], params["hidden.0.bias"]).relu()
    scaled = params["linear.scale"] * hidden / hidden.norm(dim=1, keepdim=True)
    out, _ = model.apply(params, buffers, x, train=True)
    assert params["linear.scale"].tolist() == [10.0]
    assert_close(out.logits, functional.linear(scaled, params["linear.weight"], params["linear.bias"]))
    assert_close(out.features, hidden)


def test_a_simplex_by_hand(generator: torch.Generator) -> None:
    model, params, buffers = built("mlp:hidden=9,head=etf")
    x = torch.randn(4, *SHAPE, generator=generator, dtype=torch.float64)
    hidden = functional.linear(x.flatten(1), params["hidden.0.weight"], params["hidden.0.bias"]).relu()
    turned = functional.linear(hidden, params["linear.turn.weight"], params["linear.turn.bias"])
    fixed = model.whole_state(params, buffers)["linear.weight"]
    wanted = 10 * (turned / turned.norm(dim=1, keepdim=True)) @ fixed.T
    assert_close(model.apply(params, buffers, x, train=True)[0].logits, wanted)


@pytest.mark.parametrize(("features", "classes"), [(5, 5), (9, 5), (64, 10), (2, 2)])
def test_the_angles_of_a_simplex_are_equal(features: int, classes: int) -> None:
    matrix = simplex(features, classes)
    wanted = torch.full((classes, classes), -1 / (classes - 1), dtype=torch.float64).fill_diagonal_(1.0)
    assert matrix.shape == (features, classes)
    assert_close(matrix.T @ matrix, wanted)


def test_the_simplex_is_the_seeds_and_nobody_trains_or_sends_it() -> None:
    fields = {**DIGITS, "model": "mlp:hidden=16,head=etf", "algorithm": "fedla+scaffold"}
    simulation = Simulation(Run(**fields))
    before = simulation.model.module.get_parameter("linear.weight").clone()
    assert "linear.weight" not in simulation.server.params
    assert all("linear.weight" not in part for part in simulation.server.correction)
    assert simulation.model.frozen == ["linear.weight"]
    server = list(simulate(Run(**fields)))[-1].server
    assert isinstance(server, Server)
    assert set(server.params) == set(simulation.server.params)
    again = Simulation(Run(**fields)).model.module.get_parameter("linear.weight")
    other = Simulation(Run(**fields, seed=1)).model.module.get_parameter("linear.weight")
    assert torch.equal(again, before)
    assert not torch.equal(other, before)


@pytest.mark.parametrize("engine", ["stacked", "threaded", "graphed"])
@pytest.mark.parametrize(
    ("model", "algorithm"),
    [
        ("cnn:norm=group,padding=1,width=16,weights=standard", "fedlc+scaffold"),
        ("cnn:padding=1,width=16,weights=standard", "fedavg"),
        ("cnn:padding=1,width=16,head=unit", "fedavg"),
        ("cnn:padding=1,width=16,head=etf", "fedla"),
        ("mlp:hidden=16,head=etf", "fedntd+feddecorr"),
    ],
)
def test_every_engine(model: str, algorithm: str, engine: str) -> None:
    assert_same({**DIGITS, "model": model, "algorithm": algorithm, "rounds": 2}, engine)


@pytest.mark.parametrize(
    ("spec", "named"),
    [
        ("cnn:width=8,head=round", "head is 'round'; allowed: linear, unit, etf"),
        ("cnn:weights=odd", "cnn: weights is 'odd'; allowed: plain, standard"),
        ("resnet18:weights=odd", "resnet18: weights is 'odd'; allowed: plain, standard"),
        ("cnn:norm=none,weights=standard", "allowed with these weights: norm=group, norm=batch"),
        ("mlp:hidden=4,head=etf", "head=etf with 5 classes and 4 features; allowed: 2 to 4 classes"),
    ],
)
def test_options_that_are_refused(spec: str, named: str) -> None:
    with pytest.raises(ValueError, match=named):
        build_model(spec, (2, 32, 32), 5, seed=0)

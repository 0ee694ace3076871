"""The convolutional networks: sizes known from the literature, and leading axes against one client at a time."""

import sys
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

from fedskew.core import tree
from fedskew.core.tree import Params
from fedskew.models import MODELS, Model, build_model, leaf_cnn, mcmahan, mlp, resnet18
from fedskew.models.layers import Conv2d
from tests.helpers import apply

SPECS = ["cnn", "cnn:norm=group", "mcmahan", "mcmahan:padding=2", "leaf_cnn", "resnet18", "resnet18:norm=group"]


@pytest.mark.parametrize(
    ("spec", "shape", "classes", "count"),
    [
        ("cnn", (3, 32, 32), 10, 304_650),
        ("mcmahan", (3, 32, 32), 10, 878_538),
        ("mcmahan", (1, 28, 28), 10, 582_026),
        ("mcmahan:padding=2", (1, 28, 28), 10, 1_663_370),
        ("leaf_cnn", (1, 28, 28), 62, 6_603_710),
        ("resnet18", (3, 32, 32), 10, 11_173_962),
        ("resnet18:norm=group", (3, 32, 32), 10, 11_173_962),
        ("resnet18", (3, 64, 64), 12, 11_173_962 + 2 * 513),
    ],
)
def test_parameter_counts(spec: str, shape: tuple[int, ...], classes: int, count: int) -> None:
    with torch.device("meta"):
        module = build_model(spec, shape, classes, seed=0).module
    assert sum(leaf.numel() for leaf in module.parameters()) == count


@pytest.mark.parametrize(("side", "maps"), [(28, 28), (32, 32), (48, 24), (64, 32)])
def test_stride_of_the_first_layer(side: int, maps: int) -> None:
    with torch.device("meta"):
        module = resnet18((3, side, side), 10).eval()
        seen: list[torch.Size] = []
        stem = next(iter(module.children()))
        stem.register_forward_hook(lambda _, __, out: seen.append(out.shape))
        assert module(torch.zeros(1, 3, side, side)).shape == (1, 10)
    assert seen == [torch.Size((1, 64, maps, maps))]


def small(spec: str) -> tuple[int, ...]:
    """Images hardly larger than a model needs."""
    return (2, *[{"cnn": 22, "resnet18": 8}.get(spec.partition(":")[0], 16)] * 2)


def clients(spec: str, shape: tuple[int, ...], generator: torch.Generator) -> tuple[Model, Params, Params]:
    """Two clients of a model, near its initialisation, in float64."""
    model = build_model(spec, shape, 5, seed=3)
    params, buffers = model.init(torch.float64, "cpu")

    def near(leaf: Tensor) -> Tensor:
        noise = torch.randn(2, *leaf.shape, generator=generator, dtype=torch.float64)
        return leaf + 0.05 * noise * leaf.abs().mean()

    return model, tree.map(near, params), tree.map(lambda leaf: near(leaf).abs() + 0.1, buffers)


@pytest.mark.parametrize("train", [True, False])
@pytest.mark.parametrize("spec", SPECS)
def test_leading_axes_are_a_loop_over_clients(spec: str, train: bool, generator: torch.Generator) -> None:
    shape = small(spec)
    model, params, buffers = clients(spec, shape, generator)
    x = torch.randn(2, 4, *shape, generator=generator, dtype=torch.float64)
    with torch.no_grad():
        logits, after = apply(model, params, buffers, x, train=train)
        for k in range(2):
            one, own = apply(model, tree.rows(params, k), tree.rows(buffers, k), x[k], train=train)
            torch.testing.assert_close(logits[k], one, rtol=1e-9, atol=1e-9)
            for name, leaf in own.items():
                torch.testing.assert_close(after[name][k], leaf, rtol=1e-9, atol=1e-9)
        assert torch.equal(logits.isfinite(), torch.ones_like(logits, dtype=torch.bool))


@pytest.mark.parametrize("spec", ["resnet18", "resnet18:norm=group", "mcmahan"])
def test_gradients_and_masked_images(spec: str, generator: torch.Generator) -> None:
    """Padded images change neither logits nor gradients nor statistics of the others."""
    model, params, buffers = clients(spec, small(spec), generator)
    x = torch.randn(2, 5, *small(spec), generator=generator, dtype=torch.float64)
    sizes = (5, 3)
    mask = torch.arange(5) < torch.tensor(sizes)[:, None]
    leaves = tree.map(lambda leaf: leaf.clone().requires_grad_(), params)
    logits, after = apply(model, leaves, buffers, x, mask, train=True)
    total = (logits.square().sum(-1) * mask).sum()
    grads = dict(zip(leaves, torch.autograd.grad(total, list(leaves.values())), strict=True))
    for k, size in enumerate(sizes):
        own = {name: leaf[k].clone().requires_grad_() for name, leaf in params.items()}
        one, stats = apply(model, own, tree.rows(buffers, k), x[k, :size], train=True)
        torch.testing.assert_close(logits[k, :size], one, rtol=1e-8, atol=1e-8)
        single = torch.autograd.grad(one.square().sum(), list(own.values()))
        for name, grad in zip(own, single, strict=True):
            torch.testing.assert_close(grads[name][k], grad, rtol=1e-7, atol=1e-7)
        for name, leaf in stats.items():
            torch.testing.assert_close(after[name][k], leaf, rtol=1e-7, atol=1e-7)


def test_mcmahan_by_hand(generator: torch.Generator) -> None:
    model = build_model("mcmahan", (3, 32, 32), 10, seed=0)
    params, buffers = model.init(torch.float64, "cpu")
    x = torch.randn(2, 3, 32, 32, generator=generator, dtype=torch.float64)
    out = x
    for name in ("conv1", "conv2"):
        out = functional.conv2d(out, params[f"{name}.weight"], params[f"{name}.bias"])
        out = functional.max_pool2d(functional.relu(out), 2)
    out = functional.relu(functional.linear(out.flatten(1), params["hidden.weight"], params["hidden.bias"]))
    out = functional.linear(out, params["linear.weight"], params["linear.bias"])
    torch.testing.assert_close(apply(model, params, buffers, x, train=True)[0], out)


def test_resnet_by_hand(generator: torch.Generator) -> None:
    model, params, buffers = clients("resnet18", (3, 40, 40), generator)
    params, buffers = tree.rows(params, 0), tree.rows(buffers, 0)
    x = torch.randn(2, 3, 40, 40, generator=generator, dtype=torch.float64)

    def normed(x: Tensor, name: str, stride: int) -> Tensor:
        weight = params[f"{name}.conv.weight"]
        x = functional.conv2d(x, weight, stride=stride, padding=weight.shape[-1] // 2)
        stats = (buffers[f"{name}.norm.running_{kind}"] for kind in ("mean", "var"))
        return functional.batch_norm(x, *stats, params[f"{name}.norm.weight"], params[f"{name}.norm.bias"])

    out = functional.relu(normed(x, "stem", 2))
    for i, stride in enumerate((1, 1, 2, 1, 2, 1, 2, 1)):
        inner = functional.relu(normed(out, f"blocks.{i}.first", stride))
        straight = out if stride == 1 else normed(out, f"blocks.{i}.shortcut", stride)
        out = functional.relu(straight + normed(inner, f"blocks.{i}.second", 1))
    out = functional.linear(out.mean((2, 3)), params["linear.weight"], params["linear.bias"])
    with torch.no_grad():
        torch.testing.assert_close(apply(model, params, buffers, x, train=False)[0], out)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: mcmahan((60,), 10), r"mcmahan takes images \[channels, height, width\], not inputs of shape \[60\]"),
        (lambda: mcmahan((3, 15, 32), 10), r"mcmahan: images of 15x32 are too small; it needs at least 16x16"),
        (lambda: mcmahan((1, 28, 28), 10, padding=1), r"mcmahan: padding is 1; allowed: 0 or 2"),
        (lambda: leaf_cnn((1, 3, 3), 62), r"leaf_cnn: images of 3x3 are too small; it needs at least 4x4"),
        (lambda: leaf_cnn((784,), 62), r"leaf_cnn takes images"),
        (lambda: resnet18((60,), 10), r"resnet18 takes images"),
        (lambda: resnet18((3, 32, 32), 10, norm="layer"), r"resnet18: norm is 'layer'; allowed: batch, group"),
    ],
)
def test_bad_requests(make: Callable[[], nn.Module], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        make()


def test_names_are_known() -> None:
    assert {"mcmahan", "resnet18", "leaf_cnn"} <= MODELS.keys()


def features_of(model: Model, params: Params, buffers: Params, x: Tensor) -> Tensor:
    features = model.apply(params, buffers, x, train=False)[0].features
    assert features is not None
    return features


@pytest.mark.parametrize("spec", ["cnn", "mcmahan", "resnet18", "mlp", "logistic"])
def test_features_are_the_input_of_the_last_layer(spec: str, generator: torch.Generator) -> None:
    model, params, buffers = clients(spec, small(spec), generator)
    x = torch.randn(2, 4, *small(spec), generator=generator, dtype=torch.float64)
    features = features_of(model, params, buffers, x)
    weight, bias = params["linear.weight"], params["linear.bias"]
    logits, _ = apply(model, params, buffers, x, train=False)
    torch.testing.assert_close(features @ weight.mT + bias.unsqueeze(-2), logits)
    one = features_of(model, tree.rows(params, 1), tree.rows(buffers, 1), x[1])
    torch.testing.assert_close(features[1], one, rtol=1e-9, atol=1e-9)


class Backwards(nn.Module):
    """A user's own module, which names its classifier first."""

    def __init__(self) -> None:
        super().__init__()
        self.classifier = nn.Linear(6, 3)
        self.body = nn.Sequential(nn.Flatten(), nn.Linear(8, 6), nn.Tanh(), nn.Dropout(0.5))

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.classifier(self.body(x))
        return out


def test_features_of_a_users_module(generator: torch.Generator) -> None:
    module = Backwards()
    model = Model(module)
    params, buffers = model.init(torch.float64, "cpu")
    x = torch.randn(5, 2, 4, generator=generator, dtype=torch.float64)
    by_hand = torch.tanh(functional.linear(x.flatten(1), params["body.1.weight"], params["body.1.bias"]))
    torch.testing.assert_close(features_of(model, params, buffers, x), by_hand)
    stacked = tree.map(lambda leaf: torch.stack([leaf, 2 * leaf]), params)
    both = features_of(model, stacked, {}, torch.stack([x, x]))
    torch.testing.assert_close(both[0], by_hand)
    assert both.shape == (2, 5, 6)


def test_features_leave_no_hook_behind(generator: torch.Generator) -> None:
    model = Model(mlp((4,), 3))
    params, buffers = model.init(torch.float32, "cpu")
    x = torch.randn(2, 4, generator=generator)
    before, _ = apply(model, params, buffers, x, train=False)
    features_of(model, params, buffers, x)
    with pytest.raises(RuntimeError):
        features_of(model, params, buffers, x[:, :3])
    assert not any(part._forward_hooks or part._forward_pre_hooks for part in model.module.modules())
    assert torch.equal(apply(model, params, buffers, x, train=False)[0], before)


def test_a_module_without_a_linear_layer_has_no_features() -> None:
    model = Model(nn.Sequential(nn.Conv2d(1, 3, 4), nn.Flatten()))
    params, buffers = model.init(torch.float32, "cpu")
    outputs, _ = model.apply(params, buffers, torch.zeros(2, 1, 4, 4), train=False)
    assert outputs.features is None


def plain_norm_relu(
    x: Tensor, residual: Tensor | None, weight: Tensor, bias: Tensor, mean: Tensor, var: Tensor, mask: Tensor,
    images: Tensor, relu: bool, momentum: float, eps: float,
) -> tuple[Tensor, Tensor, Tensor]:  # fmt: skip
    """What the GPU kernel of this name does, in PyTorch."""
    assert int(mask.sum()) == int(images)
    kept, new_mean, new_var = x[mask.bool()], mean.clone(), var.clone()
    if images > 1:
        functional.batch_norm(kept.detach(), new_mean, new_var, training=True, momentum=momentum)
        mean, var = kept.mean((0, 2, 3)), kept.var((0, 2, 3), correction=0)
    scale = weight * (var + eps).rsqrt()
    y = (x - mean[:, None, None]) * scale[:, None, None] + bias[:, None, None]
    y = y if residual is None else y + residual
    return (y.relu() if relu else y), new_mean, new_var


@pytest.mark.parametrize("spec", ["resnet18", "resnet18:weights=standard,head=unit", "resnet18:norm=group"])
@pytest.mark.parametrize("kept", [None, 3, 1])
def test_resnet_with_fused_norms_is_the_plain_one(
    spec: str, kept: int | None, generator: torch.Generator, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where its kernel is, in which order the parts are put together, and what becomes of the statistics."""
    calls: list[tuple[bool, bool]] = []

    def counted(x: Tensor, residual: Tensor | None, *rest: Any) -> tuple[Tensor, Tensor, Tensor]:
        calls.append((residual is not None, rest[6]))
        return plain_norm_relu(x, residual, *rest)

    stand_in = SimpleNamespace(norm_relu=counted)
    monkeypatch.setitem(sys.modules, "fedskew.models.kernels.norm_relu", stand_in)  # Triton may not be installed
    shape = small(spec)
    model, params, buffers = clients(spec, shape, generator)
    own = {name: leaf.requires_grad_() for name, leaf in tree.rows(params, 0).items()}
    x = torch.randn(4, *shape, generator=generator, dtype=torch.float64)
    mask = None if kept is None else torch.arange(4) < kept
    weights = torch.ones(4, dtype=torch.bool) if mask is None else mask
    results = []
    for each in (model, model.fused()):
        logits, after = apply(each, own, tree.rows(buffers, 0), x, mask, train=True)
        grads = torch.autograd.grad(logits[weights].square().sum(), list(own.values()))
        results.append([logits[weights], *after.values(), *grads])
        quiet, _ = apply(each, own, tree.rows(buffers, 0), x, train=False)
        results[-1].append(quiet)
    for plain, fused in zip(*results, strict=True):
        torch.testing.assert_close(fused, plain, rtol=1e-8, atol=1e-8)
    batch_norms = [(False, True)] * 9 + [(False, False)] * 3 + [(True, True)] * 8  # one stem, eight blocks
    assert sorted(calls) == sorted(batch_norms if "group" not in spec else [])


@pytest.mark.parametrize(
    ("inputs", "kernel", "stride", "thin"), [(3, 3, 1, True), (3, 3, 2, True), (3, 5, 2, True), (64, 1, 2, False)]
)
def test_a_thin_convolution_is_a_matrix_product(
    inputs: int, kernel: int, stride: int, thin: bool, generator: torch.Generator
) -> None:
    """As GPUs take a first layer; a shortcut's filters have few values too, but its images have a gradient."""
    conv = Conv2d(inputs, 4, kernel, stride=stride, padding=kernel // 2).double()
    x = torch.randn(2, inputs, 9, 8, generator=generator, dtype=torch.float64, requires_grad=True)
    assert conv.thin is thin
    torch.testing.assert_close(conv._as_product(x, conv.weight, conv.bias), conv(x))

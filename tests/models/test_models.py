"""Our layers are PyTorch's; leading axes and masks change nothing but how many clients run at once."""

import copy
import math
from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn
from torch.func import functional_call

from fedskew.core.tree import Params
from fedskew.models import Model, build_model, cnn, logistic, mlp
from fedskew.models.layers import BatchNorm, Conv2d, GroupNorm, Linear, max_pool2
from tests.helpers import OWN, apply, assert_close, assert_trees_close, assert_trees_equal, clones, normal
from tests.helpers.own import dropping, instance_normed, normed, plain

LEADS = pytest.mark.parametrize("lead", [(), (3,), (2, 3)], ids=str)


def stacked(module: nn.Module, generator: torch.Generator, *lead: int) -> tuple[Params, Params]:
    """Random parameters and plausible buffers with leading axes."""
    params = {name: normal(generator, *lead, *p.shape) for name, p in module.named_parameters()}
    buffers = {name: normal(generator, *lead, *b.shape).exp() for name, b in module.named_buffers()}
    return params, buffers


def clients(lead: tuple[int, ...]) -> list[tuple[int, ...]]:
    return (
        list(torch.cartesian_prod(*[torch.arange(n) for n in lead]).reshape(-1, len(lead)).tolist()) if lead else [()]
    )


def at(tree: Params, where: tuple[int, ...]) -> Params:
    return {name: leaf[tuple(where)] for name, leaf in tree.items()}


PAIRS: dict[str, tuple[nn.Module, nn.Module, tuple[int, ...]]] = {
    "linear": (Linear(4, 3), nn.Linear(4, 3), (5, 4)),
    "conv": (Conv2d(2, 3, 3), nn.Conv2d(2, 3, 3), (5, 2, 6, 7)),
    "conv-padded": (Conv2d(2, 3, 3, padding=1), nn.Conv2d(2, 3, 3, padding=1), (5, 2, 6, 7)),
    "conv-strided": (Conv2d(2, 3, 3, stride=2, bias=False), nn.Conv2d(2, 3, 3, stride=2, bias=False), (5, 2, 7, 7)),
    "group norm": (GroupNorm(2, 4), nn.GroupNorm(2, 4), (5, 4, 3, 3)),
    "batch norm": (BatchNorm(4), nn.BatchNorm2d(4), (5, 4, 3, 3)),
}
LAYERS = pytest.mark.parametrize(("ours", "theirs", "shape"), PAIRS.values(), ids=PAIRS)


def theirs_one_step(
    module: nn.Module, params: Params, buffers: Params, x: Tensor, weights: Tensor, *, train: bool = True
) -> tuple[Tensor, Params, Params]:
    """PyTorch's layer on one client: output, gradients, buffers after the pass."""
    module = copy.deepcopy(module).double().train(train)
    module.load_state_dict({**params, **buffers}, strict=False)
    out = module(x)
    (out * weights).sum().backward()
    grads = {name: p.grad for name, p in module.named_parameters() if p.grad is not None}
    return out.detach(), grads, {name: b for name, b in module.named_buffers() if name in buffers}


@LAYERS
@LEADS
def test_layers_equal_pytorchs(
    ours: nn.Module, theirs: nn.Module, shape: tuple[int, ...], lead: tuple[int, ...], generator: torch.Generator
) -> None:
    """Outputs, gradients and running statistics, client by client."""
    params, buffers = stacked(ours, generator, *lead)
    x = normal(generator, *lead, *shape)
    live = {name: leaf.clone().requires_grad_() for name, leaf in params.items()}
    state = {**live, **clones(buffers)}
    ours.train()
    out = functional_call(ours, state, (x,))
    weights = normal(generator, *out.shape)
    grads = dict(zip(live, torch.autograd.grad((out * weights).sum(), list(live.values())), strict=True))
    after = {name: state[name] for name in buffers}
    for where in clients(lead):
        index = tuple(where)
        expected, grads_, after_ = theirs_one_step(
            theirs, at(params, index), at(buffers, index), x[index], weights[index]
        )
        assert_close(out[index].detach(), expected, rtol=1e-10, atol=1e-10)
        assert_trees_close(at(grads, index), grads_, rtol=1e-9, atol=1e-9)
        assert_trees_close(at(after, index), after_, rtol=1e-10, atol=1e-10)


@LAYERS
def test_state_dicts_are_exchanged_with_pytorchs(ours: nn.Module, theirs: nn.Module, shape: tuple[int, ...]) -> None:
    ours, theirs = copy.deepcopy(ours).eval(), copy.deepcopy(theirs).eval()
    theirs.load_state_dict(ours.state_dict())
    assert [p.shape for p in ours.parameters()] == [p.shape for p in theirs.parameters()]
    assert [n for n, _ in ours.named_parameters()] == [n for n, _ in theirs.named_parameters()]
    x = torch.randn(*shape, generator=torch.Generator().manual_seed(1))
    assert_close(ours(x), theirs(x), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(("ours", "theirs"), [(Linear, nn.Linear), (Conv2d, nn.Conv2d)])
def test_initialised_as_pytorchs(ours: type[nn.Module], theirs: type[nn.Module]) -> None:
    arguments = (4, 3) if ours is Linear else (4, 3, 3)
    with torch.random.fork_rng():
        torch.manual_seed(3)
        one = ours(*arguments)
        torch.manual_seed(3)
        other = theirs(*arguments)
    assert_trees_equal(dict(one.state_dict()), dict(other.state_dict()))


@LEADS
def test_max_pool(lead: tuple[int, ...], generator: torch.Generator) -> None:
    x = normal(generator, *lead, 5, 2, 7, 6)
    out = max_pool2(x)
    assert out.shape == (*lead, 5, 2, 3, 3)
    for where in clients(lead):
        assert torch.equal(out[tuple(where)], nn.functional.max_pool2d(x[tuple(where)], 2))


def through(
    module: nn.Module, params: Params, buffers: Params, x: Tensor, mask: Tensor | None, *, train: bool
) -> tuple[Tensor, Params]:
    """What a layer makes of x with this state, and its buffers after that."""
    state = {**params, **buffers}
    out: Tensor = functional_call(module.train(train), state, (x, mask))
    return out, {name: state[name] for name in buffers}


class TestBatchNorm:
    """Statistics are of the images that the mask keeps."""

    @staticmethod
    def run(
        params: Params, buffers: Params, x: Tensor, mask: Tensor | None, weights: Tensor, *, train: bool = True
    ) -> tuple[Tensor, Params, Tensor, Params]:
        """Output, gradients of parameters, gradient of the input, buffers."""
        live = {name: leaf.clone().requires_grad_() for name, leaf in params.items()}
        x = x.clone().requires_grad_()
        out, after = through(BatchNorm(params["weight"].shape[-1]), live, clones(buffers), x, mask, train=train)
        kept = weights if mask is None else weights * mask[..., None, None, None]
        *grads, of_x = torch.autograd.grad((out * kept).sum(), [*live.values(), x])
        return out.detach(), dict(zip(live, grads, strict=True)), of_x, after

    @pytest.mark.parametrize("kept", [[1, 1, 1, 0, 0], [0, 1, 0, 1, 1], [1, 1, 1, 1, 1], [1, 0, 0, 0, 1]], ids=str)
    def test_masked_equals_unmasked_on_the_kept(self, kept: list[int], generator: torch.Generator) -> None:
        params, buffers = stacked(BatchNorm(4), generator)
        x, weights, mask = normal(generator, 5, 4, 3, 3), normal(generator, 5, 4, 3, 3), torch.tensor(kept).bool()
        out, grads, of_x, after = self.run(params, buffers, x, mask, weights)
        out_, grads_, of_x_, after_ = self.run(params, buffers, x[mask], None, weights[mask])
        assert_close(out[mask], out_, rtol=1e-10, atol=1e-10)
        assert_trees_close(grads, grads_, rtol=1e-10, atol=1e-10)
        assert_close(of_x[mask], of_x_, rtol=1e-10, atol=1e-10)
        assert (of_x[~mask] == 0).all()
        assert_trees_close(after, after_, rtol=1e-11, atol=1e-11)

    @pytest.mark.parametrize("lead", [(3,), (2, 3)], ids=str)
    def test_every_client_has_its_own_mask(self, lead: tuple[int, ...], generator: torch.Generator) -> None:
        """One of them with a single image, one without padding."""
        params, buffers = stacked(BatchNorm(4), generator, *lead)
        x, weights = normal(generator, *lead, 5, 4, 3, 3), normal(generator, *lead, 5, 4, 3, 3)
        lengths = torch.tensor([5, 1, 3, 2, 4, 1])[: math.prod(lead)].reshape(lead)
        mask = torch.arange(5) < lengths[..., None]
        out, grads, of_x, after = self.run(params, buffers, x, mask, weights)
        for where in clients(lead):
            index = tuple(where)
            n = int(lengths[index])
            out_, grads_, of_x_, after_ = self.run(
                at(params, index), at(buffers, index), x[index][:n], None, weights[index][:n]
            )
            assert_close(out[index][:n], out_, rtol=1e-10, atol=1e-10)
            assert_trees_close(at(grads, index), grads_, rtol=1e-10, atol=1e-10)
            assert_close(of_x[index][:n], of_x_, rtol=1e-10, atol=1e-10)
            assert_trees_close(at(after, index), after_, rtol=1e-11, atol=1e-11)

    @pytest.mark.parametrize("padded", [False, True])
    def test_one_image_uses_and_keeps_running_statistics(self, padded: bool, generator: torch.Generator) -> None:
        params, buffers = stacked(BatchNorm(4), generator)
        x = normal(generator, 3 if padded else 1, 4, 3, 3)
        mask = torch.tensor([True, False, False]) if padded else None
        out, _, _, after = self.run(params, buffers, x, mask, torch.ones_like(x))
        still, _, _, _ = self.run(params, buffers, x[:1], None, torch.ones_like(x[:1]), train=False)
        assert_close(out[:1], still, rtol=1e-10, atol=1e-10)
        assert_trees_equal(after, buffers)

    def test_half_precision_images_have_float32_statistics(self, generator: torch.Generator) -> None:
        """As PyTorch's own batch norm has them: with a mean of 3, bfloat16 would be off by 0.01."""
        images = (3 + normal(generator, 64, 4, 9, 9, dtype=torch.float32) / 2).bfloat16()
        params, buffers = Model(BatchNorm(4)).init(torch.float32, "cpu")
        (_, plain), (_, masked) = (
            through(BatchNorm(4), params, clones(buffers), images, mask, train=True)
            for mask in (None, torch.ones(64, dtype=torch.bool))
        )
        assert_trees_close(masked, plain, rtol=1e-5, atol=1e-6)

    def test_evaluation_ignores_the_mask_and_keeps_the_statistics(self, generator: torch.Generator) -> None:
        params, buffers = stacked(BatchNorm(4), generator)
        x, mask = normal(generator, 5, 4, 3, 3), torch.tensor([True, False, True, False, True])
        model = Model(BatchNorm(4))
        with_mask, after = apply(model, params, clones(buffers), x, mask, train=False)
        without, _ = apply(model, params, clones(buffers), x, None, train=False)
        assert torch.equal(with_mask, without)
        assert_trees_equal(after, buffers)

    @pytest.mark.parametrize("masked", [False, True])
    def test_the_given_buffers_are_left_alone(self, masked: bool, generator: torch.Generator) -> None:
        module = BatchNorm(4)
        own = clones(dict(module.named_buffers()))
        params, buffers = stacked(module, generator)
        before = clones(buffers)
        mask = torch.tensor([True, True, False]) if masked else None
        _, after = through(module, params, buffers, normal(generator, 3, 4, 3, 3), mask, train=True)
        assert_trees_equal(buffers, before)
        assert_trees_equal(dict(module.named_buffers()), own)
        assert not torch.equal(after["running_mean"], before["running_mean"])
        assert not any(leaf.requires_grad for leaf in after.values())


def built(text: str, shape: tuple[int, ...] = (1, 8, 8), seed: int = 0) -> Model:
    return build_model(text, shape, 10, seed)


EVERY = pytest.mark.parametrize(
    "text",
    [
        "logistic",
        "mlp:hidden=5,depth=2",
        "cnn:padding=1,width=4",
        "cnn:norm=group,padding=1,width=4",
        "mcmahan:padding=2",
    ],
)


@EVERY
@pytest.mark.parametrize("lead", [(3,), (2, 3)], ids=str)
@pytest.mark.parametrize("train", [True, False])
def test_models_with_leading_axes_equal_a_loop(
    text: str, lead: tuple[int, ...], train: bool, generator: torch.Generator
) -> None:
    model = built(text)
    params, buffers = stacked(model.module, generator, *lead)
    x = normal(generator, *lead, 4, 1, 8, 8)
    logits, after = apply(model, params, clones(buffers), x, train=train)
    assert logits.shape == (*lead, 4, 10)
    for where in clients(lead):
        index = tuple(where)
        alone, own = apply(model, at(params, index), clones(at(buffers, index)), x[index], train=train)
        assert_close(logits[index], alone, rtol=1e-9, atol=1e-9)
        assert_trees_close(at(after, index), own, rtol=1e-10, atol=1e-10)


@EVERY
def test_padding_does_not_leak(text: str, generator: torch.Generator) -> None:
    """Other pixels in the padding: the same logits for the kept images, the same gradient and statistics."""
    model = built(text)
    params, buffers = stacked(model.module, generator, 2)
    x = normal(generator, 2, 4, 1, 8, 8)
    mask = torch.tensor([[True, True, True, False], [True, True, False, False]])
    weights = normal(generator, 2, 4, 10) * mask[..., None]

    def pass_over(images: Tensor) -> tuple[Tensor, Params, Params]:
        live = {name: leaf.clone().requires_grad_() for name, leaf in params.items()}
        logits, after = apply(model, live, clones(buffers), images, mask, train=True)
        grads = torch.autograd.grad((logits * weights).sum(), list(live.values()))
        return logits.detach()[mask], dict(zip(live, grads, strict=True)), after

    other = torch.where(mask[..., None, None, None], x, 100 * normal(generator, *x.shape))
    logits, grads, after = pass_over(x)
    logits_, grads_, after_ = pass_over(other)
    assert_close(logits_, logits, rtol=1e-10, atol=1e-10)
    assert_trees_close(grads_, grads, rtol=1e-9, atol=1e-9)
    assert_trees_close(after_, after, rtol=1e-10, atol=1e-10)


def twin(norm: str, width: int, groups: int) -> nn.Sequential:
    """The network of cnn in PyTorch's own layers."""
    layers: list[nn.Module] = []
    for channels in (1, width, width):
        norms = {"batch": [nn.BatchNorm2d(width)], "group": [nn.GroupNorm(groups, width)], "none": []}[norm]
        layers += [nn.Conv2d(channels, width, 3, padding=1), *norms, nn.ReLU(), nn.MaxPool2d(2)]
    return nn.Sequential(*layers, nn.Flatten(), nn.Linear(width, 10))


@pytest.mark.parametrize("norm", ["batch", "group", "none"])
def test_cnn_is_the_network_it_says(norm: str, generator: torch.Generator) -> None:
    ours = cnn((1, 8, 8), 10, norm=norm, width=4, padding=1).double()
    groups = ours.get_submodule("norms.0").num_groups if norm == "group" else 1
    theirs = twin(norm, 4, groups).double()  # type: ignore[arg-type]
    leaves = {"conv": [], "norm": [], "linear": []}  # type: dict[str, list[nn.Module]]
    for part in theirs:
        kind = {nn.Conv2d: "conv", nn.Linear: "linear", nn.BatchNorm2d: "norm", nn.GroupNorm: "norm"}.get(type(part))
        if kind:
            leaves[kind].append(part)
    for i, part in enumerate(leaves["conv"]):
        part.load_state_dict(ours.get_submodule(f"convs.{i}").state_dict())
    for i, part in enumerate(leaves["norm"]):
        part.load_state_dict(ours.get_submodule(f"norms.{i}").state_dict())
    leaves["linear"][0].load_state_dict(ours.get_submodule("linear").state_dict())
    x = normal(generator, 6, 1, 8, 8)
    assert_close(ours(x), theirs(x), rtol=1e-9, atol=1e-9)


def test_logistic_and_mlp_are_what_they_say(generator: torch.Generator) -> None:
    x = normal(generator, 6, 2, 3)
    one = logistic((2, 3), 4).double()
    assert_close(one(x), x.flatten(1) @ one.linear.weight.T + one.linear.bias)
    two = mlp((2, 3), 4, hidden=5, depth=2).double()
    inner = (x.flatten(1) @ two.hidden[0].weight.T + two.hidden[0].bias).relu()
    inner = (inner @ two.hidden[1].weight.T + two.hidden[1].bias).relu()
    assert_close(two(x), inner @ two.linear.weight.T + two.linear.bias)


def test_the_papers_network_has_304650_parameters() -> None:
    model = build_model("cnn", (3, 32, 32), 10, seed=0)
    assert sum(p.numel() for p in model.module.parameters()) == 304_650
    assert model.module.linear.in_features == 512  # type: ignore[union-attr]
    assert len(list(model.module.named_buffers())) == 6


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: cnn((1, 8, 8), 10), "images of 8x8 are too small; it needs at least 22x22; use cnn:padding=1 or mlp"),
        (lambda: cnn((1, 30, 21), 10), "images of 30x21 are too small"),
        (lambda: cnn((1, 7, 7), 10, padding=1), "images of 7x7 are too small; it needs at least 8x8$"),
        (lambda: cnn((60,), 10), r"takes images \[channels, height, width\], not inputs of shape \[60\]"),
        (lambda: cnn((1, 32, 32), 10, norm="layer"), "norm is 'layer'; allowed: batch, group, none"),
        (lambda: cnn((1, 32, 32), 10, width=0), "width=0"),
        (lambda: cnn((1, 32, 32), 10, padding=2), "padding=2"),
        (lambda: mlp((4,), 2, hidden=0), "hidden=0, depth=1; allowed: hidden 1 or more"),
        (lambda: mlp((4,), 2, depth=0), "hidden=64, depth=0; allowed: .* depth 1 to 1,000"),
        (lambda: build_model("cn", (1, 8, 8), 10, 0), "unknown model 'cn': did you mean cnn"),
        (lambda: build_model("mlp:hidden=10000000000000", (4,), 2, 0), r"needs at least [\d,.]+ GB, .*smaller model"),
        (lambda: build_model("mlp:hidden=9e18", (4,), 2, 0), "mlp:hidden=9000000000000000000,depth=1 is too large for"),
    ],
)
def test_wrong_requests(make: Callable[[], nn.Module], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        make()


def test_the_smallest_images_are_enough() -> None:
    assert cnn((1, 22, 22), 10, width=2)(torch.zeros(2, 1, 22, 22)).shape == (2, 10)
    assert cnn((1, 8, 9), 10, width=2, padding=1)(torch.zeros(2, 1, 8, 9)).shape == (2, 10)


def test_the_seed_decides_the_first_parameters_and_nothing_else_moves() -> None:
    before = torch.random.get_rng_state()
    one, again, other = (built("mlp", seed=seed).init(torch.float64, "cpu")[0] for seed in (1, 1, 2))
    assert torch.equal(torch.random.get_rng_state(), before)
    assert_trees_equal(one, again)
    assert not torch.equal(one["linear.weight"], other["linear.weight"])


def test_init_gives_copies_in_the_type_asked_for() -> None:
    model = built("cnn:padding=1,width=4")
    params, buffers = model.init(torch.float64, "cpu")
    assert all(leaf.dtype == torch.float64 and not leaf.requires_grad for leaf in [*params.values(), *buffers.values()])
    params["linear.bias"].add_(1)
    assert not torch.equal(params["linear.bias"], model.init(torch.float64, "cpu")[0]["linear.bias"])
    tracked = Model(nn.BatchNorm2d(3)).init(torch.float64, "cpu")[1]["num_batches_tracked"]
    assert tracked.dtype == torch.int64


class TestOwnModules:
    """A user's nn.Module, which knows neither masks nor leading axes."""

    def test_who_can_be_stacked(self) -> None:
        assert Model(plain((1, 8, 8), 10)).stackable
        assert not Model(normed((1, 8, 8), 10)).stackable
        assert not Model(dropping((1, 8, 8), 10)).stackable
        assert built("cnn:padding=1,width=4").stackable
        assert Model(dropping((1, 8, 8), 10)).random
        assert not Model(normed((1, 8, 8), 10)).random

    def test_instance_norm_with_running_statistics_cannot_be_stacked(self) -> None:
        """Its buffers change with every pass, which vmap would lose."""
        assert not Model(instance_normed((1, 8, 8), 10)).stackable

    def test_vmap_equals_a_loop(self, generator: torch.Generator) -> None:
        model = Model(plain((1, 8, 8), 10))
        params, buffers = stacked(model.module, generator, 3)
        live = {name: leaf.clone().requires_grad_() for name, leaf in params.items()}
        x, weights = normal(generator, 3, 4, 1, 8, 8), normal(generator, 3, 4, 10)
        logits, _ = apply(model, live, buffers, x, train=True)
        grads = torch.autograd.grad((logits * weights).sum(), list(live.values()))
        for k in range(3):
            own = {name: leaf[k].clone().requires_grad_() for name, leaf in params.items()}
            alone, _ = apply(model, own, {}, x[k], train=True)
            grads_ = torch.autograd.grad((alone * weights[k]).sum(), list(own.values()))
            assert_close(logits[k], alone)
            for grad, grad_ in zip(grads, grads_, strict=True):
                assert_close(grad[k], grad_, rtol=1e-10)

    @pytest.mark.parametrize("images", [5, 1])
    def test_batch_norm(self, images: int, generator: torch.Generator) -> None:
        """Running statistics move with several images and stay with one; the user's module is not touched."""
        module = normed((1, 8, 8), 10).double()
        before = copy.deepcopy(module)
        model = Model(module)
        params, buffers = model.init(torch.float64, "cpu")
        x = normal(generator, images, 1, 8, 8)
        kept = clones(buffers)
        logits, after = apply(model, params, buffers, x, train=True)
        assert_trees_equal(buffers, kept)
        reference = copy.deepcopy(before).train(images > 1)
        assert_close(logits, reference(x))
        assert_trees_close(after, dict(reference.named_buffers()))
        assert_trees_equal(dict(module.named_buffers()), dict(before.named_buffers()))
        again, _ = apply(model, params, buffers, normal(generator, 4, 1, 8, 8), train=True)
        assert again.shape == (4, 10)

    def test_training_and_evaluation_alternate(self, generator: torch.Generator) -> None:
        model = Model(normed((1, 8, 8), 10).double())
        params, buffers = model.init(torch.float64, "cpu")
        x = normal(generator, 5, 1, 8, 8)
        first, _ = apply(model, params, buffers, x, train=True)
        still, unmoved = apply(model, params, buffers, x, train=False)
        assert not torch.equal(first, still)
        assert_trees_equal(unmoved, buffers)
        assert torch.equal(apply(model, params, buffers, x, train=True)[0], first)

    def test_tied_weights(self, generator: torch.Generator) -> None:
        """A parameter with two names is one parameter, with and without leading axes."""
        module = nn.Sequential(nn.Linear(4, 4), nn.Tanh(), nn.Linear(4, 4)).double()
        module[2].weight = module[0].weight
        model = Model(module)
        params, _ = stacked(module, generator, 2)
        assert list(params) == ["0.weight", "0.bias", "2.bias"]
        x = normal(generator, 2, 5, 4)
        both, _ = apply(model, params, {}, x, train=True)
        for k in range(2):
            w, first, second = (leaf[k] for leaf in params.values())
            expected = (x[k] @ w.T + first).tanh() @ w.T + second
            assert_close(both[k], expected)
            assert_close(apply(model, at(params, (k,)), {}, x[k], train=True)[0], expected)

    def test_a_model_from_a_file(self) -> None:
        model = build_model(f"{OWN}:plain", (1, 8, 8), 10, seed=4)
        assert not model.takes_mask
        assert apply(model, *model.init(torch.float32, "cpu"), torch.zeros(2, 1, 8, 8), train=False)[0].shape == (2, 10)
        with pytest.raises(ValueError, match=r"gave a Dataset; allowed: a torch\.nn\.Module"):
            build_model(f"{OWN}:ragged_digits", (1, 8, 8), 10, seed=4)

    def test_copy_is_a_module_of_its_own(self) -> None:
        model = Model(plain((1, 8, 8), 10))
        other = model.copy()
        assert other.module is not model.module
        assert_trees_equal(other.init(torch.float32, "cpu")[0], model.init(torch.float32, "cpu")[0])

"""Kernels with a client axis against the plain layers, on a GPU, or in Triton's interpreter where Triton is installed.

TRITON_INTERPRET=1 pytest tests/gpu/test_grouped_kernels.py        runs them on a CPU
"""

import os
from dataclasses import replace

import numpy as np
import pytest
import torch

pytest.importorskip("triton", reason="Triton is not installed")

from fedskew import Run
from fedskew.core.federation import Cohort
from fedskew.core.round import Context, Recipe
from fedskew.core.settings import Settings
from fedskew.data.augment import EDGE, crop_flip
from fedskew.engine import Stacked, captured
from fedskew.models import kernels
from fedskew.models.kernels import grouped_blocks
from fedskew.models.layers import BatchNorm, Conv2d, max_pool2, seen
from fedskew.optimizers import sgd
from fedskew.simulation.simulation import Simulation
from tests.helpers import OWN, assert_trees_close

INTERPRETED = os.environ.get("TRITON_INTERPRET") == "1"
pytestmark = pytest.mark.gpu
if not (INTERPRETED or torch.cuda.is_available()):
    pytest.skip("no CUDA device, and TRITON_INTERPRET is not 1", allow_module_level=True)
DEVICE = "cpu" if INTERPRETED else "cuda"

SHAPES = [
    # clients, images, side, inputs, outputs, kernel, padding
    (3, 4, 8, 3, 16, 3, 0),
    (2, 3, 7, 3, 32, 5, 2),
    (2, 3, 9, 1, 16, 3, 1),
    (2, 3, 6, 16, 32, 3, 0),
    (2, 2, 5, 32, 16, 3, 1),
    (2, 2, 7, 16, 16, 5, 0),
]


KIND = torch.float32 if INTERPRETED else torch.bfloat16
"""The interpreter has no products in bfloat16."""


def assert_near(got, wanted, tolerance=2e-5 if INTERPRETED else 2e-2):
    assert (got.double() - wanted.double()).norm() <= tolerance * wanted.double().norm() + 1e-7


def layer(clients, images, side, inputs, outputs, kernel, padding):
    """A convolution with its own filters for each client, and images; later layers need their gradient."""
    torch.manual_seed(side + inputs)
    conv = Conv2d(inputs, outputs, kernel, padding=padding)
    filters = torch.randn(clients, outputs, inputs, kernel, kernel) / (kernel * inputs**0.5)
    conv.weight = torch.nn.Parameter(filters.to(KIND).float())
    conv.bias = torch.nn.Parameter(torch.randn(clients, outputs))
    x = (torch.randn(clients, images, inputs, side, side) + 0.5).to(KIND).to(DEVICE).float()
    return conv.to(DEVICE), x.requires_grad_(inputs >= 16)


def products():
    """What the kernels compute in; references are in float32."""
    return torch.autocast(DEVICE, KIND, enabled=not INTERPRETED)


def norm(clients, channels):
    made = BatchNorm(channels)
    made.weight = torch.nn.Parameter(torch.rand(clients, channels) + 0.5)
    made.bias = torch.nn.Parameter(torch.randn(clients, channels) * 0.3)
    made.running_mean, made.running_var = torch.randn(clients, channels), torch.rand(clients, channels) + 0.5
    return made.to(DEVICE)


def masked(clients, images):
    """One client with all images, one with a single image, one with all but one."""
    lengths = torch.tensor([images, 1, images - 1][:clients], device=DEVICE)
    return torch.arange(images, device=DEVICE) < lengths[:, None]


def clear(x):
    """Which 2x2 windows of x, 1.0 or 0.0, have a largest value, or the zero of ReLU, that leads whatever is rounded.

    Later layers pool what they have rounded to bfloat16, each value by up to 2^-9 of itself. Where two are closer than
    that, another pixel may be the largest, and it alone gets the gradient: right, but not what the reference does.
    """
    windows = x.detach().unfold(-2, 2, 2).unfold(-2, 2, 2).flatten(-2)
    first, second = torch.cat([windows, torch.zeros_like(windows[..., :1])], -1).topk(2).values.unbind(-1)
    leads = first - second > 2**-6 * x.abs().max()
    assert leads.float().mean() > 0.7
    return leads.float()


@pytest.mark.parametrize("ragged", [False, True])
@pytest.mark.parametrize("shape", SHAPES)
def test_a_block_with_norm(shape, ragged):
    conv, x = layer(*shape)
    ours, plain = norm(shape[0], shape[4]), norm(shape[0], shape[4])
    plain.load_state_dict(ours.state_dict())
    plain.running_mean, plain.running_var = ours.running_mean.clone(), ours.running_var.clone()
    mask = masked(*shape[:2]) if ragged else None
    with products():
        made = ours.after(conv, x, seen(x, mask)).float()
    normed = plain(conv(x), torch.ones_like(x[..., 0, 0, 0], dtype=torch.bool) if mask is None else mask)
    wanted = max_pool2(normed.relu())
    kept = torch.ones_like(wanted) if mask is None else mask[..., None, None, None].expand_as(wanted).float()
    grad = torch.randn_like(wanted) * kept * clear(normed)
    inputs = [x] if x.requires_grad else []
    got = torch.autograd.grad(made, [conv.weight, ours.weight, ours.bias, conv.bias, *inputs], grad)
    right = torch.autograd.grad(wanted, [conv.weight, plain.weight, plain.bias, conv.bias, *inputs], grad)
    assert made.shape == wanted.shape
    assert_near(made * kept, wanted * kept)
    assert_near(ours.running_mean, plain.running_mean)
    assert_near(ours.running_var, plain.running_var)
    for part in (0, 1, 2, *range(4, len(got))):
        assert_near(got[part], right[part])
    shift = got[3]
    if ragged:
        assert_near(shift[1], right[3][1])  # one image: the running statistics do not cancel the bias
        shift = torch.cat([shift[:1], shift[2:]])
    assert not shift.any()


@pytest.mark.parametrize("shape", SHAPES)
def test_a_block_without_norm(shape):
    conv, x = layer(*shape)
    with products():
        made = conv.relu_pool(x).float()
    convolved = conv(x)
    wanted = max_pool2(convolved.relu())
    grad = torch.randn_like(wanted) * clear(convolved)
    inputs = [conv.weight, conv.bias, *([x] if x.requires_grad else [])]
    assert_near(made, wanted)
    for ours, theirs in zip(
        torch.autograd.grad(made, inputs, grad), torch.autograd.grad(wanted, inputs, grad), strict=True
    ):
        assert_near(ours, theirs)


@pytest.mark.parametrize("shape", SHAPES)
def test_a_block_in_evaluation(shape):
    """With running statistics, whatever the batch, which are left alone."""
    conv, x = layer(*shape)
    evaluated = norm(shape[0], shape[4]).eval()
    before = evaluated.running_mean.clone(), evaluated.running_var.clone()
    with torch.no_grad():
        with products():
            made = evaluated.folded(conv, x).float()
        assert_near(made, max_pool2(evaluated(conv(x)).relu()))
    assert torch.equal(evaluated.running_mean, before[0])
    assert torch.equal(evaluated.running_var, before[1])


@pytest.mark.parametrize(("model", "blocks"), [("cnn:padding=1,width=16", 3), ("mcmahan:padding=2", 2)])
def test_a_teacher_of_all_clients_runs_in_these_kernels(model, blocks, monkeypatch):
    sim = Simulation(Run(dataset="digits", clients=3, model=model, algorithm="fedntd", engine="stacked", device=DEVICE))
    torch.manual_seed(0)
    x = torch.randn(3, 5, 1, 8, 8, device=DEVICE)
    anchor, statistics = (
        {name: (leaf + 0.1 * torch.rand_like(leaf))[None] for name, leaf in part.items()}
        for part in (sim.server.params, sim.server.buffers)
    )
    counts = torch.ones(3, 10, dtype=torch.int64, device=DEVICE)
    context = Context(anchor, statistics, {}, {}, counts, torch.ones(3, device=DEVICE))
    wanted = sim.recipe(1).teach(context, x)
    if INTERPRETED:
        monkeypatch.setattr(kernels, "take_together", lambda x: x.ndim == 5)
    used, block = [], grouped_blocks.conv_relu_pool
    monkeypatch.setattr(grouped_blocks, "conv_relu_pool", lambda *given: used.append(1) or block(*given))
    with products():
        said = sim.recipe(1).teach(context, x)
    assert len(used) == blocks
    assert said.logits.shape == (3, 5, 10)
    assert_near(said.logits, wanted.logits)
    assert_near(said.features, wanted.features)


@pytest.mark.parametrize("drawn", [False, True])
def test_images_of_a_batch(drawn):
    numbers = torch.Generator().manual_seed(1)
    x = torch.randint(0, 256, (9, 3, 10, 12), generator=numbers, dtype=torch.uint8).to(DEVICE)
    index = torch.randint(0, 9, (2, 5), generator=numbers).to(DEVICE)
    draws = torch.randint(0, 10**9, (2, 5), generator=numbers).to(DEVICE) if drawn else None
    mean, std = torch.tensor([[10.0, 20.0, 30.0], [2.0, 3.0, 4.0]], device=DEVICE)
    from fedskew.models.kernels.batches import images

    made = images(x, index, draws, mean, std, EDGE, torch.float32)
    stored = x[index.view(-1)] if draws is None else crop_flip(x[index.view(-1)], draws.view(-1))
    wanted = (stored.float() - mean[:, None, None]) / std[:, None, None]
    assert made.shape == (2, 5, 3, 10, 12)
    assert made.permute(0, 1, 3, 4, 2).is_contiguous()
    torch.testing.assert_close(made.flatten(0, 1), wanted)


@pytest.mark.parametrize(("momentum", "decay"), [(0.0, 0.0), (0.9, 0.0), (0.9, 0.01), (0.0, 0.01)])
def test_descent_moves_clients_at_work_and_leaves_others_alone_to_the_bit(momentum, decay):
    from fedskew.models.kernels.descent import descend

    torch.manual_seed(0)
    w, v = (torch.randn(3, 5, 3, 3, 7, device=DEVICE).movedim(-1, 2) for _ in range(2))
    g = torch.randn(3, 5, 7, 3, 3, device=DEVICE)
    rate, active = torch.tensor(0.1, device=DEVICE), torch.tensor([1, 0, 1], dtype=torch.uint8, device=DEVICE)
    optimizer = sgd(0.1, momentum, decay)
    moves, state = optimizer.update({"w": g}, {"w": v.clone()}, {"w": w.clone()}, 0.1)
    before = w.clone(), v.clone()
    descend(w, v if momentum else None, g, rate, active, momentum, decay)
    for client in (0, 2):
        torch.testing.assert_close(w[client], before[0][client] + moves["w"][client])
        if momentum:
            torch.testing.assert_close(v[client], state["w"][client])
    assert torch.equal(w[1], before[0][1])
    assert torch.equal(v[1], before[1][1])


@pytest.mark.skipif(not INTERPRETED, reason="on a GPU test_engines.py compares whole runs")
@pytest.mark.parametrize("model", ["cnn:padding=1,width=16", "mcmahan:padding=2"])
@pytest.mark.parametrize("algorithm", ["fedlc", "scaffold", "fedntd"])
def test_a_round_of_ragged_clients(model, algorithm, monkeypatch):
    """All kernels together, in the engine that uses them."""
    run = Run(
        dataset=f"{OWN}:ragged_digits", partition="natural", clients=4, batch_size=16, momentum=0.9, model=model,
        algorithm=algorithm, engine="stacked", lr=0.01, augment="crop_flip",
    )  # fmt: skip
    sim = Simulation(run)
    data = sim.federation.dataset
    if data.x_train.dtype != torch.uint8:
        bytes_ = (data.x_train * 15).to(torch.uint8)
        data = replace(data, x_train=bytes_, mean=(70.0,), std=(90.0,))
        sim.federation = replace(sim.federation, dataset=data)
    everyone = np.arange(4)
    cohort = Cohort(sim.federation, everyone, sim.states.gather(everyone), run.seed)
    settings = Settings(1, 16, augment=crop_flip)
    (plain,) = Stacked(settings, captured=False).train(sim.recipe(1), [sim.server], [cohort], 1)
    monkeypatch.setattr(kernels, "take_together", lambda x: x.ndim == 5)
    monkeypatch.setattr(captured, "served", lambda *_: True)
    used = []
    monkeypatch.setattr(captured.InPlace, "bent", lambda self, *given: used.append(1) or Recipe.bent(self, *given))
    engine = Stacked(settings, captured=True)
    (made,) = engine.train(sim.recipe(1), [sim.server], [cohort], 1)
    assert used
    assert engine._rounds.lanes.pixels is not None
    for part in ("delta", "buffers", "client", "message"):
        assert_trees_close(getattr(made, part), getattr(plain, part), rtol=1e-2, atol=1e-4)
    torch.testing.assert_close(made.loss, plain.loss, rtol=1e-3, atol=1e-4)

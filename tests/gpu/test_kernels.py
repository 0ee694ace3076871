"""Our GPU kernels against plain references, on a GPU, or in Triton's interpreter where Triton is installed.

TRITON_INTERPRET=1 pytest tests/gpu/test_kernels.py        runs them on a CPU
"""

import os

import pytest
import torch
from torch.nn import functional

pytest.importorskip("triton", reason="Triton is not installed")

from fedskew.models.layers import BatchNorm, max_pool2, seen

INTERPRETED = os.environ.get("TRITON_INTERPRET") == "1"
pytestmark = pytest.mark.gpu
if not (INTERPRETED or torch.cuda.is_available()):
    pytest.skip("no CUDA device, and TRITON_INTERPRET is not 1", allow_module_level=True)
DEVICE = "cpu" if INTERPRETED else "cuda"


def images(n, channels, height, width):
    generator = torch.Generator().manual_seed(n + channels + height)
    x = torch.randn(n, channels, height, width, generator=generator) * 2 + 1
    return x.to(DEVICE).to(memory_format=torch.channels_last)


def assert_near(got, wanted, rounding=1e-8):
    assert (got.double() - wanted.double()).norm() <= 1e-5 * wanted.double().norm() + rounding


@pytest.mark.parametrize(
    ("shape", "kept"),
    [((4, 8, 6, 6), 4), ((5, 16, 7, 9), 5), ((6, 16, 7, 5), 3), ((4, 8, 6, 7), 1), ((9, 16, 4, 4), 2)],
)
def test_norm_relu_pool_forward_backward_and_statistics(shape, kept):
    x, channels = images(*shape).requires_grad_(), shape[1]
    mask = torch.arange(shape[0], device=DEVICE) < kept
    norm = BatchNorm(channels).to(DEVICE)
    with torch.no_grad():
        norm.weight.uniform_(0.5, 1.5)
        norm.bias.normal_()
        norm.running_mean.normal_()
    plain = BatchNorm(channels).to(DEVICE)
    plain.load_state_dict(norm.state_dict())
    shift = torch.randn(channels, device=DEVICE, requires_grad=True)
    fused = norm.relu_pool(x, shift, seen(x, mask))
    wanted = max_pool2(plain(x + shift[:, None, None], mask).relu())
    grad = torch.randn_like(wanted) * mask[:, None, None, None]
    got = torch.autograd.grad(fused, [x, shift, norm.weight, norm.bias], grad)
    right = torch.autograd.grad(wanted, [x, shift, plain.weight, plain.bias], grad)
    assert_near(fused[mask], wanted[mask])
    for i, (ours, theirs) in enumerate(zip(got, right, strict=True)):
        assert_near(ours, theirs, rounding=1e-4 if i == 1 else 1e-8)  # a shift cancels in the batch's own statistics
    assert kept == 1 or not got[1].any()
    assert_near(norm.running_mean, plain.running_mean)
    assert_near(norm.running_var, plain.running_var)


def test_relu_pool():
    from fedskew.models.kernels.norm_relu_pool import relu_pool

    x, shift = images(3, 8, 7, 6).requires_grad_(), torch.randn(8, device=DEVICE, requires_grad=True)
    fused, wanted = relu_pool(x, shift), max_pool2((x + shift[:, None, None]).relu())
    grad = torch.randn_like(wanted)
    assert_near(fused, wanted)
    for ours, theirs in zip(
        torch.autograd.grad(fused, [x, shift], grad), torch.autograd.grad(wanted, [x, shift], grad), strict=True
    ):
        assert_near(ours, theirs)


@pytest.mark.parametrize("step", [1, 2])
@pytest.mark.parametrize(("size", "padding"), [(3, 0), (3, 1), (5, 0), (5, 2)])
def test_windows(size, padding, step):
    from fedskew.models.kernels.windows import windows

    x = images(2, 3, 9, 8).contiguous()
    rows = windows(x, size, size, padding, padding, step)
    wanted = functional.unfold(x, size, padding=padding, stride=step).transpose(1, 2).reshape(len(rows), -1)
    assert rows.shape[1] % 8 == 0
    assert torch.equal(rows[:, : wanted.shape[1]], wanted)
    assert not rows[:, wanted.shape[1] :].any()


@pytest.mark.parametrize(("relu", "summed"), [(True, True), (True, False), (False, False), (False, True)])
@pytest.mark.parametrize(
    ("shape", "kept"),
    [((4, 64, 3, 3), 4), ((5, 64, 5, 6), 3), ((4, 64, 3, 2), 1), ((1, 64, 4, 4), None), ((3, 16, 3, 3), None),
     ((5, 512, 2, 2), None), ((3, 512, 3, 3), 2), ((2, 512, 2, 2), 1)],
)  # fmt: skip
def test_norm_relu_forward_backward_and_statistics(shape, kept, relu, summed):
    """Padded images too: they have a gradient here, which the loss would not give them."""
    x, channels = images(*shape).requires_grad_(), shape[1]
    residual = (images(*shape).flip(0) - 1).requires_grad_() if summed else None
    mask = None if kept is None else torch.arange(shape[0], device=DEVICE) < kept
    norm, plain = pair_of_norms(channels)
    fused = norm.sum_relu(x, residual, seen(x, mask), relu=relu)
    wanted = plain(x, mask) + (0 if residual is None else residual)
    wanted = wanted.relu() if relu else wanted
    grad = torch.randn_like(wanted)
    inputs = [x] if residual is None else [x, residual]
    got = torch.autograd.grad(fused, [*inputs, norm.weight, norm.bias], grad)
    right = torch.autograd.grad(wanted, [*inputs, plain.weight, plain.bias], grad)
    assert_near(fused, wanted)
    for ours, theirs in zip(got, right, strict=True):
        assert_near(ours, theirs)
    assert_near(norm.running_mean, plain.running_mean)
    assert_near(norm.running_var, plain.running_var)


@pytest.mark.parametrize("summed", [True, False])
def test_norm_relu_of_many_tiles_repeats_to_the_bit_and_takes_bfloat16(summed, monkeypatch):
    from fedskew.models.kernels import norm_relu

    monkeypatch.setattr(norm_relu, "_PROGRAMS", 6)  # each takes several tiles
    x = images(7, 128, 9, 9).bfloat16().requires_grad_()
    residual = (images(7, 128, 9, 9).flip(0) - 1).bfloat16().requires_grad_() if summed else None
    inputs = [x] if residual is None else [x, residual]
    mask = torch.arange(7, device=DEVICE) != 2
    norm, plain = pair_of_norms(128)
    wanted = plain(x.float(), mask) + (0 if residual is None else residual.float())
    grad = torch.randn_like(wanted).bfloat16()
    right = torch.autograd.grad(wanted.relu(), [*inputs, plain.weight, plain.bias], grad.float())
    before = norm.running_mean, norm.running_var
    made = []
    for _ in range(2):
        norm.running_mean, norm.running_var = before
        y = norm.sum_relu(x, residual, seen(x, mask), relu=True)
        made.append([y, norm.running_mean, *torch.autograd.grad(y, [*inputs, norm.weight, norm.bias], grad)])
    assert y.dtype == torch.bfloat16
    assert y.is_contiguous(memory_format=torch.channels_last)
    assert all(torch.equal(a, b) for a, b in zip(*made, strict=True))
    for ours, theirs in zip(made[0], [wanted.relu(), plain.running_mean, *right], strict=True):
        assert (ours.double() - theirs.double()).norm() <= 5e-3 * theirs.double().norm()


def pair_of_norms(channels):
    """A batch norm away from its initialisation, and a copy."""
    norm, copy = BatchNorm(channels).to(DEVICE), BatchNorm(channels).to(DEVICE)
    with torch.no_grad():
        norm.weight.uniform_(0.5, 1.5)
        norm.bias.normal_()
        norm.running_mean.normal_()
        norm.running_var.uniform_(0.5, 2)
    copy.load_state_dict(norm.state_dict())
    return norm, copy

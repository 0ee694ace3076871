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


@pytest.mark.parametrize(("size", "padding"), [(3, 0), (3, 1), (5, 0), (5, 2)])
def test_windows(size, padding):
    from fedskew.models.kernels.windows import windows

    x = images(2, 3, 9, 8).contiguous()
    rows = windows(x, size, size, padding, padding)
    wanted = functional.unfold(x, size, padding=padding).transpose(1, 2).reshape(len(rows), -1)
    assert rows.shape[1] % 8 == 0
    assert torch.equal(rows[:, : wanted.shape[1]], wanted)
    assert not rows[:, wanted.shape[1] :].any()

"""Kernels with a client axis against the plain layers, on a GPU, or in Triton's interpreter where Triton is installed.

TRITON_INTERPRET=1 pytest tests/gpu/test_grouped_kernels.py        runs them on a CPU
"""

import os

import pytest
import torch

pytest.importorskip("triton", reason="Triton is not installed")

from fedskew.models import kernels
from fedskew.models.layers import BatchNorm, Conv2d, max_pool2, seen

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


def assert_near(got, wanted, tolerance=2e-5):
    assert (got.double() - wanted.double()).norm() <= tolerance * wanted.double().norm() + 1e-7


def layer(clients, images, side, inputs, outputs, kernel, padding):
    """A convolution with its own filters for each client, and images; later layers need their gradient."""
    torch.manual_seed(side + inputs)
    conv = Conv2d(inputs, outputs, kernel, padding=padding)
    conv.weight = torch.nn.Parameter(torch.randn(clients, outputs, inputs, kernel, kernel) / (kernel * inputs**0.5))
    conv.bias = torch.nn.Parameter(torch.randn(clients, outputs))
    x = torch.randn(clients, images, inputs, side, side, device=DEVICE) + 0.5
    return conv.to(DEVICE), x.requires_grad_(inputs >= 16)


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


@pytest.mark.parametrize("ragged", [False, True])
@pytest.mark.parametrize("shape", SHAPES)
def test_a_block_with_norm(shape, ragged):
    conv, x = layer(*shape)
    ours, plain = norm(shape[0], shape[4]), norm(shape[0], shape[4])
    plain.load_state_dict(ours.state_dict())
    plain.running_mean, plain.running_var = ours.running_mean.clone(), ours.running_var.clone()
    mask = masked(*shape[:2]) if ragged else None
    made = ours.after(conv, x, seen(x, mask))
    wanted = max_pool2(plain(conv(x), torch.ones_like(x[..., 0, 0, 0], dtype=torch.bool) if mask is None else mask).relu())
    kept = torch.ones_like(wanted) if mask is None else mask[..., None, None, None].expand_as(wanted).float()
    grad = torch.randn_like(wanted) * kept
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
    made, wanted = conv.relu_pool(x), max_pool2(conv(x).relu())
    grad = torch.randn_like(wanted)
    inputs = [conv.weight, conv.bias, *([x] if x.requires_grad else [])]
    assert_near(made, wanted)
    for ours, theirs in zip(
        torch.autograd.grad(made, inputs, grad), torch.autograd.grad(wanted, inputs, grad), strict=True
    ):
        assert_near(ours, theirs)

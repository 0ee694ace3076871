"""Hand-written GPU kernels, each with a plain reference it is tested against. Nothing here is needed on a CPU."""

from importlib.util import find_spec


def available() -> bool:
    """Whether Triton is installed; PyTorch's CUDA builds bring it."""
    return find_spec("triton") is not None

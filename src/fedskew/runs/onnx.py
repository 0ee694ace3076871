"""A module as ONNX, for other frameworks. Needs the extra `onnx`."""

import json
import logging
import warnings
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import nn


def check() -> None:
    """Raise an error before any work if a package is missing."""
    try:
        import onnx  # noqa: F401
        import onnxscript  # noqa: F401
    except ImportError as error:
        raise ValueError(
            f"an .onnx file needs more packages ({error}); in a clone of fedskew: "
            "pip install -c constraints.txt '.[onnx]'"
        ) from error


def onnx_bytes(module: nn.Module, input_shape: Sequence[int], about: Mapping[str, Any]) -> bytes:
    """`input` [batch, *input_shape] to `logits` [batch, classes], in float32; `about` is JSON in the metadata."""
    check()
    example = torch.zeros(2, *input_shape)
    logging.getLogger("torch.onnx").setLevel(logging.ERROR)  # it misses torchvision, which no model here uses
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # PyTorch's warnings about itself
        try:
            program = torch.onnx.export(
                module.float().eval(),
                (example,),
                dynamo=True,
                verbose=False,
                input_names=["input"],
                output_names=["logits"],
                dynamic_shapes=({0: torch.export.Dim("batch")},),
            )
        except torch.onnx.errors.OnnxExporterError as error:
            kind = type(module).__name__
            raise ValueError(f"PyTorch cannot write {kind} as ONNX; a .safetensors file can hold any model") from error
    assert program is not None
    content = program.model_proto
    content.metadata_props.add(key="fedskew", value=json.dumps(about))
    return bytes(content.SerializeToString())

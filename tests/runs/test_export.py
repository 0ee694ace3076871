"""Models as files: ONNX gives what PyTorch gives, and files of the user's own that have changed are noticed."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch

from fedskew import Run, Store, load_model, simulate
from fedskew.diagnostics import diagnose
from fedskew.runs import onnx as writer
from fedskew.runs.export import export_model
from fedskew.runs.store import Folder, StoreError

FIELDS: dict[str, Any] = {"dataset": "digits", "clients": 4, "batch_size": 64, "rounds": 1}
OWN = """
from torch import nn
from fedskew import Algorithm


def model(input_shape, num_classes):
    return nn.Sequential(nn.Flatten(), nn.Linear(64, num_classes))


def method():
    return Algorithm("mine")
"""


def stored(folder: Path, **more: Any) -> Folder:
    store, run = Store(folder / "runs"), Run(**{**FIELDS, **more})
    list(simulate(run, store=store))
    return store.folder(run.hash)


@pytest.mark.parametrize("model", ["mlp", "cnn:width=4,padding=1,norm=batch", "own"])
def test_onnx_gives_what_pytorch_gives(tmp_path: Path, model: str) -> None:
    pytest.importorskip("onnxscript")
    onnx = pytest.importorskip("onnx")
    from onnx.reference import ReferenceEvaluator

    if model == "own":
        (tmp_path / "own.py").write_text(OWN)
        model = f"{tmp_path / 'own.py'}:model"
    folder = stored(tmp_path, model=model)
    assert export_model(folder, tmp_path / "m.onnx") == export_model(folder, tmp_path / "m.safetensors") == 1
    read = onnx.load(tmp_path / "m.onnx")
    x = torch.randn(5, 1, 8, 8)
    (logits,) = ReferenceEvaluator(read).run(["logits"], {"input": x.numpy()})
    module = load_model(tmp_path / "m.safetensors", own_files=True).module
    torch.testing.assert_close(torch.from_numpy(logits), module(x).detach())
    (about,) = (json.loads(prop.value) for prop in read.metadata_props if prop.key == "fedskew")
    assert about["run"]["dataset"] == "digits"
    assert about["round"] == 1


def test_what_pytorch_cannot_write_as_onnx_is_said(tmp_path: Path) -> None:
    pytest.importorskip("onnxscript")

    class Branching(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x if x.sum().item() > 0 else -x

    with pytest.raises(ValueError, match=r"cannot write Branching as ONNX; a \.safetensors file can hold any model"):
        writer.onnx_bytes(Branching(), (4,), {})


@pytest.mark.parametrize("part", ["model", "algorithm"])
def test_a_changed_file_is_refused(tmp_path: Path, part: str) -> None:
    own = tmp_path / "own.py"
    own.write_text(OWN)
    folder = stored(tmp_path, **{part: f"{own}:{'model' if part == 'model' else 'method'}"})
    own.write_text(OWN + "# another byte\n")
    with pytest.raises(StoreError, match=r"was computed with different content of .*own\.py;"):
        export_model(folder, tmp_path / "m.safetensors")
    with pytest.raises(StoreError, match=r"was computed with different content of .*own\.py;"):
        diagnose(folder)
    assert not (tmp_path / "m.safetensors").exists()
    own.write_text(OWN)
    assert export_model(folder, tmp_path / "m.safetensors") == 1
    assert diagnose(folder)["round"] == 1

"""A run's final model as one file: safetensors, which plain PyTorch can load, or ONNX."""

import json
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import load_file, save
from torch import nn

from fedskew.core import spec
from fedskew.core.files import write_whole
from fedskew.core.round import Server
from fedskew.core.tree import Params
from fedskew.data import Dataset, Nodes, facts
from fedskew.models import GIVEN, MODELS, build_model
from fedskew.runs import onnx
from fedskew.runs.checkpoint import Checkpoint, load_checkpoint
from fedskew.runs.origin import check_files, check_origin
from fedskew.runs.run import Run
from fedskew.runs.store import Folder, StoreError

_ABOUT = {"model", "input_shape", "num_classes", "mean", "std", "classes", "round", "run"}
"""What the metadata of a file say of its model."""

_SHA256 = "model_sha256"
"""The key of a digest of the user's own file, if the model is in one; earlier versions wrote none."""


def export_model(folder: Folder, path: Path) -> int:
    """Write the model of the last checkpoint and return its round: a state dict with what rebuilds the module, or the
    whole computation if the file name ends in .onnx."""
    as_onnx = path.suffix.lower() == ".onnx"
    if as_onnx:
        onnx.check()
    about, whole = final_model(folder)
    if as_onnx:
        path.parent.mkdir(parents=True, exist_ok=True)
        write_whole(path, onnx.onnx_bytes(rebuild(about, whole), tuple(about["input_shape"]), about))
    else:
        write_export(path, about, whole)
    return int(about["round"])


def write_export(path: Path, about: dict[str, Any], tensors: Params) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    whole = {name: leaf.detach().cpu().contiguous() for name, leaf in tensors.items()}
    write_whole(path, save(whole, {"fedskew": json.dumps(about)}))


def final_model(folder: Folder) -> tuple[dict[str, Any], Params]:
    """What rebuilds the module of the last checkpoint, and its whole state dict."""
    if not folder.checkpoint.exists():
        raise StoreError(f"run {folder.path.name} has no checkpoint yet; let it run first")
    run, checkpoint = Run.stored(folder), load_checkpoint(folder.checkpoint, diverged=folder.diverged())
    check_files(folder, run)
    check_usable(folder, run, checkpoint)
    data = facts(run.dataset, run.seed, run.clients, run.data_dir)
    check_origin(folder, run, data)
    return describe_model(run, data, checkpoint.round, checkpoint.server)


def check_usable(folder: Folder, run: Run, checkpoint: Checkpoint) -> None:
    """Refuse a model that is not finite, and one whose last layer a readout has yet to fit."""
    if folder.diverged():
        raise StoreError(f"run {folder.path.name} has diverged: its model gives no finite numbers")
    if run.build_algorithm().readout.asks and not checkpoint.server.readout:
        raise StoreError(
            f"run {folder.path.name} is at round {checkpoint.round}, in which its model was not measured, so "
            f"{run.short_algorithm} has not fitted its last layer; let it run to its end first"
        )


def describe_model(run: Run, data: Dataset | Nodes, round: int, server: Server) -> tuple[dict[str, Any], Params]:
    """What rebuilds the module of a server, and its whole state dict."""
    about = {
        "model": run.model,
        "input_shape": data.input_shape,
        "num_classes": data.num_classes,
        "mean": data.mean,
        "std": data.std,
        "classes": data.class_names,
        "round": round,
        "run": run.model_dump(),
        **_code(run.model),
    }
    model = build_model(run.model, data.input_shape, data.num_classes, run.seed)
    return about, model.whole_state(server.used, server.buffers)


def _code(model: str) -> dict[str, str]:
    """A digest of the file that a model is in, if it is the user's own."""
    digest = spec.resolve(model, "model", MODELS, GIVEN).file_sha256
    return {_SHA256: digest} if digest else {}


def read_export(path: Path | str) -> tuple[dict[str, Any], Params]:
    """What `export_model` has written."""
    try:
        with safe_open(str(path), "pt") as file:
            about = json.loads((file.metadata() or {}).get("fedskew", "null"))
        tensors = load_file(str(path))
    except (SafetensorError, json.JSONDecodeError) as error:
        raise ValueError(f"{path} is damaged, or not a safetensors file: {error}") from error
    if not (isinstance(about, dict) and isinstance(about.get("model"), str) and about.keys() >= _ABOUT):
        raise ValueError(f"{path} was not written by `fedskew export`")
    return about, tensors


def rebuild(
    about: dict[str, Any], tensors: Params, module: nn.Module | None = None, dtype: torch.dtype | None = None
) -> nn.Module:
    """The module in that state, built as in the run unless given. Other code could compute something else with the same
    parameters."""
    if module is None:
        if _SHA256 in about and _code(about["model"]) != {_SHA256: about[_SHA256]}:
            raise ValueError(
                f"the model was trained with different content of {spec.name_in(about['model'])}; restore the file, or "
                "load_model(..., model=my_module) fills a module that you built the same way"
            )
        module = build_model(about["model"], tuple(about["input_shape"]), about["num_classes"], seed=0).module
    module = module.to(dtype)
    module.load_state_dict(tensors)
    return module.eval()

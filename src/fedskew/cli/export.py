"""`fedskew export`: a model for plain PyTorch, or for any reader of ONNX."""

from pathlib import Path
from typing import Annotated

import typer

from fedskew.cli.documents import ExportedModel
from fedskew.cli.options import Json, Quiet, Runs, open_store
from fedskew.cli.terminal.progress import answer


def export_command(
    run: Annotated[str, typer.Argument(help="The run's hash or its beginning.")],
    path: Annotated[Path, typer.Argument(help="FILE.safetensors, or FILE.onnx with the extra `onnx`.")],
    json_: Json = False,
    quiet: Quiet = False,
    runs: Runs = None,
) -> None:
    """The final model of a run, for plain PyTorch or as ONNX.

    Example: fedskew export 3fa9 model.safetensors
    """
    from fedskew.runs.export import export_model

    folder = open_store(runs).find(run)
    round = export_model(folder, path)
    document: ExportedModel = {"run_hash": folder.path.name, "round": round, "file": str(path)}
    alone = "" if path.suffix.lower() == ".onnx" else "; `fedskew.load_model` does that by itself"
    said = (
        f"written: {path}, the model of {folder.path.name} after round {round}\n"
        f"inputs are (values - mean) / std, where its metadata have a mean and std{alone}"
    )
    answer(document, said, json_=json_, quiet=quiet)

"""A small run that is attacked, and all that it must be afterwards."""

from pathlib import Path
from typing import Any

from fedskew import Run, Store, simulate
from fedskew.core import tree
from fedskew.runs.checkpoint import load_checkpoint
from fedskew.runs.export import export_model
from fedskew.runs.results import Result
from fedskew.simulation import simulation

FIELDS: dict[str, Any] = {
    "dataset": "synthetic:1,1,max_size=60",
    "clients": 4,
    "clients_per_round": 2,
    "batch_size": 32,
    "momentum": 0.9,
    "algorithm": "fedlc+scaffold+fedopt",
    "engine": "serial",
}
ROUNDS = 4


def command(root: Path, rounds: int = ROUNDS) -> list[str]:
    """The words that do the run."""
    options = [word for name, value in FIELDS.items() for word in (f"--{name.replace('_', '-')}", str(value))]
    return ["run", *options, "--rounds", str(rounds), "--runs", str(root), "--quiet"]


def do(root: Path, rounds: int = ROUNDS) -> None:
    """Do the run, with a checkpoint after every round."""
    simulation._CHECKPOINT_SECONDS, simulation._CHECKPOINT_SHARE = -1.0, 0
    for _ in simulate(Run(**FIELDS, rounds=rounds), store=root):
        pass


def state(root: Path, rounds: int = ROUNDS) -> dict[str, Any]:
    """What the store holds of the run, but for times and versions, with the model that an export gives."""
    folder = Store(root).folder(Run(**FIELDS, rounds=rounds).hash)
    records = [{name: value for name, value in r.items() if name != "seconds"} for r in folder.records()]
    checkpoint = load_checkpoint(folder.checkpoint)
    parts = {part: tree.digest(getattr(checkpoint.server, part)) for part in vars(checkpoint.server)}
    return {
        "records": records,
        "saved": checkpoint.round,
        "model": parts,
        "states": [checkpoint.clients.tolist(), tree.digest(checkpoint.states)],
        "card": folder.card(),
        "run": folder.run(),
        "results": [[result.rounds, result.summary["accuracy"], result.curve] for result in Result.of(folder)],
    }


def redone(root: Path, rounds: int = ROUNDS) -> dict[str, Any]:
    """The same command again, and what there is then; with what was claimed wrongly before."""
    wrong = claims(root, rounds)
    do(root, rounds)
    return {**state(root, rounds), **({"claimed": wrong} if wrong else {})}


def claims(root: Path, rounds: int = ROUNDS) -> str:
    """What a store that was left in the middle claims wrongly; nothing if it is honest."""
    folder = Store(root).folder(Run(**FIELDS, rounds=rounds).hash)
    if not folder.exists():
        return ""
    finished = [result.rounds for result in Result.of(folder)]
    if rounds in finished and export_model(folder, root / "claimed.safetensors") != rounds:
        return "finished, but its last model was not kept"
    return ""

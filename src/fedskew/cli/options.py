"""What several commands share: options, the store, and noticing Ctrl-C."""

import inspect
import re
from collections.abc import Callable, Collection, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from fedskew.core.checks import check_number
from fedskew.core.files import read_toml
from fedskew.core.interruption import Interruption

if TYPE_CHECKING:
    from fedskew.runs.run import Run
    from fedskew.runs.store import Store

RUN_OPTIONS: dict[str, tuple[type, str]] = {
    "dataset": (
        str,
        "digits | shapes | synthetic:LAMBDA,MU | mnist | fashion_mnist | cifar10 | cifar100 | svhn | femnist | "
        "imagenet12 | folder:PATH | npz:PATH | nodes:SHAPE,CLASSES (only `fedskew flower`)  [default: digits]",
    ),
    "partition": (
        str,
        "dirichlet:B | shards:A | labels:K (the smaller, the more skewed) | iid | natural | replay:FILE  "
        "[default: depends on the data set]",
    ),
    "clients": (int, "number of clients  [default: 20, or with natural those that an npz file names]"),
    "clients_per_round": (str, "clients sampled in each round: 10, or a share such as 0.1 or 10%  [default: all]"),
    "model": (
        str,
        "logistic | mlp | cnn:norm=batch | mcmahan | resnet18 | leaf_cnn | FILE.py:FACTORY  "
        "[default: depends on the data set]",
    ),
    "rounds": (int, "communication rounds  [default: 400]"),
    "local_epochs": (int, "passes over a client's data per round  [default: 1]"),
    "batch_size": (int, "examples in a step of a client  [default: 128]"),
    "optimizer": (str, "the clients' optimiser: sgd | adagrad | adam | yogi  [default: sgd]"),
    "lr": (float, "the clients' learning rate  [default: 0.01]"),
    "momentum": (float, "the clients' momentum  [default: 0]"),
    "weight_decay": (float, "the clients' weight decay  [default: 0]"),
    "augment": (str, "none | crop_flip: random crops and mirror images of training images  [default: none]"),
    "weighting": (str, "weights of clients in the mean: samples | uniform  [default: samples]"),
    "seed": (int, "decides data, partition, initial model, sampling and shuffling  [default: 0]"),
    "eval_every": (int, "rounds between evaluations; the last ten are always evaluated  [default: 1]"),
    "lr_schedule": (str, "constant | step:EVERY,FACTOR | exponential:GAMMA | cosine  [default: constant]"),
    "grad_clip": (float, "largest norm of a client's gradient  [default: no limit]"),
    "dropout_rate": (float, "probability that a sampled client does not answer  [default: 0]"),
    "validation": (float, "share of the training examples to hold out for choosing settings  [default: 0]"),
    "engine": (str, "auto | serial | stacked | graphed | threaded  [default: auto]"),
    "device": (str, "cpu | cuda | cuda:N  [default: cpu]"),
    "precision": (str, "fp32 | tf32 | bf16 | fp64  [default: fp32, and tf32 on a GPU]"),
    "data_dir": (str, "folder of data files  [default: $FEDSKEW_DATA or data/]"),
}
Json = Annotated[bool, typer.Option("--json", help="One JSON document on standard output.")]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="No progress and no hints, only the result.")]
Runs = Annotated[str | None, typer.Option("--runs", help="Folder of the store.  [default: $FEDSKEW_RUNS or runs/]")]
File = Annotated[Path | None, typer.Argument(help="A TOML file with fields of the run; options override it.")]
_methods = partial(typer.Option, "--algorithm", "-a")
Algorithm = Annotated[
    list[str] | None,
    _methods(help="fedavg | fedlc:tau=1+scaffold | FILE.py:FACTORY; see `fedskew methods`.  [default: fedavg]"),
]
Algorithms = Annotated[
    list[str] | None,
    _methods(help="fedavg,fedlc | fedlc:tau=1+scaffold | FILE.py:FACTORY; can be repeated.  [default: the run file's]"),
]
Watch = Annotated[bool, typer.Option("--watch", help="Show accuracy, classes, drift and time left during the run.")]
Track = Annotated[
    list[str] | None,
    typer.Option(
        "--track", help="tensorboard:DIR | wandb:DIR (offline) | mlflow:DIR; can be repeated; needs the extra."
    ),
]
Target = Annotated[
    float | None,
    typer.Option("--target", help="Count rounds to this accuracy, for example 0.6.  [default: FedAvg's end]"),
]
DataDir = Annotated[str | None, typer.Option("--data-dir", help="[default: $FEDSKEW_DATA or data/]")]
Jobs = Annotated[int, typer.Option("--jobs", help="Parallel processes on this machine.")]


def run_options(
    *names: str, several: bool = False, shown: Mapping[str, Any] | None = None, **defaults: Any
) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Give a command one option per field of a run; the command receives those that were set as `fields`. With
    `several`, options can be repeated and each field is a list of strings. `defaults` are the command's own
    defaults; `shown` are those that it sets later."""
    told = {**defaults, **(shown or {})}

    def decorate(command: Callable[..., None]) -> Callable[..., None]:
        def wrapped(**given: Any) -> None:
            fields = {name: given.pop(name) for name in names}
            command(fields=defaults | {name: v for name, v in fields.items() if v not in (None, [])}, **given)

        own = [p for p in inspect.signature(command).parameters.values() if p.name != "fields"]
        options = []
        for name in names:
            kind, text = RUN_OPTIONS[name]
            if name in told:
                text = re.sub(r"\[default: .*\]", f"[default: {told[name]}]", text)
            kind = list[str] if several else kind
            flag = typer.Option(f"--{name.replace('_', '-')}", help=text)
            option = Annotated[kind | None, flag]  # type: ignore[valid-type]
            options.append(inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=None, annotation=option))
        own = [p.replace(kind=inspect.Parameter.KEYWORD_ONLY) for p in own]
        wrapped.__signature__ = inspect.Signature([*own, *options])  # type: ignore[attr-defined]
        wrapped.__annotations__ = {p.name: p.annotation for p in [*own, *options]}
        wrapped.__name__, wrapped.__doc__ = command.__name__, command.__doc__
        return wrapped

    return decorate


def algorithm_names(given: Sequence[str] | None) -> list[str]:
    """Methods from repeated options and from lists: a comma before a method's name starts a new method."""
    from fedskew.algorithms import ALGORITHMS

    return [name for text in given or () for name in divided_specs(text, ALGORITHMS)]


def divided_specs(text: str, known: Collection[str]) -> list[str]:
    """Specs separated by commas: a comma before a known name, or before a user's file, starts a new spec.

    So does one before any name with a colon, unless it follows a user's file, whose factory may take such a value.
    """
    names: list[str] = []
    for piece in (piece.strip() for piece in text.split(",")):
        head = piece.partition("=")[0]
        begins = re.split("[:+]", piece)[0] in known or ".py:" in head
        if names and ".py:" not in names[-1]:
            begins = begins or ":" in head or ":" not in text
        if names and not begins:
            names[-1] += f",{piece}"
        else:
            names.append(piece)
    return names


def compared_names(given: Sequence[str] | None, file: Path | None) -> list[str]:
    """The methods to compare: from the options, else from the run file."""
    named: Any = given or from_toml(file).get("algorithm", [])
    listed = named if isinstance(named, list) else [named]
    if not all(isinstance(name, str) for name in listed):
        raise ValueError(f"algorithm is {named!r} in {file}; allowed: a method, or a list of them")
    names = algorithm_names(listed)
    if not names:
        raise ValueError("compare needs methods; for example --algorithm fedavg,fedlc")
    return names


def checked_target(target: float | None) -> float | None:
    """An accuracy to count rounds to, as a fraction."""
    if target is not None and not 0 < target <= 1:
        raise ValueError(f"target is {target:g}; allowed: above 0, at most 1, for example 0.6")
    return target


def check_jobs(jobs: int) -> None:
    from fedskew.simulation.jobs import MOST_JOBS

    check_number("jobs", jobs, 1, MOST_JOBS)


def build_run(fields: dict[str, Any], file: Path | None, more: dict[str, Any]) -> "Run":
    from fedskew.runs.run import Run

    return Run(**{**from_toml(file), **fields, **more})


SEVERAL = "Several values of one option are separated by commas alone: --algorithm fedavg,fedlc"


def from_toml(file: Path | None) -> dict[str, Any]:
    if file is None:
        return {}
    if not file.exists() and file.suffix != ".toml":
        raise ValueError(f"there is no file {file}; allowed without an option: a run file such as run.toml. {SEVERAL}")
    return read_toml(file)


def open_store(root: str | None) -> "Store":
    from fedskew.runs.store import Store, default_root

    return Store(root or default_root())


interruption = Interruption()

"""Everything that decides a result, frozen and validated. A run's hash names its folder in the store."""

import hashlib
import json
import math
from numbers import Integral
from typing import Annotated, Any, Literal

import torch
from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from fedskew.algorithms import ALGORITHMS, Algorithm, build_algorithm, resolve_algorithm
from fedskew.core import spec
from fedskew.core.modules import imported_files
from fedskew.data import DATASETS, own_clients, resolve_dataset, usual_for
from fedskew.engine import ENGINES
from fedskew.models import GIVEN, MODELS
from fedskew.optimizers import OPTIMIZERS, Optimizer, sgd
from fedskew.partition import PARTITIONS
from fedskew.runs.given import with_specs
from fedskew.runs.schedules import NEED_ROUNDS
from fedskew.runs.specs import ALL_PARTITIONS, WRITTEN_OUT, built_schedule, by_content, by_name, files_of
from fedskew.runs.store import Folder, StoreError
from fedskew.runs.versions import DECIDING_NOTHING, result_version

MOST_SEEDS = 1000
"""Seeds of one setting: each is a separate run."""
_NOT_HASHED = {*DECIDING_NOTHING, "rounds"}

Positive = Annotated[int, Field(ge=1, lt=2**31)]
"""So that the product of two of them fits 64 bits."""
Rate = Annotated[float, Field(gt=0, allow_inf_nan=False)]


class Run(BaseModel):
    """One method on one federation. Specs are short strings and are stored with every default written out.

    `dataset`, `partition`, `model` and `algorithm` also take Python objects, which get their own specs
    (`runs/given.py`).
    """

    model_config = ConfigDict(frozen=True, extra="forbid", strict=False)

    dataset: str = "digits"
    partition: str = ""
    clients: Positive = 20
    clients_per_round: int = Field(0, ge=0)
    model: str = ""
    algorithm: str = "fedavg"
    rounds: Positive = 400
    local_epochs: Positive = 1
    batch_size: Positive = 128
    optimizer: Literal["sgd", "adagrad", "adam", "yogi"] = "sgd"
    lr: Rate = 0.01
    momentum: float = Field(0.0, ge=0, lt=1)
    weight_decay: float = Field(0.0, ge=0, allow_inf_nan=False)
    augment: Literal["none", "crop_flip"] = "none"
    weighting: Literal["samples", "uniform"] = "samples"
    seed: int = Field(0, ge=0, lt=2**63)
    eval_every: Positive = 1
    lr_schedule: str = "constant"
    grad_clip: Rate | None = None
    dropout_rate: float = Field(0.0, ge=0, lt=1)
    validation: float = Field(0.0, ge=0, lt=1)
    engine: str = "auto"
    device: str = "cpu"
    precision: Literal["fp32", "tf32", "bf16", "fp64"] = "fp32"
    data_dir: str | None = None

    @model_validator(mode="before")
    @classmethod
    def _fill(cls, values: Any) -> Any:
        """Defaults that depend on other fields, and specs with every argument written out."""
        if not isinstance(values, dict):
            return values
        given = {key: value for key, value in values.items() if value is not None}
        values = with_specs({key: value for key, value in given.items() if (key, value) != ("grad_clip", "none")})
        for name, value in values.items():
            if isinstance(value, bool):
                raise ValueError(f"{name} is {spec.show(value)}; allowed: a number or a string, depending on the field")
            if isinstance(value, str):
                spec.check_plain(name, value)
        dataset = str(values.setdefault("dataset", "digits"))
        usual = usual_for(dataset)
        for name in ("partition", "model"):
            if not values.get(name) and usual is not None:
                values[name] = getattr(usual, name)
        natural = str(values.get("partition")).strip() == "natural"
        if natural and "clients" not in values and (own := own_clients(dataset)):
            values["clients"] = own
        if not values.get("precision"):
            values["precision"] = "tf32" if str(values.get("device", "cpu")).startswith("cuda") else "fp32"
        values["clients_per_round"] = _per_round(values.get("clients_per_round"), values.get("clients", 20))
        for name, resolve in WRITTEN_OUT.items():
            if isinstance(values.get(name), str) and values[name]:
                values[name] = resolve(values[name])
        return values

    @model_validator(mode="after")
    def _agree(self) -> "Run":
        if self.clients_per_round > self.clients:
            raise ValueError(
                f"clients_per_round is {self.clients_per_round}; allowed: at most the {self.clients} clients"
            )
        for name in ("partition", "model"):
            if not getattr(self, name):
                raise ValueError(f"{self.dataset} has no default {name}; give one")
        usual = usual_for(self.dataset)
        if usual is not None and usual.partition == "natural" and self.partition != "natural":
            raise ValueError(f"{self.dataset} has its own clients: partition is {self.partition}; allowed: natural")
        if self.engine != "auto" and self.engine not in ENGINES:
            raise ValueError(spec.unknown("engine", self.engine, {"auto": None, **ENGINES}))
        if self.optimizer != "sgd" and (self.momentum or self.weight_decay):
            raise ValueError(f"optimizer is {self.optimizer}; momentum and weight_decay need optimizer=sgd")
        algorithm = self.build_algorithm()
        if algorithm.needs_travel and self.optimizer != "sgd":
            raise ValueError(f"{self.short_algorithm} needs optimizer=sgd on the client, not {self.optimizer}")
        if getattr(algorithm.aggregate, "ignores_weights", False) and self.weighting != "uniform":
            named = self.short_algorithm
            raise ValueError(
                f"{named} gives all clients the same weight: weighting is {self.weighting!r}; allowed: uniform"
            )
        lowest = self.lr * built_schedule(self.lr_schedule, self.rounds)(self.rounds)
        if not lowest > 0:
            raise ValueError(
                f"lr_schedule is {self.lr_schedule}: lr is {lowest:g} in round {self.rounds}; allowed: above 0"
            )
        if self.validation and spec.name_in(self.dataset) == "nodes":
            raise ValueError(
                f"validation is {self.validation:g}; allowed: 0, because the examples of nodes cannot be held out"
            )
        try:
            torch.device(self.device)
        except RuntimeError:
            raise ValueError(f"device is {self.device!r}; allowed: cpu, cuda, cuda:1") from None
        return self

    def __init__(self, **fields: Any) -> None:
        try:
            super().__init__(**fields)
        except ValidationError as error:
            raise ValueError(explain(error)) from error

    def replace(self, **changes: Any) -> "Run":
        """A copy with some fields changed, validated like a new run: what followed from other fields follows anew."""
        given = self.given
        if "dataset" in changes and self.partition == "natural" and own_clients(self.dataset) == self.clients:
            del given["clients"]  # the other data set names its own
        made = type(self)(**{**given, **changes})
        made.model_fields_set.intersection_update(self.model_fields_set | changes.keys())
        return made

    @property
    def given(self) -> dict[str, Any]:
        """The fields that were set, without those that follow from others unless they are set to something else."""
        usual = usual_for(self.dataset)
        followed = {name for name in ("partition", "model") if usual and self.short[name] == getattr(usual, name)}
        if self.clients_per_round == self.clients:
            followed.add("clients_per_round")
        return self.model_dump(include=self.model_fields_set - followed)

    @classmethod
    def stored(cls, folder: Folder, **changes: Any) -> "Run":
        """The run stored in a folder, with some fields changed."""
        try:
            return cls(**{**folder.run(), **changes})
        except ValueError as error:
            raise StoreError(f"{folder.path / 'run.json'}: {error}") from error

    @property
    def hash(self) -> str:
        """Sixteen hexadecimal digits over everything that decides the result."""
        kept = self.model_dump(exclude=_NOT_HASHED)
        if spec.name_in(self.lr_schedule) in NEED_ROUNDS:
            kept["rounds"] = self.rounds
        if not self.validation:
            del kept["validation"]  # so that runs from before there was such a field keep their hash
        for name, parts in self._resolved().items():  # files by what is in them, wherever they are and however spelt
            kept[name] = "+".join(by_content(part) for part in parts)
        content = {"version": result_version(self.algorithm), "files": {}, **kept}
        return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()[:16]

    @property
    def short_algorithm(self) -> str:
        """The algorithm without its default arguments."""
        return "+".join(spec.short(part, ALGORITHMS) for part in self.algorithm.split("+"))

    @property
    def short(self) -> dict[str, str]:
        """Specs as people write them, for tables and titles."""
        return {
            "dataset": by_name(spec.short(self.dataset, DATASETS)),
            "partition": by_name(spec.short(self.partition, PARTITIONS)),
            "model": spec.short(self.model, MODELS),
            "algorithm": self.short_algorithm,
        }

    @property
    def title(self) -> str:
        """The federation in one line."""
        split = "" if self.partition == "natural" else f" {self.short['partition']}"
        data = self.short["dataset"]
        if spec.name_in(data) == "nodes":
            data = ",".join(data.split(",")[:2])  # what values are normalised with, and names of classes, are long
        return f"{data}{split}, {self.clients} clients"

    def files(self) -> list[str]:
        """The paths of the user's own files that the run uses: those in the specs, and modules that these import."""
        named = [path for parts in self._resolved().values() for part in parts for _, path, _ in files_of(part)]
        code = [imported_files(spec.own_file(path)) for path in named if path.endswith(".py")]
        return list(dict.fromkeys([*named, *(str(file) for files in code for file in files.values())]))

    @property
    def contents(self) -> str:
        """What is in the user's own files, as digests by field: `algorithm 3fa21b02, dataset 77aa0011`."""
        digests = {
            name: "".join(digest for part in parts for _, _, digest in files_of(part))
            for name, parts in self._resolved().items()
        }
        short = {name: hashlib.sha256(text.encode()).hexdigest()[:8] for name, text in digests.items() if text}
        return ", ".join(f"{name} {digest}" for name, digest in sorted(short.items()))

    def _resolved(self) -> dict[str, list[spec.Resolved]]:
        """The specs that may name files, by field."""
        return {
            "model": [spec.resolve(self.model, "model", MODELS, GIVEN)],
            "dataset": [resolve_dataset(self.dataset)],
            "algorithm": resolve_algorithm(self.algorithm),
            "partition": [spec.resolve(self.partition, "partition", ALL_PARTITIONS)],
        }

    def build_algorithm(self) -> Algorithm:
        """The `Algorithm` that the spec describes."""
        return build_algorithm(self.algorithm)

    def client_optimizer(self, round: int) -> Optimizer:
        """The clients' optimiser in a round (1, 2, ...), with the schedule's rate."""
        lr = self.lr * built_schedule(self.lr_schedule, self.rounds)(round)
        if self.optimizer == "sgd":
            return sgd(lr, self.momentum, self.weight_decay)
        return OPTIMIZERS[self.optimizer](lr)


def _per_round(given: Any, clients: Any) -> Any:
    """How many clients a round has: all if nothing is given, a number, or a share such as `0.1` or `10 %`."""
    text = "" if given is None else str(given).replace(" ", "")
    if not text:
        return clients
    try:
        number = float(text.removesuffix("%")) / 100 if text.endswith("%") else float(text)
    except ValueError:
        number = math.nan
    if not number > 0 or (number > 1 and not number.is_integer()) or (number > 1 and "%" in text):
        raise ValueError(
            f"clients_per_round is {spec.show(given)}; allowed: a number of clients, 1 or more, or a share such as 0.1 "
            "or 10%; leave it out for all clients"
        )
    if text.isdecimal() or number > 1 or not str(clients).isdecimal():
        return given
    return max(1, round(number * int(clients)))


def check_seeds(seeds: int) -> None:
    if not isinstance(seeds, Integral) or not 1 <= seeds <= MOST_SEEDS:
        raise ValueError(f"seeds is {seeds}; allowed: how many seeds, 1 to {MOST_SEEDS:,}")


def explain(error: ValidationError) -> str:
    """What is wrong with a run, in a line: field, value, what is allowed."""
    first = error.errors()[0]
    message = first["msg"].removeprefix("Value error, ")
    if not first["loc"]:
        return message
    name = str(first["loc"][0])
    if first["type"] == "extra_forbidden":
        return spec.unknown("field", name, Run.model_fields)
    value = first["input"]
    if isinstance(value, float) and math.isfinite(value):
        shown = f"{value:g}"
    else:
        shown = hex(value) if isinstance(value, int) and value.bit_length() > 10_000 else str(value)
    return f"{name} is {shown!r}: {message[0].lower()}{message[1:]}"

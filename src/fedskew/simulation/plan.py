"""What a simulation and a real federation derive from a run: its data, model, method and how a client trains."""

import warnings
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
import torch

from fedskew import partition
from fedskew.algorithms import Algorithm
from fedskew.core import rng, spec, tree
from fedskew.core.dataset import Dataset
from fedskew.core.evaluation import are_probabilities, predict
from fedskew.core.federation import Federation, Ints
from fedskew.core.own import check_like, drawing, own_parts, told
from fedskew.core.reading import fitted_layer
from fedskew.core.round import Recipe, Server, Sums, received, start_server, zero_sums
from fedskew.core.settings import Settings, dtype_of
from fedskew.core.tree import Params
from fedskew.data import Nodes, load_dataset
from fedskew.data.augment import AUGMENTS
from fedskew.engine.distributed import place
from fedskew.models import Model, OutputError, build_model
from fedskew.runs.run import Run

_ABOUT_BYTES = "; uint8 examples are normalised like pixels; numbers of things, such as words, are given as float32"


@dataclass(frozen=True)
class Plan:
    run: Run
    model: Model
    algorithm: Algorithm
    settings: Settings
    input_shape: tuple[int, ...]
    examples: int | None = None
    """The number of training examples; None if only the nodes have them."""

    @classmethod
    def of(cls, run: Run, known: Dataset | Nodes) -> "Plan":
        shape = tuple(known.input_shape)
        model = build_model(run.model, shape, known.num_classes, run.seed)
        examples = None
        if isinstance(known, Dataset):
            examples = len(known.y_train)
            model.place(dtype_of(run.precision), known.x_train.device)
        return cls(run, model, run.build_algorithm(), settings_of(run, shape), shape, examples)

    def with_run(self, run: Run) -> "Plan":
        """The same model under another run."""
        settings = settings_of(run, self.input_shape)
        return replace(self, run=run, algorithm=run.build_algorithm(), settings=settings)

    def recipe(self, round: int) -> Recipe:
        return Recipe(self.model, self.algorithm, self.run.client_optimizer(round), self.run.grad_clip)

    def start(self, device: torch.device | str | None = None) -> Server:
        """The initial global model, by default on the run's device."""
        there = usable_device(self.run.device) if device is None else device
        return self.start_from(*self.model.init(dtype_of(self.run.precision), there))

    def start_from(self, params: Params, buffers: Params) -> Server:
        """A server with this global model that has seen no round."""
        with drawing(self.recipe(1), self.run.seed, "server", 0):
            server = start_server(self.recipe(1), params, buffers)
        check_like("server_state of this run's correction", server.correction)
        check_like("init of this run's server", server.optimizer)
        return server

    def client_state(self, params: Params) -> Params:
        """What the correction remembers of any client before the client's first round."""
        with drawing(self.recipe(1), self.run.seed, "client_state"):
            state = self.algorithm.correction.client_state(params)
        check_like("client_state of this run's correction", state)
        return state

    def first_state(self, device: torch.device) -> Params:
        """The same, of the model that the run begins with."""
        return self.client_state(self.model.init(dtype_of(self.run.precision), device)[0])

    def sent(self, server: Server, round: int) -> Server:
        """The server's state as clients receive it in a round."""
        with drawing(self.recipe(round), self.run.seed, "sent", round):
            return received(self.algorithm, server)

    def finite(self, server: Server) -> bool:
        """Whether every number of a model is finite, batch statistics included."""
        return tree.finite({**server.params, **{name: server.buffers[name] for name in self._statistics}})

    @cached_property
    def _statistics(self) -> list[str]:
        """The buffers that are finite at the start; a module may have others, such as a mask of -inf."""
        return [name for name, leaf in self.model.module.named_buffers() if tree.finite({name: leaf})]

    def idle(self, server: Server) -> Sums:
        """The sums over no client. Only their shapes count, so what parts draw for them is nobody else's."""
        with drawing(self.recipe(1), self.run.seed, "idle"):
            return zero_sums(self.recipe(1), server)

    def message_like(self, server: Server) -> Params:
        """What a client's correction message looks like."""
        return self.idle(server).message

    def steps(self, examples: int) -> int:
        """How many steps a client with this many examples takes in a round."""
        return int(self.settings.steps(np.array(examples)))

    def check_model(self, server: Server, known: Dataset | Nodes) -> None:
        """Check one output, so that a model that does not fit its data gives a clear error."""
        data = _examples(known, server)
        try:
            logits = predict(self.model, server.params, server.buffers, data, data.x_test[:2])
        except OutputError as error:
            raise ValueError(f"{self.run.model}: {error}") from None
        except Exception as error:
            shape = list(data.input_shape)
            hint = _ABOUT_BYTES if data.x_test.dtype == torch.uint8 and isinstance(error, IndexError) else ""
            raise ValueError(f"{self.run.model} cannot take inputs of shape {shape}: {told(error)}{hint}") from error
        if logits.shape[1:] != (data.num_classes,):
            shape, wanted = list(logits.shape[1:]), [data.num_classes]
            raise ValueError(f"{self.run.model} returns shape {shape} per example; allowed: {wanted}, one per class")
        if "loss" not in own_parts(self.recipe(1)) and are_probabilities(logits):
            warnings.warn(
                f"{self.run.model} returns probabilities; our losses take logits and apply a softmax themselves, so "
                "leave it out of the model",
                stacklevel=3,
            )

    def fitted(self, server: Server, known: Dataset | Nodes) -> Params:
        """The weight and the bias that the method's readout fits, as they are trained; nothing if it fits nothing."""
        if not self.algorithm.readout.asks:
            return {}
        try:
            layer = fitted_layer(self.model, server.params, server.buffers, _examples(known, server))
        except ValueError as error:
            raise ValueError(f"{self.run.short_algorithm} cannot fit {self.run.model}: {error}") from error
        return {name: server.params[name] for name in layer}

    def check_private(self, mechanism: str) -> None:
        """Flower's differential privacy protects one record of arrays, so nothing else may be sent."""
        server = self.start("cpu")
        if self.message_like(server):
            reveals = self.algorithm.correction.reveals or "more than the model does"
            raise ValueError(
                f"{mechanism} protects only the model, but {self.run.short_algorithm} also sends messages, which "
                f"reveal {reveals}; allowed: methods without messages, such as fedavg, fedprox or fedlc"
            )
        if self.algorithm.readout.asks:
            raise ValueError(
                f"{mechanism} protects only the model, but the readout of {self.run.short_algorithm} also asks for "
                "gradients, which reveal label counts; allowed: methods without refit"
            )
        if server.buffers:
            raise ValueError(
                f"{mechanism} protects only parameters, but {self.run.model} also sends batch statistics; "
                "allowed: models without buffers, for example norm=group"
            )


def _examples(known: Dataset | Nodes, server: Server) -> Dataset:
    """Examples that show what a model does; any will do if only the nodes have some. None is negative, because a model
    may take them for positions in a table."""
    if isinstance(known, Dataset):
        return known
    shape, device = (2, *known.input_shape), tree.first(server.params).device
    x, y = torch.linspace(0, 1, torch.Size(shape).numel()).view(shape), torch.zeros(2, dtype=torch.int64)
    return Dataset.of(known.name, (x, y), (x, y), known.num_classes).to(device)


def settings_of(run: Run, shape: Sequence[int]) -> Settings:
    """How a client trains on examples of this shape."""
    augment = AUGMENTS[run.augment]
    if augment is not None and len(shape) != 3:
        raise ValueError(f"augment is {run.augment!r}, which needs images; examples have shape {tuple(shape)}")
    return Settings(run.local_epochs, run.batch_size, run.precision, augment)


def build_federation(run: Run) -> Federation:
    """The run's data and who holds them, on the run's device."""
    data = load_dataset(run.dataset, run.seed, run.clients, run.data_dir, str(usable_device(run.device)))
    held_out = data.held_out(run.validation, rng.stream(run.seed, "validation")) if run.validation else None
    if run.partition == "natural":
        federation = Federation.natural(data, held_out)
        if federation.num_clients != run.clients:
            raise ValueError(f"{data.name} has {federation.num_clients} clients; clients is {run.clients}")
        return federation
    labels = data.y_train.cpu()
    if held_out is None:
        return Federation.split(data, _parts(run, labels))
    if run.partition.startswith("replay:"):  # its indices refer to the whole data set
        parts = _parts(run, labels)
        return Federation.split(data, [part[~torch.isin(part, torch.from_numpy(held_out))] for part in parts], held_out)
    left = torch.from_numpy(np.setdiff1d(np.arange(len(labels)), held_out))
    parts = _parts(run, labels[left])
    return Federation.split(data, [left[part] for part in parts], held_out)


def _parts(run: Run, labels: torch.Tensor) -> list[torch.Tensor]:
    """The indices of each client. A partition of the user's own is checked, as that of a file is."""
    found = spec.resolve(run.partition, "partition", partition.PARTITIONS)
    split, generator = found.build(), rng.stream(run.seed, "partition")
    if not found.own:
        parts: list[torch.Tensor] = split(labels, run.clients, generator)
        return parts
    who = f"partition {run.short['partition']}"
    try:
        made = split(labels, run.clients, generator)
    except Exception as error:
        raise ValueError(f"{who} failed: {told(error)}") from error
    return partition.checked_split(who, made, len(labels), run.clients)


def describe_partition(run: Run, federation: Federation) -> dict[str, Any]:
    """The partition's card."""
    return partition.card(run.partition, federation.indices, federation.counts(np.arange(federation.num_clients)))


def usable_device(name: str) -> torch.device:
    device = torch.device(name)
    if device.type == "cuda" and not torch.cuda.is_available():
        raise ValueError(f"device is {name!r}, but this PyTorch sees no CUDA device; allowed here: cpu")
    if device.type == "mps":
        raise ValueError(f"device is {name!r}: Apple's GPUs are untested and not supported; allowed: cpu")
    if device.type not in ("cpu", "cuda"):
        raise ValueError(f"device is {name!r}; allowed: cpu, cuda, cuda:1")
    return place(device)


def sampled_clients(run: Run, round: int) -> Ints:
    """The clients that are sampled and answer, in ascending order."""
    sampled = np.arange(run.clients)
    if run.clients_per_round < run.clients:
        chosen = rng.stream(run.seed, "cohort", round).choice(run.clients, run.clients_per_round, replace=False)
        sampled = np.sort(chosen)
    if run.dropout_rate:
        sampled = sampled[rng.uniform(rng.key(run.seed, "answer", round, sampled)) >= run.dropout_rate]
    return sampled

"""The messages between server and nodes. None contains label counts, but replies reveal them (docs/privacy.md).

    query          server -> node    config: run, files*
                   node -> server    config: run, client, num-examples, num-test-examples***, states*
    train          server -> node    params, buffers*, correction*; config: run, client, round, absorbed
                   node -> server    params, buffers*, message*; metrics: client, round, num-examples, steps, loss
    query.readout  server -> node    params**, buffers*, layer; config: run, client, round
                   node -> server    layer; metrics: client, round, num-examples, loss
    evaluate***    server -> node    params, buffers*; config: run, client, round
                   node -> server    metrics: client, round, num-examples, correct, loss

Records with a star are sent only if the method or the model has them. `files` are digests of the user's own files by
field, so that a node whose run is another can name those that differ. `states` are the rounds of the correction's
states that a node has, as "3,4". Arrays are exact, in the run's type; a node
answers with its whole model under the names it received, as Flower's differential privacy expects.

Only methods with a readout ask for one. The first ask of a fit (**) holds the trained model; nodes keep what later asks
need of it. `layer` is the last linear layer to be tried, and in the reply the gradient at
that layer under the same names; gradient and loss are sums over the node's examples. By the bias, the gradient is the
sum of the predicted shares less the label counts.

Nodes evaluate (***) if only they have data: the model as it is used, on test examples of their own. `num-examples` is
then the number of these, `correct` how many of them it gets right, `loss` the sum of its losses.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from math import isfinite
from typing import Any

import torch
from flwr.app import Array, ArrayRecord, ConfigRecord, MetricRecord, RecordDict

from fedskew.core import tree
from fedskew.core.round import Server
from fedskew.core.tree import Params

PARAMS, BUFFERS, CORRECTION, MESSAGE, LAYER = "params", "buffers", "correction", "message", "layer"
CONFIG, METRICS, EXAMPLES, TESTS = "config", "metrics", "num-examples", "num-test-examples"
FILES, STATES = "files", "states"
Records = Mapping[str, ArrayRecord]
NUMBERS = ("client", "round", EXAMPLES, "steps", "loss")
_SUMMED = ("client", "round", EXAMPLES, "loss")
_SCORED = ("client", "round", EXAMPLES, "correct", "loss")
_LEAST = {"client": 0, "round": 1, EXAMPLES: 1, "steps": 1, "correct": 0}
_ABOUT = ("run", "client", "round", "absorbed")
_ADDED = {"norm_bit"}  # by Flower's adaptive clipping


class NotFinite(ValueError):
    """A reply that is as it should be, but for numbers that are not finite."""


@dataclass(frozen=True)
class Call:
    """A server's request to train, where `absorbed` is the last round in which this client's answer counted; with a
    `layer`, the request for its gradient at the features of the trained model, which only the first one of a fit holds;
    or the request to evaluate the model.
    """

    run: str
    client: int
    round: int
    server: Server
    absorbed: int | None = None
    layer: Params = field(default_factory=dict)


@dataclass(frozen=True)
class Answer:
    """A client's round as its server sees it."""

    client: int
    round: int
    examples: int
    steps: int
    loss: float
    params: Params
    buffers: Params
    message: Params


@dataclass(frozen=True)
class Gradient:
    """The sums over a client's examples of the loss and of its gradient by the last layer."""

    client: int
    round: int
    examples: int
    loss: float
    layer: Params


@dataclass(frozen=True)
class Score:
    """The sums over a client's test examples: of those that the model gets right, and of its losses."""

    client: int
    round: int
    examples: int
    correct: int
    loss: float


def to_record(leaves: Params) -> ArrayRecord:
    return ArrayRecord({name: Array(leaf.detach().cpu().numpy()) for name, leaf in leaves.items()})


def from_record(record: ArrayRecord, device: torch.device | str = "cpu") -> Params:
    return {name: torch.from_numpy(array.numpy()).to(device) for name, array in record.items()}


def server_records(server: Server) -> dict[str, ArrayRecord]:
    """What all calls with this server's model share."""
    return _records({PARAMS: server.params, BUFFERS: server.buffers, CORRECTION: server.correction})


def encode_call(call: Call, shared: Records, config: Mapping[str, Any] | None = None) -> RecordDict:
    """`shared` are the records of the call's server, `config` is what a strategy adds."""
    about = {name: getattr(call, name) for name in _ABOUT if getattr(call, name) is not None}
    return RecordDict({**shared, **_records({LAYER: call.layer}), CONFIG: ConfigRecord({**(config or {}), **about})})


def decode_call(content: RecordDict, device: torch.device | str) -> Call:
    config: Mapping[str, Any] = content.config_records[CONFIG]
    if missing := [name for name in ("client", "round") if name not in config]:
        raise ValueError(f"the call has no {', '.join(missing)}")
    absorbed = int(config["absorbed"]) if "absorbed" in config else None
    params, buffers, correction, layer = (_tree(content, name, device) for name in (PARAMS, BUFFERS, CORRECTION, LAYER))
    server = Server(params, buffers, correction, {})
    return Call(str(config["run"]), int(config["client"]), int(config["round"]), server, absorbed, layer)


def encode_answer(answer: Answer) -> RecordDict:
    return _reply(answer, NUMBERS, {PARAMS: answer.params, BUFFERS: answer.buffers, MESSAGE: answer.message})


def decode_answer(content: RecordDict, call: Call, message: Params, device: torch.device | str) -> Answer:
    """A node's answer to a call; its correction message must look like `message`. A ValueError says what is wrong."""
    wanted = {PARAMS: call.server.params, BUFFERS: call.server.buffers, MESSAGE: message}
    numbers, records = _decoded(content, call, NUMBERS, wanted, device)
    answer = Answer(*numbers, **records)
    _check_finite(answer.loss)
    return answer


def encode_gradient(gradient: Gradient) -> RecordDict:
    return _reply(gradient, _SUMMED, {LAYER: gradient.layer})


def decode_gradient(content: RecordDict, ask: Call, device: torch.device | str) -> Gradient:
    """A node's answer to an ask. A ValueError says what is wrong."""
    numbers, records = _decoded(content, ask, _SUMMED, {LAYER: ask.layer}, device)
    found = Gradient(*numbers, **records)
    _check_finite(found.loss)
    _check_sum(found.loss)
    return found


def encode_score(score: Score) -> RecordDict:
    return _reply(score, _SCORED, {})


def decode_score(content: RecordDict, ask: Call) -> Score:
    """A node's answer to an ask without a layer. A ValueError says what is wrong. The loss may be no number, since a
    model may be at fault."""
    numbers, _ = _decoded(content, ask, _SCORED, {}, "cpu")
    found = Score(*numbers)
    _check_sum(found.loss)
    if found.correct > found.examples:
        raise ValueError(f"correct is {found.correct}; allowed: up to num-examples, which is {found.examples}")
    return found


def _check_finite(loss: float) -> None:
    if not isfinite(loss):
        raise NotFinite(f"loss is {loss!r}; allowed: finite numbers")


def _check_sum(loss: float) -> None:
    if loss < 0:
        raise ValueError(f"loss is {loss}; allowed: numbers of at least 0")


def _reply(said: Answer | Gradient | Score, numbers: Sequence[str], trees: Mapping[str, Params]) -> RecordDict:
    metrics = MetricRecord({name: getattr(said, name.removeprefix("num-")) for name in numbers})
    return RecordDict({METRICS: metrics, **_records(trees)})


def _records(trees: Mapping[str, Params]) -> dict[str, ArrayRecord]:
    return {name: to_record(leaves) for name, leaves in trees.items() if leaves}


def _decoded(
    content: RecordDict, asked: Call, numbers: Sequence[str], wanted: Mapping[str, Params], device: Any
) -> tuple[list[Any], dict[str, Any]]:
    """The numbers and the arrays of a reply, which must look like those wanted."""
    try:
        records = {name: _tree(content, name, device) for name in wanted}
        metrics = dict(content.metric_records.get(METRICS, {}))
    except Exception as error:
        raise ValueError(f"its arrays cannot be read: {type(error).__name__}: {error}") from error
    _same("records", set(content), {METRICS, *(name for name, leaves in wanted.items() if leaves)})
    _same("numbers", set(metrics) - _ADDED, set(numbers))
    for name, like in wanted.items():
        if wrong := tree.unlike(records[name], like):
            raise ValueError(f"{name} has {wrong}")
    for name, least in _LEAST.items():
        value = metrics.get(name, least)
        if not isinstance(value, int) or value < least:
            raise ValueError(f"{name} is {value!r}; allowed: integers of at least {least}")
    for name, expected in (("client", asked.client), ("round", asked.round)):
        if metrics[name] != expected:
            raise ValueError(f"{name} is {metrics[name]}; expected: {expected}")
    if not isinstance(metrics["loss"], float):
        raise ValueError(f"loss is {metrics['loss']!r}; allowed: finite numbers")
    for name, leaves in records.items():
        if not tree.as_finite(leaves, wanted[name]):
            raise NotFinite(f"{name} has values that are not finite numbers")
    return [metrics[name] for name in numbers], records


def _tree(content: RecordDict, name: str, device: torch.device | str) -> Params:
    return from_record(content.array_records[name], device) if name in content.array_records else {}


def _same(what: str, found: set[str], wanted: set[str]) -> None:
    if found != wanted:
        raise ValueError(f"{what} are {', '.join(sorted(found))}; allowed: {', '.join(sorted(wanted))}")

"""A readout in a federation: the server fits the last layer with gradients that it asks all present clients for.

The first ask of a fit holds the trained model, later ones only the layer to be tried: a node keeps what it needs of the
model in Flower's state. If a client gives no valid answer, the fit goes on without it (`readouts/fitting.py` says how),
with as many asks in all as if it had answered; with fewer than `min-clients` left, the run fails. If they are that few
because the gradients of others are not finite, the model is at fault: the fit learns as much, as in a simulation.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import reduce
from logging import INFO, WARNING
from math import nan

import torch
from flwr.app import ConfigRecord, Message, RecordDict
from flwr.serverapp import Grid
from flwr.supercore import log
from torch import Tensor

from fedskew.core import rng, tree
from fedskew.core.own import drawing
from fedskew.core.reading import Reading, client_gradient, features, fit, last_layer
from fedskew.core.round import Server
from fedskew.core.tree import Params
from fedskew.data import Dataset, Nodes
from fedskew.flower.data import Node
from fedskew.flower.messages import (
    BUFFERS,
    PARAMS,
    Call,
    Gradient,
    NotFinite,
    decode_gradient,
    encode_call,
    from_record,
    server_records,
    to_record,
)
from fedskew.flower.post import with_nodes
from fedskew.flower.strategy import LabelSkew, content_of
from fedskew.readouts import Fewer
from fedskew.runs.run import Run
from fedskew.simulation.plan import Plan

READOUT = "query.readout"
MOST_KEPT = 1 << 28
"""Instead of features of more bytes a node keeps the model, and computes them anew for every ask."""
_ARRAYS, _ABOUT = "fedskew-features", "fedskew-features-of"
_FEATURES = "features"
Read = tuple[tuple[str, str], Tensor]
"""The names of the last layer, and what it reads of a node's examples."""


@dataclass(frozen=True)
class Reader:
    """The server's side: `layer` are the names of the weight and the bias that it fits."""

    strategy: LabelSkew
    layer: tuple[str, str]

    @classmethod
    def of(cls, strategy: LabelSkew, known: Dataset | Nodes) -> "Reader | None":
        """None if the method has no readout that asks."""
        plan = strategy.plan
        if not plan.algorithm.readout.asks:
            return None
        if not plan.algorithm.aggregate.linear:
            raise ValueError(
                f"{plan.run.short_algorithm}: the server adds up the gradients of a readout, so one client could "
                "bypass the aggregate; allowed: methods without trimmed or median"
            )
        rows, biases = plan.fitted(strategy.server, known)
        return cls(strategy, (rows, biases))

    def read_out(self, grid: Grid, round: int) -> Reading:
        """The last layer, fitted to the examples of the clients that are present and answer."""
        server, plan = self.strategy.server, self.strategy.plan
        rows, biases = self.layer
        nodes, asked, all_answered = dict(sorted(self.strategy.roll.nodes.items())), 0, True
        trained, nothing = Server(server.params, server.buffers, {}, {}), Server({}, {}, {}, {})
        overflown = set[int]()

        def ask(weight: Tensor, bias: Tensor) -> tuple[float, Tensor, Tensor]:
            nonlocal nodes, asked, all_answered
            layer, sent = {rows: weight, biases: bias}, nothing if asked else trained
            asked += len(nodes)
            if not tree.finite(layer):  # as gradients that are not finite have made it
                return nan, torch.full_like(weight, nan), torch.full_like(bias, nan)
            answers, not_finite = self._ask(grid, round, nodes, sent, layer)
            present = {client: node for client, node in nodes.items() if client in answers or client in not_finite}
            all_answered = len(present) == len(nodes)
            if not all_answered:
                nodes = present
                raise Fewer
            if not_finite:
                overflown.update(not_finite)
                return nan, torch.full_like(weight, nan), torch.full_like(bias, nan)
            given = [answers[client] for client in nodes]  # always added up in the same order
            total = sum(answer.examples for answer in given)
            gradient = reduce(tree.add, (tree.map(Tensor.double, answer.layer) for answer in given))
            return sum(answer.loss for answer in given) / total, gradient[rows] / total, gradient[biases] / total

        with drawing(plan.recipe(round), plan.run.seed, "readout", round):
            fitted = fit(plan.algorithm.readout, server.params, self.layer, ask)
        if overflown:
            early = "round %s: gradients of clients %s are not finite; the last layer is the best found before them"
            log(WARNING, early, round, ", ".join(map(str, sorted(overflown))))
        elif all_answered:
            done = "round %s: the last layer is fitted to the examples of %s clients, with %s gradients"
            log(INFO, done, round, len(nodes), asked)
        else:
            log(WARNING, "round %s: the last ask lost a client; the last layer is the best found before it", round)
        return Reading(fitted, asked)

    def _ask(
        self, grid: Grid, round: int, nodes: Mapping[int, int], model: Server, layer: Params
    ) -> tuple[dict[int, Gradient], set[int]]:
        """The valid answers of clients. If they are too few because numbers of others are not finite, also those."""
        strategy, records = self.strategy, server_records(model)
        run, rules = strategy.plan.run, strategy.rules
        asks = {node: Call(run.hash, client, round, model, layer=layer) for client, node in nodes.items()}
        sent = [Message(encode_call(ask, records), node, READOUT) for node, ask in asks.items()]
        found, not_finite, needed = dict[int, Gradient](), dict[int, NotFinite](), rules.needed(run.clients)
        with rng.seeded(run.seed, "asks", round):  # Flower draws, and a readout of the user's own may draw too
            replies = strategy.exchange(grid, sent)
        for node, reply in with_nodes(sent, replies):
            try:
                found[asks[node].client] = self._answer(reply, node, asks[node])
            except NotFinite as error:
                not_finite[node] = error
            except ValueError as error:
                strategy.refuse(round, node, asks[node].client, error)
        if len(found) < needed <= len(found) + len(not_finite):
            return found, {asks[node].client for node in not_finite}
        for node, problem in not_finite.items():
            strategy.refuse(round, node, asks[node].client, problem)
        strategy.check_enough(round, len(found), len(nodes), needed, "answered the readout properly")
        return found, set()

    def _answer(self, reply: Message, node: int, ask: Call) -> Gradient:
        answer = decode_gradient(content_of(reply), ask, tree.first(ask.layer).device)
        self.strategy.check_examples(answer.examples, node)
        _, bias = self.layer
        largest = float(answer.layer[bias].abs().max())
        if largest > 1.001 * answer.examples:
            raise ValueError(f"its gradient has {bias} {largest:.4g}; {answer.examples} examples allow at most as many")
        return answer


def gradient_of(run: Run, node: Node, ask: Call, state: RecordDict) -> Gradient:
    """The node's side: its gradient of the layer that the server tries."""
    node.check_asked(ask.client)
    data = node.federation.dataset
    plan = Plan.of(run, data)
    if not plan.algorithm.readout.asks:
        raise ValueError(f"{run.short_algorithm} has no readout, so this node gives no gradients; allowed: refit")
    there = node.federation.indices[node.client].to(data.y_train.device)
    labels = data.y_train[there]
    (rows, biases), known = (_met if ask.server.params else _kept)(plan, data, there, ask, state)
    if set(ask.layer) != {rows, biases}:
        raise ValueError(f"the server asks for {', '.join(ask.layer)}; the last layer is {rows}, {biases}")
    loss, by_weight, by_bias = client_gradient(known, labels, ask.layer[rows], ask.layer[biases])
    return Gradient(node.client, ask.round, len(labels), float(loss), {rows: by_weight, biases: by_bias})


def forget(state: RecordDict) -> None:
    """Drop what was kept of a model that will be trained further."""
    for name in (_ARRAYS, _ABOUT):
        state.pop(name, None)


def _met(plan: Plan, data: Dataset, there: Tensor, ask: Call, state: RecordDict) -> Read:
    """From the model in the first ask of a fit. The next ask may reach another process, so Flower's state keeps it."""
    said = "round %s: client %s gives gradients of the last layer over %s examples"
    log(INFO, said, ask.round, ask.client, len(there))
    rows, biases = last_layer(plan.model, ask.server.params, ask.server.buffers, data)
    known = features(plan.model, ask.server.params, ask.server.buffers, data, there)
    model = {**tree.prefix(ask.server.params, PARAMS), **tree.prefix(ask.server.buffers, BUFFERS)}
    state[_ARRAYS] = to_record({_FEATURES: known} if known.nbytes <= MOST_KEPT else model)
    state[_ABOUT] = ConfigRecord({"of": _of(ask, there), "rows": rows, "biases": biases})
    return (rows, biases), known


def _kept(plan: Plan, data: Dataset, there: Tensor, ask: Call, state: RecordDict) -> Read:
    """From what the first ask of this fit left behind."""
    about = state.config_records.get(_ABOUT, ConfigRecord())
    if about.get("of") != _of(ask, there):
        raise ValueError(f"this node no longer has the model of round {ask.round}, which the fit's first ask brought")
    layer, kept = (str(about["rows"]), str(about["biases"])), from_record(state.array_records[_ARRAYS], there.device)
    if _FEATURES in kept:
        return layer, kept[_FEATURES]
    params, buffers = (tree.unprefix(kept, name) for name in (PARAMS, BUFFERS))
    return layer, features(plan.model, params, buffers, data, there)


def _of(ask: Call, there: Tensor) -> str:
    return f"round {ask.round}, client {ask.client}, {len(there)} examples"

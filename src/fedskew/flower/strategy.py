"""The server's side: the global model, updated by the clients with valid answers."""

import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import fields, replace
from logging import INFO, WARNING
from math import isfinite
from typing import Literal, TypeVar

import numpy as np
import torch
from flwr.app import ArrayRecord, ConfigRecord, Message, MessageType, MetricRecord, RecordDict
from flwr.serverapp import Grid
from flwr.serverapp.strategy import Strategy
from flwr.supercore import log
from flwr.supercore.differential_privacy import KEY_CLIPPING_NORM

from fedskew.core import tree
from fedskew.core.evaluation import Evaluation
from fedskew.core.federation import weights_of
from fedskew.core.own import drawing
from fedskew.core.round import Server, Update, join, server_update
from fedskew.flower.limits import Move, Norms, check_reach, learnt, most_examples
from fedskew.flower.messages import (
    CONFIG,
    PARAMS,
    Answer,
    Call,
    Score,
    decode_answer,
    decode_score,
    encode_call,
    from_record,
    server_records,
    to_record,
)
from fedskew.flower.post import Post, short, with_nodes
from fedskew.flower.roll import Roll
from fedskew.flower.rules import Rules
from fedskew.flower.scores import pooled
from fedskew.simulation.plan import Plan, sampled_clients, usable_device
from fedskew.simulation.simulation import is_evaluated

T = TypeVar("T")
_NAMED = 8
"""How many clients a message names."""


class LabelSkew(Strategy):
    """Any method of this package as a Flower strategy. One of Flower's wrappers for differential privacy may wrap it.

    `server` is the global model with the method's state, `sent` is what clients receive of it, `sizes` is how many
    examples each client reported, `absorbed` is the last round in which each client counted, and `reach` is how far
    clients have moved so far. If `nodes_evaluate`, `measured` is what nodes with test examples found the last model
    worth. A method's readout is fitted after a round, which a strategy does not do: `fits_readout` says that its owner
    does, as our server app.
    """

    def __init__(
        self, plan: Plan, rules: Rules | None = None, *, nodes_evaluate: bool = False, fits_readout: bool = False
    ) -> None:
        if plan.algorithm.readout.asks and not fits_readout:
            raise ValueError(
                f"{plan.run.short_algorithm} has a readout, which the strategy LabelSkew does not fit; allowed: "
                "fedskew.flower.server_app(), which fits it, or a method without a readout"
            )
        self.plan, self.rules = plan, rules or Rules()
        self.server, self.absorbed = plan.start(), dict[int, int]()
        self.sent, self.sizes = self.server, dict[int, int]()
        self.update: Update | None = None
        self.reach: Norms = {}
        self.nodes_evaluate = nodes_evaluate
        self.measured: Evaluation | None = None
        self.roll = Roll(plan.run.hash, plan.run.clients, self.rules.resend_after, plan.run.contents)
        self._post = Post(plan.run.hash, self.rules.round_timeout, self.rules.resend_after)
        self._device = usable_device(plan.run.device)
        self._message = plan.message_like(self.server)
        self._calls, self._sent = dict[int, Call](), list[Message]()
        self._needed, self._met, self._clipped = 0, False, 0.0
        self._faults = dict[str, str]()

    def configure_train(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> Iterable[Message]:
        """A call to each client that is sampled and present."""
        self._faults.clear()
        self.server = replace(self.server, params=from_record(arrays, self._device))
        self.sent = self.plan.sent(self.server, server_round)
        nodes = self.roll.call(grid) if self._met else self.roll.wait(grid, self.rules.start_timeout)
        self._name_lost_states(server_round)
        self.sizes |= self.roll.sizes
        self._met, self._clipped = True, float(config.get(KEY_CLIPPING_NORM, 0.0))  # type: ignore[arg-type]
        sampled = sampled_clients(self.plan.run, server_round).tolist()
        self._needed = self.rules.needed(len(sampled))
        absent = [client for client in sampled if client not in nodes]
        if absent:
            log(WARNING, "round %s: no node is client %s%s", server_round, _listed(absent), self.roll.problems)
        self._calls = {
            nodes[client]: Call(self.plan.run.hash, client, server_round, self.sent, self.absorbed.get(client, 0))
            for client in sampled
            if client in nodes
        }
        self._check_called(server_round, len(self._calls), "have joined")
        return self._messages(MessageType.TRAIN, self.sent, config)

    def _name_lost_states(self, round: int) -> None:
        """Warn of nodes that have joined without the state that their client's last counted round made."""
        for node in self.roll.entered():
            claim = self.roll.claim(node)
            if claim is None or claim.states is None or self.absorbed.get(claim.client, 0) in {0, *claim.states}:
                continue
            said = "round %s: node %s, client %s, has lost its state of round %s and starts anew; a state-dir keeps it"
            log(WARNING, said, round, node, claim.client, self.absorbed[claim.client])

    def aggregate_train(
        self, server_round: int, replies: Iterable[Message]
    ) -> tuple[ArrayRecord | None, MetricRecord | None]:
        """The next global model; too few valid answers are a RuntimeError."""
        answers = [answer for _, answer in self._answered(server_round, replies)]
        self._check_called(server_round, len(answers), "answered properly")
        self.update = None
        if answers:
            self._absorb(server_round, sorted(answers, key=lambda answer: answer.client))
        loss = float("nan") if self.update is None else float(self.update.loss.double().mean())
        return to_record(self.server.params), MetricRecord({"clients": len(answers), "train-loss": loss})

    def proper(self, server_round: int, replies: Iterable[Message]) -> list[Message]:
        """The valid replies, if there are enough: a wrapper would skip a round because of one bad reply. Their arrays
        are in the order of ours, because wrappers go by position."""
        found = [reply for reply, _ in self._answered(server_round, replies)]
        self._check_called(server_round, len(found), "answered properly")
        for reply in found:
            arrays = reply.content.array_records[PARAMS]
            reply.content[PARAMS] = ArrayRecord({name: arrays[name] for name in self.server.params})
        return found

    def configure_evaluate(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> Iterable[Message]:
        """In rounds that the nodes measure, the model as it is used, to each present node with test examples."""
        run, model = self.plan.run, Server(self.server.used, self.server.buffers, {}, {})
        tested = self.roll.tested if self.nodes_evaluate and is_evaluated(run, server_round) else {}
        self._calls = {node: Call(run.hash, client, server_round, model) for client, node in tested.items()}
        return self._messages(MessageType.EVALUATE, model)

    def _messages(self, kind: str, server: Server, config: ConfigRecord | None = None) -> list[Message]:
        """The calls to nodes, which share this model."""
        shared = server_records(server) if self._calls else {}
        self._sent = [Message(encode_call(call, shared, config), node, kind) for node, call in self._calls.items()]
        return self._sent

    def aggregate_evaluate(self, server_round: int, replies: Iterable[Message]) -> MetricRecord | None:
        """What the nodes that answered properly measured; None if there is no such node. The model is at fault if most
        nodes find that its loss is no number."""
        scores = {node: score for node, _, score in self._valid(server_round, replies, self._score)}
        self.measured = None
        wrong = [node for node, score in scores.items() if not isfinite(score.loss)]
        if 2 * len(wrong) <= len(self._calls):
            for node in wrong:
                error = ValueError(f"loss is {scores[node].loss}; allowed: finite numbers")
                self.refuse(server_round, node, scores.pop(node).client, error)
        if self._calls:
            said = "round %s: %s of %s nodes with test examples have measured the model, on %s examples"
            asked, total = len(self._calls), sum(score.examples for score in scores.values())
            log(INFO if len(scores) == asked else WARNING, said, server_round, len(scores), asked, total)
        if not scores:
            return None
        found = self.measured = pooled(sorted(scores.values(), key=lambda score: score.client))
        return MetricRecord({"clients": len(scores), "accuracy": found.accuracy, "loss": found.loss})

    def _score(self, content: RecordDict, call: Call, node: int) -> Score:
        score = decode_score(content, call)
        self.check_examples(score.examples, node, "tests")
        return score

    def _valid(
        self, round: int, replies: Iterable[Message], read: Callable[[RecordDict, Call, int], T]
    ) -> list[tuple[int, Message, T]]:
        """Valid replies in order, with their nodes and what was read."""
        found = []
        for node, reply in with_nodes(self._sent, replies):
            call = self._calls.get(node)
            try:
                if call is None:
                    raise ValueError("this node was not asked")
                found.append((node, reply, read(content_of(reply), call, node)))
            except ValueError as error:
                self.refuse(round, node, "unknown" if call is None else call.client, error)
        return found

    def exchange(self, grid: Grid, messages: Sequence[Message]) -> list[Message]:
        """Send messages and collect replies, as the rules say. Clients without a reply are named."""
        self._faults.clear()
        began = time.monotonic()
        replies = self._post.exchange(grid, messages)
        late = time.monotonic() - began >= self.rules.round_timeout
        reason = (
            f"no reply in time; round-timeout is {self.rules.round_timeout:g} s" if late else "it left before its call"
        )
        replied = {node for node, _ in with_nodes(messages, replies)}
        for message in messages:
            node, about = message.metadata.dst_node_id, message.content.config_records[CONFIG]
            if node not in replied:
                self._faults[str(about["client"])] = reason
                log(WARNING, "round %s: node %s, client %s: %s", about["round"], node, about["client"], reason)
        return replies

    def summary(self) -> None:
        run = self.plan.run
        log(INFO, "\t└──> %s on %s, run %s", run.short_algorithm, run.title, run.hash)

    def _answered(self, round: int, replies: Iterable[Message]) -> list[tuple[Message, Answer]]:
        """Answers in order, without invalid ones."""
        found = [(reply, answer) for _, reply, answer in self._valid(round, replies, self._answer)]
        return self._within_reach(round, found) if self.rules.max_norm == "auto" else found

    def _within_reach(self, round: int, found: list[tuple[Message, Answer]]) -> list[tuple[Message, Answer]]:
        """Drop answers that go much farther than the others."""
        nodes = {call.client: node for node, call in self._calls.items()}
        moves = [Move.of(answer, self.sent) for _, answer in found]
        kept = []
        for k, (_, answer) in enumerate(found):
            try:
                check_reach(moves[k], moves[:k] + moves[k + 1 :], self.reach, self.sent)
                kept.append(k)
            except ValueError as error:
                self.refuse(round, nodes[answer.client], answer.client, error)
        self.reach = learnt(self.reach, [moves[k] for k in kept])
        return [found[k] for k in kept]

    def refuse(self, round: int, node: int, client: int | str, error: ValueError) -> None:
        """Go on without a reply, or fail, as the rules say."""
        problem = f"round {round}: the reply of node {node}, client {client}, is refused: {short(error)}"
        self.roll.doubt(node)
        self._faults[str(client)] = short(error)
        if self.rules.on_bad_reply == "fail":
            raise RuntimeError(problem) from error
        log(WARNING, problem)

    def _answer(self, content: RecordDict, call: Call, node: int) -> Answer:
        answer = decode_answer(content, call, self._message, self._device)
        self.check_examples(answer.examples, node)
        expected = self.plan.steps(answer.examples)
        if answer.steps != expected:
            raise ValueError(f"steps is {answer.steps}; {answer.examples} examples take {expected} steps")
        self._check_distance(answer)
        return answer

    def check_examples(self, examples: int, node: int, kind: Literal["examples", "tests"] = "examples") -> None:
        """Check that the examples are as many as when the node joined, and no more than it can have."""
        rule, claim = self.rules.max_examples, self.roll.claim(node)
        if rule in ("off", 0):
            return
        if claim is not None and examples != (joined := getattr(claim, kind)):
            raise ValueError(f"num-examples is {examples}; when the node joined it had {joined}")
        others = [held for other in self.roll.claims_of_others(node) if (held := getattr(other, kind))]
        most = most_examples(self.plan.examples, others) if rule == "auto" else int(rule)
        if most is not None and examples > most:
            raise ValueError(f"num-examples is {examples}; max-examples is {rule} and allows {most}")

    def _check_distance(self, answer: Answer) -> None:
        """Check that the model is no farther from the global one than the rules, or clipping on the node, allow."""
        given = self.rules.max_norm if isinstance(self.rules.max_norm, float) else 0.0
        limits = {"max-norm": given, "clipping on the node": 1.001 * self._clipped}
        if not any(limits.values()):
            return
        norm = float(tree.norm(tree.sub(answer.params, self.sent.params), 0))
        for name, limit in limits.items():
            if limit and not norm <= limit:
                raise ValueError(f"its model is {norm:.4g} away from the global one; {name} allows {limit:.4g}")

    def _check_called(self, round: int, found: int, what: str) -> None:
        self.check_enough(round, found, len(self._calls), self._needed, what)

    def check_enough(self, round: int, found: int, asked: int, needed: int, what: str) -> None:
        """Check that enough of the clients that were asked gave a valid answer."""
        if found < asked:
            log(WARNING, "round %s: %s of %s clients did not give a valid answer", round, asked - found, asked)
        if found < needed:
            kept = bool(self.rules.store) and round > 1
            raise RuntimeError(
                f"round {round}: {found} clients {what}, but min-clients requires {needed}"
                f"{self.roll.problems}{self._problems}"
                + (f"; the next `flwr run` continues after round {round - 1}" if kept else "")
            )

    @property
    def _problems(self) -> str:
        """What was wrong with the first clients that did not give a valid answer."""
        told = [f"; client {client}: {fault}" for client, fault in self._faults.items()]
        return "".join(told[:_NAMED]) + (f"; and {len(told) - _NAMED} more" if len(told) > _NAMED else "")

    def _absorb(self, round: int, answers: Sequence[Answer]) -> None:
        """Aggregate as a simulation does, in the order of the clients."""
        run = self.plan.run
        self.update = join([self._as_update(answer, round) for answer in answers], new_axis=True)
        self.sizes |= {answer.client: answer.examples for answer in answers}
        usual = int(np.mean(list(self.sizes.values())))  # of a client that never joined
        sizes = np.array([self.sizes.get(client, usual) for client in range(run.clients)])
        everyone = weights_of(sizes, run.weighting).to(self._device)
        weights = everyone[[answer.client for answer in answers]]
        with drawing(self.plan.recipe(round), run.seed, "server", round):
            after = server_update(self.plan.algorithm, self.server, self.update, weights, everyone)
        for part in fields(after):
            if not tree.as_finite(getattr(after, part.name), getattr(self.server, part.name)):
                raise RuntimeError(f"round {round}: the server's {part.name} are not finite; the round is dropped")
        self.server = after
        self.absorbed |= {answer.client: round for answer in answers}

    def _as_update(self, answer: Answer, round: int) -> Update:
        delta = tree.sub(answer.params, self.sent.params)
        travel = self.plan.recipe(round).travel(torch.tensor(answer.steps, device=self._device))
        loss = torch.tensor(answer.loss, dtype=torch.float64)
        return Update(delta, answer.buffers, {}, answer.message, travel, loss)


def content_of(reply: Message) -> RecordDict:
    if reply.has_error():
        raise ValueError(f"error {reply.error.code}: {(reply.error.reason or '').strip()}")
    return reply.content


def _listed(clients: Sequence[int]) -> str:
    return ", ".join(map(str, clients[:_NAMED])) + (", ..." if len(clients) > _NAMED else "")

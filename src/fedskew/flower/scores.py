"""Evaluation on the nodes, if only they have data: each measures the model on test examples of its own.

A node answers with sums over these. Counts by class would be label counts, which stay on the node, so there is no
balanced accuracy and no accuracy by class.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from logging import INFO
from math import nan

from flwr.supercore import log
from torch.nn.functional import cross_entropy

from fedskew.core.evaluation import Evaluation, predict
from fedskew.flower.data import Node
from fedskew.flower.messages import Call, Score
from fedskew.runs.run import Run
from fedskew.simulation.plan import Plan


@dataclass(frozen=True)
class Pooled(Evaluation):
    """What these clients' nodes measured, on so many test examples in all."""

    measured_by: list[int] = field(default_factory=list)
    measured_on: int = 0


def score_of(run: Run, node: Node, ask: Call) -> Score:
    """The node's side: what the server's model is worth there, in evaluation mode."""
    node.check_asked(ask.client)
    data = node.federation.dataset
    model, labels = Plan.of(run, data).model, data.y_test
    logits = predict(model, ask.server.params, ask.server.buffers, data, data.x_test)
    correct = int((logits.argmax(-1) == labels).sum())
    loss = float(cross_entropy(logits.double(), labels, reduction="sum"))
    log(INFO, "round %s: client %s gets %s of %s test examples right", ask.round, ask.client, correct, len(labels))
    return Score(node.client, ask.round, len(labels), correct, loss)


def pooled(scores: Sequence[Score]) -> Pooled:
    """The server's side: what a simulation would measure on all these test examples, without the measures by class."""
    total, shares = sum(score.examples for score in scores), [score.correct / score.examples for score in scores]
    return Pooled(
        accuracy=sum(score.correct for score in scores) / total,
        balanced_accuracy=nan,
        loss=sum(score.loss for score in scores) / total,
        per_class_accuracy=[],
        client_accuracy=sum(shares) / len(shares),
        measured_by=[score.client for score in scores],
        measured_on=total,
    )

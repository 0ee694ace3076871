"""What several probes read from an observation."""

from typing import Any

import torch
from torch import Tensor

from fedskew.core import tree
from fedskew.core.dataset import Dataset
from fedskew.core.evaluation import Evaluation, evaluate_model, predict
from fedskew.core.round import Server, Update
from fedskew.core.tree import Params
from fedskew.simulation.records import Observation


def data_of(seen: Observation) -> Dataset:
    return seen.cohort.federation.dataset


def finite_update(seen: Observation) -> Update | None:
    """The round's updates, None if no client answered or the model is no longer finite: a probe never stops a run."""
    return seen.update if seen.update is not None and tree.finite(seen.after.params) else None


def local_model(seen: Observation, update: Update, k: int) -> tuple[Params, Params]:
    """Parameters and buffers of the cohort's k-th client after its local update."""
    return tree.add(seen.before.params, tree.rows(update.delta, k)), tree.rows(update.buffers, k)


def global_model(server: Server) -> tuple[Params, Params]:
    return server.params, server.buffers


def evaluated(seen: Observation, model: tuple[Params, Params]) -> Evaluation:
    """A model on the whole test set."""
    return evaluate_model(seen.model, *model, data_of(seen))


def on_test_set(seen: Observation, params: Params, buffers: Params) -> Tensor:
    """The logits of a model on the whole test set."""
    data = data_of(seen)
    return predict(seen.model, params, buffers, data, data.x_test)


def client_counts(seen: Observation, client_limit: int | None = None) -> list[list[int]]:
    """Label counts of the cohort's first clients, in their order."""
    counts: list[list[int]] = seen.cohort.federation.counts(seen.cohort.clients[:client_limit]).tolist()
    return counts


def client_examples(seen: Observation, k: int) -> tuple[Tensor, Tensor]:
    """Stored inputs and labels of the k-th client's training examples."""
    federation = seen.cohort.federation
    data, own = federation.dataset, federation.order[federation.positions(seen.cohort.clients[k : k + 1])]
    index = torch.from_numpy(own).to(data.y_train.device)
    return data.x_train[index], data.y_train[index]


def about(seen: Observation) -> dict[str, Any]:
    """Which global model was observed, and what its clients did."""
    run, names = seen.run, data_of(seen).class_names
    return {
        "title": run.title,
        "dataset": run.short["dataset"],
        "algorithm": run.short_algorithm,
        "local_epochs": run.local_epochs,
        "seed": run.seed,
        "round": seen.round - 1,
        "classes": data_of(seen).num_classes,
        "class_names": list(names) if names else None,
    }

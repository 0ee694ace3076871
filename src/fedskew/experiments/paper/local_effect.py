"""What one local update does to a trained global model: accuracy per class before, after and after aggregation.

The paper's figures 2 and 6. A simulation that stands between two rounds is looked at and never changed: what happens
here happens to a copy of it.
"""

import copy
import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from fedskew import tree
from fedskew.client_states import ClientStates
from fedskew.data.augment import AUGMENTS
from fedskew.engine import ENGINES
from fedskew.engine.settings import Settings
from fedskew.evaluate import Evaluation, evaluate_model
from fedskew.experiments.checkpoint import load_checkpoint
from fedskew.experiments.run import Run
from fedskew.experiments.store import Folder, StoreError
from fedskew.federation import Cohort, Ints
from fedskew.round import Update, start_server
from fedskew.simulation import Simulation
from fedskew.tree import Params

KINDS = ("majority", "minority", "missing")


@dataclass(frozen=True)
class LocalRound:
    """Local updates from a global model: `simulation` is the copy, still before aggregation."""

    simulation: Simulation
    cohort: Cohort
    update: Update

    def model(self, k: int) -> tuple[Params, Params]:
        """Parameters and buffers of the cohort's k-th client after its local update."""
        params = tree.add(self.simulation.server.params, tree.rows(self.update.delta, k))
        return params, tree.rows(self.update.buffers, k)

    def evaluate(self, k: int) -> Evaluation:
        """The k-th client's own model on the whole test set."""
        simulation = self.simulation
        return evaluate_model(simulation.model, *self.model(k), simulation.federation.dataset, simulation.dtype)


def from_folder(folder: Folder, device: str | None = None) -> Simulation:
    """The simulation as its last checkpoint left it, on its own or another device.

    Unlike `attach`, nothing is written to the folder.
    """
    if not folder.checkpoint.exists():
        raise StoreError(f"run {folder.path.name} has no checkpoint yet; let it run first")
    stored = folder.run()
    simulation = Simulation(Run(**{**stored, "device": device or stored["device"]}))
    checkpoint = load_checkpoint(folder.checkpoint, simulation.device)
    simulation.round, simulation.server = checkpoint.round, checkpoint.server
    simulation.states.put(checkpoint.clients.numpy(), checkpoint.states)
    return simulation


def local_round(
    simulation: Simulation,
    *,
    algorithm: str | None = None,
    local_epochs: int | None = None,
    clients: Ints | None = None,
) -> LocalRound:
    """The local updates of the next round's cohort, or of given clients, under the run's or another algorithm."""
    twin = _copy(simulation, algorithm, local_epochs)
    round = twin.round + 1
    cohort = twin.cohort(round)
    if clients is not None:
        cohort = Cohort(twin.federation, clients, twin.states.gather(clients), twin.run.seed)
    if not len(cohort.clients):
        raise ValueError(f"nobody answers in round {round}; allowed: a round with a client")
    (update,) = twin.engine.train(twin.recipe(round), [twin.server], [cohort], round)
    return LocalRound(twin, cohort, update)


def before_after(
    simulation: Simulation,
    *,
    algorithm: str | None = None,
    local_epochs: int | None = None,
    client_limit: int | None = None,
) -> dict[str, Any]:
    """Accuracy per class of the global model, of each client's model after its local update, and after aggregation.

    The whole cohort of the next round is trained and aggregated; `client_limit` cuts how many clients are reported.
    `mean_after` and `groups` are over the reported clients.
    """
    local = local_round(simulation, algorithm=algorithm, local_epochs=local_epochs)
    twin, members = local.simulation, local.cohort.clients[:client_limit]
    counts = twin.federation.counts(members).tolist()
    before = _evaluated(twin)
    rows = [_client(local, k, counts[k], before.per_class_accuracy) for k in range(len(members))]
    round = twin.round
    twin.absorb(local.cohort, local.update)
    after = _evaluated(twin)
    return {
        **_about(twin.run, round),
        "classes": twin.federation.dataset.num_classes,
        "class_names": list(twin.federation.dataset.class_names or []) or None,
        "before": before.per_class_accuracy,
        "aggregated": after.per_class_accuracy,
        "mean_after": [mean(column) for column in zip(*(row["after"] for row in rows), strict=True)],
        "accuracy": {
            "before": before.accuracy,
            "after": mean([row["accuracy"] for row in rows]),
            "aggregated": after.accuracy,
        },
        "groups": _over_clients(rows, before.per_class_accuracy),
        "clients": rows,
    }


def kinds(counts: Sequence[int]) -> dict[str, list[int]]:
    """A client's classes by their count n_c: majority n_c >= n / C, minority 0 < n_c < n / C, missing n_c = 0."""
    fair = sum(counts) / len(counts)
    return {
        "majority": [c for c, n in enumerate(counts) if n >= fair and n > 0],
        "minority": [c for c, n in enumerate(counts) if 0 < n < fair],
        "missing": [c for c, n in enumerate(counts) if n == 0],
    }


def mean(values: Sequence[float | None]) -> float | None:
    """Over what is known; None where nothing is."""
    known = [value for value in values if value is not None]
    return statistics.fmean(known) if known else None


def _copy(simulation: Simulation, algorithm: str | None, local_epochs: int | None) -> Simulation:
    """The simulation at the same round with an engine of its own, apart from the store.

    Under another algorithm the server keeps the global model and nothing else: states of corrections and of the
    server's optimiser belong to the method that made them.
    """
    given = {"algorithm": algorithm, "local_epochs": local_epochs}
    changes = {name: value for name, value in given.items() if value is not None}
    twin = copy.copy(simulation)
    twin.folder, twin.run = None, Run(**{**simulation.run.model_dump(), **changes})
    if twin.run.algorithm != simulation.run.algorithm:
        twin.algorithm = twin.run.build_algorithm()
        twin.server = start_server(twin.recipe(twin.round + 1), twin.server.params, twin.server.buffers)
        twin.states = ClientStates(twin.algorithm.correction.init(twin.server.params))
    run = twin.run
    # An engine may keep a compiled step, which belongs to one algorithm.
    settings = Settings(run.local_epochs, run.batch_size, run.precision, AUGMENTS[run.augment])
    twin.engine = ENGINES[twin.engine_name](settings)
    return twin


def _evaluated(simulation: Simulation) -> Evaluation:
    measured = simulation.evaluate(now=True)
    assert measured is not None
    return measured


def _about(run: Run, round: int) -> dict[str, Any]:
    """Which model was looked at, and what its clients did."""
    return {
        "title": run.title,
        "dataset": run.short["dataset"],
        "algorithm": run.short_algorithm,
        "local_epochs": run.local_epochs,
        "seed": run.seed,
        "round": round,
    }


def _client(local: LocalRound, k: int, counts: list[int], before: list[float | None]) -> dict[str, Any]:
    measured = local.evaluate(k)
    after = measured.per_class_accuracy
    return {
        "client": int(local.cohort.clients[k]),
        "counts": counts,
        "accuracy": measured.accuracy,
        "after": after,
        "groups": {
            kind: {
                "classes": members,
                "before": mean([before[c] for c in members]),
                "after": mean([after[c] for c in members]),
            }
            for kind, members in kinds(counts).items()
        },
    }


def _over_clients(rows: Sequence[dict[str, Any]], before: list[float | None]) -> dict[str, Any]:
    """Mean accuracies of each kind over all pairs of a client and a class of that kind."""
    groups = {}
    for kind in KINDS:
        pairs = [(row, c) for row in rows for c in row["groups"][kind]["classes"]]
        groups[kind] = {
            "pairs": len(pairs),
            "before": mean([before[c] for _, c in pairs]),
            "after": mean([row["after"][c] for row, c in pairs]),
        }
    return groups

"""A stored or running simulation as a probe sees a round: its next local updates, made on a copy of it."""

import copy
from collections.abc import Iterator

import torch

from fedskew.core.client_states import ClientStates
from fedskew.core.federation import Cohort, Ints
from fedskew.core.round import Server, server_update
from fedskew.runs.checkpoint import load_checkpoint
from fedskew.runs.export import check_usable
from fedskew.runs.origin import check_files, check_origin
from fedskew.runs.run import Run
from fedskew.runs.store import Folder, StoreError
from fedskew.runs.verdict import BASELINE
from fedskew.simulation.records import Observation
from fedskew.simulation.session import FEDERATED
from fedskew.simulation.simulation import Simulation

_MOST_ROUNDS = 1000
_TOGETHER = 50
"""So many clients train alone at the same time: each needs memory for a model of its own and for what changes it."""


def from_folder(folder: Folder, device: str | None = None, data_dir: str | None = None) -> Simulation:
    """The simulation at its last checkpoint, on its own or another device.

    Unlike `attach`, nothing is written to the folder.
    """
    if not folder.checkpoint.exists():
        raise StoreError(f"run {folder.path.name} has no checkpoint yet; let it run first")
    given = {"device": device, "data_dir": data_dir}
    run = Run.stored(folder, **{name: value for name, value in given.items() if value})
    check_files(folder, run)
    simulation = Simulation(run)
    check_origin(folder, simulation.run, simulation.federation.dataset)
    if simulation.states.any and any(session.get("engine") == FEDERATED for session in folder.sessions()):
        raise StoreError(
            f"run {folder.path.name} belongs to a federation: client states are on the nodes, and "
            f"{simulation.run.short_algorithm} needs them; allowed: methods without client states, such as fedlc"
        )
    checkpoint = load_checkpoint(folder.checkpoint, simulation.device, simulation.server, diverged=folder.diverged())
    check_usable(folder, run, checkpoint)
    simulation.round, simulation.server = checkpoint.round, checkpoint.server
    simulation.states.put(checkpoint.clients.numpy(), checkpoint.states)
    return simulation


def observe(
    simulation: Simulation,
    *,
    algorithm: str | None = None,
    local_epochs: int | None = None,
    clients: Ints | None = None,
) -> Observation:
    """The next round's cohort, or given clients, trained and aggregated under the run's or another algorithm.

    If no client answers in the next round, the first later round in which one does is used: the model does not change
    until then. The simulation itself does not change: this works on a copy.
    """
    if simulation.ranks.size > 1:
        raise ValueError("observing a round needs all its clients; with several ranks none has them all")
    twin = _copy(simulation, algorithm, local_epochs)
    round = twin.round + 1
    if clients is None:
        round, cohort = _answered(twin, round)
    elif not len(clients):
        raise ValueError("clients is empty; allowed: one client or more")
    else:
        cohort = Cohort(twin.federation, clients, twin.states.gather(clients), twin.run.seed)
    before = twin.plan.sent(twin.server, round)
    (update,) = twin.engine.train(twin.recipe(round), [before], [cohort], round)
    twin.absorb(cohort, update)
    return Observation(round, twin.run, twin.model, cohort, before, update, twin.server)


def train_alone(simulation: Simulation, clients: Ints) -> Iterator[Server]:
    """The models of clients that never met: each is a federation of one under FedAvg, from the initial model, for as
    many rounds as the simulation has had."""
    twin = _copy(simulation, BASELINE, None)
    cohorts = [Cohort(twin.federation, clients[k : k + 1], {}, twin.run.seed) for k in range(len(clients))]
    for first in range(0, len(cohorts), _TOGETHER):
        group = cohorts[first : first + _TOGETHER]
        servers = [twin.plan.start(twin.device)] * len(group)
        for round in range(1, simulation.round + 1):
            updates = twin.engine.train(twin.recipe(round), servers, group, round)
            both = zip(servers, updates, strict=True)
            servers = [server_update(twin.algorithm, server, update, torch.ones(1)) for server, update in both]
        yield from servers


def _answered(simulation: Simulation, first: int) -> tuple[int, Cohort]:
    """The first round, starting at `first`, in which a client answers, and which clients do."""
    for round in range(first, first + _MOST_ROUNDS):
        cohort = simulation.cohort(round)
        if len(cohort.clients):
            return round, cohort
    raise ValueError(
        f"no client answers in rounds {first} to {first + _MOST_ROUNDS - 1}; allowed: a lower dropout_rate"
    )


def _copy(simulation: Simulation, algorithm: str | None, local_epochs: int | None) -> Simulation:
    """The simulation at the same round with its own engine and without a store.

    Under another algorithm the server keeps the global model and nothing else: states of corrections and of the
    server's optimiser belong to the method that made them.
    """
    given = {"algorithm": algorithm, "local_epochs": local_epochs}
    changes = {name: value for name, value in given.items() if value is not None}
    twin = copy.copy(simulation)
    twin.folder, twin.run = None, simulation.run.replace(**changes)
    twin.plan = simulation.plan.with_run(twin.run)
    if twin.run.algorithm != simulation.run.algorithm:
        twin.server = twin.plan.start_from(twin.server.params, twin.server.buffers)
        twin.states = ClientStates(twin.plan.client_state(twin.server.params))
    twin.start_engine()
    return twin

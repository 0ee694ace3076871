"""A stored or running simulation as a probe sees a round: its next local updates, made on a copy of it."""

import copy

from fedskew.core import tree
from fedskew.core.client_states import ClientStates
from fedskew.core.federation import Cohort, Ints
from fedskew.core.round import received, start_server
from fedskew.engine import ENGINES
from fedskew.runs.checkpoint import load_checkpoint
from fedskew.runs.origin import check_files, check_origin
from fedskew.runs.run import Run
from fedskew.runs.store import Folder, StoreError
from fedskew.simulation.records import Observation
from fedskew.simulation.session import FEDERATED
from fedskew.simulation.simulation import Simulation

_MOST_ROUNDS = 1000


def from_folder(folder: Folder, device: str | None = None, data_dir: str | None = None) -> Simulation:
    """The simulation as its last checkpoint left it, on its own or another device.

    Unlike `attach`, nothing is written to the folder.
    """
    if not folder.checkpoint.exists():
        raise StoreError(f"run {folder.path.name} has no checkpoint yet; let it run first")
    stored = folder.run()
    changes = {"device": device or stored["device"], "data_dir": data_dir or stored["data_dir"]}
    run = Run.stored(folder, **changes)
    check_files(folder, run)
    simulation = Simulation(run)
    check_origin(folder, simulation.run, simulation.federation.dataset)
    if simulation.states.any and any(session.get("engine") == FEDERATED for session in folder.sessions()):
        raise StoreError(
            f"run {folder.path.name} is a federation's: client states are on the nodes, and "
            f"{simulation.run.short_algorithm} trains no round without them; allowed: methods without, such as fedlc"
        )
    checkpoint = load_checkpoint(folder.checkpoint, simulation.device, simulation.server, diverged=folder.diverged())
    if not tree.finite(checkpoint.server.params):
        raise StoreError(f"run {folder.path.name} has diverged: its model is no longer finite and cannot be measured")
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

    Where nobody answers in the next round, the next one in which somebody does: the model waits unchanged till then.

    The simulation stays where it is: what happens here happens to a copy.
    """
    if simulation.ranks.size > 1:
        raise ValueError("a round is observed with all its clients; of several ranks none has them all")
    twin = _copy(simulation, algorithm, local_epochs)
    round, before = twin.round + 1, received(twin.algorithm, twin.server)
    if clients is None:
        round, cohort = _answered(twin, round)
    elif not len(clients):
        raise ValueError("clients is empty; allowed: one client or more")
    else:
        cohort = Cohort(twin.federation, clients, twin.states.gather(clients), twin.run.seed)
    (update,) = twin.engine.train(twin.recipe(round), [before], [cohort], round)
    twin.absorb(cohort, update)
    return Observation(round, twin.run, twin.model, cohort, before, update, twin.server)


def _answered(simulation: Simulation, first: int) -> tuple[int, Cohort]:
    """The first round from `first` on in which somebody answers, and who does."""
    for round in range(first, first + _MOST_ROUNDS):
        cohort = simulation.cohort(round)
        if len(cohort.clients):
            return round, cohort
    raise ValueError(f"nobody answers in rounds {first} to {first + _MOST_ROUNDS - 1}; allowed: a lower dropout_rate")


def _copy(simulation: Simulation, algorithm: str | None, local_epochs: int | None) -> Simulation:
    """The simulation at the same round with an engine of its own, apart from the store.

    Under another algorithm the server keeps the global model and nothing else: states of corrections and of the
    server's optimiser belong to the method that made them.
    """
    given = {"algorithm": algorithm, "local_epochs": local_epochs}
    changes = {name: value for name, value in given.items() if value is not None}
    twin = copy.copy(simulation)
    twin.folder, twin.run = None, Run(**{**simulation.run.model_dump(), **changes})
    twin.plan = simulation.plan.with_run(twin.run)
    if twin.run.algorithm != simulation.run.algorithm:
        twin.server = start_server(twin.recipe(twin.round + 1), twin.server.params, twin.server.buffers)
        twin.states = ClientStates(twin.algorithm.correction.client_state(twin.server.params))
    # An engine may keep a compiled step, which belongs to one algorithm.
    twin.engine = ENGINES[twin.engine_name](twin.settings)
    return twin

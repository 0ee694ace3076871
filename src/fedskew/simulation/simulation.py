"""One run in memory, and a round of it."""

import os
import platform
import time
from collections.abc import Sequence
from dataclasses import asdict, replace
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor

import fedskew
from fedskew.algorithms import Algorithm
from fedskew.core import spec, tree
from fedskew.core.client_states import ClientStates
from fedskew.core.evaluation import Evaluation, evaluate_model, predict
from fedskew.core.federation import Cohort, Ints, weights_of
from fedskew.core.memory import Need, check_room, clients_seen, free_memory, stacked_bytes, update_bytes
from fedskew.core.own import drawing
from fedskew.core.reading import Reading, read_out
from fedskew.core.round import Recipe, Server, Sums, Update, answered, conclude, summed
from fedskew.core.settings import Settings, dtype_of
from fedskew.core.tree import Params
from fedskew.data import resolve_dataset
from fedskew.engine import ENGINES, Engine, check_parts, check_server_parts, choose_engine
from fedskew.engine.distributed import join_ranks
from fedskew.models import Model
from fedskew.runs.checkpoint import load_checkpoint, save_checkpoint
from fedskew.runs.origin import origin
from fedskew.runs.run import Run
from fedskew.runs.store import Folder
from fedskew.runs.summary import LAST
from fedskew.simulation.plan import Plan, build_federation, describe_partition, sampled_clients, usable_device
from fedskew.simulation.records import Observation, Probe, RoundRecord

_CHECKPOINT_SECONDS = 5.0
_CHECKPOINT_SHARE = 20


class Simulation:
    """One run in memory, between two rounds."""

    def __init__(self, run: Run) -> None:
        self.run = run
        self.folder: Folder | None = None
        self.device = usable_device(run.device)
        self.ranks = join_ranks(self.device)
        self.dtype = dtype_of(run.precision)
        self.federation = build_federation(run)
        data = self.federation.dataset
        self.plan = Plan.of(run, data)
        self.shared = self._shared()  # before a pass, of which modules may note tensors
        if self.ranks.size > 1 and not self.algorithm.aggregate.linear:
            raise ValueError(f"{run.short_algorithm} needs all clients of a round in one process; allowed: 1 rank")
        self.server = self.plan.start(self.device)
        self.plan.check_model(self.server, data)
        self.round, self.ended, self.earlier = 0, False, list[RoundRecord]()
        self.states = ClientStates(self.plan.client_state(self.server.params))
        self.start_engine()
        self._pending: tuple[Ints, Params] | None = None
        self._owned: Ints | None = None
        self._saved, self._saved_at, self._save_cost = 0, time.monotonic(), 0.0
        self._complete: tuple[int, Server] | None = self.round, self.server
        also = ", a smaller batch size or engine=serial" if self.engine_name == "stacked" else ""
        epochs = " or local epochs" if run.local_epochs > 1 else ""
        remedy = f"fewer clients per round{epochs}{also} would need less"
        check_room("this run", self.need().of(1), free_memory(self.device), self.device, remedy)

    def start_engine(self) -> None:
        """A new engine that can run the method."""
        run, recipe, data = self.run, self.recipe(self.round + 1), self.federation.dataset
        check_parts(recipe, self.server, self.federation)
        check_server_parts(recipe, self.server)
        self.engine_name, self.engine_reason = choose_engine(run.engine, recipe, self.server, data, run.precision)
        self.engine: Engine = ENGINES[self.engine_name](self.settings)

    def need(self) -> Need:
        """What this run needs at least, beyond what is loaded."""
        run, data, server = self.run, self.federation.dataset, self.server
        model = tree.nbytes([server.params, server.buffers])
        correction = tree.nbytes([self.plan.client_state(server.params)])
        each, answering = update_bytes(model, correction), run.clients_per_round * (1 - run.dropout_rate)
        if self.engine_name == "stacked" and self.device.type == "cpu":  # on a GPU it can go on in groups of clients
            optimizer = tree.nbytes([self.recipe(1).optimizer.init(server.params)])
            longest = min(run.batch_size, int(np.diff(self.federation.offsets).max()))
            batch = longest * data.x_train[0].numel() * self.dtype.itemsize
            each = stacked_bytes(model, correction, optimizer, batch)
        held = np.sort(np.diff(self.federation.offsets))[-round(answering) or -1 :]  # the most that a round can use
        together = int(held[-1] if self.engine_name == "serial" else held.sum())
        order = 8 * run.local_epochs * together  # the order of examples is known before a round begins
        seen = clients_seen(run.clients, answering, run.rounds)
        own = "seed" in spec.parameters(resolve_dataset(run.dataset).factory)
        ranks, read = self.ranks.size, len(self.federation.order) * self._features() * self.dtype.itemsize
        return Need(
            (int(answering * each) + order) // ranks + read, seen * correction // ranks, data.nbytes if own else 0
        )

    def _features(self) -> int:
        """How many numbers of an example a readout keeps. A model that it cannot fit is refused."""
        rows = next(iter(self.plan.fitted(self.server, self.federation.dataset).values()), None)
        return 0 if rows is None else rows.shape[1]

    def attach(self, folder: Folder | None) -> None:
        """Continue from a folder, and store new rounds there. With several ranks only rank 0 has one."""
        self.folder = folder
        with self.ranks.shared_copy(None if folder is None else folder.checkpoint) as path:
            if path is not None:
                checkpoint = self.ranks.all_can(partial(load_checkpoint, path, self.device, self.server))
                self.round = self._saved = checkpoint.round
                self.server = checkpoint.server
                clients, states = checkpoint.clients.numpy(), checkpoint.states
                if self.ranks.size > 1:
                    mine = np.flatnonzero(np.isin(clients, self.my_clients(self.everyone)))
                    clients, states = clients[mine], tree.rows(states, torch.from_numpy(mine).to(self.device))
                self.states.put(clients, states)
        self._complete = self.round, self.server
        kept = self.ranks.broadcast([] if folder is None else folder.keep_records(self.round))
        self.earlier = [RoundRecord.stored(record) for record in kept]
        if folder is None:
            return
        if folder.card() is None:
            card = describe_partition(self.run, self.federation)
            folder.write_card({**card, "data": self.federation.dataset.digest})
        here = fingerprint(self)
        before = folder.sessions()
        changed = {k: [before[-1].get(k), v] for k, v in here.items() if before[-1].get(k) != v} if before else {}
        session = {"from_round": self.round, **here, "engine_reason": self.engine_reason, "changed": changed}
        folder.append_session({**session, **origin(self.run, self.federation.dataset)})

    def _shared(self) -> tuple[Any, ...]:
        """What seeds that train together must have in common: how examples are normalised, and what stays in the module
        of the first, frozen parameters and tensors that are neither parameters nor buffers."""
        data, module = self.federation.dataset, self.model.module
        kept: Params = {name: module.get_parameter(name) for name in self.model.frozen}
        for part, owner in module.named_modules():
            kept |= {f"{part} {name}": value for name, value in vars(owner).items() if isinstance(value, Tensor)}
        return data.mean, data.std, tree.digest(kept)

    @property
    def model(self) -> Model:
        return self.plan.model

    @property
    def algorithm(self) -> Algorithm:
        return self.plan.algorithm

    @property
    def settings(self) -> Settings:
        return self.plan.settings

    def recipe(self, round: int) -> Recipe:
        return self.plan.recipe(round)

    @property
    def everyone(self) -> Ints:
        return np.arange(self.federation.num_clients)

    def my_clients(self, clients: Ints) -> Ints:
        """The clients that this rank trains. A client with a correction state always belongs to the same rank; others
        are assigned to balance the steps of a round.
        """
        if self.ranks.size == 1:
            return clients
        if self.states.any:
            if self._owned is None:
                self._owned = self.ranks.my_part(self.settings.steps(self.federation.sizes(self.everyone)))
            return clients[np.isin(clients, self._owned)]
        return clients[self.ranks.my_part(self.settings.steps(self.federation.sizes(clients)))]

    def cohort(self, round: int) -> Cohort:
        """The clients that are sampled and answer, and those among them that this rank trains."""
        sampled = sampled_clients(self.run, round)
        mine = self.my_clients(sampled)
        return Cohort(self.federation, mine, self.states.gather(mine), self.run.seed, sampled)

    def absorb(self, cohort: Cohort, update: Update | None) -> Sums | None:
        """Aggregate a cohort's updates (None if it has no client here) into the global model; None if it has no client
        at all."""
        self.round += 1
        whole = cohort.whole
        if not len(whole):
            return None
        recipe = self.recipe(self.round)
        weights = cohort.weights(self.run.weighting)
        with drawing(recipe, self.run.seed, "server", self.round):
            if update is None:
                sums = self.plan.idle(self.server)
            else:
                travel = recipe.travel(torch.from_numpy(self.settings.steps(self.federation.sizes(whole))))
                here = torch.from_numpy(np.isin(whole, cohort.clients)) if self.ranks.size > 1 else None
                sums = summed(self.algorithm, update, weights, travel, here)
                self._pending = cohort.clients, update.client
            sums = self.ranks.add(sums)
            everyone = weights_of(self.federation.sizes(self.everyone), self.run.weighting)
            self.server = conclude(self.algorithm, self.server, sums, answered(self.algorithm, weights, everyone))
        return sums

    def evaluate(self, *, now: bool) -> Evaluation | None:
        """Measures of the global model in rounds in which they are due, made by rank 0."""
        if not (now or is_evaluated(self.run, self.round)):
            return None
        server, data = self.server, self.federation.dataset
        here = None if self.ranks.rank else evaluate_model(self.model, server.used, server.buffers, data)
        return Evaluation(**self.ranks.broadcast(here and asdict(here)))

    def read_out(self) -> int:
        """Let the method's readout replace what users of the model take, in rounds in which it is measured. Rank 0 does
        it. The result is how many gradients it asked for.
        """
        if not is_evaluated(self.run, self.round):
            return 0
        reading, server = Reading({}), self.server
        if not self.ranks.rank:
            with drawing(self.recipe(self.round), self.run.seed, "readout", self.round):
                reading = read_out(self.algorithm.readout, self.model, server.params, server.buffers, self.federation)
            self.server = replace(server, readout=reading.layer)
        return int(self.ranks.broadcast(reading.asked))

    def validate(self) -> float | None:
        """Accuracy on the held-out examples, if there are any; rank 0 measures it."""
        held_out, data, server = self.federation.held_out, self.federation.dataset, self.server
        if self.ranks.rank or not len(held_out):
            return None
        there = torch.from_numpy(held_out).to(self.device)
        x, y = data.x_train[there], data.y_train[there]
        logits = predict(self.model, server.used, server.buffers, data, x)
        return (logits.argmax(-1) == y).double().mean().item()

    @property
    def due(self) -> bool:
        """Whether it is time for a checkpoint."""
        waited = time.monotonic() - self._saved_at
        return waited > max(_CHECKPOINT_SECONDS, _CHECKPOINT_SHARE * self._save_cost)

    def record(self, record: RoundRecord, *, due: bool) -> None:
        """Complete a round: write its record, remember its clients, and write a checkpoint if that is due."""
        self.ended = record.diverged or self.round >= self.run.rounds
        if self.folder is not None:
            self.folder.append_record(record.as_dict())
        self._complete = None
        if self._pending is not None:
            self.states.put(*self._pending)
        self._pending, self._complete = None, (self.round, self.server)
        due = due or self.ended
        if not self._scattered:
            if due:
                self.close()
        elif self.ranks.broadcast(due and self.folder is not None):
            began = time.monotonic()
            self._save(*self.ranks.collected(*self.states.dump()), began)

    @property
    def _scattered(self) -> bool:
        """Whether the content of a checkpoint is spread over several ranks."""
        return self.ranks.size > 1 and self.states.any

    def close(self) -> None:
        """Write a checkpoint of the last complete round, even after an interruption in the middle of the next one."""
        if self.folder is not None and not self._scattered:
            self._save(*self.states.dump(), time.monotonic())

    def _save(self, clients: Tensor, states: Params, began: float) -> None:
        if self.folder is None or self._complete is None or self._complete[0] == self._saved:
            return
        save_checkpoint(self.folder, *self._complete, clients, states)
        self._saved, self._saved_at = self._complete[0], time.monotonic()
        self._save_cost = self._saved_at - began


def advance(simulations: Sequence[Simulation], probes: Sequence[Probe] = ()) -> list[RoundRecord]:
    """One round of simulations that are at the same round and differ only in their seed."""
    began = time.perf_counter()
    first, round = simulations[0], simulations[0].round + 1
    cohorts = [simulation.cohort(round) for simulation in simulations]
    before = [simulation.plan.sent(simulation.server, round) for simulation in simulations]
    some = [i for i, cohort in enumerate(cohorts) if len(cohort.clients)]
    servers, answering = [before[i] for i in some], [cohorts[i] for i in some]
    trained = first.engine.train(first.recipe(round), servers, answering, round) if some else []
    made = dict(zip(some, trained, strict=True))
    updates = [made.get(i) for i in range(len(cohorts))]
    sums = [s.absorb(cohort, update) for s, cohort, update in zip(simulations, cohorts, updates, strict=True)]
    finite = [simulation.plan.finite(simulation.server) for simulation in simulations]  # waits for the device
    seconds = (time.perf_counter() - began) / len(simulations)
    due = any(simulation.due for simulation in simulations)  # one that went on alone would be rounded differently
    records = []
    for i, simulation in enumerate(simulations):
        began = time.perf_counter()
        asked = simulation.read_out() if finite[i] else 0  # before measures and probes of the model as it is used
        spent, after = seconds + time.perf_counter() - began, simulation.server
        seen = Observation(round, simulation.run, simulation.model, cohorts[i], before[i], updates[i], after)
        looked = {name: value for probe in probes for name, value in probe(seen).items()}
        own = {"seconds": spent, "asked": asked, "probes": looked}
        records.append(_record(simulation, cohorts[i], sums[i], diverged=not finite[i], **own))
        simulation.record(records[-1], due=due)
    return records


def _record(simulation: Simulation, cohort: Cohort, sums: Sums | None, *, diverged: bool, **own: Any) -> RoundRecord:
    """The record of a round; `own` are its fields that only `advance` knows."""
    measured = simulation.evaluate(now=diverged)
    return RoundRecord.of(
        measured,
        round=simulation.round,
        train_loss=None if sums is None else float(sums.loss),
        clients=len(cohort.whole),
        engine=simulation.engine_name,
        device=str(simulation.device),
        diverged=diverged,
        validation_accuracy=simulation.ranks.broadcast(simulation.validate()) if measured else None,
        server=simulation.server,
        **own,
    )


def is_evaluated(run: Run, round: int) -> bool:
    """Whether a round's model is to be measured; the last ones always are, for their mean."""
    return round % run.eval_every == 0 or round > run.rounds - LAST


def fingerprint(simulation: Simulation) -> dict[str, Any]:
    """What decides the last bits of a result besides the run."""
    cuda = simulation.device.type == "cuda"
    return {
        "fedskew": fedskew.__version__,
        "torch": torch.__version__,
        "numpy": np.__version__,
        "python": platform.python_version(),
        "machine": platform.machine(),
        "cpus": os.cpu_count(),
        "threads": torch.get_num_threads(),
        "engine": simulation.engine_name,
        "ranks": simulation.ranks.size,
        "device": torch.cuda.get_device_name(simulation.device) if cuda else str(simulation.device),
    }

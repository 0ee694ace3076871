"""Runs, a round at a time: `for record in simulate(run): ...`. A caller stops by not asking for more."""

import os
import platform
import time
import warnings
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, suppress
from dataclasses import asdict, dataclass, field, fields
from functools import partial
from math import isfinite
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

import fedskew
from fedskew import partition, rng, spec, tree
from fedskew.client_states import ClientStates
from fedskew.data import load_dataset, resolve_dataset
from fedskew.engine import ENGINES, Engine, choose_engine
from fedskew.engine.distributed import meet, place
from fedskew.evaluate import Evaluation, evaluate_model, predict
from fedskew.experiments.checkpoint import load_checkpoint, save_checkpoint
from fedskew.experiments.origin import check_answer, check_origin, origin
from fedskew.experiments.run import Run
from fedskew.experiments.store import Folder, Store, StoreError
from fedskew.experiments.versions import result_version
from fedskew.federation import Cohort, Federation, Ints, weights_of
from fedskew.memory import Need, check_room, clients_seen, free_memory, seeds_together, stacked_bytes, update_bytes
from fedskew.models import Model, build_model
from fedskew.ranks import expected
from fedskew.report.summary import LAST, is_finished
from fedskew.round import (
    Recipe,
    Server,
    Sums,
    Update,
    add_up,
    answered,
    conclude,
    received,
    scales,
    start_server,
    zero_sums,
)
from fedskew.sampling import sampled_clients
from fedskew.settings import Settings, dtype_of
from fedskew.tree import Params

FEDERATED = "flower"
"""The engine that sessions of a real federation name."""
_CHECKPOINT_SECONDS = 5.0
_CHECKPOINT_SHARE = 20


@dataclass(frozen=True)
class RoundRecord:
    """What a round left. Measures are None in rounds that are not evaluated.

    `server` is the global model after the round, for whoever wants to look; it is not stored here.
    """

    round: int
    accuracy: float | None
    balanced_accuracy: float | None
    loss: float | None
    per_class_accuracy: list[float | None] | None
    client_accuracy: float | None
    train_loss: float | None
    clients: int
    seconds: float
    engine: str
    device: str
    diverged: bool = False
    validation_accuracy: float | None = None
    probes: dict[str, Any] = field(default_factory=dict)
    server: Server | None = field(default=None, repr=False, compare=False)

    @classmethod
    def of(cls, measured: Evaluation | None, **rest: Any) -> "RoundRecord":
        """With the measures of a round, or without any."""
        values = asdict(measured) if measured else dict.fromkeys((f.name for f in fields(Evaluation)), None)
        return cls(**values, **rest)

    @classmethod
    def stored(cls, record: dict[str, Any]) -> "RoundRecord":
        """Of a line of the store; fields that only a later version knows are left out."""
        return cls(**{f.name: record[f.name] for f in fields(cls) if f.name in record})

    def as_dict(self) -> dict[str, Any]:
        """JSON-ready; no number is NaN or infinite."""
        kept = {f.name: getattr(self, f.name) for f in fields(self) if f.name != "server"}
        return {name: _finite(value) for name, value in kept.items()}


@dataclass(frozen=True)
class Observation:
    """What a probe may look at after a round. Looking changes nothing."""

    round: int
    run: Run
    model: Model
    cohort: Cohort
    before: Server
    update: Update | None
    after: Server


Probe = Callable[[Observation], dict[str, Any]]


def simulate(
    run: Run, probes: Sequence[Probe] = (), *, every: int = 1, store: Store | Path | str | None = None
) -> Iterator[RoundRecord]:
    """Records of one run, round after round. With a store, or its folder, what is there already is read, not computed
    again."""
    for _, record in simulate_many([run], probes, every=every, store=store):
        yield record


def simulate_many(
    runs: Sequence[Run], probes: Sequence[Probe] = (), *, every: int = 1, store: Store | Path | str | None = None
) -> Iterator[tuple[int, RoundRecord]]:
    """Several seeds of one run together, as an engine can do them; yields the run's position with each record.

    Where memory does not suffice for all of them, the first ones are simulated to their end before the others begin.
    """
    if probes and expected() > 1:
        raise ValueError("probes look at all clients of a round; of several ranks none has them all")
    if every < 1:
        raise ValueError(f"every is {every}; allowed: 1 or more")
    if wrong := [run for run in runs if not isinstance(run, Run)]:
        raise TypeError(f"{wrong[0]!r} is no run; write Run(dataset=..., algorithm=..., rounds=...)")
    store = Store(store) if isinstance(store, str | Path) else store
    if len({run.model_copy(update={"seed": 0}) for run in runs}) > 1:
        raise ValueError("runs that are simulated together may differ in their seed only")
    waiting = deque(enumerate(runs))
    while waiting:
        yield from _simulate_group(waiting, probes, every, store)


def _simulate_group(
    waiting: deque[tuple[int, Run]], probes: Sequence[Probe], every: int, store: Store | None
) -> Iterator[tuple[int, RoundRecord]]:
    """As many of the waiting runs as fit into memory together, from the first one on."""
    with ExitStack() as stack:
        started = list[tuple[int, Simulation]]()
        again, most = dict[int, tuple[Folder, list[RoundRecord]]](), len(waiting)
        while waiting and len(started) < most:
            position, run = waiting.popleft()
            ranks = meet(usable_device(run.device))
            ranks.check_same(int(run.hash[:15], 16) ^ run.rounds, "runs")
            folder = None if store is None or ranks.rank else store.folder(run.hash)
            simulation = None
            if ranks.told(folder is not None and not folder.exists()):
                simulation = ranks.all_can(partial(Simulation, run))  # a wrong request fails before anything is written
            done = ranks.all_can(partial(_opened, run, folder, stack))
            if folder is not None and not done and min(len(folder.records()), folder.saved()) >= run.rounds:
                again[position], folder = (folder, []), None  # longer, but not evaluated where this run ends
            if done := [RoundRecord.stored(record) for record in ranks.told([record.as_dict() for record in done])]:
                yield from ((position, record) for record in done)
                continue
            simulation = simulation or ranks.all_can(partial(Simulation, run))
            if ranks.size > 1:
                ranks.check_same(simulation.federation.digest, "data or splits of them")
            earlier = again[position][0] if position in again else folder
            ranks.all_can(partial(check_origin, earlier, run, simulation.federation.dataset))
            if not started:
                most = ranks.told(_fitting(simulation, 1 + len(waiting)))
            if earlier is not None:
                note_run(run, earlier)
            simulation.attach(folder)
            stack.callback(simulation.close)
            started.append((position, simulation))
            yield from ((position, record) for record in simulation.earlier)
        while started:
            due = min(simulation.round for _, simulation in started)
            ready = [(position, s) for position, s in started if s.round == due]
            group = [member for member in ready if member[1].normalisation == ready[0][1].normalisation]
            try:
                records = advance([s for _, s in group], probes if (due + 1) % every == 0 else ())
            except Exception:
                for begun in (s.folder for _, s in started if s.folder is not None):
                    begun.drop_empty()
                raise
            for (position, _), record in zip(group, records, strict=True):
                if position in again:
                    again[position][1].append(record)
            yield from ((position, record) for (position, _), record in zip(group, records, strict=True))
            for member in [member for member in group if member[1].ended]:
                member[1].close()
                started.remove(member)
        for folder, records in again.values():
            folder.fill_records([record.as_dict() for record in records])


def _opened(run: Run, folder: Folder | None, stack: ExitStack) -> list[RoundRecord]:
    """The records of a run that needs no more work. For one that does its folder is locked, so that what is read stays
    so; what is finished stays so by itself, and can be read where nothing can be written."""
    if folder is None:
        return []
    if folder.exists():
        lengths = folder.lengths()  # readable, and of this version
        if any(session.get("engine") == FEDERATED for session in folder.sessions()):
            raise StoreError(f"run {run.hash} in this store is a federation's; simulate it in another store")
        if done := finished_records(run, folder):
            if run.rounds not in lengths:
                with suppress(StoreError), folder.lock():
                    note_run(run, folder)
            return done
    else:
        note_run(run, folder)
    stack.enter_context(folder.lock())
    return finished_records(run, folder)  # another process may have done it meanwhile


def note_run(run: Run, folder: Folder) -> None:
    """Begin the run's folder, or note how it is asked for now."""
    folder.create(run.hash, run.model_dump(), {**run.short, "title": run.title}, result_version(run.algorithm))


def _fitting(first: "Simulation", seeds: int) -> int:
    """How many seeds may be simulated together, the first of them included."""
    most = seeds_together(first.need(), free_memory(first.device), seeds)
    if most < seeds:
        warnings.warn(f"memory does not suffice for all seeds together; {most} at a time", stacklevel=2)
    return most


def is_evaluated(run: Run, round: int) -> bool:
    """Whether a round's model is to be measured; the last ones always are, for their mean."""
    return round % run.eval_every == 0 or round > run.rounds - LAST


def finished_records(run: Run, folder: Folder) -> list[RoundRecord]:
    """The records of a run that needs no more work, else nothing."""
    records = folder.records()
    if not is_finished(records, run.rounds, folder.saved()):
        return []
    check_answer(folder, run)
    return [RoundRecord.stored(record) for record in records[: run.rounds]]


class Simulation:
    """One run in memory, between two rounds."""

    def __init__(self, run: Run) -> None:
        self.run = run
        self.folder: Folder | None = None
        self.device = usable_device(run.device)
        self.ranks = meet(self.device)
        self.dtype = dtype_of(run.precision)
        self.federation = build_federation(run)
        data = self.federation.dataset
        self.model = build_model(run.model, data.input_shape, data.num_classes, run.seed)
        self.algorithm = run.build_algorithm()
        if self.ranks.size > 1 and not self.algorithm.aggregate.linear:
            raise ValueError(f"{run.short_algorithm} needs all clients of a round in one process; allowed: 1 rank")
        self.settings = Settings.of(run, data.input_shape)
        self.server = start_server(self.recipe(1), *self.model.init(self.dtype, self.device))
        self._check_model()
        self.engine_name, self.engine_reason = choose_engine(run.engine, self.recipe(1), self.server, data)
        self.engine: Engine = ENGINES[self.engine_name](self.settings)
        self.states = ClientStates(self.algorithm.correction.client_state(self.server.params))
        self.round, self.ended, self.earlier = 0, False, list[RoundRecord]()
        self._pending: tuple[Ints, Params] | None = None
        self._owned: Ints | None = None
        self._saved, self._saved_at, self._save_cost = 0, time.monotonic(), 0.0
        self._complete: tuple[int, Server] | None = self.round, self.server
        also = ", a smaller batch size or engine=serial" if self.engine_name == "stacked" else ""
        epochs = " or local epochs" if run.local_epochs > 1 else ""
        remedy = f"fewer clients per round{epochs}{also} would need less"
        check_room("this run", self.need().of(1), free_memory(self.device), self.device, remedy)

    def need(self) -> Need:
        """What this run needs at least, beyond what is loaded."""
        run, data, server = self.run, self.federation.dataset, self.server
        model = tree.nbytes([server.params, server.buffers])
        correction = tree.nbytes([self.algorithm.correction.client_state(server.params)])
        each, answering = update_bytes(model, correction), run.clients_per_round * (1 - run.dropout_rate)
        if self.engine_name == "stacked":
            optimizer = tree.nbytes([self.recipe(1).optimizer.init(server.params)])
            longest = min(run.batch_size, int(np.diff(self.federation.offsets).max()))
            batch = longest * data.x_train[0].numel() * self.dtype.itemsize
            each = stacked_bytes(model, correction, optimizer, batch)
        held = np.sort(np.diff(self.federation.offsets))[-round(answering) or -1 :]  # the most that a round can use
        together = int(held[-1] if self.engine_name == "serial" else held.sum())
        order = 8 * run.local_epochs * together  # which example is used when is known before a round begins
        seen = clients_seen(run.clients, answering, run.rounds)
        own = "seed" in spec.parameters(resolve_dataset(run.dataset).factory)
        ranks = self.ranks.size
        return Need((int(answering * each) + order) // ranks, seen * correction // ranks, data.nbytes if own else 0)

    def _check_model(self) -> None:
        """One look at what the model answers, so that a model that does not fit its data is a clear error."""
        data, server = self.federation.dataset, self.server
        try:
            logits = predict(self.model, server.params, server.buffers, data, data.x_test[:2], self.dtype)
        except Exception as error:
            raise ValueError(
                f"{self.run.model} cannot take inputs of shape {list(data.input_shape)}: {error}"
            ) from error
        if logits.shape[1:] != (data.num_classes,):
            shape, wanted = list(logits.shape[1:]), [data.num_classes]
            raise ValueError(
                f"{self.run.model} answers with shape {shape} per example; allowed: {wanted}, one per class"
            )

    def attach(self, folder: Folder | None) -> None:
        """Go on from what a folder holds, and keep there what comes. Of several ranks only the first has one."""
        self.folder = folder
        with self.ranks.handed_out(None if folder is None else folder.checkpoint) as path:
            if path is not None:
                checkpoint = self.ranks.all_can(partial(load_checkpoint, path, self.device, self.server))
                self.round = self._saved = checkpoint.round
                self.server = checkpoint.server
                clients, states = checkpoint.clients.numpy(), checkpoint.states
                if self.ranks.size > 1:
                    mine = np.flatnonzero(np.isin(clients, self.mine(self.everyone)))
                    clients, states = clients[mine], tree.rows(states, torch.from_numpy(mine).to(self.device))
                self.states.put(clients, states)
        self._complete = self.round, self.server
        kept = self.ranks.told([] if folder is None else folder.keep_records(self.round))
        self.earlier = [RoundRecord.stored(record) for record in kept]
        if folder is None:
            return
        if folder.card() is None:
            card = describe_partition(self.run, self.federation)
            folder.write_card({**card, "data": self.federation.dataset.digest})
        here = fingerprint(self)
        before = folder.sessions()
        changed = {k: [before[-1].get(k), v] for k, v in here.items() if before[-1].get(k) != v} if before else {}
        reason = self.engine_reason
        session = {"from_round": self.round, **here, "engine_reason": reason, "changed": changed}
        folder.append_session({**session, **origin(self.run, self.federation.dataset)})

    @property
    def normalisation(self) -> tuple[Any, Any]:
        """Only examples that are normalised alike can be in one batch."""
        return self.federation.dataset.mean, self.federation.dataset.std

    def recipe(self, round: int) -> Recipe:
        return Recipe(self.model, self.algorithm, self.run.client_optimizer(round), self.run.grad_clip)

    @property
    def everyone(self) -> Ints:
        return np.arange(self.federation.num_clients)

    def mine(self, clients: Ints) -> Ints:
        """Those of some clients that this rank trains.

        A client that a correction remembers is always the same rank's; others go where their steps balance the round.
        """
        if self.ranks.size == 1:
            return clients
        if self.states.any:
            if self._owned is None:
                self._owned = self.ranks.mine(self.settings.steps(self.federation.sizes(self.everyone)))
            return clients[np.isin(clients, self._owned)]
        return clients[self.ranks.mine(self.settings.steps(self.federation.sizes(clients)))]

    def cohort(self, round: int) -> Cohort:
        """The clients that are sampled and answer, and of them those that this rank trains."""
        sampled = sampled_clients(self.run, round)
        mine = self.mine(sampled)
        return Cohort(self.federation, mine, self.states.gather(mine), self.run.seed, sampled)

    def absorb(self, cohort: Cohort, update: Update | None) -> Sums | None:
        """Take a cohort's updates, None if it has no client here, into the global model; None if it has none at all."""
        self.round += 1
        whole = cohort.whole
        if not len(whole):
            return None
        recipe = self.recipe(self.round)
        weights = cohort.weights(self.run.weighting)
        if update is None:
            sums = zero_sums(recipe, self.server)
        else:
            travel = recipe.travel(torch.from_numpy(self.settings.steps(self.federation.sizes(whole))))
            parts = scales(self.algorithm, weights, travel)
            if len(cohort.clients) < len(whole):
                parts = parts[:, torch.from_numpy(np.isin(whole, cohort.clients))]
            there = parts.to(self.device, non_blocking=True)  # the clients' steps may still be running
            sums = add_up(update, there, len(whole), self.algorithm.aggregate.merge)
            self._pending = cohort.clients, update.client
        sums = self.ranks.add(sums)
        everyone = weights_of(self.federation.sizes(self.everyone), self.run.weighting)
        self.server = conclude(self.algorithm, self.server, sums, answered(self.algorithm, weights, everyone))
        return sums

    def evaluate(self, *, now: bool) -> Evaluation | None:
        """Measures of the global model in rounds in which they are due; the first rank makes them."""
        if not (now or is_evaluated(self.run, self.round)):
            return None
        return Evaluation(**self.ranks.told(None if self.ranks.rank else asdict(self._evaluation())))

    def _evaluation(self) -> Evaluation:
        return evaluate_model(self.model, self.server.params, self.server.buffers, self.federation.dataset, self.dtype)

    def validate(self) -> float | None:
        """Accuracy on the examples that are held out, if there are any; the first rank's to measure."""
        held_out, data, server = self.federation.held_out, self.federation.dataset, self.server
        if self.ranks.rank or not len(held_out):
            return None
        there = torch.from_numpy(held_out).to(self.device)
        x, y = data.x_train[there], data.y_train[there]
        logits = predict(self.model, server.params, server.buffers, data, x, self.dtype)
        return (logits.argmax(-1) == y).double().mean().item()

    def record(self, record: RoundRecord) -> None:
        """Complete a round: write its record, remember its clients, and write a checkpoint when it is time."""
        self.ended = record.diverged or self.round >= self.run.rounds
        if self.folder is not None:
            self.folder.append_record(record.as_dict())
        self._complete = None
        if self._pending is not None:
            self.states.put(*self._pending)
        self._pending, self._complete = None, (self.round, self.server)
        waited = time.monotonic() - self._saved_at
        due = self.ended or waited > max(_CHECKPOINT_SECONDS, _CHECKPOINT_SHARE * self._save_cost)
        if not self._scattered:
            if due:
                self.close()
        elif self.ranks.told(due and self.folder is not None):
            began = time.monotonic()
            self._save(*self.ranks.collected(*self.states.dump()), began)

    @property
    def _scattered(self) -> bool:
        """Whether no rank alone has all that belongs to a checkpoint."""
        return self.ranks.size > 1 and self.states.any

    def close(self) -> None:
        """Write a checkpoint of the last complete round, also after an interruption at any moment of the next one."""
        if self.folder is not None and not self._scattered:
            self._save(*self.states.dump(), time.monotonic())

    def _save(self, clients: Tensor, states: Params, began: float) -> None:
        if self.folder is None or self._complete is None or self._complete[0] == self._saved:
            return
        save_checkpoint(self.folder, *self._complete, clients, states)
        self._saved, self._saved_at = self._complete[0], time.monotonic()
        self._save_cost = self._saved_at - began


def advance(simulations: Sequence[Simulation], probes: Sequence[Probe] = ()) -> list[RoundRecord]:
    """One round of simulations that stand at the same round and differ in their seed only."""
    began = time.perf_counter()
    first, round = simulations[0], simulations[0].round + 1
    cohorts = [simulation.cohort(round) for simulation in simulations]
    before = [received(simulation.algorithm, simulation.server) for simulation in simulations]
    some = [i for i, cohort in enumerate(cohorts) if len(cohort.clients)]
    servers, answering = [before[i] for i in some], [cohorts[i] for i in some]
    trained = first.engine.train(first.recipe(round), servers, answering, round) if some else []
    updates: list[Update | None] = [None] * len(cohorts)
    for i, made in zip(some, trained, strict=True):
        updates[i] = made
    sums = [s.absorb(cohort, update) for s, cohort, update in zip(simulations, cohorts, updates, strict=True)]
    seconds = (time.perf_counter() - began) / len(simulations)
    records = []
    for i, simulation in enumerate(simulations):
        after = simulation.server
        seen = Observation(round, simulation.run, simulation.model, cohorts[i], before[i], updates[i], after)
        looked = {name: value for probe in probes for name, value in probe(seen).items()}
        records.append(_record(simulation, cohorts[i], sums[i], seconds, looked))
        simulation.record(records[-1])
    return records


def _record(
    simulation: Simulation, cohort: Cohort, sums: Sums | None, seconds: float, probes: dict[str, Any]
) -> RoundRecord:
    diverged = not tree.finite(simulation.server.params)
    measured = simulation.evaluate(now=diverged)
    return RoundRecord.of(
        measured,
        round=simulation.round,
        train_loss=None if sums is None else float(sums.loss),
        clients=len(cohort.whole),
        seconds=seconds,
        engine=simulation.engine_name,
        device=str(simulation.device),
        diverged=diverged,
        validation_accuracy=simulation.ranks.told(simulation.validate()) if measured else None,
        probes=probes,
        server=simulation.server,
    )


def build_federation(run: Run) -> Federation:
    """The run's data and who holds them, on the run's device."""
    data = load_dataset(run.dataset, run.seed, run.clients, run.data_dir, str(usable_device(run.device)))
    held_out = data.held_out(run.validation, rng.stream(run.seed, "validation")) if run.validation else None
    if run.partition == "natural":
        federation = Federation.natural(data, held_out)
        if federation.num_clients != run.clients:
            raise ValueError(f"{data.name} has {federation.num_clients} clients of its own, clients is {run.clients}")
        return federation
    split = spec.resolve(run.partition, "partition", partition.PARTITIONS).build()
    labels = data.y_train.cpu()
    if held_out is None:
        return Federation.split(data, split(labels, run.clients, rng.stream(run.seed, "partition")))
    if run.partition.startswith("replay:"):  # its indices are those of the whole data set
        parts = split(labels, run.clients, rng.stream(run.seed, "partition"))
        return Federation.split(data, [part[~torch.isin(part, torch.from_numpy(held_out))] for part in parts], held_out)
    left = torch.from_numpy(np.setdiff1d(np.arange(len(labels)), held_out))
    parts = split(labels[left], run.clients, rng.stream(run.seed, "partition"))
    return Federation.split(data, [left[part] for part in parts], held_out)


def describe_partition(run: Run, federation: Federation) -> dict[str, Any]:
    """The partition's card."""
    labels = torch.from_numpy(federation.labels)
    return partition.card(run.partition, federation.indices, labels, federation.dataset.num_classes)


def usable_device(name: str) -> torch.device:
    device = torch.device(name)
    if device.type == "cuda" and not torch.cuda.is_available():
        raise ValueError(f"device is {name!r}, but this PyTorch sees no CUDA device; allowed here: cpu")
    if device.type not in ("cpu", "cuda"):
        raise ValueError(f"device is {name!r}; allowed: cpu, cuda, cuda:1")
    return place(device)


def fingerprint(simulation: Simulation) -> dict[str, Any]:
    """What, beside the run, decides the last bits of a result."""
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


def _finite(value: Any) -> Any:
    if isinstance(value, float):
        return value if isfinite(value) else None
    if isinstance(value, list):
        return [_finite(item) for item in value]
    if isinstance(value, dict):
        return {key: _finite(item) for key, item in value.items()}
    return value

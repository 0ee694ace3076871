"""The server's app: round after round, each stored as soon as it is finished."""

import time
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import replace
from functools import partial
from logging import INFO, WARNING
from typing import Any

import flwr
import numpy as np
import torch
from flwr.app import ArrayRecord, ConfigRecord, Context
from flwr.serverapp import Grid, ServerApp
from flwr.serverapp.strategy import Strategy
from flwr.supercore import log
from torch import Tensor

import fedskew
from fedskew.aggregators import weighted_mean
from fedskew.core import spec, tree
from fedskew.core.evaluation import Evaluation, evaluate_model
from fedskew.core.own import told
from fedskew.core.round import Server
from fedskew.core.tree import Params
from fedskew.data import Dataset, Nodes, facts
from fedskew.flower.measures import checked
from fedskew.flower.messages import from_record, to_record
from fedskew.flower.reading import Reader
from fedskew.flower.rules import MODS, Rules, app_digest, caller_folder, read_rules, read_run
from fedskew.flower.strategy import LabelSkew
from fedskew.optimizers import sgd
from fedskew.runs.checkpoint import load_checkpoint, save_checkpoint
from fedskew.runs.origin import check_origin, origin
from fedskew.runs.run import Run
from fedskew.runs.store import Folder, Store
from fedskew.simulation.plan import Plan, usable_device
from fedskew.simulation.records import RoundRecord
from fedskew.simulation.session import FEDERATED, note_run, opened
from fedskew.simulation.simulation import is_evaluated

Evaluate = Callable[[Server], Evaluation | None]
Wrap = Callable[[LabelSkew], Strategy]
_DIVERGED = "round %s: the model or its loss on the test set is not a number; training ends"


def server_app(run: Run | None = None, evaluate: Evaluate | None = None, wrap: Wrap | None = None) -> ServerApp:
    """A Flower ServerApp that trains a run; without a run, the one in the app's configuration.

    `evaluate` measures the global model, with the parameters `Server.used`; by default on the run's test set, or by the
    nodes that have test examples if only the nodes have data.
    `wrap` puts the strategy into one of Flower's wrappers for central differential privacy.
    """
    app, folder = ServerApp(), caller_folder()

    @app.main()
    def main(grid: Grid, context: Context) -> None:
        with spec.beside(folder):
            config, app = context.run_config, {} if folder is None else {"app": app_digest(folder)}
            app |= {"mods": MODS[folder]} if folder in MODS else {}
            federate(grid, run or read_run(config), read_rules(config), evaluate, wrap, app)

    return app


def federate(
    grid: Grid,
    run: Run,
    rules: Rules,
    evaluate: Evaluate | None = None,
    wrap: Wrap | None = None,
    app: Mapping[str, str] | None = None,
) -> LabelSkew:
    """All rounds that a run still lacks. `app` is what a session records about the app's own code."""
    known = facts(run.dataset, run.seed, run.clients, run.data_dir, str(usable_device(run.device)))
    plan = Plan.of(run, known)
    if wrap is not None:
        rules = _private_rules(plan, rules)
    measured = "by nodes" if wrap is None else "by nobody"
    if evaluate is not None:
        measured = "by evaluate"
    elif isinstance(known, Dataset):
        evaluate, measured = partial(_on_test_set, plan, known), "on the test set"
    if evaluate is None and wrap is not None:
        log(INFO, "nodes are not asked to measure the model: their answers would have no noise")
    strategy = LabelSkew(plan, rules, nodes_evaluate=evaluate is None and wrap is None, fits_readout=True)
    plan.check_model(strategy.server, known)
    reader = Reader.of(strategy, known)
    with ExitStack() as stack:
        outer = strategy if wrap is None else _wrapped(wrap, strategy)
        about = {**(app or {}), "measured": measured, "wrapped": "" if wrap is None else type(outer).__name__}
        folder, done = _opened(run, rules, stack, strategy, known, about)
        if folder is not None and evaluate is not None and _measured_late(run, folder, strategy.server, evaluate):
            done = run.rounds
        strategy.summary()
        for round in range(done + 1, run.rounds + 1):
            record, failed = _round(grid, strategy, outer, round, evaluate, reader)
            log(INFO, "round %s/%s: %s clients, accuracy %s", round, run.rounds, record.clients, _accuracy(record))
            if folder is not None:
                folder.append_record(record.as_dict())
                save_checkpoint(folder, round, strategy.server, *_as_tensors(strategy))
            if failed is not None:
                kept = "" if folder is None else "; the round is stored, and the next `flwr run` measures it first"
                raise RuntimeError(f"round {round} cannot be measured: {told(failed)}{kept}") from failed
            if record.diverged:
                log(WARNING, _DIVERGED, round)
                break
    return strategy


def _round(
    grid: Grid, strategy: LabelSkew, outer: Strategy, round: int, evaluate: Evaluate | None, reader: Reader | None
) -> tuple[RoundRecord, Exception | None]:
    """A round, and why `evaluate` failed on its model: the round is then finished, without measures."""
    began, run = time.perf_counter(), strategy.plan.run
    messages = list(outer.configure_train(round, to_record(strategy.server.params), ConfigRecord(), grid))
    replies = strategy.exchange(grid, messages)
    if outer is not strategy:
        replies = strategy.proper(round, replies)
    merged, _ = outer.aggregate_train(round, replies)
    if merged is None:
        raise RuntimeError(f"round {round}: {type(outer).__name__} made no model from {len(replies)} replies")
    params = from_record(merged, usable_device(run.device))
    strategy.server = replace(strategy.server, params=params)
    diverged, asked = not strategy.plan.finite(strategy.server), 0
    due = diverged or is_evaluated(run, round)
    if reader is not None and due and not diverged:
        reading = reader.read_out(grid, round)
        strategy.server, asked = replace(strategy.server, readout=reading.layer), reading.asked
    update, seconds = strategy.update, time.perf_counter() - began
    measured, failed = None, None
    try:
        measured = _measured(grid, strategy, round, evaluate) if due else None
    except Exception as error:
        if evaluate is None:
            raise
        failed = error
    record = RoundRecord.of(
        measured,
        round=round,
        train_loss=None if update is None else float(update.loss.double().mean()),
        clients=0 if update is None else len(update.loss),
        seconds=seconds,
        engine=FEDERATED,
        device=run.device,
        diverged=diverged,
        asked=asked,
        server=strategy.server,
    )
    return record, failed


def _measured(grid: Grid, strategy: LabelSkew, round: int, evaluate: Evaluate | None) -> Evaluation | None:
    """What the model is worth to the server or, if that has no data, to the nodes."""
    if evaluate is not None:
        return checked(evaluate(strategy.server))
    asks = list(strategy.configure_evaluate(round, ArrayRecord(), ConfigRecord(), grid))
    strategy.aggregate_evaluate(round, strategy.exchange(grid, asks))
    return strategy.measured


def _measured_late(run: Run, folder: Folder, server: Server, evaluate: Evaluate) -> bool:
    """Measure the last stored model if `evaluate` failed on it; whether the run has thereby diverged."""
    records = [RoundRecord.stored(record) for record in folder.records()]
    if not records or not is_evaluated(run, records[-1].round):
        return False
    last = records[-1]
    if last.diverged or (last.accuracy, last.loss) != (None, None) or (measured := checked(evaluate(server))) is None:
        return False
    last = last.measured_as(measured)
    folder.fill_records([record.as_dict() for record in [*records[:-1], last]])
    log(INFO, "round %s is measured now: accuracy %s", last.round, _accuracy(last))
    if last.diverged:
        log(WARNING, _DIVERGED, last.round)
    return last.diverged


def _accuracy(record: RoundRecord) -> str:
    accuracy = record.as_dict()["accuracy"]
    return "not measured" if accuracy is None else f"{100 * accuracy:.2f} %"


def _opened(
    run: Run, rules: Rules, stack: ExitStack, strategy: LabelSkew, known: Dataset | Nodes, about: Mapping[str, str]
) -> tuple[Folder | None, int]:
    """The run's folder in the store and how many rounds are done there; the strategy continues from those."""
    root = rules.folder()
    if root is None:
        return None, 0
    folder, done = Store(root).folder(run.hash), 0
    finished = opened(run, folder, stack, federated=True)
    check_origin(folder, run, known)
    if folder.checkpoint.exists():
        checkpoint = load_checkpoint(
            folder.checkpoint, usable_device(run.device), strategy.server, diverged=folder.diverged()
        )
        done, strategy.server = checkpoint.round, checkpoint.server
        counted = checkpoint.states.get("absorbed", torch.zeros(0)).tolist()
        strategy.absorbed = dict(zip(checkpoint.clients.tolist(), map(int, counted), strict=True))
        strategy.reach = {name: float(norm) for name, norm in tree.unprefix(checkpoint.states, "reach").items()}
    if finished:
        ended = finished[-1]
        said = f"it diverged in round {ended.round}" if ended.diverged else f"all {run.rounds} rounds are done"
        log(INFO, "nothing left to do: %s, stored in %s", said, folder.path)
        return folder, run.rounds
    note_run(run, folder)
    folder.keep_records(done)
    begins = f"continues after round {done}" if done else "starts"
    log(INFO, "run %s %s, stored in %s", run.hash, begins, folder.path)
    before = (folder.sessions() or [{}])[-1]
    changed = {name: [before[name], said] for name, said in about.items() if before.get(name, said) != said}
    if changed:
        told = ", ".join(f"{name} {old or 'none'} -> {new or 'none'}" for name, (old, new) in changed.items())
        log(WARNING, "the rounds so far are of another app: %s", told)
    folder.append_session({"from_round": done, **_versions(run), **about, "changed": changed, **origin(run, known)})
    return folder, done


def _versions(run: Run) -> dict[str, Any]:
    versions = {"fedskew": fedskew.__version__, "torch": torch.__version__, "numpy": np.__version__}
    return {**versions, "flwr": flwr.__version__, "engine": FEDERATED, "device": run.device}


def _as_tensors(strategy: LabelSkew) -> tuple[Tensor, Params]:
    """The clients' last rounds that counted and how far clients went, in the form in which a checkpoint keeps client
    states; the states themselves are on the nodes."""
    absorbed = strategy.absorbed
    clients, rounds = (torch.tensor(list(part), dtype=torch.int64) for part in (absorbed, absorbed.values()))
    reach = {name: torch.tensor(norm, dtype=torch.float64) for name, norm in strategy.reach.items()}
    return clients, {"absorbed": rounds, **tree.prefix(reach, "reach")}


def _on_test_set(plan: Plan, data: Dataset, server: Server) -> Evaluation:
    return evaluate_model(plan.model, server.used, server.buffers, data)


def _wrapped(wrap: Wrap, strategy: LabelSkew) -> Strategy:
    """One of Flower's wrappers, with noise for as many clients as there are in a round."""
    outer, wanted = wrap(strategy), strategy.plan.run.clients_per_round
    given = getattr(outer, "num_sampled_clients", None)
    if given != wanted:
        raise ValueError(f"{type(outer).__name__}: num_sampled_clients is {given}; allowed: {wanted}, as in the run")
    return outer


def _private_rules(plan: Plan, rules: Rules) -> Rules:
    """Refuse runs with too little noise: it is scaled for a plain mean over all sampled clients."""
    plan.check_private("central differential privacy")
    run, algorithm = plan.run, plan.algorithm
    if run.weighting != "uniform":
        raise ValueError(f"central differential privacy: weighting is {run.weighting!r}; allowed: uniform")
    remembers = bool(algorithm.correction.server_state(plan.start().params))
    if algorithm.aggregate != weighted_mean() or algorithm.server != sgd(1.0) or remembers:
        raise ValueError(
            f"central differential privacy adds its noise to a plain mean, which {run.short_algorithm} does not use; "
            "allowed: methods that change the loss or the gradient only"
        )
    if run.dropout_rate:
        raise ValueError(f"central differential privacy: dropout_rate is {run.dropout_rate}; allowed: 0")
    clipped = {"max_norm": "off"} if rules.max_norm == "auto" else {}  # clipping is the limit there
    return rules.model_copy(update={"min_clients": run.clients_per_round, **clipped})

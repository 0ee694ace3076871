"""The node's side: one client's round, exactly as an engine would run it."""

from collections.abc import Sequence
from logging import ERROR, INFO
from pathlib import Path
from tempfile import TemporaryFile

import numpy as np
from flwr.app import ConfigRecord, Context, Error, Message, RecordDict
from flwr.clientapp import ClientApp
from flwr.clientapp.mod import LocalDpMod, adaptiveclipping_mod, fixedclipping_mod
from flwr.clientapp.typing import Mod
from flwr.common.constant import ErrorCode
from flwr.supercore import log

import fedskew
from fedskew.core import spec, tree
from fedskew.core.client import client_update
from fedskew.core.federation import Cohort
from fedskew.data import facts
from fedskew.flower.data import client_number, load_node, run_here
from fedskew.flower.messages import (
    CONFIG,
    EXAMPLES,
    FILES,
    STATES,
    TESTS,
    Answer,
    decode_call,
    encode_answer,
    encode_gradient,
    encode_score,
)
from fedskew.flower.node_states import recall, remember, state_at
from fedskew.flower.reading import forget, gradient_of
from fedskew.flower.roll import Claim
from fedskew.flower.rules import MODS, caller_folder, read_run
from fedskew.flower.scores import score_of
from fedskew.runs.run import Run
from fedskew.runs.summary import contents
from fedskew.simulation.plan import Plan, usable_device


def client_app(run: Run | None = None, mods: Sequence[Mod] = ()) -> ClientApp:
    """A Flower ClientApp for one client of a run; without a run, of the run in the app's configuration.

    `mods` are Flower's and wrap training only. Flower's differential privacy goes here.
    """
    app, folder = ClientApp(), caller_folder()
    MODS[folder] = ", ".join(map(_name, mods))

    @app.query()
    def introduce(message: Message, context: Context) -> Message:
        """Which client this node is, and how many examples it has. A problem is told without a traceback."""
        who = ""
        try:
            with spec.beside(folder):
                here = run_here(run or read_run(context.run_config), context.node_config)
                who = f"client {client_number(here, context.node_config)}: "
                _check_same(here, message)
                return _introduced(here, mods, message, context)
        except (ValueError, OSError) as error:
            reason = f"{who}{error}"
            log(ERROR, "cannot join the run: %s", reason)
            return Message(Error(ErrorCode.CLIENT_APP_RAISED_EXCEPTION, reason), reply_to=message)

    @app.train(mods=list(mods))
    def train(message: Message, context: Context) -> Message:
        with spec.beside(folder):
            here = _run(run, message, context)
            forget(context.state)
            return Message(encode_answer(_train(here, message, context)), reply_to=message)

    @app.query("readout")
    def readout(message: Message, context: Context) -> Message:
        """The gradient of the last layer over this node's examples."""
        with spec.beside(folder):
            here = _run(run, message, context)
            _check_private(here, mods)
            ask = decode_call(message.content, usable_device(here.device))
            found = gradient_of(here, load_node(here, context.node_config), ask, context.state)
            return Message(encode_gradient(found), reply_to=message)

    @app.evaluate()
    def evaluate(message: Message, context: Context) -> Message:
        """How good the server's model is on this node's own test examples."""
        with spec.beside(folder):
            here = _run(run, message, context)
            node = load_node(here, context.node_config)
            if not node.tests or _private(mods):
                raise ValueError("this node does not evaluate: it has no test examples, or differential privacy")
            ask = decode_call(message.content, usable_device(here.device))
            return Message(encode_score(score_of(here, node, ask)), reply_to=message)

    return app


def _introduced(run: Run, mods: Sequence[Mod], message: Message, context: Context) -> Message:
    node = load_node(run, context.node_config)
    _check_private(run, mods)
    tests = node.tests
    if tests and _private(mods):
        log(INFO, "test examples are not used: what they measure would be sent without noise")
        tests = 0
    about = ConfigRecord({"run": run.hash, "client": node.client, EXAMPLES: node.examples})
    if tests is not None:
        about[TESTS] = tests
    device = usable_device(run.device)
    if Plan.of(run, node.federation.dataset).first_state(device):
        file = _state_file(run, node.client, context)
        _check_writable(file)
        about[STATES] = ",".join(map(str, recall(context.state, file, device)))
    log(INFO, "asked to join run %s: %s", run.hash, Claim(node.client, node.examples, tests))
    return Message(RecordDict({CONFIG: about}), reply_to=message)


def _run(run: Run | None, message: Message, context: Context) -> Run:
    """This node's run, which must match the server's."""
    here = run_here(run or read_run(context.run_config), context.node_config)
    _check_same(here, message)
    return here


def _check_same(here: Run, message: Message) -> None:
    asked = message.content.config_records[CONFIG]
    wanted = asked.get("run")
    if wanted != here.hash:
        raise ValueError(
            f"this node has run {here.hash}, the server has {wanted!r}; both need the same app, the same "
            f"version of fedskew (here: {fedskew.__version__}) and the same content in the files that the run names"
            + _other_files(here, str(asked.get(FILES, "")))
        )


def _other_files(run: Run, theirs: str) -> str:
    """The fields whose files have other content than on the server, which tells its digests."""
    here, there = (contents({"contents": text}) for text in (run.contents, theirs))
    other = [name for name in here if here[name] != there.get(name, here[name])]
    return "".join(f"; other content here: {name} {run.short[name]}" for name in other)


def _train(run: Run, message: Message, context: Context) -> Answer:
    device = usable_device(run.device)
    call = decode_call(message.content, device)
    if call.absorbed is None:
        raise ValueError("the call to train has no absorbed")
    node = load_node(run, context.node_config)
    node.check_asked(call.client)
    plan = Plan.of(run, node.federation.dataset)
    file = _state_file(run, node.client, context)
    state = state_at(recall(context.state, file, device), call.absorbed, plan.client_state(call.server.params))
    state = plan.first_state(device) if state is None else state
    clients = np.array([node.client])
    cohort = Cohort(node.federation, clients, tree.stack([state]) if state else {}, run.seed)
    update = client_update(plan.recipe(call.round), plan.settings, call.server, cohort, 0, call.round)
    remember(context.state, file, {call.absorbed: state, call.round: update.client})
    examples = node.examples
    log(INFO, "round %s: client %s trained on %s examples, loss %.4f", call.round, node.client, examples, update.loss)
    return Answer(
        client=node.client,
        round=call.round,
        examples=examples,
        steps=plan.steps(examples),
        loss=float(update.loss),
        params=tree.add(call.server.params, update.delta),
        buffers=update.buffers,
        message=update.message,
    )


def _state_file(run: Run, client: int, context: Context) -> Path | None:
    """Where a node with a `state-dir` keeps the correction's state of a run."""
    given = context.node_config.get("state-dir")
    return Path(str(given)).expanduser() / f"{run.hash}-client{client}.safetensors" if given else None


def _check_writable(file: Path | None) -> None:
    """Refuse a folder that cannot keep a state, before the client trains in vain."""
    if file is None:
        return
    try:
        file.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        with TemporaryFile(dir=file.parent):
            pass
    except OSError as error:
        raise ValueError(
            f"node-config: state-dir is {str(file.parent)!r}, where nothing can be written: {error}"
        ) from error


def _check_private(run: Run, mods: Sequence[Mod]) -> None:
    """Refuse a run of which this node's differential privacy would protect only a part."""
    if private := _private(mods):
        known = facts(run.dataset, run.seed, run.clients, run.data_dir)
        Plan.of(run, known).check_private(_name(private))


def _name(mod: Mod) -> str:
    return str(getattr(mod, "__name__", type(mod).__name__))


def _private(mods: Sequence[Mod]) -> Mod | None:
    """The first of Flower's mods for differential privacy."""
    known = fixedclipping_mod, adaptiveclipping_mod
    return next((mod for mod in mods if isinstance(mod, LocalDpMod) or mod in known), None)

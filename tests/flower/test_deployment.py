"""Real processes on loopback, TLS, authenticated nodes: what a federation trains, what travels, what it survives.

All in one file, so that parallel tests (--dist loadfile) start one federation, and one at a time.
"""

import os
import re
import signal
import socket
import struct
import subprocess
from contextlib import suppress
from functools import cache

import numpy as np
import pytest

from fedskew import Run, Store, simulate
from fedskew.data import load_dataset
from fedskew.runs.checkpoint import load_checkpoint
from fedskew.simulation.plan import build_federation
from tests.helpers import assert_trees_close
from tests.test_docs import blocks

pytest.importorskip("flwr", reason="needs the extra: pip install -e '.[flower]'")

from fedskew.flower import Rules
from fedskew.flower.app import write_app
from tests.flower.deployment import BIN, QUIET, ROOT, Deployment, free_port, free_ports, processes_of, wait_until
from tests.flower.in_process import in_order_of
from tests.flower.recording import leaks, read
from tests.flower.test_evaluation import FIELDS, write_parts, write_whole

DIGITS = {"partition": "dirichlet:0.3", "clients": 3, "rounds": 3, "lr": 0.1, "batch_size": 32}
IP_LOCAL_PORT_RANGE = 51  # of Linux, which the module socket does not name
KILLED = "fedlc+scaffold"  # its server is killed after a round
METHODS = [KILLED, *(pytest.param(name, marks=pytest.mark.slow) for name in ("fedlc", "fednova", "fedopt"))]
WAITING = '''
import time
from pathlib import Path

def wait_for(file):
    """Until a test has made a file."""
    end = time.monotonic() + 600
    while not Path(file).exists() and time.monotonic() < end:
        time.sleep(0.1)
'''
FAULTY = (
    WAITING
    + '''
import numpy as np
from flwr.app import Array
from fedskew.flower import client_app, server_app

def faults(message, context, call_next):
    """Client 1 does something else wrong in each of four rounds. Client 2 does not answer in a round, the second if it
    is called then; two rounds later client 0 waits for its return."""
    round, client = message.content["config"]["round"], context.node_config["partition-id"]
    if client == 1 and round == 1:
        raise RuntimeError("the disk of client 1 is full")
    asked = Path({asked!r})
    if client == 2 and round > 1 and not asked.exists():
        asked.write_text(str(round))
        wait_for("never")
    if client == 0 and asked.exists() and round == int(asked.read_text()) + 2:
        wait_for({back!r})
    reply = call_next(message, context)
    params, metrics = reply.content["params"], reply.content["metrics"]
    name = next(iter(params))
    if client == 1 and round == 2:
        params[name] = Array(np.full_like(params[name].numpy(), np.nan))
    if client == 1 and round == 3:
        params[name] = Array(params[name].numpy()[:-1])
    if client == 1 and round == 4:
        metrics["steps"] = -metrics["steps"]
    return reply

client = client_app(mods=[faults])
server = server_app()
'''
)
RECORDING = (
    WAITING
    + """
from flwr.serverapp import ServerApp
from fedskew.flower import client_app, read_rules, read_run
from fedskew.flower.server import federate
from tests.flower.recording import Recorder

def pausing(message, context, call_next):
    if message.content["config"]["round"] == 2:
        Path({waits!r}).touch()
        wait_for({killed!r})
    return call_next(message, context)

client = client_app(mods=[pausing])
server = ServerApp()

@server.main()
def main(grid, context):
    federate(Recorder(grid, {file!r}), read_run(context.run_config), read_rules(context.run_config))
"""
)
WITH_DATA = """
from flwr.clientapp import ClientApp
from fedskew.flower import client_app, server_app

inner = client_app()

class WithData(ClientApp):
    def __call__(self, message, context):
        context.node_config["data"] = {folder!r} + f"/client{{context.node_config['partition-id']}}.npz"
        return inner(message, context)

client = WithData()
server = server_app()
"""


@pytest.mark.parametrize("given", [free_port, lambda: free_ports(3)[-1]])
def test_a_port_for_a_server_is_given_to_nobody_else(given):
    """Or a connection may have it by the time the server starts."""
    port = given()
    with socket.socket() as other, pytest.raises(OSError, match="in use"):
        other.bind(("127.0.0.1", port))
    with socket.create_server(("127.0.0.1", port)) as server:
        socket.create_connection(server.getsockname()).close()
    with socket.create_server(("127.0.0.1", 0)) as server, socket.socket() as other:
        try:
            other.setsockopt(socket.IPPROTO_IP, IP_LOCAL_PORT_RANGE, struct.pack("HH", port, port))
        except OSError:
            pytest.skip("Linux lets a connection choose from some ports only since 6.3")
        with pytest.raises(OSError, match="Cannot assign requested address"):
            other.connect(server.getsockname())


@pytest.mark.slow
def test_the_commands_of_the_docs_in_their_order(tmp_path):
    first, _, third = free_ports(3)
    ports = {"9092": free_port(), "9095": free_port(), "910$node": f"$(({first} + node))", "9102": third}
    script = "\n".join(["set -euo pipefail", *blocks("docs/flower.md", "bash")])
    script = re.sub("|".join(map(re.escape, ports)), lambda found: str(ports[found[0]]), script)
    env = {**os.environ, **QUIET, "PATH": f"{BIN}:{os.environ['PATH']}", "PYTHONPATH": str(ROOT / "src")}
    env["HOME"] = str(tmp_path)
    with (tmp_path / "log").open("w") as log:
        shell = subprocess.Popen(
            ["bash", "-c", script], cwd=tmp_path, env=env, stdout=log, stderr=subprocess.STDOUT, start_new_session=True
        )
        try:
            code = shell.wait(600)
        finally:
            for pid in processes_of(f"FLWR_HOME={tmp_path}/flwr"):
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            if shell.poll() is None:
                os.killpg(shell.pid, signal.SIGKILL)
                shell.wait()
    said = (tmp_path / "log").read_text()
    assert code == 0, said
    assert said.count("finished:completed") == 2, said
    assert "3/3" in said, said
    assert (tmp_path / "model.safetensors").exists()
    states = sorted(path.name.partition("-")[2] for path in (tmp_path / "states").iterdir())
    assert states == [f"client{k}.safetensors" for k in range(3)]


@pytest.fixture(scope="module")
def digits(tmp_path_factory):
    """The digits as a file: clients that are a process per message are spared the import of scikit-learn."""
    data = load_dataset("digits", 0, 3)
    path = tmp_path_factory.mktemp("data") / "digits.npz"
    arrays = {name: getattr(data, name).numpy() for name in ("x_train", "y_train", "x_test", "y_test")}
    np.savez(path, **arrays)
    return f"npz:{path}"


@pytest.fixture(scope="module")
def federation(tmp_path_factory, digits):
    """A SuperLink with three SuperNodes; the fourth key is not registered."""
    with Deployment(tmp_path_factory.mktemp("federation"), nodes=4) as deployment:
        deployment.fields = {**DIGITS, "dataset": digits}
        for node in range(3):
            deployment.register(node)
            deployment.start_node(node)
        wait_until(lambda: all(deployment.starts(node) for node in range(3)), 300, deployment.story)
        yield deployment


def made_app(federation, name, code=None, **fields):
    """A folder with an app and the run it trains."""
    run, rules = Run(**{**federation.fields, **fields}), Rules(store=str(federation.folder / "runs"), min_clients=1)
    folder = federation.folder / name
    write_app(folder, run, rules)
    if code:
        (folder / "federation.py").write_text(code)
    return folder, run


def stored(federation, run):
    return Store(federation.folder / "runs").folder(run.hash)


@pytest.fixture(scope="module")
def messages(federation):
    return federation.folder / "messages"


@pytest.fixture(scope="module")
def killed(federation):
    """A file that clients wait for in round 2."""
    return federation.folder / "killed"


@pytest.fixture(scope="module")
def waits(federation):
    """A file that they make before they wait."""
    return federation.folder / "waits"


@pytest.fixture(scope="module")
def recorded(federation, messages, waits, killed):
    """An app whose server keeps every message."""
    files = {"file": messages, "waits": waits, "killed": killed}
    code = RECORDING.format(**{name: str(path) for name, path in files.items()})
    return made_app(federation, "recorded", code)[0]


@pytest.fixture(scope="module")
def trained(federation, recorded, waits, killed):
    """Trains a method once; the server of the first of them is killed in its second round and run again."""

    @cache
    def train(name):
        run = Run(**federation.fields, algorithm=name)
        if not killed.exists():
            federation.submit(recorded, f'algorithm="{name}"')
            wait_until(waits.exists, 300, federation.story)
            federation.kill_holder(stored(federation, run).path / "lock")
            killed.touch()
        status = federation.finish(federation.submit(recorded, f'algorithm="{name}"'))
        assert status[0] == "finished:completed", federation.story()
        return run

    return train


@pytest.mark.parametrize("name", METHODS)
def test_a_federation_equals_a_simulation(federation, trained, name):
    run = trained(name)
    check_equal_to_simulation(stored(federation, run), run)


def check_equal_to_simulation(folder, run):
    checkpoint = load_checkpoint(folder.checkpoint)
    *_, expected = simulate(run)
    assert checkpoint.round == run.rounds
    params = in_order_of(checkpoint.server.params, expected.server.params)
    assert_trees_close(params, expected.server.params, rtol=0, atol=1e-5)
    records = folder.records()
    assert [record["round"] for record in records] == list(range(1, run.rounds + 1))
    assert records[-1]["accuracy"] == pytest.approx(expected.accuracy, abs=0.01)


@pytest.mark.slow
def test_a_readout_asks_processes_that_come_and_go(federation):
    """And each finds the features of its node again."""
    app, run = made_app(federation, "readout", rounds=1, algorithm="fedlc+refit:asks=3")
    number = federation.submit(app)
    assert federation.finish(number)[0] == "finished:completed", federation.story()
    check_equal_to_simulation(stored(federation, run), run)
    fitted = load_checkpoint(stored(federation, run).checkpoint).server.readout
    *_, expected = simulate(run)
    assert_trees_close(in_order_of(fitted, expected.server.readout), expected.server.readout, rtol=1e-3, atol=1e-3)
    assert "the last layer is fitted to the examples of 3 clients" in federation.said(number)
    assert [federation.log(f"node{node}").count("gives gradients of the last layer") for node in range(3)] == [1, 1, 1]


@pytest.mark.slow
def test_nodes_measure_what_a_simulation_does(federation):
    simulated = Run(**FIELDS, dataset=write_whole(federation.folder), partition="natural")
    write_parts(federation.folder)
    code = WITH_DATA.format(folder=str(federation.folder))
    app, run = made_app(federation, "measured", code, **FIELDS, dataset="nodes:6,4", partition="natural")
    number = federation.submit(app)
    assert federation.finish(number)[0] == "finished:completed", federation.story()
    assert "3 of 3 nodes with test examples have measured the model, on 38 examples" in federation.said(number)
    for record, expected in zip(stored(federation, run).records(), simulate(simulated), strict=True):
        for name in ("accuracy", "client_accuracy", "loss"):
            assert record[name] == pytest.approx(getattr(expected, name), abs=0.01)


def test_flowers_own_simulation_equals_ours(federation):
    """With a run that no other test has: its length is not part of its name."""
    app, run = made_app(federation, "simulation", rounds=1, algorithm="fedlc:tau=2")
    federation.start_link("simulated", "--insecure", "--simulation")
    size = "num-supernodes=3 client-resources-num-cpus=1 init-args-num-cpus=1"
    number = federation.submit(app, "", "--federation-config", size, link="simulated")
    status = federation.finish(number, "simulated")
    federation.kill("simulated")
    assert status[0] == "finished:completed", federation.log("simulated")
    check_equal_to_simulation(stored(federation, run), run)


def test_a_killed_server_goes_on_from_its_last_round(federation, trained):
    sessions = stored(federation, trained(KILLED)).sessions()
    assert [session["from_round"] for session in sessions] == [0, 1]


@pytest.fixture(scope="module")
def counts(trained):
    return build_federation(trained(KILLED)).counts(np.arange(3))


def test_no_message_has_label_counts(counts, messages):
    found = read(messages)
    kinds = {(message["way"], message["type"]) for message in found}
    assert kinds == {("sent", "query"), ("received", "query"), ("sent", "train"), ("received", "train")}
    assert sum(message["type"] == "train" for message in found) >= 2 * 3 * 3
    assert [place for message in found for place in leaks(message, counts)] == []
    for message in found:
        records = message["records"]
        params = {"params"} | ({"correction"} if message["way"] == "sent" else {"message"}) & set(records)
        wanted = {
            ("sent", "query"): {"config": {"run", "files"}},
            ("received", "query"): {"config": {"run", "client", "num-examples"}},
            ("sent", "train"): {"config": {"run", "client", "round", "absorbed"}},
            ("received", "train"): {"metrics": {"client", "round", "num-examples", "steps", "loss"}},
        }[message["way"], message["type"]]
        assert set(records) == set(wanted) | (params if message["type"] == "train" else set())
        for name, keys in wanted.items():
            assert set(records[name]) - {"states"} == keys  # the rounds of SCAFFOLD's
        if message["type"] == "train" and message["way"] == "received":
            metrics = records["metrics"]
            assert metrics["num-examples"] == counts[metrics["client"]].sum()
            assert metrics["steps"] == -(-metrics["num-examples"] // 32)


def test_label_counts_would_be_seen(counts, messages):
    answer = next(m for m in read(messages) if (m["way"], m["type"]) == ("received", "train"))
    present = counts[1][counts[1] > 0]
    weight = max(answer["records"]["params"].values(), key=np.size).copy()
    weight.flat[7 : 7 + len(counts[1])] = np.random.default_rng(0).permutation(counts[1] / counts[1].sum())
    for record, key, value in [
        ("metrics", "counts", counts[1].tolist()),
        ("metrics", "most", int(counts[1].max())),
        ("metrics", "loss", float(present[0])),
        ("params", "shares", (counts[2] / counts[2].sum()).astype(np.float32)),
        ("params", "hidden", weight),
        ("message", "present", present[::-1].astype(np.float32)),
    ]:
        records = {name: dict(entries) for name, entries in answer["records"].items()}
        records.setdefault(record, {})[key] = value
        assert leaks({**answer, "records": records}, counts) == [f"{record}/{key}"]


@pytest.mark.parametrize("nodes", [[1], [0, 1, 2]])
def test_a_call_that_nodes_never_see_is_sent_again(federation, nodes):
    """Also if nobody replies."""
    fields = {"rounds": 2, "algorithm": "fedlc+scaffold", "seed": 2 + len(nodes)}
    app, run = made_app(federation, f"lost-{len(nodes)}", **fields)
    for node in nodes:
        federation.loses(node).touch()
    number = federation.submit(app, "resend-after=1.0")
    assert federation.finish(number)[0] == "finished:completed", federation.story()
    assert not any(federation.loses(node).exists() for node in nodes)
    assert federation.said(number).count("its reply has not come: it is called again") == len(nodes)
    check_equal_to_simulation(stored(federation, run), run)


def test_faults_of_nodes(federation):
    """Client 1 raises, sends NaN, a wrong shape, a negative number; node 2 is killed in a round and started again at
    once, as the docs have it. It may join when the SuperLink has noticed that it was gone. If the server looks just
    then, it notices as well; else it calls the node again."""
    starts = federation.starts(2)
    federation.kill("node2", signal.SIGTERM)
    federation.start_node(2, heartbeat=10)
    asked, back = (federation.folder / name for name in ("asked", "back"))
    code = FAULTY.format(asked=str(asked), back=str(back))
    app, run = made_app(federation, "faulty", code, rounds=8, algorithm="fedavg", seed=1)
    number = federation.submit(app)
    wait_until(lambda: asked.exists() and asked.read_text(), 600, federation.story)
    federation.kill("node2")
    federation.start_node(2, until_it_may_join=True)
    wait_until(lambda: federation.starts(2) == starts + 2, 300, federation.story)
    back.touch()
    assert federation.finish(number)[0] == "finished:completed", federation.story()
    log = federation.said(number)
    lost = int(asked.read_text())
    noticed = "client 2, is refused: error 5" in log
    assert noticed or "its reply has not come: it is called again" in log, log
    answered = {record["round"]: record["clients"] for record in stored(federation, run).records()}
    others = 1 if lost <= 4 else 2  # client 1 is refused in these rounds
    assert (answered[1], answered[lost], answered[8]) == (2, others + (not noticed), 3), log
    for problem in (
        "client 1, is refused: error 2",
        "the disk of client 1 is full",
        "client 1, is refused: params has values that are not finite numbers",
        "client 1, is refused: params",
        "has shape",
        "client 1, is refused: steps is -",
    ):
        assert problem in log, log
    assert "has joined: client 2 with" in log


def test_a_run_with_too_few_nodes_fails_cleanly(federation, recorded):
    federation.kill("node1", signal.SIGTERM)
    number = federation.submit(recorded, "start-timeout=1.0 min-clients=3 seed=2")
    status, details = federation.finish(number)
    assert status == "finished:failed"
    assert "min-clients requires 3" in details + federation.said(number)


def test_a_node_without_a_valid_key_is_refused(federation):
    """Unknown, or in use."""
    strangers = [federation.start_node(3), federation.start_node(4, key=0)]
    assert all(stranger.wait(300) for stranger in strangers)
    for name in ("node3", "node4"):
        assert "Failed to initialize the connection to the SuperLink" in federation.log(name)

"""The commands that begin a federation."""

import importlib.util
import json
import os
import re
import shlex
import signal
import ssl
import stat
import subprocess
import tomllib
from contextlib import suppress

import numpy as np
import pytest

from tests.cli.calling import call

pytest.importorskip("flwr", reason="needs the extra: pip install -e '.[flower]'")

from cryptography import x509
from cryptography.hazmat.primitives.serialization import load_ssh_private_key, load_ssh_public_key
from flwr.app import Context, RecordDict
from flwr.common.config import fuse_dicts

from fedskew import Run, Store
from fedskew.flower import Rules, read_rules, read_run
from tests.flower.deployment import BIN, ROOT, free_port, processes_of
from tests.flower.in_process import Nodes

OWN_MODEL = """
from torch import nn

def net(input_shape, num_classes, width: int = 8):
    return nn.Sequential(nn.Flatten(), nn.Linear(64, width), nn.ReLU(), nn.Linear(width, num_classes))
"""
OWN_LOSS = """
from fedskew.losses import cross_entropy

def lead():
    return cross_entropy
"""


def test_init_writes_the_run_that_it_was_given(tmp_path, capsys):
    options = ["--clients", "4", "--algorithm", "fedlc:tau=2+scaffold", "--partition", "shards:2", "--lr", "0.3"]
    code, out, _ = call(capsys, "flower", "init", str(tmp_path / "app"), *options, "--runs", "mine", "--json")
    assert code == 0
    assert json.loads(out)["files"] == [str(tmp_path / "app" / name) for name in ("pyproject.toml", "federation.py")]
    app = tomllib.loads((tmp_path / "app" / "pyproject.toml").read_text())["tool"]["flwr"]["app"]
    run = Run(clients=4, algorithm="fedlc:tau=2+scaffold", partition="shards:2", lr=0.3, rounds=10, batch_size=16)
    assert read_run(app["config"]) == run
    assert read_run(app["config"]).hash == run.hash
    assert read_rules(app["config"]).store.endswith("/mine")
    compile((tmp_path / "app" / "federation.py").read_text(), "federation.py", "exec")


def test_an_app_has_every_key_that_flwr_may_override(tmp_path, capsys):
    """It refuses keys that are not there."""
    assert call(capsys, "flower", "init", str(tmp_path / "app"))[0] == 0
    config = config_of(tmp_path / "app")
    of_the_run = {name for name in Run.model_fields if name != "engine"}  # the nodes are the engine
    assert {key.replace("-", "_") for key in config} == of_the_run | set(Rules.model_fields)
    clipped = read_run(fuse_dicts(config, {"grad-clip": 1.0, "device": "cuda", "data-dir": "/data"}))
    assert (clipped.grad_clip, clipped.device, clipped.data_dir) == (1.0, "cuda", "/data")
    assert clipped.hash == read_run(config).replace(grad_clip=1.0).hash
    call(capsys, "flower", "init", str(tmp_path / "clipped"), "--grad-clip", "0.5")
    assert read_run(config_of(tmp_path / "clipped")).grad_clip == 0.5


def config_of(folder):
    return tomllib.loads((folder / "pyproject.toml").read_text())["tool"]["flwr"]["app"]["config"]


def own_files(folder):
    (folder / "parts").mkdir()
    (folder / "parts" / "mod.py").write_text(OWN_MODEL)
    (folder / "alg.py").write_text(OWN_LOSS)
    return ["--model", "parts/mod.py:net", "--algorithm", "alg.py:lead+scaffold", "--clients", "2", "--rounds", "1"]


def test_files_of_ones_own_go_into_the_app_and_train_from_any_folder(tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    options = own_files(tmp_path)
    code, out, _ = call(capsys, "flower", "init", "app", *options)
    assert code == 0
    assert "app/mod.py, app/alg.py" in out
    config = config_of(tmp_path / "app")
    assert (config["model"], config["algorithm"]) == ("mod.py:net,width=8", "alg.py:lead+scaffold")

    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "mod.py").write_text("raise RuntimeError('not the file of the app')")
    monkeypatch.chdir(tmp_path / "other")
    about = importlib.util.spec_from_file_location("federation", tmp_path / "app" / "federation.py")
    app = importlib.util.module_from_spec(about)
    about.loader.exec_module(app)
    grid = Nodes(app.client, [{"partition-id": client} for client in range(2)])
    for context in grid.contexts.values():
        context.run_config = config
    app.server(grid, Context(1, 1, {}, RecordDict(), config))
    (folder,) = Store(tmp_path / "federated")
    assert [record["clients"] for record in folder.records()] == [2]


def test_modules_that_these_files_import_go_with_them(tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "lib_of_mine").mkdir()
    (tmp_path / "lib_of_mine" / "__init__.py").write_text("")
    (tmp_path / "lib_of_mine" / "losses.py").write_text("from fedskew import cross_entropy as plain\n")
    (tmp_path / "led.py").write_text("from lib_of_mine.losses import plain\ndef lead():\n    return plain\n")
    code, out, err = call(capsys, "flower", "init", "app", "--algorithm", "led.py:lead", "--clients", "2")
    assert code == 0, err
    assert "app/lib_of_mine/losses.py" in out
    for file in ("led.py", "lib_of_mine/__init__.py", "lib_of_mine/losses.py"):
        assert (tmp_path / "app" / file).read_bytes() == (tmp_path / file).read_bytes()


def test_paths_of_data_are_whole_in_the_app(tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    x, y = np.zeros((4, 3), np.float32), np.array([0, 1, 0, 1])
    np.savez("mine.npz", x_train=x, y_train=y, x_test=x, y_test=y)
    (tmp_path / "split.json").write_text("[[0, 1], [2, 3]]")
    data = ["--dataset", "npz:mine.npz", "--partition", "replay:split.json", "--clients", "2"]
    code, _, err = call(capsys, "flower", "init", "app", *data)
    assert code == 0, err
    config = config_of(tmp_path / "app")
    assert config["dataset"] == f"npz:{tmp_path}/mine.npz"
    assert config["partition"] == f"replay:{tmp_path}/split.json"


@pytest.mark.parametrize(
    ("file", "problem"),
    [
        ("test_mod.py", "Flower leaves test files out"),
        ("federation.py", "another federation.py"),
        ("alg.py", "another alg"),
    ],
)
def test_a_file_that_cannot_be_in_the_app_is_refused(tmp_path, capsys, monkeypatch, file, problem):
    monkeypatch.chdir(tmp_path)
    options = own_files(tmp_path)
    (tmp_path / "parts" / file).write_text(OWN_MODEL)
    code, _, err = call(capsys, "flower", "init", "app", *options, "--model", f"parts/{file}:net")
    assert code == 2
    assert problem in err
    assert not (tmp_path / "app").exists()


def test_what_the_app_says_of_node_configs_is_what_flower_reads(tmp_path, capsys):
    from flwr.common.config import parse_config_args

    call(capsys, "flower", "init", str(tmp_path / "app"))
    said = re.findall(r'--node-config "(.*)"', (tmp_path / "app" / "federation.py").read_text())
    assert len(said) == 4
    assert parse_config_args(said[:1]) == {"client-id": 0, "data": "/path/own.npz"}
    assert parse_config_args(said[2:]) == {"state-dir": "/path", "device": "cuda", "data-dir": "/path"}


def printed(out):
    """The commands that a message ends with."""
    return [line.partition(": ")[2] for line in out.splitlines() if line.startswith(("next", "then"))]


def test_init_names_a_command_that_starts_as_many_nodes_as_the_run_has_clients(tmp_path, capsys):
    from flwr.cli.run.run import _parse_federation_config_overrides
    from flwr.cli.typing import SuperLinkConnection

    folder = tmp_path / "my app"
    _, out, _ = call(capsys, "flower", "init", str(folder), "--clients", "5")
    words = shlex.split(printed(out)[0])
    assert words[:5] == ["flwr", "run", str(folder), "--stream", "--federation-config"]
    given = _parse_federation_config_overrides(words[5:], SuperLinkConnection("local", address=":local-in-memory:"))
    assert given.num_supernodes == 5
    assert given.client_resources_num_cpus == 1


TOY = """
from fedskew import Algorithm, cross_entropy


def near(beta=0.1):
    \"\"\"Logits stay near the global model's.\"\"\"
    def loss(view):
        apart = view.outputs.logits - view.teacher().logits
        return cross_entropy(view.outputs.logits, view.labels, view.counts) + beta * apart.square().mean(-1)

    return Algorithm("near", loss=loss)
"""


@pytest.mark.slow
@pytest.mark.parametrize("method", ["fedlc", "toy.py:near"])
def test_the_printed_commands_train_as_they_are_pasted(tmp_path, method):
    """In a home where Flower never was, with nothing to download from; a method of ours and one in the user's file."""
    (tmp_path / "toy.py").write_text(TOY)
    fields = "--clients 10 --rounds 10 --lr 0.1 --batch-size 16"
    script = f"set -eo pipefail\nfedskew run --algorithm {method} {fields} --quiet\n"
    script += f"fedskew flower init app --algorithm {method} | tee printed\n"
    script += "sed -nE 's/^(next|then)[^:]*: //p' printed > pasted; source pasted"
    wanted = {"HOME": str(tmp_path), "PATH": f"{BIN}:{os.environ['PATH']}", "PYTHONPATH": str(ROOT / "src")}
    mine = {name: value for name, value in os.environ.items() if not name.startswith("FLWR_")} | wanted
    mine |= {"FLWR_LOCAL_SUPERLINK_HTTP_API_PORT": str(free_port()), "UV_OFFLINE": "1", "OMP_NUM_THREADS": "1"}
    try:
        done = subprocess.run(
            ["bash", "-c", script], cwd=tmp_path, env=mine, stdout=subprocess.PIPE, text=True, timeout=600
        )
    finally:
        for pid in processes_of(f"HOME={tmp_path}"):
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
    assert done.returncode == 0, done.stdout
    assert "10/10" in done.stdout.rstrip().splitlines()[-1], done.stdout
    (folder,), (simulated,) = Store(tmp_path / "federated"), Store(tmp_path / "runs")
    assert folder.path.name == simulated.path.name
    reached, wanted = ([record["accuracy"] for record in kept.records()] for kept in (folder, simulated))
    assert reached == pytest.approx(wanted, abs=0.01)  # an example or two of 355 may fall on the other side
    assert reached[0] < 0.4 < 0.65 < reached[-1]


def test_init_writes_over_nothing(tmp_path, capsys):
    (tmp_path / "mine.txt").write_text("kept")
    code, _, err = call(capsys, "flower", "init", str(tmp_path))
    assert code == 2
    assert "already exists and is not overwritten" in err
    assert [path.name for path in tmp_path.iterdir()] == ["mine.txt"]


@pytest.mark.parametrize("more", [["--algorithm", "fedavg,fedlc"], ["--lr", "-1"], ["--algorithm", "fedlx"]])
def test_init_refuses_a_wrong_run(tmp_path, capsys, more):
    code, _, err = call(capsys, "flower", "init", str(tmp_path / "app"), *more)
    assert code == 2
    assert len(err.splitlines()) <= 2
    assert not (tmp_path / "app").exists()


@pytest.mark.parametrize("more", [["--clients", "3000"], ["--clients", "300"], ["--partition", "shards:1000"]])
def test_init_refuses_a_split_that_a_simulation_refuses(tmp_path, capsys, monkeypatch, more):
    monkeypatch.chdir(tmp_path)
    simulated = call(capsys, "run", "--clients", "10", *more)
    assert call(capsys, "flower", "init", "app", *more) == simulated
    assert simulated[0] == 2
    assert not (tmp_path / "app").exists()


@pytest.mark.parametrize(
    ("more", "said"),
    [
        (["nodes:3x32,10", "--model", "cnn"], "cnn takes images [channels, height, width], not inputs of"),
        (["nodes:64,10", "--model", "own.py:net"], "own.py:net returns shape [9] per example; allowed: [10]"),
        (["digits", "--model", "own.py:net"], "own.py:net returns shape [9] per example; allowed: [10]"),
    ],
)
def test_init_refuses_a_model_that_does_not_fit_the_data(tmp_path, capsys, monkeypatch, more, said):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "own.py").write_text(
        "from torch import nn\ndef net():\n    return nn.Sequential(nn.Flatten(), nn.Linear(64, 9))\n"
    )
    code, _, err = call(capsys, "flower", "init", "app", "--dataset", *more)
    assert code == 2
    assert said in err
    assert not (tmp_path / "app").exists()


def test_init_does_not_propose_to_simulate_data_that_only_nodes_have(tmp_path, capsys):
    _, out, _ = call(capsys, "flower", "init", str(tmp_path / "app"), "--dataset", "nodes:64,10", "--clients", "3")
    assert "simulate" not in out
    assert "start 3 nodes with their own data: flower-supernode" in out
    assert f"flwr run {tmp_path / 'app'} deployment --stream" in out


@pytest.mark.parametrize(("algorithm", "kept"), [("fedlc", False), ("fedlc+scaffold", True), ("feddyn", True)])
def test_init_says_where_nodes_keep_a_state_if_they_have_one(algorithm, kept, tmp_path, capsys):
    more = "--dataset", "nodes:64,10", "--algorithm", algorithm
    _, out, _ = call(capsys, "flower", "init", str(tmp_path / "app"), *more)
    assert f"""client-id=0 data='/path/own.npz'{" state-dir='/path'" if kept else ""}\"""" in out


def test_init_takes_the_clients_that_a_file_names(tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    x, y = np.zeros((30, 4), np.float32), np.arange(30) % 3
    np.savez("own.npz", x_train=x, y_train=y, x_test=x, y_test=y, client=np.arange(30) % 5)
    command = "flower", "init", "app", "--dataset", "npz:own.npz", "--partition", "natural"
    code, _, err = call(capsys, *command, "--clients", "10")
    assert code == 2
    assert "has 5 clients; clients is 10" in err
    code, out, _ = call(capsys, *command)
    assert code == 0
    assert "num-supernodes=5" in out


ELSEWHERE = """
def absent():
    open("/nowhere/of/this/machine")


def unlike():
    import a_library_that_nodes_have
"""


@pytest.mark.parametrize(
    "data",
    [
        ["cifar10"],
        ["nodes:64,10"],
        ["npz:nowhere.npz", "--model", "mlp", "--partition", "natural", "--clients", "5"],
        ["own.py:absent", "--model", "mlp", "--partition", "iid"],
        ["own.py:unlike", "--model", "mlp", "--partition", "iid"],
    ],
)
def test_init_needs_no_data(tmp_path, capsys, monkeypatch, data):
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("FEDSKEW_DATA", raising=False)
    (tmp_path / "own.py").write_text(ELSEWHERE)
    code, _, err = call(capsys, "flower", "init", "app", "--dataset", *data)
    assert (code, err) == (0, "")


def test_certificates(tmp_path, capsys):
    keys = tmp_path / "keys"
    code, _, _ = call(capsys, "flower", "certificates", str(keys), "--host", "fl.example.org", "--nodes", "2")
    assert code == 0
    names = {"ca.crt", "server.crt", "server.key", "node0", "node0.pub", "node1", "node1.pub"}
    assert {path.name for path in keys.iterdir()} == names
    secret = [path for path in keys.iterdir() if path.suffix not in (".crt", ".pub")]
    assert {stat.S_IMODE(path.stat().st_mode) for path in secret} == {0o600}
    server = x509.load_pem_x509_certificate((keys / "server.crt").read_bytes())
    hosts = server.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    assert hosts.get_values_for_type(x509.DNSName) == ["localhost", "fl.example.org"]
    server.verify_directly_issued_by(x509.load_pem_x509_certificate((keys / "ca.crt").read_bytes()))
    ssl.create_default_context(cafile=str(keys / "ca.crt"))
    private = load_ssh_private_key((keys / "node1").read_bytes(), None)
    assert private.public_key() == load_ssh_public_key((keys / "node1.pub").read_bytes())
    code, _, err = call(capsys, "flower", "certificates", str(keys))
    assert code == 2
    assert "keys are never overwritten" in err


@pytest.mark.parametrize("option", ["--nodes", "--days"])
def test_certificates_for_nobody(tmp_path, capsys, option):
    code, _, err = call(capsys, "flower", "certificates", str(tmp_path / "keys"), option, "0")
    assert code == 2
    assert f"{option[2:]} is 0" in err


@pytest.mark.parametrize(
    ("config", "problem"),
    [
        ({"algoritm": "fedavg"}, "did you mean algorithm"),
        ({"lr": -1.0}, "lr is '-1'"),
        ({"min-clients": -1}, "min-clients is '-1'"),
        ({"on-bad-reply": "shrug"}, "on-bad-reply is 'shrug'"),
    ],
)
def test_a_wrong_configuration_is_named(config, problem):
    with pytest.raises(ValueError, match=problem):
        read_run(config), read_rules(config)


def test_certificates_hold_before_a_strict_reader(tmp_path):
    """As Python 3.13 reads them."""
    from cryptography import x509
    from cryptography.x509 import verification

    from fedskew.flower.certificates import make_certificates

    make_certificates(tmp_path / "keys", hosts=["fl.example.org"])
    authority, server = (
        x509.load_pem_x509_certificate((tmp_path / "keys" / name).read_bytes()) for name in ("ca.crt", "server.crt")
    )
    trusted = verification.PolicyBuilder().store(verification.Store([authority]))
    for host in ("fl.example.org", "localhost"):
        trusted.build_server_verifier(x509.DNSName(host)).verify(server, [])

"""The commands that begin a federation."""

import json
import ssl
import stat
import tomllib

import pytest

from fedskew.cli import main

pytest.importorskip("flwr", reason="needs the extra: pip install 'fedskew[flower]'")

from cryptography import x509
from cryptography.hazmat.primitives.serialization import load_ssh_private_key, load_ssh_public_key

from fedskew import Run
from fedskew.flower import read_rules, read_run


def call(capsys, *arguments):
    with pytest.raises(SystemExit) as done:
        main(list(arguments))
    out, err = capsys.readouterr()
    return done.value.code, out, err


def test_init_writes_the_run_that_it_was_given(tmp_path, capsys):
    options = ["--clients", "4", "--algorithm", "fedlc:tau=2+scaffold", "--partition", "shards:2", "--lr", "0.3"]
    code, out, _ = call(capsys, "flower", "init", str(tmp_path / "app"), *options, "--runs", "mine", "--json")
    assert code == 0
    assert json.loads(out)["files"] == [str(tmp_path / "app" / name) for name in ("pyproject.toml", "federation.py")]
    app = tomllib.loads((tmp_path / "app" / "pyproject.toml").read_text())["tool"]["flwr"]["app"]
    run = Run(clients=4, algorithm="fedlc:tau=2+scaffold", partition="shards:2", lr=0.3)
    assert read_run(app["config"]) == run
    assert read_run(app["config"]).hash == run.hash
    assert read_rules(app["config"]).store.endswith("/mine")
    compile((tmp_path / "app" / "federation.py").read_text(), "federation.py", "exec")


def test_init_writes_over_nothing(tmp_path, capsys):
    (tmp_path / "mine.txt").write_text("kept")
    code, _, err = call(capsys, "flower", "init", str(tmp_path))
    assert code == 2
    assert "nothing is written over" in err
    assert [path.name for path in tmp_path.iterdir()] == ["mine.txt"]


@pytest.mark.parametrize("more", [["--algorithm", "fedavg,fedlc"], ["--lr", "-1"], ["--algorithm", "fedlx"]])
def test_init_refuses_a_wrong_run(tmp_path, capsys, more):
    code, _, err = call(capsys, "flower", "init", str(tmp_path / "app"), *more)
    assert code == 2
    assert len(err.splitlines()) <= 2
    assert not (tmp_path / "app").exists()


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
    assert "keys are never written over" in err


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

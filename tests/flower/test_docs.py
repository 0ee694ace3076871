"""What docs/flower.md says, done: its commands in order as real processes, its Python."""

import os
import re
import signal
import subprocess

import pytest

pytest.importorskip("flwr", reason="needs the extra: pip install 'fedskew[flower]'")

import torch

from fedskew import rng
from tests.flower.deployment import BIN, QUIET, ROOT, free_port, processes_of

TEXT = (ROOT / "docs/flower.md").read_text()


def blocks(language):
    return re.findall(rf"```{language}\n(.*?)```", TEXT, re.S)


@pytest.mark.xdist_group("deployment")  # not beside another federation of many processes
def test_the_commands_in_their_order(tmp_path):
    script = "\n".join(["set -euo pipefail", *blocks("bash")])
    for port in ("9092", "9095", "9100", "9101", "9102"):
        script = script.replace(port, str(free_port()))
    script = script.replace("910$node", "$((base + node))")
    script = script.replace("set -euo pipefail", f"set -euo pipefail\nbase={free_port()}")
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


def test_the_app_is_what_init_writes(tmp_path):
    from fedskew import Run
    from fedskew.flower import Rules
    from fedskew.flower.app import write_app

    _, code = write_app(tmp_path / "app", Run(), Rules())
    lines = [line for line in blocks("python")[0].splitlines() if line]
    assert all(line in code.read_text() for line in lines)


def test_the_apps_with_privacy():
    for code in blocks("python")[1:3]:
        exec(compile(code, "docs/flower.md", "exec"), {})


def test_the_loss_in_an_app_of_ones_own():
    found: dict = {}
    exec(compile(blocks("python")[3], "docs/flower.md", "exec"), found)
    generator = torch.Generator().manual_seed(0)
    images, labels = torch.randn(200, 4, generator=generator), torch.arange(200) % 2
    images[:, 0] += 4 * labels
    with rng.torch_seed(0, "model"):
        model = torch.nn.Linear(4, 3)
        for _ in range(5):
            reply = found["train"](model, images, labels, num_classes=3)
    assert reply["metrics"]["num-examples"] == 200
    assert set(reply["arrays"]) == {"weight", "bias"}
    assert (model(images)[:, :2].argmax(-1) == labels).float().mean() > 0.9  # class 2 is not this client's to judge

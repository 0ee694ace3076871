"""A real federation on loopback: a SuperLink and SuperNodes as processes, over TLS with node authentication."""

import json
import os
import re
import signal
import socket
import ssl
import subprocess
import sys
import time
import urllib.request
from contextlib import suppress
from pathlib import Path

from fedskew.flower.certificates import make_certificates

BIN = Path(sys.executable).parent
ROOT = Path(__file__).parents[2]
QUIET = {
    "FLWR_TELEMETRY_ENABLED": "0",
    "FLWR_DISABLE_UPDATE_CHECK": "1",
    "FLWR_DISABLE_RUNTIME_DEPENDENCY_INSTALLATION": "1",
    "FLWR_SUPEREXEC_TASK_POLL_INTERVAL": "0.3",
    "RAY_USAGE_STATS_ENABLED": "0",
    "OMP_NUM_THREADS": "1",
    "PYTHONUNBUFFERED": "1",
}


def free_port() -> int:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        return taken.getsockname()[1]


def wait_until(found, seconds, what):
    """What `found` returns once that is true."""
    end = time.monotonic() + seconds
    while not (value := found()):
        assert time.monotonic() < end, f"waited {seconds} s for {what() if callable(what) else what}"
        time.sleep(0.1)
    return value


class Deployment:
    """Processes that end with it, each with a log of its own in `folder`."""

    def __init__(self, folder: Path, nodes: int) -> None:
        self.folder = folder
        self.keys = folder / "keys"
        make_certificates(self.keys, nodes=nodes)
        self.port = free_port()
        self.env = {**os.environ, **QUIET, "FLWR_HOME": str(folder / "home")}
        self.env["PATH"] = f"{BIN}:{os.environ['PATH']}"
        self.env["PYTHONPATH"] = os.pathsep.join([str(ROOT / "src"), str(ROOT)])
        self.processes: dict[str, subprocess.Popen] = {}
        (folder / "home").mkdir()
        (folder / "home" / "config.toml").write_text(
            f'[superlink]\ndefault = "here"\n[superlink.here]\naddress = "127.0.0.1:{self.port}"\n'
            f'root-certificates = "{self.keys / "ca.crt"}"\n'
        )

    def __enter__(self) -> "Deployment":
        try:
            self.start_link()
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(self, *_) -> None:
        self.close()

    def start_link(self) -> None:
        tls = [f"--ssl-{name}={self.keys / file}" for name, file in FILES.items()]
        address = ["--host", "127.0.0.1", "--port", str(self.port), "--disable-runtime-dependency-installation"]
        self.start("link", "flower-superlink", *address, *tls, "--enable-supernode-auth")
        wait_until(self._healthy, 60, lambda: f"the SuperLink: {self.log('link')}")

    def _healthy(self) -> bool:
        context = ssl.create_default_context(cafile=str(self.keys / "ca.crt"))
        try:
            with urllib.request.urlopen(f"https://127.0.0.1:{self.port}/health", context=context, timeout=2):
                return True
        except OSError:
            return False

    def register(self, node: int) -> None:
        self.flwr("supernode", "register", str(self.keys / f"node{node}.pub"), "here", "--name", f"node{node}")

    def start_node(self, node: int, config: str, *, key: int | None = None) -> subprocess.Popen:
        secret = self.keys / f"node{node if key is None else key}"
        return self.start(
            f"node{node}",
            *("flower-supernode", "--superlink", f"127.0.0.1:{self.port}", "--host", "127.0.0.1"),
            *("--port", str(free_port()), "--root-certificates", str(self.keys / "ca.crt")),
            *("--auth-supernode-private-key", str(secret), "--node-config", config),
        )

    def start(self, name: str, *command: str) -> subprocess.Popen:
        with (self.folder / f"{name}.log").open("ab") as log:
            done = subprocess.Popen(
                [BIN / command[0], *command[1:]],
                env=self.env,
                cwd=self.folder,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        self.processes[name] = done
        return done

    def kill(self, name: str, signum: int = signal.SIGKILL) -> None:
        """End a process and its children."""
        process = self.processes.pop(name)
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signum)
        process.wait(30)

    def log(self, name: str) -> str:
        path = self.folder / f"{name}.log"
        return path.read_text(errors="replace") if path.exists() else ""

    def flwr(self, *arguments: str) -> str:
        done = subprocess.run(
            [BIN / "flwr", *arguments], env=self.env, cwd=self.folder, capture_output=True, text=True, timeout=120
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    def submit(self, app: Path, config: str = "") -> str:
        """Start a run and give its number."""
        more = ["--run-config", config] if config else []
        answer = json.loads(self.flwr("run", str(app), "here", "--format", "json", *more))
        assert answer["success"], answer
        return str(answer["run-id"])

    def state(self, run: str) -> tuple[str, str]:
        (row,) = json.loads(self.flwr("list", "here", "--run-id", run, "--format", "json"))["runs"]
        return row["status"], str(row.get("status-details", ""))

    def finish(self, run: str, seconds: float = 300) -> tuple[str, str]:
        """Wait for a run's end. Asking Flower costs a process each time, so its log is watched."""
        done = re.compile(rf"Finished task \d+ of run {run}\b")
        wait_until(lambda: done.search(self.log("link")), seconds, lambda: f"run {run}: {self.log('link')}")
        wait_until(lambda: self.state(run)[0].startswith("finished"), 30, "the run's state")
        return self.state(run)

    def kill_holder(self, file: Path) -> None:
        """Kill the app's server: the one process of ours that has a file open."""
        (found,) = [pid for pid in self._ours() if file in _open_files(pid)]
        os.kill(found, signal.SIGKILL)

    def _ours(self) -> list[int]:
        return processes_of(f"FLWR_HOME={self.env['FLWR_HOME']}")

    def close(self) -> None:
        for name in list(self.processes):
            self.kill(name)
        for pid in self._ours():
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)


def processes_of(mark: str) -> list[int]:
    """Everything with a variable in its environment: what a federation's processes have started in their turn."""
    pids = [int(entry.name) for entry in Path("/proc").iterdir() if entry.name.isdigit()]
    return [pid for pid in pids if mark in _read(pid, "environ").split("\0")]


def _open_files(pid: int) -> list[Path]:
    try:
        return [link.readlink() for link in Path(f"/proc/{pid}/fd").iterdir()]
    except OSError:
        return []


def _read(pid: int, name: str) -> str:
    try:
        return Path(f"/proc/{pid}/{name}").read_bytes().decode(errors="replace")
    except OSError:
        return ""


FILES = {"ca-certfile": "ca.crt", "certfile": "server.crt", "keyfile": "server.key"}

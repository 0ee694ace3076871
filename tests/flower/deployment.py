"""A real federation on loopback: a SuperLink and SuperNodes as processes, over TLS with node authentication."""

import json
import os
import re
import shlex
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
from tests.flower import warm

BIN = Path(sys.executable).parent
ROOT = Path(__file__).parents[2]
Process = subprocess.Popen[bytes]
_TAKEN: list[socket.socket] = []
QUIET = {
    "FLWR_TELEMETRY_ENABLED": "0",
    "FLWR_DISABLE_UPDATE_CHECK": "1",
    "FLWR_DISABLE_RUNTIME_DEPENDENCY_INSTALLATION": "1",
    "FLWR_SUPEREXEC_TASK_POLL_INTERVAL": "0.2",
    "RAY_USAGE_STATS_ENABLED": "0",
    "OMP_NUM_THREADS": "1",
    "PYTHONUNBUFFERED": "1",
}


def free_port() -> int:
    """A port for a server that starts later. It stays taken until this process ends: Linux gives it to no connection,
    nor to others who ask for any port, and lets those listen on it who say SO_REUSEADDR, as servers do."""
    return _take(0)


def free_ports(many: int) -> list[int]:
    """Such ports in a row."""
    while True:
        first, room = free_port(), len(_TAKEN)
        with suppress(OSError):  # a neighbour is in use
            return [first, *(_take(first + step) for step in range(1, many))]
        del _TAKEN[room:]


def _take(port: int) -> int:
    taken = socket.socket()
    taken.bind(("127.0.0.1", port))
    taken.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # not before: others hold their ports so, too
    _TAKEN.append(taken)
    return taken.getsockname()[1]


def wait_until(found, seconds, what):
    """What `found` returns once that is true."""
    end = time.monotonic() + seconds
    while not (value := found()):
        assert time.monotonic() < end, f"waited {seconds} s for {what() if callable(what) else what}"
        time.sleep(0.1)
    return value


class Deployment:
    """Processes that end with it, each with a log of its own in `folder`.

    A SuperLink for `nodes` SuperNodes (`deployed`), and on demand one that simulates them (`simulated`).
    """

    def __init__(self, folder: Path, nodes: int) -> None:
        self.folder = folder
        self.keys = folder / "keys"
        make_certificates(self.keys, nodes=nodes)
        self.ports = {"deployed": free_port(), "simulated": free_port()}
        self.env = {**os.environ, **QUIET, "FLWR_HOME": str(folder / "home")}
        self.env["PATH"] = f"{folder / 'bin'}:{BIN}:{os.environ['PATH']}"
        self.env["PYTHONPATH"] = os.pathsep.join([str(ROOT / "src"), str(ROOT)])
        self.processes: dict[str, Process] = {}
        self.last = ""
        for name in ("bin", "home"):
            (folder / name).mkdir()
        (folder / "home" / "config.toml").write_text(
            '[superlink]\ndefault = "deployed"\n'
            f'[superlink.deployed]\naddress = "127.0.0.1:{self.ports["deployed"]}"\n'
            f'root-certificates = "{self.keys / "ca.crt"}"\n'
            f'[superlink.simulated]\naddress = "127.0.0.1:{self.ports["simulated"]}"\ninsecure = true\n'
        )

    def __enter__(self) -> "Deployment":
        try:
            self.start("warm", sys.executable, "-m", "tests.flower.warm", str(self.folder))
            tls = [f"--ssl-{name}={self.keys / file}" for name, file in FILES.items()]
            self.start_link("deployed", "--enable-supernode-auth", *tls)
            wait_until(lambda: warm.READY in self.log("warm"), 300, lambda: f"its programs: {self.log('warm')}")
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(self, *_) -> None:
        self.close()

    def start_link(self, name: str, *more: str) -> None:
        address = ["--host", "127.0.0.1", "--port", str(self.ports[name]), "--disable-runtime-dependency-installation"]
        self.start(name, BIN / "flower-superlink", *address, *more)
        wait_until(lambda: self._healthy(name), 300, lambda: f"the SuperLink: {self.log(name)}")

    def _healthy(self, name: str) -> bool:
        context = ssl.create_default_context(cafile=str(self.keys / "ca.crt")) if name == "deployed" else None
        address = f"{'https' if context else 'http'}://127.0.0.1:{self.ports[name]}/health"
        try:
            with urllib.request.urlopen(address, context=context, timeout=10):
                return True
        except OSError:
            return False

    def register(self, node: int) -> None:
        self.flwr("supernode", "register", str(self.keys / f"node{node}.pub"), "deployed", "--name", f"node{node}")

    def start_node(
        self, node: int, *, key: int | None = None, until_it_may_join: bool = False, heartbeat: int | None = None
    ) -> Process:
        """A SuperNode, client `node` of every run, with a key of its own unless another's is given."""
        secret, states = self.keys / f"node{node if key is None else key}", self.folder / "states"
        command = [
            *(sys.executable, "-m", "tests.flower.supernode", "--superlink", f"127.0.0.1:{self.ports['deployed']}"),
            *("--host", "127.0.0.1", "--port", str(free_port()), "--root-certificates", str(self.keys / "ca.crt")),
            *("--auth-supernode-private-key", str(secret)),
            *("--node-config", f"partition-id={node} state-dir='{states}'"),
        ]
        if until_it_may_join:
            command = ["bash", "-c", f"until {shlex.join(command)}; do sleep 1; done"]
        variables = {"SECONDS_BETWEEN_HEARTBEATS": str(heartbeat or ""), "LOSES": str(self.loses(node))}
        return self.start(f"node{node}", *command, **variables)

    def loses(self, node: int) -> Path:
        """The file that makes a node lose its next call to train."""
        return self.folder / f"loses{node}"

    def starts(self, node: int) -> int:
        """How often a node has joined."""
        return self.log(f"node{node}").count("SuperNode ID")

    def start(self, name: str, *command: str | Path, **variables: str) -> Process:
        with (self.folder / f"{name}.log").open("ab") as log:
            done = subprocess.Popen(
                command,
                env=self.env | variables,
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
        process.wait(60)

    def log(self, name: str) -> str:
        path = self.folder / f"{name}.log"
        return path.read_text(errors="replace") if path.exists() else ""

    def flwr(self, *arguments: str) -> str:
        command = [self.folder / "bin" / "flwr", *arguments]
        done = subprocess.run(command, env=self.env, cwd=self.folder, capture_output=True, text=True, timeout=300)
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    def submit(self, app: Path, config: str = "", *more: str, link: str = "deployed") -> str:
        """Start a run and give its number."""
        options = ["--run-config", config, *more] if config else more
        answer = json.loads(self.flwr("run", str(app), link, "--format", "json", *options))
        assert answer["success"], answer
        self.last = str(answer["run-id"])
        return self.last

    def finish(self, run: str, link: str = "deployed") -> tuple[str, str]:
        """What became of a run, once it has ended. Asking Flower costs a process each time, so its log is watched."""
        done = re.compile(rf"Finished task \d+ of run {run}\b")
        wait_until(lambda: done.search(self.log(link)), 600, lambda: f"the end of run {run}\n{self.story()}")
        return wait_until(lambda: self._finished(run, link), 120, self.story)

    def _finished(self, run: str, link: str) -> tuple[str, str] | None:
        (row,) = json.loads(self.flwr("list", link, "--run-id", run, "--format", "json"))["runs"]
        return (row["status"], str(row.get("status-details", ""))) if row["status"].startswith("finished") else None

    def said(self, run: str) -> str:
        """The log of a run's server."""
        return self.flwr("log", run, "deployed", "--show")

    def story(self) -> str:
        """What a reader needs when something has failed: the end of every log, of the last run's server first."""
        parts = []
        if self.last:
            with suppress(AssertionError, subprocess.TimeoutExpired):
                parts.append(f"--- the server of run {self.last}\n{_end(self.said(self.last), 30)}")
        for log in sorted(self.folder.glob("*.log")):
            problems = [line for line in self.log(log.stem).splitlines() if "ERROR" in line or "Error" in line]
            parts.append(f"--- {log.stem}, its errors\n{_end(chr(10).join(problems), 5)}")
            parts.append(f"--- {log.stem}, its end\n{_end(self.log(log.stem), 10)}")
        return "\n".join(parts)

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


def _end(text: str, lines: int) -> str:
    """Short lines without colours."""
    plain = re.sub(r"\x1b\[[0-9;]*m", "", text)
    return "\n".join(line[:300] for line in plain.splitlines()[-lines:])


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

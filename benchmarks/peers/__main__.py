"""How long a round takes elsewhere: `python -m benchmarks.peers --environments DIR [--json FILE]`.

Every simulator runs in a process of its own, one after the other, several times over; the first rounds of a process
(imports, workers that start) do not count.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np

from benchmarks.clients import start
from benchmarks.peers.work import loss as loss_of
from benchmarks.peers.work import model
from benchmarks.report import Neighbours, machine, show, write
from benchmarks.timing import Figure, Spread, exact, milliseconds, ratio

ROUND = "a round of logistic regression, 100 of 1,000 clients"
OURS, PFL, FLOWER, FLUKE = "fedskew, stacked", "pfl", "flwr, simulation", "fluke"
FOLDERS = {PFL: "pfl", FLOWER: "flwr", FLUKE: "fluke"}
MODULES = {OURS: "ours", PFL: "pfl_rounds", FLOWER: "flower_rounds", FLUKE: "fluke_rounds"}
AHEAD = {PFL: 15, FLOWER: 100}
"""How many times as fast as a peer this package is to be."""
TURNS, ROUNDS, WARM_UP = 5, 10, 2
SECONDS = 300
"""How long one process may take."""


def write_clients(file: Path) -> None:
    """The clients of benchmarks.core and the model that they begin with."""
    simulation = start(1_000)
    federation, params = simulation.federation, simulation.server.params
    np.savez(
        file,
        x=federation.dataset.x_train.numpy()[federation.order],
        y=federation.labels[federation.order],
        offsets=federation.offsets,
        weight=params["linear.weight"].numpy(),
        bias=params["linear.bias"].numpy(),
    )


def rounds_of(python: Path, module: str, clients: Path, rounds: int, home: Path) -> tuple[list[float], float]:
    """Seconds of the rounds after the first, and the loss after the last."""
    out = home / "answer.json"
    out.unlink(missing_ok=True)
    environment = {
        **os.environ,
        "PATH": f"{python.parent}{os.pathsep}{os.environ['PATH']}",
        "PYTHONPATH": str(Path.cwd()),
        "FLWR_HOME": str(home / "flwr"),
        "FLWR_TELEMETRY_ENABLED": "0",
        "FLWR_DISABLE_UPDATE_CHECK": "1",
        "FLWR_DISABLE_RUNTIME_DEPENDENCY_INSTALLATION": "1",
        "RAY_USAGE_STATS_ENABLED": "0",
    }
    command = [str(python), "-m", f"benchmarks.peers.{module}", str(clients), str(WARM_UP + rounds), str(out)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=SECONDS, check=False)
    if not out.exists():
        raise RuntimeError(f"{module} gave no answer:\n{done.stdout[-2000:]}\n{done.stderr[-2000:]}")
    told = json.loads(out.read_text())
    return told["seconds"][WARM_UP:], told["loss"]


def versions(python: Path) -> list[str]:
    """What a peer's environment holds, of what matters here."""
    listed = subprocess.run([str(python), "-m", "pip", "freeze"], capture_output=True, text=True, check=True).stdout
    names = {"flwr", "pfl", "fluke-fl", "ray", "torch", "numpy"}
    return [line for line in listed.splitlines() if line.partition("==")[0].lower() in names]


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.peers", description=__doc__)
    parser.add_argument("--environments", type=Path, required=True, help="where the peers' virtual environments are")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write every figure to this file")
    parser.add_argument("--turns", type=int, default=TURNS, help="processes of each simulator (%(default)s)")
    options = parser.parse_args()
    places = {OURS: Path(sys.executable)}
    places |= {name: (options.environments / folder / "bin" / "python").absolute() for name, folder in FOLDERS.items()}
    here = {**machine(), "environments": {name: versions(places[name]) for name in FOLDERS}}
    neighbours = Neighbours()
    seconds: dict[str, list[float]] = {name: [] for name in places}
    losses: dict[str, list[float]] = {name: [] for name in places}
    with tempfile.TemporaryDirectory() as folder:
        clients = Path(folder) / "clients.npz"
        write_clients(clients)
        before = loss_of(model(str(clients)), str(clients))
        for _ in range(options.turns):
            for name, python in places.items():
                took, loss = rounds_of(python, MODULES[name], clients, ROUNDS, Path(folder))
                seconds[name] += took
                losses[name].append(loss)
    figures = [
        *milliseconds(ROUND, seconds),
        *(Figure(ROUND, f"{name} / {OURS}", ratio(seconds, name, OURS), "x") for name in FOLDERS),
        *(
            Figure(ROUND, f"{OURS} / {name}", ratio(seconds, OURS, name), "x", 1 / limit)
            for name, limit in AHEAD.items()
        ),
        exact(ROUND, "loss before the first round", before, ""),
        *(
            Figure(ROUND, f"loss after {WARM_UP + ROUNDS} rounds: {name}", Spread.of(losses[name]), "")
            for name in places
        ),
    ]
    here["used elsewhere"] = neighbours.share()
    show(figures, here)
    if options.json:
        write(options.json, figures, here)


if __name__ == "__main__":
    main()

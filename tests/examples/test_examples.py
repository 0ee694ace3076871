"""The examples run, and the plain one gives the library's parameters."""

import importlib.util
import re
import runpy
import tomllib
from pathlib import Path

import pytest
import torch

from fedskew import Run, simulate
from fedskew.simulation.simulation import Simulation

EXAMPLES = Path(__file__).parents[2] / "examples"


def load(name):
    spec = importlib.util.spec_from_file_location(name, EXAMPLES / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_plain_fedlc_gives_the_librarys_parameters():
    run = Run(
        dataset="synthetic:1,1,max_size=150",
        clients=6,
        algorithm="fedlc:tau=2",
        rounds=5,
        batch_size=32,
        precision="fp64",
    )
    simulation = Simulation(run)
    federation, data = simulation.federation, simulation.federation.dataset
    own = federation.indices
    clients = [(data.x_train[index].double(), data.y_train[index]) for index in own]
    model = torch.nn.Linear(60, 10).double()
    model.load_state_dict({name.removeprefix("linear."): leaf for name, leaf in simulation.server.params.items()})

    def order(round, client, size):
        shuffled = torch.from_numpy(federation.shuffled(torch.tensor([client]).numpy(), run.seed, round, 1))
        return torch.searchsorted(own[client], shuffled)

    plain = load("plain_fedlc").fedlc(model, clients, 10, run.rounds, run.batch_size, run.lr, tau=2.0, order=order)
    library = list(simulate(run))[-1].server.params
    for name, leaf in plain.state_dict().items():
        torch.testing.assert_close(leaf, library[f"linear.{name}"], rtol=0, atol=1e-12)


def test_plain_fedlc_runs_by_itself(capsys):
    before = torch.get_rng_state()
    runpy.run_path(str(EXAMPLES / "plain_fedlc.py"), run_name="__main__")
    torch.set_rng_state(before)
    said = [float(number) for number in re.findall(r"\d\.\d{3}", capsys.readouterr().out)]
    (plain, before_it, forgot), (calibrated, _, kept) = said[:3], said[3:]
    assert plain > 0.8
    assert calibrated > 0.8
    assert kept > forgot + 0.05, "margins slow forgetting down"
    assert before_it > forgot + 0.05


def test_own_algorithm():
    spec = f"{EXAMPLES / 'own_algorithm.py'}:reweighted,power=0.5"
    own = list(simulate(Run(algorithm=f"{spec}+scaffold", rounds=20, lr=0.1, batch_size=16)))[-1]
    assert own.accuracy > 0.8
    assert len((EXAMPLES / "own_algorithm.py").read_text().splitlines()) < 40


def test_the_flower_app_is_what_init_writes(tmp_path):
    pytest.importorskip("flwr", reason="needs the extra: pip install -e '.[flower]'")
    from fedskew.flower import Rules, read_rules, read_run
    from fedskew.flower.app import write_app

    there = EXAMPLES / "flower_app"
    config = tomllib.loads((there / "pyproject.toml").read_text())["tool"]["flwr"]["app"]["config"]
    assert read_rules(config) == Rules()
    written = write_app(tmp_path / "flower_app", read_run(config), Rules())
    assert {path.name for path in there.iterdir() if path.is_file()} == {path.name for path in written}
    for path in written:
        assert path.read_text() == (there / path.name).read_text()

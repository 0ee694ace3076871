"""The Python of the pages on federations runs; the commands of docs/flower.md do in test_deployment.py."""

import re
from contextlib import nullcontext
from math import exp, log, sqrt

import pytest

pytest.importorskip("flwr", reason="needs the extra: pip install -e '.[flower]'")

import numpy as np
import torch
from scipy.optimize import brentq
from scipy.stats import norm

from fedskew import Run, Store, simulate
from fedskew.algorithms import describe
from fedskew.core import rng
from fedskew.data import load_dataset
from fedskew.flower import Rules, client_app
from fedskew.flower.server import _private_rules, federate
from fedskew.simulation.plan import Plan
from tests.flower.in_process import RUN, THREE, Nodes
from tests.test_docs import ROOT, paste
from tests.test_docs import blocks as blocks_of

MODEL = """from torch import nn


def build():
    return nn.Sequential(nn.Flatten(), nn.Linear(64, 16), nn.ReLU(), nn.Linear(16, 10))
"""


FLOWER, PRIVACY, REFERENCE = (f"docs/{name}.md" for name in ("flower", "privacy", "federation-reference"))


def python_of(page):
    return blocks_of(page, "python")


def text_of(page):
    """Its words, wherever its lines end."""
    return " ".join((ROOT / page).read_text().split())


def test_the_app_is_what_init_writes(tmp_path):
    from fedskew.flower.app import write_app

    _, code = write_app(tmp_path / "app", Run(), Rules())
    lines = [line for line in python_of(FLOWER)[1].splitlines() if line]
    assert all(line in code.read_text() for line in lines)


def test_the_apps_with_privacy():
    for code in python_of(PRIVACY):
        exec(compile(code, PRIVACY, "exec"), {})


def test_what_the_noise_of_the_examples_costs_and_hides():
    """Gaussian differential privacy: delta = Phi(mu/2 - eps/mu) - exp(eps) Phi(-mu/2 - eps/mu) (Dong, Roth and Su)."""
    text, (local, central) = text_of(PRIVACY), python_of(PRIVACY)
    assert "sensitivity=2.0, epsilon=0.9, delta=1e-5" in local
    assert "strategy, 1.0, 0.5, 3)" in central
    assert f"here {2.0 * sqrt(2 * log(1.25 / 1e-5)) / 0.9:.1f}," in text
    epsilons = [_epsilon(sqrt(rounds) / 0.5, 1e-5) for rounds in (1, 10)]
    assert "epsilon is {:.1f} after one round and {:.1f} after ten".format(*epsilons) in text


def _epsilon(mu, delta):
    phi = norm.cdf
    return brentq(lambda eps: phi(mu / 2 - eps / mu) - exp(eps) * phi(-mu / 2 - eps / mu) - delta, 0, 100)


def test_an_evaluation_of_ones_own_measures_as_the_server_does(tmp_path, monkeypatch):
    """On the test examples of a data set, the page's function gives the numbers of a simulation."""
    known = load_dataset("digits", 0, 3)
    np.savez(tmp_path / "test.npz", x=known.prepare(known.x_test, torch.float32).numpy(), y=known.y_test.numpy())
    (tmp_path / "my_model.py").write_text(MODEL)
    monkeypatch.syspath_prepend(tmp_path)
    code = python_of(REFERENCE)[0].replace("/data/test.npz", str(tmp_path / "test.npz"))
    found: dict = {}
    exec(compile(code, REFERENCE, "exec"), found)
    run = RUN.model_copy(update={"model": f"{tmp_path / 'my_model.py'}:build"})
    store = Store(tmp_path / "runs")
    federate(Nodes(client_app(run), THREE), run, Rules(store=str(store.root)), evaluate=found["evaluate"])
    for mine, theirs in zip(store.folder(run.hash).records(), simulate(run), strict=True):
        for name in ("accuracy", "balanced_accuracy", "loss"):
            assert mine[name] == pytest.approx(getattr(theirs, name))


def test_nodes_measure_the_model_with_the_files_of_the_page(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    exec(compile(python_of(FLOWER)[2], FLOWER, "exec"), {})
    run = Run(dataset="nodes:64,10", clients=3, rounds=10, algorithm="fedlc", lr=0.01, batch_size=16)
    configs = [{"client-id": client, "data": str(tmp_path / f"client{client}.npz")} for client in range(3)]
    store = Store(tmp_path / "runs")
    federate(Nodes(client_app(run), configs), run, Rules(store=str(store.root)))
    assert store.folder(run.hash).records()[-1]["accuracy"] > 0.5


def test_a_rehearsal_gives_the_numbers_of_the_federation(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    for code in python_of(FLOWER)[2:4]:
        exec(compile(code, FLOWER, "exec"), {})
    (command,) = re.findall(r"^fedskew run .*npz:whole\.npz.*$", (ROOT / FLOWER).read_text(), re.M)
    paste(command, capsys)
    run = Run(dataset="nodes:64,10", clients=3, rounds=10, algorithm="fedlc", lr=0.01, batch_size=16)
    rehearsed = run.replace(dataset="npz:whole.npz", partition="natural")
    check_rehearsal(Store("runs").folder(rehearsed.hash).records(), run, tmp_path)


def test_a_rehearsal_with_images_prints_the_mean_and_std_that_nodes_need(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    generator = np.random.default_rng(0)
    for client in range(3):
        sizes = {"train": 20 + 10 * client, "test": 9}
        labels = {part: np.arange(size) % 4 for part, size in sizes.items()}
        images = {
            part: (generator.integers(0, 60, (len(y), 3, 8, 8)) + 40 * y[:, None, None, None]).astype(np.uint8)
            for part, y in labels.items()
        }
        arrays = {f"x_{part}": x for part, x in images.items()} | {f"y_{part}": y for part, y in labels.items()}
        np.savez(f"client{client}.npz", **arrays)
    exec(compile(python_of(FLOWER)[3], FLOWER, "exec"), {})
    printed = ",".join(capsys.readouterr().out.split())
    fields = {"clients": 3, "rounds": 3, "model": "mlp:hidden=8", "lr": 0.05, "batch_size": 16, "algorithm": "fedlc"}
    rehearsed = [record.as_dict() for record in simulate(Run(dataset="npz:whole.npz", partition="natural", **fields))]
    check_rehearsal(rehearsed, Run(dataset=f"nodes:3x8x8,4,{printed}", **fields), tmp_path)


def check_rehearsal(rehearsed, run, folder):
    """A federation of the nodes with the files of the folder records what its rehearsal did."""
    configs = [{"client-id": client, "data": str(folder / f"client{client}.npz")} for client in range(3)]
    store = Store(folder / "federated")
    federate(Nodes(client_app(run), configs), run, Rules(store=str(store.root)))
    for mine, theirs in zip(store.folder(run.hash).records(), rehearsed, strict=True):
        for name in ("accuracy", "client_accuracy", "loss", "train_loss"):
            assert mine[name] == pytest.approx(theirs[name], abs=1e-4)


def test_the_loss_in_an_app_of_ones_own():
    found: dict = {}
    exec(compile(python_of(FLOWER)[0], FLOWER, "exec"), found)
    generator = torch.Generator().manual_seed(0)
    images, labels = torch.randn(200, 4, generator=generator), torch.arange(200) % 2
    images[:, 0] += 4 * labels
    with rng.seeded(0, "model"):
        model = torch.nn.Linear(4, 3)
        for _ in range(5):
            reply = found["train"](model, images, labels, num_classes=3)
    assert reply["metrics"]["num-examples"] == 200
    assert set(reply["arrays"]) == {"weight", "bias"}
    assert (model(images)[:, :2].argmax(-1) == labels).float().mean() > 0.9  # class 2 is not this client's to judge


def test_what_runs_with_differential_privacy_is_what_the_table_says():
    text = (ROOT / PRIVACY).read_text()
    table = text.partition("## What a server learns")[2].partition("## ")[0]
    rows = [line.strip("| ").split(" | ") for line in table.splitlines() if line.startswith("| `")]
    said = {name: kinds for methods, _, _, *kinds in rows for name in re.findall(r"`(\w+)`", methods)}
    assert set(said) == {method.name for method in describe()}
    checks = (lambda plan: plan.check_private("it"), lambda plan: _private_rules(plan, Rules()))
    for name, kinds in said.items():
        plan = Plan.of(Run(algorithm=name, weighting="uniform"), load_dataset("digits", 0, 20))
        for kind, check in zip(kinds, checks, strict=True):
            assert kind == "yes" or kind.startswith("refused")
            refused = pytest.raises(ValueError, match=r"differential privacy|protects only")
            with nullcontext() if kind == "yes" else refused:
                check(plan)

"""The programs in benchmarks/ run, and what they compare does the same work. How fast they are is no test."""

from importlib import import_module
from pathlib import Path

import pytest

from benchmarks import convnet, core
from benchmarks.by_hand import AUTOGRAD, PLAIN, TUNED, Batched
from benchmarks.clients import start

PROGRAMS = sorted(path.stem for path in (Path(__file__).parent.parent / "benchmarks").glob("*.py"))


@pytest.mark.parametrize("name", PROGRAMS)
def test_a_benchmark_can_be_imported(name):
    import_module(f"benchmarks.{name}")


def test_the_bare_convolutional_loop_trains_the_same_network():
    simulation = convnet.start("serial")
    convnet.check_same_work(convnet.Bare(simulation.federation.dataset), simulation)


@pytest.mark.parametrize("step", [AUTOGRAD, PLAIN, TUNED])
def test_the_loops_by_hand_give_the_same_parameters(step):
    simulation = start(1_000)
    initial = simulation.server.params["linear.weight"], simulation.server.params["linear.bias"]
    core.check_same_work(simulation, Batched(simulation.federation, *initial, step))

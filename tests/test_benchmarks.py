"""The programs in benchmarks/ run, and what they compare does the same work. How fast they are is no test."""

import json
from importlib import import_module
from pathlib import Path

import pytest

from benchmarks import convnet, core, distributed, messages, reach
from benchmarks.by_hand import AUTOGRAD, PLAIN, TUNED, Batched
from benchmarks.clients import start
from benchmarks.tables import Table, missed
from benchmarks.timing import Figure, Spread
from fedskew import Run, simulate

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


def test_sums_of_ranks_messages_and_reach_are_measured(monkeypatch):
    assert len(distributed.task("10")().delta["w"]) == 10
    monkeypatch.setattr(messages, "SIZES", {"100 parameters": 100})
    assert {figure.part for figure in messages.measure(2)} == {"100 parameters"}
    run = Run(dataset="digits", partition="shards:1", clients=10, rounds=1, algorithm="scaffold")
    (record,) = simulate(run, [reach.watching()])
    assert record.probes.keys() == {"params", "message"}


@pytest.fixture
def results(tmp_path):
    """A file of figures: one goal met, one missed, one set for the inverse of what a table has."""
    figures = [
        Figure("rounds", "ours", Spread(5.0, 4.0, 6.0), "ms"),
        Figure("rounds", "theirs", Spread(100.0, 90.0, 1234.0), "ms"),
        Figure("rounds", "ours / by hand", Spread(1.5, 1.25, 2.5), "x", 2.0),
        Figure("rounds", "import", Spread(343.0, 296.0, 623.0), "ms", 300.0),
        Figure("rounds", "theirs / ours", Spread(20.0, 18.0, 22.0), "x"),
        Figure("rounds", "ours / theirs", Spread(0.05, 0.04, 0.06), "x", 0.1),
    ]
    (tmp_path / "benchmark_toy.json").write_text(json.dumps({"figures": [figure.as_dict() for figure in figures]}))
    return tmp_path


def test_a_table_says_which_goals_are_met(results):
    rows = {"ours": "`ours`", "by hand": "by hand", "import": "import"}
    assert Table("toy", rows, {"a round": "{}", "ours against it": "ours / {}"})(results).splitlines() == [
        "|  | a round | ours against it | goal |",
        "| --- | --- | --- | --- |",
        "| `ours` | 5 ms |  |  |",
        "| by hand |  | 1.50x (1.25 to 2.50) | at most 2x: met |",
        "| import | 343 ms (296 to 623) |  | at most 300 ms: **missed** |",
    ]
    assert missed(results, "toy") == (3, [("import", "343 ms (296 to 623)", "at most 300 ms, missed by 14 %")])


def test_a_goal_for_the_inverse_is_turned_over(results):
    table = Table("toy", {"theirs": "theirs"}, {"against ours": "{} / ours"}, inverse="ours / {}")
    assert table(results).splitlines()[-1] == "| theirs | 20x (18 to 22) | at least 10x: met |"


def test_a_table_without_goals_has_no_column_for_them(results):
    assert Table("toy", {"ours": "ours"}, {"a round": "rounds: {}"})(results).splitlines()[0] == "|  | a round |"


def test_a_row_that_is_not_in_the_file_is_an_error(results):
    with pytest.raises(ValueError, match=r"benchmark_toy\.json has no figure of 'nobody'"):
        Table("toy", {"nobody": "nobody"}, {"a round": "{}"})(results)

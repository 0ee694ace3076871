import pytest

from fedskew.experiments.advice import advise
from fedskew.experiments.evidence import load
from fedskew.experiments.try_command import methods, shown, source, try_command, untried
from tests.experiments.test_advice import dirichlet, near, table


def test_the_command_names_the_data_the_counts_came_from(tmp_path):
    advice = advise(dirichlet(0.1), load())
    words = try_command(advice, {"dataset": "digits", "partition": "dirichlet:0.1", "seed": 7}, None)
    assert words[:8] == ["fedskew", "compare", "--dataset", "digits", "--partition", "dirichlet:0.1", "--seed", "7"]
    assert "npz:mine.npz" in try_command(advice, {}, "npz:mine.npz")
    (tmp_path / "run.json").write_text("damaged")
    assert source(tmp_path / "partition.json", {"dataset": "digits"}) == {"dataset": "digits"}


def test_training_is_that_of_the_setting_that_speaks_most_for_the_first_method():
    counts = dirichlet(0.1)
    known = table({"fedavg": 60, "fedlc": 64}, skew=near(counts))
    other = table({"fedavg": 50, "fedlc": 68}, skew=near(counts), local_epochs=5, momentum=0.9, rounds=80)
    known["settings"] += other["settings"]
    words = shown(try_command(advise(counts, known), {}, None))
    assert "--rounds 80 --local-epochs 5 --batch-size 128 --lr 0.01 --momentum 0.9 --seeds 3" in words


def test_a_name_from_a_file_is_quoted():
    advice = advise(dirichlet(0.1), load())
    words = try_command(advice, {"dataset": "folder:my data; rm x", "partition": "dirichlet:0.1"}, None)
    assert "'folder:my data; rm x'" in shown(words)


@pytest.mark.parametrize(("reached", "wanted"), [({"fedlc": 64, "fedrs": 70}, 3), ({"fedlc": 59}, 2)])
def test_what_nothing_is_known_about_is_not_compared(reached, wanted):
    counts = dirichlet(0.1)
    advice = advise(counts, table({"fedavg": 60, **reached}, skew=near(counts)))
    assert len(methods(advice)) == wanted
    assert not set(untried(advice)) & {"fedavg", *reached}
    assert "scaffold" in untried(advice)

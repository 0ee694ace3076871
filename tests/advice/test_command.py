import pytest

from fedskew.advice.command import batch_size, methods, notes, shown, source, try_command, untried
from fedskew.advice.evidence import load
from fedskew.advice.findings import advise
from tests.advice.test_findings import dirichlet, near, table


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
    assert "--rounds 80 --local-epochs 5 --batch-size 16 --lr 0.01 --momentum 0.9 --seeds 3" in words


@pytest.mark.parametrize(
    ("published", "smallest", "used"), [(128, 500, 128), (128, 128, 128), (128, 127, 64), (128, 3, 16), (8, 3, 8)]
)
def test_the_batch_size_is_one_that_the_smallest_client_can_fill(published, smallest, used):
    assert batch_size(published, smallest) == used


def test_what_is_not_carried_over_is_said():
    counts = dirichlet(0.1)
    usual = advise(counts, table({"fedavg": 60, "fedlc": 64}, skew=near(counts)))
    first, batch = notes(usual)
    assert first == "The command trains as [1] did, but does not carry over its model cnn."
    assert batch == f"Its batch size is 16, not 128: the smallest client has {counts.sum(1).min()} examples."
    more = {"augment": "crop_flip", "clients_per_round": 10, "validation": 0.1}
    odd = advise(10 * counts, table({"fedavg": 60, "fedlc": 64}, skew=near(counts), **more))
    (first,) = notes(odd)
    assert first.endswith("its model cnn, augment crop_flip, validation 0.1, clients_per_round 10.")
    assert notes(advise(counts, {"partitions": {}, "settings": []})) == []


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

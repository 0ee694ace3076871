import shlex

import pytest

from fedskew import Run, simulate
from fedskew.advice.command import batch_size, source, try_command
from fedskew.advice.evidence import load
from fedskew.advice.findings import advise
from fedskew.advice.kinds import kind_of
from tests.advice.test_findings import IMAGES, advised, dirichlet, near, own, table


def command(advice, origin=None, dataset=None):
    return shlex.join(try_command(advice, origin or {}, dataset).words)


def test_the_command_names_the_data_the_counts_came_from(tmp_path):
    advice = advise(dirichlet(0.1), load())
    said = command(advice, {"dataset": "digits", "partition": "dirichlet:0.1", "seed": 7})
    assert said.startswith("fedskew compare --dataset digits --partition dirichlet:0.1 --seed 7 --clients 20 ")
    assert "npz:mine.npz" in command(advice, {}, "npz:mine.npz")
    (tmp_path / "run.json").write_text("damaged")
    assert source(tmp_path / "partition.json", {"dataset": "digits"}) == {"dataset": "digits"}


def test_training_is_that_of_the_evidence_for_what_is_recommended():
    counts = dirichlet(0.1)
    known = table({"fedavg": 60, "fedlc": 64}, 3, near(counts))
    more = {"local_epochs": 5, "momentum": 0.9, "rounds": 80, "augment": "crop_flip", "clients_per_round": 10}
    known["settings"] += table({"fedavg": 50, "fedlc": 68, "fedrs": 40}, 3, near(counts), **more)["settings"]
    assert command(advise(counts, known, kind=IMAGES)).endswith(
        "--clients 20 --rounds 80 --local-epochs 5 --batch-size 16 --lr 0.01 --momentum 0.9 --augment crop_flip "
        "--seeds 3 --algorithm fedavg,fedlc"
    )


def test_training_is_not_taken_from_another_kind_of_data():
    advice = advised({"fedavg": 60, "fedlc": 64}, 3, kind=kind_of("digits"), lr=0.5)
    assert " --clients 20 --rounds 50 --batch-size 16 --lr 0.1 --seeds 3 --algorithm fedavg,fedlc" in command(advice)
    assert [note for note in try_command(advice, {}, None).notes if "`fedskew tune` chooses lr" in note]
    alike = advised({"fedavg": 60, "fedlc": 64}, 3, kind=IMAGES, lr=0.5)
    assert not [note for note in try_command(alike, {}, "cifar10").notes if "start" in note]


def test_data_of_unknown_kind_are_trained_long_enough_to_learn():
    """The command as it is printed, on data of one's own: FedAvg is far above chance."""
    words = try_command(advise(dirichlet(0.1), load()), {"dataset": "digits", "partition": "dirichlet:0.1"}, None).words
    asked = dict(zip(words[2::2], words[3::2], strict=True))
    fields = {name: asked[f"--{name}"] for name in ("dataset", "partition", "clients", "rounds", "lr")}
    run = Run(**fields, batch_size=asked["--batch-size"])
    assert simulate(run).result().accuracy > 0.7


def test_training_is_that_of_the_run_the_counts_came_from():
    advice = advise(dirichlet(0.1), load(), kind=kind_of("digits"))
    run = {"dataset": "digits", "partition": "iid", "seed": 4, "model": "logistic", "rounds": 30, "local_epochs": 2,
           "batch_size": 64, "lr": 0.1, "momentum": 0.0, "clients_per_round": 5}  # fmt: skip
    said = command(advice, run)
    assert (
        "--rounds 30 --local-epochs 2 --batch-size 64 --lr 0.1 --momentum 0 --model logistic --clients-per-round 5"
        in said
    )
    unknown = advise(dirichlet(0.1), load())
    assert "--rounds 50 --batch-size 16 --lr 0.1 " in command(unknown, run, "npz:mine.npz")
    recommended = advised({"fedavg": 60, "fedlc": 64}, seeds=3)
    assert recommended.do == "use"
    assert "--rounds 30 --local-epochs 2 --batch-size 64 " in command(recommended, run)


def test_ones_own_runs_are_continued_with_more_seeds():
    mine = own({"fedavg": 90, "fedopt": 92}, lr=0.1, batch_size=32)
    said = command(
        advised({"fedavg": 60, "fedlc": 64}, own=mine, kind=kind_of("digits")), {"dataset": "digits", "seed": 2}
    )
    assert said.startswith("fedskew compare --dataset digits --seed 0 ")
    assert said.endswith(
        "--rounds 30 --local-epochs 1 --batch-size 32 --lr 0.1 --momentum 0 --seeds 5 --algorithm fedavg,fedopt"
    )


def test_short_runs_of_ones_own_are_repeated_longer():
    mine = own({"fedavg": 90, "fedopt": 92}, rounds=5, lr=0.3)
    advice = advised({"fedavg": 60, "fedlc": 60}, 3, own=mine, dataset="digits", kind=kind_of("digits"))
    assert " --rounds 50 --local-epochs 1 --batch-size 128 --lr 0.3 " in command(advice, {"dataset": "digits"})


@pytest.mark.parametrize(
    ("published", "smallest", "used"), [(128, 500, 128), (128, 128, 128), (128, 127, 64), (128, 3, 16), (8, 3, 8)]
)
def test_the_batch_size_is_one_that_the_smallest_client_can_fill(published, smallest, used):
    assert batch_size(published, smallest) == used


def test_there_is_no_command_without_a_method_to_try():
    assert try_command(advise(dirichlet(0.1), {"partitions": {}, "settings": []}), {}, "digits") is None


def test_a_name_from_a_file_is_quoted():
    advice = advise(dirichlet(0.1), load())
    said = command(advice, {"dataset": "folder:my data; rm x", "partition": "dirichlet:0.1"})
    assert "'folder:my data; rm x'" in said


def test_variants_are_options_of_their_own():
    mine = own({"fedavg": 90, "fedlc:tau=1": 93, "fedopt": (92, 94, 92.5)})
    said = command(advised({"fedavg": 60, "fedlc": 64}, own=mine))
    assert said.endswith("--algorithm fedavg,fedopt --algorithm fedlc:tau=1")

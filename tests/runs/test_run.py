import json
import re

import numpy as np
import pytest

from fedskew import Run


def test_defaults_are_the_papers():
    run = Run()
    assert (run.clients, run.clients_per_round, run.batch_size, run.local_epochs) == (20, 20, 128, 1)
    assert (run.lr, run.momentum, run.weight_decay, run.weighting) == (0.01, 0.0, 0.0, "samples")


def test_specs_are_stored_with_every_default():
    run = Run(algorithm="fedlc+scaffold", dataset="synthetic:1,1")
    assert run.algorithm == "fedlc:tau=5,missing=floor,denominator=all+scaffold"
    assert run.dataset == "synthetic:lam=1,mu=1,max_size=none"
    assert (run.partition, run.model) == ("natural", "logistic")
    assert run.short == {
        "dataset": "synthetic:1,1",
        "partition": "natural",
        "model": "logistic",
        "algorithm": "fedlc+scaffold",
    }


def test_json_round_trip():
    run = Run(algorithm="fedopt:server=yogi", grad_clip=1.5, lr_schedule="step:10")
    again = Run.model_validate_json(run.model_dump_json())
    assert again == run
    assert again.hash == run.hash
    assert json.loads(run.model_dump_json())["lr_schedule"] == "step:every=10,factor=0.1"


def test_hash_covers_what_decides_the_result_and_nothing_else():
    base = Run(algorithm="fedlc")
    same = [
        Run(algorithm="fedlc:tau=5.0"),
        Run(algorithm="fedlc", engine="serial"),
        Run(algorithm="fedlc", eval_every=7),
        Run(algorithm="fedlc", data_dir="elsewhere"),
        Run(algorithm="fedlc", rounds=3),
    ]
    assert {run.hash for run in same} == {base.hash}
    other = [
        Run(algorithm="fedlc:tau=2"),
        Run(algorithm="fedlc", seed=1),
        Run(algorithm="fedlc", lr=0.02),
        Run(algorithm="fedlc", partition="iid"),
        Run(algorithm="fedlc", precision="fp64"),
        Run(algorithm="fedlc", clients_per_round=5),
        Run(algorithm="fedlc", lr_schedule="cosine"),
    ]
    assert len({run.hash for run in [base, *other]}) == len(other) + 1


def test_a_schedule_over_all_rounds_makes_rounds_count():
    assert Run(lr_schedule="cosine", rounds=5).hash != Run(lr_schedule="cosine", rounds=6).hash


def test_hash_covers_the_users_file(tmp_path):
    file = tmp_path / "mine.py"
    file.write_text("from fedskew import fedlc\n\ndef mine(tau: float = 2.0):\n    return fedlc(tau)\n")
    first = Run(algorithm=f"{file}:mine")
    file.write_text(file.read_text() + "# changed\n")
    second = Run(algorithm=f"{file}:mine")
    assert first.algorithm == second.algorithm
    hashes = {second.hash}
    file.write_text(file.read_text() + "# changed again\n")
    assert second.hash not in hashes


def test_a_file_whose_name_is_the_end_of_anothers_hides_no_change_of_that(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "a.py").write_text("from fedskew import fedprox\n\ndef pulled(): return fedprox()\n")
    hashes = set()
    for tau in (1, 2):
        (tmp_path / "aa.py").write_text(f"from fedskew import fedlc\n\ndef mine(): return fedlc(tau={tau})\n")
        hashes.add(Run(algorithm="a.py:pulled+aa.py:mine").hash)
    assert len(hashes) == 2


def test_a_path_that_is_a_part_of_another_word_is_replaced_as_a_whole(tmp_path, monkeypatch):
    (tmp_path / "x=y").mkdir()  # no spec can say the whole path
    monkeypatch.chdir(tmp_path / "x=y")
    for name in ("p", "split"):
        (tmp_path / "x=y" / name).write_text("[[0, 1], [2, 3]]")
    assert Run(partition="replay:p", clients=2).hash == Run(partition="replay:split", clients=2).hash


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"algorithm": "fedlx"}, ["fedlx", "fedlc"]),
        ({"algorithm": "FedLC"}, ["unknown algorithm 'FedLC': did you mean fedlc?"]),
        ({"algorithm": "fedlc:tua=1"}, ["tua", "tau"]),
        ({"algorithm": "fedlc:tau=-1"}, ["-1", "0 or more"]),
        ({"algorithm": "fedlc:tau=nan"}, ["tau", "nan"]),
        ({"algorithm": "fedlc:missing=drop"}, ["drop", "floor"]),
        ({"algorithm": "fedlc+fedrs"}, ["fedlc", "fedrs", "loss"]),
        ({"algorithm": "fedopt:server=adm"}, ["adm", "adam"]),
        ({"algorithm": "nowhere.py:f"}, ["nowhere.py"]),
        ({"dataset": "digit"}, ["digit", "digits"]),
        ({"dataset": "synthetic:1"}, ["mu"]),
        ({"dataset": "synthetic:1,1", "partition": "iid"}, ["iid", "natural"]),
        ({"partition": "dirchlet:0.1"}, ["dirchlet", "dirichlet"]),
        ({"partition": "Q(2)"}, ["unknown partition 'Q(2)': did you mean shards:2? known: ", "dirichlet"]),
        ({"partition": "d(0.1)"}, ["did you mean dirichlet:0.1?"]),
        ({"partition": "Dirichlet(0.1)"}, ["did you mean dirichlet:0.1?"]),
        ({"partition": "Z(2)"}, ["unknown partition 'Z(2)': known: "]),
        ({"partition": "dirichlet:-1"}, ["-1"]),
        ({"partition": "shards"}, ["needs a"]),
        ({"model": "cn"}, ["cn", "cnn"]),
        ({"lr": -0.1}, ["lr", "-0.1", "greater than 0"]),
        ({"lr": float("nan")}, ["lr", "nan"]),
        ({"momentum": 1.0}, ["momentum", "less than 1"]),
        ({"weight_decay": -1}, ["weight_decay"]),
        ({"rounds": 0}, ["rounds", "0"]),
        ({"clients": -3}, ["clients", "-3"]),
        ({"clients_per_round": 30}, ["30", "20"]),
        ({"clients_per_round": 1.5}, ["clients_per_round", "1.5"]),
        ({"clients_per_round": "150%"}, ["clients_per_round", "150%"]),
        ({"clients_per_round": "0%"}, ["clients_per_round", "0%"]),
        ({"clients_per_round": 0}, ["clients_per_round is 0", "1 or more", "leave it out for all"]),
        ({"clients_per_round": "0"}, ["clients_per_round is 0"]),
        ({"clients_per_round": "00"}, ["clients_per_round is 00"]),
        ({"clients_per_round": 0.0}, ["clients_per_round is 0"]),
        ({"clients_per_round": "inf"}, ["clients_per_round is inf"]),
        ({"clients_per_round": "many"}, ["clients_per_round", "many"]),
        ({"clients_per_round": -1}, ["clients_per_round", "-1"]),
        ({"dropout_rate": 1.0}, ["dropout_rate"]),
        ({"grad_clip": 0}, ["grad_clip"]),
        ({"lr_schedule": "step:5,3"}, ["factor is 3"]),
        ({"lr_schedule": "cosin"}, ["cosine"]),
        ({"engine": "stackd"}, ["stackd", "stacked"]),
        ({"device": "gpu"}, ["gpu", "cuda"]),
        ({"precision": "fp8"}, ["fp8", "bf16"]),
        ({"weighting": "equal"}, ["equal", "uniform"]),
        ({"algorithm": "scaffold", "optimizer": "adam"}, ["scaffold", "sgd", "adam"]),
        ({"algorithm": "fednova", "optimizer": "yogi"}, ["fednova", "sgd"]),
        ({"optimizer": "adam", "momentum": 0.9}, ["momentum", "adam"]),
        ({"learning_rate": 0.1}, ["learning_rate"]),
        ({"seed": -1}, ["seed", "-1"]),
        ({"partition": "natural:off"}, ["natural:off", "no argument"]),
        ({"local_epochs": 10**30}, ["local_epochs", "less than 2147483648"]),
        ({"clients": 1 << 20_000}, ["clients", "0x1000", "less than 2147483648"]),
        ({"rounds": True}, ["rounds is on"]),
        ({"data_dir": "a\0b"}, ["data_dir", "without control characters", "\\x00"]),
        ({"dataset": "npz:\x1b[2J"}, ["dataset", "without control characters", "\\x1b"]),
    ],
)
def test_wrong_requests_name_the_value_and_what_is_allowed(fields, words):
    with pytest.raises(ValueError) as caught:  # noqa: PT011
        Run(**fields)
    line = str(caught.value)
    assert "\n" not in line
    for word in words:
        assert word in line


def test_a_file_is_known_by_what_is_in_it(tmp_path, monkeypatch):
    """However its path is spelt, from whatever folder, a run is the same; its title has the name alone."""
    x, y = np.random.default_rng(0).random((20, 3), dtype=np.float32), np.arange(20) % 2
    (tmp_path / "one").mkdir()
    (tmp_path / "other").mkdir()
    for folder, values in (("one", x), ("other", 2 * x)):
        np.savez(tmp_path / folder / "mine.npz", x_train=values, y_train=y, x_test=values, y_test=y)
        (tmp_path / folder / "own.py").write_text("from fedskew import fedlc\n\ndef mine(): return fedlc()\n")
    whole = f"npz:{tmp_path / 'one' / 'mine.npz'}"
    monkeypatch.chdir(tmp_path / "one")
    spelt = [Run(dataset=text, clients=2) for text in ("npz:mine.npz", "npz:./mine.npz", "npz:../one/mine.npz", whole)]
    assert len({run.hash for run in spelt}) == 1
    assert {run.title for run in spelt} == {"npz:mine.npz dirichlet:0.1, 2 clients"}
    own = Run(algorithm="own.py:mine").hash
    monkeypatch.chdir(tmp_path / "other")
    assert Run(dataset=spelt[0].dataset, clients=2).hash == spelt[0].hash
    assert Run(dataset="npz:mine.npz", clients=2).hash != spelt[0].hash
    assert Run(algorithm="own.py:mine").hash == own
    assert Run(algorithm=f"{tmp_path}/one/own.py:mine").hash == own


def test_a_run_tells_what_is_in_the_users_files(tmp_path):
    x, y = np.zeros((4, 2), np.float32), np.array([0, 1, 0, 1])
    data, code = tmp_path / "mine.npz", tmp_path / "own.py"
    np.savez(data, x_train=x, y_train=y, x_test=x, y_test=y)
    code.write_text("from fedskew import fedlc\n\ndef mine(): return fedlc()\n")
    fields = {"dataset": f"npz:{data}", "clients": 2, "algorithm": f"{code}:mine"}
    before = Run(**fields).contents
    assert re.fullmatch("algorithm [0-9a-f]{8}, dataset [0-9a-f]{8}", before)
    code.write_text("from fedskew import fedlc\n\ndef mine(): return fedlc(tau=1.0)\n")
    after = Run(**fields).contents
    assert [a == b for a, b in zip(before.split(", "), after.split(", "), strict=True)] == [False, True]
    assert Run().contents == ""


@pytest.mark.parametrize(
    ("given", "clients", "number"),
    [
        (10, 100, 10),
        ("10", 100, 10),
        (0.1, 100, 10),
        ("0.1", 100, 10),
        ("10%", 100, 10),
        ("10 %", 100, 10),
        (1, 100, 1),
        (1.0, 100, 100),
        ("100%", 100, 100),
        (0.01, 20, 1),
        (0.26, 10, 3),
        (None, 20, 20),
    ],
)
def test_clients_per_round_is_a_number_or_a_share(given, clients, number):
    run = Run(clients=clients, clients_per_round=given)
    assert run.clients_per_round == number
    assert run.hash == Run(clients=clients, clients_per_round=number).hash


def test_a_run_with_other_fields_is_checked_as_a_new_one():
    run = Run(lr=0.1, clients=7)
    assert run.replace(lr=0.2) == Run(lr=0.2, clients=7)
    assert run.replace(clients=50).clients_per_round == 50
    assert run.replace(dataset="synthetic:1,1") == Run(lr=0.1, clients=7, dataset="synthetic:1,1")
    assert Run(clients=7, clients_per_round=3).replace(clients=50).clients_per_round == 3
    with pytest.raises(ValueError, match="lr is '-1'"):
        run.replace(lr=-1.0)


def test_another_data_set_names_its_own_clients(tmp_path):
    x, y = np.zeros((30, 2), np.float32), np.arange(30) % 2
    for name, clients in (("three", 3), ("five", 5)):
        client = np.arange(30) % clients
        np.savez(tmp_path / f"{name}.npz", x_train=x, y_train=y, x_test=x, y_test=y, client=client)
    run = Run(dataset=f"npz:{tmp_path}/three.npz", partition="natural")
    other = run.replace(dataset=f"npz:{tmp_path}/five.npz")
    assert (other.clients, other.clients_per_round) == (5, 5)
    assert run.replace(partition="iid").clients == 3
    assert run.replace(dataset="digits", partition="iid", clients=4).clients == 4


def test_the_title_of_data_that_only_nodes_have_is_short():
    long = "nodes:3x32x32,10,mean=125/123/114,std=63/62/67,names=a/b/c/d/e/f/g/h/i/j"
    assert Run(dataset=long, clients=3).title == "nodes:3x32x32,10, 3 clients"
    assert Run(dataset=long, clients=3).short["dataset"] == long

"""Which runs make one section, and in which order sections come."""

import statistics

import pytest

from fedskew.report.page.federations import hashes_of
from fedskew.report.page.tables import words
from fedskew.runs.store import Store
from tests.report.page_store import accuracy_of, example_store, gathered, write_run


def test_runs_that_differ_in_method_and_seed_are_one_federation(tmp_path):
    (found,) = gathered(example_store(tmp_path))
    assert [method.name for method in found.methods] == ["fedavg", "scaffold", "fedlc"]
    assert [entry.run["seed"] for entry in found.methods[0].entries] == [0, 1, 2]


def test_engine_and_device_do_not_part_runs_but_everything_else_does(tmp_path):
    store = Store(tmp_path)
    write_run(store, "a" * 16)
    write_run(store, "b" * 16, seed=1, engine="serial", device="cuda", eval_every=5)
    write_run(store, "c" * 16, lr=0.2)
    write_run(store, "d" * 16, rounds=30)
    write_run(store, "e" * 16, title="cifar10", dataset="cifar10")
    assert sorted(len(federation.entries) for federation in gathered(store)) == [1, 1, 1, 2]


def test_what_compares_the_most_methods_comes_first(tmp_path):
    """Three finished seeds of two methods or more; otherwise sections are in order of their titles."""
    store = Store(tmp_path)
    seeds = {
        "a one seed": {"fedavg": 1, "fedlc": 1, "fedrs": 1},
        "b one method": {"fedavg": 5},
        "c two methods": {"fedavg": 3, "fedlc": 3, "fedrs": 2},
        "d two methods": {"fedavg": 4, "fedlc": 4},
        "e three methods": {"fedavg": 3, "fedlc": 3, "fedrs": 3},
    }
    for title, methods in seeds.items():
        for method, count in methods.items():
            for seed in range(count):
                write_run(store, f"{title[0]}{method}{seed}", title=title, algorithm=method, seed=seed, rounds=2)
    for seed in range(3):
        write_run(store, f"f{seed}", title="f unfinished", seed=seed, rounds=2)
        write_run(store, f"g{seed}", title="f unfinished", seed=seed, rounds=2, done=1, algorithm="fedlc")
    assert [each.title[0] for each in gathered(store)] == ["e", "c", "d", "a", "b", "f"]


def asked_again(folder, rounds):
    """The same run is asked for with another number of rounds."""
    about = folder.about()
    folder.create(about["hash"], {**about["run"], "rounds": rounds}, about["short"], about["result_version"])


def test_a_longer_run_is_compared_by_its_first_rounds_where_it_was_asked_for_them(tmp_path):
    store = Store(tmp_path)
    for seed in range(3):
        asked_again(write_run(store, f"a{seed}", seed=seed, rounds=40), 12)
        write_run(store, f"b{seed}", seed=seed, rounds=40, algorithm="fedlc", gain=0.05)
        write_run(store, f"c{seed}", seed=seed, rounds=12, algorithm="fedrs", gain=0.1)
    short, long = gathered(store)
    assert [[method.name for method in one.methods] for one in (short, long)] == [
        ["fedavg", "fedrs"],
        ["fedavg", "fedlc"],
    ]
    assert [(entry.state, entry.summary["rounds"]) for entry in short.methods[0].entries] == [("done", 12)] * 3
    mean = statistics.fmean(100 * (accuracy_of(number, 0.1) - accuracy_of(number, 0)) for number in range(7, 13))
    assert short.difference(short.methods[1]).mean == pytest.approx(mean)
    assert hashes_of([short, long]) == ["a0", "a1", "a2", "c0", "c1", "c2", "b0", "b1", "b2"]


def test_a_run_that_was_extended_has_one_section(tmp_path):
    store = Store(tmp_path)
    asked_again(write_run(store, "a", rounds=40), 12)
    (found,) = gathered(store)
    assert found.rounds == 40


def test_where_only_a_longer_fedavg_is_stored_the_section_says_how_to_compare(tmp_path):
    store = Store(tmp_path)
    write_run(store, "a", rounds=40)
    write_run(store, "b", rounds=12, algorithm="fedlc")
    short, _ = gathered(store)
    (said,) = words(short)
    assert "no fedavg run of 12 rounds to compare with, but one of 40" in said
    assert "--rounds 12" in said
    write_run(store, "c", rounds=12, algorithm="fedlc", lr=0.5)
    (said,) = words(gathered(store)[2])
    assert said.startswith("There is no fedavg run with these settings to compare with. Settings that fedskew tune")
    write_run(store, "d", rounds=12, algorithm="fedlc", title="zoo", dataset="other")
    assert words(gathered(store)[3]) == ["There is no fedavg run with these settings to compare with."]


def test_a_method_with_a_result_version_of_its_own_stands_with_the_others_and_old_numbers_apart(tmp_path):
    store = Store(tmp_path)
    write_run(store, "a" * 16)
    write_run(store, "b" * 16, algorithm="scaffold")
    write_run(store, "c" * 16, algorithm="scaffold", version=1)
    assert [[method.name for method in one.methods] for one in gathered(store)] == [
        ["fedavg", "scaffold"],
        ["scaffold"],
    ]


def test_a_second_run_of_a_method_and_seed_stands_apart(tmp_path):
    store = Store(tmp_path)
    for hash in ("a", "b"):
        write_run(store, hash, algorithm="mine.py:loss")
    (found,) = gathered(store)
    assert [method.name for method in found.methods] == ["mine.py:loss", "mine.py:loss (2)"]


def test_functions_of_one_name_are_not_seeds_of_one_method(tmp_path):
    store = Store(tmp_path)
    for hash, digest, seed in (("a", "1", 0), ("b", "2", 0), ("c", "2", 1), ("d", "1", 1), ("e", "3", 2)):
        write_run(store, hash, algorithm=f"mine@{16 * digest}", called="mine", seed=seed)
    (found,) = gathered(store)
    told = {method.name: [entry.hash for entry in method.entries] for method in found.methods}
    assert told == {"mine": ["a", "d"], "mine (2)": ["b", "c"], "mine (3)": ["e"]}


def test_each_content_of_a_users_file_is_a_method_of_its_own(tmp_path):
    """A file that changed between runs: seeds of one content stay together, whichever hash comes first."""
    store = Store(tmp_path)
    runs = (("d", "old", 0), ("b", "new", 0), ("a", "old", 1), ("c", "new", 1), ("e", "new", 2))
    for hash, content, seed in runs:
        write_run(store, hash, algorithm="mine.py:loss", seed=seed, contents=f"algorithm {content}")
    write_run(store, "f", algorithm="mine.py:other", contents="algorithm old")
    (found,) = gathered(store)
    told = {method.name: [entry.hash for entry in method.entries] for method in found.methods}
    assert told == {
        "mine.py:loss (file new)": ["b", "c", "e"],
        "mine.py:loss (file old)": ["d", "a"],
        "mine.py:other": ["f"],
    }


def test_each_content_of_a_data_file_is_a_federation_of_its_own(tmp_path):
    store = Store(tmp_path)
    for hash, content, seed in (("a", "old", 0), ("b", "new", 0), ("c", "old", 1), ("d", "new", 1)):
        write_run(store, hash, seed=seed, contents=f"algorithm x, dataset {content}")
    found = {one.name: [entry.hash for entry in one.entries] for one in gathered(store)}
    assert found == {"digits, dataset content new": ["b", "d"], "digits, dataset content old": ["a", "c"]}


def test_a_name_leaves_out_what_most_federations_of_the_title_have(tmp_path):
    store = Store(tmp_path)
    for hash, fields in {"a": {}, "b": {"lr": 0.2}, "c": {"momentum": 0.9}, "d": {"lr": 0.2, "batch_size": 8}}.items():
        write_run(store, hash, **fields)
    assert {one.entries[0].hash: one.name for one in gathered(store)} == {
        "a": "digits, lr 0.1",
        "b": "digits, lr 0.2",
        "c": "digits, lr 0.1, momentum 0.9",
        "d": "digits, batch size 8, lr 0.2",
    }


def test_a_digest_is_named_only_where_one_file_had_several_contents(tmp_path):
    store = Store(tmp_path)
    for hash, model, content in (("a", "n.py:f", "x"), ("b", "cnn", None), ("c", "g.py:f", "y"), ("d", "g.py:f", "z")):
        write_run(store, hash, model=model, contents=content and f"model {content}")
    assert {one.name for one in gathered(store)} == {
        "digits, model n.py:f",
        "digits, model cnn",
        "digits, model g.py:f, model content y",
        "digits, model g.py:f, model content z",
    }

"""The table of evidence is what the published results say."""

import json
from pathlib import Path

import numpy as np
import pytest

from docs.pages import evidence_table
from fedskew import cross_entropy
from fedskew.advice import evidence
from fedskew.runs.measures import rounds_to_reach
from fedskew.runs.run import Run
from fedskew.runs.store import Store
from fedskew.simulation.plan import build_federation, describe_partition
from fedskew.simulation.session import simulate
from tests.paper.test_tables import result

ROOT = Path(__file__).parents[2]


def published():
    return evidence_table.published(ROOT / path for path in evidence_table.SOURCES)


def test_the_table_is_regenerated_to_the_byte():
    known, lines = evidence.load()["partitions"], published()
    assert set(known) <= {evidence.partition_name(line) for line in lines}
    new = {evidence.partition_name(line) for line in lines} - set(known)
    stale = "evidence.json is not what `make evidence` writes"
    try:
        table = evidence_table.build(lines, known)
    except (FileNotFoundError, ValueError) as error:
        pytest.fail(f"{stale}: nothing is known of partitions {new} ({error})")
    assert evidence_table.FILE.read_text() == evidence_table.text(table), stale


def test_the_table_has_what_was_measured_on_digits():
    digits = [setting for setting in evidence.load()["settings"] if setting["dataset"] == "digits"]
    assert {(one["partition"], one["momentum"]) for one in digits} >= {("dirichlet:0.1", 0.0), ("shards:2", 0.9)}
    for one in digits:
        assert one["methods"]["fedlc"]["seeds"] == one["methods"]["fedavg"]["seeds"] == [0, 1, 2, 3, 4]


def test_every_figure_is_that_of_a_published_run():
    lines = {(line.hash, line.rounds): line for line in published()}
    for setting in evidence.load()["settings"]:
        for name, method in setting["methods"].items():
            for hash, accuracy, seed in zip(method["runs"], method["accuracy"], method["seeds"], strict=True):
                line = lines[hash, setting["rounds"]]
                run = Run(**line.run)
                assert (run.short_algorithm, run.seed, run.rounds) == (name, seed, setting["rounds"])
                known = None if line.diverged else pytest.approx(line.summary["accuracy_last10"], abs=1e-6)
                assert accuracy == known


def test_rounds_to_fedavgs_end_are_those_of_the_measure():
    lines = {(line.hash, line.rounds): line for line in published()}

    def curves(setting, name):
        method = setting["methods"][name]
        return {s: lines[h, setting["rounds"]].curve for s, h in zip(method["seeds"], method["runs"], strict=True)}

    for setting in evidence.load()["settings"]:
        for name, method in setting["methods"].items():
            assert len(method["reach"]) == len(method["seeds"])
            if None in method["accuracy"] + setting["methods"]["fedavg"]["accuracy"]:
                continue
            found = rounds_to_reach(curves(setting, name), curves(setting, "fedavg"))
            kept = [r for s, r in zip(method["seeds"], method["reach"], strict=True)
                    if s in setting["methods"]["fedavg"]["seeds"]]  # fmt: skip
            assert sum(r is not None for r in kept) == found.reached
            if found.reached == found.seeds:
                assert sorted(kept)[len(kept) // 2] == found.rounds


def test_a_diverged_run_reaches_nothing():
    runs = [Run(dataset="synthetic:1,1", clients=3, algorithm=name, rounds=2) for name in ("fedavg", "fedlc")]
    made = [result(runs[0], 0.5), result(runs[1], 0.9, diverged=True)]
    (setting,) = evidence.settings(made)
    assert setting["methods"]["fedlc"]["reach"] == [None]
    made = [result(runs[0], 0.5, diverged=True), result(runs[1], 0.9)]
    (setting,) = evidence.settings(made)
    assert setting["methods"]["fedlc"]["reach"] == [None]


SMALL = {"dataset": "synthetic:1,1,max_size=60", "clients": 4, "rounds": 2}


def stored(store, *algorithms, **more):
    for name in algorithms:
        for _ in simulate(Run(algorithm=name, **{**SMALL, **more}), store=store):
            pass


def split(**more):
    run = Run(**{**SMALL, **more})
    return np.array(describe_partition(run, build_federation(run))["counts"]), run.dataset


def test_own_settings_are_those_with_a_run_on_the_split_and_their_other_seeds(tmp_path):
    store = Store(tmp_path)
    stored(store, "fedavg", "fedlc")
    stored(store, "fedavg", "fedlc", seed=1)
    stored(store, "fedavg", "fedlc", clients=3)
    stored(store, "fedavg", lr=0.5)  # nothing to compare
    counts, dataset = split()
    for data in (dataset, None):
        (setting,), problems = evidence.own_settings(store, counts, data)
        assert problems == []
        assert setting["clients"] == 4
        assert {name: method["seeds"] for name, method in setting["methods"].items()} == {
            "fedavg": [0, 1],
            "fedlc": [0, 1],
        }
    assert evidence.own_settings(store, counts, "digits")[0] == []
    assert evidence.own_settings(store, split(seed=2)[0], dataset)[0] == []
    assert evidence.own_settings(Store(tmp_path / "none"), counts, dataset) == ([], [])


def test_functions_of_one_name_are_not_seeds_of_one_method(tmp_path):
    store = Store(tmp_path)

    def mine(factor):
        def loss(logits, labels, counts):
            return factor * cross_entropy(logits, labels, counts)

        return loss

    stored(store, "fedavg", mine(1.0))
    stored(store, "fedavg", mine(2.0), seed=1)
    (setting,), _ = evidence.own_settings(store, *split())
    seeds = [method["seeds"] for name, method in setting["methods"].items() if name.startswith("loss@")]
    assert sorted(seeds) == [[0], [1]]


def test_own_settings_name_files_so_that_a_command_finds_them(tmp_path):
    x, y = np.random.default_rng(0).random((60, 3), dtype=np.float32), np.arange(60) % 3
    np.savez(tmp_path / "mine.npz", x_train=x, y_train=y, x_test=x, y_test=y)
    (tmp_path / "own.py").write_text("from fedskew import fedlc\ndef mine(): return fedlc()\n")
    store, own = Store(tmp_path / "runs"), {"dataset": f"npz:{tmp_path / 'mine.npz'}", "partition": "dirichlet:0.3"}
    stored(store, "fedavg", f"{tmp_path}/own.py:mine", **own)
    (setting,), _ = evidence.own_settings(store, split(**own)[0], None)
    assert setting["dataset"] == f"npz:path={tmp_path / 'mine.npz'}"
    assert setting["partition"] == "dirichlet:0.3"
    assert list(setting["methods"]) == [f"{tmp_path}/own.py:mine", "fedavg"]


def test_runs_with_an_earlier_content_of_a_users_file_do_not_count(tmp_path):
    store, file = Store(tmp_path / "runs"), tmp_path / "own.py"
    file.write_text("from fedskew import fedlc\ndef mine(): return fedlc()\n")
    stored(store, "fedavg", f"{file}:mine")
    stored(store, "fedavg", f"{file}:mine", seed=1)
    file.write_text("from fedskew import fedlc\ndef mine(): return fedlc(tau=1.0)\n")
    stored(store, f"{file}:mine", seed=1)
    (setting,), problems = evidence.own_settings(store, *split())
    assert setting["methods"][f"{file}:mine"]["seeds"] == [1]
    assert problems == ["2 runs with an earlier content of your own files"]
    file.unlink()
    assert evidence.own_settings(store, *split()) == ([], ["3 runs with an earlier content of your own files"])


def test_a_damaged_run_is_named_and_the_others_count(tmp_path):
    store = Store(tmp_path)
    stored(store, "fedavg", "fedlc", "fedrs")
    damaged = next(folder for folder in store if folder.run()["algorithm"].startswith("fedrs"))
    (damaged.path / "records.jsonl").write_text("{\n")
    (setting,), (problem,) = evidence.own_settings(store, *split())
    assert set(setting["methods"]) == {"fedavg", "fedlc"}
    assert damaged.path.name in problem


def test_settings_without_fedavg_or_a_rival_are_not_evidence():
    runs = [Run(dataset="synthetic:1,1", clients=3, algorithm=name, rounds=2) for name in ("fedlc", "fedavg")]
    for run in runs:
        assert evidence_table.build([result(run, 0.5)], {})["settings"] == []


def test_data_sets_that_share_a_partition_hash_have_skews_of_their_own():
    known = evidence.load()["partitions"]
    lines = [line for line in published() if line.run["dataset"].startswith("synthetic")]
    first = {evidence.partition_name(line): line for line in lines if line.run["seed"] == 0}
    assert len(first) == 3
    assert len({line.summary["partition_hash"] for line in first.values()}) == 1
    for name, line in first.items():
        run = Run(**{**line.run, "device": "cpu", "data_dir": None})
        assert known[name]["skew"] == pytest.approx(describe_partition(run, build_federation(run))["skew"], abs=1e-6)
    assert len({known[name]["skew"]["mean_total_variation"] for name in first}) == 3


def test_a_new_partition_is_split_again():
    run = Run(dataset="synthetic:1,1,max_size=100", clients=5, rounds=2)
    card = describe_partition(run, build_federation(run))
    both = [result(run.model_copy(update={"algorithm": name}), 0.5) for name in ("fedavg", "fedlc:tau=5")]
    for one in both:
        one.summary["partition_hash"] = card["hash"]
    table = evidence_table.build(both, {})
    (kept,) = table["partitions"].values()
    assert kept["skew"] == pytest.approx(card["skew"], abs=1e-6)
    assert json.loads(evidence_table.text(table)) == table
    for one in both:
        one.summary["partition_hash"] = "f" * 64
    with pytest.raises(ValueError, match="splitting again gives"):
        evidence_table.build(both, {})

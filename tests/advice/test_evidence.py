"""The table of evidence is what the published results say."""

import json
from pathlib import Path

import pytest

from fedskew.advice import evidence
from fedskew.runs.results import Results, read_lines
from fedskew.runs.run import Run
from fedskew.simulation.plan import build_federation, describe_partition
from tests.paper.test_tables import result

PUBLISHED = Path(__file__).parents[2] / "results" / "paper"


def test_the_table_is_regenerated_to_the_byte():
    known = evidence.load()["partitions"]
    lines = [line for path in sorted(PUBLISHED.glob("*.jsonl")) for line in read_lines(path)]
    assert set(known) <= {evidence.partition_name(line) for line in lines}
    new = {evidence.partition_name(line) for line in Results(None, PUBLISHED)} - set(known)
    stale = "evidence.json is not what `make evidence` writes"
    try:
        table = evidence.build(Results(None, PUBLISHED), known)
    except (FileNotFoundError, ValueError) as error:
        pytest.fail(f"{stale}: nothing is known of partitions {new} ({error})")
    assert evidence.FILE.read_text() == evidence.text(table), stale


def test_every_figure_is_that_of_a_published_run():
    lines = {(line.hash, line.rounds): line for line in Results(None, PUBLISHED)}
    for setting in evidence.load()["settings"]:
        for name, method in setting["methods"].items():
            for hash, accuracy, seed in zip(method["runs"], method["accuracy"], method["seeds"], strict=True):
                line = lines[hash, setting["rounds"]]
                run = Run(**line.run)
                assert (run.short_algorithm, run.seed, run.rounds) == (name, seed, setting["rounds"])
                assert accuracy == pytest.approx(line.summary["accuracy_last10"], abs=1e-6)


def test_settings_without_fedavg_or_a_rival_are_not_evidence():
    runs = [Run(dataset="synthetic:1,1", clients=3, algorithm=name, rounds=2) for name in ("fedlc", "fedavg")]
    for run in runs:
        assert evidence.build([result(run, 0.5)], {})["settings"] == []


def test_data_sets_that_share_a_partition_hash_have_skews_of_their_own():
    known = evidence.load()["partitions"]
    lines = [line for line in Results(None, PUBLISHED) if line.run["dataset"].startswith("synthetic")]
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
    table = evidence.build(both, {})
    (kept,) = table["partitions"].values()
    assert kept["skew"] == pytest.approx(card["skew"], abs=1e-6)
    assert json.loads(evidence.text(table)) == table
    for one in both:
        one.summary["partition_hash"] = "f" * 64
    with pytest.raises(ValueError, match="here it is"):
        evidence.build(both, {})

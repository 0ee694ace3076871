"""Advice from evidence that a test made up, and from the published one."""

import numpy as np
import pytest
import torch

from fedskew import partition
from fedskew.advice.command import methods, try_command
from fedskew.advice.evidence import build, load, partition_name
from fedskew.advice.findings import FAR, NEAR, advise, distance, scaled
from fedskew.advice.text import evidence, lines, verdicts
from fedskew.core import rng
from fedskew.runs.run import Run
from tests.paper.test_tables import result

BALANCED = torch.arange(10).repeat_interleave(500)
SKEW = {"mean_total_variation": 0.7, "effective_classes": 2.0, "missing_share": 0.5, "size_gini": 0.3}


def dirichlet(beta, seed=7):
    """Label counts of the paper's federations: 20 clients, 10 classes of the same size."""
    parts = partition.dirichlet(beta)(BALANCED, 20, rng.stream(seed, "partition"))
    return partition.counts(parts, BALANCED, 10)


def table(reached, seeds=1, skew=SKEW, **more):
    """Evidence from accuracies in percent by method, the same for every seed."""
    fields = {"dataset": "cifar10", "partition": "dirichlet:0.1", "rounds": 400, **more}
    runs = [Run(algorithm=name, seed=s, **fields) for name in reached for s in range(seeds)]
    found = [result(run, reached[next(n for n in reached if run.algorithm.startswith(n))] / 100) for run in runs]
    return known(found, skew)


def known(found, skew):
    """The table of results whose partitions all have this skew."""
    card = {"clients": 20, "classes": 10, "samples": 5000, "skew": skew}
    return build(found, {partition_name(one): card for one in found})


def near(counts):
    """The skew of counts themselves: evidence at distance zero."""
    return partition.skew_indices(counts)


def test_the_distance_is_the_mean_difference_of_indices_between_0_and_1():
    one = scaled(SKEW, 10)
    assert one["effective_classes"] == 0.2
    other = {**one, "effective_classes": 0.4, "size_gini": 0.1}
    assert distance(one, other) == pytest.approx(0.1)
    assert distance(one, one) == 0


def test_what_it_says_about_methods():
    counts = dirichlet(0.1)
    made = table({"fedavg": 60, "fedlc": 64, "fedrs": 50, "fedprox": 60}, seeds=2, skew=near(counts))
    other = table({"fedavg": 50, "fedrs": 58}, seeds=2, skew=near(counts), local_epochs=10, rounds=20)
    alone = table({"fedavg": 50, "fedlc": 50.5, "fedla": 70}, skew=near(counts), local_epochs=5, rounds=19)
    made["settings"] += other["settings"] + alone["settings"]
    advice = advise(counts, made)
    assert {row["method"]: row["verdict"] for row in advice["methods"]} == {
        "fedlc": "worth trying",
        "fedrs": "depends",
        "fedla": "not decided",
        "fedprox": "no gain",
    }
    assert advice["near"]
    assert [item["shortened"] for item in advice["evidence"]] == [False, True, True]
    fedlc, fedrs = advice["methods"][:2]
    assert (fedlc["above"], fedlc["below"], fedlc["one_seed"], fedlc["best"]) == ([1], [], [3], 1)
    assert (fedrs["above"], fedrs["below"], fedrs["most_seeds"]) == ([2], [1], 2)
    assert (fedlc["lowest"], fedlc["highest"]) == (pytest.approx(0.5), pytest.approx(4))
    text = "\n".join(lines(advice))
    assert "Above FedAvg over several seeds in some of it: fedlc, fedrs." in text
    assert "What comes from [3] rests on one seed, which decides nothing." in text
    assert "worth trying: above in [1] +4.00 [+4.00, +4.00] over 2 seeds; one seed in [3], +0.50" in text
    assert "no gain in this evidence: tied in [1] +0.00 [+0.00, +0.00] over 2 seeds" in text
    assert "Shorter than the paper's runs: [2]-[3]." in text
    assert "20 rounds of the paper's 400, E 10" in text
    for item in made["settings"]:
        for method in item["methods"].values():
            assert all(run in text for run in method["runs"])


def test_only_evidence_for_the_same_training():
    counts = dirichlet(0.1)
    made = table({"fedavg": 60, "fedlc": 64}, skew=near(counts), momentum=0.9)
    assert advise(counts, made, momentum=0.9, local_epochs=None)["evidence"]
    without = advise(counts, made, momentum=0.0)
    assert without["evidence"] == []
    assert "no evidence for this way of training" in "\n".join(lines(without))


def test_it_says_when_no_method_beat_fedavg():
    counts = dirichlet(0.1)
    advice = advise(counts, table({"fedavg": 60, "fedlc": 60, "fedrs": 50}, seeds=2, skew=near(counts)))
    text = "\n".join(verdicts(advice))
    assert "No method is known to be above FedAvg here.\nFedAvg is the one to try first." in text
    assert methods(advice) == ["fedavg", "fedlc"]


def test_one_seed_recommends_nothing_and_says_what_to_try():
    counts = dirichlet(0.1)
    reached = {"fedavg": 60, "fedlc": 80, "fedrs": 50, "fedla": 61}
    advice = advise(counts, table(reached, skew=near(counts)))
    assert {row["verdict"] for row in advice["methods"]} == {"not decided"}
    assert methods(advice) == ["fedavg", "fedlc", "fedla"]
    text = "\n".join(verdicts({**advice, "try": methods(advice)[1:]}))
    assert "No method is known to be above FedAvg here." in text
    assert "All of this rests on one seed, which decides nothing. Try these over several seeds: fedlc, fedla." in text
    assert "fedlc            not decided: one seed in [1], +20.00" in text
    assert "worth trying" not in text


def test_it_says_when_there_is_no_evidence_near():
    counts = np.full((20, 10), 50)
    some = {"mean_total_variation": 0.2, "effective_classes": 8.0, "missing_share": 0.3, "size_gini": 0.0}
    off = advise(counts, table({"fedavg": 60, "fedlc": 64}, skew=some))
    assert not off["near"]
    assert NEAR < off["nearest"] < FAR
    assert "No evidence is near. The nearest is cifar10/dirichlet:0.1 at distance 0.17." in "\n".join(verdicts(off))
    far = advise(counts, table({"fedavg": 60, "fedlc": 64}))
    assert far["nearest"] > FAR
    assert (far["evidence"], far["methods"]) == ([], [])
    assert "There is no evidence near" in "\n".join(lines(far))
    assert set(methods(far)) > {"fedavg", "fedlc", "scaffold", "fedla"}


def test_a_variant_is_chosen_on_held_out_examples_never_on_the_test_set():
    counts = dirichlet(0.1)
    fields = {"dataset": "cifar10", "partition": "dirichlet:0.1", "validation": 0.1}
    found = [
        result(Run(algorithm="fedavg", **fields), 0.5),
        result(Run(algorithm="fedlc:tau=1", **fields), 0.9, validation_accuracy=0.6),
        result(Run(algorithm="fedlc:tau=2", **fields), 0.7, validation_accuracy=0.8),
    ]
    advice = advise(counts, known(found, near(counts)))
    (gain,) = advice["evidence"][0]["gains"]
    assert (gain["algorithm"], gain["why"]) == ("fedlc:tau=2", "best on held-out examples")
    assert gain["mean"] == pytest.approx(20)
    text = "\n".join(evidence(advice))
    assert "fedlc:tau=2 one seed, +20.00 / +20.00 (best on held-out examples; fedlc:tau=1 one seed, +40.00" in text
    assert try_command(advice, {}, None)[-4:] == ["--algorithm", "fedavg", "--algorithm", "fedlc:tau=2"]


def test_it_says_when_nothing_was_held_out_to_choose_a_variant_on():
    counts = dirichlet(0.1)
    found = [
        result(Run(algorithm=name, dataset="synthetic:1,1"), accuracy, validation_accuracy=None)
        for name, accuracy in {"fedavg": 0.5, "fedlc": 0.4, "fedlc:tau=1": 0.6}.items()
    ]
    text = "\n".join(evidence(advise(counts, known(found, near(counts)))))
    assert "fedlc one seed, -10.00 / -10.00 (our default; nothing was held out; fedlc:tau=1 one seed, +10.00" in text


def test_numbers_are_those_of_what_is_shown_nearest_first():
    counts = dirichlet(0.1)
    skew = near(counts)
    made = {"partitions": {}, "settings": []}
    for seed, gap in enumerate((0.398, 0.41, 0.0)):
        off = {**skew, "size_gini": skew["size_gini"] + gap}
        runs = [Run(algorithm=name, seed=seed, rounds=100 + seed) for name in ("fedavg", "fedlc")]
        one = known([result(run, 0.5) for run in runs], off)
        made = {key: value | one[key] if key == "partitions" else value + one[key] for key, value in made.items()}
    shown = advise(counts, made)["evidence"]
    assert [(item["number"], item["setting"]["rounds"]) for item in shown] == [(1, 102), (2, 100)]


def test_gains_are_paired_by_seed_and_a_diverged_one_counts_against_a_method():
    counts = dirichlet(0.1)
    runs = [Run(algorithm=name, seed=seed) for name in ("fedavg", "fedlc") for seed in (0, 1, 2)]
    found = [
        result(run, accuracy, diverged=accuracy == 0)
        for run, accuracy in zip(runs, [0.5, 0.6, 0.4, 0.62, 0.73, 0], strict=True)
    ]
    advice = advise(counts, known(found, near(counts)))
    (gain,) = advice["evidence"][0]["gains"]
    assert (gain["mean"], gain["half"]) == (pytest.approx(12.5), pytest.approx(12.7062 * 0.5, abs=1e-3))
    assert (gain["seeds"], gain["diverged"], gain["verdict"]) == ([0, 1], [2], "above")
    assert advice["methods"][0]["verdict"] == "depends"
    text = "\n".join(lines(advice))
    assert "above in [1] +12.50 [+6.15, +18.85] over 2 seeds; diverged in [1]" in text
    assert "fedlc above, +12.50 [+6.15, +18.85] over 2 seeds / +12.50, seeds 2 diverged" in text
    assert methods(advice) == ["fedavg", "fedlc"]


@pytest.mark.parametrize(
    ("counts", "word"), [(np.array([[3, 4, 5]]), "one client"), (np.array([[3, 0], [4, 0]]), "one class")]
)
def test_one_client_and_one_class_leave_nothing_to_compare(counts, word):
    advice = advise(counts, load())
    assert word in "\n".join(lines(advice))
    assert advice["methods"] == []
    assert try_command(advice, {}, None) is None


def both(*tables):
    """Evidence of several tables."""
    partitions = {name: card for one in tables for name, card in one["partitions"].items()}
    return {"partitions": partitions, "settings": [setting for one in tables for setting in one["settings"]]}


def test_where_nothing_is_near_the_nearest_cell_alone_is_used():
    counts = np.full((20, 10), 50)
    some = {"mean_total_variation": 0.2, "effective_classes": 8.0, "missing_share": 0.3, "size_gini": 0.0}
    first = table({"fedavg": 60, "fedlc": 50}, skew=some)
    second = table({"fedavg": 60, "fedlc": 64}, seeds=1, skew={**some, "size_gini": 0.01}, dataset="svhn")
    advice = advise(counts, both(first, second))
    assert [item["cell"] for item in advice["evidence"]] == ["cifar10/dirichlet:0.1"]
    assert "What follows is about that alone, one training on one split, one seed" in "\n".join(verdicts(advice))


def test_verdicts_are_per_data_set():
    counts = dirichlet(0.1)
    images = table({"fedavg": 60, "fedlc": 64}, skew=near(counts))
    made_up = table({"fedavg": 60, "fedlc": 50, "fednova": 70}, seeds=2, skew=near(counts), dataset="synthetic:1,1",
                    partition="")  # fmt: skip
    advice = advise(counts, both(images, made_up))
    assert {(row["data"], row["method"]): row["verdict"] for row in advice["methods"]} == {
        ("cifar10", "fedlc"): "not decided",
        ("synthetic", "fedlc"): "no gain",
        ("synthetic", "fednova"): "worth trying",
    }
    text = "\n".join(verdicts(advice))
    assert "On cifar10 (cnn), one training on one split, one seed:" in text
    assert "On synthetic (logistic regression, generated data), one training on 2 splits, 2 seeds:" in text
    assert methods(advice) == ["fedavg", "fednova"]  # fedlc is below where there are seeds


@pytest.mark.parametrize(("seeds", "verdict"), [(1, "not decided"), (2, "tied"), (5, "above")])
def test_a_setting_is_judged_by_its_seeds(seeds, verdict):
    counts = dirichlet(0.1)
    fields = {"dataset": "cifar10", "partition": "dirichlet:0.1,balance=off", "rounds": 100}
    found = [result(Run(algorithm="fedavg", seed=s, **fields), 0.5) for s in range(seeds)]
    found += [result(Run(algorithm="fedlc", seed=s, **fields), 0.55 + 0.01 * (s % 2)) for s in range(seeds)]
    found[-1].summary["accuracy"] = 0.501
    advice = advise(counts, known(found, near(counts)))
    (gain,) = advice["evidence"][0]["gains"]
    assert gain["verdict"] == verdict
    assert "100 rounds of the paper's 400" in "\n".join(lines(advice))


def test_what_was_below_more_often_than_above_is_not_in_the_command():
    counts = dirichlet(0.1)
    reached = [(64, 70), (64, 50), (64, 50)]
    tables = [
        table({"fedavg": 60, "fedlc": fedlc, "fedrs": fedrs}, seeds=2, skew=near(counts), local_epochs=epochs)
        for epochs, (fedlc, fedrs) in enumerate(reached, 1)
    ]
    advice = advise(counts, both(*tables))
    assert [row["verdict"] for row in advice["methods"]] == ["worth trying", "depends"]
    assert methods(advice) == ["fedavg", "fedlc"]
    assert methods({**advice, "methods": advice["methods"][1:]}) == ["fedavg"]


def test_the_papers_settings_get_advice_of_their_own():
    """Each has published runs; neighbours share evidence, and the nearest is told apart from the rest."""
    said = {}
    for beta in (0.05, 0.1, 0.3, 0.5):
        advice = advise(dirichlet(beta), load())
        nearest = advice["evidence"][0]
        assert nearest["cell"] == f"cifar10/dirichlet:{beta}"
        assert nearest["distance"] <= FAR
        assert all(gain["runs"] for item in advice["evidence"] for gain in [item["base"], *item["gains"]])
        (alone,) = [line for line in lines(advice) if line.startswith(f"On the nearest alone, {nearest['cell']}: ")]
        (highest,) = [line for line in lines(advice) if line.startswith(f"The highest accuracy on {nearest['cell']}")]
        said[beta] = alone.partition(": ")[2], highest
        for row in advice["methods"]:  # nothing is recommended that seeds have not shown
            assert bool(row["above"]) == (row["verdict"] in ("worth trying", "depends"))
            assert not row["above"] or row["most_seeds"] > 1
    for part in (0, 1):
        assert len({one[part] for one in said.values()}) == 4


def test_the_nearest_cell_is_told_apart_only_from_others():
    counts = dirichlet(0.1)
    one = table({"fedavg": 60, "fedlc": 64, "fedrs": 50}, skew=near(counts))
    assert not [line for line in lines(advise(counts, one)) if line.startswith("On the nearest alone")]

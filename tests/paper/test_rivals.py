"""How methods compare on each data set, from results made up."""

from dataclasses import replace

from docs.pages import choosing, rivals
from fedskew.paper import TABLES
from fedskew.paper.choice import Choice
from fedskew.paper.profiles import PROFILES
from fedskew.runs.results import Result
from tests.paper.test_front import USUAL, runs_of
from tests.paper.test_tables import Known, result, with_curve


def told(found: list[Result], data: str = "cifar100") -> list[str]:
    """Lines of the table."""
    known = Known(found)
    return [*map(" | ".join, rivals.rows(known, data, "usual")), *map(" | ".join, rivals.firsts(known, data, "usual"))]


def cifar100(split: str, accuracies: dict[str, list[float]]) -> list[Result]:
    return runs_of(f"cifar100/{split}", USUAL, accuracies)


def test_methods_that_are_ahead_of_fedlc_are_named_with_every_verdict() -> None:
    hard = {"fedavg": [0.5] * 3, "fedlc": [0.6, 0.7, 0.8], "fedopt": [0.61, 0.71, 0.81], "fedprox": [0.59]}
    easy = {"fedavg": [0.7], "fedlc": [0.8], "fedopt": [0.79], "fednova": [0.81], "fedla": [0.9]}
    found = [*runs_of("cifar10/dirichlet:0.1", USUAL, hard), *runs_of("cifar10/shards:8", USUAL, easy)]
    assert list(rivals.against_fedlc(Known(found), "cifar10")) == [
        ["`fednova` against FedLC", "not decided in Q(8)", "+1.0", "1"],
        ["`fedopt` against FedLC", "above in D(0.1) and not decided in Q(8)", "-1.0 to +1.0", "1 to 3"],
    ]
    alone = runs_of("cifar10/shards:8", USUAL, {"fedavg": [0.7], "fedlc": [0.8]})
    assert not list(rivals.against_fedlc(Known(alone), "cifar10"))
    assert not told(alone), "another data set"


def test_fedlc_logit_adjustment_and_who_is_first_are_told() -> None:
    hard = {"fedavg": [0.4], "fedlc": [0.43], "fedla": [0.41], "fedopt": [0.42], "fedacg": [0.9]}
    mild = {"fedavg": [0.5], "fedlc": [0.495], "fedopt": [0.54]}
    level = {"fedavg": [0.52], "fedlc": [0.55], "fedopt": [0.5505]}
    splits = ("dirichlet:0.05", "dirichlet:0.5", "shards:80")
    found = [run for split, at in zip(splits, (hard, mild, level), strict=True) for run in cifar100(split, at)]
    assert told(found) == [
        "FedLC against FedAvg | not decided in D(0.05), D(0.5), Q(80) | -0.5 to +3.0 | 1",
        "`fedla` against FedLC | not decided in D(0.05) | -2.0 | 1",
        "highest mean of the paper's methods | `fedlc` in D(0.05), `fedopt` in D(0.5) and nobody in Q(80) |  | 1",
        "highest mean of 3 to 5 methods, none with `refit` | `fedacg` in D(0.05), `fedopt` in D(0.5) and nobody in "
        "Q(80) |  | 1",
    ]
    assert not any("none with" in line for line in told(cifar100("dirichlet:0.5", mild))), "the same again"


def test_first_is_who_is_first_over_the_seeds_that_all_have() -> None:
    """FedOpt has one seed, and is ahead in it; FedLC is ahead only in the mean of its own seeds."""
    found = cifar100("dirichlet:0.05", {"fedavg": [0.4, 0.8], "fedlc": [0.5, 0.9], "fedopt": [0.6]})
    assert "highest mean of the paper's methods | `fedopt` in all |  | 1" in told(found)
    apart = [one for one in found if "fedopt" not in one.run["algorithm"] or one.seed]
    later = TABLES["table1"].run("cifar100/dirichlet:0.05", "fedopt", USUAL, seed=2)
    assert len(told([*apart, with_curve(later, (200, 0.9))])) == 1, "nothing in common"


def test_methods_above_fedavg_everywhere_are_listed() -> None:
    at = {"fedavg": [0.5] * 3, "fedlc": [0.5] * 3, "fednova": [0.6] * 3, "fedopt": [0.55] * 2}
    found = [*cifar100("dirichlet:0.05", at), *cifar100("dirichlet:0.1", {**at, "fednova": [0.7] * 3})]
    assert "`fednova` against FedAvg | above in D(0.05), D(0.1) | +10.0 to +20.0 | 3" in told(found)
    assert not any(line.startswith("`fedopt`") for line in told(found)), "two seeds decide nothing"


def test_methods_below_fedavg_everywhere_are_listed_too_and_combinations_whatever_they_gain() -> None:
    at = {"fedavg": [0.5] * 3, "fedlc": [0.5] * 3, "fedrs": [0.4] * 3, "fedla+fedacg": [0.6], "fedprox": [0.5] * 3}
    found = [*cifar100("dirichlet:0.05", at), *cifar100("dirichlet:0.1", {**at, "fedrs": [0.3] * 3})]
    lines = told(found)
    assert lines[1:3] == [
        "`fedla+fedacg` against FedAvg | not decided in D(0.05), D(0.1) | +10.0 | 1",
        "`fedrs` against FedAvg | below in D(0.05), D(0.1) | -20.0 to -10.0 | 3",
    ]
    assert not any(line.startswith("`fedprox`") for line in lines), "tied"


def test_a_readout_is_compared_with_fedlc_and_combinations_with_it() -> None:
    plain = {"fedavg": [0.5], "fedlc": [0.6], "fedlc+refit": [0.7]}
    assert (
        told(cifar100("dirichlet:0.1", plain))[1] == "`fedlc+refit` against FedAvg | not decided in D(0.1) | +20.0 | 1"
    )
    assert told(cifar100("dirichlet:0.1", {**plain, "refit": [0.65]}))[1:3] == [
        "`refit` (FedAvg with a fitted last layer) against FedLC | not decided in D(0.1) | +5.0 | 1",
        "`fedlc+refit` against `refit` | not decided in D(0.1) | +5.0 | 1",
    ]


def test_a_small_difference_is_told_with_its_verdict() -> None:
    found = [
        *cifar100("dirichlet:0.1", {"fedavg": [0.5] * 3, "fedlc": [0.502] * 3}),
        *cifar100("dirichlet:0.3", {"fedavg": [0.5] * 3, "fedlc": [0.6] * 3}),
    ]
    assert told(found)[0] == "FedLC against FedAvg | above in D(0.1) by 0.20, D(0.3) | +0.2 to +10.0 | 3"


def test_synthetic_data_are_told_by_profile() -> None:
    table = TABLES["table4"]
    accuracies = {"fedavg": 0.7, "fedlc": 0.6, "fednova": 0.8}
    found = [
        result(table.run("synthetic:1,1", method, Choice(), seed=seed), value)
        for method, value in accuracies.items()
        for seed in range(3)
    ]
    text = choosing.evidence(Known(found), Known([]))
    assert text.startswith("## Synthetic, profile `stated`\n\n| comparison | splits | points | seeds |")
    assert "| FedLC against FedAvg | below in (1,1) | -10.0 | 3 |" in text
    assert "| `fednova` in all |  | 3 |" in text
    assert "profile `usual`" not in text


def test_longer_runs_of_table_3_are_told() -> None:
    table, usual = TABLES["table3"], Choice(profile=PROFILES["usual"])
    cell = "imagenet12/dirichlet:0.1"
    found = []
    for method, (short, long) in {"fedavg": (0.3, 0.4), "fedlc": (0.35, 0.42), "fedopt": (0.44, 0.45)}.items():
        found.append(result(table.run(cell, method, replace(usual, rounds=200)), short))
        found.append(result(table.run(cell, method, usual, rounds=600), long))
    text = choosing.evidence(Known(found), Known([]))
    assert "| `fedopt` against FedAvg after 600 rounds | not decided in D(0.1) | +5.0 | 1 |" in text
    assert "| `fedlc` against FedAvg after 600 rounds | not decided in D(0.1) | +2.0 | 1 |" in text


def test_balanced_accuracy_is_told_of_svhn() -> None:
    found = runs_of("svhn/dirichlet:0.1", USUAL, {"fedavg": [0.8] * 3, "fedlc": [0.8] * 3})
    better = {"fedavg": 0.7, "fedlc": 0.71}
    apart = [
        replace(one, summary={**one.summary, "balanced_accuracy": better[one.short["algorithm"]]}) for one in found
    ]
    line = "| FedLC against FedAvg, balanced accuracy in the last round | above in D(0.1) | +1.0 | 3 |"
    assert line in choosing.evidence(Known(apart), Known([]))
    assert "balanced" not in choosing.evidence(Known(found), Known([]))

"""The README's answer and the opening of the page, from results made up."""

from dataclasses import replace
from pathlib import Path

from docs.pages import depends, front, rivals
from fedskew.paper import TABLES
from fedskew.paper.choice import Choice
from fedskew.paper.profiles import PROFILES
from fedskew.runs.results import Result, Results
from fedskew.runs.run import Run
from tests.paper.test_tables import Known, result, with_curve

USUAL = Choice(profile=PROFILES["usual"], rounds=200)


def runs_of(cell: str, choice: Choice, accuracies: dict[str, list[float]]) -> list[Result]:
    """Runs that begin at half of what they end with."""
    table = TABLES["table2" if "shards" in cell else "table1"]
    found = []
    for method, values in accuracies.items():
        run = table.run(cell, method, choice)
        for seed, accuracy in enumerate(values):
            one = run.model_copy(update={"seed": seed})
            found.append(with_curve(one, (10, accuracy / 2), (20, accuracy), (200, accuracy)))
    return found


def test_the_answer_is_what_the_results_say() -> None:
    hard = runs_of("cifar10/dirichlet:0.1", USUAL, {"fedavg": [0.5, 0.52, 0.51], "fedlc": [0.6, 0.62, 0.61]})
    easy = runs_of("cifar10/shards:8", USUAL, {"fedavg": [0.8], "fedlc": [0.79]})
    level = TABLES["table1"].run("cifar10/dirichlet:0.1", "fedavg", USUAL, partition="iid")
    found = Known([*hard, *easy, with_curve(level, (200, 0.9))])
    text = front.part(found, "figures")
    assert text.startswith("On CIFAR-10 under strong skew (D(0.1)), FedLC gains **+10.0 points** over FedAvg")
    assert "| CIFAR-10 | momentum, crops | above in 1, not decided in 1 | -1.0 to +10.0 (1 to 3 seeds) | +3.6" in text
    assert "FedLC closes -10 to 25 % of it" in text
    assert "after 20 of 200 rounds" in text  # where FedLC never has it, that is told in the table
    assert "With no more than the paper states" not in text  # nothing of `stated` was run
    assert "digits" not in text
    detail = "\n".join(front.detail(found))
    assert (
        "| D(0.1) | 51.0 | 61.0 | above, +10.00 [+10.00, +10.00] over 3 seeds | +17.8 | 20 | 25 % (one seed) |"
        in detail
    )
    assert "| Q(8) | 80.0 | 79.0 | not decided: one seed, -1.00 | +3.6 | never | -10 % |" in detail
    assert front.part(Results(), "figures") == ""
    assert not list(front.detail(Results()))


def test_what_the_paper_states_of_its_training_is_told_beside_it() -> None:
    usual = runs_of("cifar10/shards:2", USUAL, {"fedavg": [0.5] * 3, "fedlc": [0.6] * 3})
    stated = runs_of("cifar10/shards:2", Choice(rounds=200), {"fedavg": [0.5], "fedlc": [0.51]})
    text = front.part(Known([*usual, *stated]), "figures")
    assert "which names neither, it gains **+1.0** there (one seed); the paper prints +9.6." in text
    assert "| CIFAR-10 | neither | not decided in 1 | +1.0 (one seed) | +9.6 |" in text


def test_digits_are_told_with_the_rest() -> None:
    usual = runs_of("cifar10/shards:8", USUAL, {"fedavg": [0.7], "fedlc": [0.8]})
    digits = [
        result(Run(dataset="digits", algorithm=method, seed=seed), accuracy - seed / 100)
        for method, accuracy in {"fedavg": 0.9, "fedlc": 0.88, "fedlc:tau=1": 0.5}.items()
        for seed in range(3)
    ]
    assert "| digits | neither | below in 1 | -2.0 (3 seeds) | - |" in front.part(Known(usual), "figures", digits)


def test_it_is_told_how_much_of_the_gain_is_left_in_longer_runs() -> None:
    """With the seeds that both lengths have: other seeds may gain more."""
    short = runs_of("cifar10/dirichlet:0.1", USUAL, {"fedavg": [0.5, 0.5], "fedlc": [0.6, 0.9]})
    long = [
        with_curve(TABLES["table1"].run("cifar10/dirichlet:0.1", method, replace(USUAL, rounds=400)), (400, accuracy))
        for method, accuracy in {"fedavg": 0.6, "fedlc": 0.63}.items()
    ]
    told = "At D(0.1) it gains +3.0 after 400 rounds, +10.0 after 200 (one seed in common)."
    assert told in front.part(Known([*short, *long]), "figures")


def test_methods_that_are_ahead_of_fedlc_are_named_with_every_verdict() -> None:
    hard = {"fedavg": [0.5] * 3, "fedlc": [0.6, 0.7, 0.8], "fedopt": [0.61, 0.71, 0.81], "fedprox": [0.59]}
    easy = {"fedavg": [0.7], "fedlc": [0.8], "fedopt": [0.79], "fednova": [0.81], "fedla": [0.9]}
    found = [*runs_of("cifar10/dirichlet:0.1", USUAL, hard), *runs_of("cifar10/shards:8", USUAL, easy)]
    assert list(rivals.against_fedlc(Known(found), "cifar10")) == [
        "Against FedLC on CIFAR-10, `fednova` is not decided in Q(8) (+1.0 points, one seed); `fedopt` is above in "
        "D(0.1) and not decided in Q(8) (-1.0 to +1.0 points, 1 to 3 seeds); none of the paper's other methods is "
        "ahead in these splits (one seed)."
    ]
    alone = Known(runs_of("cifar10/shards:8", USUAL, {"fedavg": [0.7], "fedlc": [0.8]}))
    assert not list(rivals.against_fedlc(alone, "cifar10"))
    assert not list(rivals.first(alone, "cifar100"))


def test_what_closes_more_of_the_gap_is_told_and_what_it_reveals() -> None:
    level = TABLES["table1"].run("cifar10/dirichlet:0.1", "fedavg", USUAL, partition="iid")
    runs = [with_curve(level.model_copy(update={"seed": seed}), (200, 0.9)) for seed in range(3)]
    for cell in depends.CELLS:
        best = {"fedla+fedacg+refit": [0.8] * 3, "fedla+fedacg": [0.7] * 3, "fedacg": [0.89] * 2}
        runs += runs_of(cell, USUAL, {"fedavg": [0.5] * 3, "fedlc": [0.6] * 3, **best})
    told = (
        "Combinations close more: at D(0.05), D(0.1) and Q(2), `fedla+fedacg+refit` 75, 75 and 75 %, `fedla+fedacg` "
        "50, 50 and 50 %, `fedlc` 25, 25 and 25 % (3 seeds). `refit` [lets the server compute label counts]"
    )
    assert told in front.part(Known(runs), "figures")
    plain = Known([run for run in runs if "+" not in run.short["algorithm"]])
    assert "Combinations" not in front.part(plain, "figures")


def test_gains_on_other_data_are_told_with_their_seeds() -> None:
    cifar10 = runs_of("cifar10/shards:8", USUAL, {"fedavg": [0.7], "fedlc": [0.8]})
    svhn = runs_of("svhn/dirichlet:0.1", USUAL, {"fedavg": [0.8, 0.8], "fedlc": [0.79, 0.79]})
    text = front.part(Known([*cifar10, *svhn]), "figures")
    assert "| SVHN | momentum | not decided in 1 | -1.0 (2 seeds) | +4.5 |" in text


def test_who_is_first_on_another_data_set_and_what_combinations_gain() -> None:
    hard = {"fedavg": [0.4], "fedlc": [0.43], "fedopt": [0.42], "fedacg": [0.9], "fedla+fedacg": [0.5]}
    mild = {"fedavg": [0.5], "fedlc": [0.495], "fedopt": [0.54]}
    milder = {"fedavg": [0.52], "fedlc": [0.525], "fedopt": [0.55]}
    splits = ("dirichlet:0.05", "dirichlet:0.5", "shards:80")
    found = [run for split, at in zip(splits, (hard, mild, milder), strict=True) for run in _cifar100(split, at)]
    assert " ".join(rivals.first(Known(found), "cifar100")) == (
        "On CIFAR-100, FedLC against FedAvg is not decided in D(0.05), D(0.5), Q(80) (-0.5 to +3.0 points, one seed). "
        "Of the paper's methods and `fedla`, `fedopt` is first there in 2 of 3 splits, +3.0 to +4.0 over FedAvg and "
        "+2.5 to +4.0 over the next one (one seed in common). `fedla+fedacg` gains +10.0 in D(0.05) (one seed)."
    )
    assert "none is first there in more than half of the 2 splits" in " ".join(
        rivals.first(Known([*_cifar100("dirichlet:0.05", hard), *_cifar100("dirichlet:0.5", mild)]), "cifar100")
    )


def _cifar100(split: str, accuracies: dict[str, list[float]]) -> list[Result]:
    return runs_of(f"cifar100/{split}", USUAL, accuracies)


def test_the_first_method_is_first_over_the_seeds_that_all_have() -> None:
    """FedOpt has one seed, and is ahead in it; FedLC is ahead only in the mean of its own seeds."""
    found = _cifar100("dirichlet:0.05", {"fedavg": [0.4, 0.8], "fedlc": [0.5, 0.9], "fedopt": [0.6]})
    assert [*rivals.first(Known(found), "cifar100")][1:] == [
        "Of the paper's methods and `fedla`, `fedopt` is first there in 1 of 1 splits, +20.0 over FedAvg and +10.0 "
        "over the next one (one seed in common)."
    ]
    apart = [one for one in found if "fedopt" not in one.run["algorithm"] or one.seed]
    later = TABLES["table1"].run("cifar100/dirichlet:0.05", "fedopt", USUAL, seed=2)
    assert len([*rivals.first(Known([*apart, with_curve(later, (200, 0.9))]), "cifar100")]) == 1, "nothing in common"


def test_the_chart_is_drawn_of_what_was_run(tmp_path: Path) -> None:
    stated = runs_of("cifar10/dirichlet:0.1", Choice(rounds=200), {"fedavg": [0.5], "fedlc": [0.51]})
    usual = runs_of("cifar10/shards:2", USUAL, {"fedavg": [0.5, 0.5], "fedlc": [0.6, 0.7]})
    made = front.draw(Known([*stated, *usual]), tmp_path)
    assert [path.name for path in made] == ["gains.png", "gains.svg"]
    drawn = made[1].read_text()
    front.draw(Known(usual), tmp_path)
    assert drawn != made[1].read_text()


def test_what_the_gain_depends_on_names_both_settings() -> None:
    cell, accuracies = "cifar10/shards:2", {"fedavg": [0.5], "fedlc": [0.6]}
    plain = [result(TABLES["table2"].run(cell, m, Choice()), a[0]) for m, a in accuracies.items()]
    momentum = [
        result(TABLES["table2"].run(cell, m, Choice(), momentum=0.9, rounds=120), a[0] - 0.2 * (m == "fedavg"))
        for m, a in accuracies.items()
    ]
    text = "\n".join(depends.section(Known([*plain, *momentum])))
    assert (
        "- Momentum: FedLC gains +10.0 points with no momentum (400 rounds) and +30.0 with momentum 0.9 (120 rounds), "
        "in 1 of the cells below (one seed in common)." in text
    )
    assert "| Q(2) | momentum 0.9 | 120 | 30.00 | 60.00 | not decided: one seed, +30.00 | 120 |" in text
    assert "Crops" not in text
    assert list(depends.section(Results())) == []

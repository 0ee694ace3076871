"""The README's answer and the opening of the page, from results made up."""

from dataclasses import replace
from pathlib import Path

from docs.pages import depends, front
from fedskew.paper import TABLES, mapped
from fedskew.paper.choice import Choice
from fedskew.paper.map import Map
from fedskew.paper.profiles import PROFILES, Profile
from fedskew.paper.trained import CELL
from fedskew.runs.results import Result, Results
from fedskew.runs.run import Run
from tests.paper.test_balanced import known as unequal
from tests.paper.test_chosen import CHOSEN, PLAIN, TRIES
from tests.paper.test_tables import Known, result, with_curve

BOTH = {"fedavg": [0.6], "fedlc": [0.61]}
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
    assert (
        "FedLC gains **+10.0 points** of accuracy over FedAvg (200 rounds, 3 seeds, the same learning rate for both).\n"
        in text
    )
    assert "| CIFAR-10 | momentum, crops | 1 of 2 | none of 2 | -1.0 to +10.0 | +3.6 to +17.8 |" in text
    assert "Our runs have 200 rounds, the paper's 400 on CIFAR-10." in text
    assert "ombinations" not in text  # not all cells were run
    assert "The paper names neither" not in text  # nothing of `stated` was run
    assert "digits" not in text
    detail = "\n".join(front.detail(found))
    assert (
        "| D(0.1) | 51.0 | 61.0 | above, +10.00 [+10.00, +10.00] over 3 seeds | +17.8 | 20 / 20 | 25 % (one seed) |"
        in detail
    )
    assert "| Q(8) | 80.0 | 79.0 | not decided: one seed, -1.00 | +3.6 | never / 20 | -10 % |" in detail
    assert front.part(Results(), "figures") == ""
    assert not list(front.detail(Results()))


def test_what_the_paper_states_of_its_training_is_told_beside_it() -> None:
    usual = runs_of("cifar10/shards:2", USUAL, {"fedavg": [0.5] * 3, "fedlc": [0.6] * 3})
    stated = runs_of("cifar10/shards:2", Choice(rounds=200), {"fedavg": [0.5], "fedlc": [0.51]})
    text = front.part(Known([*usual, *stated]), "figures")
    assert (
        "without momentum and crops:** **+1.0** (200 rounds, one seed). The paper names neither and prints +9.6."
        in text
    )


def test_what_is_left_with_settings_chosen_for_each_is_told() -> None:
    usual = runs_of("cifar10/shards:2", USUAL, {"fedavg": [0.5] * 3, "fedlc": [0.6] * 3})
    text = front.part(Known([*usual, *PLAIN]), "figures", tuned=Known([*TRIES, *CHOSEN]))
    assert "FedLC gains +17.0 in D(0.1) (200 rounds, 3 seeds)." in text
    assert "chosen for each" not in front.part(Known(usual), "figures", tuned=Known([]))


def test_digits_are_told_with_the_rest() -> None:
    usual = runs_of("cifar10/shards:8", USUAL, {"fedavg": [0.7], "fedlc": [0.8]})
    digits = [
        result(Run(dataset="digits", algorithm=method, seed=seed, momentum=0.9), accuracy - seed / 100)
        for method, accuracy in {"fedavg": 0.9, "fedlc": 0.88, "fedlc:tau=1": 0.5}.items()
        for seed in range(3)
    ]
    text = front.part(Known(usual), "figures", digits)
    assert "| digits | momentum | none of 1 | 1 of 1 | -2.0 | - |" in text
    assert "Our runs have 200 rounds (digits 400), the paper's 400 on CIFAR-10." in text


def test_drawn_images_are_told_with_how_clients_trained() -> None:
    usual = runs_of("cifar10/shards:8", USUAL, {"fedavg": [0.7], "fedlc": [0.8]})
    shapes = [
        result(Run(dataset="shapes", algorithm=method, seed=seed, momentum=0.9, augment="crop_flip"), accuracy)
        for method, accuracy in {"fedavg": 0.5, "fedlc": 0.6}.items()
        for seed in range(3)
    ]
    text = front.part(Known(usual), "figures", drawn=shapes)
    assert "| shapes (drawn images) | momentum, crops | 1 of 1 | none of 1 | +10.0 | - |" in text
    assert "(shapes 400)" in text


def test_seeds_that_were_added_since_a_cell_was_open_are_told() -> None:
    cell, gains = "cifar10/dirichlet:0.1", [0.6, 0.7, 0.52, 0.65, 0.66]
    text = front.part(Known(runs_of(cell, USUAL, {"fedavg": [0.5] * 5, "fedlc": gains})), "figures")
    assert "for both). D(0.1) is open with 3 seeds (+10.7 [-11.74, +33.07]) and was given more." in text
    assert "given more" not in front.part(Known(runs_of(cell, USUAL, {"fedavg": [0.5] * 5, "fedlc": [0.6] * 5})), "")


def test_fedavg_at_a_rate_that_does_better_is_told() -> None:
    found = runs_of(CELL, USUAL, {"fedavg": [0.5, 0.6], "fedlc": [0.7, 0.7]})
    asked, margin = Map(mapped(CELL), CELL, parts=("margin",)), Map(mapped(CELL), CELL)
    tried = [result(run, 0.5) for run in asked.runs(Choice(), Results())]
    reached = [
        result(run, 0.61 if run.algorithm.startswith("fedlc") else 0.6 - (run.algorithm == "fedrs") / 10)
        for run in margin.runs(Choice(), Known(tried))
        if run.lr == 0.1
    ]
    text = front.part(Known([*found, *tried, *reached]), "figures")
    assert (
        "but for the chosen settings, all this is at 0.01. At 0.1, without momentum and crops, FedAvg has 60.0 % in "
        "D(0.1) after 100 rounds, and FedLC gains +1.0 over it (one seed, a tenth of the training examples held out). "
        "With both at 0.01, FedAvg has 50.0 % with this seed after 200 rounds, and 55.0 % on average (2 seeds)."
    ) in text
    broken = [replace(run, summary={**run.summary, "diverged": True}) for run in reached]
    for less in (found[1:], [replace(found[0], summary={**found[0].summary, "diverged": True}), *found[1:]]):
        assert "Another learning rate" not in front.part(Known([*less, *tried, *reached]), "figures")
    assert "Another learning rate" not in front.part(Known([*found, *tried, *broken]), "figures")
    assert "Another learning rate" not in front.part(Known(found), "figures")


def test_balanced_accuracy_is_told_where_classes_are_not_equally_frequent() -> None:
    cifar10 = runs_of("cifar10/shards:8", USUAL, {"fedavg": [0.7], "fedlc": [0.8]})
    text = front.part(Known([*cifar10, *unequal("svhn/dirichlet:0.1")]), "figures")
    assert "FedLC on SVHN is above in D(0.1) (+6.0, last round). [Every" in text


def test_settings_are_compared_over_the_seeds_that_all_have() -> None:
    """Other seeds may gain more."""
    found = []
    for cell in depends.CELLS:
        found += runs_of(cell, USUAL, {"fedavg": [0.5, 0.5], "fedlc": [0.6, 0.9]})
        table = TABLES["table2" if "shards" in cell else "table1"]
        for method, accuracy in {"fedavg": 0.6, "fedlc": 0.63}.items():
            found.append(with_curve(table.run(cell, method, replace(USUAL, rounds=400)), (400, accuracy)))
    text = "\n".join(depends.section(Known(found)))
    assert "crops and mirror images | 200 | 50.0 | 50.0 | 50.0 | +10.0 |" in text
    assert "crops and mirror images | 400 | 60.0 | 60.0 | 60.0 | +3.0 |" in text


def test_what_closes_more_of_the_gap_is_told_and_what_it_reveals() -> None:
    level = TABLES["table1"].run("cifar10/dirichlet:0.1", "fedavg", USUAL, partition="iid")
    runs = [with_curve(level.model_copy(update={"seed": seed}), (200, 0.9)) for seed in range(3)]
    for cell in depends.CELLS:
        best = {"fedla+fedacg+refit": [0.8] * 3, "fedla+fedacg": [0.7] * 3, "fedacg": [0.89] * 2}
        runs += runs_of(cell, USUAL, {"fedavg": [0.5] * 3, "fedlc": [0.6] * 3, **best})
    text = front.part(Known(runs), "figures")
    assert "**Some combinations do better on CIFAR-10.**" in text
    assert (
        "FedLC wins back 25 %, `fedla+fedacg` (logit adjustment and server momentum) 50 % and `fedla+fedacg+refit` "
        "(logit adjustment, server momentum and a refitted last layer) 75 % (3 seeds)."
    ) in text
    assert "`refit` [tells the server more about label counts]" in text
    worse = [run for run in runs if run.short["algorithm"] != "fedla+fedacg"]
    for cell in depends.CELLS:
        worse += runs_of(cell, USUAL, {"fedla+fedacg": [0.55, 0.62, 0.7]})
    assert "**Combinations.**" in front.part(Known(worse), "figures"), "one of them is open"
    plain = Known([run for run in runs if "+" not in run.short["algorithm"]])
    assert "ombinations" not in front.part(plain, "figures")
    assert "gain without skew" not in text, "they were not run there"
    server = runs_of("cifar10/shards:8", USUAL, {"fedlc": [0.7] * 3, "fedopt": [0.71] * 3, "fedrs": [0.7] * 3})
    assert front.part(Known([*runs, *server]), "figures").endswith(
        "Even of the paper's methods FedLC is not everywhere the best on CIFAR-10: `fedopt` against FedLC is above in "
        "Q(8) (3 seeds)."
    )
    level = TABLES["table1"].run("cifar10/dirichlet:0.1", "fedla+fedacg", USUAL, partition="iid")
    gained = front.part(Known([*runs, with_curve(level, (200, 0.93))]), "figures")
    assert "They also gain without skew (+3.0, one seed), so part of it is just better training." in gained
    assert "on other data" not in gained, "nothing was run there"
    lost = runs_of("svhn/dirichlet:0.1", USUAL, {"fedavg": [0.8, 0.7, 0.8], "fedla+fedacg": [0.7, 0.61, 0.69]})
    text = front.part(Known([*runs, *lost]), "figures")
    assert "Against FedAvg on other data (points): `fedla+fedacg` is below in 1 (-10.0) of 1 splits of SVHN." in text
    won = runs_of("svhn/dirichlet:0.3", USUAL, {"fedavg": [0.8, 0.7, 0.8], "fedla+fedacg": [0.9, 0.81, 0.89]})
    text = front.part(Known([*runs, *lost, *won]), "figures")
    assert "`fedla+fedacg` is above in 1 (+10.0) and below in 1 (-10.0) of 2 splits of SVHN." in text


def test_a_gain_over_the_best_fedavg_is_told_however_that_was_trained() -> None:
    cell = "cifar10/dirichlet:0.1"
    found = runs_of(cell, USUAL, {"fedavg": [0.5, 0.4], "fedlc": [0.7, 0.7]})
    for choice, reached in ((replace(USUAL, rounds=400), (0.6, 0.75)), (Choice(), (0.65, 0.66))):
        for method, accuracy in zip(("fedavg", "fedlc"), reached, strict=True):
            found.append(with_curve(TABLES["table1"].run(cell, method, choice), (400, accuracy)))
    text = front.part(Known(found), "figures")
    assert (
        "After 400 rounds (one seed) it is +15.0, and +10.0 over the best FedAvg of this rate, with or without "
        "momentum and crops.\n"
    ) in text
    alone = [one for one in found if one.run["momentum"] and one.rounds == 400]
    assert not depends.against_best(depends.measured(Known(alone))), "one way of training has no best"


def test_an_open_gain_with_momentum_alone_is_told() -> None:
    cell, alone = "cifar10/dirichlet:0.1", Choice(rounds=120, profile=Profile("momentum", "", {"momentum": 0.9}))
    found = runs_of(cell, USUAL, {"fedavg": [0.5], "fedlc": [0.7]}) + runs_of(cell, Choice(rounds=400), BOTH)
    found += runs_of(cell, alone, {"fedavg": [0.5] * 3, "fedlc": [0.6, 0.7, 0.52]})
    text = front.part(Known(found), "figures")
    assert "With momentum alone: +10.7 (120 rounds, 3 seeds; open in D(0.1))." in text


def test_what_is_left_with_momentum_alone_and_after_more_rounds() -> None:
    cell, alone = "cifar10/dirichlet:0.1", Profile("momentum", "", {"momentum": 0.9})
    found = runs_of(cell, USUAL, {"fedavg": [0.5], "fedlc": [0.7]})
    for choice in (Choice(rounds=400), Choice(rounds=400, profile=alone)):
        found += runs_of(cell, choice, {"fedavg": [0.6], "fedlc": [0.64 if choice.profile == alone else 0.61]})
    small = "imagenet12/dirichlet:0.1"
    for rounds, gain in ((200, 0.05), (600, 0.02)):
        for method, reached in {"fedavg": 0.3, "fedlc": 0.3 + gain}.items():
            run = TABLES["table3"].run(small, method, replace(USUAL, rounds=rounds))
            found.append(with_curve(run, (rounds, reached)))
    text = front.part(Known(found), "figures")
    assert "prints +17.8. With momentum alone: +4.0 (400 rounds, one seed).\n" in text
    assert "After 600 rounds the +5.0 in D(0.1) of 12 classes of Tiny-ImageNet is +2.0 (one seed). [Every" in text


def test_a_small_difference_is_told_with_its_verdict() -> None:
    svhn = runs_of("svhn/dirichlet:0.1", USUAL, {"fedavg": [0.8] * 3, "fedlc": [0.799] * 3})
    cifar10 = runs_of("cifar10/shards:8", USUAL, {"fedavg": [0.7], "fedlc": [0.8]})
    text = front.part(Known([*cifar10, *svhn]), "")
    assert "| SVHN | momentum | none of 1 | 1 of 1 (by 0.10) | -0.1 |" in text


def test_gains_on_other_data_are_told_with_their_seeds() -> None:
    cifar10 = runs_of("cifar10/shards:8", USUAL, {"fedavg": [0.7], "fedlc": [0.8]})
    svhn = runs_of("svhn/dirichlet:0.1", USUAL, {"fedavg": [0.8, 0.8], "fedlc": [0.79, 0.79]})
    text = front.part(Known([*cifar10, *svhn]), "figures")
    assert "| SVHN | momentum | ? (2 seeds) | ? (2 seeds) | -1.0 | +4.5 |" in text


def test_the_chart_is_drawn_of_what_was_run(tmp_path: Path) -> None:
    stated = runs_of("cifar10/dirichlet:0.1", Choice(rounds=200), {"fedavg": [0.5], "fedlc": [0.51]})
    usual = runs_of("cifar10/shards:2", USUAL, {"fedavg": [0.5, 0.5], "fedlc": [0.6, 0.7]})
    made = front.draw(Known([*stated, *usual]), tmp_path)
    assert [path.name for path in made] == ["gains.png", "gains.svg"]
    drawn = made[1].read_text()
    front.draw(Known(usual), tmp_path)
    assert drawn != made[1].read_text()


def test_what_the_gain_depends_on_is_told_by_setting() -> None:
    accuracies = {"fedavg": 0.5, "fedlc": 0.6}
    found = []
    for cell in depends.CELLS:
        table = TABLES["table2" if "shards" in cell else "table1"]
        for method, value in accuracies.items():
            lower = 0.2 * (method == "fedavg")
            found.append(result(table.run(cell, method, Choice()), value))
            found.append(result(table.run(cell, method, Choice(), momentum=0.9, rounds=400), value - lower))
    text = "\n".join([*depends.section(Known(found)), *depends.detail(Known(found))])
    assert "with the seeds that all settings have (one seed):" in text
    assert "| no momentum | 400 | 50.0 | 50.0 | 50.0 | +10.0 |" in text
    assert "| momentum 0.9 | 400 | 30.0 | 30.0 | 30.0 | +30.0 |" in text
    assert "| Q(2) | momentum 0.9 | 400 | 30.00 | 60.00 | not decided: one seed, +30.00 | 400 |" in text
    assert "crops and mirror images" not in text
    assert "the best FedAvg" not in text, "nothing was run with the last setting"
    assert [*depends.section(Results()), *depends.detail(Results())] == []


def test_a_share_of_the_gap_over_fewer_seeds_than_the_gain_says_so() -> None:
    share = {"share": 0.38, "gap": 0.2, "seeds": 1}
    assert front.share_text({"gap_closed": share, "gain": {"seeds": 3}}) == "38 % (one seed)"
    assert front.share_text({"gap_closed": {**share, "seeds": 3}, "gain": {"seeds": 5}}) == "38 % (3 seeds)"
    assert front.share_text({"gap_closed": share, "gain": {"seeds": 1}}) == "38 %"
    assert front.share_text({"gap_closed": None, "gain": None}) == "-"

"""Knobs chosen on held-out examples, from results made up."""

import pytest

from docs.pages import choosing
from docs.pages.chosen import DEFAULT, SETTING, TRY_ROUNDS, chosen, method_of, section, variant
from fedskew.paper import TABLES, mapped
from fedskew.paper.choice import Choice
from fedskew.paper.trained import CELL
from fedskew.runs.results import Result
from fedskew.runs.run import Run
from fedskew.simulation.tune import VALIDATION
from tests.paper.test_tables import Known, result

LONG = Choice(profile=SETTING.profile, rounds=SETTING.rounds)


def run(algorithm: str, choice: Choice = LONG, **more: object) -> Run:
    return mapped(CELL).run(CELL, algorithm, choice, **more)


def tried(algorithm: str, accuracy: float, test: float = 0.5, diverged: bool = False, **more: object) -> Result:
    one = run(algorithm, Choice(profile=SETTING.profile, rounds=TRY_ROUNDS), validation=VALIDATION, **more)
    return result(one, test, validation_accuracy=accuracy, diverged=diverged)


def seeds(algorithm: str, *accuracies: float, **more: object) -> list[Result]:
    one = run(algorithm, **more)
    return [result(one.model_copy(update={"seed": seed}), value) for seed, value in enumerate(accuracies)]


TRIES = [
    tried("fedavg", 0.50),
    tried("fedavg", 0.49, test=0.9, lr=0.03),  # the test set has no say
    tried("fedavg", 0.60, lr_schedule="cosine"),
    tried("fedopt:server=sgd,eta=1.5", 0.40),
    tried("fedlc", 0.70),
    tried("fedlc", 0.69, lr=0.03),
    tried("fedlc:tau=2", 0.99, diverged=True),
    tried("fedrs", 0.5),
    tried("fedrs:alpha=0.9", 0.55),
]
PLAIN = [*seeds("fedavg", 0.5, 0.5, 0.5, 0.1), *seeds("fedlc", 0.7, 0.7, 0.7), *seeds("fedrs", 0.5, 0.5, 0.5)]
CHOSEN = [*seeds("fedavg", 0.52, 0.53, 0.54, lr_schedule="cosine"), *seeds("fedrs:alpha=0.9", 0.6, 0.7, 0.4)]


def test_held_out_examples_choose_and_not_the_test_set() -> None:
    found = {each.method: each for each in chosen(Known(PLAIN), Known([*TRIES, *CHOSEN]))}
    assert {method: variant(each.best) for method, each in found.items()} == {
        "fedavg": "cosine rate",
        "fedlc": DEFAULT,
        "fedrs": "`fedrs:alpha=0.9`",
    }
    assert [len(each.tries) for each in found.values()] == [4, 3, 2]
    assert all(variant(each.tries[0]) == DEFAULT for each in found.values())
    assert found["fedavg"].gain is not None
    assert found["fedavg"].gain.mean == pytest.approx(3)  # over the seeds that both have
    assert found["fedavg"].gain.verdict == "above"


def test_the_tables_mark_the_chosen_try_and_compare_it_with_the_default() -> None:
    text = "\n".join(section(Known(PLAIN), Known([*TRIES, *CHOSEN])))
    assert "| method | default | cosine rate | lr 0.03 | own knob |" in text
    assert "| `fedavg` | 50.00 | **60.00** | 49.00 | `fedopt:server=sgd,eta=1.5` 40.00 |" in text
    assert "| `fedlc` | **70.00** | - | 69.00 | `fedlc:tau=2` diverged |" in text
    assert "| `fedavg` | cosine rate | 50.00 | 53.00 | above, +3.00 [+0.52, +5.48] over 3 seeds | - |" in text
    assert "| `fedlc` | default | 70.00 | 70.00 | - | above, +17.00 [+14.52, +19.48] over 3 seeds |" in text
    assert (
        "The default was chosen for `fedlc`. Elsewhere the chosen variant against the default is above in 1, open"
        in text
    )
    assert (
        "FedLC against FedAvg with both chosen is above, +17.00 [+14.52, +19.48] over 3 seeds; with both at their "
        "defaults, above, +20.00 [+20.00, +20.00] over 3 seeds." in text
    )
    assert "Every method got 2 to 4 tries at" in text


def test_without_tries_there_is_no_section_and_without_test_runs_no_second_table() -> None:
    assert not list(section(Known(PLAIN), Known(CHOSEN)))
    assert "test set" not in "\n".join(section(Known([]), Known(TRIES)))


def test_a_better_fedavg_that_was_not_among_the_tries_is_named() -> None:
    """Trained in another way on the same held-out examples: of these, the best one."""
    plain = [tried("fedavg", value, momentum=0.0, augment="none", lr=lr) for value, lr in ((0.62, 0.1), (0.61, 0.03))]
    text = "\n".join(section(Known([*PLAIN, *plain]), Known([*TRIES, *CHOSEN])))
    assert "FedAvg with momentum 0, augmentation none and lr 0.1 has 62.00 on the same held-out examples" in text
    worse = tried("fedavg", 0.59, momentum=0.0, augment="none")
    assert "not searched" not in "\n".join(section(Known([*PLAIN, worse]), Known([*TRIES, *CHOSEN])))


def test_a_server_that_steps_with_sgd_is_fedavg() -> None:
    assert method_of(tried("fedopt:server=sgd,eta=1.5", 0.4)) == "fedavg"
    assert method_of(tried("fedlc:tau=2+fedacg", 0.4)) == "fedlc+fedacg"
    assert method_of(tried("fedopt:eta=0.003", 0.4)) == "fedopt"


def test_what_is_said_of_fedrs_and_fedvls_is_what_was_run() -> None:
    said = choosing.evidence(Known(PLAIN), Known([*TRIES, *CHOSEN]))
    assert "| `fedrs` against FedAvg | tied in D(0.1) | +0.0 | 3 |" in said
    assert "| `fedrs:alpha=0.9`, chosen on held-out examples, against `fedrs` | open in D(0.1) | +6.7 | 3 |" in said
    assert choosing.evidence(Known([]), Known([])) == ""
    both = Known([*PLAIN, *seeds("fedvls", 0.6), *seeds("fedla", 0.65)])
    assert "FedVLS against FedAvg is not decided in D(0.1) (+10.0 points, one seed)" in choosing.suppressed(both)
    assert "logit adjustment alone, it is not decided in D(0.1) (-5.0 points, one seed)" in choosing.suppressed(both)
    assert choosing.suppressed(Known([])) == "We have not run it."
    table = TABLES["table4"]
    linear = [
        result(table.run("synthetic:1,1", method, Choice(), seed=seed), value)
        for method, value in {"fedavg": 0.7, "fedvls": 0.1}.items()
        for seed in range(3)
    ]
    text = choosing.suppressed(Known([*both, *linear]))
    assert text.endswith("over both profiles, it is below in 1 (-60.0 points, 3 seeds), with accuracies of 10 %.")

import re

import numpy as np
import pytest

from fedskew.advice.evidence import load
from fedskew.advice.findings import advise
from fedskew.advice.kinds import kind_of
from fedskew.advice.text import indices, lines, training, verdict
from fedskew.runs.run import Run
from tests.advice.test_findings import IMAGES, advised, both, dirichlet, known, near, own, table
from tests.paper.test_tables import result


def test_indices_are_said_in_words():
    """Two clients, p = (1, 0) and (1/2, 1/2), together (3/4, 1/4): a quarter apart, 1 and 2 effective classes."""
    text = "\n".join(indices(advise(np.array([[4, 0], [2, 2]]), table({"fedavg": 60, "fedlc": 64}))))
    assert "25 % of examples would need another label" in text
    assert "like 1.5 equally frequent classes of 2" in text
    assert "no example of 0.5 of 2 classes" in text
    assert "client sizes go from 4 to 4" in text
    assert "kind of data: unknown" in text


def test_a_setting_says_what_is_unusual_about_it():
    text = "\n".join(lines(advised({"fedavg": 60, "fedlc": 64}, augment="crop_flip", clients_per_round=10,
                                   validation=0.1, grad_clip=5.0)))  # fmt: skip
    assert "clients_per_round 10, augment crop_flip, grad_clip 5, validation 0.1" in text


def test_the_verdict_is_what_to_do_on_what_evidence_and_a_line_for_each_method():
    what, rests, *rows = verdict(advised({"fedavg": 60, "fedlc": 64, "fedrs": 50}, seeds=3))
    assert what == "Use fedlc: on cifar10/dirichlet:0.1 it gained +4.0 points of accuracy over FedAvg (+4.0 to +4.0)."
    assert rests == (
        "Evidence: cifar10/dirichlet:0.1, 400 rounds [1]; not your data set, but of its kind (natural images with a "
        "convolutional network); distance in skew 0.00."
    )
    assert [re.split("  +", line.strip()) for line in rows] == [
        ["method", "over FedAvg in [1]", "verdict", "seeds"],
        ["fedlc", "+4.00 [+4.00, +4.00]", "above", "3"],
        ["fedrs", "-10.00 [-10.00, -10.00]", "below", "3"],
    ]


def test_points_are_told_with_where_they_were_gained():
    counts = dirichlet(0.1)
    made = table({"fedavg": 60, "fedlc": 64, "fedopt": (62, 64, 63)}, 3, near(counts))
    what, rests, *_ = verdict(advise(counts, made, kind=IMAGES, dataset="cifar10"))
    said = "on cifar10/dirichlet:0.1 it gained +4.0 points of accuracy over FedAvg (+4.0 to +4.0)"
    assert what == f"Use fedlc (or else fedopt): {said}."
    assert "; your data set; " in rests


def row(method, advice):
    """A method's cells in the whole evidence, which has one setting."""
    (line,) = (line for line in lines(advice, whole=True) if line.startswith(f"    {method} "))
    return re.split("  +", line.strip())[1:]


def test_columns_have_room_for_the_longest_name():
    advice = advised({"fedavg": 60, "fedla+fedacg+refit": 64, "fedlc": 63}, seeds=3)
    head, *rows = (line for line in lines(advice) if "  above  " in line or " verdict " in line)
    assert {line.index("above") for line in rows} == {head.index("verdict")}


def test_rounds_saved_are_said_with_their_interval():
    advice = advised({"fedavg": 60, "fedlc": 64}, seeds=3)
    for name, reach in (("fedavg", [300, 320, 310]), ("fedlc", [100, 100, 100])):
        advice.evidence[0].setting["methods"][name]["reach"] = reach
    counts = dirichlet(0.1)
    made = {"partitions": table({"fedavg": 60, "fedlc": 64}, 3, near(counts))["partitions"]}
    again = advise(counts, {**made, "settings": [advice.evidence[0].setting]}, kind=IMAGES)
    assert row("fedlc", again) == ["+4.00 [+4.00, +4.00]", "above", "3", "210 [185, 235]"]
    advice.evidence[0].setting["methods"]["fedlc"]["reach"] = [None, None, 100]
    again = advise(counts, {**made, "settings": [advice.evidence[0].setting]}, kind=IMAGES)
    assert row("fedlc", again)[-1] == "210 in 1 of 3"
    advice.evidence[0].setting["methods"]["fedlc"]["reach"] = [None, None, None]
    again = advise(counts, {**made, "settings": [advice.evidence[0].setting]}, kind=IMAGES)
    assert row("fedlc", again)[-1] == "never gets there"


def test_simple_images_get_no_recommendation_from_other_data():
    advice = advise(dirichlet(0.1), load(), kind=kind_of("mnist"), dataset="mnist")
    text = "\n".join(lines(advice))
    assert text.startswith(f"Unknown on data like yours; try these three: {', '.join(advice.methods)}.\n")
    assert "\nWhy: no published runs on small, simple images with a convolutional network have a skew near" in text
    assert "Use " not in text
    assert "not known to be like your data" in text
    assert re.search(r"\[\d+\] (cifar10|digits)/dirichlet:0.1, .*, another kind of data\)", text)


def test_where_nothing_is_near_no_method_is_said_not_to_be_above():
    """It is, on the very data set, under another skew: that is shown."""
    counts = dirichlet(0.1)
    apart = {**near(counts), "size_gini": near(counts)["size_gini"] + 0.6}
    made = table({"fedavg": 60, "fedlc": 64}, 3, apart)
    what, why, rests, _, fedlc = verdict(advise(counts, made, kind=IMAGES, dataset="cifar10"))
    assert what == "Unknown on data like yours; try this one: fedlc."
    assert why == f"Why: no published runs on {IMAGES} have a skew near yours."
    assert rests.endswith("; your data set; distance in skew 0.15, which is not near.")
    assert re.split("  +", fedlc.strip())[2] == "above"
    why = verdict(advise(counts, made, kind=IMAGES, dataset="cifar10", momentum=0.5))[1]
    assert why == f"Why: no published runs on {IMAGES} are trained this way."


def test_ones_own_runs_come_first():
    mine = own({"fedavg": 90, "fedopt": 92.4, "fedlc": 86.3})
    assert verdict(advise(dirichlet(0.1), load(), mine, kind_of("digits"), "digits"))[0].startswith(
        "Use fedopt: in your runs"
    )
    elsewhere = {**load(), "settings": [one for one in load()["settings"] if one["dataset"] != "digits"]}
    what, rests, head, *rows = verdict(advise(dirichlet(0.1), elsewhere, mine, kind_of("digits"), "digits"))
    assert "over FedAvg in [1]" in head
    assert what == "Use fedopt: in your runs of 30 rounds it gained +2.4 points of accuracy over FedAvg (+2.4 to +2.4)."
    assert rests == "Evidence: your own runs on digits/dirichlet:0.1, 30 rounds [1], 3 seeds."
    assert [re.split("  +", line.strip()) for line in rows] == [
        ["fedopt", "+2.40 [+2.40, +2.40]", "above", "3"],
        ["fedlc", "-3.70 [-3.70, -3.70]", "below", "3"],
    ]
    drawn = mine[0]["methods"]["fedavg"]["partitions"]
    mine[0]["methods"]["fedavg"]["partitions"] = [f"{name}{seed}" for seed, name in enumerate(drawn)]
    mine[0]["methods"]["fedopt"]["partitions"] = mine[0]["methods"]["fedavg"]["partitions"]
    assert verdict(advise(dirichlet(0.1), load(), mine))[1].endswith("3 seeds, each with its own draw of the split.")


def test_methods_without_a_line_are_named_if_they_are_above_or_below():
    reached = {"fedavg": 60, "fednova": 70, "scaffold": (68, 70, 69), "feddyn": (69, 67, 68), "fedexp": 61}
    reached |= {"fedprox": 60, "fedsam": 59.9, "fedrs": 59, "fedlc": 50, "fedla": 30}
    said = verdict(advised(reached, seeds=3))
    assert "Also above FedAvg: fedexp. Also below FedAvg: fedlc, fedla." in said
    del reached["fedexp"], reached["fedlc"], reached["fedla"]
    assert not any(line.startswith("Also") for line in verdict(advised(reached, seeds=3))), "all have a line"


def test_how_long_short_runs_of_ones_own_are_is_said():
    mine = own({"fedavg": 90, "fedopt": 92}, rounds=8)
    nothing = {"partitions": {}, "settings": []}
    only = verdict(advise(dirichlet(0.1), nothing, mine, kind_of("digits"), "digits"))
    assert "Your own runs have 8 rounds, which is short: longer ones may differ." in only
    beside = verdict(advise(dirichlet(0.1), load(), mine, kind_of("digits"), "digits"))
    assert "Your own runs have 8 rounds, too few to count beside longer runs." in beside
    assert beside[0].startswith("Use ")
    assert "in your runs" not in beside[0]
    assert beside[1].startswith("Evidence: digits/dirichlet:0.1, 60 rounds [2]; your data set; ")
    assert beside[-2].startswith("  fedopt ")
    longer = verdict(advise(dirichlet(0.1), load(), own({"fedavg": 90, "fedopt": 92}), kind_of("digits"), "digits"))
    assert not [line for line in longer if "Your own runs have" in line]


def test_ones_own_runs_of_one_seed_decide_nothing():
    advice = advised({"fedavg": 60, "fedrs": 50}, own=own({"fedavg": 90, "fedopt": 92}, seeds=1), kind="unknown")
    what, why, _, _, fedopt = verdict(advice)
    assert what == "Unknown on data like yours; try this one: fedopt."
    assert why.startswith("Why: your own runs do not decide it yet")
    tied = own({"fedavg": 90, "fedlc": 90}, dataset="cifar10")
    what, why, *_ = verdict(advised({"fedavg": 60, "fedopt": (60, 70, 65)}, 3, own=tied))
    assert what == "Unknown on data like yours; try this one: fedopt."
    assert why.startswith("Why: no published method is above FedAvg over 3 seeds or more")
    assert re.split("  +", fedopt.strip()) == ["fedopt", "+2.00", "not decided", "1"]


@pytest.mark.parametrize(
    ("counts", "word"), [(np.array([[3, 4, 5]]), "one client"), (np.array([[3, 0], [4, 0]]), "one class")]
)
def test_one_client_and_one_class_are_said(counts, word):
    (said,) = verdict(advise(counts, load()))
    assert word in said


def test_fedavg_is_kept_with_the_reason():
    what, _, _, fedlc = verdict(advised({"fedavg": 60, "fedlc": 60}, seeds=3))
    assert what == "Stay with FedAvg: no method is above it in the runs closest to yours (fedlc)."
    assert re.split("  +", fedlc.strip())[1:4] == ["+0.00 [+0.00, +0.00]", "tied", "3"]
    counts = dirichlet(0.1)
    alike = table({"fedavg": 60, "fedlc": 60}, 3, near(counts))
    unlike = table({"fedavg": 60, "fedopt": 64}, 1, near(counts), model="mlp")
    what, rests, _, fedlc, fedopt = verdict(advise(counts, both(alike, unlike), kind=IMAGES))
    assert what.endswith(" (fedlc). Still to try: fedopt.")
    assert " of its kind " in rests
    assert fedlc.startswith("  fedlc ")
    assert re.split("  +", fedopt.strip())[:4] == ["fedopt", "+4.00", "not decided", "1"]


def test_what_depends_on_training_is_said_with_both_settings():
    counts = dirichlet(0.1)
    one = table({"fedavg": 60, "fedlc": 70}, 3, near(counts), momentum=0.9)
    other = table({"fedavg": 60, "fedlc": 55}, 3, near(counts))
    what, _, head, gains, loses = verdict(advise(counts, both(one, other), kind=IMAGES))
    assert re.split("  +", head.strip())[1:] == ["over FedAvg", "verdict", "seeds", "in", "elsewhere"]
    assert what == "It depends: fedlc gained in some settings like yours and lost in others."
    assert gains.endswith(" above    3      [1]  below 1")
    assert loses.endswith(" below    3      [2]")


def test_a_method_that_diverged_elsewhere_is_not_said_to_have_lost():
    counts, fields = dirichlet(0.1), {"dataset": "cifar10", "lr": 0.5}
    runs = [Run(algorithm=name, seed=seed, **fields) for name in ("fedavg", "fedlc") for seed in range(3)]
    found = [result(run, 0.5, diverged=run.algorithm.startswith("fedlc")) for run in runs]
    made = both(table({"fedavg": 60, "fedlc": 70}, 3, near(counts)), known(found, near(counts)))
    what, *_, fedlc = verdict(advise(counts, made, kind=IMAGES))
    assert what == "It depends: fedlc gained in some settings like yours and diverged in others."
    assert fedlc.endswith("  3      diverged [2]")


def test_a_seed_that_diverged_is_said_with_the_reason():
    counts, fields = dirichlet(0.1), {"dataset": "cifar10", "rounds": 20}
    runs = [Run(algorithm=name, seed=seed, **fields) for name in ("fedavg", "fedlc") for seed in range(4)]
    reached = [0.5, 0.5, 0.5, 0.5, 0.7, 0.7, 0.7, 0]
    found = [result(run, accuracy, diverged=accuracy == 0) for run, accuracy in zip(runs, reached, strict=True)]
    what, _, _, _, fedlc = verdict(advise(counts, known(found, near(counts)), kind=IMAGES))
    assert what == "Unknown on data like yours; try this one: fedlc."
    assert re.split("  +", fedlc.strip()) == [*("fedlc", "+20.00 [+20.00, +20.00]", "open", "3", "diverged [1]")]


def test_a_method_that_diverged_with_every_seed_is_not_called_undecided():
    counts, fields = dirichlet(0.1), {"dataset": "cifar10", "rounds": 20}
    runs = [Run(algorithm=name, seed=seed, **fields) for name in ("fedavg", "fedlc") for seed in range(3)]
    found = [result(run, 0.5, diverged=run.algorithm.startswith("fedlc")) for run in runs]
    text = "\n".join(lines(advise(counts, known(found, near(counts)), kind=IMAGES), whole=True))
    assert "diverged: fedlc (seeds [0, 1, 2])" in text
    assert "one or two seeds" not in text


def where_fedavg_diverged(reached):
    """Results of three seeds, in percent; 0 diverged, as FedAvg did."""
    runs = [Run(algorithm=name, seed=seed, dataset="cifar10") for name in ("fedavg", *reached) for seed in range(3)]
    each = [0, 0, 0, *(value for values in reached.values() for value in values)]
    return [result(run, value / 100, diverged=value == 0) for run, value in zip(runs, each, strict=True)]


@pytest.mark.parametrize("mine", [True, False], ids=["own runs", "published runs"])
def test_methods_are_shown_where_fedavg_diverged_with_every_seed(mine):
    counts = dirichlet(0.1)
    made = known(
        where_fedavg_diverged({"fedlc": (60, 61, 62), "fedrs": (50, 0, 52), "scaffold": (0, 0, 0)}), near(counts)
    )
    nothing = {"partitions": {}, "settings": []}
    advice = advise(counts, nothing, made["settings"], IMAGES) if mine else advise(counts, made, kind=IMAGES)
    rows = {row.method: row.stands for row in (advice.own if mine else advice.like)}
    assert rows == {"fedlc": "open", "fedrs": "open", "scaffold": "keep"}
    assert (advice.do, advice.methods) == ("unknown", [])
    text = "\n".join(lines(advice, whole=True))
    assert "FedAvg diverged\n" in text
    alone = "fedlc 61.00 % (3 seeds), fedrs 51.00 % (2 seeds)"
    assert f"FedAvg diverged with these seeds, so there is no difference to it: {alone}" in text
    assert "diverged: fedrs (seeds [1]), scaffold (seeds [0, 1, 2])" in text
    words = {line.split()[0]: re.split("  +", line.strip())[1:4] for line in verdict(advice)[3:]}
    assert words["fedlc"] == ["-", "FedAvg diverged", "3"]
    assert words["scaffold"] == ["-", "diverged", "0"]


def test_a_method_is_ranked_where_fedavg_finished():
    counts = dirichlet(0.1)
    alone = known(where_fedavg_diverged({"fedlc": (60, 61, 62)}), near(counts))
    one_seed = table({"fedavg": 50, "fedlc": 60}, 1, near(counts), lr=0.001)
    advice = advise(counts, both(alone, one_seed), kind=IMAGES)
    (row,) = advice.like
    assert (row.stands, advice.gain(row)[1].mean) == ("open", pytest.approx(10))
    assert advice.methods == ["fedlc"]


def test_nothing_near_and_nothing_for_this_training_are_said():
    counts = 50 + 40 * np.tile(np.eye(10, dtype=int), (2, 1))  # a little skew
    made = table({"fedavg": 60, "fedlc": 64})
    what, _, rests = verdict(advise(counts, made))
    assert what == "Unknown on data like yours, and there is no method to suggest."
    assert "none under similar skew; nearest at 0." in rests
    assert "there is none for this training" in verdict(advise(counts, made, momentum=0.5))[2]


def trainings(*settings):
    """Evidence of FedAvg at 50 % and FedLC under several trainings: FedLC's accuracy, seeds, and fields."""
    counts = dirichlet(0.1)
    made = [table({"fedavg": 50, "fedlc": fedlc}, seeds, near(counts), **more) for fedlc, seeds, more in settings]
    advice = advise(counts, both(*made), kind=IMAGES)
    said = training(advice)
    assert said is None or f"How you train can matter: {said}" in lines(advice)
    return said


USUAL = {"momentum": 0.9, "augment": "crop_flip", "rounds": 200}


def test_momentum_and_augmentation_are_named_where_they_decide():
    assert trainings((64.6, 3, USUAL), (51.7, 1, {})) == (
        "on cifar10/dirichlet:0.1 fedlc gains +14.6 with momentum 0.9 and crops after 200 rounds (3 seeds) [1], "
        "+1.7 with neither momentum nor crops after 400 rounds (one seed) [2]."
    )


def test_of_each_training_the_setting_with_most_seeds_is_told():
    said = trainings((64.6, 3, USUAL), (70, 1, {**USUAL, "rounds": 400}), (51.7, 1, {}))
    assert "+14.6" in said
    assert "+20.0" not in said


@pytest.mark.parametrize(
    "settings",
    [
        [(64.6, 1, USUAL), (51.7, 1, {})],  # one seed decides nothing
        [(52, 3, USUAL), (51, 3, {})],  # close
        [(64.6, 3, USUAL), (51.7, 3, {"lr": 0.1})],  # another rate too
        [(64.6, 3, USUAL)],
    ],
)
def test_training_is_not_said_to_decide_what_it_does_not(settings):
    assert trainings(*settings) is None


def test_the_text_shows_the_settings_that_it_cites_and_says_how_to_see_all():
    counts = dirichlet(0.1)
    made = [table({"fedavg": 60, "fedlc": 60}, 3, near(counts), rounds=400 - n) for n in range(5)]
    made.append(table({"fedavg": 60, "fedopt": 64, "fedlc": 60}, 3, near(counts), rounds=300))
    advice = advise(counts, both(*made), kind=IMAGES)
    text = "\n".join(lines(advice))
    assert re.findall(r"\n\[(\d+)\] ", text) == ["1", "6"]
    assert text.endswith("All methods and settings (6): --all.")
    whole = "\n".join(lines(advice, whole=True))
    assert re.findall(r"\n\[(\d+)\] ", whole) == ["1", "2", "3", "4", "5", "6"]
    assert "--all" not in whole


def test_a_few_undecided_methods_have_a_line_and_all_methods_if_asked():
    """Six losses gain more than FedOpt, which changes another part."""
    names = ("fedlc+fedntd", "fedla+fedntd", "fedrs+fedntd", "fedlc+feddecorr", "fedla+feddecorr", "fedvls")
    losses = {name: 80 - place for place, name in enumerate(names)}
    advice = advised({"fedavg": 60, **losses, "fedopt": 70, "fedprox": 60})
    assert advice.methods == ["fedlc+fedntd", "fedopt"]
    first = [line.split()[0] for line in verdict(advice)[4:]]
    assert first == ["fedlc+fedntd", "fedopt", *names[1:4]]
    (whole,) = (line for line in lines(advice, whole=True) if "one or two seeds, which" in line)
    assert all(f"{name} " in whole for name in (*losses, "fedprox"))


@pytest.mark.parametrize("kind", [IMAGES, "unknown"])
def test_what_refit_reveals_is_said_with_the_best_method_without_it(kind):
    def privacy(*methods):
        reached = {"fedavg": 50} | {name: 70 - place for place, name in enumerate(methods)}
        return [line for line in verdict(advised(reached, 3, kind)) if "label counts" in line]

    said = "Privacy: refit tells the server more about label counts than training does; "
    assert privacy("fedlc+refit", "fedopt", "fedlc") == [f"{said}the best alternative without it is fedopt."]
    assert privacy("fedlc+refit", "refit") == [f"{said}no method without it is known to help here."]
    assert privacy("fedlc", "fedopt") == []


def test_rounds_saved_by_refit_are_said_to_leave_out_its_asks():
    def noted(method, seeds=3):
        advice = advised({"fedavg": 60, method: 64}, seeds)
        return [line for line in lines(advice, whole=True) if "measured round" in line]

    assert noted("fedlc+refit") == [
        "Rounds saved leave out what refit asks: all clients, up to 30 times in each measured round."
    ]
    assert noted("fedlc") == noted("refit", seeds=2) == []


def test_one_seed_is_never_a_verdict():
    advice = advised({"fedavg": 60, "fedlc": 80}, seeds=1)
    text = "\n".join(lines(advice))
    assert text.startswith("Unknown on data like yours; try this one: fedlc.\n")
    assert re.search(r"\n  fedlc +\+20.00 +not decided +1\n", text)
    assert "one or two seeds, which decide nothing: fedlc +20.00" in "\n".join(lines(advice, whole=True))
    assert "Use " not in text

"""What `fedskew advise` says about well-known federations, from the published table and from runs of one's own."""

import json
import re

import numpy as np
import pytest

from fedskew.advice.evidence import load
from tests.advice.test_findings import dirichlet
from tests.cli.calling import call


@pytest.fixture
def said(tmp_path, monkeypatch, capsys):
    """The lines about a card of a data set, 20 clients and D(beta)."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("FEDSKEW_RUNS", raising=False)

    def advise(dataset, beta, *words, seed=7):
        card = {"dataset": dataset, "partition": f"dirichlet:{beta}", "counts": dirichlet(beta, seed).tolist()}
        (tmp_path / "card.json").write_text(json.dumps(card))
        code, out, _ = call(capsys, "advise", "card.json", *words)
        assert code == 0
        return out.splitlines()

    return advise


def lines_of(method, said):
    """The columns of a method's line above the first empty line: points, verdict, seeds, and more."""
    head = said[: said.index("")]
    return [re.split("  +", line.strip())[1:] for line in head if line.startswith(f"  {method} ")]


def gains(dataset, partition, method):
    """What the table has of a method, paired by seed, in its setting with most seeds."""
    settings = [s for s in load()["settings"] if (s["dataset"], s["partition"]) == (dataset, partition)]
    methods = max((s["methods"] for s in settings if method in s["methods"]), key=lambda ran: len(ran[method]["seeds"]))
    base = dict(zip(methods["fedavg"]["seeds"], methods["fedavg"]["accuracy"], strict=True))
    mine = zip(methods[method]["seeds"], methods[method]["accuracy"], strict=True)
    return [100 * (accuracy - base[seed]) for seed, accuracy in mine]


@pytest.mark.parametrize("seed", range(4))
def test_ones_own_data_set_is_not_overridden_by_another(said, seed):
    """On SVHN little helps at D(0.05); on CIFAR-10 much does."""
    text = said("svhn", 0.05, seed=seed)
    measured = np.mean(gains("svhn", "dirichlet:0.05", "fedla+fedacg+refit"))
    assert text[0].startswith(
        f"Use fedla+fedacg+refit: on svhn/dirichlet:0.05 it gained {measured:+.1f} points of accuracy over "
    )
    assert text[1].startswith("Evidence: svhn/dirichlet:0.05, 100 rounds [1]; your data set; ")
    assert not [line for line in text if "cifar10" in line]
    assert text[-1].endswith(" --rounds 100 --local-epochs 1 --batch-size 16 --lr 0.01 --momentum 0.9 --seeds 3 "
                             "--algorithm fedavg,fedla+fedacg+refit")  # fmt: skip


def test_what_is_below_on_ones_own_data_is_said_with_the_points_measured_there(said):
    text = said("svhn", 0.05, seed=1)
    ((points, verdict, seeds, *_),) = lines_of("fedla", text)
    assert points.startswith(f"{np.mean(gains('svhn', 'dirichlet:0.05', 'fedla')):+.2f} [")
    assert (verdict, seeds) == ("below", "3")


@pytest.mark.parametrize("seed", [0, 1, 7])
def test_the_nearest_decided_setting_leads_and_what_is_open_there_is_said(said, seed):
    text = said("cifar10", 0.1, seed=seed)
    assert text[0].startswith("Use fedlc (or else ")
    assert (
        f": on cifar10/dirichlet:0.1 it gained {np.mean(gains('cifar10', 'dirichlet:0.1', 'fedlc')):+.1f} points"
        in text[0]
    )
    assert text[1].startswith("Evidence: cifar10/dirichlet:0.1, 200 rounds ")
    assert lines_of("fedlc", text)[0][1:3] == ["above", "5"]
    best, lc = (gains("cifar10", "dirichlet:0.1", name) for name in ("fedla+fedacg+refit", "fedlc"))
    (above,) = (line for line in text if line.startswith("Above fedlc in ["))
    assert f" fedla+fedacg+refit, {np.mean(np.subtract(best, lc[:3])):+.2f} [" in above
    assert "fedla+fedacg+refit" in text[-1].rpartition(" ")[2].split(",")


def test_fedlc_is_said_to_lose_on_digits(said):
    assert np.mean(gains("digits", "dirichlet:0.1", "fedlc")) < -2
    text = said("digits", 0.1)
    assert text[0].startswith("Use ")
    assert text[1].startswith("Evidence: digits/dirichlet:0.1, 60 rounds [1]; your data set; ")
    (also,) = (line for line in text if "Also below FedAvg: " in line)
    assert "fedlc" in also.partition("Also below FedAvg: ")[2].rstrip(".").split(", ")
    (command,) = (line for line in text if line.startswith("  fedskew compare"))
    assert "fedlc" not in command.partition("--algorithm ")[2].split(",")


@pytest.mark.parametrize(("dataset", "beta"), [("cifar10", 0.05), ("cifar10", 0.1), ("svhn", 0.05), ("digits", 0.1)])
def test_every_method_of_a_sentence_has_a_line_and_is_in_the_setting_that_is_cited(said, dataset, beta):
    text, whole = said(dataset, beta), said(dataset, beta, "--all")
    for line in (line for line in text if line.startswith("How you train")):
        (method,) = re.findall(r" (\S+) gains ", line)
        assert lines_of(method, text)
        for number in re.findall(r"\[(\d+)\]", line):
            start = next(place for place, line in enumerate(whole) if line.startswith(f"[{number}] "))
            end = next(place for place, line in enumerate(whole[start + 1 :], start + 1) if not line.startswith("    "))
            assert re.search(rf"\b{re.escape(method)} ", "\n".join(whole[start:end]))
    for number in set(re.findall(r"\[(\d+)\]", "\n".join(text[: text.index("")]))):
        assert [line for line in text if line.startswith(f"[{number}] ")]


def test_fedavgs_accuracy_is_said_with_its_seeds(said):
    settings = [line for line in said("cifar10", 0.1, "--all") if re.match(r"\[\d+\] ", line)]
    assert settings
    assert all(re.search(r"; FedAvg \d+\.\d\d % \((one seed|\d seeds)\)$", line) for line in settings)


def test_the_answer_is_short(said):
    """The first line says what to do; the answer fits on a screen."""
    for dataset, beta in (("cifar10", 0.05), ("svhn", 0.05), ("digits", 0.1), ("imagenet12", 0.1)):
        text = said(dataset, beta)
        assert text[0].startswith(("Use ", "Stay with FedAvg", "Unknown "))
        assert text.index("") <= 14
        assert len(text) <= 36

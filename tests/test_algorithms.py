"""Recipes are FedAvg with some parts changed; combinations are unions of parts."""

import dataclasses
import re
from pathlib import Path

import pytest
import torch

import fedskew
from fedskew.aggregators import normalized_mean, trimmed_mean, weighted_mean
from fedskew.algorithms import (
    ALGORITHMS,
    Algorithm,
    build_algorithm,
    combine,
    fedacg,
    fedavg,
    fedavgm,
    fedcm,
    feddyn,
    fedgc,
    fedla,
    fedlc,
    fednova,
    fedopt,
    fedprox,
    fedrs,
    fedsam,
    median,
    refit,
    resolve_algorithm,
    scaffold,
    trimmed,
)
from fedskew.core.view import Outputs, View
from fedskew.corrections import Correction, centralized, client_momentum, control_variates, dynamic, proximal, sharpness
from fedskew.losses import adjusted, calibrated, cross_entropy, on_examples, on_logits, restricted
from fedskew.optimizers import adagrad, adam, look_ahead, sgd, yogi
from fedskew.readouts import as_trained, fitted

FEDAVG = {
    "loss": on_logits(cross_entropy),
    "terms": (),
    "correction": Correction(),
    "ascents": (),
    "aggregate": weighted_mean(),
    "server": sgd(1.0),
    "readout": as_trained(),
}


@pytest.mark.parametrize(
    ("algorithm", "name", "changed"),
    [
        (fedavg(), "fedavg", {}),
        (fedprox(), "fedprox", {"correction": proximal(0.01)}),
        (fedprox(0.3), "fedprox", {"correction": proximal(0.3)}),
        (scaffold(), "scaffold", {"correction": control_variates()}),
        (fednova(), "fednova", {"aggregate": normalized_mean()}),
        (fedopt(), "fedopt", {"server": adam(0.01, 0.9, 0.99, 1e-3)}),
        (fedopt("yogi"), "fedopt", {"server": yogi(0.01, 0.9, 0.99, 1e-3)}),
        (fedopt("adagrad"), "fedopt", {"server": adagrad(0.01, 1e-3)}),
        (fedopt("sgd"), "fedopt", {"server": sgd(1.0)}),
        (fedopt("sgd", eta=0.5), "fedopt", {"server": sgd(0.5)}),
        (fedopt("adam", 0.1, 0.5, 0.6, 0.2), "fedopt", {"server": adam(0.1, 0.5, 0.6, 0.2)}),
        (fedavgm(), "fedavgm", {"server": sgd(1.0, momentum=0.9)}),
        (fedavgm(0), "fedavgm", {}),
        (fedacg(), "fedacg", {"correction": proximal(0.002), "server": look_ahead(1.0, momentum=0.85)}),
        (feddyn(), "feddyn", {"correction": dynamic(0.1)}),
        (fedcm(), "fedcm", {"correction": client_momentum(0.1)}),
        (fedgc(), "fedgc", {"correction": centralized()}),
        (fedsam(), "fedsam", {"ascents": (sharpness(0.05),)}),
        (fedsam(0), "fedsam", {}),
        (scaffold(mean="uniform"), "scaffold", {"correction": control_variates("uniform")}),
        (fedrs(), "fedrs", {"loss": on_logits(restricted(0.5, "binary"))}),
        (fedrs(0.2, "proportional"), "fedrs", {"loss": on_logits(restricted(0.2, "proportional"))}),
        (fedlc(), "fedlc", {"loss": on_logits(calibrated(5.0, "floor", "all"))}),
        (fedlc(5, "mask", "others"), "fedlc", {"loss": on_logits(calibrated(5, "mask", "others"))}),
        (fedla(), "fedla", {"loss": on_logits(adjusted(1.0, "floor"))}),
        (fedla(2.0, "mask"), "fedla", {"loss": on_logits(adjusted(2.0, "mask"))}),
        (trimmed(), "trimmed", {"aggregate": trimmed_mean(0.2)}),
        (median(), "median", {"aggregate": trimmed_mean(0.5)}),
        (refit(), "refit", {"readout": fitted(30, 0.001)}),
        (refit(asks=5, pull=0.0), "refit", {"readout": fitted(5, 0.0)}),
    ],
)
def test_every_recipe_changes_its_part_and_no_other(
    algorithm: Algorithm, name: str, changed: dict[str, object]
) -> None:
    assert algorithm == Algorithm(name, **{**FEDAVG, **changed})  # type: ignore[arg-type]
    parts = {f.name: getattr(algorithm, f.name) for f in dataclasses.fields(algorithm)[1:]}
    assert parts == {**FEDAVG, **changed}


def test_all_are_named_and_public() -> None:
    for name, factory in ALGORITHMS.items():
        assert factory().name == name
        assert getattr(fedskew, name) is factory


def test_who_needs_travel() -> None:
    assert {name for name, factory in ALGORITHMS.items() if factory().needs_travel} == {"scaffold", "fednova", "fedcm"}
    assert combine(fedlc(), fednova()).needs_travel
    assert not combine(fedlc(), fedprox()).needs_travel


def test_combine_is_the_union() -> None:
    merged = combine(fedlc(tau=2.0), scaffold(), fedopt("yogi"), fednova())
    assert merged.name == "fedlc+scaffold+fedopt+fednova"
    assert merged.loss == on_logits(calibrated(2.0))
    assert merged.correction == control_variates()
    assert merged.server == yogi()
    assert merged.aggregate == normalized_mean()


def test_combine_does_not_mind_the_order_or_fedavg() -> None:
    one, two = combine(fedlc(), fedprox()), combine(fedprox(), fedavg(), fedlc())
    assert dataclasses.replace(one, name="") == dataclasses.replace(two, name="")
    assert combine(fedlc()) == fedlc()


@pytest.mark.parametrize(
    ("algorithms", "message"),
    [
        ((fedlc(), fedrs()), "fedlc and fedrs both set the loss"),
        ((fedprox(), fedlc(), scaffold()), "fedprox and scaffold both set the correction"),
        ((fednova(), fednova()), "fednova and fednova both set the aggregate"),
        ((fedopt(), fedopt("yogi")), "fedopt and fedopt both set the server"),
        ((combine(fedlc(), fedprox()), scaffold()), "fedlc\\+fedprox and scaffold both set the correction"),
    ],
)
def test_a_conflict_names_the_part(algorithms: tuple[Algorithm, ...], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        combine(*algorithms)


def test_combine_nothing() -> None:
    with pytest.raises(ValueError, match="at least one algorithm"):
        combine()


@pytest.mark.parametrize(
    ("text", "algorithm"),
    [
        ("fedavg", fedavg()),
        ("fedlc", fedlc()),
        ("fedlc:5", fedlc(5.0)),
        ("fedlc:tau=0.5,missing=mask,denominator=others", fedlc(0.5, "mask", "others")),
        ("fedopt:server=yogi", fedopt("yogi")),
        ("fedopt:yogi,eta=1e-3", fedopt("yogi", 0.001)),
        ("fedrs:0.1,proportional", fedrs(0.1, "proportional")),
        ("fedlc:tau=5,missing=floor+scaffold", combine(fedlc(), scaffold())),
        ("fedlc:tau=1e-2+fedprox:mu=1e-3+fednova", combine(fedlc(0.01), fedprox(0.001), fednova())),
    ],
)
def test_specs(text: str, algorithm: Algorithm) -> None:
    assert build_algorithm(text) == algorithm
    resolved = "+".join(part.text for part in resolve_algorithm(text))
    assert build_algorithm(resolved) == algorithm


def test_resolved_text() -> None:
    assert [part.text for part in resolve_algorithm("fedlc+scaffold+fedopt")] == [
        "fedlc:tau=5,missing=floor,denominator=all",
        "scaffold",
        "fedopt:server=adam,eta=none,b1=0.9,b2=0.99,eps=0.001",
    ]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("fedcl", "unknown algorithm 'fedcl': did you mean fedlc\\? known: fedavg, fedprox"),
        ("fedlc:tau=-1", "tau is -1.0; allowed: 0 or more"),
        ("fedlc:missing=drop", "missing is 'drop'; allowed: floor, mask, epsilon"),
        ("fedopt:server=adm", "unknown server optimiser 'adm': did you mean adam\\? known: sgd, adagrad, adam, yogi"),
        ("fedprox:mu=-1", "mu is -1.0; allowed: 0 or more"),
        ("fedlc+fedrs", "fedlc and fedrs both set the loss"),
        ("fedlc+", "algorithm is 'fedlc\\+', which has nothing on one side of a \\+; for example fedlc\\+scaffold"),
        ("scaffold:1", "too many values; allowed: mean"),
        ("fednova:1", "too many values; allowed: no argument"),
    ],
)
def test_wrong_specs(text: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        build_algorithm(text)


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "mine.py"
    path.write_text(
        "from fedskew import Algorithm\n"
        "from fedskew.corrections import proximal\n\n"
        "def whole(mu: float = 0.5):\n    return Algorithm('mine', correction=proximal(mu))\n\n"
        "def loss(scale: float = 2.0):\n"
        "    return lambda logits, labels, counts: scale * logits.logsumexp(-1)\n\n"
        "def neither():\n    return 3\n"
    )
    return path


def test_a_users_algorithm(file: Path) -> None:
    assert build_algorithm(f"{file}:whole,mu=0.1") == Algorithm("mine", correction=proximal(0.1))
    merged = build_algorithm(f"fedlc+{file}:whole")
    assert merged.name == "fedlc+mine"
    assert merged.loss == on_logits(calibrated())
    assert merged.correction == proximal(0.5)
    with pytest.raises(ValueError, match="mine and scaffold both set the correction"):
        build_algorithm(f"{file}:whole+scaffold")


def test_a_users_loss(file: Path) -> None:
    made = build_algorithm(f"{file}:loss,scale=3+scaffold")
    function, logits = on_examples(made.loss), torch.zeros(2, 4)
    assert function is not None
    assert torch.equal(function(logits, torch.zeros(2, dtype=torch.int64), torch.ones(4)), 3 * logits.logsumexp(-1))
    assert made.correction == control_variates()
    assert made.name == f"{file}:loss,scale=3+scaffold"


def test_a_users_factory_that_gives_neither(file: Path) -> None:
    with pytest.raises(ValueError, match="returned an int; allowed: an Algorithm or a loss function"):
        build_algorithm(f"{file}:neither")


def test_terms_and_ascents_add_up() -> None:
    def term(view: View) -> torch.Tensor:
        return view.outputs.logits.square().mean(-1)

    def other(view: View) -> torch.Tensor:
        return view.outputs.logits.abs().mean(-1)

    merged = combine(fedlc(), Algorithm("a", terms=(term,)), fedsam(0.1), Algorithm("b", terms=(other,)))
    assert merged.terms == (term, other)
    assert merged.ascents == (sharpness(0.1),)
    logits, labels, counts = torch.randn(5, 3), torch.zeros(5, dtype=torch.int64), torch.tensor([2, 2, 1])
    view = View(Outputs(logits), labels, None, counts, torch.tensor(1.0), lambda: Outputs(logits))
    assert torch.equal(merged.objective(view), fedlc().loss(view) + term(view) + other(view))


def test_a_loss_that_takes_something_else() -> None:
    with pytest.raises(ValueError, match=r"a loss takes \(logits, labels\); allowed: \(view\) or"):
        Algorithm("mine", loss=lambda logits, labels: logits)  # type: ignore[misc, arg-type, return-value]


class _Plain(Correction):
    """A part whose class is given where an instance belongs."""


@pytest.mark.parametrize(
    ("part", "message"),
    [
        ({"correction": _Plain}, "correction is the class _Plain; allowed: an instance of a Correction"),
        ({"aggregate": 3}, "aggregate is an int; allowed: an instance of an Aggregate"),
        ({"server": 0.1}, "server is a float; allowed: an instance of an Optimizer"),
        ({"readout": len}, "readout is a builtin_function_or_method; allowed: an instance of a Readout"),
        ({"loss": 3}, "loss is an int; allowed: a function of (view) or (logits, labels, counts)"),
        ({"terms": cross_entropy}, "terms is a function; allowed: a tuple of functions"),
        ({"ascents": len}, "ascents is a builtin_function_or_method; allowed: a tuple of functions"),
    ],
)
def test_a_part_of_another_kind_is_refused_where_it_is_written(part, message):
    with pytest.raises(ValueError, match=re.escape(message)):
        Algorithm("own", **part)


class _Bare:
    def coefficients(self, weights, travel):
        return weights


def test_a_part_that_lacks_something_is_told_what_to_derive_from():
    told = "aggregate is a _Bare without merge, linear; allowed: an instance of a subclass of fedskew.agg"
    with pytest.raises(ValueError, match=told):
        Algorithm("own", aggregate=_Bare())

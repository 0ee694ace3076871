"""Errors of the user's own code name its line."""

import re
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
from torch import Tensor, nn

from fedskew import Algorithm, Correction, Run, cross_entropy, simulate
from fedskew.core.own import own_line, told
from fedskew.core.round import Sums
from fedskew.core.tree import Params

SMALL: dict[str, Any] = {"clients": 3, "rounds": 1, "model": "logistic"}
HINT = "clients are stacked on leading axes"


def misspelt(logits: Tensor, labels: Tensor, counts: Tensor) -> Tensor:
    return cross_entropy(logit, labels, counts)  # noqa: F821


def misshapen(logits: Tensor, labels: Tensor, counts: Tensor) -> Tensor:
    return logits.reshape(7, 7, 7)


def misused(logits: Tensor, labels: Tensor, counts: Tensor) -> Tensor:
    """The error is raised in the package, by what this line gives it."""
    return cross_entropy(logits, labels.tolist(), counts)


@dataclass(frozen=True)
class Absorbing(Correction):
    def absorb(self, server: Params, sums: Sums, fraction: float) -> Params:
        return {"velocity": sums.message["velocity"]}


@dataclass(frozen=True)
class Starting(Correction):
    def client_state(self, params: Params) -> Params:
        return params.nothing


def line_of(function: Any, after: int = 1) -> str:
    code = function.__code__
    return f"test_traces.py, line {code.co_firstlineno + after}, in {code.co_name}"


@pytest.mark.parametrize("engine", ["serial", "stacked", "threaded", "graphed"])
@pytest.mark.parametrize(
    ("loss", "after", "kind"),
    [(misspelt, 1, "NameError: name 'logit'"), (misshapen, 1, "RuntimeError: shape"), (misused, 2, "AttributeError: ")],
)
def test_a_loss_that_fails_is_named_by_its_line(engine: str, loss: Any, after: int, kind: str) -> None:
    with pytest.raises(RuntimeError, match=rf"^round 1, clients? 0.*: {re.escape(line_of(loss, after))}: {kind}") as it:
        list(simulate(Run(**SMALL, algorithm=loss, engine=engine)))
    assert (HINT in str(it.value)) == (loss is misshapen and engine in ("stacked", "graphed"))


class Misspelt(nn.Linear):
    def __init__(self) -> None:
        super().__init__(64, 10)

    def forward(self, x: Tensor) -> Tensor:
        return super().forward(inputs)  # noqa: F821


def test_a_model_that_fails_is_named_by_its_line() -> None:
    line = re.escape(line_of(Misspelt.forward))
    with pytest.raises(ValueError, match=rf"cannot take inputs of shape \[1, 8, 8\]: {line}: NameError: name 'inputs'"):
        list(simulate(Run(**{**SMALL, "model": Misspelt})))


@pytest.mark.parametrize(
    ("correction", "method", "kind"),
    [(Absorbing(), Absorbing.absorb, "KeyError: 'velocity'"), (Starting(), Starting.client_state, "AttributeError: ")],
)
def test_what_fails_on_the_server_or_before_the_first_round_is_named_too(
    correction: Correction, method: Any, kind: str
) -> None:
    with pytest.raises(RuntimeError, match=f"^{re.escape(line_of(method))}: {kind}"):
        list(simulate(Run(**SMALL, algorithm=Algorithm("mine", correction=correction))))


def test_an_error_of_the_package_alone_has_no_line_of_the_users() -> None:
    def caught(function: Any, *given: Any) -> Exception:
        try:
            function(*given)
        except Exception as error:
            return error.with_traceback(error.__traceback__.tb_next if error.__traceback__ else None)
        raise AssertionError

    error = caught(np.zeros(2).reshape, 3)
    assert own_line(error) is None
    assert told(error) == str(error)
    assert told(caught({}.__getitem__, "a")) == "KeyError: 'a'"

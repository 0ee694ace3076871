import pytest

from fedskew.advice.kinds import UNKNOWN, kind_of
from fedskew.data import DATASETS, USUAL
from fedskew.models import MODELS


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        (("cifar10",), ("svhn",), True),
        (("cifar10", "cnn:norm=group"), ("imagenet12",), True),
        (("cifar10",), ("cifar10", "mlp"), False),
        (("cifar10",), ("digits",), False),
        (("digits",), ("synthetic:1,1",), False),
        (("digits", "logistic"), ("synthetic:1,1",), False),
    ],
)
def test_a_kind_is_of_data_and_model(one, other, same):
    assert (kind_of(*one) == kind_of(*other)) == same
    assert UNKNOWN not in (kind_of(*one), kind_of(*other))


@pytest.mark.parametrize(
    "given", [(None,), ("npz:mine.npz",), ("folder:imgs",), ("my.py:data",), ("cifar10", "my.py:net"), ("nodes:8,10",)]
)
def test_what_the_user_made_is_unknown(given):
    assert kind_of(*given) == UNKNOWN


def test_every_registered_model_has_a_kind():
    assert UNKNOWN not in {kind_of("cifar10", model) for model in MODELS}
    assert {name for name in DATASETS if kind_of(name) == UNKNOWN} == {"folder", "npz", "nodes"} <= set(USUAL)

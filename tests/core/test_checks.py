"""Arguments of parts: what is refused, and how that is said."""

import math
import re

import pytest

from fedskew.core.checks import check_choice, check_number, made_of


def test_check_choice() -> None:
    check_choice("missing", "mask", ("floor", "mask"))
    with pytest.raises(ValueError, match="missing is 'msak'; allowed: floor, mask"):
        check_choice("missing", "msak", ("floor", "mask"))


@pytest.mark.parametrize("value", [-1e-9, 1.1, math.nan, math.inf, -math.inf])
def test_check_number_refuses(value: float) -> None:
    with pytest.raises(ValueError, match=re.escape(f"alpha is {value}; allowed: 0 to 1")):
        check_number("alpha", value, 0.0, 1.0)


def test_check_number_accepts_the_ends() -> None:
    check_number("alpha", 0.0, 0.0, 1.0)
    check_number("alpha", 1.0, 0.0, 1.0)
    check_number("tau", 1e300)
    with pytest.raises(ValueError, match="tau is inf; allowed: 0 or more"):
        check_number("tau", math.inf)


@pytest.mark.parametrize(
    ("value", "ends", "allowed"),
    [
        (0.0, {"above": True}, "above 0"),
        (0.0, {"high": 1.0, "above": True}, "above 0, at most 1"),
        (1.0, {"high": 1.0, "below": True}, "0 or more, below 1"),
    ],
)
def test_an_end_that_is_left_out(value: float, ends: dict[str, float], allowed: str) -> None:
    with pytest.raises(ValueError, match=f"lr is {value}; allowed: {allowed}$"):
        check_number("lr", value, **ends)  # type: ignore[arg-type]
    check_number("lr", 0.5, **ends)  # type: ignore[arg-type]


def test_made_of() -> None:
    assert [made_of(thing) for thing in (None, 5, 0.5, [])] == ["nothing", "an int", "a float", "a list"]

"""What Python objects are told apart by, and what is refused."""

import enum
import re
import subprocess
import sys
import threading
from collections import OrderedDict, defaultdict
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from fedskew import Algorithm
from fedskew.core.identity import identity
from tests.helpers.notebooks import run_cell


def told(source: str) -> str:
    return identity(run_cell(source)["f"], "f")


BASE = "k = 2\ndef g(x):\n    return x + 1\ndef f(x, *, y=1):\n    return k * g(x) + y\n"


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("k = 2", "k = 3"),
        ("x + 1", "x + 2"),
        ("y=1", "y=2"),
        ("k * g(x)", "g(x) * k"),
        ("def f", "import math\ndef g(x):\n    return math.pi\ndef f"),
    ],
)
def test_a_function_is_its_source_defaults_and_globals(before: str, after: str) -> None:
    assert told(BASE) == told("unused = 1\n" + BASE)
    assert told(BASE) != told(BASE.replace(before, after))


def test_a_name_that_is_only_an_attribute_is_no_global() -> None:
    source = "def f(view):\n    return view.data\n"
    assert told(source) == told(f"import threading\ndata = threading.Lock()\n{source}")


def test_closures_partials_and_methods_count_with_what_they_hold() -> None:
    def outer(a: Any) -> Any:
        def inner(x: float) -> float:
            return float(a * x)

        return inner

    assert identity(outer(1), "f") == identity(outer(1), "f") != identity(outer(2), "f")
    assert identity(partial(outer, 1), "f") != identity(partial(outer, 2), "f")
    assert identity([1].append, "f") is not None
    assert identity(outer(torch.ones(2)), "f") != identity(outer(torch.zeros(2)), "f")
    with pytest.raises(ValueError, match=r"inner\(\): a is a lock"):
        identity(outer(threading.Lock()), "f")


def test_a_class_is_its_methods_and_what_they_use() -> None:
    source = """
from dataclasses import dataclass
def helper(x):
    return x
class Base:
    kind = 1
    def go(self): return helper(1)
@dataclass(frozen=True)
class F(Base):
    power: float = 1.0
    @property
    def twice(self): return 2 * self.power
    @staticmethod
    def s(): return 1
    def me(self): return super().go()
f = F()
"""
    first = told(source)
    assert first == told(source)
    for before, after in (
        ("return x", "return -x"),
        ("kind = 1", "kind = 2"),
        ("2 * self", "3 * self"),
        ("return 1", "return 2"),
        ("F()", "F(2.0)"),
        ("power: float = 1.0", "power: float = 1.0\n    q: int = 0"),
    ):
        assert told(source.replace(before, after)) != first, before


@pytest.mark.parametrize("decorator", ["torch.no_grad()", "functools.lru_cache", "functools.cache", "other"])
def test_what_is_behind_a_decorator_counts(decorator: str) -> None:
    source = (
        "import functools, torch\ndef other(f):\n    @functools.wraps(f)\n    def g(*a):\n        return f(*a)\n"
        f"    return g\n@{decorator}\ndef f(n):\n    return f(n - 1) if n else 1\n"
    )
    assert told(source) == told(source) != told(source.replace("else 1", "else 2"))


def test_a_function_under_the_name_of_an_installed_one_is_still_its_source() -> None:
    source = (
        "import functools\nfrom torch.nn.functional import cross_entropy\n@functools.wraps(cross_entropy)\n"
        "def f(logits, labels):\n    return 2 * cross_entropy(logits, labels)\n"
    )
    assert told(source) == told(source) != told(source.replace("2 *", "3 *"))


def test_an_enumeration_of_ones_own_counts_with_its_values() -> None:
    source = "import enum\nclass Kind(enum.Enum):\n    ONE = 1\nf = Kind.ONE\n"
    assert told(source) == told(source) != told(source.replace("= 1", "= 2"))


def test_a_module_of_ones_own_counts_with_its_values_and_the_modules_behind_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "_own_front.py").write_text(
        "from _own_back import behind\nscale = 1\ndef go(x):\n    return behind(x)\n"
    )
    (tmp_path / "_own_back.py").write_text("def behind(x):\n    return x\n")
    for name in ("_own_front", "_own_back"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    source = "import _own_front\ndef f(x):\n    return _own_front.scale * _own_front.go(x)\n"
    first = told(source)
    assert told(source) == first
    monkeypatch.setattr(sys.modules["_own_front"], "scale", 2)
    assert told(source) != first
    monkeypatch.setattr(sys.modules["_own_front"], "scale", 1)
    (tmp_path / "_own_back.py").write_text("def behind(x):\n    return -x\n")
    assert told(source) != first


class Slotted:
    __slots__ = ("value",)

    def __init__(self, value: int) -> None:
        self.value = value


class Colour(enum.Enum):
    RED = 1
    BLUE = 2


@dataclass
class Held:
    value: Any


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (1, True),
        (1, 1.0),
        ("1", 1),
        ((1, 2), [1, 2]),
        ([1, [2]], [[1], 2]),
        ({"a": 1}, {"a": 2}),
        ({1, 2}, {1, 3}),
        (Colour.RED, Colour.BLUE),
        (torch.float32, torch.float64),
        (torch.ones(2), torch.ones(2, 1)),
        (torch.ones(2), nn.Parameter(torch.ones(2))),
        (np.ones(2), np.zeros(2)),
        (np.ones(2), np.ones(2, np.float32)),
        (Path("a"), Path("b")),
        (Held(1), Held(2)),
        (Slotted(1), Slotted(2)),
        (np.zeros(0), np.zeros((0, 1))),
        (np.float32(1), np.float64(1)),
        (Algorithm("a"), Algorithm("b")),
        (torch.relu, torch.tanh),
        (nn.Linear, nn.Conv2d),
        (nn.ReLU(), nn.Tanh()),
        (nn.Dropout(0.1), nn.Dropout(0.2)),
        ([1].append, [2].append),
        (re.compile("a" * 300), re.compile("a" * 301)),
        (re.compile("a"), re.compile("a", re.IGNORECASE)),
        (defaultdict(int), defaultdict(float)),
        (np.ma.array([1, 2], mask=[True, False]), np.ma.array([1, 2], mask=[False, False])),
    ],
)
def test_different_values_differ(one: object, other: object) -> None:
    assert identity(one, "x") == identity(one, "x") != identity(other, "x") == identity(other, "x")


def test_the_order_of_a_dict_counts_since_parts_of_a_sequence_are_in_one() -> None:
    linear, bend = nn.Linear(2, 2), nn.Tanh()
    one = nn.Sequential(OrderedDict([("linear", linear), ("bend", bend)]))
    other = nn.Sequential(OrderedDict([("bend", bend), ("linear", linear)]))
    assert identity(one, "x") != identity(other, "x")


def test_the_order_of_names_and_the_sharing_of_values_do_not_count() -> None:
    assert identity(partial(print, sep="", end=""), "x") == identity(partial(print, end="", sep=""), "x")
    one = [1, 2]
    assert identity([one, one], "x") == identity([[1, 2], [1, 2]], "x")


def test_circles_end() -> None:
    loop: list[Any] = [1]
    loop.append(loop)
    again: list[Any] = [1]
    again.append(again)
    assert identity(loop, "x") == identity(again, "x")


def test_a_module_is_its_class_and_its_state() -> None:
    torch.manual_seed(0)
    one = nn.Sequential(nn.Linear(2, 3), nn.BatchNorm1d(3), nn.LSTM(3, 2))
    torch.manual_seed(0)
    same = nn.Sequential(nn.Linear(2, 3), nn.BatchNorm1d(3), nn.LSTM(3, 2))
    assert identity(one, "m") == identity(same, "m")
    with torch.no_grad():
        next(same.parameters()).add_(1)
    assert identity(one, "m") != identity(same, "m")


@pytest.mark.parametrize(
    ("thing", "why"),
    [
        (eval("lambda x: x"), "no source"),
        (threading.Lock(), "lock"),
        (torch.Generator(), "Generator"),
        ((i for i in range(2)), "generator"),
        (np.array([object()]), "ndarray"),
        ({"a": [threading.Lock()]}, r"\['a'\]\[0\] is a lock"),
    ],
)
def test_what_cannot_be_told_is_refused(thing: object, why: str) -> None:
    with pytest.raises(ValueError, match=why):
        identity(thing, "it")


def test_two_lambdas_on_a_line_are_not_told_apart() -> None:
    pair = [lambda: 1, lambda: 2]  # fmt: skip
    told = r"^test_identity\.py, line \d+: several lambdas stand on one line, so this one cannot be identified"
    with pytest.raises(ValueError, match=told):
        identity(pair[0], "it")


def test_it_is_the_same_in_another_process(tmp_path: Path) -> None:
    source = (
        "import torch\nfrom torch import nn\nfrom fedskew import Algorithm\nWORDS = {'a', 'b', 'c'}\n"
        "class F(nn.Module):\n    def __init__(self):\n        super().__init__()\n        torch.manual_seed(0)\n"
        "        self.last = nn.Linear(2, 2)\n    def forward(self, x):\n        return self.last(x) if WORDS else x\n"
        "def loss(logits, labels, counts):\n    return logits[..., 0]\n"
        "f = [F(), Algorithm('mine', loss=loss), loss]\n"
    )
    (tmp_path / "own.py").write_text(
        source + "from fedskew.core.identity import identity\nprint(identity(f, 'f'), end='')"
    )
    done = subprocess.run([sys.executable, tmp_path / "own.py"], capture_output=True, text=True, check=True)
    assert done.stdout == told(source)

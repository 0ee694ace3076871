"""The grammar of specs, their canonical text, and what is said about a wrong one."""

import hashlib
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedskew.core import spec
from fedskew.data import resolve_dataset
from fedskew.runs.specs import REGISTRIES, WRITTEN_OUT, built_schedule


def margin(tau: float = 1.0, missing: str = "floor", deep: bool = False, size: int | None = None) -> dict[str, Any]:
    return {"tau": tau, "missing": missing, "deep": deep, "size": size}


def needy(b: float, count: int = 3) -> tuple[float, int]:
    return b, count


def untyped(a, b=2):
    return a, b


def bare() -> str:
    return "bare"


def shaped(width: int = 4, input_shape: tuple[int, ...] = (1,), num_classes: int = 2) -> tuple[Any, ...]:
    return width, input_shape, num_classes


KNOWN = {"margin": margin, "needy": needy, "untyped": untyped, "bare": bare}


def text_of(text: str) -> str:
    return spec.resolve(text, "thing", KNOWN).text


def error_of(text: str) -> str:
    with pytest.raises(ValueError, match=r".") as caught:
        spec.resolve(text, "thing", KNOWN)
    return str(caught.value)


@pytest.mark.parametrize(
    ("text", "name", "values", "named"),
    [
        ("iid", "iid", [], {}),
        ("iid:", "iid", [], {}),
        ("shards:2", "shards", [2], {}),
        ("dirichlet:0.1,balance=off", "dirichlet", [0.1], {"balance": False}),
        ("a:on,TRUE,off,False,none,None", "a", [True, True, False, False, None, None], {}),
        ("a:1e-3,1E5,-2,+3,.5", "a", [1e-3, 1e5, -2, 3, 0.5], {}),
        (" a:x = 1 , y = word ", "a", [], {"x": 1, "y": "word"}),
        ("a:k=b=c", "a", [], {"k": "b=c"}),
    ],
)
def test_parse(text: str, name: str, values: list[Any], named: dict[str, Any]) -> None:
    parsed = spec.parse(text)
    assert parsed == (name, values, named)
    assert spec.name_in(text) == name
    assert [type(v) for v in parsed[1]] == [type(v) for v in values]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "'' has no name"),
        (":1", "':1' has no name"),
        ("a:1,", "'a:1,' has an empty argument"),
        ("a:,1", "'a:,1' has an empty argument"),
        ("a:x=", "'a:x=' has an empty argument"),
        ("a:=1", "'a:=1' has an empty argument"),
        ("a:x=1,x=2", "'a:x=1,x=2' gives x twice"),
        ("a:x=1,2", "'a:x=1,2': 2 without a name comes after x=..."),
    ],
)
def test_parse_errors_show_the_text(text: str, message: str) -> None:
    with pytest.raises(ValueError, match=re.escape(message)):
        spec.parse(text)


@pytest.mark.parametrize(
    ("text", "canonical"),
    [
        ("margin", "margin:tau=1,missing=floor,deep=off,size=none"),
        ("margin:0.5,mask,on,7", "margin:tau=0.5,missing=mask,deep=on,size=7"),
        ("margin:size=7,tau=2", "margin:tau=2,missing=floor,deep=off,size=7"),
        ("needy:0.1", "needy:b=0.1,count=3"),
        ("needy:1e20", "needy:b=1e20,count=3"),
        ("needy:1e-7", "needy:b=1e-07,count=3"),
        ("needy:0.1234567890123", "needy:b=0.1234567890123,count=3"),
        ("bare", "bare"),
        ("untyped:x", "untyped:a=x,b=2"),
    ],
)
def test_resolved_text_has_nothing_implicit_and_is_stable(text: str, canonical: str) -> None:
    assert text_of(text) == canonical
    assert text_of(canonical) == canonical
    once, twice = spec.resolve(text, "thing", KNOWN), spec.resolve(canonical, "thing", KNOWN)
    assert once.build() == twice.build()


@given(st.floats(allow_nan=False, allow_infinity=False))
def test_every_float_reads_back_equal(value: float) -> None:
    shown = spec.show(value)
    assert "+" not in shown  # a plus joins methods
    assert float(spec.parse(f"a:{shown}")[1][0]) == value  # type: ignore[arg-type]


@given(st.one_of(st.booleans(), st.integers(1 - 2**63, 2**63 - 1), st.none()))
def test_other_values_read_back(value: bool | int | None) -> None:
    read = spec.parse(f"a:{spec.show(value)}")[1][0]
    assert read == value
    assert type(read) is type(value)


def test_build_gives_typed_arguments() -> None:
    made = spec.resolve("margin:2,size=3", "thing", KNOWN).build()
    assert made == {"tau": 2.0, "missing": "floor", "deep": False, "size": 3}
    assert type(made["tau"]) is float


def test_the_programs_own_arguments() -> None:
    """Those in `given` are filled at build time, only where the factory takes them, and no spec may set them."""
    known = {"shaped": shaped, "bare": bare}
    given_names = ("input_shape", "num_classes")
    resolved = spec.resolve("shaped:8", "model", known, given_names)
    assert resolved.text == "shaped:width=8"
    assert resolved.build(input_shape=(3, 4), num_classes=7, other=1) == (8, (3, 4), 7)
    assert spec.resolve("bare", "model", known, given_names).build(input_shape=(3,), num_classes=7) == "bare"
    with pytest.raises(ValueError, match="has no argument num_classes: allowed: width"):
        spec.resolve("shaped:num_classes=3", "model", known, given_names)
    with pytest.raises(ValueError, match="too many values; allowed: width"):
        spec.resolve("shaped:1,2", "model", known, given_names)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("margn", "unknown thing 'margn': did you mean margin? known: margin, needy, untyped, bare"),
        ("MARGIN", "unknown thing 'MARGIN': did you mean margin? known: margin, needy, untyped, bare"),
        ("margin:TAU=1", "'margin:TAU=1' has no argument TAU: did you mean tau? allowed: tau, missing, deep, size"),
        ("xyzzy", "unknown thing 'xyzzy': known: margin, needy, untyped, bare"),
        ("margin:tua=1", "'margin:tua=1' has no argument tua: did you mean tau? allowed: tau, missing, deep, size"),
        ("margin:zz=1", "'margin:zz=1' has no argument zz: allowed: tau, missing, deep, size"),
        ("margin:1,tau=2", "'margin:1,tau=2' gives tau twice"),
        ("margin:1,a,on,2,3", "'margin:1,a,on,2,3' has too many values; allowed: tau, missing, deep, size"),
        ("bare:1", "'bare:1' has too many values; allowed: no argument"),
        ("needy", "'needy' needs b; arguments: b, count; for example needy:0.1"),
        ("needy:count=4", "'needy:count=4' needs b; arguments: b, count; for example needy:0.1"),
        ("untyped", "'untyped' needs a; arguments: a, b; for example untyped:A"),
        ("margin:tau=high", "'margin:tau=high': tau is 'high', which is not a finite number"),
        ("margin:tau=on", "'margin:tau=on': tau is 'on', which is not a finite number"),
        ("margin:tau=none", "'margin:tau=none': tau is 'none', which is not a finite number"),
        ("margin:deep=1", "'margin:deep=1': deep is '1', which is not on or off"),
        ("margin:size=1.5", "'margin:size=1.5': size is '1.5', which is not a whole number"),
        ("margin:tau=nan", "'margin:tau=nan': tau is nan, which is not a finite number"),
        ("margin:tau=inf", "'margin:tau=inf': tau is inf, which is not a finite number"),
        ("needy:-inf", "'needy:-inf': b is -inf, which is not a finite number"),
    ],
)
def test_errors_name_the_value_and_what_is_allowed(text: str, message: str) -> None:
    assert error_of(text) == message


def test_the_example_of_every_registered_name_is_right() -> None:
    """Whatever a run may name, with what an argument in capitals stands for."""
    shown = dict[str, str]()
    for field, known in REGISTRIES.items():
        for name in known:
            try:
                WRITTEN_OUT[field](name)
            except ValueError as error:
                shown[name] = example = str(error).partition("; for example ")[2]
                filled = example.replace("PATH", "my_file").replace("SHAPE", "3x8x8")
                written = WRITTEN_OUT[field](filled)
                assert written.startswith(f"{name}:")
                if field == "dataset" and "PATH" not in example:
                    resolve_dataset(filled).build(seed=0, clients=2)
                if field == "lr_schedule":
                    built_schedule(filled, 10)
    assert shown == {
        "synthetic": "synthetic:0.1,0.1",
        "folder": "folder:PATH",
        "npz": "npz:PATH",
        "nodes": "nodes:SHAPE,2",
        "shards": "shards:2",
        "labels": "labels:2",
        "dirichlet": "dirichlet:0.1",
        "replay": "replay:PATH",
        "exponential": "exponential:0.1",
        "step": "step:2",
    }


def test_none_is_a_word_where_words_are_wanted() -> None:
    assert text_of("margin:missing=none") == "margin:tau=1,missing=none,deep=off,size=none"


def test_short_is_as_people_write_it() -> None:
    assert spec.short("margin:tau=1,missing=floor,deep=off,size=none", KNOWN) == "margin"
    assert spec.short("margin:tau=5,missing=floor,deep=on,size=none", KNOWN) == "margin:tau=5,deep=on"
    assert spec.short("needy:b=0.1,count=3", KNOWN) == "needy:0.1"
    assert spec.short("needy:b=0.1,count=4", KNOWN) == "needy:0.1,count=4"
    assert spec.short("folder/my.py:f,a=1", KNOWN) == "f:a=1"
    assert spec.short("folder/my.py:f", KNOWN) == "f"
    assert spec.short("natural", KNOWN) == "natural"


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "mine.py"
    path.write_text("def make(mu: float = 0.5, word: str = 'x'):\n    return mu, word\n\nnumber = 3\n")
    return path


def test_a_users_file(file: Path) -> None:
    resolved = spec.resolve(f"{file}:make,2", "thing", KNOWN)
    assert resolved.text == f"{file}:make,mu=2,word=x"
    assert resolved.file_sha256 == hashlib.sha256(file.read_bytes()).hexdigest()
    assert resolved.build() == (2.0, "x")
    assert spec.resolve(resolved.text, "thing", KNOWN).text == resolved.text
    assert spec.resolve("margin", "thing", KNOWN).file_sha256 is None


def test_a_changed_file_is_read_again(file: Path) -> None:
    before = spec.resolve(f"{file}:make", "thing", KNOWN)
    file.write_text("def make():\n    return 'new'\n")
    after = spec.resolve(f"{file}:make", "thing", KNOWN)
    assert after.build() == "new"
    assert after.file_sha256 != before.file_sha256


def test_a_users_file_that_is_not_there_is_told_with_the_folder(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert error_of("none.py:f") == f"there is no file none.py in {tmp_path} or where Python finds modules"


def test_errors_about_a_users_file(file: Path, tmp_path: Path) -> None:
    assert error_of(f"{tmp_path}/none.py:f") == f"there is no file {tmp_path}/none.py"
    assert error_of(f"{file}") == f"'{file}' names no factory; write {file}:my_factory"
    assert error_of(f"{file}:3") == f"'{file}:3' names no factory; write {file}:my_factory"
    assert error_of(f"{file}:maker") == f"{file} has no function 'maker'; it has: make"
    assert error_of(f"{file}:number") == f"{file} has no function 'number'; it has: make"
    assert error_of(f"{file}:make,wrod=1").endswith("has no argument wrod: did you mean word? allowed: mu, word")
    file.write_text("1 / 0\n")
    assert error_of(f"{file}:make") == f"{file} could not be imported: ZeroDivisionError: division by zero"
    file.write_text("def (\n")
    assert "could not be imported: SyntaxError" in error_of(f"{file}:make")
    file.write_text("raise SystemExit(3)\n")
    assert error_of(f"{file}:make") == f"{file} could not be imported: SystemExit: 3"
    file.write_text("make = dict\n")
    assert error_of(f"{file}:make") == "dict does not declare its arguments; write a function that calls it"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("needy:1,count=1" + "0" * 30, "count is 1e30; allowed: integers below 2**63"),
        ("needy:1,count=1e300", "count is 1e300; allowed: integers below 2**63"),
        ("needy:1,count=" + "9" * 400, "which is not a whole number"),
        ("needy:" + "9" * 5000, "which is not a finite number"),
        ("needy:1e999", "b is '1e999', which is not a finite number"),
    ],
)
def test_numbers_of_absurd_size(text: str, message: str) -> None:
    assert message in error_of(text)


def test_a_long_whole_number_is_a_float_where_one_is_wanted() -> None:
    assert spec.resolve("needy:1" + "0" * 30, "thing", KNOWN).build() == (1e30, 3)


@pytest.mark.parametrize("letter", ["\x1b", "\n", "\x00", "\x9b", "\u2028", "\udcff"])
def test_control_characters_are_refused(letter: str) -> None:
    said = error_of(f"margin:missing=a{letter}b")
    assert said.startswith("the spec is 'margin:missing=a\\")
    assert said.endswith("allowed: text without control characters")
    assert letter not in said


def test_a_users_file_with_a_dataclass_and_postponed_annotations(tmp_path: Path) -> None:
    path = tmp_path / "mine.py"
    path.write_text(
        "from __future__ import annotations\nfrom dataclasses import dataclass\n\n"
        "@dataclass(frozen=True)\nclass Part:\n    mu: float = 0.5\n\ndef make():\n    return Part()\n"
    )
    assert spec.resolve(f"{path}:make", "thing", KNOWN).build().mu == 0.5


@pytest.mark.parametrize("word", ["2024.10", "007", "1e3", "on", "none", "-0"])
def test_a_word_that_reads_as_a_number_stays_as_it_was_written(word: str) -> None:
    def named(path: str, size: int = 2) -> str:
        return path

    for text in (f"named:{word}", f"named:path={word}", f"named:{word},size=3"):
        resolved = spec.resolve(text, "thing", {"named": named})
        assert resolved.build() == word
        assert spec.resolve(resolved.text, "thing", {"named": named}).build() == word


def test_words_that_read_as_the_same_number_stay_apart() -> None:
    def named(one: str, two: str) -> tuple[str, str]:
        return one, two

    for text in ("named:007,7", "named:one=007,two=7", "named:two=7,one=007", "named: 007 , two = 7"):
        assert spec.resolve(text, "thing", {"named": named}).build() == ("007", "7")


def test_a_factory_that_cannot_be_hashed_is_read_all_the_same() -> None:
    @dataclass
    class Factory:
        scale: float

        def __call__(self, power: int = 2) -> float:
            return self.scale**power

    assert list(spec.parameters(Factory(3.0))) == ["power"]

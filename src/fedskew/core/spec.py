"""Short strings that name a thing and its arguments: `dirichlet:0.1,balance=off`, `fedlc:tau=1+scaffold`.

    spec = name [":" argument {"," argument}]      argument = value | key "=" value

A spec whose name ends in `.py` is a factory in the user's own file: `path/my_file.py:my_factory,mu=0.1`. A name with an
`@` is an object given in Python (`core/live.py`): `my_factory@1f0c9a2b7d3e4f58:mu=0.1`. `resolve` binds a spec to a
factory's signature, so that every default is written out: that text names a run. Only keyword-only arguments are left
out at their default, so that a factory can get a new one and old runs keep their names.
"""

import difflib
import hashlib
import importlib.util
import inspect
import math
import sys
import unicodedata
from collections.abc import Callable, Collection, Hashable, Iterable, Iterator, Mapping
from contextlib import contextmanager, redirect_stdout
from contextvars import ContextVar
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from types import ModuleType
from typing import Any

from fedskew.core.modules import digest_with_imports

Value = bool | int | float | str | None
_WORDS: dict[str, Value] = {"on": True, "true": True, "off": False, "false": False, "none": None}
_KINDS = {"bool": "on or off", "float": "a finite number", "int": "a whole number", "str": "text"}
_LARGEST = 2**63
"""Integers must be below this."""
_EXAMPLES = {"float": "0.1", "int": "2"}
"""What an example has for an argument of this kind, else the argument's name in capitals."""
_first: ContextVar[Path | None] = ContextVar("first", default=None)
LIVE: dict[str, Callable[..., Any]] = {}
"""Factories that this process was given as Python objects, by name and digest."""


@dataclass(frozen=True)
class Resolved:
    """A factory with all its arguments: `build()` makes the object, `text` is the spec with all defaults in it."""

    factory: Callable[..., Any]
    arguments: Mapping[str, Value]
    text: str
    file_sha256: str | None = None
    """Of the user's own file; if it imports modules of the user's own, over theirs as well."""

    @property
    def own(self) -> bool:
        """Whether it is the user's own code."""
        return self.file_sha256 is not None or is_live(self.text)

    def build(self, **given: Any) -> Any:
        """Make the object, passing those of the program's arguments that its factory takes."""
        wanted = parameters(self.factory)
        try:
            return self.factory(**self.arguments, **{name: value for name, value in given.items() if name in wanted})
        except Exception as error:
            if not self.own or isinstance(error, ValueError):
                raise
            raise ValueError(f"{self.text} failed: {type(error).__name__}: {error}") from error


def check_plain(what: str, text: str) -> None:
    """Refuse control characters, which a terminal would interpret, and invalid text."""
    if any(unicodedata.category(letter) in ("Cc", "Cs", "Zl", "Zp") for letter in text):
        raise ValueError(f"{what} is {text!a}; allowed: text without control characters")


def parameters(factory: Callable[..., Any]) -> Mapping[str, inspect.Parameter]:
    """What a factory takes by name."""
    return _read(factory) if isinstance(factory, Hashable) else _read.__wrapped__(factory)


@lru_cache  # a page of tables asks a hundred thousand times
def _read(factory: Callable[..., Any]) -> Mapping[str, inspect.Parameter]:
    try:
        named = inspect.signature(factory).parameters
    except (TypeError, ValueError):
        name = getattr(factory, "__name__", type(factory).__name__)
        raise ValueError(f"{name} does not declare its arguments; write a function that calls it") from None
    return {name: p for name, p in named.items() if p.kind not in (p.VAR_POSITIONAL, p.VAR_KEYWORD)}


def parse(text: str) -> tuple[str, list[Value], dict[str, Value]]:
    """Name, positional values and keyword values of a spec."""
    check_plain("the spec", text)
    name, _, rest = (piece.strip() for piece in text.partition(":"))
    if not name:
        raise ValueError(f"{text!r} has no name; a spec is name:argument,key=value")
    values: list[Value] = []
    named: dict[str, Value] = {}
    for argument in rest.split(",") if rest else []:
        word, equals, value = (piece.strip() for piece in argument.partition("="))
        if not word or (equals and not value):
            raise ValueError(f"{text!r} has an empty argument; a spec is name:argument,key=value")
        if equals:
            if word in named:
                raise ValueError(f"{text!r} gives {word} twice")
            named[word] = _value(value)
        elif named:
            raise ValueError(f"{text!r}: {word} without a name comes after {next(iter(named))}=...")
        else:
            values.append(_value(word))
    return name, values, named


def text_of(name: str, values: Iterable[Value], named: Mapping[str, Value], joint: str = ":") -> str:
    """A spec of these parts, as `parse` takes it apart."""
    tail = ",".join([*map(show, values), *(f"{key}={show(value)}" for key, value in named.items())])
    return f"{name}{joint}{tail}" if tail else name


def name_in(text: str) -> str:
    """The name in a spec: `dirichlet` in `dirichlet:0.1`."""
    return text.partition(":")[0].strip()


def resolve(
    text: str,
    kind: str,
    known: Mapping[str, Callable[..., Any]],
    given: Collection[str] = (),
    finished: Collection[tuple[str, ...]] = (),
) -> Resolved:
    """Find a spec's factory among the known ones, or in the user's file, and bind its arguments.

    The program fills the parameters named in `given` when it builds; a spec may not set them. A function in the user's
    file whose parameters are one of `finished` is no factory: it is what a factory would make.
    """
    name, values, named = parse(text)
    sha256 = None
    if name.endswith(".py"):
        if not values or not isinstance(values[0], str):
            raise ValueError(f"{text!r} names no factory; write {name}:my_factory")
        factory, sha256 = _from_file(name, values[0])
        factory = _itself(factory) if tuple(parameters(factory)) in finished else factory
        head, values = f"{name}:{values[0]}", values[1:]
    elif name in known:
        factory, head = known[name], name
    elif is_live(name):
        factory, head = _live(name, kind), name
    else:
        raise ValueError(unknown(kind, name, known))
    try:
        arguments = _bind(factory, text, values, named, given)
    except _Missing as error:
        if name in known:
            raise ValueError(f"{error}; for example {_example(name, factory, given)}") from None
        if sha256 is None or not finished:
            raise
        forms = " or ".join(f"({', '.join(names)})" for names in finished)
        raise ValueError(f"{error}; a function of exactly {forms} is itself the {kind}") from None
    later = {key: p.default for key, p in parameters(factory).items() if p.kind is p.KEYWORD_ONLY}
    shown = {key: value for key, value in arguments.items() if key not in later or value != later[key]}
    return Resolved(factory, arguments, text_of(head, (), shown, "," if sha256 else ":"), sha256)


def unknown(kind: str, name: str, known: Mapping[str, Any]) -> str:
    """The message for an unknown name, with the nearest known one."""
    return f"unknown {kind} {name!r}: {_hint(name, known)}known: {', '.join(known)}"


def _hint(name: str, known: Collection[str]) -> str:
    """The nearest known name, whatever its case, as a question."""
    lower = {each.lower(): each for each in known}
    near = difflib.get_close_matches(name.lower(), lower, n=1)
    return f"did you mean {lower[near[0]]}? " if near else ""


def show(value: Value) -> str:
    """A value as written in a spec: the shortest form that reads back equal."""
    if value is None:
        return "none"
    if isinstance(value, bool):
        return "on" if value else "off"
    if isinstance(value, float):
        text = f"{value:g}"
        text = text if float(text) == value else repr(value)
        return text.replace("e+", "e")
    return str(value)


def short(text: str, known: Mapping[str, Callable[..., Any]]) -> str:
    """A resolved spec as people write it: arguments without a default as bare values, defaults left out."""
    name, values, named = parse(text)
    if name.endswith(".py"):
        return text_of(str(values[0]), (), named)
    if is_live(name):
        return text.partition("@")[0] + "".join(text.partition(":")[1:])
    if name not in known:
        return text
    defaults = {p.name: p.default for p in parameters(known[name]).values()}
    bare = [value for key, value in named.items() if defaults.get(key) is inspect.Parameter.empty]
    kept = {key: value for key, value in named.items() if defaults.get(key) not in (inspect.Parameter.empty, value)}
    return text_of(name, bare, kept)


def family(text: str) -> str:
    """A method, or a combination of several, without arguments: `fedlc+scaffold`, `own.py:mine`."""
    parts = [part.partition(",")[0] if name_in(part).endswith(".py") else name_in(part) for part in text.split("+")]
    return "+".join(parts)


def _value(text: str) -> Value:
    """The value of a word in a spec; a number too large for a 64-bit integer or a float stays a string."""
    if text.lower() in _WORDS:
        return _WORDS[text.lower()]
    for kind in (int, float):
        try:
            value = kind(text)
        except ValueError:
            continue
        if abs(value) < _LARGEST or (kind is float and (math.isfinite(value) or not any(map(str.isdigit, text)))):
            return value
    return text


class _Missing(ValueError):
    """An argument without a default that was not given."""


def _example(name: str, factory: Callable[..., Any], given: Collection[str]) -> str:
    """A spec with all arguments that a factory needs, and no other."""
    needed = [p for p in parameters(factory).values() if p.name not in given and p.default is p.empty]
    return text_of(name, [_EXAMPLES.get(_kind(p.annotation), p.name.upper()) for p in needed], {})


def _kind(wanted: Any) -> str:
    """An annotation as text, also if it is a string: `float`, `int | None`."""
    return getattr(wanted, "__name__", str(wanted))


def _itself(thing: Callable[..., Any]) -> Callable[..., Any]:
    return lambda: thing


def _bind(
    factory: Callable[..., Any], text: str, values: list[Value], named: dict[str, Value], given: Collection[str]
) -> dict[str, Value]:
    free = {name: p for name, p in parameters(factory).items() if name not in given}
    allowed = ", ".join(free) or "no argument"
    in_order = [name for name, p in free.items() if p.kind is not p.KEYWORD_ONLY]
    if len(values) > len(in_order):
        raise ValueError(f"{text!r} has too many values; allowed: {allowed}")
    bound = dict(zip(in_order, values, strict=False))
    for name, value in named.items():
        if name not in free:
            raise ValueError(f"{text!r} has no argument {name}: {_hint(name, free)}allowed: {allowed}")
        if name in bound:
            raise ValueError(f"{text!r} gives {name} twice")
        bound[name] = value
    for name, parameter in free.items():
        if name not in bound:
            if parameter.default is parameter.empty:
                raise _Missing(f"{text!r} needs {name}; arguments: {allowed}")
            bound[name] = parameter.default
    words = _words(text, in_order[: len(values)])
    return {name: _typed(text, name, bound[name], free[name].annotation, words.get(name)) for name in free}


def _words(text: str, bare: list[str]) -> dict[str, str]:
    """Arguments as they are written: 007 is not 7. The last words without a name belong to `bare`, in this order."""
    pieces = [argument.partition("=") for argument in text.partition(":")[2].split(",")]
    named = {name.strip(): word.strip() for name, equals, word in pieces if equals}
    unnamed = [word.strip() for word, equals, _ in pieces if not equals]
    return {**named, **dict(zip(reversed(bare), reversed(unnamed), strict=False))}


def _typed(text: str, name: str, value: Value, wanted: Any, written: str | None) -> Value:
    """Check a value against a plain annotation (float, int, bool, str, or one of them with None)."""
    kinds = {part.strip() for part in _kind(wanted).split("|")}
    if "float" in kinds and isinstance(value, int) and not isinstance(value, bool):
        return float(value)
    if "int" in kinds and "float" not in kinds and isinstance(value, float) and value.is_integer():
        if abs(value) >= _LARGEST:
            raise ValueError(f"{text!r}: {name} is {show(value)}; allowed: integers below 2**63")
        return int(value)
    if value is None and kinds & {"None", "NoneType", "_empty"}:
        return value
    names = {"float", "int", "bool", "str"} & kinds
    if names == {"str"}:
        return value if isinstance(value, str) else written or show(value)
    if names and type(value).__name__ not in names:
        allowed = " or ".join(_KINDS[kind] for kind in sorted(names))
        raise ValueError(f"{text!r}: {name} is {show(value)!r}, which is not {allowed}")
    if isinstance(value, float) and not math.isfinite(value):
        raise ValueError(f"{text!r}: {name} is {value}, which is not a finite number")
    return value


def is_live(text: str) -> bool:
    """Whether a spec stands for an object given in Python."""
    name = name_in(text)
    return "@" in name and not name.endswith(".py")


def is_own(text: str) -> bool:
    """Whether a spec names the user's own code, which `short` leaves out: in a file, or given in Python."""
    return is_live(text) or parse(text)[0].endswith(".py")


def _live(name: str, kind: str) -> Callable[..., Any]:
    if name not in LIVE:
        called, _, digest = name.partition("@")
        raise ValueError(
            f"{kind} {called!r} (digest {digest}) was given as a Python object, which this process does not have: the "
            f"run's own code is needed; run the script or notebook that creates it, with {called!r} unchanged"
        )
    return LIVE[name]


@contextmanager
def beside(folder: Path | None) -> Iterator[None]:
    """Inside, the user's own files are looked up in this folder first."""
    before = _first.set(folder)
    try:
        yield
    finally:
        _first.reset(before)


def own_file(name: str) -> Path:
    """Where the user's own file is: in the folder of `beside`, the current one, or where Python finds modules.

    An app is installed in a different place on each node of a federation, and must be the same run everywhere.
    """
    first = _first.get()
    places = [*([first / name] if first else []), Path(name), *(Path(place) / name for place in sys.path)]
    path = next((found for found in places if found.is_file()), None)
    if path is None:
        where = "" if Path(name).is_absolute() else f" in {first or Path.cwd()} or where Python finds modules"
        raise ValueError(f"there is no file {name}{where}")
    return path


def _from_file(file: str, name: str) -> tuple[Callable[..., Any], str]:
    """A factory from the user's own file, which is run."""
    path = own_file(file)
    sha256 = hashlib.sha256(path.read_bytes()).hexdigest()
    module = _imported(path.resolve(), sha256)
    found = getattr(module, name, None)
    if not callable(found):
        own = {key: value for key, value in vars(module).items() if callable(value)}
        names = [key for key, value in own.items() if getattr(value, "__module__", None) == module.__name__]
        raise ValueError(f"{path} has no function {name!r}; it has: {', '.join(names) or 'none'}")
    return found, digest_with_imports(path)


@lru_cache(maxsize=64)
def _imported(path: Path, sha256: str) -> ModuleType:
    """The file as a module, run again only if it changes; what it prints goes to standard error."""
    spec = importlib.util.spec_from_file_location(f"_fedskew_user_{sha256[:12]}", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # dataclasses look up their own module
    try:
        with redirect_stdout(sys.stderr):
            spec.loader.exec_module(module)
    except (Exception, SystemExit) as error:
        why = f"{type(error).__name__}: {error}{_lies_beside(path, error)}"
        raise ValueError(f"{path} could not be imported: {why}") from error
    digest_with_imports(path)  # notes what it has imported
    return module


def _lies_beside(path: Path, error: BaseException) -> str:
    """What to do if a module that was not found is in the folder of the file."""
    name = (error.name or "").partition(".")[0] if isinstance(error, ModuleNotFoundError) else ""
    if not name or not ((path.parent / f"{name}.py").is_file() or (path.parent / name).is_dir()):
        return ""
    return f"; {name} lies beside the file, where Python does not look: set PYTHONPATH={path.parent}"

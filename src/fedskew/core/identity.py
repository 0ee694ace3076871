"""A digest of a Python object that is the same in every process: code by source, values by content.

A function counts with its source, defaults, attributes, what it closes over and the globals that it reads; a class with
its methods; an instance with its class and its attributes; a dictionary in its order; tensors and arrays with their
bytes; a module of the user's own with its file, its plain values and the modules it has something from. What comes from
the standard library, from fedskew or from another installed package counts by name and is not looked into. Anything
whose content cannot be told (code without source, a generator, an open file) is refused.
"""

import dataclasses
import dis
import enum
import hashlib
import inspect
import re
import reprlib
import struct
import sys
import textwrap
import weakref
from collections.abc import Iterator
from functools import cached_property, lru_cache, partial
from pathlib import Path, PurePath
from types import BuiltinFunctionType, CodeType, FunctionType, MethodType, ModuleType
from typing import Any

import numpy as np
import torch

from fedskew.core import tree
from fedskew.core.checks import made_of
from fedskew.core.modules import installed

_PLAIN = (type(None), bool, int, float, complex, str, bytes, type(Ellipsis), range, torch.dtype, torch.device, np.dtype)
_OF_EVERY_CLASS = {
    "__abstractmethods__", "__annotations__", "__annotate_func__", "__annotations_cache__", "__dataclass_params__",
    "__dict__", "__doc__", "__firstlineno__", "__match_args__", "__module__", "__orig_bases__", "__parameters__",
    "__qualname__", "__static_attributes__", "__weakref__", "_abc_impl",
}  # fmt: skip
_DATACLASS_METHODS = {
    f"__{name}__" for name in ("init", "repr", "eq", "lt", "le", "gt", "ge", "hash", "setattr", "delattr")
}
_Cached = type(lru_cache(lambda: None))
_READS_GLOBAL = ("LOAD_GLOBAL", "LOAD_NAME", "LOAD_FROM_DICT_OR_GLOBALS")
_POINTER = struct.calcsize("P")


def identity(thing: object, name: str) -> str:
    """64 hexadecimal digits; messages call the object `name`."""
    return _Reading().of(thing, name)


def contents(thing: object, depth: int = 2) -> dict[str, str]:
    """A digest of an object under no name, and of each of its attributes under theirs, to see later which have changed:
    what a dataclass keeps beside its fields too. A part whose content cannot be determined counts by its attributes.
    """
    found: dict[str, str] = {}
    cached = {name for kind in type(thing).__mro__ for name, v in vars(kind).items() if isinstance(v, cached_property)}
    for name, part in {"": thing, **getattr(thing, "__dict__", {})}.items():
        try:
            found |= {} if name in cached else {name: identity(part, name)}
        except Exception:  # of a sparse tensor, for example, or of what refers to itself
            inner = contents(part, depth - 1) if name and depth else {}
            found |= {f"{name}.{key}": value for key, value in inner.items()}
    return found


class _Reading:
    """One walk through an object. An object met again on the way down is named by its depth, so cycles end."""

    def __init__(self) -> None:
        self._open: dict[int, int] = {}
        self._done: dict[int, tuple[object, str]] = {}

    def of(self, thing: object, where: str) -> str:
        if isinstance(thing, enum.Enum):
            value = "" if installed(type(thing).__module__) else self.of(thing.value, where)
            return _digest("enum", _name(type(thing)), thing.name, value)
        if isinstance(thing, np.generic) or type(thing) in _PLAIN:
            return _digest(type(thing).__name__, repr(thing))
        if id(thing) in self._open:
            return _digest("outer", str(self._open[id(thing)]))
        if id(thing) not in self._done:
            self._open[id(thing)] = len(self._open)
            found = _digest(*self._parts(thing, where))
            del self._open[id(thing)]
            self._done[id(thing)] = thing, found  # kept alive, so that no other object gets its id
        return self._done[id(thing)][1]

    def _parts(self, thing: Any, where: str) -> Iterator[str]:
        yield type(thing).__name__
        if isinstance(thing, torch.Tensor):
            yield from (tree.digest({"": thing}), str(thing.requires_grad))
        elif isinstance(thing, np.ndarray) and not thing.dtype.hasobject:
            yield from (
                str(thing.dtype),
                str(thing.shape),
                hashlib.sha256(np.ascontiguousarray(thing).data).hexdigest(),
            )
            if isinstance(thing, np.ma.MaskedArray):
                yield self.of(np.ma.getmaskarray(thing), where)
        elif isinstance(thing, FunctionType):
            yield from self._function(thing, where)
        elif isinstance(thing, BuiltinFunctionType | np.ufunc):
            yield _name(thing)
            if not isinstance(owner := getattr(thing, "__self__", None), ModuleType | None):
                yield self.of(owner, where)
        elif isinstance(thing, MethodType):
            yield from (self.of(thing.__func__, where), self.of(thing.__self__, where))
        elif isinstance(thing, partial):
            yield from (self.of(thing.func, where), self.of(thing.args, where), self._named(thing.keywords, where))
        elif isinstance(thing, property):
            yield from (self.of(part, where) for part in (thing.fget, thing.fset, thing.fdel))
        elif isinstance(thing, staticmethod | classmethod | _Cached):
            yield self.of(thing.__wrapped__, where)
        elif isinstance(thing, cached_property):
            yield self.of(thing.func, where)
        elif isinstance(thing, ModuleType):
            yield from self._module(thing, where)
        elif isinstance(thing, type):
            yield from self._class(thing, where)
        elif isinstance(thing, weakref.ref):
            yield self.of(thing(), where)
        elif isinstance(thing, PurePath):
            yield str(thing)
        elif isinstance(thing, re.Pattern):
            yield from (repr(thing.pattern), str(thing.flags))
        else:
            yield from self._instance(thing, where)

    def _function(self, function: FunctionType, where: str) -> Iterator[str]:
        where = f"{where}: {function.__name__}()"
        home = function.__globals__.get("__name__")  # `functools.wraps` gives it the name and module of another
        if installed(home):
            yield f"{home}.{function.__code__.co_qualname}"
        else:
            yield _source(function.__code__, where)
            yield self._named(function.__kwdefaults__ or {}, where)
            yield self._named({k: v for k, v in vars(function).items() if k != "__wrapped__"}, where)
            known = {name: function.__globals__[name] for name in _globals(function.__code__, function.__globals__)}
            yield self._named(known, where)
        yield self.of(function.__defaults__, where)
        for cell_name, cell in zip(function.__code__.co_freevars, function.__closure__ or (), strict=True):
            try:
                held = cell.cell_contents
            except ValueError:
                raise ValueError(f"{where}: {cell_name} has no value yet") from None
            yield self.of(held, f"{where}: {cell_name}")

    def _module(self, module: ModuleType, where: str) -> Iterator[str]:
        """Its file, the plain values that it has now, and the other modules of the user's own that it draws on."""
        yield module.__name__
        if installed(module.__name__):
            return
        where = f"{where}: module {module.__name__}"
        yield _file_digest(module, where)
        held = {name: value for name, value in vars(module).items() if not name.startswith("__")}
        yield self._named({name: value for name, value in held.items() if type(value) in _PLAIN}, where)
        homes = {value.__name__ if isinstance(value, ModuleType) else _home(value) for value in held.values()}
        own = (name for name in sorted(homes - {"__main__"}) if name in sys.modules and not installed(name))
        yield from [self.of(sys.modules[name], where) for name in own]

    def _class(self, kind: type, where: str) -> Iterator[str]:
        yield _name(kind) if installed(kind.__module__) else kind.__name__
        if installed(kind.__module__):
            return
        where = f"{where}: class {kind.__name__}"
        yield from (self.of(base, where) for base in kind.__bases__)
        members = {name: value for name, value in vars(kind).items() if name not in _OF_EVERY_CLASS}
        if dataclasses.is_dataclass(kind):
            members = {name: value for name, value in members.items() if not _written_by_dataclass(name, value)}
            members["__dataclass_fields__"] = [_field(field) for field in dataclasses.fields(kind)]
        slots = {name: None for name, value in members.items() if inspect.ismemberdescriptor(value)}
        yield self._named({**members, **slots}, where)

    def _instance(self, thing: Any, where: str) -> Iterator[str]:
        yield self.of(type(thing), where)
        if isinstance(thing, dict):
            pairs = ((self.of(key, where), self.of(value, f"{where}[{key!r}]")) for key, value in thing.items())
            yield from (_digest(*pair) for pair in pairs)  # in order: that of `Sequential`'s parts is what it computes
            yield self.of(getattr(thing, "default_factory", None), where)
        elif isinstance(thing, list | tuple):
            yield from [self.of(value, f"{where}[{i}]") for i, value in enumerate(thing)]
        elif isinstance(thing, set | frozenset):
            yield from sorted(self.of(value, where) for value in thing)
        elif _hides(type(thing)):
            raise _refused(where, f"is {made_of(thing)}, whose content cannot be determined")
        if dataclasses.is_dataclass(thing):
            yield self._named({f.name: getattr(thing, f.name) for f in dataclasses.fields(thing)}, where)
        else:
            kept = {name: getattr(thing, name) for name in _slots(type(thing)) if hasattr(thing, name)}
            kept |= getattr(thing, "__dict__", {})
            known = {k: v for k, v in kept.items() if not isinstance(getattr(type(thing), k, None), cached_property)}
            yield self._named(known, where)

    def _named(self, values: dict[str, Any], where: str) -> str:
        return _digest(*(_digest(name, self.of(values[name], f"{where}: {name}")) for name in sorted(values)))


def _digest(*parts: str) -> str:
    return hashlib.sha256(repr(parts).encode()).hexdigest()


def _slots(kind: type) -> list[str]:
    declared = [base for base in kind.__mro__ if "__slots__" in vars(base)]
    return [name for base in declared for name, value in vars(base).items() if inspect.ismemberdescriptor(value)]


def _hides(kind: type) -> bool:
    """Whether instances hold more than their attributes: pickle asks the same about types without a rule."""
    pointers = (kind.__dictoffset__ > 0) + (kind.__weakrefoffset__ > 0) + len(_slots(kind))
    return kind.__basicsize__ > object.__basicsize__ + pointers * _POINTER


def _name(thing: Any) -> str:
    return f"{getattr(thing, '__module__', None)}.{getattr(thing, '__qualname__', getattr(thing, '__name__', ''))}"


def _home(thing: object) -> str:
    """The module that a function, a class or the class of anything else is from."""
    found = getattr(thing if isinstance(thing, FunctionType | type) else type(thing), "__module__", None)
    return found if isinstance(found, str) else ""


def _refused(where: str, why: str) -> ValueError:
    return ValueError(f"{where} {why}, so a run with it could not be identified; see docs/api.md for what is allowed")


def _source(code: CodeType, where: str) -> str:
    try:
        text = inspect.getsource(code)
    except (OSError, TypeError):
        raise _refused(where, "has no source code") from None
    if code.co_name == "<lambda>" and len(re.findall(r"\blambda\b", text)) > 1:
        place = f"{Path(code.co_filename).name}, line {code.co_firstlineno}"
        why = "several lambdas stand on one line, so this one cannot be identified; write it with def"
        raise ValueError(f"{place}: {why}")
    return textwrap.dedent(text).strip()


def _globals(code: CodeType, known: dict[str, Any]) -> set[str]:
    """The globals that code reads, functions inside it included."""
    found = {i.argval for i in dis.get_instructions(code) if i.opname in _READS_GLOBAL}
    for inner in code.co_consts:
        if isinstance(inner, CodeType):
            found |= _globals(inner, known)
    return found & known.keys()


def _field(field: "dataclasses.Field[Any]") -> list[Any]:
    defaults = (None if value is dataclasses.MISSING else value for value in (field.default, field.default_factory))
    return [field.name, field.init, field.compare, *defaults]


def _written_by_dataclass(name: str, member: object) -> bool:
    """Whether the dataclass decorator wrote a method, which then has no source; the fields determine it."""
    return (
        name in _DATACLASS_METHODS
        and isinstance(member, FunctionType)
        and member.__code__.co_filename in ("<string>", dataclasses.__file__, reprlib.__file__)
    )


def _file_digest(module: ModuleType, where: str) -> str:
    file = getattr(module, "__file__", None)
    if file is None or not Path(file).is_file():
        raise _refused(where, "has no source file")
    return hashlib.sha256(Path(file).read_bytes()).hexdigest()

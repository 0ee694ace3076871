"""Python objects given in place of specs: each gets a spec `name@digest`, where the digest identifies its content.

A process keeps these objects for as long as it lives, so that the spec finds them again. Each use checks the digest: an
object that has changed is refused, since the run's hash would stand for something else.
"""

import re
from collections.abc import Callable
from functools import wraps
from typing import Any

from fedskew.core import spec
from fedskew.core.identity import identity

_DIGITS = 16


def give(name: str, thing: object, factory: Callable[..., Any]) -> str:
    """The spec of an object; `factory` makes what the spec stands for."""
    name = re.sub(r"\W+", "_", name).strip("_") or "unnamed"
    digest = identity(thing, name)[:_DIGITS]

    @wraps(factory)
    def unchanged(*values: Any, **named: Any) -> Any:
        if identity(thing, name)[:_DIGITS] != digest:
            raise ValueError(f"{name} has changed since the run was created; create the run again")
        return factory(*values, **named)

    text = f"{name}@{digest}"
    spec.LIVE[text] = unchanged
    return text


def called(thing: object) -> str:
    """What to call an object: its own name, or that of its class."""
    return getattr(thing, "__name__", type(thing).__name__)

"""How much of a round's work is done, told to whoever shows it. Nothing is computed from it."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from itertools import count

Listener = Callable[[float], object]
_listener: ContextVar[Listener | None] = ContextVar("listener", default=None)


@contextmanager
def listening(listener: Listener) -> Iterator[None]:
    """Inside, `listener` is told the share of each round that is done. It may be called from any thread."""
    token = _listener.set(listener)
    try:
        yield
    finally:
        _listener.reset(token)


def meter(parts: int) -> Callable[[], object]:
    """To be called for each of so many parts of a round when it is done."""
    listener, done = _listener.get(), count(1)
    return (lambda: None) if listener is None else (lambda: listener(next(done) / parts))

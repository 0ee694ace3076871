"""How much of a round's work is done, for progress displays only. Nothing is computed from it."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from itertools import count

Listener = Callable[[float], object]
_listener: ContextVar[Listener | None] = ContextVar("listener", default=None)


@contextmanager
def listening(listener: Listener) -> Iterator[None]:
    """Inside, `listener` is called with the share of each round that is done, possibly from any thread."""
    token = _listener.set(listener)
    try:
        yield
    finally:
        _listener.reset(token)


def meter(parts: int) -> Callable[[], object]:
    """A function to call whenever one of this many parts of a round is done."""
    listener, done = _listener.get(), count(1)
    return (lambda: None) if listener is None else (lambda: listener(next(done) / parts))

"""Records in fixed memory, and repeated operations on them as a CUDA graph."""

import gc
from collections.abc import Callable, Sequence
from dataclasses import fields
from typing import Any

import torch
from torch import Tensor

from fedskew.core import tree
from fedskew.core.round import Recipe

_WARM_UP = 3


def same_step(one: Recipe, other: Recipe) -> bool:
    """Whether a captured step of one recipe serves the other: they differ at most in their learning rate, which is read
    from memory."""

    def step(recipe: Recipe) -> tuple[object, ...]:
        optimizer = type(recipe.optimizer), {**vars(recipe.optimizer), "lr": None}
        return recipe.model, recipe.algorithm, recipe.grad_clip, optimizer

    return step(one) == step(other)


def captured(
    take: Callable[[], None],
    stream: torch.cuda.Stream | None,
    pool: Any = None,
    reset: Callable[[], object] | None = None,
) -> Callable[[], None]:
    """A function that does what `take` does: the replay of its graph, or `take` itself without a stream. With a
    `reset`, which runs before each call, some warm-up calls come before the capture.
    """
    if stream is None:
        return take
    stream.wait_stream(torch.cuda.current_stream(stream.device))
    with torch.cuda.stream(stream):
        for _ in range(_WARM_UP if reset else 0):
            reset()  # type: ignore[misc]
            take()
    stream.synchronize()
    graph = torch.cuda.CUDAGraph()
    collecting = gc.isenabled()
    gc.disable()  # freeing another graph's memory would spoil the capture
    try:
        with torch.cuda.graph(graph, pool=pool, stream=stream):
            take()
    finally:
        if collecting:
            gc.enable()
    return graph.replay


def leaves(record: Any) -> list[Tensor]:
    """All tensors of a record or tree; those of a tree in order of their names."""
    if isinstance(record, Tensor):
        return [record]
    named = isinstance(record, dict)
    parts = (record[name] for name in sorted(record)) if named else (getattr(record, f.name) for f in fields(record))
    return [leaf for part in parts for leaf in leaves(part)]


def cloned(part: Any) -> Any:
    return _own(part) if isinstance(part, Tensor) else tree.map(_own, part)


def _own(leaf: Tensor) -> Tensor:
    """A copy; filters, of one client or [K, ...], in the channels-last layout that tensor cores read."""
    if leaf.ndim == 5:
        return leaf.movedim(2, -1).clone(memory_format=torch.contiguous_format).movedim(-1, 2)
    return leaf.clone(memory_format=torch.channels_last if leaf.ndim == 4 else torch.contiguous_format)


def fixed(record: Any) -> Any:
    """A copy of the record in its own memory."""
    return type(record)(*(cloned(getattr(record, f.name)) for f in fields(record)))


def copy(into: Sequence[Tensor], source: Sequence[Tensor]) -> None:
    if into:
        torch._foreach_copy_(list(into), list(source))

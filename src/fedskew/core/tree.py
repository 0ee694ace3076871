"""Arithmetic on flat trees of tensors. Leading axes are free: one client, a cohort, or anything that broadcasts."""

import hashlib
from collections.abc import Callable, Iterable, Sequence

import torch
from torch import Tensor

Params = dict[str, Tensor]


def map(function: Callable[..., Tensor], tree: Params, *others: Params) -> Params:
    """Apply a function leaf by leaf."""
    return {name: function(leaf, *(other[name] for other in others)) for name, leaf in tree.items()}


def first(a: Params) -> Tensor:
    """The first leaf: all leaves have one device, and the parameters of a model one type."""
    return next(iter(a.values()))


def add(a: Params, b: Params) -> Params:
    return {name: leaf + b[name] for name, leaf in a.items()}


def sub(a: Params, b: Params) -> Params:
    return {name: leaf - b[name] for name, leaf in a.items()}


def neg(a: Params) -> Params:
    return {name: -leaf for name, leaf in a.items()}


def zeros_like(a: Params) -> Params:
    return {name: torch.zeros_like(leaf) for name, leaf in a.items()}


def lead(vector: Tensor, leaf: Tensor) -> Tensor:
    """A vector over the leading axes, shaped to broadcast against a leaf."""
    return vector.to(leaf.dtype).reshape(vector.shape + (1,) * (leaf.ndim - vector.ndim))


def divide(a: Params, vector: Tensor) -> Params:
    """Each leaf divided by a vector over the leading axes."""
    return {name: leaf / lead(vector, leaf) for name, leaf in a.items()}


def weighted_sum(a: Params, coefficients: Tensor) -> Params:
    """sum_k coefficients[k] * leaf[k]; integer leaves are summed in float64."""

    def one(leaf: Tensor) -> Tensor:
        real = leaf if leaf.is_floating_point() else leaf.double()
        total: Tensor = torch.tensordot(coefficients.to(real), real, dims=1)
        return total

    return map(one, a)


def norm(a: Params, axes: int) -> Tensor:
    """The Euclidean norm over all but the first `axes` axes."""
    squares = [leaf.square().flatten(axes).sum(-1) if leaf.ndim > axes else leaf.square() for leaf in a.values()]
    return torch.stack(squares).sum(0).sqrt()


def stack(trees: Sequence[Params]) -> Params:
    return {name: torch.stack([tree[name] for tree in trees]) for name in trees[0]}


def concatenate(trees: Sequence[Params]) -> Params:
    """Along the first axis; the only tree of a sequence is not copied."""
    if len(trees) == 1:
        return dict(trees[0])
    return {name: torch.cat([tree[name] for tree in trees]) for name in trees[0]}


def rows(a: Params, index: slice | Tensor | int) -> Params:
    """Rows of the first axis; a tensor lists them by number."""
    if isinstance(index, Tensor):
        return {name: leaf.index_select(0, index) for name, leaf in a.items()}
    return {name: leaf[index] for name, leaf in a.items()}


def prefix(a: Params, word: str) -> Params:
    return {f"{word}/{name}": leaf for name, leaf in a.items()}


def unprefix(a: Params, word: str) -> Params:
    start = f"{word}/"
    return {name[len(start) :]: leaf for name, leaf in a.items() if name.startswith(start)}


def finite(a: Params) -> bool:
    """Whether every number is finite, so that 0 times it is 0; synchronises with the device once."""
    return bool(torch.stack([(0 * leaf).sum() for leaf in a.values()]).sum() == 0) if a else True


def as_finite(a: Params, like: Params) -> bool:
    """Whether every number is finite or the same as in `like`: a mask may be infinite from the start."""
    right = [(leaf.isfinite() | (leaf == like.get(name, torch.nan))).all() for name, leaf in a.items()]
    return bool(torch.stack(right).all()) if right else True


def unlike(a: Params, b: Params) -> str | None:
    """How the first leaf that differs in name, shape or type does; None if all are alike."""
    for name in [*b, *a]:
        if name not in a or name not in b:
            return f"{'no' if name in b else 'an unknown'} {name!r}"
        if a[name].shape != b[name].shape:
            return f"shape {list(a[name].shape)} for {name!r}, whose shape is {list(b[name].shape)}"
        if a[name].dtype != b[name].dtype:
            here, there = (str(leaf.dtype).removeprefix("torch.") for leaf in (a[name], b[name]))
            return f"{here} for {name!r}, whose type is {there}"
    return None


def nbytes(trees: Iterable[Params]) -> int:
    return sum(leaf.numel() * leaf.element_size() for tree in trees for leaf in tree.values())


def digest(a: Params) -> str:
    """32 hexadecimal digits over the names, types, shapes and bytes of all leaves, in any order."""
    whole = hashlib.sha256()
    for name in sorted(a):
        leaf = a[name].detach().cpu().contiguous()
        whole.update(f"{name} {leaf.dtype} {list(leaf.shape)}\n".encode())
        if leaf.numel():  # an empty NumPy array may have a stride of 0, which has no view as bytes
            whole.update(leaf.reshape(-1).view(torch.uint8).numpy().data)
    return whole.hexdigest()[:32]

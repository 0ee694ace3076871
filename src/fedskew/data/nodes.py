"""Data that only the nodes of a real federation hold: what all must know before a model can be built."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Nodes:
    """Shape of an example, number of classes, and what stored values are normalised with. It holds no example."""

    name: str
    input_shape: tuple[int, ...]
    num_classes: int
    mean: tuple[float, ...] | None
    std: tuple[float, ...] | None
    class_names: tuple[str, ...] | None


def nodes(shape: str, classes: int, mean: str | None = None, std: str | None = None, names: str | None = None) -> Nodes:
    """`shape` is 3x32x32 or 64; `mean` and `std` have a value per channel and `names` one per class: 0.49/0.48/0.45."""
    try:
        sizes = tuple(int(size) for size in shape.split("x"))
    except ValueError:
        sizes = ()
    if not sizes or min(sizes) < 1:
        raise ValueError(f"nodes: shape is {shape!r}; allowed: integers of at least 1, for example 3x32x32 or 64")
    if classes < 2:
        raise ValueError(f"nodes: classes is {classes}; allowed: 2 or more")
    if (mean is None) != (std is None):
        raise ValueError("nodes: mean and std belong together; give both or neither")
    return Nodes(
        "nodes", sizes, classes, _numbers("mean", mean, sizes), _numbers("std", std, sizes), _names(names, classes)
    )


def _numbers(name: str, text: str | None, sizes: tuple[int, ...]) -> tuple[float, ...] | None:
    if text is None:
        return None
    try:
        values = tuple(float(value) for value in text.split("/"))
    except ValueError:
        values = ()
    channels = sizes[0] if len(sizes) > 1 else 1
    if len(values) != channels:
        raise ValueError(f"nodes: {name} is {text!r}; allowed: {channels} number(s) separated by /")
    if name == "std" and min(values) <= 0:
        raise ValueError(f"nodes: std is {text!r}; allowed: numbers above 0")
    return values


def _names(text: str | None, classes: int) -> tuple[str, ...] | None:
    names = None if text is None else tuple(text.split("/"))
    if names is not None and len(set(names)) != classes:
        raise ValueError(f"nodes: names is {text!r}; allowed: {classes} different names separated by /")
    return names

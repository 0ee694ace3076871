"""A data set from Python objects: training and test examples, read once, into memory.

Each part is a pair of arrays (x, y), or anything with a length whose items are (example, label) or a mapping with one
example and one label: data sets of torchvision, Hugging Face and `torch.utils.data`. Examples are PIL images, tensors
or arrays; PIL images become RGB unless their mode is greyscale. Random transforms are drawn once.
"""

import math
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from PIL import Image

from fedskew.core.checks import made_of
from fedskew.core.dataset import Dataset
from fedskew.core.own import told
from fedskew.data.npz import checked, of_arrays
from fedskew.data.pictures import as_rgb

Array = NDArray[Any]
_GREY = ("1", "L")


def as_dataset(train: Any, test: Any, name: str = "data") -> Dataset:
    """Make a data set of training and test examples. uint8 images are normalised per channel, floats are used
    unchanged."""
    arrays = dict[str, Array]()
    layouts = dict[str, bool]()
    for part, given in {"train": train, "test": test}.items():
        arrays[f"x_{part}"], arrays[f"y_{part}"], layouts[part] = _arrays(f"{name}, {part}", given)
    if layouts["train"] != layouts["test"] and arrays["x_train"].ndim == 4:
        raise ValueError(f"{name}: one part is arrays, the other images or tensors; give both in the same form")
    names = _class_names(train)
    made = of_arrays(name, name, checked(name, arrays), channels_first=layouts["train"])
    if names is None:
        return made
    if len(names) != made.num_classes:
        raise ValueError(f"{name}: {len(names)} classes have names, {made.num_classes} have training examples")
    return Dataset(**{**vars(made), "class_names": names})


def _arrays(where: str, part: Any) -> tuple[Array, Array, bool]:
    """Examples, labels, and whether it is known that channels come first."""
    if isinstance(part, tuple | list) and len(part) == 2 and all(hasattr(half, "shape") for half in part):
        return _array(part[0]), _array(part[1]), isinstance(part[0], torch.Tensor)
    if not (hasattr(part, "__len__") and hasattr(part, "__getitem__")) or isinstance(part, str):
        raise ValueError(f"{where} is {made_of(part)}; allowed: arrays (x, y), or a sequence with a length and items")
    if not len(part):
        raise ValueError(f"{where} is empty")
    examples, labels, kinds = None, np.empty(len(part), np.int64), set[bool]()
    for i, (example, label) in enumerate(_items(where, part)):
        kinds.add(isinstance(example, torch.Tensor | Image.Image))
        value = _array(example)
        if examples is None:
            examples = np.empty((len(part), *value.shape), value.dtype)
        if value.shape != examples.shape[1:] or value.dtype != examples.dtype:
            here, first = (f"{x.dtype} {list(x.shape)}" for x in (value, examples[0]))
            raise ValueError(f"{where}: example {i} is {here}, the first is {first}; they must match: resize them")
        examples[i], labels[i] = value, _label(where, i, label)
    assert examples is not None
    return examples, labels, kinds == {True}


def _items(where: str, part: Any) -> Iterator[tuple[Any, Any]]:
    columns: tuple[str, str] | None = None
    for i in range(len(part)):
        try:
            item = part[i]
        except Exception as error:
            raise ValueError(f"{where}: item {i} cannot be read: {told(error)}") from error
        if isinstance(item, Mapping):
            columns = columns or _columns(where, item)
            yield item[columns[0]], item[columns[1]]
        elif isinstance(item, tuple | list) and len(item) == 2:
            yield item[0], item[1]
        else:
            raise ValueError(f"{where}: item {i} is {made_of(item)}; allowed: (example, label), or columns")


def _columns(where: str, item: Mapping[str, Any]) -> tuple[str, str]:
    """Which column has the examples and which the labels."""
    labels = [name for name, value in item.items() if isinstance(value, int | np.integer)]
    examples = [
        name for name, value in item.items() if isinstance(value, Image.Image | torch.Tensor | np.ndarray | list)
    ]
    if len(labels) != 1 or len(examples) != 1:
        raise ValueError(
            f"{where} has the columns {', '.join(item)}; allowed: one of examples and one of integer labels, "
            "for example dataset.select_columns(['image', 'label'])"
        )
    return examples[0], labels[0]


def _label(where: str, i: int, label: Any) -> int:
    value = label.item() if isinstance(label, torch.Tensor | np.ndarray) and math.prod(label.shape) == 1 else label
    if isinstance(value, bool) or not isinstance(value, int | np.integer) or abs(int(value)) >= 2**63:
        raise ValueError(f"{where}: label {i} is {label!r}; allowed: whole numbers 0..C-1")
    return int(value)


def _array(value: Any) -> Array:
    """An example, or many, as an array; images with their channels first."""
    if isinstance(value, Image.Image):
        pixels = np.asarray(value.convert("L")) if value.mode in _GREY else np.asarray(as_rgb(value))
        return pixels[None] if pixels.ndim == 2 else pixels.transpose(2, 0, 1)
    if isinstance(value, torch.Tensor):
        dense = value.detach().cpu().to_dense()
        return (dense.float() if dense.dtype is torch.bfloat16 else dense).numpy()  # NumPy has no such type
    made = np.asarray(value)
    return made.astype(np.float32) if isinstance(value, list) and made.dtype.kind in "iuf" else made


def _class_names(train: Any) -> tuple[str, ...] | None:
    """The class names, as in torchvision (`classes`) and Hugging Face (`features["label"].names`)."""
    names = getattr(train, "classes", None)
    features = getattr(train, "features", None)
    if names is None and isinstance(features, Mapping):
        said = [feature.names for feature in features.values() if getattr(feature, "names", None)]
        names = said[0] if len(said) == 1 else None
    return tuple(map(str, names)) if isinstance(names, list | tuple) else None

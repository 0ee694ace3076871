"""Data sets as other libraries hold them, by stand-ins with the same interface."""

import numpy as np
import pytest
import torch
from PIL import Image
from torch.utils.data import Subset, TensorDataset

from fedskew import Run, simulate
from fedskew.data.objects import as_dataset

PIXELS = np.random.default_rng(0).integers(0, 256, (12, 6, 5, 3)).astype(np.uint8)
LABELS = [i % 3 for i in range(12)]


class Vision:
    """As torchvision's: items are (image, label), `classes` are the names."""

    def __init__(self, images, labels, classes=None):
        self.images, self.labels = images, labels
        if classes is not None:
            self.classes = classes

    def __len__(self):
        return len(self.images)

    def __getitem__(self, i):
        return self.images[i], self.labels[i]


class ClassLabel:
    def __init__(self, names):
        self.names = names


class Hub:
    """As Hugging Face's: items are dicts of columns, `features` say what they hold."""

    def __init__(self, columns, features):
        self.columns, self.features = columns, features

    def __len__(self):
        return len(next(iter(self.columns.values())))

    def __getitem__(self, i):
        return {name: values[i] for name, values in self.columns.items()}


def images(mode="RGB"):
    return [Image.fromarray(pixels).convert(mode) for pixels in PIXELS]


def test_images_and_labels():
    made = as_dataset(Vision(images(), LABELS, ["a", "b", "c"]), Vision(images()[:3], LABELS[:3]))
    assert made.x_train.dtype == torch.uint8
    assert torch.equal(made.x_train, torch.from_numpy(PIXELS).permute(0, 3, 1, 2))
    assert (made.y_train.tolist(), len(made.y_test), made.num_classes) == (LABELS, 3, 3)
    assert made.class_names == ("a", "b", "c")
    assert made.mean == pytest.approx(tuple(PIXELS.mean((0, 1, 2))))


@pytest.mark.parametrize(("mode", "channels"), [("L", 1), ("RGB", 3), ("RGBA", 3), ("P", 3), ("1", 1)])
def test_every_mode_has_its_channels(mode, channels):
    part = Vision(images(mode), LABELS)
    assert as_dataset(part, part).input_shape == (channels, 6, 5)


def test_columns():
    features = {"image": object(), "label": ClassLabel(["a", "b", "c"])}
    part = Hub({"image": images(), "label": LABELS}, features)
    made = as_dataset(part, part)
    assert made.digest == as_dataset(Vision(images(), LABELS), Vision(images(), LABELS)).digest
    assert made.class_names == ("a", "b", "c")
    rows = Hub({"x": PIXELS[:, 0, 0].tolist(), "y": LABELS}, {})
    assert as_dataset(rows, rows).x_train.dtype == torch.float32


def test_two_columns_of_labels_are_not_guessed():
    part = Hub({"img": images(), "fine": LABELS, "coarse": LABELS}, {})
    with pytest.raises(ValueError, match=r"columns img, fine, coarse; allowed: one of examples.*select_columns"):
        as_dataset(part, part)


def test_tensors_keep_their_layout():
    x = torch.rand(12, 8, 4, 4)  # more channels than columns
    part = TensorDataset(x, torch.tensor(LABELS))
    made = as_dataset(part, Subset(part, [0, 1]))
    assert torch.equal(made.x_train, x)
    assert (made.mean, len(made.y_test)) == (None, 2)
    assert torch.equal(as_dataset((x, torch.tensor(LABELS)), (x, torch.tensor(LABELS))).x_train, x)


@pytest.mark.parametrize(
    "x",
    [torch.zeros(12, 8, 6, 3, dtype=torch.uint8), torch.zeros(12, 8, 8, 1, dtype=torch.uint8), torch.rand(12, 8, 8, 3)],
)
def test_tensors_with_channels_last_are_refused(x):
    for part in ((x, torch.tensor(LABELS)), TensorDataset(x, torch.tensor(LABELS))):
        with pytest.raises(ValueError, match=r"looks like \[n, H, W, C\]; allowed: .*x\.permute\(0, 3, 1, 2\)"):
            as_dataset(part, part)


def test_tensors_that_numpy_has_no_type_for():
    x = torch.arange(36, dtype=torch.float32).reshape(12, 3)
    given = as_dataset((x.bfloat16(), torch.tensor(LABELS)), (x.to_sparse(), torch.tensor(LABELS)))
    assert torch.equal(given.x_train, x)
    assert torch.equal(given.x_test, x)


def test_arrays_are_as_in_a_file():
    made = as_dataset((PIXELS, np.array(LABELS)), (PIXELS, np.array(LABELS)))
    assert made.input_shape == (3, 6, 5)


@pytest.mark.parametrize(
    ("train", "why"),
    [
        (Vision([], []), "is empty"),
        (Vision([*images()[:11], images()[0].resize((9, 9))], LABELS), r"example 11 is uint8 \[3, 9, 9\]"),
        (Vision(images(), ["cat"] * 12), "label 0 is 'cat'; allowed: whole numbers"),
        (Vision(images(), [0.5] * 12), "label 0 is 0.5"),
        (Vision(images(), [2**70] * 12), "label 0 is 1180591620717411303424; allowed"),
        (Vision(images(), [0, 2] * 6), "label 2 but not 1"),
        (Vision(images(), LABELS, ["a", "b"]), "2 classes have names, 3 have"),
        (Vision(["a"] * 12, LABELS), r"x_train has the shape \[12\]"),
        ([1, 2, 3], "item 0 is an int"),
        (iter([]), "is a list_iterator"),
        ("digits", "is a str"),
    ],
)
def test_what_is_no_data_set_says_why(train, why):
    with pytest.raises(ValueError, match=why):
        as_dataset(train, Vision(images(), LABELS))


@pytest.mark.parametrize("form", [tuple, lambda parts: dict(zip(("train", "test"), parts, strict=True))])
def test_a_run_takes_them_as_they_are(form):
    parts = Vision(images(), LABELS), Vision(images(), LABELS)
    run = Run(dataset=form(parts), partition="iid", clients=2, rounds=1)
    (record,) = simulate(run)
    assert record.clients == 2
    assert run.hash == Run(dataset=as_dataset(*parts), partition="iid", clients=2, rounds=1).hash


def test_an_item_that_cannot_be_read_is_named():
    class Broken(Vision):
        def __getitem__(self, i):
            return super().__getitem__(i) if i != 7 else 1 / 0

    told = r"^data, train: item 7 cannot be read: test_objects.py, line \d+, in __getitem__: ZeroDivisionError"
    with pytest.raises(ValueError, match=told):
        as_dataset(Broken(PIXELS, LABELS), Vision(PIXELS, LABELS))


class Words(torch.nn.Module):
    def __init__(self, num_classes):
        super().__init__()
        self.table, self.linear = torch.nn.Embedding(50, 4), torch.nn.Linear(4, num_classes)

    def forward(self, x):
        return self.linear(self.table(x.long()).mean(-2))


def test_numbers_of_words_are_not_pixels():
    words = np.random.default_rng(0).integers(0, 50, (12, 6))
    fields = {"model": Words, "partition": "iid", "clients": 2, "rounds": 1}

    def run(kind):
        part = words.astype(kind), np.array(LABELS)
        return Run(dataset=(part, part), **fields)

    assert next(simulate(run(np.float32))).round == 1
    with pytest.raises(ValueError, match=r"index out of range.*; uint8 examples are normalised .* given as float32$"):
        next(simulate(run(np.uint8)))
    with pytest.raises(ValueError, match=r"holds int64; allowed: .*; whole numbers such as those of words as float32$"):
        run(np.int64)

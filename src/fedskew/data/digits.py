"""The 1,797 handwritten 8x8 digits that ship with scikit-learn: real images for runs of seconds."""

import numpy as np
import torch

from fedskew.core.dataset import Dataset


def digits() -> Dataset:
    """A fixed split: the first fifth of each class, in stored order, is for testing."""
    from sklearn.datasets import load_digits

    images, labels = load_digits(return_X_y=True)
    images = images.reshape(-1, 1, 8, 8).astype(np.uint8)
    test = np.zeros(len(labels), dtype=bool)
    for label in range(10):
        members = np.flatnonzero(labels == label)
        test[members[: len(members) // 5]] = True
    train = images[~test].astype(np.float64)
    return Dataset(
        name="digits",
        x_train=torch.from_numpy(images[~test]),
        y_train=torch.from_numpy(labels[~test].astype(np.int64)),
        x_test=torch.from_numpy(images[test]),
        y_test=torch.from_numpy(labels[test].astype(np.int64)),
        num_classes=10,
        mean=(float(train.mean()),),
        std=(float(train.std()),),
    )

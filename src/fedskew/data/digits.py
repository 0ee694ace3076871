"""The 1,797 handwritten 8x8 digits that ship with scikit-learn: real images for runs of seconds."""

import numpy as np

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
    first, second = ((images[kept], labels[kept].astype(np.int64)) for kept in (~test, test))
    return Dataset.of("digits", first, second, 10, mean=(float(first[0].mean()),), std=(float(first[0].std()),))

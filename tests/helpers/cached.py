"""The digits, read once for all tests."""

from functools import lru_cache

from fedskew.core.dataset import Dataset
from fedskew.data.digits import digits


@lru_cache(maxsize=1)
def whole_digits() -> Dataset:
    return digits()

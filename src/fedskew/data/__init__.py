"""What is learned. A data set is named by a spec and loaded whole into memory."""

from collections.abc import Callable
from dataclasses import dataclass

from fedskew import spec
from fedskew.data.dataset import Dataset
from fedskew.data.digits import digits
from fedskew.data.synthetic import synthetic

DATASETS: dict[str, Callable[..., Dataset]] = {"synthetic": synthetic, "digits": digits}
GIVEN = ("seed", "clients", "data_dir")


@dataclass(frozen=True)
class Usual:
    """What a run takes for a data set when it is not told: `natural` stands for the data set's own clients."""

    model: str
    partition: str


USUAL = {
    "synthetic": Usual("logistic", "natural"),
    "digits": Usual("mlp", "dirichlet:0.1"),
}


def resolve_dataset(text: str) -> spec.Resolved:
    return spec.resolve(text, "dataset", DATASETS, GIVEN)


def load_dataset(text: str, seed: int, clients: int, data_dir: str | None = None) -> Dataset:
    """The data set a spec names. Only generated data depend on the seed and the number of clients."""
    made = resolve_dataset(text).build(seed=seed, clients=clients, data_dir=data_dir)
    if not isinstance(made, Dataset):
        raise ValueError(f"{text} gave a {type(made).__name__}; allowed: a fedskew.data.dataset.Dataset")
    return made


__all__ = ["DATASETS", "GIVEN", "USUAL", "Dataset", "Usual", "load_dataset", "resolve_dataset"]

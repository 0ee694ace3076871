"""The kind of a data set and its model: evidence counts only for its own kind."""

from fedskew.core.spec import name_in
from fedskew.data import usual_for

UNKNOWN = "unknown"
_DATA = {
    **dict.fromkeys(("cifar10", "cifar100", "svhn", "imagenet12"), "natural images"),
    **dict.fromkeys(("digits", "shapes", "femnist", "mnist", "fashion_mnist"), "small, simple images"),
    "synthetic": "generated vectors",
}
_MODELS = {
    **dict.fromkeys(("cnn", "mcmahan", "resnet18", "leaf_cnn"), "a convolutional network"),
    "mlp": "an MLP",
    "logistic": "a linear model",
}


def kind_of(dataset: str | None, model: str | None = None) -> str:
    """`natural images with a convolutional network`, from specs. The model defaults to the data set's; the user's own
    data and models are of unknown kind."""
    name = name_in(dataset or "")
    data, network = _DATA.get(name), _MODELS.get(name_in(model or usual_model(name)))
    return f"{data} with {network}" if data and network else UNKNOWN


def usual_model(dataset: str) -> str:
    usual = usual_for(dataset)
    return usual.model if usual else ""

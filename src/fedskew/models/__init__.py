"""Models, written for one client; leading axes are free."""

from collections.abc import Callable

import torch
from torch import nn

from fedskew.core import rng, spec
from fedskew.core.checks import made_of
from fedskew.core.memory import check_room, free_memory
from fedskew.models.convnet import cnn
from fedskew.models.model import Model, OutputError
from fedskew.models.network import Network
from fedskew.models.perceptrons import Logistic as logistic
from fedskew.models.perceptrons import mlp
from fedskew.models.resnet import resnet18
from fedskew.models.two_convolutions import leaf_cnn, mcmahan

MODELS: dict[str, Callable[..., nn.Module]] = {
    "logistic": logistic,
    "mlp": mlp,
    "cnn": cnn,
    "mcmahan": mcmahan,
    "resnet18": resnet18,
    "leaf_cnn": leaf_cnn,
}
GIVEN = ("input_shape", "num_classes")


def build_model(text: str, input_shape: tuple[int, ...], num_classes: int, seed: int) -> Model:
    """The model that a spec names, initialised from the seed's own stream. The user's own factory may take
    `input_shape` and `num_classes`, which are the data set's.
    """
    resolved = spec.resolve(text, "model", MODELS, GIVEN)
    if not resolved.own:
        _check_size(resolved, input_shape, num_classes)
    with rng.seeded(seed, "init"):
        module = resolved.build(input_shape=input_shape, num_classes=num_classes)
    if not isinstance(module, nn.Module):
        raise ValueError(f"{text} gave {made_of(module)}; allowed: a torch.nn.Module")
    return Model(module)


def _check_size(resolved: spec.Resolved, input_shape: tuple[int, ...], num_classes: int) -> None:
    """Refuse one of our models if its parameters do not fit into memory, before any of them is made."""
    try:
        with torch.device("meta"):
            module = resolved.build(input_shape=input_shape, num_classes=num_classes)
    except RuntimeError as error:  # sizes that PyTorch cannot even multiply
        raise ValueError(f"{resolved.text} is too large for inputs of shape {list(input_shape)}") from error
    needed = sum(parameter.nbytes for parameter in module.parameters())
    check_room(resolved.text, needed, free_memory(torch.device("cpu")), "cpu", "a smaller model would need less")


__all__ = [
    "GIVEN",
    "MODELS",
    "Model",
    "Network",
    "OutputError",
    "build_model",
    "cnn",
    "leaf_cnn",
    "logistic",
    "mcmahan",
    "mlp",
    "resnet18",
]

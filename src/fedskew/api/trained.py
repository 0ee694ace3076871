"""A trained model that takes inputs as stored and knows the names of its outputs."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from fedskew.core import spec
from fedskew.core.tree import Params
from fedskew.losses.counts import check_not_shares, log_prior
from fedskew.runs.export import final_model, read_export, rebuild, write_export
from fedskew.runs.store import Store


class TrainedModel(nn.Module):
    """Logits [B, C] of inputs [B, *input_shape] in the units of the data set's files; the model normalises them.

    `classes` are the names of the C outputs, or their numbers if the data set has no names; `module` is the network
    inside, which takes normalised inputs. `round` and `run` say where it comes from.
    """

    mean: Tensor | None
    std: Tensor | None
    prior: Tensor | None

    def __init__(self, module: nn.Module, about: dict[str, Any]) -> None:
        super().__init__()
        self.module, self._about = module, about
        self.input_shape = tuple(about["input_shape"])
        self.classes = tuple(about["classes"] or map(str, range(about["num_classes"])))
        self.round: int = about["round"]
        self.run: dict[str, Any] = about["run"]
        normalised = about["mean"] is not None and about["std"] is not None
        for name in ("mean", "std"):
            self.register_buffer(name, self._by_channel(about[name]) if normalised else None, persistent=False)
        self.register_buffer("prior", None, persistent=False)

    def _like(self) -> Tensor:
        return next(leaf for leaf in self.module.parameters() if leaf.is_floating_point())

    def _by_channel(self, values: list[float]) -> Tensor:
        shape = (-1,) + (1,) * (len(self.input_shape) - 1)
        return torch.tensor(values, dtype=self._like().dtype, device=self._like().device).reshape(shape)

    def for_client(
        self, counts: Sequence[int] | Tensor, everybody: Sequence[int] | Tensor | None = None
    ) -> "TrainedModel":
        """The same model for a client with these label counts n: log n is added to its outputs, so that what the client
        often sees is likelier. A class without examples counts as having one.

        With `everybody`'s label counts N, log N is subtracted: most methods' models already favour what is frequent
        overall, those of `fedlc` and `fedla` without `refit` do not. `save` writes the model for everybody.
        """
        n, total = self._counts(counts), None if everybody is None else self._counts(everybody)
        if total is not None and bool((total < n).any()):
            raise ValueError(f"everybody's counts are {total.tolist()}; allowed: at least the client's, {n.tolist()}")
        here = TrainedModel(self.module, self._about)
        here.prior = log_prior(n, total).to(self._like().dtype)
        return here.train(self.training)

    def _counts(self, given: Sequence[int] | Tensor) -> Tensor:
        counts = torch.as_tensor(given, device=self._like().device)
        if counts.shape != (len(self.classes),) or not bool((counts >= 0).all()):
            raise ValueError(
                f"counts are {counts.tolist()}; allowed: how many examples of each of the {len(self.classes)} classes"
            )
        check_not_shares(counts)
        return counts

    def forward(self, x: Tensor) -> Tensor:
        if tuple(x.shape[1:]) != self.input_shape:
            raise ValueError(f"inputs have the shape {list(x.shape)}; allowed: [B, {str(list(self.input_shape))[1:]}")
        x = x.to(self._like().dtype)
        logits: Tensor = self.module(x if self.mean is None or self.std is None else (x - self.mean) / self.std)
        return logits if self.prior is None else logits + self.prior

    @torch.no_grad()
    def predict(self, x: Tensor) -> list[str]:
        """The name of the most likely class of each input; `model(x).argmax(-1)` gives its number."""
        return [self.classes[label] for label in self(x).argmax(-1).tolist()]

    def save(self, path: Path | str) -> None:
        """Write the file that `load_model` reads, as `fedskew export` does."""
        write_export(Path(path), self._about, self.module.state_dict())


def trained(about: dict[str, Any], tensors: Params, module: nn.Module | None = None) -> TrainedModel:
    """The trained module, in evaluation mode and in its training precision."""
    dtype = next(leaf.dtype for leaf in tensors.values() if leaf.is_floating_point())
    return TrainedModel(rebuild(about, tensors, module, dtype), about).eval()


def load_model(
    source: Path | str,
    store: Store | Path | str | None = None,
    *,
    model: nn.Module | None = None,
    own_files: bool = False,
) -> TrainedModel:
    """Load the model from a file that `fedskew export` wrote, or from a run in a store by (the beginning of) its hash.

    A file may name a model in a Python file, which runs only with `own_files`. A model that was given to a run as a
    Python object must exist in this process. In both cases `model` can be the module to fill instead.
    """
    if (kept := Store.of(store)) is not None:
        about, tensors = final_model(kept.find(str(source)))
        return _filled(about, tensors, model)
    if not Path(source).is_file():
        raise FileNotFoundError(f"there is no file {source}; for a run in a store: load_model({str(source)!r}, 'runs')")
    about, tensors = read_export(source)
    if model is None and spec.parse(about["model"])[0].endswith(".py") and not own_files:
        raise ValueError(
            f"{source} needs {about['model']}, and loading it runs that file; pass own_files=True to allow it"
        )
    return _filled(about, tensors, model)


def _filled(about: dict[str, Any], tensors: Params, model: nn.Module | None) -> TrainedModel:
    if model is None and spec.is_live(about["model"]) and spec.name_in(about["model"]) not in spec.LIVE:
        raise ValueError(
            f"{about['model']} was given as a Python object, and this process does not have it: the run's own code is "
            "needed; load_model(..., model=my_module) fills a module that you built the same way"
        )
    try:
        return trained(about, tensors, model)
    except RuntimeError as error:
        raise ValueError(f"the saved model does not fit {about['model']}: {error}") from error

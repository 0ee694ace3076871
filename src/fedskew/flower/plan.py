"""What a server and its nodes both make of a run: the model, the method and how a client trains."""

from dataclasses import dataclass

import numpy as np

from fedskew.algorithms import Algorithm
from fedskew.data import Dataset, Nodes
from fedskew.experiments.run import Run
from fedskew.models import Model, build_model
from fedskew.round import Recipe, Server, start_server, zero_sums
from fedskew.settings import Settings, dtype_of
from fedskew.simulation import usable_device
from fedskew.tree import Params


@dataclass(frozen=True)
class Plan:
    run: Run
    model: Model
    algorithm: Algorithm
    settings: Settings
    held: int | None = None
    """Training examples of the data set; None where only the nodes have them."""

    @classmethod
    def of(cls, run: Run, known: Dataset | Nodes) -> "Plan":
        model = build_model(run.model, known.input_shape, known.num_classes, run.seed)
        held = len(known.y_train) if isinstance(known, Dataset) else None
        return cls(run, model, run.build_algorithm(), Settings.of(run, known.input_shape), held)

    def recipe(self, round: int) -> Recipe:
        return Recipe(self.model, self.algorithm, self.run.client_optimizer(round), self.run.grad_clip)

    def start(self) -> Server:
        """The first global model."""
        dtype, device = dtype_of(self.run.precision), usable_device(self.run.device)
        return start_server(self.recipe(1), *self.model.init(dtype, device))

    def message_like(self, server: Server) -> Params:
        """What a client's correction message looks like."""
        return zero_sums(self.recipe(1), server).message

    def steps(self, examples: int) -> int:
        """How many steps a client with so many examples takes in a round."""
        return int(self.settings.steps(np.array(examples)))

    def check_private(self, mechanism: str) -> None:
        """Flower's differential privacy protects one record of arrays, so nothing else may travel."""
        server = start_server(self.recipe(1), *self.model.init(dtype_of(self.run.precision), "cpu"))
        if self.message_like(server):
            reveals = self.algorithm.correction.reveals or "more than the model does"
            raise ValueError(
                f"{mechanism} protects the model only, and {self.run.short_algorithm} also sends messages, which tell "
                f"{reveals}; allowed: methods without messages, such as fedavg, fedprox or fedlc"
            )
        if server.buffers:
            raise ValueError(
                f"{mechanism} protects parameters only, and {self.run.model} also sends batch statistics; "
                "allowed: models without buffers, for example norm=group"
            )

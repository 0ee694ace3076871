"""The reference: one client after another, every batch exactly as long as it is."""

from collections.abc import Iterator, Sequence
from contextlib import nullcontext
from dataclasses import dataclass

import numpy as np
import torch

from fedskew import rng, tree
from fedskew.federation import Cohort
from fedskew.round import Batch, Context, Recipe, Server, Update, join, local_update


@dataclass(frozen=True)
class Serial:
    epochs: int
    batch_size: int
    dtype: torch.dtype

    def train(self, recipe: Recipe, servers: Sequence[Server], cohorts: Sequence[Cohort], round: int) -> list[Update]:
        """The updates of each cohort, stacked over its clients."""
        return [
            join(
                [self._client(recipe, server, cohort, k, round) for k in range(len(cohort.clients))],
                new_axis=True,
            )
            for server, cohort in zip(servers, cohorts, strict=True)
        ]

    def _client(self, recipe: Recipe, server: Server, cohort: Cohort, k: int, round: int) -> Update:
        client = cohort.clients[k : k + 1]
        device = cohort.federation.dataset.x_train.device
        counts = torch.from_numpy(cohort.federation.counts(client)[0]).to(device)
        context = Context(server.params, tree.rows(cohort.states, k), server.correction, counts)
        steps = self.epochs * -(-int(cohort.federation.sizes(client)[0]) // self.batch_size)
        named = rng.torch_seed(cohort.seed, "dropout", round, client) if recipe.model.random else nullcontext()
        try:
            with named:
                batches = self._batches(cohort, client, round)
                return local_update(recipe, context, server.buffers, batches, torch.tensor(steps, device=device))
        except Exception as error:
            raise RuntimeError(f"round {round}, client {client[0]}: {error}") from error

    def _batches(self, cohort: Cohort, client: np.ndarray, round: int) -> Iterator[Batch]:
        data = cohort.federation.dataset
        order = cohort.federation.shuffled(client, cohort.seed, round, self.epochs)
        for epoch in torch.from_numpy(order).to(data.x_train.device).chunk(self.epochs):
            for index in epoch.split(self.batch_size):
                yield Batch(data.prepare(data.x_train[index], self.dtype), data.y_train[index])

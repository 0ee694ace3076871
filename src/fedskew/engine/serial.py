"""The reference: one client after another, every batch exactly as long as it is."""

from collections.abc import Iterator, Sequence
from contextlib import nullcontext
from dataclasses import dataclass

import torch

from fedskew import rng, tree
from fedskew.engine.settings import Settings, arithmetic
from fedskew.federation import Cohort, Ints
from fedskew.round import Batch, Context, Recipe, Server, Update, join, local_update


@dataclass(frozen=True)
class Serial:
    settings: Settings

    def train(self, recipe: Recipe, servers: Sequence[Server], cohorts: Sequence[Cohort], round: int) -> list[Update]:
        """The updates of each cohort, stacked over its clients."""
        return [
            join([self.client(recipe, server, cohort, k, round) for k in range(len(cohort.clients))], new_axis=True)
            for server, cohort in zip(servers, cohorts, strict=True)
        ]

    def client(self, recipe: Recipe, server: Server, cohort: Cohort, k: int, round: int) -> Update:
        client = cohort.clients[k : k + 1]
        device = cohort.federation.dataset.x_train.device
        counts = torch.from_numpy(cohort.federation.counts(client)[0]).to(device)
        context = Context(server.params, tree.rows(cohort.states, k), server.correction, counts)
        steps = self.settings.epochs * -(-int(cohort.federation.sizes(client)[0]) // self.settings.batch_size)
        own = recipe.model.takes_mask  # a module of ours draws nothing
        named = nullcontext() if own else rng.torch_seed(cohort.seed, "dropout", round, client)
        try:
            with named, arithmetic(self.settings.precision, device):
                batches = self._batches(cohort, client, round)
                return local_update(recipe, context, server.buffers, batches, torch.tensor(steps, device=device))
        except Exception as error:
            raise RuntimeError(f"round {round}, client {client[0]}: {error}") from error

    def _batches(self, cohort: Cohort, client: Ints, round: int) -> Iterator[Batch]:
        data, use = cohort.federation.dataset, (client, cohort.seed, round, self.settings.epochs)
        order = torch.from_numpy(cohort.federation.shuffled(*use)).to(data.x_train.device)
        draws = torch.from_numpy(cohort.federation.draws(*use)).to(order) if self.settings.augment else order
        for epoch in zip(order.chunk(self.settings.epochs), draws.chunk(self.settings.epochs), strict=True):
            for index, drawn in zip(*(part.split(self.settings.batch_size) for part in epoch), strict=True):
                x = data.x_train[index]
                x = self.settings.augment(x, drawn) if self.settings.augment else x
                yield Batch(data.prepare(x, self.settings.dtype), data.y_train[index])

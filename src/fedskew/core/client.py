"""One client's whole round: its unpadded batches through `local_update`, without a leading axis.

The reference engine runs it client after client; a node of a real federation runs it for its own client.
"""

from collections.abc import Iterator

import torch

from fedskew.core import tree
from fedskew.core.federation import Cohort, Ints
from fedskew.core.own import drawing, told
from fedskew.core.round import Batch, Context, Recipe, Server, Update, local_update
from fedskew.core.settings import Settings, arithmetic


def client_update(recipe: Recipe, settings: Settings, server: Server, cohort: Cohort, k: int, round: int) -> Update:
    """The update of the cohort's k-th client. Parts that draw random numbers draw those of the client and the round."""
    with drawing(recipe, cohort.seed, "dropout", round, cohort.clients[k : k + 1]):
        return undrawn_update(recipe, settings, server, cohort, k, round)


def undrawn_update(recipe: Recipe, settings: Settings, server: Server, cohort: Cohort, k: int, round: int) -> Update:
    """The same with parts that draw nothing: it leaves the process's generators alone, and may run on any thread."""
    client = cohort.clients[k : k + 1]
    device = cohort.federation.dataset.x_train.device
    counts = torch.from_numpy(cohort.federation.counts(client)[0]).to(device)
    steps = torch.from_numpy(settings.steps(cohort.federation.sizes(client)))[0].to(device)
    state, travel = tree.rows(cohort.states, k), recipe.travel(steps)
    context = Context(server.params, server.buffers, state, server.correction, counts, travel)
    try:
        with arithmetic(settings.precision, device):
            batches = _batches(settings, cohort, client, round)
            return local_update(recipe, context, batches, steps)
    except Exception as error:
        raise RuntimeError(f"round {round}, client {client[0]}: {told(error)}") from error


def _batches(settings: Settings, cohort: Cohort, client: Ints, round: int) -> Iterator[Batch]:
    data, use = cohort.federation.dataset, (client, cohort.seed, round, settings.epochs)
    order = torch.from_numpy(cohort.federation.shuffled(*use)).to(data.x_train.device)
    draws = torch.from_numpy(cohort.federation.draws(*use)).to(order) if settings.augment else order
    for epoch in zip(order.chunk(settings.epochs), draws.chunk(settings.epochs), strict=True):
        for index, drawn in zip(*(part.split(settings.batch_size) for part in epoch), strict=True):
            x = data.x_train[index]
            x = settings.augment(x, drawn) if settings.augment else x
            yield Batch(data.prepare(x, settings.dtype), data.y_train[index])

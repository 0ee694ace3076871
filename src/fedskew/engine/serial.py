"""The reference: one client after another, without padding."""

from collections.abc import Sequence
from dataclasses import dataclass

from fedskew.core.client import client_update
from fedskew.core.federation import Cohort
from fedskew.core.pulse import meter
from fedskew.core.round import Recipe, Server, Update, join
from fedskew.core.settings import Settings, threads_for


@dataclass(frozen=True)
class Serial:
    settings: Settings

    def train(self, recipe: Recipe, servers: Sequence[Server], cohorts: Sequence[Cohort], round: int) -> list[Update]:
        """The updates of each cohort, stacked over its clients."""
        tick = meter(sum(len(cohort.clients) for cohort in cohorts))

        def trained(server: Server, cohort: Cohort, k: int) -> Update:
            update = client_update(recipe, self.settings, server, cohort, k, round)
            tick()
            return update

        with threads_for(recipe, self.settings, clients=1):
            return [
                join([trained(server, cohort, k) for k in range(len(cohort.clients))], new_axis=True)
                for server, cohort in zip(servers, cohorts, strict=True)
            ]

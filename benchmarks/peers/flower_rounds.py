"""Flower's simulation on Ray, a worker per core: `python -m benchmarks.peers.flower_rounds CLIENTS ROUNDS OUT`."""

import os
import time
from collections.abc import Iterable

from flwr.app import ArrayRecord, ConfigRecord, Context, Message, MetricRecord
from flwr.serverapp import Grid, ServerApp
from flwr.serverapp.strategy import FedAvg
from flwr.simulation import run_simulation

from benchmarks.peers.flower_client import app
from benchmarks.peers.work import asked, clients, model, tell
from benchmarks.sizes import COHORT


class Timed(FedAvg):
    """Flower's FedAvg, noting when each round begins and when its model is there."""

    def __init__(self, population: int) -> None:
        super().__init__(  # a fraction would be one of the nodes that have connected by the first round
            fraction_train=COHORT / population,
            fraction_evaluate=0.0,
            min_train_nodes=COHORT,
            min_available_nodes=population,
        )
        self.seconds: list[float] = []

    def configure_train(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> Iterable[Message]:
        self.began = time.perf_counter()
        return super().configure_train(server_round, arrays, config, grid)

    def aggregate_train(
        self, server_round: int, replies: Iterable[Message]
    ) -> tuple[ArrayRecord | None, MetricRecord | None]:
        replies = list(replies)
        failed = [reply for reply in replies if reply.has_error()]
        if failed or len(replies) != COHORT:
            raise RuntimeError(f"{len(replies)} replies, {len(failed)} with an error: {failed[:1]}")
        made = super().aggregate_train(server_round, replies)
        self.seconds.append(time.perf_counter() - self.began)
        return made


def main() -> None:
    file, rounds, out = asked()
    os.environ["BENCHMARK_CLIENTS"] = file
    population, linear, server = len(clients(file)), model(file), ServerApp()

    @server.main()
    def run(grid: Grid, context: Context) -> None:
        strategy = Timed(population)
        result = strategy.start(grid=grid, initial_arrays=ArrayRecord(linear.state_dict()), num_rounds=rounds)
        linear.load_state_dict(result.arrays.to_torch_state_dict())
        tell(out, strategy.seconds, linear, file)

    run_simulation(
        server_app=server,
        client_app=app,
        num_supernodes=population,
        backend_config={
            "client_resources": {"num_cpus": 1},
            "init_args": {"_node_ip_address": "127.0.0.1", "include_dashboard": False},
        },
    )


if __name__ == "__main__":
    main()

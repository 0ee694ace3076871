"""Table 6: the number of clients."""

from fedskew.experiments.paper.table import EIGHT, Table

TABLE = Table(
    name="table6",
    title="Number of clients",
    cells={f"m={m}": {"dataset": "cifar10", "partition": "dirichlet:0.1", "clients": m} for m in (10, 30, 50, 100)},
    methods=EIGHT,
    fields={"rounds": 400, "model": "cnn"},
    assumed=("data set and skew: CIFAR-10 under D(0.1)", "rounds: 400", "local epochs: 1"),
)
runs, rows = TABLE.runs, TABLE.rows

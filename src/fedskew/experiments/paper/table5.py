"""Table 5: the number of local epochs."""

from fedskew.experiments.paper.table import Table

TABLE = Table(
    name="table5",
    title="Local epochs",
    cells={
        f"E={epochs}/{data}/{split}": {"dataset": data, "partition": split, "local_epochs": epochs}
        for epochs in (1, 5, 10, 20)
        for data in ("cifar10", "svhn")
        for split in ("dirichlet:0.5", "shards:5")
    },
    methods=("fedavg", "fedprox", "fednova", "fedlc", "fedrs", "fedla"),
    fields={"rounds": 400, "clients": 10, "model": "cnn"},
    assumed=("clients: 10 as the caption says; the text says 20", "rounds: 400"),
)
runs, rows = TABLE.runs, TABLE.rows

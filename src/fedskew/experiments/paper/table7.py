"""Table 7: FedLC combined with SCAFFOLD and with FedProx."""

from fedskew.experiments.paper.table import Table

TABLE = Table(
    name="table7",
    title="Combinations with FedLC",
    cells={
        f"{data}/{split}": {"dataset": data, "partition": split}
        for data in ("cifar10", "svhn")
        for split in ("shards:5", "dirichlet:0.3")
    },
    methods=("fedavg", "fedlc", "fedlc+scaffold", "fedlc+fedprox", "scaffold", "fedprox"),
    fields={"rounds": 400, "clients": 20, "model": "cnn"},
    assumed=("rounds: 400", "local epochs: 1"),
)
runs, rows = TABLE.runs, TABLE.rows

"""Table 1: distribution-based label skew D(beta)."""

from fedskew.experiments.paper.table import BEYOND, CNN_ASSUMED, EIGHT, Table

TABLE = Table(
    name="table1",
    title="Distribution-based label skew D(beta)",
    cells={
        f"{data}/dirichlet:{beta}": {"dataset": data, "partition": f"dirichlet:{beta}"}
        for data in ("svhn", "cifar10", "cifar100")
        for beta in (0.05, 0.1, 0.3, 0.5)
    },
    methods=EIGHT,
    fields={"rounds": 400, "clients": 20, "model": "cnn"},
    assumed=CNN_ASSUMED,
    beyond=BEYOND,
)
runs, rows = TABLE.runs, TABLE.rows

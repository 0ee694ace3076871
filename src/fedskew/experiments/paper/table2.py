"""Table 2: quantity-based label skew Q(alpha)."""

from fedskew.experiments.paper.table import BEYOND, CNN_ASSUMED, EIGHT, Table

_ALPHAS = {"cifar10": (2, 4, 6, 8), "cifar100": (20, 40, 60, 80)}

TABLE = Table(
    name="table2",
    title="Quantity-based label skew Q(alpha)",
    cells={
        f"{data}/shards:{alpha}": {"dataset": data, "partition": f"shards:{alpha}"}
        for data, alphas in _ALPHAS.items()
        for alpha in alphas
    },
    methods=EIGHT,
    fields={"rounds": 400, "clients": 20, "model": "cnn"},
    assumed=CNN_ASSUMED,
    beyond=BEYOND,
)
runs, rows = TABLE.runs, TABLE.rows

"""Table 4: federated data sets with clients of their own."""

from fedskew.experiments.paper.table import EIGHT, Table

TABLE = Table(
    name="table4",
    title="Federated data sets",
    cells={
        "synthetic:0,0": {"dataset": "synthetic:0,0"},
        "synthetic:0.5,0.5": {"dataset": "synthetic:0.5,0.5"},
        "synthetic:1,1": {"dataset": "synthetic:1,1"},
        "femnist": {"dataset": "femnist"},
    },
    methods=EIGHT,
    fields={"rounds": 300, "clients": 100},
    assumed=("local epochs: 1", "all clients in every round", "batch size: 128, the paper's general one"),
    remark="Each seed draws new clients and data, so ± is mostly of the data. Lambda changes no label: see "
    "docs/algorithms.md.",
)
runs, rows = TABLE.runs, TABLE.rows

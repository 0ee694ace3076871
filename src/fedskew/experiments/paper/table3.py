"""Table 3: a subset of ImageNet with 12 classes."""

from fedskew.experiments.paper.table import EIGHT, Table

TABLE = Table(
    name="table3",
    title="ImageNet subset, 12 classes, 64x64, ResNet-18",
    cells={
        f"imagenet12/{split}": {"dataset": "imagenet12", "partition": split}
        for split in ("shards:2", "shards:4", "dirichlet:0.1", "dirichlet:0.3")
    },
    methods=EIGHT,
    fields={"rounds": 400, "clients": 20, "model": "resnet18"},
    assumed=(
        "number of clients: 20",
        "rounds: 400",
        "local epochs: 1",
        "which 12 classes, and how many images of each: ours are Tiny-ImageNet's, 500 for training and 50 for testing",
    ),
)
runs, rows = TABLE.runs, TABLE.rows

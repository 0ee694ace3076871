"""The paper's tables: the cells, methods and settings of each, and what the paper leaves open."""

from fedskew.paper.table import BEYOND, CNN_ASSUMED, EIGHT, Table, cells_of

_TABLES = (
    Table(
        name="table1",
        title="Distribution-based label skew D(beta)",
        cells=cells_of(("svhn", "cifar10", "cifar100"), [f"dirichlet:{beta}" for beta in (0.05, 0.1, 0.3, 0.5)]),
        methods=EIGHT,
        fields={"rounds": 400, "clients": 20, "model": "cnn"},
        assumed=CNN_ASSUMED,
        beyond=BEYOND,
    ),
    Table(
        name="table2",
        title="Quantity-based label skew Q(alpha)",
        cells={
            **cells_of(["cifar10"], [f"shards:{alpha}" for alpha in (2, 4, 6, 8)]),
            **cells_of(["cifar100"], [f"shards:{alpha}" for alpha in (20, 40, 60, 80)]),
        },
        methods=EIGHT,
        fields={"rounds": 400, "clients": 20, "model": "cnn"},
        assumed=CNN_ASSUMED,
        beyond=BEYOND,
    ),
    Table(
        name="table3",
        title="ImageNet subset, 12 classes, 64x64, ResNet-18",
        cells=cells_of(["imagenet12"], ("shards:2", "shards:4", "dirichlet:0.1", "dirichlet:0.3")),
        methods=EIGHT,
        fields={"rounds": 400, "clients": 20, "model": "resnet18"},
        assumed=(
            "number of clients: 20",
            "rounds: 400",
            "local epochs: 1",
            "which 12 classes, and how many images of each: ours are Tiny-ImageNet's, 500 for training and 50 for "
            "testing",
        ),
        remark="A client has 300 images, so it takes 3 steps a round, where one of CIFAR-10 takes 20: 200 rounds are a "
        "short training here. There are 600 images for testing: an accuracy of 40 % has a standard error of 2 points.",
    ),
    Table(
        name="table4",
        title="Federated data sets",
        cells={data: {"dataset": data} for data in ("synthetic:0,0", "synthetic:0.5,0.5", "synthetic:1,1", "femnist")},
        methods=EIGHT,
        fields={"rounds": 300, "clients": 100},
        assumed=("local epochs: 1", "all clients in every round", "batch size: 128, the paper's general one"),
        remark="Each seed draws new clients and data, so ± mostly reflects the data. Lambda changes no label: see "
        "docs/algorithms.md. The model of Synthetic is linear, so `refit` fits all of it to everybody's examples.",
        beyond=BEYOND,
    ),
    Table(
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
    ),
    Table(
        name="table6",
        title="Number of clients",
        cells={f"m={m}": {"dataset": "cifar10", "partition": "dirichlet:0.1", "clients": m} for m in (10, 30, 50, 100)},
        methods=EIGHT,
        fields={"rounds": 400, "model": "cnn"},
        assumed=("data set and skew: CIFAR-10 under D(0.1)", "rounds: 400", "local epochs: 1"),
    ),
    Table(
        name="table7",
        title="Combinations with FedLC",
        cells=cells_of(("cifar10", "svhn"), ("shards:5", "dirichlet:0.3")),
        methods=("fedavg", "fedlc", "fedlc+scaffold", "fedlc+fedprox", "scaffold", "fedprox"),
        fields={"rounds": 400, "clients": 20, "model": "cnn"},
        assumed=("rounds: 400", "local epochs: 1"),
    ),
)
TABLES: dict[str, Table] = {table.name: table for table in _TABLES}

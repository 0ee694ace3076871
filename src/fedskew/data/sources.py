"""Where the official files come from, and how to recognise them."""

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True)
class Source:
    """An official file. An archive has the folder it holds, the sha256 of the files there, and their bytes together;
    `others` are further forms of the same data that the loader reads."""

    url: str
    bytes: int
    sha256: str
    folder: str | None = None
    files: Mapping[str, str] = field(default_factory=dict)
    unpacked: int = 0
    others: tuple[str, ...] = ()
    apart: bool = False
    """Whether it is kept only in the data set's own folder, since another data set has a file of this name."""

    @property
    def file(self) -> str:
        return self.url.rpartition("/")[2]


def _idx(address: str, *files: tuple[str, int, str]) -> tuple[Source, ...]:
    """Compressed IDX files, which the loader also reads uncompressed."""
    return tuple(
        Source(f"{address}/{file}.gz", bytes, sha256, others=(file,), apart=True) for file, bytes, sha256 in files
    )


# Lengths and sha256 of the downloads: as several public loaders agree on. Of the files in the folders:
# CIFAR-10's were hashed here, CIFAR-100's are those of the one public list that has them (it is right on CIFAR-10).
SOURCES: dict[str, tuple[Source, ...]] = {
    "cifar10": (
        Source(
            "https://www.cs.toronto.edu/~kriz/cifar-10-binary.tar.gz",
            170_052_171,
            "c4a38c50a1bc5f3a1c5537f2155ab9d68f9f25eb1ed8d9ddda3db29a59bca1dd",
            "cifar-10-batches-bin",
            {
                "data_batch_1.bin": "cee916563c9f80d84e3cc88e17fdc0941787f1244f00a67874d45b261883ada5",
                "data_batch_2.bin": "a591ca11fa1708a91ee40f54b3da4784ccd871ecf2137de63f51ada8b3fa57ed",
                "data_batch_3.bin": "bbe8596564c0f86427f876058170b84dac6670ddf06d79402899d93ceea26f67",
                "data_batch_4.bin": "014e562d6e23c72197cc727519169a60359f5eccd8945ad5a09d710285ff4e48",
                "data_batch_5.bin": "755304fc0b379caeae8c14f0dac912fbc7d6cd469eb67a1029a08a39453a9add",
                "test_batch.bin": "8e2eb146ae340b09e24670f29cabc6326dba54da8789dab6768acf480273f65b",
            },
            184_380_000,
            ("cifar-10-batches-py", "cifar-10-python.tar.gz"),
        ),
    ),
    "cifar100": (
        Source(
            "https://www.cs.toronto.edu/~kriz/cifar-100-binary.tar.gz",
            168_513_733,
            "58a81ae192c23a4be8b1804d68e518ed807d710a4eb253b1f2a199162a40d8ec",
            "cifar-100-binary",
            {
                "train.bin": "f31298fc616915fa142368359df1c4ca2ae984d6915ca468b998a5ec6aeebf29",
                "test.bin": "d8b1e6b7b3bee4020055f0699b111f60b1af1e262aeb93a0b659061746f8224a",
            },
            184_440_000,
            ("cifar-100-python", "cifar-100-python.tar.gz"),
        ),
    ),
    "mnist": _idx(
        "https://ossci-datasets.s3.amazonaws.com/mnist",  # the original address, yann.lecun.com, no longer answers
        ("train-images-idx3-ubyte", 9_912_422, "440fcabf73cc546fa21475e81ea370265605f56be210a4024d2ca8f203523609"),
        ("train-labels-idx1-ubyte", 28_881, "3552534a0a558bbed6aed32b30c495cca23d567ec52cac8be1a0730e8010255c"),
        ("t10k-images-idx3-ubyte", 1_648_877, "8d422c7b0a1c1c79245a5bcf07fe86e33eeafee792b84584aec276f5a2dbc4e6"),
        ("t10k-labels-idx1-ubyte", 4_542, "f7ae60f92e00ec6debd23a6088c31dbd2371eca3ffa0defaefb259924204aec6"),
    ),
    "fashion_mnist": _idx(
        "http://fashion-mnist.s3-website.eu-central-1.amazonaws.com",
        ("train-images-idx3-ubyte", 26_421_880, "3aede38d61863908ad78613f6a32ed271626dd12800ba2636569512369268a84"),
        ("train-labels-idx1-ubyte", 29_515, "a04f17134ac03560a47e3764e11b92fc97de4d1bfaf8ba1a3aa29af54cc90845"),
        ("t10k-images-idx3-ubyte", 4_422_102, "346e55b948d973a97e58d2351dde16a484bd415d4595297633bb08f03db6a073"),
        ("t10k-labels-idx1-ubyte", 5_148, "67da17c76eaffca5446c3361aaab5c3cd6d1c2608764d35dfb1850b086bf8dd5"),
    ),
    "svhn": (
        Source(
            "http://ufldl.stanford.edu/housenumbers/train_32x32.mat",
            182_040_794,
            "435e94d69a87fde4fd4d7f3dd208dfc32cb6ae8af2240d066de1df7508d083b8",
        ),
        Source(
            "http://ufldl.stanford.edu/housenumbers/test_32x32.mat",
            64_275_384,
            "cdce80dfb2a2c4c6160906d0bd7c68ec5a99d7ca4831afa54f09182025b6a75b",
        ),
    ),
    "svhn-extra": (
        Source(
            "http://ufldl.stanford.edu/housenumbers/extra_32x32.mat",
            1_329_278_602,
            "a133a4beb38a00fcdda90c9489e0c04f900b660ce8a316a5e854838379a71eb3",
        ),
    ),
}

MANUAL = {
    "femnist": (
        "https://huggingface.co/datasets/flwrlabs/femnist",
        "put the parquet files of {address} into {folder}, or the folders train/ and test/ that LEAF writes "
        "(https://github.com/TalwalkarLab/leaf, in data/femnist: ./preprocess.sh -s niid --sf 1.0 -k 0 -t sample)",
    ),
    "imagenet12": (
        "https://www.image-net.org/download-images",
        "register at {address}, then put train/<wnid>/*.JPEG and val/<wnid>/*.JPEG of its classes into {folder}",
    ),
}

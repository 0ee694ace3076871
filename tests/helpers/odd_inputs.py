"""Inputs that a newcomer, a broken disk or somebody unkind could give a command: each a command line and its files.

Every maker draws from the generator it is given and from nothing else, so a seed and a number name one input for ever.
Text is changed letter by letter, values by others of a wrong kind or size, files byte by byte or in their structure.
"""

import io
import json
import os
import pickle
import random
import shlex
import socket
import struct
import tarfile
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

Maker = Callable[[random.Random, Path], list[str]]

NUMBERS = [
    "0", "-1", "-0.0", "1", "2", "3.5", "0.999999999", "2147483647", "1e-320", "1e300", "1e999", "-1e999", "nan",
    "inf", "1" + "0" * 18, "9" * 30, "-" + "9" * 30, "9" * 400, "9" * 5000, "1_000", "0x10", "１２", "½", "1e",
    "--1", "+5", "007", "true", "none", "1,2",
]  # fmt: skip
WORDS = [
    "", " ", "off", "none", "natural", "..", "/", "/dev/null", "/dev/zero", "~", "~nobody/x", "\x1b[31mred\x1b[0m",
    "a\nb", "\r", "\x07", "\x9b2J", "\udcff", "\u202eabc", "ß", "🙂", "a" * 300, "a" * 5000, "%s%n", "{}", "{0}",
    "[bold]", "[/]", "'", '"', "\\", ",", "=", ":", "+", ".py", "x.py:f", "-", "--", "digits", "fedavg",
    "x" + "/x" * 3000, "💥" * 200,
]  # fmt: skip
HERE = [word for word in WORDS if not word.startswith(("/", "..", "."))]
"""Names for what a command writes: nothing outside of the input's own folder."""
LETTERS = ":,=+-.e0159 naoxfy\n\t\x1b\"'[]{}()#/\\éß\u202e"
SPECS = {
    "dataset": [
        "digits", "synthetic:1,1", "synthetic:1,1,max_size=20", "cifar10", "cifar100:labels=fine", "svhn:extra=off",
        "femnist", "imagenet12:classes=none,size=64", "folder:here,size=none", "npz:here.npz",
        "nodes:3x32x32,10,mean=0.1/0.2/0.3",
    ],
    "partition": [
        "iid", "shards:2", "labels:2", "dirichlet:0.5,balance=on,min_size=1", "dirichlet:0.5,balance=fair", "natural",
        "replay:here.json",
    ],
    "model": [
        "logistic", "mlp:hidden=8,depth=1", "cnn:norm=batch,width=4,padding=1", "mcmahan:padding=0",
        "resnet18:norm=group", "leaf_cnn", "here.py:factory,width=3",
    ],
    "algorithm": [
        "fedavg", "fedprox:mu=0.01", "scaffold", "fednova", "fedopt:server=adam,eta=none,b1=0.9,b2=0.99,eps=0.001",
        "fedavgm:beta=0.9", "fedrs:alpha=0.5,mode=binary", "fedlc:tau=5,missing=floor,denominator=all",
        "fedla:tau=1,missing=floor", "fedlc:tau=2+scaffold", "here.py:factory",
    ],
    "optimizer": ["sgd", "adagrad", "adam", "yogi"],
    "lr_schedule": ["constant", "step:10,factor=0.1", "exponential:0.99", "cosine:final=0.01"],
}  # fmt: skip
COUNTS = ("clients", "clients-per-round", "rounds", "local-epochs", "batch-size", "seed", "eval-every")
SHARES = ("lr", "momentum", "weight-decay", "grad-clip", "dropout-rate", "validation")
CHOSEN = [
    *WORDS,
    "cuda",
    "cuda:0",
    "cuda:-1",
    "cpu:3",
    "meta",
    "mps",
    "crop_flip",
    "graphed",
    "threaded",
    "fp64",
    "bf16",
    "uniform",
]
CHOICES = ("augment", "weighting", "engine", "device", "precision", "data-dir")
RUN_FILE = """dataset = "npz:tiny.npz"
partition = "iid"
algorithm = "fedavg"
model = "logistic"
clients = 2
clients_per_round = 2
rounds = 1
local_epochs = 1
batch_size = 8
lr = 0.1
momentum = 0.0
seed = 0
lr_schedule = "constant"
"""
PROFILE = """[run]
local_epochs = 10
momentum = 0.9

[methods]
fedprox = "fedprox:mu=0.1"
"fedlc+scaffold" = "fedlc:tau=1+scaffold"
"""
TABLE = "client,0,1,2\na,5,0,2\nb,0,7,1\nc,3,3,3\n"
TINY = shlex.split("--dataset npz:tiny.npz --partition iid --clients 2 --rounds 1 --model logistic -q")


def changed_text(draw: random.Random, text: str) -> str:
    """A text with an argument changed, or up to four letters, pieces or arguments."""
    if draw.random() < 0.4:
        return _other_argument(draw, text)
    for _ in range(draw.randint(1, 4)):
        at = draw.randrange(len(text) + 1)
        match draw.randrange(6):
            case 0:
                text = text[:at] + draw.choice(LETTERS) + text[at:]
            case 1:
                text = text[:at] + text[at + 1 :]
            case 2:
                text = text[:at] + draw.choice(NUMBERS) + text[at + draw.randint(0, 3) :]
            case 3:
                text = text[:at] + draw.choice(WORDS) + text[at + draw.randint(0, 3) :]
            case 4:
                text = text[:at] + text[draw.randrange(len(text) + 1) :]
            case _:
                text = _other_argument(draw, text)
    return text


def _other_argument(draw: random.Random, text: str) -> str:
    """`name:a,b=c` with a value replaced, an argument added, or one given twice."""
    name, colon, rest = text.partition(":")
    arguments = rest.split(",") if colon else []
    value = draw.choice(NUMBERS + WORDS)
    if arguments and draw.random() < 0.7:
        at = draw.randrange(len(arguments))
        key, equals, _ = arguments[at].rpartition("=")
        arguments[at] = f"{key}{equals}{value}"
    else:
        arguments.append(draw.choice([value, f"{draw.choice(['mu', 'tau', 'b', 'size', 'min_size'])}={value}"]))
    return f"{name}:{','.join(arguments)}"


def changed_bytes(draw: random.Random, content: bytes) -> bytes:
    """Bytes flipped, cut off, put in, doubled or set to zero."""
    raw = bytearray(content)
    for _ in range(draw.randint(1, 4)):
        at = draw.randrange(len(raw) + 1)
        match draw.randrange(6):
            case 0 if raw:
                raw[min(at, len(raw) - 1)] ^= 1 << draw.randrange(8)
            case 1:
                del raw[at:]
            case 2:
                raw[at:at] = draw.randbytes(draw.randint(1, 40))
            case 3:
                raw[at : at + 8] = draw.choice(
                    [b"\xff" * 8, b"\x00" * 8, struct.pack("<q", 2**62), b"\x7f" + b"\xff" * 7]
                )
            case 4:
                del raw[at : at + draw.randint(1, 30)]
            case _:
                raw[at:at] = raw[:at]
    return bytes(raw)


def changed_value(draw: random.Random, value: Any) -> Any:
    """A document of JSON with one place of it replaced by something of another kind, size or nothing."""
    if isinstance(value, dict) and value and draw.random() < 0.7:
        key = draw.choice(sorted(value))
        match draw.randrange(4):
            case 0:
                return {name: kept for name, kept in value.items() if name != key}
            case 1:
                return {**value, draw.choice(WORDS): value[key]}
            case _:
                return {**value, key: changed_value(draw, value[key])}
    if isinstance(value, list) and value and draw.random() < 0.7:
        at = draw.randrange(len(value))
        match draw.randrange(4):
            case 0:
                return value[:at]
            case 1:
                return [*value, value[at]]
            case _:
                return [*value[:at], changed_value(draw, value[at]), *value[at + 1 :]]
    odd = [
        None,
        True,
        -1,
        0,
        2**63,
        10**30,
        10**400,
        0.5,
        1e300,
        float("nan"),
        float("inf"),
        "",
        "x",
        [],
        {},
        [[]],
        "\x1b[2J",
    ]
    return draw.choice([*odd, [value], {"a": value}, str(value)[:50]])


def tiny(folder: Path) -> None:
    """Twelve examples that any command can train on in no time."""
    np.savez(folder / "tiny.npz", **_arrays())
    (folder / "here.json").write_text(json.dumps([list(range(0, 12, 2)), list(range(1, 12, 2))]))
    (folder / "here.py").write_text("from torch import nn\ndef factory(width=3):\n    return nn.Flatten()\n")


def _arrays(images: bool = False) -> dict[str, Any]:
    labels = np.arange(12) % 3
    if images:
        x = np.random.default_rng(0).integers(0, 256, (12, 9, 8, 3), np.uint8)
    else:
        x = np.random.default_rng(0).normal(size=(12, 4))
    return {"x_train": x, "y_train": labels, "x_test": x[:4], "y_test": labels[:4]}


# Specs and fields on the command line


def spec(draw: random.Random, folder: Path) -> list[str]:
    tiny(folder)
    field = draw.choice(sorted(SPECS))
    text = changed_text(draw, draw.choice(SPECS[field]))
    if field in ("dataset", "partition"):
        given = {"dataset": "npz:tiny.npz", "partition": "iid", field: text}
        return ["inspect", *_options(given), "--clients", "2", "-q"]
    return ["run", *TINY, *_options({field: text})]


def field(draw: random.Random, folder: Path) -> list[str]:
    tiny(folder)
    name = draw.choice(COUNTS + SHARES + CHOICES)
    value = draw.choice(CHOSEN if name in CHOICES else NUMBERS + WORDS[:6])
    if name == "rounds" and value == "2147483647":
        value = "2"  # it would be done, in the end
    return ["run", *TINY, *_options({name: value})]


def command(draw: random.Random, folder: Path) -> list[str]:
    """Words and numbers where a command wants a run, an item, a file or a choice."""
    tiny(folder)
    word, here, number = draw.choice(WORDS), draw.choice(HERE), draw.choice(NUMBERS)
    return draw.choice(
        [
            ["runs", "show", word],
            ["runs", "remove", here],
            ["runs", "list", "--runs", word],
            ["diagnose", word, "--clients", number],
            ["export", word, "model.safetensors"],
            ["report", word],
            ["advise", word],
            ["advise", "here.csv", "--momentum", number],
            ["paper", "show", changed_text(draw, "table4")],
            ["paper", "show", "table4", "--cells", word],
            ["paper", "show", "table4", "--methods", changed_text(draw, "fedavg,fedlc")],
            ["paper", "show", "table4", "--rounds", number],
            ["paper", "show", "table4", "--format", word],
            ["paper", "list", "--profile", word],
            ["paper", "run", "table4", "--shard", changed_text(draw, "1/9"), "--cells", "none"],
            ["paper", "run", "table4", "--seeds", number, "--cells", "none"],
            ["paper", "map", "--cell", word],
            ["paper", "map", "--taus", changed_text(draw, "1,2,5"), "--cell", "none"],
            ["data", "fetch", word],
            ["data", "list", "--data-dir", word],
            ["data", "verify", "--data-dir", word],
            ["compare", *TINY, "--algorithm", changed_text(draw, "fedavg,fedlc:tau=1"), "--seeds", "1"],
            [
                "compare",
                *TINY,
                "--algorithm",
                "fedavg",
                "--seeds",
                draw.choice(["0", "-1", "9" * 30, "x", "1.5", "999999999"]),
            ],
            ["inspect", "--dataset", "npz:tiny.npz", "--clients", "2", "--partition", "iid", "--export", here],
            ["inspect", "--dataset", "npz:tiny.npz", "--clients", "2", "--partition", "iid", "--out", here],
            ["run", *TINY, "--track", f"{draw.choice(HERE)}:{draw.choice(HERE)}"],
            ["run", *TINY, "--runs", here],
            ["flower", "init", "app", *TINY[:-1], "--algorithm", changed_text(draw, "fedlc:tau=1")],
            ["flower", "certificates", "keys", "--host", word, "--nodes", "1"],
            ["flower", "certificates", "keys", "--nodes", draw.choice(["0", "-1", "x", "1"]), "--days", number],
            ["flower", "certificates", "keys", "--nodes", "999999999"],
            ["paper", "run", "table4", "--seeds", "999999999", "--stand-in"],
            ["paper", "show", "table4", "--out", here],
            ["report", "--out", here],
            ["runs", "condense", here],
            ["compare", *TINY, "--algorithm", "fedavg", "--out", here],
            [word, number],
        ]
    )


# TOML


def run_file(draw: random.Random, folder: Path) -> list[str]:
    tiny(folder)
    (folder / "run.toml").write_bytes(_changed_toml(draw, RUN_FILE))
    return [draw.choice(["run", "compare"]), "run.toml", "-q"]


def profile_file(draw: random.Random, folder: Path) -> list[str]:
    (folder / "mine.toml").write_bytes(_changed_toml(draw, PROFILE))
    if draw.random() < 0.3:
        return ["paper", "list", "--profile", "mine.toml"]
    return ["paper", "show", "table4", "--profile", "mine.toml"]


def _changed_toml(draw: random.Random, text: str) -> bytes:
    """The file with a value of another kind, or changed as text or as bytes."""
    kind = draw.randrange(4)
    if kind == 0:
        return changed_bytes(draw, text.encode())
    if kind == 1:
        return changed_text(draw, text).encode("utf-8", "surrogatepass")
    lines = text.splitlines()
    at = draw.choice([i for i, line in enumerate(lines) if " = " in line])
    values = [
        "1979-05-27T07:32:00Z", "07:32:00", "[]", "{}", '[["a"]]', "{a = 1}", "nan", "-inf", "true", '""', '"\\u0000"',
        '"\\u001b[2J"', "9" * 5000, "9" * 30, "0.5", "-3", "1e300", '"\\u202e"', "[" * 3000, "'x'", "1e400", "[1, 2]",
        '"1"', '"/dev/zero"', "0o17", '"a\\nb"', '["fedavg", 3]', '["fedavg", ["fedlc"]]', "+0.0", "0x7fffffffffffffff",
    ]  # fmt: skip
    lines[at] = f"{lines[at].partition(' = ')[0]} = {draw.choice(values)}"
    if draw.random() < 0.2:
        lines.insert(
            at, draw.choice(["[table]", "a.b.c = 1", "clients.x = 1", "[[run]]", '"\\u001b" = 1', "= 1", "roundz = 3"])
        )
    return "\n".join(lines).encode()


# Arrays


def npz_file(draw: random.Random, folder: Path) -> list[str]:
    """Arrays of other kinds and shapes, archives with damaged members, or damaged archives."""
    arrays, kind = _arrays(images=draw.random() < 0.4), draw.randrange(4)
    if kind == 0:
        for name in draw.sample([*arrays, "client", "client_train", "client_test"], draw.randint(1, 2)):
            arrays[name] = _other_array(draw, arrays.get(name, np.arange(12)))
        np.savez(folder / "in.npz", **{name: array for name, array in arrays.items() if array is not None})
    elif kind == 1:
        members = {f"{name}.npy": _npy(array) for name, array in arrays.items()}
        name = draw.choice(sorted(members))
        members[name] = draw.choice([b"", b"\x93NUMPY", changed_bytes(draw, members[name]), _odd_npy(draw)])
        with zipfile.ZipFile(
            folder / "in.npz", "w", draw.choice([zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED])
        ) as archive:
            for member, content in members.items():
                archive.writestr(member, content)
    else:
        whole = io.BytesIO()
        (np.savez if draw.random() < 0.5 else np.savez_compressed)(whole, **arrays)
        (folder / "in.npz").write_bytes(changed_bytes(draw, whole.getvalue()))
    partition = draw.choice(["iid", "natural", "dirichlet:1,min_size=1"])
    if draw.random() < 0.5:
        return ["inspect", "--dataset", "npz:in.npz", "--clients", "2", "--partition", partition]
    return ["run", *TINY, "--dataset", "npz:in.npz", "--partition", partition]


def _npy(array: Any) -> bytes:
    out = io.BytesIO()
    np.save(out, array)
    return out.getvalue()


def _odd_npy(draw: random.Random) -> bytes:
    """A header that says something impossible, before a few bytes."""
    header = draw.choice(
        [
            "{'descr': '<f8', 'fortran_order': False, 'shape': (1000000000000, 4)}",
            "{'descr': '<f8', 'fortran_order': False, 'shape': (-3, 4)}",
            "{'descr': '<f8', 'fortran_order': False, 'shape': (9223372036854775807, 9223372036854775807)}",
            "{'descr': '|O', 'fortran_order': False, 'shape': (3,)}",
            "{'descr': 'x', 'fortran_order': False, 'shape': (3,)}",
            "{'descr': [('a', '<f8')], 'fortran_order': False, 'shape': (3,)}",
            "{'descr': '<f8', 'fortran_order': 3, 'shape': 3}",
            "{'descr': '<U999999999', 'fortran_order': False, 'shape': (12,)}",
            "[1, 2]",
            "(" * 500,
            "{",
            "'\x00'",
        ]
    ).encode()
    return b"\x93NUMPY\x01\x00" + struct.pack("<H", len(header) + 1) + header + b"\n" + draw.randbytes(40)


def _other_array(draw: random.Random, array: Any) -> Any:
    array = np.asarray(array)
    floats = np.asarray(array, np.float64)
    return draw.choice(
        [
            lambda: None,
            lambda: array[:0],
            lambda: array[:-1],
            lambda: array[None],
            lambda: np.asarray(3),
            lambda: np.zeros((12, 0)),
            lambda: np.zeros((0, 4)),
            lambda: np.zeros((12, 1, 0, 3), np.uint8),
            lambda: floats,
            lambda: floats * np.nan,
            lambda: np.where(floats == floats.max(), 1e300, floats),
            lambda: np.full((12, 4), np.inf, np.float16),
            lambda: floats.astype(np.longdouble) * np.longdouble("1e4000"),
            lambda: array.astype(np.complex64),
            lambda: array.astype(bool),
            lambda: array.astype(str),
            lambda: array.astype("S5"),
            lambda: array.astype(">f4"),
            lambda: array.astype(np.uint64) + np.uint64(2**63),
            lambda: np.full(12, -1),
            lambda: np.full(12, 2**62),
            lambda: np.arange(12) * 10**15,
            lambda: np.full(12, "\x1b[31m"),
            lambda: np.array(["a"] * 11 + ["\x00"]),
            lambda: array.astype("datetime64[s]"),
            lambda: np.zeros(12, [("a", "i4")]),
            lambda: np.zeros((12,) + (1,) * 20),
            lambda: np.array([1, "x", None], dtype=object),
        ]
    )()


# Tables of counts, and splits


def counts_file(draw: random.Random, folder: Path) -> list[str]:
    path = folder / draw.choice(["counts.csv", "counts.json", "a\x1b[31m.csv", "[bold].csv"])
    rows = [[draw.choice([0, 1, 5, 40]) for _ in range(3)] for _ in range(3)]
    card = {
        "counts": rows,
        "clients": 3,
        "classes": 3,
        "partition": "iid",
        "dataset": "digits",
        "seed": 0,
        "hash": "ab",
    }
    match draw.randrange(6):
        case 0:
            path.write_bytes(changed_bytes(draw, TABLE.encode()))
        case 1:
            path.write_bytes(changed_text(draw, TABLE).encode("utf-8", "surrogatepass"))
        case 2:
            path.write_bytes(draw.randbytes(draw.randint(0, 300)))
        case 3:
            cells = draw.choices([*NUMBERS, *WORDS[:20], "1", "2", "3"], k=draw.randint(1, 12))
            path.write_bytes(draw.choice(",;\t").join(cells).encode("utf-8", "surrogatepass"))
        case 4:
            path.write_text(json.dumps(changed_value(draw, draw.choice([card, rows]))))
        case _:
            path.write_bytes(changed_bytes(draw, json.dumps(card).encode()))
    return ["advise", str(path), *draw.choice([[], ["--json"], ["-q"], ["--dataset", draw.choice(WORDS)]])]


def split_file(draw: random.Random, folder: Path) -> list[str]:
    tiny(folder)
    path = folder / "split.json"
    lists: Any = [list(range(0, 12, 2)), list(range(1, 12, 2))]
    exported = {"format": 1, "name": "iid", "hash": "0" * 64, "clients": lists}
    document = draw.choice([lists, exported, dict(zip("ab", lists, strict=True)), {"10": lists[0], "²": lists[1]}])
    match draw.randrange(4):
        case 0:
            path.write_text(json.dumps(changed_value(draw, document)))
        case 1:
            path.write_bytes(changed_bytes(draw, json.dumps(document).encode()))
        case 2:
            owners = draw.choices(["0", "1", *NUMBERS], [40, 40, *[1] * len(NUMBERS)], k=draw.choice([11, 12, 12, 12]))
            path.write_bytes(changed_text(draw, "\n".join(owners)).encode("utf-8", "surrogatepass"))
        case _:
            path.write_bytes(draw.choice([b"[" * 100_000, b'{"a":' * 50_000, b"null", b"", b"1" * 6000, b"\xff\xfe[]"]))
    return ["inspect", "--dataset", "npz:tiny.npz", "--clients", "2", "--partition", "replay:split.json", "-q"]


# Official files


def cifar_files(draw: random.Random, folder: Path) -> list[str]:
    """Three images a batch, which is what the reader is told here: binary, python, or an archive of either."""
    binary, name = draw.random() < 0.5, "cifar-10-batches-bin"
    stored: dict[str, bytes] = {}
    for i, file in enumerate([*(f"data_batch_{k}" for k in range(1, 6)), "test_batch"]):
        pixels = np.random.default_rng(i).integers(0, 256, (3, 3072), np.uint8)
        labels = [i % 10, (i + 1) % 10, (i + 2) % 10]
        if binary:
            stored[f"{file}.bin"] = b"".join(bytes([y]) + x.tobytes() for x, y in zip(pixels, labels, strict=True))
        else:
            stored[file] = pickle.dumps({"data": pixels, "labels": labels}, protocol=3)
    if binary:
        stored["batches.meta.txt"] = "\n".join("abcdefghij").encode()
    else:
        name, stored["batches.meta"] = "cifar-10-batches-py", pickle.dumps({"label_names": list("abcdefghij")})
    file = draw.choice(sorted(stored))
    evil = [pickle.dumps(value) for value in (3, [], {"data": 3, "labels": []}, {"data": None}, os.system, {3: 4})]
    stored[file] = draw.choice([changed_bytes(draw, stored[file]), b"", draw.choice(evil)])
    if draw.random() < 0.3:
        del stored[draw.choice(sorted(stored))]
    if draw.random() < 0.5:
        (folder / name).mkdir()
        for file, content in stored.items():
            (folder / name / file).write_bytes(content)
    else:
        whole = io.BytesIO()
        with tarfile.open(fileobj=whole, mode="w:gz") as archive:
            for file, content in stored.items():
                member = tarfile.TarInfo(f"{name}/{file}")
                member.size = len(content)
                archive.addfile(member, io.BytesIO(content))
        form = "cifar-10-binary" if binary else "cifar-10-python"
        (folder / f"{form}.tar.gz").write_bytes(changed_bytes(draw, whole.getvalue()))
    return ["inspect", "--dataset", "cifar10", "--data-dir", ".", "--clients", "2", "--partition", "iid", "-q"]


def svhn_files(draw: random.Random, folder: Path) -> list[str]:
    from scipy.io import savemat

    broken = draw.choice(["train", "test"])
    for part in ("train", "test"):
        content: dict[str, Any] = {
            "X": np.random.default_rng(1).integers(0, 256, (32, 32, 3, 4), np.uint8),
            "y": np.array([[1], [10], [3], [4]], np.uint8),
        }
        odd = draw.randrange(3) if part == broken else 9
        if odd == 0:
            values = [
                np.zeros((4, 4)),
                "text",
                {"a": 1},
                np.array([], object),
                3,
                np.full((4, 1), 0.5),
                np.full((4, 1), np.nan),
            ]
            content[draw.choice(["X", "y", "z"])] = draw.choice(values)
        out = io.BytesIO()
        savemat(out, content, do_compression=draw.random() < 0.5)
        raw = changed_bytes(draw, out.getvalue()) if odd == 1 else draw.randbytes(200) if odd == 2 else out.getvalue()
        (folder / f"{part}_32x32.mat").write_bytes(raw)
    return ["inspect", "--dataset", "svhn", "--data-dir", ".", "--clients", "2", "--partition", "iid", "-q"]


def femnist_files(draw: random.Random, folder: Path) -> list[str]:
    data = {w: {"x": [[0.5] * 784] * 10, "y": list(range(10))} for w in ("f0", "f1", "f2")}
    leaf: Any = {"users": sorted(data), "num_samples": [10, 10, 10], "user_data": data}
    place = folder / "femnist"
    if draw.random() < 0.6:
        parts = draw.choice([["train", "test"], ["all_data"]])
        broken = draw.choice(parts)
        for part in parts:
            (place / part).mkdir(parents=True)
            content = json.dumps(leaf).encode()
            if part == broken:
                odd = draw.random() < 0.6
                content = json.dumps(changed_value(draw, leaf)).encode() if odd else changed_bytes(draw, content)
            (place / part / "all.json").write_bytes(content)
    else:
        place.mkdir()
        (place / "all.parquet").write_bytes(_parquet(draw))
    return ["inspect", "--dataset", "femnist", "--data-dir", ".", "--clients", draw.choice(["2", "3", "99"]), "-q"]


def _parquet(draw: random.Random) -> bytes:
    import pyarrow as pa
    import pyarrow.parquet as pq

    columns: dict[str, Any] = {
        "image": [{"bytes": _picture(28, 28), "path": None}] * 30,
        "writer_id": [f"f{i % 3}" for i in range(30)],
        "character": [i % 62 for i in range(30)],
    }
    odd = draw.randrange(3)
    if odd == 0:
        name = draw.choice(sorted(columns))
        values = [None, "x", 3, 2.5, {"bytes": b"x"}, {"bytes": None}, {"a": 1}, [1], b"\x89PNG", -1, 62, "\x1b", True]
        columns[name] = [draw.choice(values)] * 30
    if odd == 1:
        del columns[draw.choice(sorted(columns))]
    out = io.BytesIO()
    pq.write_table(pa.table(columns), out)
    return changed_bytes(draw, out.getvalue()) if odd == 2 else out.getvalue()


def _picture(width: int, height: int, mode: str = "L", form: str = "PNG") -> bytes:
    out = io.BytesIO()
    Image.new(mode, (width, height), 9).save(out, form)
    return out.getvalue()


def image_files(draw: random.Random, folder: Path) -> list[str]:
    """A tree of class folders for folder:PATH or imagenet12, with one file or folder in it that is wrong."""
    names = ["n01", draw.choice(["n02", "a\x1b[31mb", "[bold]", "\udcff", "a\nb", ".n02", "images"])]
    files = [f"{part}/{name}/{i}.png" for part in ("train", "val") for name in names for i in range(3)]
    for file in files:
        (folder / "tree" / file).parent.mkdir(parents=True, exist_ok=True)
        (folder / "tree" / file).write_bytes(_picture(8, 8))
    broken = folder / "tree" / draw.choice(files)
    match draw.randrange(7):
        case 0:
            broken.write_bytes(
                changed_bytes(draw, _picture(8, 8, "RGB", draw.choice(["PNG", "JPEG", "GIF", "BMP", "TIFF"])))
            )
        case 1:
            broken.unlink()
            odd_file(draw, broken)
        case 2:
            broken.write_bytes(_picture(9, 8))
        case 3:
            broken.write_bytes(_picture(8, 8, draw.choice(["1", "LA", "I;16", "P"])))
        case 4:
            for file in broken.parent.iterdir():
                file.unlink()
        case 5:
            broken.write_bytes(
                b"\x89PNG\r\n\x1a\n\x00\x00\x00\rIHDR" + struct.pack(">II", 2**31 - 1, 2**31 - 1) + b"\x08\x02\0\0\0"
            )
        case _:
            (folder / "tree/val/val_annotations.txt").write_bytes(
                changed_bytes(draw, b"0.png\tn01\t0\t0\n1.png\tn02\t0\t0\n")
            )
    (folder / "list.txt").write_bytes(
        draw.choice([changed_bytes(draw, b"n01\nn02 a name\n"), b"n01\nn02\n", b"../x\n..\n"])
    )
    size = draw.choice(["", ",size=8", f",size={draw.choice(NUMBERS)}"])
    if draw.random() < 0.6:
        dataset = [f"folder:tree{size}"]
    else:
        dataset = [f"imagenet12:classes=list.txt{size}", "--data-dir", "tree"]
    return ["inspect", "--dataset", *dataset, "--clients", "2", "--partition", "iid", "-q"]


# Things that are no files


def odd_file(draw: random.Random, path: Path) -> None:
    """A pipe, a socket, a device, a folder, a link to nowhere, to itself or to a device, or an empty file."""
    match draw.randrange(8):
        case 0 | 1:
            os.mkfifo(path)
        case 2:
            with socket.socket(socket.AF_UNIX) as made:
                here = Path.cwd()
                os.chdir(path.parent)  # the address of a socket is short
                made.bind(path.name)
                os.chdir(here)
        case 3:
            path.symlink_to("/dev/zero")  # what writes replaces the link at most
        case 4:
            path.mkdir()
        case 5:
            path.symlink_to("nowhere")
        case 6:
            path.symlink_to(path.name)
        case _:
            path.touch()


def no_file(draw: random.Random, folder: Path) -> list[str]:
    tiny(folder)
    name = draw.choice(sorted(_NO_FILE))
    made = folder / name
    made.parent.mkdir(parents=True, exist_ok=True)
    odd_file(draw, made)
    return _NO_FILE[name]


_INSPECT = ["inspect", "--clients", "2", "-q"]
_NO_FILE = {
    "x.toml": ["run", "x.toml"],
    "p.toml": ["paper", "show", "table4", "--profile", "p.toml"],
    "x.csv": ["advise", "x.csv"],
    "x.npz": [*_INSPECT, "--dataset", "npz:x.npz"],
    "x.json": [*_INSPECT, "--dataset", "npz:tiny.npz", "--partition", "replay:x.json"],
    "x.py": ["run", *TINY, "--algorithm", "x.py:factory"],
    "tree/train/a/x.png": [*_INSPECT, "--dataset", "folder:tree"],
    "classes.txt": [*_INSPECT, "--dataset", "imagenet12:classes=classes.txt"],
    "train_32x32.mat": [*_INSPECT, "--dataset", "svhn", "--data-dir", "."],
    "cifar-10-binary.tar.gz": [*_INSPECT, "--dataset", "cifar10", "--data-dir", "."],
    "cifar-10-batches-bin": [*_INSPECT, "--dataset", "cifar10", "--data-dir", "."],
    "cifar-10-batches-py/data_batch_1": [*_INSPECT, "--dataset", "cifar10", "--data-dir", "."],
    "femnist/all_data/x.json": [*_INSPECT, "--dataset", "femnist", "--data-dir", "."],
    "femnist/x.parquet": [*_INSPECT, "--dataset", "femnist", "--data-dir", "."],
    "cifar-100-binary.tar.gz": ["data", "verify", "--data-dir", "."],
    "test_32x32.mat": ["data", "list", "--data-dir", "."],
    "results/a.jsonl": ["paper", "show", "table4", "--results", "results"],
    "runs": ["runs", "list"],
    "split.json": [*_INSPECT, "--dataset", "npz:tiny.npz", "--partition", "iid", "--export", "split.json"],
    "out.png": [*_INSPECT, "--dataset", "npz:tiny.npz", "--partition", "iid", "--out", "out.png"],
    "comparison": ["compare", *TINY, "--algorithm", "fedavg", "--out", "comparison"],
    "report.html": ["report", "--out", "report.html"],
    "table.md": ["paper", "show", "table4", "--format", "markdown", "--out", "table.md"],
    "lines.jsonl": ["runs", "condense", "lines.jsonl"],
    "app/pyproject.toml": ["flower", "init", "app"],
    "diagnosis": ["run", *TINY, "--track", "tensorboard:diagnosis"],
}


def own_file(draw: random.Random, folder: Path) -> list[str]:
    """A factory of the user's own that fails in one of many ways, or that is not there."""
    tiny(folder)
    body = draw.choice(
        [
            "def factory(): return 3", "def factory(: pass", "raise SystemExit(7)", "import nowhere", "factory = 3",
            "def factory(a, /): return a", "def factory(): return None", "def factory(): raise KeyError('x')",
            "from builtins import dict as factory", "def factory(*a, **b): return lambda *c: 1", "\x00",
            "factory = print",
            "def factory(): return lambda logits, labels, counts: labels", "def factory(x: 'int'): return x",
            "def factory(): return lambda logits, labels, counts: logits.sum()",
            "class factory:\n    def __init__(self): 1/0",
            "def factory(): return lambda: 1", "def factory(): return factory()",
            "def factory(x='\\x1b'): return x", "def factory(mu=1.0, tau=[]): return tau", "raise KeyboardInterrupt",
        ]
    )  # fmt: skip
    (folder / "mine.py").write_text(body + "\n")
    arguments = draw.choice(["", ",a=1", ",3", ",tau=none", ",mu=x"])
    name = draw.choice(["factory"] * 5 + ["__builtins__", "__name__", "x y", "3"])
    field = draw.choice(["algorithm", "model"])
    return ["run", *TINY, *_options({field: f"mine.py:{name}{arguments}"})]


def _options(fields: dict[str, str]) -> list[str]:
    return [word for name, value in fields.items() for word in (f"--{name.replace('_', '-')}", value)]


KINDS: dict[str, tuple[Maker, int]] = {
    "spec": (spec, 20),
    "field": (field, 12),
    "command": (command, 10),
    "run file": (run_file, 12),
    "profile file": (profile_file, 5),
    "npz": (npz_file, 13),
    "counts": (counts_file, 10),
    "split": (split_file, 6),
    "cifar": (cifar_files, 4),
    "svhn": (svhn_files, 3),
    "femnist": (femnist_files, 4),
    "images": (image_files, 5),
    "no file": (no_file, 5),
    "own file": (own_file, 4),
}
"""Makers, and how often each is called."""


def made(draw: random.Random, folder: Path) -> tuple[str, list[str]]:
    """The kind and the command line of an input, whose files are written into a folder."""
    kind = draw.choices(list(KINDS), [often for _, often in KINDS.values()])[0]
    return kind, KINDS[kind][0](draw, folder)

"""Runs in a store that were never computed."""

import math

import numpy as np
from safetensors.numpy import save

from fedskew.report.page.entries import read_entries
from fedskew.report.page.federations import federations
from fedskew.runs.store import Store
from fedskew.runs.versions import result_version

RUN = {
    "dataset": "digits", "partition": "dirichlet:b=0.1,balance=on,min_size=10", "clients": 4,
    "clients_per_round": 4, "model": "logistic", "algorithm": "fedavg", "rounds": 20, "local_epochs": 1,
    "batch_size": 16, "optimizer": "sgd", "lr": 0.1, "momentum": 0.0, "weight_decay": 0.0, "augment": "none",
    "weighting": "samples", "seed": 0, "eval_every": 1, "lr_schedule": "constant", "grad_clip": None,
    "dropout_rate": 0.0, "validation": 0.0, "engine": "auto", "device": "cpu", "precision": "fp32", "data_dir": None,
}  # fmt: skip
SESSION = {"from_round": 0, "fedskew": "0.1.0", "torch": "2.13.0", "engine": "stacked", "device": "cpu"}


def record(number, accuracy, classes=10, **changes):
    return {
        "round": number, "accuracy": accuracy, "balanced_accuracy": accuracy, "loss": 2.0 - accuracy,
        "per_class_accuracy": [min(1.0, accuracy * (0.5 + c / classes)) for c in range(classes)],
        "client_accuracy": None, "train_loss": 1.0, "clients": 4, "seconds": 0.01, "engine": "stacked",
        "device": "cpu", "diverged": False, "validation_accuracy": None, "probes": {}, **changes,
    }  # fmt: skip


def accuracy_of(number, gain):
    return round((0.6 + gain) * (1 - math.exp(-number / 8)), 6)


def write_run(
    store: Store,
    hash,
    *,
    gain=0.0,
    done=None,
    diverged=False,
    title="digits",
    classes=10,
    version=None,
    called=None,
    contents=None,
    **fields,
):
    """A run with a learning curve that ends higher with `gain`; `done` rounds of it."""
    run = {**RUN, **fields}
    folder = store.folder(hash)
    short = {
        "dataset": "digits",
        "partition": "d",
        "model": "m",
        "algorithm": called or run["algorithm"],
        "title": title,
        **({} if contents is None else {"contents": contents}),
    }
    folder.create(hash, run, short, result_version(run["algorithm"]) if version is None else version)
    clients = [[(7 * k + 3 * c) % 40 for c in range(classes)] for k in range(run["clients"])]
    skew = {"mean_total_variation": 0.5, "size_gini": 0.1}
    samples = sum(map(sum, clients))
    card = {
        "partition": run["partition"], "hash": "f" * 64, "clients": run["clients"], "classes": classes,
        "samples": samples, "sizes": [sum(row) for row in clients], "counts": clients,
        "missing": [[c for c, n in enumerate(row) if not n] for row in clients], "skew": skew,
    }  # fmt: skip
    folder.write_card(card)
    folder.append_session(SESSION)
    rounds = run["rounds"] if done is None else done
    (folder.path / "records.jsonl").write_bytes(b"")
    for number in range(1, rounds + 1):
        last = diverged and number == rounds
        folder.append_record(record(number, min(1.0, accuracy_of(number, gain)), classes, diverged=last))
    folder.write_checkpoint(save({"clients": np.zeros(0)}, {"round": str(rounds)}))
    return folder


def example_store(path) -> Store:
    """Three methods of three seeds, with noise that differs between seeds and methods."""
    store = Store(path)
    for m, (method, gain) in enumerate((("fedavg", 0.0), ("fedlc", 0.05), ("scaffold", 0.02))):
        for seed in range(3):
            noise = 0.003 * ((seed * 2 + m) % 3)
            write_run(store, f"{m}{seed}" + "0" * 14, algorithm=method, seed=seed, gain=gain + noise)
    return store


def gathered(store):
    """The sections of a store in which every run can be read."""
    entries, left_out = read_entries(store)
    assert not left_out
    return federations(entries)


def effect(before, after):
    groups = {kind: {"pairs": 2, "before": before, "after": after} for kind in ("majority", "minority", "missing")}
    return {
        "before": [before] * 3, "mean_after": [after] * 3, "aggregated": [before, None, before], "groups": groups,
        "accuracy": {"before": before, "after": after, "aggregated": before},
    }  # fmt: skip

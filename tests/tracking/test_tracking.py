"""Trackers, read back with their own readers; each is skipped where its package is not installed."""

import json
import struct
import sys
import time

import pytest

from fedskew import Run, Store, simulate
from fedskew.diagnostics.quick_drift import drift_measures
from fedskew.tracking import TRACKERS, check, metrics, tracking
from tests.cli.calling import call

RUN = Run(dataset="synthetic:1,1,max_size=60", clients=4, rounds=3, algorithm="fedlc", batch_size=16)


def tracked(text, tmp_path, rounds=3):
    run = RUN.model_copy(update={"rounds": rounds})
    records = []
    with tracking([text], run) as log:
        for record in simulate(run, [drift_measures], store=Store(tmp_path / "runs")):
            log(record)
            records.append(record)
    return records


def test_a_missing_package_is_named_with_its_extra(monkeypatch, capsys, tmp_path):
    monkeypatch.chdir(tmp_path)
    for name in TRACKERS:
        monkeypatch.setitem(sys.modules, name, None)
        code, _, err = call(capsys, "run", "--rounds", "1", "--track", f"{name}:there")
        assert code == 2
        assert f"pip install -c constraints.txt '.[{name}]'" in err
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(("text", "word"), [("tensorbord:x", "did you mean tensorboard"), ("", "unknown tracker")])
def test_an_unknown_tracker_is_refused(text, word):
    with pytest.raises(ValueError, match=word):
        check([text])


def test_a_file_is_no_folder(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(ValueError, match="is not a folder"):
        check([f"mlflow:{tmp_path / 'file'}"])


def test_tensorboard_reads_back_every_round(tmp_path):
    pytest.importorskip("tensorboard")
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    check([f"tensorboard:{tmp_path}"])
    tracked(f"tensorboard:{tmp_path / 'tb'}", tmp_path, rounds=2)
    records = tracked(f"tensorboard:{tmp_path / 'tb'}", tmp_path)  # goes on, and tells all rounds anew
    events = EventAccumulator(str(tmp_path / "tb" / RUN.hash)).Reload()
    assert set(events.Tags()["scalars"]) == set(metrics(records[-1]))
    for name in ("accuracy", "class_accuracy/3", "drift/norm"):
        read = [(event.step, event.value) for event in events.Scalars(name)]
        assert read == [(r.round, pytest.approx(metrics(r)[name], rel=1e-6)) for r in records]


def test_compare_tells_every_method_and_seed(tmp_path, monkeypatch, capsys):
    pytest.importorskip("tensorboard")
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    monkeypatch.chdir(tmp_path)
    options = [
        "--dataset",
        RUN.dataset,
        "--clients",
        "4",
        "--rounds",
        "2",
        "--seeds",
        "2",
        "--algorithm",
        "fedavg,fedlc",
    ]
    code, out, _ = call(capsys, "compare", *options, "--track", "tensorboard:tb", "--json")
    assert code == 0
    hashes = [hash for each in json.loads(out)["runs"].values() for hash in each]
    assert sorted(path.name for path in (tmp_path / "tb").iterdir()) == sorted(hashes)
    for hash in hashes:
        told = EventAccumulator(str(tmp_path / "tb" / hash)).Reload().Scalars("accuracy")
        kept = [record["accuracy"] for record in Store(tmp_path / "runs").folder(hash).records()]
        assert [event.step for event in told] == [1, 2]
        assert [event.value for event in told] == pytest.approx(kept)


def test_mlflow_reads_back_every_round(tmp_path):
    pytest.importorskip("mlflow")
    text = f"mlflow:{tmp_path / 'ml'}"
    check([text])
    tracked(text, tmp_path, rounds=2)
    records = tracked(text, tmp_path)
    from mlflow.tracking import MlflowClient

    client = MlflowClient(tracking_uri=(tmp_path / "ml").as_uri())
    (kept,) = client.search_runs([client.get_experiment_by_name("fedskew").experiment_id])
    assert kept.data.tags["fedskew.run_hash"] == RUN.hash
    assert kept.data.params["algorithm"] == RUN.algorithm
    assert kept.info.status == "FINISHED"
    assert set(kept.data.metrics) == set(metrics(records[-1]))
    history = client.get_metric_history(kept.info.run_id, "drift/cosine")
    assert [(m.step, m.value) for m in history] == [(r.round, r.probes["drift_cosine"]) for r in records]


def test_wandb_keeps_an_offline_run(tmp_path):
    pytest.importorskip("wandb")
    from wandb.proto.wandb_internal_pb2 import Record

    text = f"wandb:{tmp_path / 'wb'}"
    check([text])
    records = tracked(text, tmp_path)
    (path,) = (tmp_path / "wb").glob("wandb/offline-run-*/*.wandb")
    deadline, found = time.monotonic() + 30, []
    while not any(entry.HasField("exit") for entry in found):  # a process of its own completes the file
        assert time.monotonic() < deadline
        found = [Record.FromString(data) for data in leveldb_log(path.read_bytes())]
    steps = []
    for entry in found:
        if entry.HasField("history"):
            items = {item.key or "/".join(item.nested_key): item.value_json for item in entry.history.item}
            steps.append((int(items["_step"]), float(items["accuracy"]), float(items["drift/norm"])))
    assert steps == [(r.round, r.accuracy, r.probes["drift_norm"]) for r in records]


def leveldb_log(content):
    """Records of a LevelDB log behind W&B's seven bytes: blocks of 32 KiB; [crc 4, length 2, type 1, data] in them."""
    at, whole = 7, b""
    while at + 7 <= len(content):
        if 32768 - at % 32768 < 7:
            at += 32768 - at % 32768  # a record never begins in the last six bytes of a block
            continue
        length, kind = struct.unpack_from("<HB", content, at + 4)
        if at + 7 + length > len(content):
            return  # still being written
        whole += content[at + 7 : at + 7 + length]
        at += 7 + length
        if kind in (1, 4):  # a whole record, or its last part
            yield whole
            whole = b""

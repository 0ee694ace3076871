"""Several ranks: who trains whom, sums that add up, and real processes under torchrun."""

import ast
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
import torch

from fedskew import Run, ranks, tree
from fedskew.engine.distributed import Ranks, meet, place
from fedskew.experiments.checkpoint import load_checkpoint
from fedskew.round import add_up, conclude, scales, server_update, take, zero_sums
from fedskew.simulation import Simulation, simulate
from tests.helpers import OWN

ROOT = Path(__file__).parents[2]
DIGITS = {"dataset": "digits", "partition": "dirichlet:0.1", "clients": 9, "lr": 0.1, "batch_size": 16, "rounds": 4}
RUNS = {
    "fedlc": {"algorithm": "fedlc"},
    "fedlc+scaffold": {"algorithm": "fedlc+scaffold", "clients_per_round": 5, "momentum": 0.5},
    "fednova": {"algorithm": "fednova", "weighting": "uniform", "engine": "serial"},
    "fedopt": {"algorithm": "fedopt", "model": "mlp:hidden=8"},
    "batch norm": {
        "dataset": f"{OWN}:ragged_digits",
        "partition": "natural",
        "model": "cnn:padding=1,width=4",
        "clients": 4,
        "lr": 0.02,
    },
    "fewer clients than ranks": {"algorithm": "scaffold", "clients_per_round": 2, "dropout_rate": 0.4, "rounds": 6},
}
WORKER = """
import json, sys
from pathlib import Path
from safetensors.torch import save_file
from fedskew import Run, ranks, simulate
for name, fields in json.loads(sys.argv[1]).items():
    *_, last = simulate(Run(**fields))
    if not ranks.rank():
        kept = {**last.server.params, **{"buffer " + k: v for k, v in last.server.buffers.items()}}
        save_file({k: v.contiguous() for k, v in kept.items()}, Path(sys.argv[2], name + ".safetensors"))
        Path(sys.argv[2], name + ".json").write_text(json.dumps(last.as_dict()))
"""


@pytest.mark.parametrize("size", [1, 2, 3, 7])
def test_every_client_is_one_ranks_and_steps_are_balanced(size: int) -> None:
    steps = np.random.default_rng(0).integers(1, 200, 40)
    parts = [Ranks(rank, size).mine(steps) for rank in range(size)]
    assert sorted(np.concatenate(parts).tolist()) == list(range(40))
    loads = [int(steps[part].sum()) for part in parts]
    assert max(loads) - min(loads) <= steps.min() + steps.max() // 2


def test_the_balance_is_of_steps_and_not_of_clients() -> None:
    steps = np.array([1, 1, 100, 1, 1])
    assert [Ranks(rank, 2).mine(steps).tolist() for rank in (0, 1)] == [[2], [0, 1, 3, 4]]


@pytest.mark.parametrize("algorithm", ["fedavg", "fedlc+scaffold", "fednova", "fedopt"])
def test_sums_of_parts_are_those_of_the_whole(algorithm: str) -> None:
    simulation = Simulation(Run(**DIGITS, algorithm=algorithm, precision="fp64"))
    cohort, server = simulation.cohort(1), simulation.server
    (update,) = simulation.engine.train(simulation.recipe(1), [server], [cohort], 1)
    weights = cohort.weights("samples")
    counted = scales(simulation.algorithm, weights, update.travel)
    sums = zero_sums(simulation.recipe(1), server)
    for part in (torch.tensor([0, 4, 5]), torch.tensor([1]), torch.tensor([8, 7, 6, 3, 2])):
        some = add_up(take(update, part), counted[:, part], 9)
        sums = type(sums)(
            tree.add(sums.delta, some.delta),
            tree.add(sums.buffers, some.buffers),
            tree.add(sums.message, some.message),
            sums.travel + some.travel,
            sums.loss + some.loss,
        )
    whole = server_update(simulation.algorithm, server, update, weights)
    parts = conclude(simulation.algorithm, server, sums, 1.0)
    for name in ("params", "buffers", "correction", "optimizer"):
        for leaf, other in zip(getattr(whole, name).values(), getattr(parts, name).values(), strict=True):
            torch.testing.assert_close(leaf, other, rtol=1e-12, atol=1e-14)
    assert float(sums.loss) == pytest.approx(float(update.loss.mean()))


def pretend(monkeypatch: pytest.MonkeyPatch, **variables: int) -> None:
    monkeypatch.setenv("TORCHELASTIC_RUN_ID", "none")
    for name, value in variables.items():
        monkeypatch.setenv(name, str(value))


def test_by_itself_nothing_is_started(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RANK", "3")  # a cluster's own variables, without torchrun
    monkeypatch.setenv("WORLD_SIZE", "8")
    alone = meet(torch.device("cpu"))
    assert (alone.rank, alone.size, ranks.expected(), ranks.machine_share()) == (0, 1, 1, 1)
    assert not torch.distributed.is_initialized()
    assert alone.told(3) == 3


def test_a_rank_has_a_gpu_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    pretend(monkeypatch, RANK=5, LOCAL_RANK=1, WORLD_SIZE=8, LOCAL_WORLD_SIZE=4)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    assert place(torch.device("cuda")) == torch.device("cuda", 1)
    assert place(torch.device("cpu")) == torch.device("cpu")
    with pytest.raises(ValueError, match="'cuda:0' on 4 ranks of this machine"):
        place(torch.device("cuda", 0))
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 1)
    with pytest.raises(ValueError, match="rank 1 of this machine has no GPU of its own, 1 are here"):
        place(torch.device("cuda"))


def test_probes_need_all_clients(monkeypatch: pytest.MonkeyPatch) -> None:
    pretend(monkeypatch, RANK=0, LOCAL_RANK=0, WORLD_SIZE=2, LOCAL_WORLD_SIZE=2)
    with pytest.raises(ValueError, match="of several ranks none has them all"):
        next(simulate(Run(**DIGITS), [lambda seen: {}]))


def torchrun(size: int, *arguments: str, **options: object) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(size), *arguments]
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": f"{ROOT / 'src'}{os.pathsep}{ROOT}"}
    return subprocess.Popen(
        command, env=environment, text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE, start_new_session=True
    )


def ended(process: subprocess.Popen[str]) -> tuple[int, str, str]:
    try:
        out, err = process.communicate(timeout=120)
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
    return process.returncode, out, err


@pytest.mark.parametrize("size", [2, 3])
def test_real_ranks_come_to_what_one_process_does(size: int, tmp_path: Path) -> None:
    from safetensors.torch import load_file

    runs = {name: {**DIGITS, **fields} for name, fields in RUNS.items()}
    worker = tmp_path / "worker.py"
    worker.write_text(WORKER)
    code, _, err = ended(torchrun(size, str(worker), json.dumps(runs), str(tmp_path)))
    assert code == 0, err
    for name, fields in runs.items():
        *_, last = simulate(Run(**fields))
        assert last.server is not None
        found = load_file(tmp_path / f"{name}.safetensors")
        kept = {**last.server.params, **{f"buffer {k}": v for k, v in last.server.buffers.items()}}
        assert found.keys() == kept.keys(), name
        for leaf, value in kept.items():
            torch.testing.assert_close(found[leaf], value, rtol=1e-5, atol=1e-5, msg=lambda text: f"{name}: {text}")  # noqa: B023
        record = json.loads((tmp_path / f"{name}.json").read_text())
        assert record["clients"] == last.clients, name
        assert record["accuracy"] == pytest.approx(last.accuracy, abs=0.003), name
        assert record["train_loss"] == pytest.approx(last.train_loss, rel=1e-4), name


SEQUENCE = """
import sys
from pathlib import Path
from fedskew import Run, Store, ranks, simulate
from fedskew.engine.distributed import RankLost
from fedskew.experiments.store import StoreBusy
from fedskew.simulation import simulate_many

folder, rank = Path(sys.argv[1]), ranks.rank()
store = Store(folder / "store")
digits = {"dataset": "digits", "partition": "dirichlet:0.1", "clients": 6, "lr": 0.1, "batch_size": 32, "rounds": 12}

def say(*words):
    with (folder / f"rank{rank}").open("a") as file:
        print(*words, file=file)

def told(records):
    return [(r.round, r.accuracy, r.clients, r.train_loss) for r in records]

run = Run(**digits, algorithm="fedlc+scaffold", eval_every=5)
say("new", told(simulate(run, store=store)))
say("finished", told(simulate(run, store=store)))
say("shorter", told(simulate(Run(**{**digits, "rounds": 4}, algorithm="fedlc+scaffold", eval_every=5), store=store)))
say("longer", told(simulate(Run(**{**digits, "rounds": 14}, algorithm="fedlc+scaffold", eval_every=5), store=store)))
seeds = [Run(**digits, seed=seed) for seed in (1, 2)]
say("seeds", [(position, *told([record])) for position, record in simulate_many(seeds, store=store)])

early = []
for record in simulate(Run(**digits, seed=3)):
    early.append(record)
    if record.accuracy > 0.2:
        break
say("early", told(early))

busy = Run(**digits, seed=4)
if not rank:
    store.folder(busy.hash).create(busy.hash, busy.model_dump(), busy.short, 1)
    held = store.folder(busy.hash).lock()
    held.__enter__()
try:
    list(simulate(busy, store=store))
except (RuntimeError, StoreBusy) as error:
    say("busy", error)
say("after", told(simulate(Run(**digits, seed=5), store=store)))

try:
    list(simulate(Run(**digits, seed=6 + rank)))
except ValueError as error:
    say("different", error)

damaged = store.folder(seeds[0].hash)
if not rank:
    damaged.checkpoint.write_bytes(b"nothing")
try:
    list(simulate(Run(**{**digits, "rounds": 20}, seed=1), store=store))
except Exception as error:
    say("damaged", error)
"""


def test_ranks_see_the_same_and_never_lose_step(tmp_path: Path) -> None:
    worker = tmp_path / "worker.py"
    worker.write_text(SEQUENCE)
    code, _, err = ended(torchrun(2, str(worker), str(tmp_path)))
    assert code == 0, err
    said = [dict(line.split(" ", 1) for line in (tmp_path / f"rank{rank}").read_text().splitlines()) for rank in (0, 1)]
    for name in ("new", "finished", "shorter", "longer", "seeds", "early", "after"):
        assert said[0][name] == said[1][name], name
    assert said[0]["new"] == said[0]["finished"]
    assert "another process is working on run" in said[0]["busy"]
    assert "another rank cannot go on" in said[1]["busy"]
    assert "ranks have different runs" in said[0]["different"]
    assert "ranks have different runs" in said[1]["different"]
    assert str(tmp_path / "store") in said[0]["damaged"]
    assert "is damaged" in said[1]["damaged"]
    digits = {**DIGITS, "clients": 6, "batch_size": 32, "rounds": 12}
    *_, last = simulate(Run(**digits, seed=5))
    assert ast.literal_eval(said[0]["after"])[-1][1] == pytest.approx(last.accuracy, abs=0.005)
    known = {record.round: record.accuracy for record in simulate(Run(**digits, seed=3))}
    *before, (stopped, accuracy, *_) = ast.literal_eval(said[0]["early"])
    assert accuracy == pytest.approx(known[stopped], abs=0.005)
    assert all(one[1] <= 0.2 for one in before)


def test_an_error_on_one_rank_is_its_own_to_say(tmp_path: Path) -> None:
    worker = tmp_path / "worker.py"
    worker.write_text(
        "import sys\nfrom fedskew import cli, ranks, simulation\n"
        "def fail(run):\n    raise ValueError('the data are not on this machine')\n"
        "if ranks.rank():\n    simulation.build_federation = fail\n"
        "cli.main(['run', '--dataset', 'digits', '--runs', sys.argv[1]])\n"
    )
    code, _, err = ended(torchrun(2, str(worker), str(tmp_path / "store")))
    assert code != 0
    assert "fedskew: rank 1: the data are not on this machine" in err
    assert "fedskew: another rank cannot go on; its own message says why" in err
    assert not list((tmp_path / "store").glob("*"))


def options(fields: dict[str, object], store: Path) -> list[str]:
    named = [text for name, value in fields.items() for text in (f"--{name.replace('_', '-')}", str(value))]
    return ["run", *named, "--runs", str(store), "--quiet"]


def test_a_killed_rank_is_a_clear_failure_and_the_run_goes_on(tmp_path: Path) -> None:
    fields = {**DIGITS, "algorithm": "fedlc+scaffold", "rounds": 20000, "eval_every": 1000}
    process = torchrun(2, "-m", "fedskew", *options(fields, tmp_path))
    folder = tmp_path / Run(**fields).hash
    until = time.monotonic() + 60
    while not (folder / "checkpoint.safetensors").exists():
        assert time.monotonic() < until
        assert process.poll() is None, process.communicate()
        time.sleep(0.2)
    workers = [int(pid) for pid in Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()]
    second = next(pid for pid in workers if "RANK=1" in Path(f"/proc/{pid}/environ").read_text().split("\0"))
    os.kill(second, signal.SIGKILL)
    code, _, err = ended(process)
    assert code != 0
    assert "the same command goes on" in err  # the other rank's, or torchrun ended it first
    reached = load_checkpoint(folder / "checkpoint.safetensors").round
    assert 0 < reached < 20000

    rounds = len((folder / "records.jsonl").read_text().splitlines()) + 5
    shorter = {**fields, "rounds": rounds}
    *_, last = simulate(Run(**shorter))
    code, out, err = ended(torchrun(3, "-m", "fedskew", *options(shorter, tmp_path)))
    assert code == 0, err
    sessions = [json.loads(line) for line in (folder / "sessions.jsonl").read_text().splitlines()]
    assert [(s["ranks"], s["from_round"]) for s in sessions] == [(2, 0), (3, reached)]
    after = load_checkpoint(folder / "checkpoint.safetensors")
    assert after.round == rounds
    assert sorted(after.clients.tolist()) == list(range(9))
    assert last.server is not None
    assert float(out.split()[0]) == pytest.approx(100 * (last.accuracy or 0), abs=1)


def test_a_wrong_request_is_said_once(tmp_path: Path) -> None:
    """Also where the first rank, whose word it is, is the last to see it."""
    late = tmp_path / "late.py"
    late.write_text(
        "import os, time\n\ntime.sleep(4 if os.environ['RANK'] == '0' else 0)\n"
        "from fedskew.cli import main\n\nmain(['run', '--algorithm', 'fedlp'])\n"
    )
    code, _, err = ended(torchrun(2, str(late)))
    assert code != 0
    assert err.count("fedskew: ") == 1
    code, _, err = ended(torchrun(2, "-m", "fedskew", "compare", "--runs", str(tmp_path)))
    assert code != 0
    assert err.count("torchrun shares the work of `fedskew run`, not of compare") == 1

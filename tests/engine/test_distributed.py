"""Several ranks: who trains whom, sums that add up, and real processes under torchrun."""

import ast
import atexit
import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterable
from multiprocessing import get_context
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file

from fedskew import RoundRecord, Run, Store
from fedskew.cli import main
from fedskew.core import ranks, tree
from fedskew.core.round import add_up, conclude, scales, server_update, take, zero_sums
from fedskew.engine.distributed import Ranks, join_ranks, place
from fedskew.runs.checkpoint import load_checkpoint
from fedskew.runs.store import StoreBusy
from fedskew.simulation import simulation
from fedskew.simulation.session import simulate, simulate_many
from fedskew.simulation.simulation import Simulation
from tests.helpers import OWN
from tests.helpers.waiting import PATIENCE

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


@pytest.mark.parametrize("size", [1, 2, 3, 7])
def test_every_client_is_one_ranks_and_steps_are_balanced(size: int) -> None:
    steps = np.random.default_rng(0).integers(1, 200, 40)
    parts = [Ranks(rank, size).my_part(steps) for rank in range(size)]
    assert sorted(np.concatenate(parts).tolist()) == list(range(40))
    loads = [int(steps[part].sum()) for part in parts]
    assert max(loads) - min(loads) <= steps.min() + steps.max() // 2


def test_the_balance_is_of_steps_and_not_of_clients() -> None:
    steps = np.array([1, 1, 100, 1, 1])
    assert [Ranks(rank, 2).my_part(steps).tolist() for rank in (0, 1)] == [[2], [0, 1, 3, 4]]


@pytest.mark.parametrize("algorithm", ["fedavg", "fedlc+scaffold", "fednova", "fedopt", "fedexp"])
def test_sums_of_parts_are_those_of_the_whole(algorithm: str) -> None:
    simulation = Simulation(Run(**DIGITS, algorithm=algorithm, precision="fp64"))
    cohort, server = simulation.cohort(1), simulation.server
    (update,) = simulation.engine.train(simulation.recipe(1), [server], [cohort], 1)
    weights = cohort.weights("samples")
    counted = scales(simulation.algorithm, weights, update.travel)
    sums = zero_sums(simulation.recipe(1), server)
    for part in (torch.tensor([0, 4, 5]), torch.tensor([1]), torch.tensor([8, 7, 6, 3, 2])):
        some = add_up(take(update, part), counted[:, part], 9, square=algorithm == "fedexp")
        sums = type(sums)(
            tree.add(sums.delta, some.delta),
            tree.add(sums.buffers, some.buffers),
            tree.add(sums.message, some.message),
            sums.travel + some.travel,
            sums.loss + some.loss,
            sums.square + some.square,
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
    alone = join_ranks(torch.device("cpu"))
    assert (alone.rank, alone.size, ranks.expected(), ranks.machine_share()) == (0, 1, 1, 1)
    assert not torch.distributed.is_initialized()
    assert alone.broadcast(3) == 3


def test_a_rank_has_a_gpu_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    pretend(monkeypatch, RANK=5, LOCAL_RANK=1, WORLD_SIZE=8, LOCAL_WORLD_SIZE=4)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    assert place(torch.device("cuda")) == torch.device("cuda", 1)
    assert place(torch.device("cpu")) == torch.device("cpu")
    with pytest.raises(ValueError, match="'cuda:0' on 4 ranks of this machine"):
        place(torch.device("cuda", 0))
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 1)
    with pytest.raises(ValueError, match="rank 1 of this machine has no GPU: there are 1"):
        place(torch.device("cuda"))


def test_probes_need_all_clients(monkeypatch: pytest.MonkeyPatch) -> None:
    pretend(monkeypatch, RANK=0, LOCAL_RANK=0, WORLD_SIZE=2, LOCAL_WORLD_SIZE=2)
    with pytest.raises(ValueError, match="with several ranks none has them all"):
        next(simulate(Run(**DIGITS), [lambda seen: {}]))


class Ended(NamedTuple):
    code: int | None
    out: str
    err: str


def on_ranks(size: int, folder: Path, work: Callable[..., None], *arguments: object) -> list[Ended]:
    """How `work` ended on each of so many ranks that find what torchrun gives them: an environment and a store.

    They are forked from a process that has imported PyTorch, because importing takes most of such a test's time.
    """
    forked = get_context("forkserver")
    forked.set_forkserver_preload([__name__])
    store = torch.distributed.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
    shared = {"WORLD_SIZE": size, "LOCAL_WORLD_SIZE": size, "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": store.port}
    shared |= {"TORCHELASTIC_RUN_ID": "none", "TORCHELASTIC_USE_AGENT_STORE": True}
    files = [(folder / f"out{rank}", folder / f"err{rank}") for rank in range(size)]
    ranks = []
    for rank in range(size):
        environment = {name: str(value) for name, value in {**shared, "RANK": rank, "LOCAL_RANK": rank}.items()}
        ranks.append(forked.Process(target=as_rank, args=(environment, files[rank], work, arguments), daemon=True))
        ranks[-1].start()
    for process in ranks:
        process.join(PATIENCE)
        process.kill()  # where it hangs
        process.join()
    return [
        Ended(process.exitcode, out.read_text(), err.read_text())
        for process, (out, err) in zip(ranks, files, strict=True)
    ]


def as_rank(
    environment: dict[str, str], files: tuple[Path, Path], work: Callable[..., None], arguments: tuple[object, ...]
) -> None:
    os.environ.update(environment)
    torch.set_num_threads(1)
    for number, file in enumerate(files, 1):
        os.dup2(os.open(file, os.O_WRONLY | os.O_CREAT), number)
    try:
        work(*arguments)
    finally:
        atexit._run_exitfuncs()  # multiprocessing leaves them out


def torchrun(size: int, *arguments: str) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(size), *arguments]
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": f"{ROOT / 'src'}{os.pathsep}{ROOT}"}
    return subprocess.Popen(
        command, env=environment, text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE, start_new_session=True
    )


def ended(process: subprocess.Popen[str]) -> Ended:
    try:
        out, err = process.communicate(timeout=PATIENCE)
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
    return Ended(process.returncode, out, err)


def last_models(runs: dict[str, dict[str, Any]], folder: Path) -> None:
    for name, fields in runs.items():
        *_, last = simulate(Run(**fields))
        if not ranks.rank():
            assert last.server is not None
            kept = {**last.server.params, **{f"buffer {k}": v for k, v in last.server.buffers.items()}}
            save_file({k: v.contiguous() for k, v in kept.items()}, folder / f"{name}.safetensors")
            (folder / f"{name}.json").write_text(json.dumps(last.as_dict()))


@pytest.mark.parametrize("size", [2, 3])
def test_real_ranks_come_to_what_one_process_does(size: int, tmp_path: Path) -> None:
    runs = {name: {**DIGITS, **fields} for name, fields in RUNS.items()}
    assert [one.code for one in on_ranks(size, tmp_path, last_models, runs, tmp_path)] == [0] * size
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


def several_runs(folder: Path) -> None:
    """What may happen to runs one after another; each rank writes down what it sees."""
    rank, store = ranks.rank(), Store(folder / "store")
    digits = {**DIGITS, "clients": 6, "batch_size": 32, "rounds": 12}

    def say(name: str, value: object) -> None:
        with (folder / f"rank{rank}").open("a") as file:
            print(name, value, file=file)

    def told(records: Iterable[RoundRecord]) -> list[tuple[object, ...]]:
        return [(r.round, r.accuracy, r.clients, r.train_loss, r.asked) for r in records]

    for name, rounds in (("new", 12), ("finished", 12), ("shorter", 4), ("longer", 14)):
        run = Run(**{**digits, "rounds": rounds}, algorithm="fedlc+scaffold", eval_every=5)
        say(name, told(simulate(run, store=store)))
    seeds = [Run(**digits, seed=seed) for seed in (1, 2)]
    say("readout", told(simulate(Run(**digits, algorithm="fedlc+refit:asks=3", eval_every=12))))
    say("seeds", [(position, *told([record])) for position, record in simulate_many(seeds, store=store)])

    early = []
    for record in simulate(Run(**digits, seed=3)):
        early.append(record)
        if record.accuracy is not None and record.accuracy > 0.2:
            break
    say("early", told(early))

    busy = Run(**digits, seed=4)
    if not rank:
        store.folder(busy.hash).create(busy.hash, busy.model_dump(), busy.short | {"title": ""}, 1)
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

    damaged = store.folder(seeds[0].hash).checkpoint
    if not rank:
        content = damaged.read_bytes()
        damaged.write_bytes(content[:-1] + bytes([content[-1] ^ 1]))
    try:
        list(simulate(Run(**{**digits, "rounds": 20}, seed=1), store=store))
    except Exception as error:
        say("damaged", error)


def test_ranks_see_the_same_and_never_lose_step(tmp_path: Path) -> None:
    assert [one.code for one in on_ranks(2, tmp_path, several_runs, tmp_path)] == [0, 0]
    said = [dict(line.split(" ", 1) for line in (tmp_path / f"rank{rank}").read_text().splitlines()) for rank in (0, 1)]
    for name in ("new", "finished", "shorter", "longer", "readout", "seeds", "early", "after"):
        assert said[0][name] == said[1][name], name
    assert said[0]["new"] == said[0]["finished"]
    assert [asked for *_, asked in ast.literal_eval(said[1]["readout"])] == [0, 0, *[6 * 3] * 10]
    assert "this process is already working on run" in said[0]["busy"]
    assert "another rank cannot continue" in said[1]["busy"]
    assert "ranks have different runs" in said[0]["different"]
    assert "ranks have different runs" in said[1]["different"]
    assert str(tmp_path / "store") in said[0]["damaged"]
    assert "is damaged" in said[1]["damaged"]
    digits = {**DIGITS, "clients": 6, "batch_size": 32, "rounds": 12}
    *_, last = simulate(Run(**digits, seed=5))
    assert ast.literal_eval(said[0]["after"])[-1][1] == pytest.approx(last.accuracy, abs=0.005)
    known = {record.round: record.accuracy for record in simulate(Run(**digits, seed=3))}
    stopped, accuracy, *_ = ast.literal_eval(said[0]["early"])[-1]
    assert accuracy == pytest.approx(known[stopped], abs=0.005)


def run_without_data_on_the_second(store: Path) -> None:
    def fail(run: Run) -> None:
        raise ValueError("the data are not on this machine")

    if ranks.rank():
        simulation.build_federation = fail  # type: ignore[assignment]
    main(["run", "--dataset", "digits", "--runs", str(store)])


def test_an_error_on_one_rank_is_its_own_to_say(tmp_path: Path) -> None:
    first, second = on_ranks(2, tmp_path, run_without_data_on_the_second, tmp_path / "store")
    assert first.code
    assert second.code
    assert "fedskew: another rank cannot continue; its own message says why" in first.err
    assert "fedskew: rank 1: the data are not on this machine" in second.err
    assert not list((tmp_path / "store").glob("*"))


def options(fields: dict[str, object], store: Path) -> list[str]:
    named = [text for name, value in fields.items() for text in (f"--{name.replace('_', '-')}", str(value))]
    return ["run", *named, "--runs", str(store), "--quiet"]


KILLED = """
import os, signal, sys
from pathlib import Path
from fedskew import cli
from fedskew.runs.store import checkpoint_facts
from fedskew.simulation import simulation
from tests.helpers.waiting import wait_until

checkpoint, last, *words = sys.argv[1:]
simulation._CHECKPOINT_SECONDS, simulation._CHECKPOINT_SHARE = -1.0, 0
cohort = simulation.Simulation.cohort

def killed(self, round):
    if round > int(last) and os.environ["RANK"] == "1":
        wait_until(lambda: Path(checkpoint).exists() and checkpoint_facts(Path(checkpoint))[0] == int(last))
        os.kill(os.getpid(), signal.SIGKILL)
    return cohort(self, round)

simulation.Simulation.cohort = killed
cli.main(words)
"""


def test_a_killed_rank_is_a_clear_failure_and_the_run_goes_on(tmp_path: Path) -> None:
    """The second rank is killed in round 4, once the checkpoint of round 3 is there."""
    fields, reached = {**DIGITS, "algorithm": "fedlc+scaffold", "rounds": 8, "eval_every": 2}, 3
    store, killed = tmp_path / "store", tmp_path / "killed.py"
    folder = store / Run(**fields).hash
    killed.write_text(KILLED)
    checkpoint = folder / "checkpoint.safetensors"
    code, _, err = ended(torchrun(2, str(killed), str(checkpoint), str(reached), *options(fields, store)))
    assert code != 0
    assert "the same command resumes" in err  # the other rank's, or torchrun ended it first
    assert load_checkpoint(checkpoint).round == reached
    assert len((folder / "records.jsonl").read_text().splitlines()) == reached

    *_, last = simulate(Run(**fields))
    first, *others = on_ranks(3, tmp_path, main, options(fields, store))
    assert [one.code for one in (first, *others)] == [0, 0, 0], first.err
    sessions = [json.loads(line) for line in (folder / "sessions.jsonl").read_text().splitlines()]
    assert [(s["ranks"], s["from_round"]) for s in sessions] == [(2, 0), (3, reached)]
    after = load_checkpoint(checkpoint)
    assert after.round == fields["rounds"]
    assert sorted(after.clients.tolist()) == list(range(9))
    assert last.server is not None
    assert float(first.out.split()[0]) == pytest.approx(100 * (last.accuracy or 0), abs=1)


LATE = """
import os, sys, time
from pathlib import Path
from fedskew import cli

waits, sleep = Path(sys.argv[1]), time.sleep

def sleeping(seconds):
    waits.touch()
    sleep(seconds)

if os.environ["RANK"] == "0":
    while not waits.exists():
        sleep(0.01)
else:
    time.sleep = sleeping
cli.main(["run", "--algorithm", "fedlp"])
"""


def test_a_wrong_request_is_said_once(tmp_path: Path) -> None:
    """Also where the first rank, whose word it is, sees it only when the other one has ended or waits."""
    late = tmp_path / "late.py"
    late.write_text(LATE)
    code, _, err = ended(torchrun(2, str(late), str(tmp_path / "waits")))
    assert code != 0
    assert err.count("fedskew: ") == 1


def test_torchrun_shares_no_comparison(tmp_path: Path) -> None:
    code, _, err = ended(torchrun(2, "-m", "fedskew", "compare", "--runs", str(tmp_path)))
    assert code != 0
    assert err.count("torchrun shares the work of `fedskew run`, not of compare") == 1

"""What a run needs at least, and what happens where that is not there."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from fedskew import RoundRecord, Run, simulate
from fedskew.core import memory
from fedskew.core.memory import Need, check_room, clients_seen, free_memory, seeds_together
from fedskew.data import load_dataset
from fedskew.simulation import session, simulation
from fedskew.simulation.session import simulate_many
from fedskew.simulation.simulation import Simulation
from tests.cli.calling import call

CPU = torch.device("cpu")
SMALL: dict[str, Any] = {"dataset": "synthetic:1,1,max_size=100", "clients": 5, "batch_size": 16, "rounds": 3}


def test_seeds_that_fit_together() -> None:
    shared, own = Need(work=100, states=20), Need(work=100, states=20, data=10)
    assert [shared.of(n) for n in (1, 2, 5)] == [120, 240, 600]
    assert [own.of(n) for n in (1, 2, 5)] == [120, 270, 690]
    assert [seeds_together(shared, free, 5) for free in (None, 600, 599, 240, 239, 0)] == [5, 5, 4, 2, 1, 1]
    assert [seeds_together(own, free, 5) for free in (690, 689, 270, 269)] == [5, 4, 2, 1]


def test_what_does_not_fit_is_refused_with_both_numbers() -> None:
    check_room("this", 10**9, 10**9, CPU, "less")
    check_room("this", 10**9, None, CPU, "less")
    with pytest.raises(
        ValueError, match=r"^this needs at least 12\.3 GB, but only 456\.0 MB are free on cpu; try less$"
    ):
        check_room("this", 12_300_000_000, 456_000_000, CPU, "try less")


def test_how_many_clients_are_seen() -> None:
    assert clients_seen(100, 100, 1) == 100
    assert clients_seen(100, 10, 1) == 10
    assert 40 < clients_seen(100, 10, 6) < 60
    assert clients_seen(100, 10, 1000) == 100


def test_free_memory_is_what_linux_says(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "meminfo"
    monkeypatch.setattr(memory, "_MEMINFO", file)
    assert free_memory(CPU) is None
    file.write_text("MemTotal:       100 kB\n")
    assert free_memory(CPU) is None
    file.write_text("MemTotal:       100 kB\nMemAvailable:    7 kB\n")
    assert free_memory(CPU) == 7 * 1024


def test_a_run_counts_what_it_holds() -> None:
    model = 4 * (60 * 10 + 10)
    serial = Simulation(Run(**SMALL, engine="serial"))
    sizes = np.diff(serial.federation.offsets)
    plain, one, all = serial.need(), 8 * int(sizes.max()), 8 * int(sizes.sum())  # an index for each use of an example
    assert (plain.work, plain.states) == (5 * 2 * model + one, 0)
    assert Simulation(Run(**SMALL, engine="serial", local_epochs=7)).need().work == 5 * 2 * model + 7 * one
    assert plain.data == load_dataset(SMALL["dataset"], 0, 5).nbytes
    scaffold = Simulation(Run(**SMALL, engine="serial", algorithm="scaffold")).need()
    assert (scaffold.work, scaffold.states) == (5 * 6 * model + one, 5 * model)
    stacked = Simulation(Run(**SMALL, engine="stacked", momentum=0.9)).need()
    assert stacked.work == 5 * (3 * model + 16 * 60 * 4) + all
    assert Simulation(Run(dataset="digits", rounds=1)).need().data == 0


@pytest.mark.parametrize(
    ("engine", "remedy"),
    [("stacked", "round, a smaller batch size or engine=serial would"), ("threaded", "round would need less")],
)
def test_a_run_that_cannot_fit_is_refused_before_anything_is_written(
    engine: str, remedy: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(simulation, "free_memory", lambda device: 1_000)
    arguments = ["run", "--dataset", "synthetic:1,1,max_size=100", "--clients", "5", "--engine", engine]
    code, _, error = call(capsys, *arguments, "--runs", str(tmp_path / "runs"))
    assert code == 2
    assert "this run needs at least" in error
    assert "0.0 MB are free on cpu" in error
    assert remedy in error
    assert not (tmp_path / "runs").exists()


def test_data_that_do_not_fit_on_a_device_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fedskew.data.free_memory", lambda device: 10)
    with pytest.raises(ValueError, match=r"digits needs at least .* are free on meta; device=cpu may have room"):
        load_dataset("digits", 0, 5, device="meta")


@pytest.mark.parametrize(("room", "most"), [(1, 1), (2, 2), (3, 3)])
def test_seeds_that_do_not_fit_together_run_in_groups(room: int, most: int, monkeypatch: pytest.MonkeyPatch) -> None:
    runs = [Run(**SMALL, algorithm="fedlc+scaffold", seed=seed) for seed in range(5)]
    expected = [[r.as_dict() for r in simulate(run)] for run in runs]
    need = Simulation(runs[0]).need()
    monkeypatch.setattr(session, "free_memory", lambda device: need.of(room))
    monkeypatch.setattr(Simulation, "need", lambda self: need)
    groups: list[int] = []
    advance = session.advance

    def counted(simulations: list[Simulation], probes: Any = ()) -> list[RoundRecord]:
        groups.append(len(simulations))
        return advance(simulations, probes)

    monkeypatch.setattr(session, "advance", counted)
    found: list[list[dict[str, Any]]] = [[] for _ in runs]
    with pytest.warns(UserWarning, match=f"not enough memory for all seeds together; running {most} at a time"):
        records = list(simulate_many(runs))
    for position, record in records:
        found[position].append(record.as_dict())
    assert max(groups) == most
    for ours, alone in zip(found, expected, strict=True):
        assert [r["round"] for r in ours] == [1, 2, 3]
        assert [r["accuracy"] for r in ours] == pytest.approx([r["accuracy"] for r in alone])
        assert [r["loss"] for r in ours] == pytest.approx([r["loss"] for r in alone], rel=1e-4)

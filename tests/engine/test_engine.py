"""Which engine is chosen and why, what engines refuse, and whom they blame."""

import threading
from concurrent.futures import wait
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import nn

from fedskew import Run, simulate
from fedskew.core.settings import arithmetic, dtype_of
from fedskew.engine import choose_engine, fastest_engine, threaded
from fedskew.engine.graphed import compiler_options, may_compile, worth_compiling
from fedskew.models import Model, build_model, kernels
from fedskew.models.layers import Conv2d
from fedskew.simulation.simulation import Simulation
from tests.helpers import OWN
from tests.helpers.own import dropping, normed, plain
from tests.helpers.waiting import PATIENCE

CPU = torch.device("cpu")
FIELDS: dict[str, Any] = {
    "dataset": f"{OWN}:ragged_digits",
    "partition": "natural",
    "clients": 4,
    "rounds": 1,
    "batch_size": 16,
}


def test_auto_chooses_and_says_why() -> None:
    small = build_model("mlp", (1, 8, 8), 10, 0)
    assert fastest_engine(small, CPU) == ("stacked", "4,810 parameters: the cohort runs as one tensor program")
    assert fastest_engine(Model(plain((1, 8, 8), 10)), CPU)[0] == "stacked"
    asked = Simulation(Run(**FIELDS, model="mlp", engine="serial"))
    assert (asked.engine_name, asked.engine_reason) == ("serial", "asked for")
    name, reason = fastest_engine(Model(nn.Linear(1000, 1000)), CPU)
    assert name == "serial"
    assert "1,001,000 parameters" in reason


@pytest.mark.parametrize(
    ("name", "ours"),
    [
        ("cnn", True),
        ("cnn:width=16,padding=1", True),
        ("mcmahan", True),
        ("mcmahan:padding=2", True),
        ("cnn:width=48", False),
        ("cnn:width=8", False),
        ("cnn:width=256", False),
        ("cnn:norm=group", False),
        ("cnn:norm=none", False),
        ("cnn:weights=standard", False),
        ("resnet18", False),
        ("mlp:hidden=2000", False),
    ],
)
def test_auto_runs_clients_together_where_our_kernels_serve_the_network(
    name: str, ours: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    model, gpu = build_model(name, (3, 32, 32), 10, 0), torch.device("cuda")
    monkeypatch.setattr(kernels, "available", lambda: True)
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda _: (9, 0))
    assert fastest_engine(model, gpu, "bf16")[0] == ("stacked" if ours else "graphed")
    for precision in ("fp32", "tf32", "fp64"):
        assert fastest_engine(model, gpu, precision)[0] == "graphed"
    assert fastest_engine(model, CPU, "bf16") == fastest_engine(model, CPU, "fp32")
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda _: (8, 9))
    assert fastest_engine(model, gpu, "bf16")[0] == "graphed"
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda _: (9, 0))
    monkeypatch.setattr(torch.version, "hip", "6.4")  # AMD's devices are called cuda, too
    assert fastest_engine(model, gpu, "bf16")[0] == "graphed"
    monkeypatch.setattr(torch.version, "hip", None)
    monkeypatch.setattr(kernels, "available", lambda: False)
    assert fastest_engine(model, gpu, "bf16")[0] == "graphed"


@pytest.mark.parametrize(("alone", "engine"), [(None, "graphed"), ("the loss mixes images", "serial")])
def test_what_cannot_run_together_may_run_client_by_client(
    alone: str | None, engine: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    model, data = (
        build_model("mlp", (3, 8, 8), 10, 0),
        SimpleNamespace(x_train=SimpleNamespace(device=torch.device("cuda"))),
    )
    monkeypatch.setattr(
        "fedskew.engine.why_not", lambda engine, *_: "it indexes clients" if engine == "stacked" else alone
    )
    made = choose_engine("auto", SimpleNamespace(model=model), None, data, "bf16")  # type: ignore[arg-type]
    assert made == (engine, "it indexes clients")


def test_a_layer_takes_its_plain_path_on_a_cpu() -> None:
    conv = Conv2d(3, 16, 3)
    assert conv.suits_together
    conv.weight = nn.Parameter(torch.zeros(2, 16, 3, 3, 3))
    assert not conv.together(torch.zeros(2, 1, 3, 8, 8))


@pytest.mark.parametrize(
    "conv",
    [
        Conv2d(3, 16, 3, stride=2),
        Conv2d(3, 16, 3, bias=False),
        Conv2d(20, 16, 3),
        Conv2d(48, 16, 3),
        Conv2d(3, 16, 3, padding=(0, 1)),
    ],
)
def test_a_layer_that_our_kernels_do_not_serve(conv: Conv2d) -> None:
    assert not conv.suits_together


@pytest.mark.parametrize(
    ("name", "pays"), [("cnn", True), ("mcmahan", True), ("resnet18", False), ("cnn:norm=group", False)]
)
def test_a_network_of_many_layers_is_captured_without_compiling_it(name: str, pays: bool) -> None:
    assert worth_compiling(build_model(name, (3, 32, 32), 10, 0)) is pays


def test_the_compiler_is_asked_for_nothing_it_does_not_know() -> None:
    config = torch._inductor.config
    assert compiler_options()["combo_kernels"] is True
    assert all(hasattr(config, name) for name in compiler_options())


def test_after_a_failure_the_rest_of_the_round_is_not_trained(monkeypatch: pytest.MonkeyPatch) -> None:
    """The next client after the failure lasts until the engine waits for its thread, having taken back the rest."""
    begun, waits = list[int](), threading.Event()

    def failing(recipe: Any, settings: Any, server: Any, cohort: Any, k: int, round: int) -> None:
        begun.append(k)
        assert 0 not in begun[:-1] or waits.wait(PATIENCE)
        raise RuntimeError("client fails")

    def waiting(futures: Any) -> None:
        waits.set()
        wait(futures)

    monkeypatch.setattr(threaded, "undrawn_update", failing)
    monkeypatch.setattr(threaded, "wait", waiting)
    monkeypatch.setattr(threaded, "cores", lambda: 1)
    run = Run(dataset="digits", partition="iid", clients=40, model="cnn:width=4,padding=1", engine="threaded", rounds=1)
    with pytest.raises(RuntimeError, match="client fails"):
        list(simulate(run))
    assert len(begun) <= begun.index(0) + 2 < 10


def test_flags_of_the_process_are_as_before_after_a_round_of_threads() -> None:
    before = torch.backends.cudnn.deterministic
    run = Run(dataset="digits", partition="iid", clients=8, model="cnn:width=4,padding=1", engine="threaded", rounds=3)
    for _ in simulate(run):
        assert torch.backends.cudnn.deterministic == before


@pytest.mark.parametrize("make", [normed, dropping])
def test_auto_falls_back_where_stacked_would_refuse(make: Any) -> None:
    model = Model(make((1, 8, 8), 10))
    name, reason = fastest_engine(model, CPU)
    assert name == "serial"
    assert "buffers or dropout" in reason


@pytest.mark.parametrize("own", ["normed", "dropping"])
def test_stacked_refuses_batch_norm_and_dropout_of_the_users_own(own: str) -> None:
    with pytest.raises(ValueError, match="stacked cannot run a module with its own batch norm or dropout"):
        list(simulate(Run(**FIELDS, model=f"{OWN}:{own}", engine="stacked")))
    (record,) = simulate(Run(**FIELDS, model=f"{OWN}:{own}", engine="serial"))
    assert record.engine == "serial"
    assert not record.diverged


def test_dropout_depends_on_the_run_alone() -> None:
    """Not on torch's global generator, which is left where it was."""
    torch.manual_seed(1)
    before = torch.random.get_rng_state()
    run = Run(**FIELDS, model=f"{OWN}:dropping", engine="serial")
    (one,) = simulate(run)
    assert torch.equal(torch.random.get_rng_state(), before)
    torch.manual_seed(2)
    (two,) = simulate(run)
    assert one.train_loss == two.train_loss
    (three,) = simulate(run.model_copy(update={"seed": 1}))
    assert three.train_loss != one.train_loss


@pytest.mark.parametrize(
    ("engine", "message"), [("serial", "round 1, client 0: "), ("stacked", "round 1, clients 0, 1, 2, 3: ")]
)
def test_a_failure_names_round_and_clients(engine: str, message: str) -> None:
    with pytest.raises(RuntimeError, match=message):
        list(simulate(Run(**FIELDS, model=f"{OWN}:broken", engine=engine)))


@pytest.mark.parametrize(("own", "message"), [("unfit", "cannot take inputs of shape"), ("few", r"allowed: \[10\]")])
def test_a_model_that_does_not_fit_its_data_is_refused_at_once(own: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        next(simulate(Run(**FIELDS, model=f"{OWN}:{own}")))


def test_types() -> None:
    assert [dtype_of(name) for name in ("fp32", "tf32", "bf16", "fp64")] == [
        torch.float32,
        torch.float32,
        torch.float32,
        torch.float64,
    ]


def flags() -> tuple[bool, bool]:
    return torch.backends.cuda.matmul.allow_tf32, torch.backends.cudnn.allow_tf32


@pytest.mark.parametrize("precision", ["fp32", "tf32", "bf16", "fp64"])
def test_arithmetic_is_put_back(precision: str) -> None:
    before, ones = flags(), torch.ones(2, 2)
    with arithmetic(precision, torch.device("cpu")):
        assert (ones @ ones).dtype == (torch.bfloat16 if precision == "bf16" else torch.float32)
        assert flags() == (precision == "tf32", precision == "tf32")
    assert flags() == before
    assert (ones @ ones).dtype == torch.float32
    with pytest.raises(RuntimeError), arithmetic(precision, torch.device("cpu")):
        ones @ torch.ones(3)
    assert flags() == before


def test_bf16_keeps_its_weights_in_float32() -> None:
    for engine in ("serial", "stacked"):
        (record,) = simulate(Run(**FIELDS, model="mlp", precision="bf16", engine=engine, algorithm="fedlc+scaffold"))
        assert record.server is not None
        assert all(leaf.dtype == torch.float32 for leaf in record.server.params.values())
        assert not record.diverged


def test_memory_is_kept_only_where_glibc_is(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[tuple[int, int]] = []
    library = type("Library", (), {"mallopt": staticmethod(lambda *option: asked.append(option))})
    monkeypatch.setattr(threaded.ctypes, "CDLL", lambda name: library)
    threaded.keep_memory()
    assert dict(asked) == {-4: 0, -1: 2**30, -2: 2**26}
    monkeypatch.setattr(threaded.ctypes, "CDLL", lambda name: object())
    threaded.keep_memory()


@pytest.mark.parametrize(
    ("device", "precision", "may"),
    [("cuda", "bf16", True), ("cuda", "fp32", True), ("cuda", "fp64", False), ("cpu", "fp32", False)],
)
def test_kernels_that_compute_in_float32_are_left_out_in_float64(device, precision, may):
    assert may_compile(torch.device(device), precision) is may

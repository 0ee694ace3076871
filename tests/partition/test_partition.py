"""Every partitioner keeps every sample; each one's own promise; every bad input is refused in words."""

import re
from collections.abc import Callable

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from fedskew.core.rng import stream
from fedskew.core.spec import resolve
from fedskew.partition import PARTITIONS, Partition, dirichlet, iid, labels, partition_hash, shards

CIFAR = torch.arange(50_000) % 10


def rng(seed: int = 0) -> np.random.Generator:
    return np.random.default_rng(seed)


def sizes(parts: list[Tensor]) -> list[int]:
    return [len(part) for part in parts]


def distinct(parts: list[Tensor], y: Tensor) -> list[int]:
    return [len(set(y[part].tolist())) for part in parts]


def covers(parts: list[Tensor], samples: int, clients: int) -> None:
    """Every sample has exactly one owner; every client has its own sorted int64 indices."""
    assert len(parts) == clients
    assert all(part.dtype == torch.int64 for part in parts)
    assert all(bool((part.diff() > 0).all()) for part in parts)
    assert all(len(part) > 0 for part in parts)
    assert torch.cat(parts).sort().values.tolist() == list(range(samples))


def keeps_all(partition: Partition, y: Tensor, clients: int, seed: int) -> None:
    before = y.clone()
    parts = partition(y, clients, rng(seed))
    covers(parts, len(y), clients)
    assert all(map(torch.equal, parts, partition(y, clients, rng(seed))))
    assert torch.equal(y, before)


def random_labels(samples: int, num_classes: int, seed: int) -> Tensor:
    return torch.from_numpy(rng(seed).integers(num_classes, size=samples))


fast = settings(max_examples=60, deadline=None)
seeds = st.integers(0, 2**32)
some_clients = st.integers(1, 12)
some_classes = st.integers(1, 10)
more = st.integers(0, 100)
balances = st.sampled_from([True, False, "fair"])


@fast
@given(some_clients, some_classes, more, seeds)
def test_iid_keeps_every_sample_and_is_even(clients: int, num_classes: int, extra: int, seed: int) -> None:
    y = random_labels(clients + extra, num_classes, seed)
    keeps_all(iid(), y, clients, seed)
    held = sizes(iid()(y, clients, rng(seed)))
    assert max(held) - min(held) <= 1


@fast
@given(some_clients, st.integers(1, 5), some_classes, more, seeds)
def test_shards_keeps_every_sample(clients: int, a: int, num_classes: int, extra: int, seed: int) -> None:
    y = random_labels(clients * a + extra, num_classes, seed)
    keeps_all(shards(a), y, clients, seed)
    held = sizes(shards(a)(y, clients, rng(seed)))
    assert max(held) - min(held) <= a


@fast
@given(some_clients, st.integers(1, 6), more, seeds)
def test_labels_keeps_every_sample_and_gives_k_labels(clients: int, k: int, extra: int, seed: int) -> None:
    num_classes = k + extra % (clients * k - k + 1)  # between k and clients * k
    y = torch.cat([torch.arange(num_classes).repeat(clients), random_labels(extra, num_classes, seed)])
    y = y[torch.from_numpy(rng(seed).permutation(len(y)))]
    keeps_all(labels(k), y, clients, seed)
    assert distinct(labels(k)(y, clients, rng(seed)), y) == [k] * clients


@fast
@given(st.integers(1, 4), st.floats(0.5, 100.0), balances, st.integers(1, 5), some_classes, more, seeds)
def test_dirichlet_keeps_every_sample(
    clients: int, b: float, balance: bool | str, min_size: int, num_classes: int, extra: int, seed: int
) -> None:
    y = random_labels(10 * clients * min_size + extra, num_classes, seed)
    keeps_all(dirichlet(b, balance, min_size), y, clients, seed)
    assert min(sizes(dirichlet(b, balance, min_size)(y, clients, rng(seed)))) >= min_size


@pytest.mark.parametrize("spec", ["iid", "shards:2", "labels:3", "dirichlet:0.5", "dirichlet:0.5,balance=fair"])
def test_specs_resolve_and_seeds_matter(spec: str) -> None:
    partition: Partition = resolve(spec, "partition", PARTITIONS).build()
    first, second = (partition(CIFAR, 20, rng(seed)) for seed in (0, 1))
    covers(first, 50_000, 20)
    covers(second, 50_000, 20)
    assert any(len(a) != len(b) or not torch.equal(a, b) for a, b in zip(first, second, strict=True))


def test_defaults_are_written_out() -> None:
    text = resolve("dirichlet:0.1", "partition", PARTITIONS).text
    assert text == "dirichlet:b=0.1,balance=on,min_size=10"
    assert resolve("shards:2", "partition", PARTITIONS).text == "shards:a=2"


@pytest.mark.parametrize("partition", [iid(), shards(1), labels(1), dirichlet(1.0, min_size=1)])
def test_label_values_need_not_be_consecutive(partition: Partition) -> None:
    y = torch.tensor([7, 3, 7, 3, -1, 7, 3, -1] * 5, dtype=torch.int16)
    covers(partition(y, 3, rng()), 40, 3)


@pytest.mark.parametrize("partition", [iid(), shards(3), labels(10), dirichlet(0.1, min_size=1)])
def test_one_client_gets_everything(partition: Partition) -> None:
    (part,) = partition(CIFAR, 1, rng())
    assert torch.equal(part, torch.arange(50_000))


def test_index_tensors_do_not_share_storage() -> None:
    parts = iid()(CIFAR, 10, rng())
    assert all(part.untyped_storage().nbytes() == 8 * len(part) for part in parts)


@pytest.mark.parametrize(("a", "expected"), [(2, 1.92), (4, 3.50), (6, 4.76), (8, 5.78)])
def test_shards_has_the_papers_distinct_labels(a: int, expected: float) -> None:
    found = [np.mean(distinct(shards(a)(CIFAR, 20, rng(seed)), CIFAR)) for seed in range(30)]
    assert np.mean(found) == pytest.approx(expected, abs=0.15)


def test_shards_by_hand() -> None:
    """Seven samples, sorted by label stably and cut at i*7//3 = 0, 2, 4, 7; one set per client."""
    y = torch.tensor([1, 0, 1, 0, 2, 0, 1])
    parts = shards(1)(y, 3, rng())
    assert sorted(part.tolist() for part in parts) == [[0, 5], [1, 3], [2, 4, 6]]


def test_labels_gives_client_i_class_i_mod_c() -> None:
    parts = labels(2)(CIFAR, 25, rng())
    assert all(client % 10 in CIFAR[part] for client, part in enumerate(parts))


def test_labels_covers_every_class_when_there_is_no_slack() -> None:
    """5 clients x 2 labels = 10 classes: each class has exactly one owner, whatever is drawn."""
    for seed in range(20):
        parts = labels(2)(CIFAR, 5, rng(seed))
        assert sizes(parts) == [10_000] * 5
        assert [int(CIFAR[part].min()) for part in parts] == list(range(5))


def test_labels_splits_a_class_evenly() -> None:
    parts = labels(1)(torch.zeros(11, dtype=torch.int64), 3, rng())
    assert sorted(sizes(parts)) == [3, 4, 4]


def test_dirichlet_balance_evens_out_sizes() -> None:
    def spread(balance: bool) -> float:
        drawn = [sizes(dirichlet(0.3, balance, min_size=1)(CIFAR, 20, rng(seed))) for seed in range(10)]
        return float(np.mean([np.std(held) for held in drawn]))

    assert spread(True) < 0.8 * spread(False)


def test_fair_balance_favours_no_class() -> None:
    """Of the balanced rules, `on` leaves the last classes to those who have room; `fair` treats all classes alike."""

    def holders(balance: bool | str) -> list[float]:
        held = np.zeros(10)
        for seed in range(40):
            for part in dirichlet(0.1, balance)(CIFAR, 20, rng(seed)):
                held[CIFAR[part].unique().numpy()] += 1
        return (held / 40).tolist()

    on, fair = holders(True), holders("fair")
    assert on[0] - on[9] > 4
    assert max(fair) - min(fair) < 2
    assert sum(fair) == pytest.approx(sum(on), rel=0.05)


@pytest.mark.parametrize(
    ("spec", "digest"),
    [
        ("dirichlet:0.1", "70c6942f3b2817ad"),
        ("dirichlet:0.1,balance=off", "c0652a828af266a2"),
        ("dirichlet:0.1,balance=fair", "65c9171424c0e703"),
    ],
)
def test_published_splits_stay(spec: str, digest: str) -> None:
    partition: Partition = resolve(spec, "partition", PARTITIONS).build()
    assert partition_hash(partition(CIFAR, 20, stream(0, "partition")))[:16] == digest


def test_dirichlet_balance_gives_a_full_client_nothing_more() -> None:
    """A client that has n/m samples after some class gets none of the classes after it."""
    for seed in range(10):
        for part in dirichlet(0.3, min_size=1)(CIFAR, 20, rng(seed)):
            held = torch.bincount(CIFAR[part], minlength=10)
            full = (held.cumsum(0) - held) >= 2500
            assert not held[full].any()


def test_dirichlet_concentration_decides_the_skew() -> None:
    few = np.mean(distinct(dirichlet(0.05, min_size=1)(CIFAR, 10, rng()), CIFAR))
    many = np.mean(distinct(dirichlet(100.0)(CIFAR, 10, rng()), CIFAR))
    assert few < 8
    assert many == 10


def test_dirichlet_respects_min_size() -> None:
    loose = [min(sizes(dirichlet(0.1, False, 1)(CIFAR, 20, rng(seed)))) for seed in range(10)]
    tight = [min(sizes(dirichlet(0.1, False, 300)(CIFAR, 20, rng(seed)))) for seed in range(10)]
    assert min(loose) < 300 <= min(tight)


@pytest.mark.parametrize("b", [1e-320, 1e-300, 1e-9, 1e9, 1e308])
@pytest.mark.parametrize("balance", [True, "fair", False])
def test_dirichlet_with_extreme_concentration(b: float, balance: bool | str) -> None:
    parts = dirichlet(b, balance, min_size=1)(CIFAR, 3, rng())
    covers(parts, 50_000, 3)
    assert (sum(distinct(parts, CIFAR)) == 10) == (b < 1)


def test_dirichlet_whose_shares_underflow_gives_each_class_to_one_client() -> None:
    class Underflow:
        """A generator whose Dirichlet draws are all NaN, or all zero."""

        def __init__(self, value: float) -> None:
            self.value, self.inner = value, rng()

        def dirichlet(self, alpha: np.ndarray, size: int) -> np.ndarray:
            return np.full((size, len(alpha)), self.value)

        def __getattr__(self, name: str) -> Callable[..., np.ndarray]:
            return getattr(self.inner, name)

    for value in (float("nan"), 0.0):
        parts = dirichlet(1e-9, min_size=1)(CIFAR, 3, Underflow(value))  # type: ignore[arg-type]
        covers(parts, 50_000, 3)
        assert sum(distinct(parts, CIFAR)) == 10


def test_dirichlet_gives_up_with_advice_that_works() -> None:
    y, clients = CIFAR[:2000], 20
    with pytest.raises(ValueError, match=r"min_size=90 samples \(at best \d+\); use min_size=\d+") as failure:
        dirichlet(0.1, min_size=90)(y, clients, rng())
    advice = int(re.findall(r"use min_size=(\d+)", str(failure.value))[0])
    covers(dirichlet(0.1, min_size=advice)(y, clients, rng()), 2000, clients)


def test_dirichlet_gives_up_without_a_min_size_to_offer() -> None:
    with pytest.raises(ValueError, match=r"at best 0\); use fewer clients or a larger b"):
        dirichlet(1e-9)(CIFAR, 20, rng())


@pytest.mark.parametrize("partition", [iid(), shards(1), labels(1), dirichlet(1.0)])
@pytest.mark.parametrize(
    ("y", "clients", "message"),
    [
        (torch.tensor([], dtype=torch.int64), 1, "no labels"),
        (CIFAR, 0, "number of clients is 0"),
        (CIFAR, -3, "number of clients is -3"),
        (CIFAR[:5], 6, "6 clients are more than the 5 examples to share"),
        (CIFAR.double(), 2, "torch.float64"),
        (CIFAR.reshape(10, -1), 2, r"\(10, 5000\)"),
    ],
)
def test_bad_requests_are_refused(partition: Partition, y: Tensor, clients: int, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        partition(y, clients, rng())


@pytest.mark.parametrize(
    ("partition", "y", "clients", "message"),
    [
        (shards(4), CIFAR[:50], 20, "80 sets of 50 samples; use at most shards:2, or fewer clients"),
        (labels(11), CIFAR, 20, "needs 11 classes per client; there are 10"),
        (labels(2), CIFAR, 4, "covers 8 of 10 classes; use at least 5 clients, or k=3"),
        (labels(1), torch.tensor([0] * 9 + [1]), 10, "leaves client [13579] without a sample"),
        (dirichlet(0.1), CIFAR[:100], 20, "min_size=10 for 20 clients needs 200 .* min_size=5 .* 10 clients"),
        (dirichlet(0.1, min_size=60_000), CIFAR, 1, "use min_size=50000 or less$"),
    ],
)
def test_impossible_requests_are_refused(partition: Partition, y: Tensor, clients: int, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        partition(y, clients, rng())


@pytest.mark.parametrize(
    ("factory", "arguments", "message"),
    [
        (shards, (0,), "a is 0"),
        (shards, (2.5,), "a is 2.5"),
        (labels, (-1,), "k is -1"),
        (labels, (True,), "k is True"),
        (dirichlet, (0.0,), "b is 0.0"),
        (dirichlet, (float("inf"),), "b is inf"),
        (dirichlet, (float("nan"),), "b is nan"),
        (dirichlet, (0.1, "off"), "balance is 'off'; allowed: on \\(True\\), off \\(False\\), fair"),
        (dirichlet, (0.1, True, 0), "min_size is 0"),
    ],
)
def test_bad_parameters_are_refused(
    factory: Callable[..., Partition], arguments: tuple[object, ...], message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        factory(*arguments)

"""Random numbers depend on their path and on nothing else."""

import itertools
import random
from collections.abc import Callable

import numpy as np
import pytest
import torch
from scipy import stats

from fedskew.core import rng


def cut(joined: np.ndarray, sizes: np.ndarray) -> list[list[int]]:
    return [part.tolist() for part in np.split(joined, np.cumsum(sizes)[:-1])]


def test_same_path_same_numbers() -> None:
    assert rng.key(3, "shuffle", 7, 2) == rng.key(3, "shuffle", 7, 2)
    assert np.array_equal(rng.stream(3, "a", 1).random(5), rng.stream(3, "a", 1).random(5))


def test_keys_are_the_same_on_every_machine() -> None:
    """A changed key would change every result: raise RESULT_VERSION with it."""
    assert rng.key(0).tolist() == [0xE220A8397B1DCDAF]  # splitmix64's first output from 0
    assert rng.key(5, "shuffle", 3, np.arange(2)).tolist() == [14687307078909802741, 4458226845769302293]


def test_different_paths_differ() -> None:
    paths = [
        (0,),
        (1,),
        (0, "a"),
        (0, "b"),
        (0, "a", "b"),
        (0, "b", "a"),
        (0, "ab"),
        (0, "a", 0),
        (0, "a", 1),
        (0, "a", 0, 0),
        (0, "a", 1, 2),
        (0, "a", 2, 1),
        (1, "a", 0, 2),
        (0, 97),
        (0, "97"),
    ]
    assert len({int(rng.key(*path)[0]) for path in paths}) == len(paths)
    assert len({float(rng.stream(*path).random()) for path in paths}) == len(paths)


def test_neighbours_do_not_collide() -> None:
    """Seeds, rounds and clients are small consecutive numbers."""
    pairs = itertools.product(range(20), repeat=2)
    keys = [rng.key(seed, "s", round, np.arange(50)) for seed, round in pairs]
    assert len(np.unique(np.concatenate(keys))) == 20 * 20 * 50


def test_arrays_give_each_element_its_own_key() -> None:
    clients = np.array([5, 0, 17])
    together = rng.key(9, "shuffle", 4, clients, np.array([1, 2, 3]))
    alone = [rng.key(9, "shuffle", 4, int(k), e)[0] for k, e in zip(clients, (1, 2, 3), strict=True)]
    assert together.tolist() == alone


@pytest.mark.parametrize("seed", [0, 1, 2**32, 2**63 - 1])
def test_any_seed_works_without_a_warning(seed: int) -> None:
    assert 0 <= rng.stream(seed, "x").random() < 1
    with rng.seeded(seed, "x"):
        assert torch.isfinite(torch.randn(1)).all()


def test_every_permutation_is_one() -> None:
    sizes = np.array([1, 0, 7, 64, 1, 1000])
    parts = cut(rng.permutations(rng.key(1, "p", np.arange(6)), sizes), sizes)
    assert [sorted(part) for part in parts] == [list(range(size)) for size in sizes]
    assert parts[5] != list(range(1000))


def test_a_permutation_does_not_depend_on_its_company() -> None:
    """Nor on the order in which clients are asked."""
    size_of = np.array([40, 3, 25, 60, 11])

    def orders(clients: list[int]) -> dict[int, list[int]]:
        sizes = size_of[clients]
        joined = rng.permutations(rng.key(2, "shuffle", 8, np.array(clients)), sizes)
        return dict(zip(clients, cut(joined, sizes), strict=True))

    everyone = orders([0, 1, 2, 3, 4])
    for cohort in ([3], [4, 2, 0], [1, 3], [2, 4, 3, 1, 0]):
        for client, order in orders(cohort).items():
            assert order == everyone[client]


def test_a_longer_permutation_of_one_key_is_another_draw_of_the_same_numbers() -> None:
    """Positions, not sizes, are drawn: dropping the new elements leaves the old order."""
    key = rng.key(1, "p")
    short, long = (rng.permutations(key, np.array([n])).tolist() for n in (30, 50))
    assert [i for i in long if i < 30] == short


def test_all_permutations_are_equally_likely() -> None:
    draws = 24 * 500
    sizes = np.full(draws, 4)
    rows = rng.permutations(rng.key(0, "chi", np.arange(draws)), sizes).reshape(draws, 4)
    code = rows @ np.array([64, 16, 4, 1])
    _, seen = np.unique(code, return_counts=True)
    assert len(seen) == 24
    assert stats.chisquare(seen).pvalue > 1e-3


@pytest.mark.parametrize("what", ["client", "round", "seed", "epoch"])
def test_first_places_are_uniform_and_neighbours_independent(what: str) -> None:
    """10 examples: which one comes first, and the pair of two neighbouring paths."""
    n = np.arange(6000)
    if what == "seed":
        keys = np.concatenate([rng.key(int(i), "s", 1, 1) for i in n])
    else:
        path = {"client": (1, n, 1), "round": (n, 1, 1), "epoch": (1, 1, n)}[what]
        keys = rng.key(7, "s", *path)
    first = rng.permutations(keys, np.full(6000, 10)).reshape(6000, 10)[:, 0]
    assert stats.chisquare(np.bincount(first, minlength=10)).pvalue > 1e-3
    pairs = np.bincount(first[:-1:2] * 10 + first[1::2], minlength=100)
    assert stats.chisquare(pairs).pvalue > 1e-3


def test_uniform_is_uniform() -> None:
    drawn = rng.uniform(rng.key(11, "answer", 3, np.arange(20_000)))
    assert drawn.min() >= 0
    assert drawn.max() < 1
    assert stats.kstest(drawn, "uniform").pvalue > 1e-3


def test_too_many_permutations_are_refused() -> None:
    many = 1 << 20
    with pytest.raises(ValueError, match=f"{many} permutations at once; allowed: at most {many - 1}"):
        rng.permutations(np.zeros(many, dtype=np.uint64), np.ones(many, dtype=np.int64))


def test_seeds_of_torch_are_local() -> None:
    torch.manual_seed(5)
    expected = torch.randn(4)
    torch.manual_seed(5)
    before = torch.random.get_rng_state()
    with rng.seeded(1, "init"):
        first = torch.randn(3)
    with rng.seeded(1, "init"):
        again = torch.randn(3)
    with rng.seeded(2, "init"):
        other = torch.randn(3)
    with pytest.raises(RuntimeError), rng.seeded(1, "init"):
        torch.randn(3) @ torch.randn(4)
    assert torch.equal(first, again)
    assert not torch.equal(first, other)
    assert torch.equal(torch.random.get_rng_state(), before)
    assert torch.equal(torch.randn(4), expected)


@pytest.mark.parametrize("draw", [lambda: float(np.random.rand()), random.random], ids=["numpy", "python"])  # noqa: NPY002
def test_seeds_of_other_generators_are_local(draw: Callable[[], float]) -> None:
    before = rng.position()
    drawn = []
    for seed in (1, 1, 2):
        with rng.seeded(seed, "a"):
            drawn.append(draw())
    assert drawn[0] == drawn[1] != drawn[2]
    assert rng.position() == before


@pytest.mark.parametrize("draw", [lambda: torch.rand(()), np.random.rand, random.random])
def test_the_position_tells_whether_something_was_drawn(draw: Callable[[], object]) -> None:
    with rng.seeded(1, "a"):
        before = rng.position()
        rng.stream(1, "a").random()
        assert rng.position() == before
        draw()
        assert rng.position() != before


def test_numpy_global_state_is_untouched() -> None:
    before = np.random.get_state()[1].copy()  # noqa: NPY002
    rng.stream(1, "a").random(3)
    rng.permutations(rng.key(1, "a"), np.array([5]))
    assert np.array_equal(np.random.get_state()[1], before)  # noqa: NPY002

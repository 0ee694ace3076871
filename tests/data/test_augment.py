import numpy as np
import torch

from fedskew import Run, simulate
from fedskew.core.federation import Federation
from fedskew.data.augment import crop_flip
from fedskew.simulation.plan import build_federation


def by_hand(image, draw):
    down, right, mirror = draw % 9, draw // 9 % 9, draw // 81 % 2
    padded = np.pad(image, ((0, 0), (4, 4), (4, 4)))
    cut = padded[:, down : down + image.shape[1], right : right + image.shape[2]]
    return cut[:, :, ::-1] if mirror else cut


def test_crop_flip_against_a_loop():
    generator = np.random.default_rng(0)
    images = generator.integers(0, 256, (200, 3, 12, 10), dtype=np.uint8)
    draws = generator.integers(0, 2**63 - 1, 200)
    out = crop_flip(torch.from_numpy(images), torch.from_numpy(draws))
    assert out.dtype == torch.uint8
    for image, draw, got in zip(images, draws.tolist(), out, strict=True):
        np.testing.assert_array_equal(by_hand(image, draw), got)


def test_the_middle_draw_changes_nothing():
    images = torch.randint(0, 256, (4, 3, 8, 8), dtype=torch.uint8)
    assert torch.equal(crop_flip(images, torch.full((4,), 4 + 9 * 4)), images)


def test_draws_depend_on_the_path_alone():
    federation = build_federation(Run(clients=5, partition="iid"))
    every = np.split(federation.draws(np.arange(5), 0, 3, 2), np.cumsum(2 * federation.sizes(np.arange(5)))[:-1])
    assert isinstance(federation, Federation)
    np.testing.assert_array_equal(every[2], federation.draws(np.array([2]), 0, 3, 2))
    assert (every[2] >= 0).all()
    assert not np.array_equal(every[2], federation.draws(np.array([2]), 0, 4, 2))
    assert not np.array_equal(every[2][: len(every[2]) // 2], every[2][len(every[2]) // 2 :])


def test_engines_agree_with_augmentation():
    run = {"clients": 4, "rounds": 2, "local_epochs": 2, "batch_size": 32, "lr": 0.1, "augment": "crop_flip"}
    a, b = (list(simulate(Run(**run, engine=e, precision="fp64")))[-1].server.params for e in ("serial", "stacked"))
    plain = list(simulate(Run(**{**run, "augment": "none"}, precision="fp64")))[-1].server.params
    for name in a:
        torch.testing.assert_close(a[name], b[name], rtol=0, atol=1e-9)
    assert not torch.allclose(a["linear.weight"], plain["linear.weight"])

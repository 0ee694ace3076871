"""The Python of docs/flower.md runs; its commands do in test_deployment.py."""

import pytest

pytest.importorskip("flwr", reason="needs the extra: pip install -e '.[flower]'")

import torch

from fedskew.core import rng
from tests.test_docs import blocks as blocks_of


def blocks(language):
    return blocks_of("docs/flower.md", language)


def test_the_app_is_what_init_writes(tmp_path):
    from fedskew import Run
    from fedskew.flower import Rules
    from fedskew.flower.app import write_app

    _, code = write_app(tmp_path / "app", Run(), Rules())
    lines = [line for line in blocks("python")[0].splitlines() if line]
    assert all(line in code.read_text() for line in lines)


def test_the_apps_with_privacy():
    for code in blocks("python")[1:3]:
        exec(compile(code, "docs/flower.md", "exec"), {})


def test_the_loss_in_an_app_of_ones_own():
    found: dict = {}
    exec(compile(blocks("python")[3], "docs/flower.md", "exec"), found)
    generator = torch.Generator().manual_seed(0)
    images, labels = torch.randn(200, 4, generator=generator), torch.arange(200) % 2
    images[:, 0] += 4 * labels
    with rng.seeded(0, "model"):
        model = torch.nn.Linear(4, 3)
        for _ in range(5):
            reply = found["train"](model, images, labels, num_classes=3)
    assert reply["metrics"]["num-examples"] == 200
    assert set(reply["arrays"]) == {"weight", "bias"}
    assert (model(images)[:, :2].argmax(-1) == labels).float().mean() > 0.9  # class 2 is not this client's to judge

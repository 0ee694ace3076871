import pytest

from fedskew import Run


def rates(spec, rounds):
    run = Run(lr_schedule=spec, rounds=rounds, lr=0.1)
    return [run.client_optimizer(round).lr for round in range(1, rounds + 1)]


def test_schedules():
    assert rates("constant", 3) == [0.1] * 3
    assert rates("step:2,0.5", 5) == pytest.approx([0.1, 0.1, 0.05, 0.05, 0.025])
    assert rates("exponential:0.9", 3) == pytest.approx([0.1, 0.09, 0.081])
    assert rates("cosine:0.1", 3) == pytest.approx([0.1, 0.055, 0.01])


def test_a_rate_that_ends_at_nothing_is_refused_before_it_begins():
    with pytest.raises(ValueError, match=r"lr_schedule is exponential:.*lr is 0 in round 400"):
        Run(lr_schedule="exponential:0.1", rounds=400)
    with pytest.raises(ValueError, match="examples of nodes cannot be held out"):
        Run(dataset="nodes:1x8x8,10", partition="natural", model="mlp", validation=0.1)

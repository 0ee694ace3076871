import numpy as np

from fedskew.advice.findings import advise
from fedskew.advice.text import evidence, indices, lines
from tests.advice.test_findings import dirichlet, near, table


def test_indices_are_said_in_words():
    """Two clients, p = (1, 0) and (1/2, 1/2), together (3/4, 1/4): a quarter apart, 1 and 2 effective classes."""
    text = "\n".join(indices(advise(np.array([[4, 0], [2, 2]]), table({"fedavg": 60, "fedlc": 64}))))
    assert "25 % of a client's examples would need another label" in text
    assert "as 1.5 equally frequent classes would, of 2 that occur" in text
    assert "no example of 0.5 of 2 classes" in text
    assert "client sizes go from 4 to 4" in text


def test_a_setting_says_what_is_unusual_about_it():
    counts = dirichlet(0.1)
    known = table({"fedavg": 60, "fedlc": 64}, skew=near(counts), augment="crop_flip", clients_per_round=10,
                  validation=0.1, grad_clip=5.0)  # fmt: skip
    text = "\n".join(evidence(advise(counts, known)))
    assert "augment crop_flip, grad_clip 5, 10 clients a round, 10 % of the training examples held out" in text


def test_several_settings_are_cited_as_spans():
    counts = dirichlet(0.1)
    known = {"partitions": {}, "settings": []}
    for epochs, reached in enumerate([64, 64, 60, 64], 1):
        one = table({"fedavg": 60, "fedlc": reached}, skew=near(counts), local_epochs=epochs, rounds=401 - epochs)
        known = {"partitions": one["partitions"], "settings": [*known["settings"], *one["settings"]]}
    text = "\n".join(lines(advise(counts, known)))
    assert "not decided: one seed in [1]-[4], +0.00 to +4.00" in text
    assert "All of this rests on one seed" in text
    assert "Shorter than the paper's runs: [2]-[4]." in text

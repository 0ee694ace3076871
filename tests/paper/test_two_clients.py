import json
from dataclasses import replace

import numpy as np
import pytest
import torch

from fedskew.core.federation import Federation
from fedskew.models import build_model
from fedskew.paper import two_clients as module
from fedskew.paper.two_clients import Setting, optimum, two_clients

SMALL = Setting(counts=((30, 12, 4), (4, 22, 30)), test_per_class=50, rounds=3, local_epochs=3)


@pytest.fixture(scope="module")
def result():
    return two_clients(("fedavg", "fedlc:tau=3"), SMALL)


def test_shapes(result):
    assert json.loads(json.dumps(result)) == result
    for method in result["methods"]:
        assert np.array(method["global"]).shape == (SMALL.rounds + 1, 3)
        assert np.array(method["local"]).shape == (SMALL.rounds, 2, 3)
        assert np.array(method["per_class_accuracy"]["after"]).shape == (2, 3)
    loss = np.array(result["contour"]["loss"])
    assert loss.shape == (len(result["contour"]["v"]), len(result["contour"]["u"]))


def test_the_plane_goes_through_the_optima_and_the_pooled_one_is_lowest(result):
    corners = [result["pooled_optimum"], *result["client_optima"]]
    assert [corner[2] for corner in corners] == [0, 0, 0]
    assert result["pooled_optimum"] == [0, 0, 0]
    assert np.min(result["contour"]["loss"]) >= result["pooled_loss"]
    assert all(method["pooled_loss"] > result["pooled_loss"] for method in result["methods"])
    spots = np.array(corners + [p for m in result["methods"] for p in m["global"]])
    for axis, name in enumerate("uv"):
        assert min(result["contour"][name]) < spots[:, axis].min()
        assert max(result["contour"][name]) > spots[:, axis].max()


def test_methods_share_the_start_and_fedavg_s_optima_are_the_plane_s(result):
    fedavg, fedlc = result["methods"]
    assert fedavg["global"][0] == fedlc["global"][0]
    assert fedavg["optima"] == result["client_optima"]
    near, far = (np.linalg.norm(method["optima"], axis=1) for method in (fedlc, fedavg))
    assert (near < far).all()


def test_global_models_are_averages_of_local_ones(result):
    sizes = np.array([46, 56]) / 102
    for method in result["methods"]:
        local, path = np.array(method["local"])[:, :, :2], np.array(method["global"])[1:, :2]
        np.testing.assert_allclose(np.einsum("k,rkc->rc", sizes, local), path, atol=2e-5)


def test_the_optimum_of_the_calibrated_loss_is_plain_with_shifted_biases():
    """z = f - tau n^(-1/4) is a plain model with other biases, so its optimum is the plain one plus tau n^(-1/4)."""
    federation = module._federation(SMALL)
    alone = Federation.split(federation.dataset, [federation.indices[0]])
    model = build_model("logistic", (2,), 3, 0)
    plain, calibrated = (optimum(model, alone, name, SMALL) for name in ("fedavg", "fedlc:tau=2"))
    shift = 2 * torch.tensor(SMALL.counts[0], dtype=torch.float64) ** -0.25
    torch.testing.assert_close(calibrated["linear.weight"], plain["linear.weight"], rtol=0, atol=1e-5)
    expected = plain["linear.bias"] + shift - shift.mean()
    torch.testing.assert_close(calibrated["linear.bias"], expected, rtol=0, atol=1e-5)


def test_threads_are_as_before(monkeypatch):
    monkeypatch.setattr(module, "_measured", lambda *_: {"threads": torch.get_num_threads()})
    before = torch.get_num_threads()
    assert two_clients()["threads"] == 1
    assert torch.get_num_threads() == before


def test_what_has_no_optimum_is_refused(monkeypatch):
    monkeypatch.setattr(module, "_MOST_CHUNKS", 3)
    with pytest.raises(ValueError, match="no optimum after 600 steps"):
        two_clients(("fedavg",), replace(SMALL, spread=0.01))

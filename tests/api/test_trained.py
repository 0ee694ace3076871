"""Models that are loaded, from a file or a store."""

import math

import pytest
import torch
from safetensors.torch import save_file
from torch import nn

from fedskew import Run, Store, load_model, simulate
from fedskew.core import spec
from fedskew.data import load_dataset
from fedskew.runs.export import export_model

FIELDS = {"clients": 3, "rounds": 2, "lr": 0.1, "batch_size": 32, "partition": "dirichlet:0.3"}


def own_net(input_shape, num_classes):
    return nn.Sequential(nn.Flatten(), nn.Linear(math.prod(input_shape), num_classes))


@pytest.fixture
def folder(tmp_path):
    def made(**fields):
        run = Run(**{**FIELDS, **fields})
        result = simulate(run, store=tmp_path / "runs").result()
        export_model(Store(tmp_path / "runs").folder(run.hash), tmp_path / "model.safetensors")
        return run, result

    return made


def outputs(model):
    data = load_dataset("digits", 0, 3)
    with torch.no_grad():
        return model(data.x_test[:20])


def test_a_file_and_a_store_give_the_same(folder, tmp_path):
    run, result = folder()
    expected = outputs(result.model)
    found = load_model(tmp_path / "model.safetensors")
    assert torch.equal(outputs(found), expected)
    assert torch.equal(outputs(load_model(run.hash[:8], tmp_path / "runs")), expected)
    assert (found.round, found.run["algorithm"], found.classes) == (2, "fedavg", tuple("0123456789"))
    assert not found.training
    found.save(tmp_path / "again" / "model.safetensors")
    assert (tmp_path / "again" / "model.safetensors").read_bytes() == (tmp_path / "model.safetensors").read_bytes()


def test_names_of_classes_come_along(folder, tmp_path):
    folder(dataset="shapes:train=40,test=20", model="logistic", partition="iid")
    data = load_dataset("shapes:train=40,test=20", 0, 3)
    found = load_model(tmp_path / "model.safetensors")
    assert found.classes == data.class_names
    assert set(found.predict(data.x_test)) <= set(found.classes)


def test_a_model_of_ones_own(folder, tmp_path, monkeypatch):
    run, result = folder(model=own_net)
    expected, hash = outputs(result.model), run.hash
    assert torch.equal(outputs(load_model(tmp_path / "model.safetensors")), expected)
    monkeypatch.setattr(spec, "LIVE", {})
    with pytest.raises(ValueError, match=r"own_net@.*own code is needed; load_model\(..., model=my_module\)"):
        load_model(tmp_path / "model.safetensors")
    filled = load_model(tmp_path / "model.safetensors", model=own_net((1, 8, 8), 10))
    assert torch.equal(outputs(filled), expected)
    with pytest.raises(ValueError, match="does not fit own_net@"):
        load_model(tmp_path / "model.safetensors", model=nn.Linear(2, 2))
    Run(model=own_net)
    assert torch.equal(outputs(load_model(hash, tmp_path / "runs")), expected)


def test_a_file_of_python_is_run_only_where_that_is_allowed(folder, tmp_path):
    (tmp_path / "own.py").write_text(
        "import math\nfrom torch import nn\ndef own_net(input_shape, num_classes):\n"
        "    return nn.Sequential(nn.Flatten(), nn.Linear(math.prod(input_shape), num_classes))\n"
    )
    _, result = folder(model=f"{tmp_path / 'own.py'}:own_net")
    with pytest.raises(ValueError, match="pass own_files=True to allow it"):
        load_model(tmp_path / "model.safetensors")
    for options in ({"own_files": True}, {"model": own_net((1, 8, 8), 10)}):
        found = load_model(tmp_path / "model.safetensors", **options)
        assert torch.equal(outputs(found), outputs(result.model))


def test_other_code_for_the_same_parameters_is_refused(folder, tmp_path):
    """`-x` for `x` has the same parameters: they load, and every prediction is another."""
    own = tmp_path / "own.py"
    own.write_text(
        "from torch import nn\ndef own_net(input_shape, num_classes):\n"
        "    return nn.Sequential(nn.Flatten(), nn.Linear(64, num_classes))\n"
    )
    _, result = folder(model=f"{own}:own_net")
    expected, before = outputs(result.model), own.read_text()
    own.write_text(
        "from torch import nn\nclass Negated(nn.Linear):\n"
        "    def forward(self, x):\n        return super().forward(-x)\n"
        "def own_net(input_shape, num_classes):\n    return nn.Sequential(nn.Flatten(), Negated(64, num_classes))\n"
    )
    with pytest.raises(ValueError, match=r"different content of .*own.py; restore the file, or load_model\("):
        load_model(tmp_path / "model.safetensors", own_files=True)
    filled = load_model(tmp_path / "model.safetensors", model=own_net((1, 8, 8), 10))
    assert torch.equal(outputs(filled), expected)
    own.write_text(before)
    assert torch.equal(outputs(load_model(tmp_path / "model.safetensors", own_files=True)), expected)


@pytest.mark.parametrize("about", ["no JSON", "[]", "{}", "null", '{"model": 1}'])
def test_a_file_of_another_program_says_so(tmp_path, about):
    save_file({"weight": torch.ones(1)}, tmp_path / "other.safetensors", {"fedskew": about})
    with pytest.raises(ValueError, match=r"other.safetensors (is damaged|was not written by `fedskew export`)"):
        load_model(tmp_path / "other.safetensors")


def test_a_damaged_file_says_so(tmp_path):
    (tmp_path / "model.safetensors").write_bytes(b"no model" * 10)
    with pytest.raises(ValueError, match="is damaged, or not a safetensors file"):
        load_model(tmp_path / "model.safetensors")


def test_what_is_not_there_says_so(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"there is no file 3fa9; .*load_model\('3fa9', 'runs'\)"):
        load_model("3fa9")
    with pytest.raises(ValueError, match="there is no run '3fa9'"):
        load_model("3fa9", tmp_path)


def test_for_a_client_it_adds_the_logarithms_of_its_label_counts(folder, tmp_path):
    folder()
    model, counts = load_model(tmp_path / "model.safetensors"), [40, 0, 1, 7, 0, 0, 300, 2, 9, 12]
    here = model.for_client(counts)
    prior = torch.tensor([math.log(max(n, 1)) for n in counts])
    torch.testing.assert_close(outputs(here), outputs(model) + prior)
    assert model.prior is None
    assert not here.training
    here.save(tmp_path / "here.safetensors")
    assert torch.equal(outputs(load_model(tmp_path / "here.safetensors")), outputs(model))
    assert torch.equal(outputs(model.for_client(torch.full((10,), 8))).argmax(-1), outputs(model).argmax(-1))
    relative = outputs(model.for_client(counts, everybody=[10 * n + 10 for n in counts]))
    shares = torch.tensor([math.log(max(n, 1) / (10 * n + 10)) for n in counts])
    torch.testing.assert_close(relative, outputs(model) + shares)


@pytest.mark.parametrize("counts", [[1] * 9, [[1] * 10], [3] * 9 + [-1], [3] * 9 + [math.nan], [0.1] * 10])
def test_counts_that_are_no_label_counts_are_refused(folder, tmp_path, counts):
    folder()
    with pytest.raises(ValueError, match=r"counts (are|have) "):
        load_model(tmp_path / "model.safetensors").for_client(counts)


def test_everybody_includes_the_client(folder, tmp_path):
    folder()
    with pytest.raises(ValueError, match=r"everybody's counts are .* at least the client's"):
        load_model(tmp_path / "model.safetensors").for_client([3] * 10, everybody=[9] * 9 + [2])

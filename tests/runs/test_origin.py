"""The same run on other data is not the same run."""

import shutil
from dataclasses import replace

import numpy as np
import pytest
from scipy.io import savemat

from fedskew import Run, Store
from fedskew.core.federation import Federation
from fedskew.data import source
from fedskew.diagnostics.observing import from_folder
from fedskew.runs import origin
from fedskew.runs.store import StoreError
from tests.helpers.cached import whole_digits
from tests.runs.test_store import final

pytestmark = pytest.mark.filterwarnings("ignore:svhn. .* are not the official files")


def write(folder, seed):
    """Files of house numbers in the official layout."""
    folder.mkdir()
    rng = np.random.default_rng(seed)
    for part, n in (("train", 60), ("test", 20)):
        labels = np.arange(n, dtype=np.uint8)[:, None] % 10 + 1
        savemat(folder / f"{part}_32x32.mat", {"X": rng.integers(0, 256, (32, 32, 3, n), dtype=np.uint8), "y": labels})


@pytest.fixture
def stored(tmp_path):
    """A finished run on data in `a`; `b` has others, `c` the same."""
    write(tmp_path / "a", 0)
    write(tmp_path / "b", 1)
    shutil.copytree(tmp_path / "a", tmp_path / "c")
    store = Store(tmp_path / "runs")
    final(run_on(tmp_path / "a"), store)
    return store


def run_on(folder, rounds=2):
    fields = {"dataset": "svhn", "partition": "iid", "clients": 2, "model": "logistic", "batch_size": 16}
    return Run(**fields, rounds=rounds, data_dir=str(folder))


@pytest.mark.parametrize("rounds", [1, 2, 4])
def test_other_data_are_refused_with_both_digests_and_places(tmp_path, stored, rounds):
    known = stored.folder(run_on(tmp_path / "a").hash)
    before = {path.name: path.read_bytes() for path in known.path.iterdir()}
    with pytest.raises(StoreError, match="different data") as refused:
        final(run_on(tmp_path / "b", rounds), stored)
    (session,) = known.sessions()
    for named in (str(tmp_path / "a"), str(tmp_path / "b"), session["data"], known.card()["data"]):
        assert named in str(refused.value)
    assert {path.name: path.read_bytes() for path in known.path.iterdir()} == before


def test_the_same_data_elsewhere_are_the_same(tmp_path, stored):
    assert final(run_on(tmp_path / "c"), stored).round == 2
    assert final(run_on(tmp_path / "c", 3), stored).round == 3


def test_files_that_did_not_change_are_not_read_to_answer(tmp_path, stored, monkeypatch):
    monkeypatch.setattr(origin, "load_dataset", None)
    assert final(run_on(tmp_path / "a"), stored).round == 2


def test_files_that_changed_where_they_are_are_noticed(tmp_path, stored):
    for part in ("train", "test"):
        shutil.copy(tmp_path / "b" / f"{part}_32x32.mat", tmp_path / "a" / f"{part}_32x32.mat")
    with pytest.raises(StoreError, match="different data"):
        final(run_on(tmp_path / "a"), stored)


def test_an_answer_does_not_need_the_data(tmp_path, stored):
    shutil.rmtree(tmp_path / "a")
    assert final(run_on(tmp_path / "a"), stored).round == 2


def test_a_model_is_not_looked_at_with_other_data(tmp_path, stored):
    folder = stored.folder(run_on(tmp_path / "a").hash)
    assert from_folder(folder, data_dir=str(tmp_path / "c")).round == 2
    with pytest.raises(StoreError, match="different data"):
        from_folder(folder, data_dir=str(tmp_path / "b"))


def test_rounds_that_are_filled_in_later_are_of_the_same_data(tmp_path, stored):
    """Where a shorter length was not evaluated at its end, its rounds are computed again beside the run."""
    sparse = run_on(tmp_path / "a", 30).model_copy(update={"eval_every": 30})
    final(sparse, stored)
    before = stored.folder(sparse.hash).about()
    with pytest.raises(StoreError, match="different data"):
        final(run_on(tmp_path / "b", 15), stored)
    assert stored.folder(sparse.hash).about() == before


@pytest.mark.parametrize("part", ["x_train", "y_train", "x_test", "y_test"])
def test_one_value_makes_other_data(part):
    data = whole_digits()
    changed = getattr(data, part).clone()
    changed.view(-1)[-1] = changed.view(-1)[-1] - 1 if changed.view(-1)[-1] else 1
    other = replace(data, **{part: changed})
    assert other.digest != data.digest == data.to("cpu").digest
    one, two = (Federation.of_one(each, 0, 1).digest for each in (data, other))
    assert one != two


def test_where_files_are(tmp_path):
    assert source("svhn", str(tmp_path)) is None
    assert source("digits") is None
    write(tmp_path / "svhn", 0)
    place, stamp = source("svhn", str(tmp_path))
    assert place == str(tmp_path / "svhn")
    assert source("svhn:extra=off", str(tmp_path)) == (place, stamp)
    assert source("svhn:extra=on", str(tmp_path)) is None

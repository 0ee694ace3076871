"""What a run was computed with: the user's own files, and its data.

The bytes of the user's own files, and of the modules of the user's own that they import, are in a run's hash, so a run
read back from its folder has the folder's hash as long as they are unchanged.

A run's hash names a data set, not the content of its files. A store therefore keeps a digest of the data with the run,
and neither continues a run with other data nor returns its results for them. Unchanged files are not read again for
this: a digest of their names, lengths and times is kept with that of the data.
"""

from typing import Any

from fedskew.core.evaluation import guessed
from fedskew.data import Dataset, Nodes, load_dataset, source
from fedskew.runs.run import Run
from fedskew.runs.store import Folder, StoreError
from fedskew.runs.versions import result_version


def origin(run: Run, data: Dataset | Nodes) -> dict[str, Any]:
    """What a session records about its data; nothing if only nodes have them. What guessing reaches on the test set
    tells whether a model knows more."""
    if isinstance(data, Nodes):
        return {}
    place, stamp = source(run.dataset, run.data_dir) or (run.dataset, "")
    accuracy, balanced = (round(share, 6) for share in guessed(data))
    known = {"guessing_accuracy": accuracy, "guessing_balanced_accuracy": balanced}
    return {"data": data.digest, "data_from": place, "data_stamp": stamp, **known}


def check_files(folder: Folder, run: Run) -> None:
    """Refuse files of the user's own that have other bytes than when the run in the folder was computed."""
    about, files = folder.about(), run.files()
    if files and about["result_version"] == result_version(run.algorithm) and about["hash"] != run.hash:
        raise StoreError(
            f"run {folder.path.name} was computed with different content of {', '.join(files)}; "
            "restore the file, or run again with its current content"
        )


def check_origin(folder: Folder | None, run: Run, data: Dataset | Nodes) -> None:
    """Refuse data that differ from those of the run in a folder, if the folder records them."""
    if folder is not None:
        _compare(folder, _known(folder), origin(run, data))


def check_answer(folder: Folder, run: Run) -> None:
    """The same check before a stored result is returned; absent data contradict nothing."""
    known, here = _known(folder), source(run.dataset, run.data_dir)
    if here is not None and known and known.get("data_stamp") != here[1]:
        _compare(folder, known, origin(run, load_dataset(run.dataset, run.seed, run.clients, run.data_dir)))


def _known(folder: Folder) -> dict[str, Any]:
    """The last session that records its data, else the card; nothing for runs of earlier versions."""
    said = [session for session in folder.sessions() if "data" in session]
    return said[-1] if said else {name: value for name, value in (folder.card() or {}).items() if name == "data"}


def _compare(folder: Folder, known: dict[str, Any], here: dict[str, Any]) -> None:
    if known and here and known["data"] != here["data"]:
        raise StoreError(
            f"run {folder.path.name} was computed with different data: digest {known['data']}, from "
            f"{known.get('data_from', 'unnamed files')}; {here['data_from']} has {here['data']}; "
            "use the original data, or another --runs folder"
        )

"""How long a run will take, from finished ones of the same kind on the same device."""

from fedskew.core.spec import name_in
from fedskew.runs.results import Results
from fedskew.runs.run import Run


class Speeds:
    """Seconds for one local epoch of all clients, by data set and model."""

    def __init__(self, results: Results, device: str) -> None:
        found: dict[tuple[str, str], list[float]] = {}
        for result in results:
            run, rounds, seconds = result.run, result.summary["rounds"], result.summary["seconds"]
            if result.device == device and rounds and seconds is not None:
                epochs = rounds * run["local_epochs"] * run["clients_per_round"] / run["clients"]
                found.setdefault(_kind(run["dataset"], run["model"]), []).append(seconds / epochs)
        self._seconds = {kind: sorted(values)[len(values) // 2] for kind, values in found.items()}

    def seconds(self, run: Run) -> float | None:
        """None if no run of this kind has finished on this device."""
        each = self._seconds.get(_kind(run.dataset, run.model))
        share = run.clients_per_round / run.clients
        return None if each is None else each * run.rounds * run.local_epochs * share


def _kind(dataset: str, model: str) -> tuple[str, str]:
    return name_in(dataset), name_in(model)


def device_name(device: str) -> str:
    """The name of the device in sessions."""
    if not device.startswith("cuda"):
        return device
    import torch

    return torch.cuda.get_device_name(device) if torch.cuda.is_available() else device

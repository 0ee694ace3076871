"""The names that every tracker uses. docs/tracking.md lists them."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from fedskew.simulation.records import RoundRecord

_MEASURES = ("accuracy", "balanced_accuracy", "loss", "client_accuracy", "validation_accuracy", "train_loss", "seconds")
_PROBES = {"drift_norm": "drift/norm", "drift_cosine": "drift/cosine"}


def metrics(record: "RoundRecord") -> dict[str, float]:
    """What a round measured, by name; what it did not measure is left out."""
    known = record.as_dict()
    values = {name: known[name] for name in _MEASURES}
    values["clients"] = float(record.clients)
    values["diverged"] = float(record.diverged)
    values |= {f"class_accuracy/{c}": share for c, share in enumerate(known["per_class_accuracy"] or ())}
    values |= {shown: known["probes"].get(name) for name, shown in _PROBES.items()}
    return {name: float(value) for name, value in values.items() if value is not None}

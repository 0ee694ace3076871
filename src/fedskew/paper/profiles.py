"""What the paper leaves open, filled in explicitly: a profile is a set of fields of the run and a spec per method."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from fedskew.core import spec
from fedskew.core.files import read_toml
from fedskew.data import usual_for


@dataclass(frozen=True)
class Profile:
    """`fields` are set for every method, `mirrored` in addition if a mirror image shows the same class. `methods` has
    specs of methods. `tries` are variants of a method; accuracy on held-out training examples decides among them."""

    name: str
    about: str
    fields: Mapping[str, Any] = field(default_factory=dict)
    mirrored: Mapping[str, Any] = field(default_factory=dict)
    methods: Mapping[str, str] = field(default_factory=dict)
    tries: Mapping[str, tuple[str, ...]] = field(default_factory=dict)

    def fields_for(self, dataset: str) -> dict[str, Any]:
        """The fields of every run on a data set."""
        usual = usual_for(dataset)
        return {**self.fields, **(self.mirrored if usual is not None and usual.mirrors else {})}


_SERVER_STEPS = (0.5, 1, 1.5, 2)
_TAUS = (1, 2, 5, 10)


def _steps(method: str) -> tuple[str, ...]:
    """For a method without its own knob: the length of the server's step."""
    server = "fedopt:server=sgd,eta"
    return tuple(f"{server}={eta}" if method == "fedavg" else f"{method}+{server}={eta}" for eta in _SERVER_STEPS)


PROFILES = {
    "stated": Profile(
        "stated",
        "what the paper states; our documented defaults for the rest",
    ),
    "usual": Profile(
        "usual",
        "what such networks are usually trained with: momentum 0.9, random crops and mirror images; momentum alone "
        "where a mirror image is not of the same class (SVHN, FEMNIST) or the data are not images (Synthetic)",
        {"momentum": 0.9},
        {"augment": "crop_flip"},
    ),
    "drift": Profile(
        "drift",
        "ten local epochs and momentum 0.9, so that local models move far in a round",
        {"local_epochs": 10, "momentum": 0.9},
    ),
    "tuned": Profile(
        "tuned",
        "each method's own knob chosen on a tenth of the training examples, four tries each; never on the test set",
        tries={
            "fedavg": _steps("fedavg"),
            "fedprox": tuple(f"fedprox:mu={mu}" for mu in (0.001, 0.01, 0.1, 1)),
            "scaffold": _steps("scaffold"),
            "fednova": _steps("fednova"),
            "fedopt": tuple(f"fedopt:eta={eta}" for eta in (0.001, 0.003, 0.01, 0.03)),
            "fedrs": tuple(f"fedrs:alpha={alpha}" for alpha in (0.1, 0.5, 0.7, 0.9)),
            "fedlc": tuple(f"fedlc:tau={tau}" for tau in _TAUS),
            "fedla": tuple(f"fedla:tau={tau}" for tau in (0.25, 0.5, 1, 2)),
            "fedlc+scaffold": tuple(f"fedlc:tau={tau}+scaffold" for tau in _TAUS),
            "fedlc+fedprox": tuple(f"fedlc:tau={tau}+fedprox" for tau in _TAUS),
        },
    ),
}


def find_profile(name: str) -> Profile:
    """One of ours by name, or a TOML file with a table [run] of fields and a table [methods] of specs."""
    if not name.endswith(".toml"):
        if name not in PROFILES:
            raise ValueError(spec.unknown("profile", name, {**PROFILES, "FILE.toml": None}))
        return PROFILES[name]
    content = read_toml(name)
    for key, value in content.items():
        if key not in ("run", "methods") or not isinstance(value, dict):
            raise ValueError(f"{name} has {key!r}; allowed: tables [run] and [methods]")
    for method in content.get("methods", {}):
        if method not in PROFILES["tuned"].tries:
            raise ValueError(f"{name}: " + spec.unknown("method", method, PROFILES["tuned"].tries))
    return Profile(Path(name).stem, f"as {name} says", content.get("run", {}), methods=content.get("methods", {}))

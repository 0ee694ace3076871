"""Every method of this literature as the part of FedAvg that it changes.

    method     loss            correction          aggregate         server optimiser
    fedavg     cross entropy   none                weighted mean     sgd(1)
    fedprox    .               proximal(mu)        .                 .
    scaffold   .               control variates    .                 .
    fednova    .               .                   normalised mean   .
    fedopt     .               .                   .                 adagrad | adam | yogi
    fedavgm    .               .                   .                 sgd(1) with momentum
    fedrs      restricted      .                   .                 .
    fedlc      calibrated      .                   .                 .
    fedla      adjusted        .                   .                 .
    trimmed    .               .                   trimmed mean      .
    median     .               .                   trimmed mean      .

`combine(fedlc(), scaffold())` is the union of their parts.
"""

from collections.abc import Callable
from dataclasses import dataclass, fields, replace

from fedskew import spec
from fedskew.aggregators import Aggregate, normalized_mean, trimmed_mean, weighted_mean
from fedskew.corrections import Correction, control_variates, none, proximal
from fedskew.losses import Loss, adjusted, calibrated, cross_entropy, restricted
from fedskew.optimizers import OPTIMIZERS, Optimizer, sgd


@dataclass(frozen=True)
class Algorithm:
    """The four parts of a round and a name. Every part is FedAvg's unless it is given."""

    name: str
    loss: Loss = cross_entropy
    correction: Correction = none()  # noqa: RUF009
    aggregate: Aggregate = weighted_mean()  # noqa: RUF009
    server: Optimizer = sgd(1.0)  # noqa: RUF009

    @property
    def needs_travel(self) -> bool:
        return self.correction.needs_travel or self.aggregate.needs_travel


def fedavg() -> Algorithm:
    """Federated averaging (McMahan et al., 2017)."""
    return Algorithm("fedavg")


def fedprox(mu: float = 0.01) -> Algorithm:
    """A proximal term holds clients near the global model (Li et al., 2020)."""
    return Algorithm("fedprox", correction=proximal(mu))


def scaffold() -> Algorithm:
    """Control variates correct each client's drift (Karimireddy et al., 2020)."""
    return Algorithm("scaffold", correction=control_variates())


def fednova() -> Algorithm:
    """Deltas are normalised by how far each client travelled (Wang et al., 2020)."""
    return Algorithm("fednova", aggregate=normalized_mean())


def fedopt(
    server: str = "adam", eta: float | None = None, b1: float = 0.9, b2: float = 0.99, eps: float = 1e-3
) -> Algorithm:
    """An adaptive optimiser on the server (Reddi et al., 2021). eta is 0.01, and 1 for server=sgd."""
    if server not in OPTIMIZERS:
        raise ValueError(spec.unknown("server optimiser", server, OPTIMIZERS))
    rate = eta if eta is not None else (1.0 if server == "sgd" else 0.01)
    if not rate > 0:
        raise ValueError(f"fedopt: eta is {rate}; allowed: above 0")
    if server == "sgd" and (b1, b2, eps) != (0.9, 0.99, 1e-3):
        raise ValueError("fedopt: b1, b2 and eps do not apply to server=sgd")
    if server == "adagrad" and (b1, b2) != (0.9, 0.99):
        raise ValueError("fedopt: b1 and b2 do not apply to server=adagrad")
    known = {"sgd": {}, "adagrad": {"eps": eps}}.get(server, {"b1": b1, "b2": b2, "eps": eps})
    return Algorithm("fedopt", server=OPTIMIZERS[server](rate, **known))


def fedavgm(beta: float = 0.9) -> Algorithm:
    """Momentum on the server: m = beta m + delta, w += m (Hsu et al., 2019). beta = 0 is FedAvg."""
    return Algorithm("fedavgm", server=sgd(1.0, momentum=beta))


def fedrs(alpha: float = 0.5, mode: str = "binary") -> Algorithm:
    """Restricted softmax: logits of missing classes are scaled down (Li and Zhan, 2021)."""
    return Algorithm("fedrs", loss=restricted(alpha, mode))


def fedlc(tau: float = 5.0, missing: str = "floor", denominator: str = "all") -> Algorithm:
    """Logits calibrated by label counts (Zhang et al., 2022)."""
    return Algorithm("fedlc", loss=calibrated(tau, missing, denominator))


def fedla(tau: float = 1.0, missing: str = "floor") -> Algorithm:
    """Logit adjustment with the client's own label distribution (after Menon et al., 2021)."""
    return Algorithm("fedla", loss=adjusted(tau, missing))


def trimmed(share: float = 0.2) -> Algorithm:
    """Coordinate-wise trimmed mean: `share` of the clients is left out at each end (Yin et al., 2018)."""
    return Algorithm("trimmed", aggregate=trimmed_mean(share))


def median() -> Algorithm:
    """Coordinate-wise median of the clients (Yin et al., 2018)."""
    return Algorithm("median", aggregate=trimmed_mean(0.5))


def combine(*algorithms: Algorithm) -> Algorithm:
    """The union of the parts of several methods; two that set the same part cannot be combined."""
    if not algorithms:
        raise ValueError("combine needs at least one algorithm")
    merged, setter = Algorithm("+".join(a.name for a in algorithms)), dict[str, str]()
    for algorithm in algorithms:
        for field in fields(Algorithm)[1:]:
            part = getattr(algorithm, field.name)
            if part == field.default:
                continue
            if field.name in setter:
                raise ValueError(f"{setter[field.name]} and {algorithm.name} both set the {field.name}")
            setter[field.name] = algorithm.name
            merged = replace(merged, **{field.name: part})
    return merged


ALGORITHMS: dict[str, Callable[..., Algorithm]] = {
    "fedavg": fedavg,
    "fedprox": fedprox,
    "scaffold": scaffold,
    "fednova": fednova,
    "fedopt": fedopt,
    "fedavgm": fedavgm,
    "fedrs": fedrs,
    "fedlc": fedlc,
    "fedla": fedla,
    "trimmed": trimmed,
    "median": median,
}


def resolve_algorithm(text: str) -> list[spec.Resolved]:
    """The methods of a spec such as `fedlc:tau=1+scaffold`, in order."""
    return [spec.resolve(part, "algorithm", ALGORITHMS) for part in text.split("+")]


def build_algorithm(text: str) -> Algorithm:
    """The algorithm a spec names. A user's factory gives an Algorithm, or just a loss."""
    return combine(*(_built(part) for part in resolve_algorithm(text)))


def _built(part: spec.Resolved) -> Algorithm:
    made = part.build()
    if isinstance(made, Algorithm):
        return made
    if not callable(made):
        raise ValueError(f"{part.text} gave a {type(made).__name__}; allowed: an Algorithm or a loss function")
    return Algorithm(part.text, loss=made)

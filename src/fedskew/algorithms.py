"""Every method as the part of FedAvg that it changes.

FedAvg is the default of each part. `describe` lists every method with the parts it sets; `fedskew methods` prints it.

`combine(fedlc(), scaffold())` is the union of their parts.
"""

import inspect
from collections.abc import Callable
from dataclasses import dataclass, fields, replace
from functools import wraps
from typing import ParamSpec

from torch import Tensor

from fedskew.aggregators import Aggregate, normalized_mean, trimmed_mean, weighted_mean
from fedskew.core import spec
from fedskew.core.checks import check_number, made_of
from fedskew.core.tree import Params
from fedskew.core.view import Context, View
from fedskew.corrections import Correction, centralized, client_momentum, control_variates, dynamic, proximal, sharpness
from fedskew.losses import (
    Loss,
    adjusted,
    as_loss,
    calibrated,
    calibrated_by_travel,
    cross_entropy,
    decorrelation,
    distillation,
    on_logits,
    prior_adjusted,
    restricted,
    suppression,
)
from fedskew.optimizers import OPTIMIZERS, Optimizer, extrapolated, look_ahead, sgd
from fedskew.readouts import Readout, as_trained, fitted

P = ParamSpec("P")
Ascent = Callable[[Params, Params, Context], Params]
"""(params, gradient, context of the round) -> where to take the gradient that a step follows."""

_KINDS = {
    "loss": ("__call__", "a function of (view) or (logits, labels, counts)"),
    "correction": ("bend", "an instance of a Correction"),
    "aggregate": ("coefficients", "an instance of an Aggregate"),
    "server": ("update", "an instance of an Optimizer"),
    "readout": ("fit", "an instance of a Readout"),
}
"""What tells each part from others, and what it is called."""
_NEEDED = {
    "correction": ("fedskew.Correction", ("client_state", "server_state", "finish", "weigh", "absorb", "shift")),
    "aggregate": ("fedskew.aggregators.weighted_mean", ("merge", "linear")),
    "server": ("fedskew.optimizers.sgd", ("init", "look", "pace", "needs_square", "lr")),
}
"""What else a part must have, and what to derive from."""


@dataclass(frozen=True)
class Algorithm:
    """The four parts of a round, a readout and a name. Every part defaults to FedAvg's.

    `terms` are added to the loss, and `ascents` move the point at which a step's gradient is taken, one after another.
    The readout is what becomes of the trained model when it is measured or used. A loss is a function of a view, or of
    logits, labels and counts.
    """

    name: str
    loss: Loss = on_logits(cross_entropy)  # noqa: RUF009
    terms: tuple[Loss, ...] = ()
    correction: Correction = Correction()  # noqa: RUF009
    ascents: tuple[Ascent, ...] = ()
    aggregate: Aggregate = weighted_mean()  # noqa: RUF009
    server: Optimizer = sgd(1.0)  # noqa: RUF009
    readout: Readout = as_trained()  # noqa: RUF009

    def __post_init__(self) -> None:
        for name, (needed, kind) in _KINDS.items():
            part = getattr(self, name)
            if isinstance(part, type) or not hasattr(part, needed):
                shown = f"the class {part.__name__}" if isinstance(part, type) else made_of(part)
                raise ValueError(f"{name} is {shown}; allowed: {kind}")
        for name, (base, others) in _NEEDED.items():
            part = getattr(self, name)
            if missing := [other for other in others if not hasattr(part, other)]:
                shown = f"{made_of(part)} without {', '.join(missing)}"
                raise ValueError(f"{name} is {shown}; allowed: an instance of a subclass of {base}, which has them")
        for name in ("terms", "ascents"):
            if not isinstance(several := getattr(self, name), tuple | list):
                raise ValueError(f"{name} is {made_of(several)}; allowed: a tuple of functions")
        object.__setattr__(self, "loss", as_loss(self.loss))
        object.__setattr__(self, "terms", tuple(as_loss(term) for term in self.terms))

    def objective(self, view: View) -> Tensor:
        """What a client minimises, for each example."""
        total = self.loss(view)
        for term in self.terms:
            total = total + term(view)
        return total

    @property
    def needs_travel(self) -> bool:
        """Whether a part uses how far a client's optimiser moves under a unit gradient."""
        parts = (self.loss, *self.terms, self.correction, *self.ascents, self.aggregate, self.server)
        return any(getattr(part, "needs_travel", False) for part in parts)


ALGORITHMS: dict[str, Callable[..., Algorithm]] = {}
"""Every registered method, in order."""
LOSS_ARGUMENTS = ("logits", "labels", "counts"), ("view",)
"""A function in the user's file with one of these is a loss."""


def method(factory: Callable[P, Algorithm]) -> Callable[P, Algorithm]:
    """Register a method by its name; its results know the spec that makes them."""

    @wraps(factory)
    def made(*values: P.args, **named: P.kwargs) -> Algorithm:
        algorithm = factory(*values, **named)
        given = inspect.signature(factory).bind(*values, **named).arguments
        if all(value is None or isinstance(value, bool | int | float | str) for value in given.values()):
            _remember(algorithm, spec.text_of(factory.__name__, (), given))
        return algorithm

    ALGORITHMS[factory.__name__] = made
    return made


def _remember(algorithm: Algorithm, origin: str | tuple[Algorithm, ...]) -> None:
    """Not a field: `dataclasses.replace` returns a different method."""
    object.__setattr__(algorithm, "_origin", origin)


def origin(algorithm: Algorithm) -> str | tuple[Algorithm, ...] | None:
    """The spec of a registered method, the members of a combination, or nothing."""
    known: str | tuple[Algorithm, ...] | None = vars(algorithm).get("_origin")
    return known


@method
def fedavg() -> Algorithm:
    """Federated averaging (McMahan et al., 2017)."""
    return Algorithm("fedavg")


@method
def fedprox(mu: float = 0.01) -> Algorithm:
    """A proximal term holds clients near the global model (Li et al., 2020)."""
    return Algorithm("fedprox", correction=proximal(mu))


@method
def scaffold(*, mean: str = "weighted") -> Algorithm:
    """Control variates correct each client's drift (Karimireddy et al., 2020). mean=uniform is that paper's rule."""
    return Algorithm("scaffold", correction=control_variates(mean))


@method
def fednova() -> Algorithm:
    """Deltas are normalised by how far each client travelled (Wang et al., 2020)."""
    return Algorithm("fednova", aggregate=normalized_mean())


@method
def fedopt(
    server: str = "adam", eta: float | None = None, b1: float = 0.9, b2: float = 0.99, eps: float = 1e-3
) -> Algorithm:
    """An adaptive optimiser on the server (Reddi et al., 2021). eta is 0.01, and 1 for server=sgd."""
    if server not in OPTIMIZERS:
        raise ValueError(spec.unknown("server optimiser", server, OPTIMIZERS))
    rate = eta if eta is not None else (1.0 if server == "sgd" else 0.01)
    check_number("fedopt: eta", rate, above=True)
    if server == "sgd" and (b1, b2, eps) != (0.9, 0.99, 1e-3):
        raise ValueError("fedopt: b1, b2 and eps do not apply to server=sgd")
    if server == "adagrad" and (b1, b2) != (0.9, 0.99):
        raise ValueError("fedopt: b1 and b2 do not apply to server=adagrad")
    known = {"sgd": {}, "adagrad": {"eps": eps}}.get(server, {"b1": b1, "b2": b2, "eps": eps})
    return Algorithm("fedopt", server=OPTIMIZERS[server](rate, **known))


@method
def fedavgm(beta: float = 0.9) -> Algorithm:
    """Momentum on the server: m = beta m + delta, w += m (Hsu et al., 2019). beta = 0 is FedAvg."""
    return Algorithm("fedavgm", server=sgd(1.0, momentum=beta))


@method
def fedexp(eps: float = 1e-3) -> Algorithm:
    """A server step that is the longer, the more clients disagree (Jhunjhunwala et al., 2023)."""
    return Algorithm("fedexp", server=extrapolated(eps=eps))


@method
def fedacg(lam: float = 0.85, mu: float = 0.002) -> Algorithm:
    """Clients start where the server's momentum is heading, with a proximal term (Kim et al., 2024)."""
    return Algorithm("fedacg", correction=proximal(mu), server=look_ahead(1.0, momentum=lam))


@method
def feddyn(alpha: float = 0.1) -> Algorithm:
    """A regulariser that remembers each client's drift (Acar et al., 2021)."""
    return Algorithm("feddyn", correction=dynamic(alpha))


@method
def fedcm(alpha: float = 0.1) -> Algorithm:
    """Local steps follow the last round's common direction (Xu et al., 2021). alpha = 1 is FedAvg."""
    return Algorithm("fedcm", correction=client_momentum(alpha))


@method
def fedgc() -> Algorithm:
    """Gradients and classifier updates with rows of mean zero (GC-Fed, Seo et al., 2025)."""
    return Algorithm("fedgc", correction=centralized())


@method
def fedsam(rho: float = 0.05) -> Algorithm:
    """Each step uses the gradient from a point slightly uphill (Qu et al., 2022). rho = 0 is FedAvg."""
    return Algorithm("fedsam", ascents=(sharpness(rho),) if rho else ())


@method
def fedrs(alpha: float = 0.5, mode: str = "binary") -> Algorithm:
    """Restricted softmax: logits of missing classes are scaled down (Li and Zhan, 2021)."""
    return Algorithm("fedrs", loss=on_logits(restricted(alpha, mode)))


@method
def fedlc(
    tau: float = 5.0, missing: str = "floor", denominator: str = "all", *, travel: float | None = None
) -> Algorithm:
    """Logits calibrated by label counts (Zhang et al., 2022). travel scales tau by how far a client moves."""
    loss = calibrated(tau, missing, denominator)
    return Algorithm("fedlc", loss=on_logits(loss) if travel is None else calibrated_by_travel(loss, travel))


@method
def fedla(tau: float = 1.0, missing: str = "floor") -> Algorithm:
    """Logit adjustment with the client's own label distribution (after Menon et al., 2021)."""
    return Algorithm("fedla", loss=on_logits(adjusted(tau, missing)))


@method
def fedvls(lam: float = 0.1, suppress: float = 0.005) -> Algorithm:
    """Logit adjustment, distillation over missing classes, other logits held down (Guo et al., 2025).

    Nowhere above `fedla` alone in three splits of CIFAR-10; fails on Synthetic.
    """
    return Algorithm(
        "fedvls", loss=on_logits(prior_adjusted), terms=(distillation(lam, classes="vacant"), suppression(suppress))
    )


@method
def fedntd(beta: float = 1.0, T: float = 1.0, classes: str = "not_true") -> Algorithm:
    """Distillation from the global model over all classes but the true one (Lee et al., 2022). classes=major is
    FedLMD."""
    return Algorithm("fedntd", terms=(distillation(beta, T, classes),))


@method
def feddecorr(beta: float = 0.1) -> Algorithm:
    """A penalty keeps features from correlating (Shi et al., 2023)."""
    return Algorithm("feddecorr", terms=(decorrelation(beta),))


@method
def refit(asks: int = 30, pull: float = 0.001) -> Algorithm:
    """Fits the trained model's last layer to all clients' examples, with `asks` exact gradients at most (after Kang et
    al., 2020). They tell the server more about label counts."""
    return Algorithm("refit", readout=fitted(asks, pull))


@method
def trimmed(share: float = 0.2) -> Algorithm:
    """Coordinate-wise trimmed mean: `share` of the clients is left out at each end (Yin et al., 2018)."""
    return Algorithm("trimmed", aggregate=trimmed_mean(share))


@method
def median() -> Algorithm:
    """Coordinate-wise median of the clients (Yin et al., 2018)."""
    return Algorithm("median", aggregate=trimmed_mean(0.5))


def combine(*algorithms: Algorithm) -> Algorithm:
    """The union of the parts of several methods. Terms and ascents add up; any other part can be set only once."""
    if not algorithms:
        raise ValueError("combine needs at least one algorithm")
    merged, setter = Algorithm("+".join(a.name for a in algorithms)), dict[str, str]()
    for algorithm in algorithms:
        for field in fields(Algorithm)[1:]:
            part = getattr(algorithm, field.name)
            if part == field.default:
                continue
            if isinstance(part, tuple):
                part = getattr(merged, field.name) + part
            elif field.name in setter:
                raise ValueError(
                    f"{setter[field.name]} and {algorithm.name} both set the {field.name}; allowed: one of them "
                    "(`fedskew methods` says what each sets)"
                )
            setter[field.name] = algorithm.name
            merged = replace(merged, **{field.name: part})
    _remember(merged, algorithms)
    return merged


def resolve_algorithm(text: str) -> list[spec.Resolved]:
    """The methods of a spec such as `fedlc:tau=1+scaffold`, in order."""
    parts = text.split("+")
    if len(parts) > 1 and not all(part.strip() for part in parts):
        raise ValueError(f"algorithm is {text!r}, which has nothing on one side of a +; for example fedlc+scaffold")
    return [spec.resolve(part, "algorithm", ALGORITHMS, finished=LOSS_ARGUMENTS) for part in parts]


def build_algorithm(text: str) -> Algorithm:
    """The algorithm that a spec names. A user's factory returns an Algorithm, or just a loss; or it is the loss."""
    return combine(*(_built(part) for part in resolve_algorithm(text)))


def _built(part: spec.Resolved) -> Algorithm:
    made = part.build()
    if isinstance(made, Algorithm):
        return made
    if not callable(made):
        raise ValueError(f"{part.text} returned {made_of(made)}; allowed: an Algorithm or a loss function")
    return Algorithm(part.text, loss=made)


@dataclass(frozen=True)
class Description:
    """A registered method: its spec with every argument, the parts of FedAvg that it sets, and what it does."""

    name: str
    spec: str
    sets: tuple[str, ...]
    about: str


def describe() -> list[Description]:
    """Every registered method, in order."""
    found = []
    for name, factory in ALGORITHMS.items():
        made, defaults = factory(), {p.name: p.default for p in spec.parameters(factory).values()}
        sets = tuple(f.name for f in fields(Algorithm)[1:] if getattr(made, f.name) != f.default)
        about = " ".join((factory.__doc__ or "").split())
        found.append(Description(name, spec.text_of(name, (), defaults), sets, about))
    return found

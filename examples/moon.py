"""MOON (Li et al., CVPR 2021): a loss that needs the client's last model, which a correction keeps.

fedskew compare --algorithm fedavg,fedlc --algorithm examples/moon.py:moon,mu=1 --rounds 50 --lr 0.1
"""

from dataclasses import dataclass

from torch import Tensor
from torch.nn.functional import cosine_similarity, softplus

from fedskew import Algorithm, Correction, View


@dataclass(frozen=True)
class LastModel(Correction):
    """Each client keeps the model with which it ended its last round; before its first, that is the initial model."""

    def client_state(self, params):
        return params

    def finish(self, context, delta):
        return delta, {name: context.anchor[name] + moved for name, moved in delta.items()}, {}


@dataclass(frozen=True)
class Contrast:
    """-mu log(e^(g/T) / (e^(g/T) + e^(l/T))), g and l: cosines of an example's features with those of the global and of
    the last model."""

    mu: float
    T: float

    def __call__(self, view: View) -> Tensor:
        ours, received, last = (said.features for said in (view.outputs, view.teacher(), view.teacher(view.client)))
        apart = cosine_similarity(ours, last, dim=-1) - cosine_similarity(ours, received, dim=-1)
        return self.mu * softplus(apart / self.T)


def moon(mu: float = 1.0, T: float = 0.5) -> Algorithm:
    return Algorithm("moon", terms=(Contrast(mu, T),), correction=LastModel())

"""The control variates of SCAFFOLD (Karimireddy et al., ICML 2020), option II.

    step with g - c_i + c        c_i+ = c_i - c - delta_i / travel_i        c += |S|/N * mean_S (c_i+ - c_i)

c_i and c start at zero, cover parameters only, and c_i is kept for a client until it is sampled again.
"""

from dataclasses import dataclass

from torch import Tensor

from fedskew import tree
from fedskew.tree import Params


@dataclass(frozen=True)
class ControlVariates:
    needs_travel = True

    def init(self, params: Params) -> Params:
        return tree.zeros_like(params)

    def grad(self, grads: Params, params: Params, anchor: Params, client: Params, server: Params) -> Params:
        return {name: grad - client[name] + server[name] for name, grad in grads.items()}

    def finish(self, client: Params, server: Params, delta: Params, travel: Tensor) -> tuple[Params, Params]:
        change = tree.neg(tree.add(tree.divide(delta, travel), server))
        return tree.add(client, change), change

    def absorb(self, server: Params, messages: Params, fraction: float) -> Params:
        return tree.map(lambda c, mean: c + fraction * mean, server, tree.mean(messages))


control_variates = ControlVariates

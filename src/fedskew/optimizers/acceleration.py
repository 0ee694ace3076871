"""The server's momentum of FedACG (Kim et al., CVPR 2024): clients start where the momentum will take the model.

sent out: a = w + momentum * m        m = momentum * m + delta        w += m        (delta is measured from a)
"""

from dataclasses import dataclass

from fedskew.core.tree import Params
from fedskew.optimizers.descent import SGD


@dataclass(frozen=True)
class LookAhead(SGD):
    """SGD with momentum that sends out the model a step of its momentum ahead."""

    def look(self, params: Params, state: Params) -> Params:
        if not self.momentum:
            return params
        return {name: leaf - self.lr * self.momentum * state[name] for name, leaf in params.items()}


look_ahead = LookAhead

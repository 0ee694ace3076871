"""Gradient centralisation as in GC-Fed (Seo et al., 2025, the hybrid form).

    body:        g_l <- g_l - mean of g_l over all axes but the first, at every step
    classifier:  delta <- delta - mean of each class's row, after the last step

Vectors (biases, norms) are left alone. The classifier is the last parameter with two axes or more. Without weight decay
the rows of every matrix's delta then have mean zero.
"""

from dataclasses import dataclass

from torch import Tensor

from fedskew.core.tree import Params
from fedskew.core.view import Context
from fedskew.corrections.correction import Correction


@dataclass(frozen=True)
class Centralized(Correction):
    def bend(self, grads: Params, params: Params, context: Context) -> Params:
        *body, _ = _matrices(grads, context)
        return {name: _centred(grad, context) if name in body else grad for name, grad in grads.items()}

    def finish(self, context: Context, delta: Params) -> tuple[Params, Params, Params]:
        last = _matrices(delta, context)[-1]
        return {**delta, last: _centred(delta[last], context)}, {}, {}


def _matrices(leaves: Params, context: Context) -> list[str]:
    """Names of leaves with two axes or more for one client."""
    found = [name for name, leaf in leaves.items() if leaf.ndim - _lead(context) > 1]
    if not found:
        raise ValueError("fedgc centres the rows of matrices, but no trained parameter of this model has two axes")
    return found


def _centred(leaf: Tensor, context: Context) -> Tensor:
    over = tuple(range(_lead(context) + 1, leaf.ndim))
    return leaf - leaf.mean(over, keepdim=True)


def _lead(context: Context) -> int:
    """The number of leading axes in front of a client's own."""
    return context.counts.ndim - 1

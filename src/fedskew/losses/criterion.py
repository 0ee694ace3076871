"""Losses by label counts as criteria with all options of `torch.nn.CrossEntropyLoss`, which they are at tau = 0."""

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from fedskew.core.checks import check_choice, check_number
from fedskew.losses.adjustment import Adjusted
from fedskew.losses.calibration import Calibrated
from fedskew.losses.counts import check_labels, check_not_shares
from fedskew.losses.softmax import at_least_float32


class _ByCounts(nn.Module):
    """`criterion(input, target)` as in `torch.nn.CrossEntropyLoss`, on logits plus a number for each class."""

    counts: Tensor
    weight: Tensor | None

    def __init__(
        self,
        loss: Calibrated | Adjusted,
        counts: Tensor | Sequence[float],
        reduction: str,
        check: bool,
        weight: Tensor | Sequence[float] | None,
        ignore_index: int,
        label_smoothing: float,
    ) -> None:
        super().__init__()
        check_choice("reduction", reduction, ("mean", "sum", "none"))
        check_number("label_smoothing", label_smoothing, 0.0, 1.0)
        self.loss = loss
        self.register_buffer("counts", _exact(_own(counts)))
        self.register_buffer("weight", None if weight is None else _one_each(_own(weight), self.counts))
        self.reduction, self.check = reduction, check
        self.ignore_index, self.label_smoothing = ignore_index, label_smoothing

    @property
    def _over_others(self) -> bool:
        return getattr(self.loss, "denominator", "all") == "others"

    def forward(self, input: Tensor, target: Tensor) -> Tensor:
        if input.ndim == 1 and target.ndim < 2:
            return self.forward(input.unsqueeze(0), target.unsqueeze(0)).reshape(())
        classes, places = len(self.counts), input.shape[:1] + input.shape[2:]
        if input.ndim < 2 or input.shape[1] != classes:
            shape = f"input has shape {list(input.shape)}; allowed: [{classes}] or [N, {classes}, ...]"
            raise ValueError(f"{shape}, since there are counts of {classes} classes{self._beyond(input)}")
        if target.shape not in (places, input.shape):
            raise ValueError(
                f"target has shape {list(target.shape)}; allowed for input {list(input.shape)}: class numbers "
                f"{list(places)} or class probabilities {list(input.shape)}"
            )
        logits = at_least_float32(input)
        if target.shape == places:
            losses, total = self._of_labels(logits, target)
        else:
            losses = self._of_shares(logits, target)
            total = losses.new_tensor(losses.numel())
        if self.reduction == "none":
            return losses
        return losses.sum() / total if self.reduction == "mean" else losses.sum()

    def _beyond(self, input: Tensor) -> str:
        """A counted label that is too large for the input: `bincount` grows with it."""
        largest = int(self.counts.nonzero().max())
        if input.ndim < 2 or largest < input.shape[1]:
            return ""
        return f"; label {largest} was counted, which is outside the input's 0..{input.shape[1] - 1}"

    def _of_labels(self, logits: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
        """Losses of class numbers, and the sum of their weights, which a mean divides by."""
        if labels.is_floating_point() or labels.is_complex() or labels.dtype == torch.bool:
            raise ValueError(f"target is {labels.dtype}; allowed: class numbers, or class probabilities [N, C, ...]")
        labels = labels.long()
        kept = labels != self.ignore_index
        if self.check:
            check_labels(labels[kept], self.counts, present=self.loss.missing == "mask")
        some = self.counts.argmax()  # not masked, so that an ignored label gives nothing infinite
        labels = labels.where(kept, some)
        if self.loss.missing == "mask":
            kept = kept & (self.counts[labels] > 0)
            labels = labels.where(kept, some)
        weights = kept.to(logits.dtype)
        if self.weight is not None:
            weights = weights * self.weight.to(logits.dtype)[labels]
        if self._over_others:
            losses = weights * self.loss(logits.movedim(1, -1), labels, self.counts)
        else:
            log_shares, taking_part = self._log_shares(logits)
            losses = -weights * log_shares.gather(1, labels.unsqueeze(1)).squeeze(1)
            if self.label_smoothing:
                spread = -self._weighted(log_shares).sum(1) / taking_part.sum()
                losses = (1 - self.label_smoothing) * losses + self.label_smoothing * spread
        return losses.masked_fill(~kept, 0.0), weights.sum()

    def _of_shares(self, logits: Tensor, shares: Tensor) -> Tensor:
        """Losses of class probabilities."""
        if self._over_others:
            raise ValueError("target is class probabilities; allowed with denominator 'others': class numbers")
        if not shares.is_floating_point():
            raise ValueError(f"target is {shares.dtype} in the input's shape; allowed: class probabilities")
        log_shares, taking_part = self._log_shares(logits)
        if self.check and bool((asked := (shares != 0).movedim(1, -1) & ~taking_part).any()):
            absent = int(asked.nonzero()[0, -1])
            raise ValueError(
                f"target gives a probability to class {absent}, whose count is 0: counts and target disagree"
            )
        evenly = self._shaped(taking_part.to(logits.dtype), logits) / taking_part.sum()
        shares = (1 - self.label_smoothing) * shares.to(logits.dtype) + self.label_smoothing * evenly
        return -(self._weighted(log_shares) * shares).sum(1)

    def _log_shares(self, logits: Tensor) -> tuple[Tensor, Tensor]:
        """The log softmax of the adjusted logits, 0 for masked classes; and which [C] are not masked."""
        offset = self.loss.offset(self.loss.tau, self.counts, logits.dtype)
        taking_part = offset > -torch.inf
        log_shares = (logits + self._shaped(offset, logits)).log_softmax(1)
        return log_shares.masked_fill(~self._shaped(taking_part, logits), 0.0), taking_part

    def _weighted(self, log_shares: Tensor) -> Tensor:
        return log_shares if self.weight is None else log_shares * self._shaped(self.weight, log_shares)

    def _shaped(self, vector: Tensor, like: Tensor) -> Tensor:
        """[C] along the class axis; numbers in the type of `like`."""
        vector = vector.to(like.dtype) if vector.is_floating_point() else vector
        return vector.reshape(-1, *[1] * (like.ndim - 2))

    def extra_repr(self) -> str:
        shown = {"classes": len(self.counts), **vars(self.loss), "reduction": self.reduction}
        usual = {"check": True, "ignore_index": -100, "label_smoothing": 0.0}
        shown |= {name: getattr(self, name) for name, value in usual.items() if getattr(self, name) != value}
        shown |= {} if self.weight is None else {"weighted": True}
        return ", ".join(f"{name}={value!r}" for name, value in shown.items())

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> "_ByCounts":
        """Move with the module, but keep the type where lower precision would round."""
        before = {name: buffer for name, buffer in self._buffers.items() if buffer is not None}
        nn.Module._apply(self, fn, recurse)
        for name, buffer in before.items():
            if (moved := getattr(self, name)).dtype != buffer.dtype:
                setattr(self, name, buffer.to(moved.device))
        return self

    def _load_from_state_dict(self, state_dict: dict[str, Any], prefix: str, *more: Any) -> None:
        """Counts are checked and keep their type."""
        given = state_dict.get(f"{prefix}counts")
        if given is not None and given.shape == self.counts.shape:
            self.counts = _exact(given).to(self.counts.device)
        super()._load_from_state_dict(state_dict, prefix, *more)


class CalibratedCrossEntropyLoss(_ByCounts):
    """FedLC's loss: `criterion(input, target)` as in `torch.nn.CrossEntropyLoss`, on logits less margins.

    `input` is `[C]`, `[N, C]` or `[N, C, d1, ...]`. `target` is class numbers of any integer type, in the shape of the
    input without its class axis, or class probabilities in the input's shape. `weight`, `ignore_index`,
    `label_smoothing` and `reduction` have the same meaning as there. The loss is computed in float32 or wider.

    With `missing="mask"` a class with count 0 is left out: smoothing spreads over the other classes only. Each call
    checks that labels are in range and that none belongs to a masked class. On a GPU the check waits for the device,
    and it cannot be traced. `check=False` skips it; labels of masked classes are then ignored, like `ignore_index`.

    `denominator="others"`, the sum over all classes but the label's, needs class numbers and no smoothing.
    """

    def __init__(
        self,
        counts: Tensor | Sequence[float],
        tau: float = 5.0,
        missing: str = "floor",
        denominator: str = "all",
        reduction: str = "mean",
        check: bool = True,
        *,
        weight: Tensor | Sequence[float] | None = None,
        ignore_index: int = -100,
        label_smoothing: float = 0.0,
    ) -> None:
        loss = Calibrated(tau, missing, denominator)
        super().__init__(loss, counts, reduction, check, weight, ignore_index, label_smoothing)
        if self._over_others and label_smoothing:
            raise ValueError(f"label_smoothing is {label_smoothing}; allowed with denominator 'others': 0")


class AdjustedCrossEntropyLoss(_ByCounts):
    """Logit adjustment, the method `fedla`: the same on logits plus tau log n, a softmax with the client's label
    distribution as its prior. All options mean what they mean in `CalibratedCrossEntropyLoss`."""

    def __init__(
        self,
        counts: Tensor | Sequence[float],
        tau: float = 1.0,
        missing: str = "floor",
        reduction: str = "mean",
        check: bool = True,
        *,
        weight: Tensor | Sequence[float] | None = None,
        ignore_index: int = -100,
        label_smoothing: float = 0.0,
    ) -> None:
        super().__init__(Adjusted(tau, missing), counts, reduction, check, weight, ignore_index, label_smoothing)


def _own(values: Tensor | Sequence[float]) -> Tensor:
    """A copy that nobody else changes."""
    return torch.as_tensor(values).detach().clone()


def _exact(counts: Tensor) -> Tensor:
    """Checked counts; integers in a type that is never rounded."""
    if counts.ndim != 1 or not bool((counts >= 0).all() & counts.isfinite().all() & (counts > 0).any()):
        raise ValueError(f"counts are {counts.tolist()}; allowed: one number of examples per class, not all zero")
    check_not_shares(counts)
    return counts.long() if bool((counts == counts.long()).all()) else counts


def _one_each(weight: Tensor, counts: Tensor) -> Tensor:
    if weight.shape != counts.shape:
        raise ValueError(f"weight has shape {list(weight.shape)}; allowed: [{len(counts)}], one for each class")
    return weight if weight.is_floating_point() else weight.float()

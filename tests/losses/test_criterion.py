"""The criterion against `torch.nn.CrossEntropyLoss` at tau 0, and against the equation with a margin."""

import copy
import io
import math
from itertools import product
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from fedskew.losses import AdjustedCrossEntropyLoss, CalibratedCrossEntropyLoss, adjusted, calibrated
from tests.helpers import assert_close, integers, normal
from tests.helpers.parts import DENOMINATORS, MISSING

COUNTS = torch.tensor([0, 1, 7, 120, 0, 2500])
HELD = torch.tensor([1, 2, 3, 5])
WEIGHT = torch.tensor([0.5, 1.0, 2.0, 0.25, 3.0, 1.5], dtype=torch.float64)
SHAPES = {"[C]": (), "[N, C]": (9,), "[N, C, d]": (4, 5), "[N, C, C]": (4, 6), "[N, C, d, d]": (3, 2, 4)}
REDUCTIONS = ("mean", "sum", "none")
EVERY = [pytest.param(m, d, id=f"{m}-{d}") for m, d in product(MISSING, DENOMINATORS)]
places = pytest.mark.parametrize("places", SHAPES.values(), ids=SHAPES)


def logits_at(places: tuple[int, ...], generator: torch.Generator) -> Tensor:
    """Logits of six classes, the class axis behind the first."""
    return (2 * normal(generator, *places[:1], 6, *places[1:])).requires_grad_()


def labels_at(places: tuple[int, ...], generator: torch.Generator, classes: Tensor = HELD) -> Tensor:
    return classes[integers(generator, 0, len(classes), *places)]


def shares_at(places: tuple[int, ...], generator: torch.Generator) -> Tensor:
    return logits_at(places, generator).detach().softmax(min(1, len(places)))


def assert_same(mine: nn.Module, other: nn.Module, logits: Tensor, target: Tensor) -> None:
    """The same value and, for a random combination of what is not reduced, the same gradient."""
    values = [criterion(logits, target) for criterion in (mine, other)]
    assert values[0].shape == values[1].shape
    assert_close(*values)
    ahead = torch.linspace(0.5, 2.0, values[0].numel(), dtype=values[0].dtype).reshape(values[0].shape)
    assert_close(*(torch.autograd.grad((value * ahead).sum(), logits, retain_graph=True)[0] for value in values))


class TestLogitAdjustment:
    """It shares all code with the calibrated loss but for what is added to the logits."""

    @places
    @pytest.mark.parametrize("missing", MISSING)
    def test_it_is_the_loss_of_fedla(self, places: tuple[int, ...], missing: str, generator: torch.Generator) -> None:
        logits, labels = logits_at(places, generator), labels_at(places, generator)
        criterion = AdjustedCrossEntropyLoss(COUNTS, 0.7, missing, "none")
        some, of_some = (logits, labels) if places else (logits.unsqueeze(0), labels.unsqueeze(0))
        expected = adjusted(0.7, missing)(some.movedim(1, -1), of_some, COUNTS)
        assert_close(criterion(logits, labels), expected if places else expected[0])

    def test_with_options_it_is_pytorchs_on_adjusted_logits(self, generator: torch.Generator) -> None:
        logits, labels = logits_at((9,), generator), labels_at((9,), generator)
        options: dict[str, Any] = {"weight": WEIGHT, "ignore_index": 2, "label_smoothing": 0.1}
        expected = nn.CrossEntropyLoss(**options)(logits + COUNTS.clamp(min=1).double().log(), labels)
        assert_close(AdjustedCrossEntropyLoss(COUNTS, **options)(logits, labels), expected)

    def test_it_says_what_it_is(self) -> None:
        said = "AdjustedCrossEntropyLoss(classes=6, tau=1.0, missing='floor', reduction='mean')"
        assert repr(AdjustedCrossEntropyLoss(COUNTS)) == said


class TestAtTauZero:
    """Every option of PyTorch's criterion means here what it means there."""

    @places
    @pytest.mark.parametrize("weight", [None, WEIGHT], ids=["plain", "weighted"])
    @pytest.mark.parametrize("smoothing", [0.0, 0.1, 1.0])
    @pytest.mark.parametrize("ignored", [-100, 2, 255])
    @pytest.mark.parametrize("missing", ["floor", "epsilon"])
    def test_labels(
        self, places: tuple[int, ...], weight: Tensor | None, smoothing: float, ignored: int,
        missing: str, generator: torch.Generator,
    ) -> None:  # fmt: skip
        logits, labels = logits_at(places, generator), labels_at(places, generator, torch.arange(6))
        if places:
            labels[0] = ignored
        options: dict[str, Any] = {"weight": weight, "ignore_index": ignored, "label_smoothing": smoothing}
        for reduction in REDUCTIONS:
            mine = CalibratedCrossEntropyLoss(COUNTS, 0.0, missing, reduction=reduction, **options)
            assert_same(mine, nn.CrossEntropyLoss(reduction=reduction, **options), logits, labels)

    @places
    @pytest.mark.parametrize("weight", [None, WEIGHT], ids=["plain", "weighted"])
    @pytest.mark.parametrize("smoothing", [0.0, 0.1, 1.0])
    def test_class_probabilities(
        self, places: tuple[int, ...], weight: Tensor | None, smoothing: float,
        generator: torch.Generator,
    ) -> None:  # fmt: skip
        logits, shares = logits_at(places, generator), shares_at(places, generator)
        for reduction in REDUCTIONS:
            options: dict[str, Any] = {"weight": weight, "label_smoothing": smoothing, "reduction": reduction}
            mine = CalibratedCrossEntropyLoss(COUNTS, 0.0, **options)
            assert_same(mine, nn.CrossEntropyLoss(**options), logits, shares)

    @pytest.mark.parametrize("reduction", REDUCTIONS)
    @pytest.mark.parametrize("smoothing", [0.0, 0.1])
    @pytest.mark.parametrize("weight", [None, WEIGHT], ids=["plain", "weighted"])
    def test_nothing_left(
        self, reduction: str, smoothing: float, weight: Tensor | None, generator: torch.Generator
    ) -> None:
        """All labels ignored, and no example at all: PyTorch's mean of nothing is NaN."""
        options: dict[str, Any] = {"weight": weight, "label_smoothing": smoothing, "reduction": reduction}
        pair = CalibratedCrossEntropyLoss(COUNTS, 0.0, **options), nn.CrossEntropyLoss(**options)
        for logits, labels in (
            (logits_at((3,), generator), torch.full((3,), -100)),
            (torch.zeros(0, 6, dtype=torch.float64), torch.zeros(0, dtype=torch.int64)),
        ):
            one, other = (criterion(logits, labels) for criterion in pair)
            assert torch.equal(one.isnan(), other.isnan())
            assert_close(one.nan_to_num(), other.nan_to_num())

    def test_an_ignored_row_may_be_no_number(self) -> None:
        logits = torch.tensor([[1.0, 2.0], [math.nan, math.inf]])
        labels = torch.tensor([1, -100])
        expected = nn.CrossEntropyLoss()(logits, labels)
        assert_close(CalibratedCrossEntropyLoss([3, 4], 0.0)(logits, labels), expected)

    @pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
    def test_the_type_of_the_result(self, dtype: torch.dtype, generator: torch.Generator) -> None:
        logits = logits_at((9,), generator).to(dtype)
        labels = labels_at((9,), generator)
        mine = CalibratedCrossEntropyLoss(COUNTS, 0.0, weight=WEIGHT)
        assert mine(logits, labels).dtype == dtype
        expected = nn.CrossEntropyLoss(weight=WEIGHT.to(dtype))(logits, labels)
        assert_close(mine(logits, labels), expected)


class TestWithAMargin:
    @places
    @pytest.mark.parametrize("weight", [None, WEIGHT], ids=["plain", "weighted"])
    @pytest.mark.parametrize("smoothing", [0.0, 0.1])
    @pytest.mark.parametrize("soft", [False, True], ids=["labels", "probabilities"])
    def test_is_cross_entropy_of_shifted_logits(
        self, places: tuple[int, ...], weight: Tensor | None, smoothing: float, soft: bool,
        generator: torch.Generator,
    ) -> None:  # fmt: skip
        """z_i = f_i - tau n_i^(-1/4), a missing class counted as 1."""
        logits = logits_at(places, generator)
        target = shares_at(places, generator) if soft else labels_at(places, generator)
        margins = 3.0 * COUNTS.double().clamp(min=1) ** -0.25
        shape = (6,) if len(places) < 2 else (6, *[1] * (len(places) - 1))

        class Shifted(nn.CrossEntropyLoss):
            def forward(self, input: Tensor, target: Tensor) -> Tensor:
                return super().forward(input - margins.reshape(shape), target)

        for reduction in REDUCTIONS:
            options: dict[str, Any] = {"weight": weight, "label_smoothing": smoothing, "reduction": reduction}
            assert_same(CalibratedCrossEntropyLoss(COUNTS, 3.0, **options), Shifted(**options), logits, target)

    @places
    @pytest.mark.parametrize("weight", [None, WEIGHT], ids=["plain", "weighted"])
    @pytest.mark.parametrize("smoothing", [0.0, 0.1])
    @pytest.mark.parametrize("soft", [False, True], ids=["labels", "probabilities"])
    def test_mask_is_the_criterion_of_a_model_without_the_missing_classes(
        self, places: tuple[int, ...], weight: Tensor | None, smoothing: float, soft: bool,
        generator: torch.Generator,
    ) -> None:  # fmt: skip
        logits = logits_at(places, generator)
        axis = min(1, len(places))
        place = torch.zeros(6, dtype=torch.int64)
        place[HELD] = torch.arange(4)
        if soft:
            few = shares_at(places, generator).index_select(axis, HELD)
            target = torch.zeros_like(logits).index_copy(axis, HELD, few).detach()
        else:
            target = labels_at(places, generator)
            few = place[target]
        fewer = None if weight is None else weight[HELD]
        for reduction in REDUCTIONS:
            options: dict[str, Any] = {"label_smoothing": smoothing, "reduction": reduction}
            mine = CalibratedCrossEntropyLoss(COUNTS, 3.0, "mask", weight=weight, **options)
            less = CalibratedCrossEntropyLoss(COUNTS[HELD], 3.0, weight=fewer, **options)
            assert_close(mine(logits, target), less(logits.index_select(axis, HELD), few))
        mine(logits, target).sum().backward()
        assert logits.grad is not None
        assert (logits.grad.index_select(axis, torch.tensor([0, 4])) == 0).all()

    @pytest.mark.parametrize(("missing", "denominator"), EVERY)
    @places
    def test_is_the_pure_loss(
        self, missing: str, denominator: str, places: tuple[int, ...], generator: torch.Generator
    ) -> None:
        logits, labels = logits_at(places, generator), labels_at(places, generator)
        last = logits.movedim(min(1, len(places)), -1).reshape(-1, 6)
        losses = calibrated(2.0, missing, denominator)(last, labels.reshape(-1), COUNTS).reshape(labels.shape)
        weights = WEIGHT[labels]
        for weight, expected in ((None, losses), (WEIGHT, losses * weights)):
            total = losses.numel() if weight is None else weights.sum()
            for reduction, value in (("none", expected), ("sum", expected.sum()), ("mean", expected.sum() / total)):
                criterion = CalibratedCrossEntropyLoss(COUNTS, 2.0, missing, denominator, reduction, weight=weight)
                assert_close(criterion(logits, labels), value)

    @pytest.mark.parametrize("denominator", DENOMINATORS)
    def test_ignored_labels_count_for_nothing(self, denominator: str, generator: torch.Generator) -> None:
        logits, labels = logits_at((9,), generator), labels_at((9,), generator)
        kept = torch.arange(9) % 3 > 0
        criterion = CalibratedCrossEntropyLoss(COUNTS, 2.0, "mask", denominator, ignore_index=0, weight=WEIGHT)
        assert_close(criterion(logits, labels.where(kept, 0)), criterion(logits[kept], labels[kept]))

    def test_gradcheck_of_soft_targets(self, generator: torch.Generator) -> None:
        criterion = CalibratedCrossEntropyLoss(COUNTS, 2.0, weight=WEIGHT, label_smoothing=0.1)
        shares = shares_at((4, 3), generator).requires_grad_()
        assert torch.autograd.gradcheck(criterion, (logits_at((4, 3), generator), shares))

    def test_lists_and_defaults(self, generator: torch.Generator) -> None:
        logits, labels = logits_at((9,), generator), labels_at((9,), generator)
        criterion = CalibratedCrossEntropyLoss(COUNTS.tolist(), weight=WEIGHT.tolist())
        plain = CalibratedCrossEntropyLoss(COUNTS, 5.0, "floor", "all", "mean", True, weight=WEIGHT)
        assert_close(criterion(logits, labels), plain(logits, labels))
        assert list(criterion.parameters()) == []


class TestTarget:
    @pytest.mark.parametrize("dtype", [torch.uint8, torch.int8, torch.int16, torch.int32])
    def test_any_whole_type(self, dtype: torch.dtype, generator: torch.Generator) -> None:
        logits, labels = logits_at((9,), generator), labels_at((9,), generator)
        criterion = CalibratedCrossEntropyLoss(COUNTS, missing="mask")
        assert torch.equal(criterion(logits, labels.to(dtype)), criterion(logits, labels))

    def test_uint8_with_255_for_what_is_ignored(self, generator: torch.Generator) -> None:
        logits, labels = logits_at((2, 5), generator), labels_at((2, 5), generator).to(torch.uint8)
        labels[0, 0] = 255
        mine = CalibratedCrossEntropyLoss(COUNTS, 0.0, ignore_index=255)
        assert_close(mine(logits, labels), nn.CrossEntropyLoss(ignore_index=255)(logits, labels.long()))

    @pytest.mark.parametrize("dtype", [torch.float32, torch.bool])
    def test_labels_that_are_no_numbers_of_classes(self, dtype: torch.dtype) -> None:
        with pytest.raises(ValueError, match=f"target is {dtype}; allowed: class numbers, or class probabilities"):
            CalibratedCrossEntropyLoss(COUNTS)(torch.zeros(2, 6), torch.ones(2, dtype=dtype))

    def test_probabilities_that_are_whole(self) -> None:
        with pytest.raises(ValueError, match=r"target is torch\.int64 in the input's shape; allowed: class prob"):
            CalibratedCrossEntropyLoss(COUNTS)(torch.zeros(2, 6), torch.ones(2, 6, dtype=torch.int64))

    @pytest.mark.parametrize("label", [6, -1, -99])
    @pytest.mark.parametrize("check", [True, False])
    @pytest.mark.parametrize(("missing", "denominator"), EVERY)
    def test_a_label_out_of_range(self, missing: str, denominator: str, check: bool, label: int) -> None:
        criterion = CalibratedCrossEntropyLoss(COUNTS, missing=missing, denominator=denominator, check=check)
        with pytest.raises((ValueError, IndexError, RuntimeError), match=r"outside 0\.\.5|out of (bounds|range)"):
            criterion(torch.zeros(9, 6), torch.full((9,), label))

    @pytest.mark.parametrize("shape", [(5,), (1,), (12,), (9, 1), (9, 5), (6, 9), ()], ids=str)
    @pytest.mark.parametrize("denominator", DENOMINATORS)
    def test_another_shape(self, shape: tuple[int, ...], denominator: str) -> None:
        message = (
            r"target has shape .*; allowed for input \[9, 6\]: class numbers \[9\] or class probabilities \[9, 6\]"
        )
        with pytest.raises(ValueError, match=message):
            CalibratedCrossEntropyLoss(COUNTS, denominator=denominator)(torch.zeros(9, 6), torch.ones(shape).long())

    @pytest.mark.parametrize("shape", [(), (5,), (9, 5), (9, 4, 6), (6, 9)], ids=str)
    def test_another_number_of_classes(self, shape: tuple[int, ...]) -> None:
        """`[N, d, C]`, with classes last, is not what PyTorch has."""
        with pytest.raises(ValueError, match=r"input has shape .*; allowed: \[6\] or \[N, 6, \.\.\.\]"):
            CalibratedCrossEntropyLoss(COUNTS)(torch.zeros(shape), torch.zeros(shape[:1], dtype=torch.int64))

    def test_counts_that_have_grown_with_a_label(self) -> None:
        """The label is named that the model has no class for."""
        labels = torch.tensor([0, 2, 3])
        criterion = CalibratedCrossEntropyLoss(torch.bincount(labels, minlength=3))
        message = r"input has shape \[3, 3\]; .* counts of 4 classes; label 3 was counted, .* the input's 0\.\.2"
        with pytest.raises(ValueError, match=message):
            criterion(torch.zeros(3, 3), labels)

    @pytest.mark.parametrize("denominator", DENOMINATORS)
    def test_a_label_of_a_masked_class(self, denominator: str, generator: torch.Generator) -> None:
        """Refused; unchecked it is ignored, and nothing is infinite."""
        logits, labels = logits_at((9,), generator), labels_at((9,), generator)
        labels[-2:] = torch.tensor([0, 4])
        criterion = CalibratedCrossEntropyLoss(COUNTS, 3.0, "mask", denominator)
        with pytest.raises(ValueError, match="a training label is class 0, whose count is 0"):
            criterion(logits, labels)
        unchecked = CalibratedCrossEntropyLoss(COUNTS, 3.0, "mask", denominator, check=False)
        assert_close(unchecked(logits, labels), criterion(logits[:-2], labels[:-2]))
        unchecked(logits, labels).backward()
        assert logits.grad is not None
        assert logits.grad.isfinite().all()

    def test_a_share_for_a_masked_class(self, generator: torch.Generator) -> None:
        logits, shares = logits_at((3, 4), generator), torch.zeros(3, 6, 4, dtype=torch.float64)
        shares[:, 1], shares[2, 4, 3] = 1.0, 0.5
        criterion = CalibratedCrossEntropyLoss(COUNTS, 3.0, "mask")
        with pytest.raises(ValueError, match="target gives a probability to class 4, whose count is 0"):
            criterion(logits, shares)
        unchecked = CalibratedCrossEntropyLoss(COUNTS, 3.0, "mask", check=False)(logits, shares)
        shares[2, 4, 3] = 0.0
        assert_close(unchecked, criterion(logits, shares))

    @pytest.mark.parametrize("missing", MISSING)
    @pytest.mark.parametrize("denominator", DENOMINATORS)
    @pytest.mark.parametrize("counts", [[0, 0, 50, 0], [3, 0, 900, 0]], ids=str)
    def test_unchecked_is_finite_whatever_the_label(self, missing: str, denominator: str, counts: list[int]) -> None:
        criterion = CalibratedCrossEntropyLoss(counts, 50.0, missing, denominator, "none", check=False)
        for scale, dtype in product((1.0, 1e4), (torch.float32, torch.float16)):
            logits = (torch.tensor([[1, -1, 1, -1]] * 4) * scale).to(dtype).requires_grad_()
            losses = criterion(logits, torch.arange(4))
            losses.sum().backward()
            assert losses.isfinite().all()
            assert logits.grad is not None
            assert logits.grad.isfinite().all()

    def test_the_printed_denominator_is_for_labels(self) -> None:
        with pytest.raises(ValueError, match="target is class probabilities; allowed with denominator 'others'"):
            CalibratedCrossEntropyLoss(COUNTS, denominator="others")(torch.zeros(2, 6), torch.ones(2, 6) / 6)
        with pytest.raises(ValueError, match=r"label_smoothing is 0\.1; allowed with denominator 'others': 0"):
            CalibratedCrossEntropyLoss(COUNTS, denominator="others", label_smoothing=0.1)


class TestCounts:
    @pytest.mark.parametrize(
        "counts", [[0, 0, 0], [1, -1, 2], [[1, 2], [3, 4]], 5, [1.0, math.nan], [1.0, math.inf], []], ids=str
    )
    def test_bad_counts(self, counts: Any) -> None:
        with pytest.raises(ValueError, match="allowed: one number of examples per class, not all zero"):
            CalibratedCrossEntropyLoss(counts)

    @pytest.mark.parametrize("counts", [[0.9, 0.09, 0.01], [0.5, 10.0, 3.0], [1e-8, 1.0, 0.0]], ids=str)
    def test_shares_are_refused(self, counts: list[float]) -> None:
        with pytest.raises(ValueError, match=r"counts have .*; allowed: numbers of examples.*multiply fractions by"):
            CalibratedCrossEntropyLoss(torch.tensor(counts))

    def test_counts_of_weighted_examples(self, generator: torch.Generator) -> None:
        counts = [1.5, 2.25, 1.0, 1000.125, 0.0, 7.0]
        logits, labels = logits_at((9,), generator), labels_at((9,), generator)
        criterion = CalibratedCrossEntropyLoss(torch.tensor(counts, dtype=torch.float64))
        expected = calibrated()(logits, labels, torch.tensor(counts, dtype=torch.float64)).mean()
        assert_close(criterion(logits, labels), expected)

    @pytest.mark.parametrize("to", [torch.float16, torch.bfloat16, torch.float32, torch.float64])
    @pytest.mark.parametrize("counts", [[2049.0, 70000.0, 257.0], [2049.5, 70000.25, 257.125]], ids=["whole", "not"])
    def test_stay_exact_in_any_type(self, to: torch.dtype, counts: list[float], generator: torch.Generator) -> None:
        weight = torch.tensor([0.1, 0.2, 0.3])
        model = nn.Sequential(nn.Linear(2, 3), CalibratedCrossEntropyLoss(torch.tensor(counts), weight=weight)).to(to)
        criterion = model[1]
        assert isinstance(criterion, CalibratedCrossEntropyLoss)
        assert criterion.counts.tolist() == counts
        assert torch.equal(criterion.weight, weight)
        logits, labels = normal(generator, 4, 3).to(to), torch.tensor([0, 1, 2, 1])
        same = CalibratedCrossEntropyLoss(torch.tensor(counts), weight=weight)
        assert torch.equal(criterion(logits, labels), same(logits, labels))

    def test_are_a_copy(self) -> None:
        counts = torch.tensor([3, 4])
        criterion = CalibratedCrossEntropyLoss(counts)
        counts[0] = 9
        assert criterion.counts.tolist() == [3, 4]

    def test_move_with_the_module(self) -> None:
        assert CalibratedCrossEntropyLoss([3.5, 4.0]).to("meta", torch.float16).counts.device.type == "meta"

    @pytest.mark.parametrize("weight", [[1.0], [[1.0, 2.0, 3.0]], [1.0] * 4], ids=str)
    def test_a_weight_for_each_class(self, weight: Any) -> None:
        with pytest.raises(ValueError, match=r"weight has shape .*; allowed: \[3\], one for each class"):
            CalibratedCrossEntropyLoss([1, 2, 3], weight=weight)

    def test_bad_options(self) -> None:
        with pytest.raises(ValueError, match="reduction is 'avg'; allowed: mean, sum, none"):
            CalibratedCrossEntropyLoss(COUNTS, reduction="avg")
        with pytest.raises(ValueError, match="tau is -1"):
            CalibratedCrossEntropyLoss(COUNTS, tau=-1)
        with pytest.raises(ValueError, match=r"label_smoothing is 1\.5; allowed: 0 to 1"):
            CalibratedCrossEntropyLoss(COUNTS, label_smoothing=1.5)


class TestAsAModule:
    def test_state(self, generator: torch.Generator) -> None:
        logits, labels = logits_at((9,), generator), labels_at((9,), generator)
        trained = CalibratedCrossEntropyLoss(COUNTS, weight=WEIGHT)
        fresh = CalibratedCrossEntropyLoss([1] * 6, weight=torch.ones(6, dtype=torch.float64))
        assert set(trained.state_dict()) == {"counts", "weight"}
        assert set(CalibratedCrossEntropyLoss(COUNTS).state_dict()) == {"counts"}
        assert not torch.equal(trained(logits, labels), fresh(logits, labels))
        fresh.load_state_dict(trained.state_dict())
        assert torch.equal(trained(logits, labels), fresh(logits, labels))

    @pytest.mark.parametrize("assign", [False, True])
    def test_loaded_counts_keep_their_type(self, assign: bool) -> None:
        fresh = nn.Sequential(CalibratedCrossEntropyLoss([1, 1]))
        fresh.load_state_dict({"0.counts": torch.tensor([2.5, 70000.25])}, assign=assign)
        assert fresh[0].counts.tolist() == [2.5, 70000.25]

    def test_bad_counts_are_not_loaded(self) -> None:
        criterion = CalibratedCrossEntropyLoss([1, 2])
        with pytest.raises(ValueError, match=r"counts have 0\.9"):
            criterion.load_state_dict({"counts": torch.tensor([0.9, 0.1])})
        with pytest.raises(RuntimeError, match="size mismatch for counts"):
            criterion.load_state_dict({"counts": torch.tensor([1, 2, 3])})
        assert criterion.counts.tolist() == [1, 2]

    def test_copies_and_files(self, generator: torch.Generator) -> None:
        logits, labels = logits_at((9,), generator), labels_at((9,), generator)
        criterion = CalibratedCrossEntropyLoss(COUNTS, 2.0, "mask", weight=WEIGHT, ignore_index=3)
        file = io.BytesIO()
        torch.save(criterion, file)
        file.seek(0)
        for other in (copy.deepcopy(criterion), torch.load(file, weights_only=False)):
            assert torch.equal(other(logits, labels), criterion(logits, labels))

    def test_is_shown_with_its_settings(self) -> None:
        assert repr(CalibratedCrossEntropyLoss(COUNTS)) == (
            "CalibratedCrossEntropyLoss(classes=6, tau=5.0, missing='floor', denominator='all', reduction='mean')"
        )
        more = CalibratedCrossEntropyLoss(COUNTS, weight=WEIGHT, ignore_index=255, label_smoothing=0.1, check=False)
        assert repr(more).endswith("check=False, ignore_index=255, label_smoothing=0.1, weighted=True)")

    @pytest.mark.parametrize("half", [torch.float16, torch.bfloat16])
    @pytest.mark.parametrize(("missing", "denominator"), EVERY)
    def test_half_logits_are_computed_in_float32(
        self, half: torch.dtype, missing: str, denominator: str, generator: torch.Generator
    ) -> None:
        logits, labels = logits_at((9,), generator).to(half), labels_at((9,), generator)
        criterion = CalibratedCrossEntropyLoss(COUNTS, 1.0, missing, denominator)
        assert criterion(logits, labels).dtype == torch.float32
        assert torch.equal(criterion(logits, labels), criterion(logits.float(), labels))

    @pytest.mark.parametrize("missing", MISSING)
    def test_autocast(self, missing: str, generator: torch.Generator) -> None:
        logits, labels = logits_at((9,), generator).float(), labels_at((9,), generator)
        criterion = CalibratedCrossEntropyLoss(COUNTS, missing=missing, weight=WEIGHT, label_smoothing=0.1)
        with torch.autocast("cpu", torch.bfloat16):
            assert torch.equal(criterion(logits, labels), criterion(logits, labels).float())
            inside = criterion(logits, labels)
        assert torch.equal(inside, criterion(logits, labels))

    @pytest.mark.parametrize(("missing", "denominator"), EVERY)
    def test_vmap(self, missing: str, denominator: str, generator: torch.Generator) -> None:
        """Unchecked: a check has to look at values."""
        logits, labels = normal(generator, 3, 9, 6), labels_at((3, 9), generator)
        criterion = CalibratedCrossEntropyLoss(COUNTS, 2.0, missing, denominator, check=False, weight=WEIGHT)
        both = torch.vmap(criterion)(logits, labels)
        assert_close(both, torch.stack([criterion(*pair) for pair in zip(logits, labels, strict=True)]))

    def test_traces_whole(self, generator: torch.Generator) -> None:
        logits = logits_at((9,), generator)
        criterion = CalibratedCrossEntropyLoss(COUNTS, 2.0, "mask", check=False, label_smoothing=0.1, weight=WEIGHT)
        compiled = torch.compile(criterion, backend="eager", fullgraph=True)
        for target in (labels_at((9,), generator), shares_at((9,), generator)):
            assert_close(compiled(logits, target), criterion(logits, target))

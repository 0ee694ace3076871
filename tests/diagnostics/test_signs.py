from fedskew.diagnostics.signs import above, stated, summary


def row(ratio, bound, own=-1.0, other=1.0, kind="minority", printed=None):
    return {
        "kind": kind, "ratio": ratio, "bound": bound, "printed": printed,
        "own": own, "other": other, "step_own": own, "step_other": other,
    }  # fmt: skip


def test_above_means_positive_and_exceeded():
    assert above(row(3, 2))
    assert not above(row(2, 2))
    assert above(row(None, 1e9))  # a missing class
    assert not above(row(3, -1))
    assert not above(row(3, None))
    assert not above(row(3, 2), 10)
    assert not stated(row(3, 0.0))


def test_the_summary_by_hand():
    rows = [
        row(30, 2), row(30, 2, other=-1.0), row(3, 2, own=1.0), row(1, 2, own=1.0),
        row(None, 5, kind="missing"), row(9, None),
    ]  # fmt: skip
    found = summary(rows)
    assert (found["pairs"], found["stated"], found["above"], found["far_above"]) == (6, 5, 0.8, 0.6)
    assert found["kinds"] == {"minority": {"stated": 4, "above": 0.75}, "missing": {"stated": 1, "above": 1.0}}
    assert found["signs"]["above"]["update"] == {"own": 0.75, "other": 0.75, "both": 0.5}
    assert found["signs"]["far_above"]["update"] == {"own": 1.0, "other": 2 / 3, "both": 2 / 3}
    assert found["signs"]["below"] == {
        "pairs": 1,
        "update": {"own": 0.0, "other": 1.0, "both": 0.0},
        "step": {"own": 0.0, "other": 1.0, "both": 0.0},
    }
    assert found["printed_above"] is None


def test_no_pairs_at_all():
    found = summary([])
    assert found["above"] is None
    assert found["signs"]["above"]["update"]["own"] is None

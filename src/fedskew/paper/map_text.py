"""The map of assumptions, of one seed, in plain sentences. Accuracies are means of the last ten rounds."""

from collections.abc import Iterator, Sequence
from typing import Any

from fedskew.runs.verdict import paired

Row = dict[str, Any]
RULES = ("floor", "mask")
UNCHANGED, DENOMINATOR = "nothing changed", "denominator as printed"
"""Settings that the map names."""


def sentences(rows: Sequence[Row]) -> list[str]:
    """What the map says."""
    if not rows:
        return ["Nothing of this map has been run yet."]
    margin = [row for row in rows if row["part"] == "margin"]
    around = [row for row in rows if row["part"] == "around"]
    said = [line for setting in _settings(margin) for line in _margin(setting, margin)]
    return [*said, *(_around(setting, around) for setting in _settings(around))]


def _settings(rows: Sequence[Row]) -> list[str]:
    return list(dict.fromkeys(row["setting"] for row in rows))


def _margin(setting: str, rows: Sequence[Row]) -> list[str]:
    """FedRS, and the margin that the held-out examples choose for each rule, against FedAvg."""
    here = [row for row in rows if row["setting"] == setting]
    plain = next((row for row in here if row["method"] == "fedavg"), None)
    if plain is None or plain["last_ten"] is None:
        return [f"{setting}: FedAvg is missing or diverged."]
    lines = [_against(f"{setting}: FedRS", row, plain) for row in here if row["method"] == "fedrs"]
    for _, rule, best, _ in chosen_margins(here):
        what = f"{setting}: FedLC, rule {rule}, tau {_tau(best)} (best on held-out examples)"
        lines.append(_against(what, best, plain))
    return lines


def chosen_margins(rows: Sequence[Row]) -> Iterator[tuple[str, str, Row, Row]]:
    """Setting, rule, the row whose margin is best on held-out examples, and FedAvg's row, of what was run."""
    margin = [row for row in rows if row["part"] == "margin"]
    for setting in _settings(margin):
        here = [row for row in margin if row["setting"] == setting]
        plain = next((row for row in here if row["method"] == "fedavg"), None)
        for rule in RULES:
            tried = [row for row in here if f"missing={rule}" in row["algorithm"]]
            if tried and plain is not None:
                yield setting, rule, max(tried, key=lambda row: row["validation"]), plain


def _tau(row: Row) -> str:
    return str(row["algorithm"]).partition("tau=")[2].partition(",")[0]


def _against(what: str, row: Row, plain: Row) -> str:
    if row["last_ten"] is None:
        return f"{what} diverged in round {row['diverged']}."
    difference = paired({row["seed"]: row["last_ten"]}, {plain["seed"]: plain["last_ten"]})
    assert difference is not None  # all runs of a map are of one seed
    last = row["test"] - plain["test"]
    said = difference.sentence(f"{what}, {row['last_ten']:.2f} %,", f"FedAvg, {plain['last_ten']:.2f} %,")
    return f"{said} (last round {last:+.2f})."


def _around(setting: str, rows: Sequence[Row]) -> str:
    """FedLC against FedAvg in the same setting; only FedLC has a denominator, so there against the unchanged FedAvg."""
    here = {row["method"]: row for row in rows if row["setting"] == setting}
    others = [row for row in rows if row["setting"] == UNCHANGED and row["method"] == "fedavg"]
    plain = here.get("fedavg") or (others[0] if setting == DENOMINATOR and others else None)
    if plain is None or "fedlc" not in here:
        return f"{setting}: incomplete."
    if plain["last_ten"] is None:
        return f"{setting}: FedAvg diverged in round {plain['diverged']}."
    return _against(f"{setting}: FedLC", here["fedlc"], plain)

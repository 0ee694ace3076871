"""The map of assumptions in plain sentences."""

from collections.abc import Sequence
from typing import Any

Row = dict[str, Any]
NEAR = 1.0
"""Points within which two runs of one seed are called equal."""


def sentences(rows: Sequence[Row]) -> list[str]:
    """What the map says. One seed each, so a difference below a point is not called one."""
    if not rows:
        return ["Nothing of this map has been run yet."]
    margin = [row for row in rows if row["part"] == "margin"]
    around = [row for row in rows if row["part"] == "around"]
    said = [line for setting in _settings(margin) for line in _margin(setting, margin)]
    return [*said, *(_around(setting, around) for setting in _settings(around))]


def _settings(rows: Sequence[Row]) -> list[str]:
    return list(dict.fromkeys(row["setting"] for row in rows))


def _margin(setting: str, rows: Sequence[Row]) -> list[str]:
    here = [row for row in rows if row["setting"] == setting]
    plain = next((row for row in here if row["algorithm"] == "fedavg"), None)
    if plain is None or plain["test"] is None:
        return []
    lines = []
    for rule in ("floor", "mask"):
        tried = [row for row in here if f"missing={rule}" in row["algorithm"] and row["test"] is not None]
        if not tried:
            continue
        best = max(tried, key=lambda row: row["validation"])
        above = [_tau(row) for row in tried if row["test"] - plain["test"] > NEAR]
        lines.append(
            f"{setting}, {plain['rounds']} rounds, rule {rule}: the margin that does best on held-out examples is tau "
            f"{_tau(best)}, {best['test']:.2f} % on the test set against FedAvg's {plain['test']:.2f} % "
            f"({best['test'] - plain['test']:+.2f}); more than {NEAR:g} point above FedAvg: "
            f"{'tau ' + ', '.join(above) if above else 'no tau'}."
        )
    return lines


def _tau(row: Row) -> str:
    return str(row["algorithm"]).partition("tau=")[2].partition(",")[0]


def _around(setting: str, rows: Sequence[Row]) -> str:
    here = {row["method"]: row for row in rows if row["setting"] == setting}
    calibrated, plain = here.get("fedlc"), here.get("fedavg") or _unchanged(rows)
    if calibrated is None or plain is None or plain["test"] is None:
        return f"{setting}: not complete."
    if calibrated["test"] is None:
        return f"{setting}: FedLC diverged in round {calibrated['diverged']}."
    gain = calibrated["test"] - plain["test"]
    verdict = "equal to" if abs(gain) <= NEAR else "above" if gain > 0 else "below"
    return f"{setting}: FedLC {calibrated['test']:.2f} % is {verdict} FedAvg's {plain['test']:.2f} % ({gain:+.2f})."


def _unchanged(rows: Sequence[Row]) -> Row | None:
    return next((row for row in rows if row["setting"] == "nothing changed" and row["method"] == "fedavg"), None)

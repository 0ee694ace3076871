"""Damaged lines of results files."""

import json
from collections.abc import Iterator
from pathlib import Path
from random import Random
from typing import Any

from docs.pages.evidence_table import build
from fedskew.advice import evidence
from fedskew.runs.results import Results, read_lines
from tests.helpers.attempts import Tally

PUBLISHED = Path(__file__).parent.parent / "results" / "paper"
_OTHER: tuple[Any, ...] = (None, True, -1, 10**30, 1e300, "", "x", "\x1b[2J", [], [1], {}, {"x": 1})
_COMMANDS = (
    ["paper", "list"], ["paper", "show", "table1"], ["paper", "show", "table4", "--format", "markdown"],
    ["paper", "show", "figure2"], ["paper", "map", "--show"],
)  # fmt: skip
_FLIPS = 60


def attack(tally: Tally, folder: Path, random: Random) -> None:
    """Every field of a line replaced by something else, and sealed lines with flipped bits."""
    lines = [line for path in sorted(PUBLISHED.glob("*.jsonl")) for line in path.read_bytes().splitlines()]
    chosen = [next(line for line in lines if b'"measured": {}' not in line), *random.sample(lines, 3)]
    cases = [(line, path) for line in chosen for path in _paths(json.loads(line))]
    results = folder / "results"
    results.mkdir()
    whole = tally.call("sealed", lambda: _sealed(results / "x.jsonl", chosen)).value
    sealed = (results / "x.jsonl").read_bytes()
    for number in range(_FLIPS):
        flipped = bytearray(sealed)
        flipped[random.randrange(len(flipped))] ^= 1 << random.randrange(8)
        (results / "x.jsonl").write_bytes(flipped)
        outcome = tally.call(f"flip {number}", lambda: _read(results))
        tally.count("flipped bits")
        missing = len(whole) - len(outcome.value["results"]) if outcome.value else 0
        known = outcome.value and all(result in whole for result in outcome.value["results"])
        if not known or missing > outcome.value["problems"]:
            tally.silent.append(f"flip {number}: another result")
    for line, path in random.sample(cases, len(cases)):
        content, other = json.loads(line), random.choice(_OTHER)
        _replace(content, path, other)
        case = f"{'.'.join(map(str, path))} is {other!r}"
        (results / "x.jsonl").write_bytes(b"\n".join([json.dumps(content).encode(), *chosen]) + b"\n")
        tally.count("other fields")
        tally.call(case, lambda: _evidence(results))
        words = random.choice(_COMMANDS)
        tally.command(f"{case}, {' '.join(words)}", *words, "--results", str(results), "--runs", str(folder / "none"))


def _sealed(path: Path, lines: list[bytes]) -> list[Any]:
    """The lines as this version writes them."""
    path.write_bytes(b"\n".join(lines) + b"\n")
    made = read_lines(path)
    path.write_bytes(b"".join(result.line() for result in made))
    return [json.loads(json.dumps(vars(result))) for result in made]


def _read(folder: Path) -> dict[str, Any]:
    results = Results(None, folder)
    return {"results": [vars(result) for result in results], "problems": len(results.problems)}


def _evidence(folder: Path) -> int:
    return len(build(Results(None, folder), evidence.load()["partitions"])["settings"])


def _paths(content: Any, above: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Where values are in an object; of a list the first is enough."""
    items = content.items() if isinstance(content, dict) else enumerate(content[:1])
    for name, value in items:
        yield (*above, name)
        if isinstance(value, dict | list):
            yield from _paths(value, (*above, name))


def _replace(content: Any, path: tuple[Any, ...], value: Any) -> None:
    for name in path[:-1]:
        content = content[name]
    content[path[-1]] = value

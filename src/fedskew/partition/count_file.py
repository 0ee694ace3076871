"""Label counts from a file: CSV of clients x classes, or a partition card in JSON."""

import csv
from collections.abc import Sequence
from io import StringIO
from pathlib import Path
from typing import Any

import numpy as np

from fedskew.core.files import parse_json, read_text
from fedskew.partition.owners import Ints

LARGEST = 2**53
"""Sums of such counts stay exact in int64 and in the floats of JSON."""
_NAME_HEADS = ("", "client", "clients", "name", "id", "index")


def read_counts(path: Path) -> tuple[Ints, dict[str, Any]]:
    """Counts [clients, classes] of a file, and the card they came from; a CSV has none, or a `note` on how it was read.
    A CSV has one line per client and one column per class, separated by `,` `;` or tabs. A first line of words, or of
    the class numbers 0, 1, 2, ..., is a header if another line follows; a first column of words, or one whose header is
    empty or is client, name, id or index, names the clients.
    """
    text = read_text(path)
    if not text.strip():
        raise ValueError(f"{path} is empty; a line per client and a column per class are needed")
    if text.lstrip()[:1] in ("{", "["):
        card = _json(path, text)
        return _checked(path, card["counts"]), card
    lines = _lines(path, text)
    if not lines:
        raise ValueError(f"{path} has no counts; a line per client and a column per class are needed")
    return _checked(path, _rows(lines)), _note(lines)


def _json(path: Path, text: str) -> dict[str, Any]:
    content = parse_json(path, text)
    card = {"counts": content} if isinstance(content, list) else content
    rows = card.get("counts")
    if not isinstance(rows, list) or not all(isinstance(row, list) for row in rows):
        raise ValueError(f"{path} has no table of counts; `fedskew inspect --json` writes a card with one")
    return {**card, "counts": [(f"client {k}", row) for k, row in enumerate(rows)]}


def _lines(path: Path, text: str) -> list[tuple[str, list[str]]]:
    """The position of each non-blank line, and its cells."""
    first = text.lstrip().splitlines()[0]
    delimiter = next((mark for mark in "\t;" if mark in first), ",")
    try:
        return [
            (f"line {at}", [cell.strip() for cell in row])
            for at, row in enumerate(csv.reader(StringIO(text), delimiter=delimiter, strict=True), 1)
            if any(cell.strip() for cell in row)
        ]
    except csv.Error as error:
        raise ValueError(f"{path} is not CSV: {error}") from error


def _rows(lines: list[tuple[str, list[str]]]) -> list[tuple[str, list[str]]]:
    """The position of each client's line, and its counts as text, without header and names."""
    head = lines[0][1]
    header = len(lines) > 1 and _is_header(head)
    rows = lines[1:] if header else lines
    named = (header and head[0].lower() in _NAME_HEADS) or (
        bool(rows) and all(_is_word(row[0]) for _, row in rows) and len(head) > 1
    )
    return [(where, row[1:]) for where, row in rows] if named else rows


def _note(lines: list[tuple[str, list[str]]]) -> dict[str, Any]:
    """A first line of numbers could be a client's counts too."""
    where, head = lines[0]
    taken = len(lines) > 1 and _class_numbers(head)
    return {"note": f"{where} was taken for class numbers"} if taken else {}


def _is_header(row: Sequence[str]) -> bool:
    head, rest = row[0], row[1:]
    if _class_numbers(row) or head.lower() in _NAME_HEADS[1:] or (head == "" and _class_numbers(rest)):
        return True
    return (head == "" or _is_word(head)) and all(_is_word(cell) for cell in rest)


def _class_numbers(row: Sequence[str]) -> bool:
    """0, 1, 2, ... or 1, 2, 3, ...; fewer than three are taken for counts."""
    numbers = [str(c) for c in range(len(row) + 1)]
    return len(row) > 2 and list(row) in (numbers[:-1], numbers[1:])


def _is_word(cell: str) -> bool:
    """Whether a text is a name: neither empty nor meant as a number."""
    try:
        float(cell)
    except ValueError:
        return cell != ""
    return False


def _checked(path: Path, rows: Sequence[tuple[str, Sequence[Any]]]) -> Ints:
    if not rows or not rows[0][1]:
        raise ValueError(f"{path} has no counts; a line per client and a column per class are needed")
    width = len(rows[0][1])
    for where, row in rows:
        if len(row) != width:
            raise ValueError(
                f"{path}, {where} has {len(row)} counts, but {rows[0][0]} has {width}; all lines need the same number"
            )
    table = [[_count(f"{path}, {where}, class {c}", cell) for c, cell in enumerate(row)] for where, row in rows]
    for (where, _), counts in zip(rows, table, strict=True):
        if not any(counts):
            raise ValueError(f"{path}, {where} has no example; every client needs at least one")
    if sum(map(sum, table)) > LARGEST:
        raise ValueError(f"{path} counts more than {LARGEST} examples")
    return np.array(table, dtype=np.int64)


def _count(where: str, cell: Any) -> int:
    if cell == "" or cell is None:
        raise ValueError(f"{where}: the count is missing; write 0 if a client has none")
    text = str(cell)
    digits = text.removeprefix("-")
    if isinstance(cell, bool) or not (digits.isascii() and digits.isdigit()) or len(digits) > 16:
        raise ValueError(f"{where}: {text!r} is not a count; allowed: integers from 0 to {LARGEST}")
    if text.startswith("-"):
        raise ValueError(f"{where}: {text} is negative; allowed: integers of at least 0")
    return int(text)

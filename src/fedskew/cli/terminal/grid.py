"""Tables that lose nothing on a narrow terminal."""

import re
from collections.abc import Collection, Iterable, Iterator, Sequence
from textwrap import TextWrapper
from typing import TYPE_CHECKING

from fedskew.progress import printable

if TYPE_CHECKING:
    from rich.console import Console, ConsoleOptions
    from rich.table import Table

_TOGETHER = re.compile(r" (?=±)|(?<=±) |(?<=\d,) (?=[-+−])")
"""Blanks within a number and its spread, or an interval: no line ends there."""
GLUE = "\x00"
"""Stands for a blank at which no line ends."""
_AFTER_COMMA = re.compile(rf"(?<=,)(?=[^{GLUE}])")
_GAP = 2
"""Blanks between columns."""
_NOTHING = ("", "-")
_MOST_LINES = 2
"""Lines that a text may take before the table is broken into blocks, if a table does not say otherwise."""


class Grid:
    """Rows under headings. Headings wrap first, then long texts between words; words and numbers are never broken if
    the terminal has room for them, and after a comma if it has not.

    A table that is still too wide is printed in blocks of columns, each with the first `keys` columns and without the
    rows that say nothing else there. With `lines=1` texts of other columns go to the next block rather than wrap.
    """

    def __init__(self, *heads: str, keys: int = 1, lines: int = _MOST_LINES) -> None:
        self.heads, self.keys, self.lines = heads, keys, lines
        self.rows: list[tuple[str, ...]] = []
        self._bold: list[Collection[int]] = []

    @classmethod
    def of(cls, heads: Sequence[str], rows: Iterable[Sequence[str]], keys: int = 1) -> "Grid":
        grid = cls(*heads, keys=keys)
        for row in rows:
            grid.add_row(*row)
        return grid

    def add_row(self, *cells: str, bold: Collection[int] = ()) -> None:
        """Add a row; cells are shown verbatim, those in the columns `bold` in bold."""
        self.rows.append((*(printable(cell) for cell in cells), *[""] * (len(self.heads) - len(cells))))
        self._bold.append(bold)

    def __rich_console__(self, console: "Console", options: "ConsoleOptions") -> Iterator["Table | str"]:
        columns = list(zip(self.heads, *self.rows, strict=True))
        narrow = _narrow_widths(columns, self.keys, options.max_width, self.lines)
        wide = [max(map(len, column)) for column in columns]
        for block in _blocks(narrow, self.keys, options.max_width):
            room = options.max_width - _frame(len(block))
            yield self._table(block, _widths([narrow[i] for i in block], [wide[i] for i in block], room))
            yield ""

    def _table(self, block: Sequence[int], widths: Sequence[int]) -> "Table":
        from rich import box
        from rich.table import Table
        from rich.text import Text

        made = Table(box=box.SIMPLE_HEAD, show_edge=False, pad_edge=False, padding=(0, _GAP - 1, 0, 0))
        for i, width in zip(block, widths, strict=True):
            made.add_column(Text(self.heads[i]), overflow="fold", width=width)
        for row, bold in zip(self.rows, self._bold, strict=True):
            if len(block) < len(self.heads) and all(row[i] in _NOTHING for i in block[self.keys :]):
                continue
            cells = ("\n".join(_lines(row[i], width)) for i, width in zip(block, widths, strict=True))
            made.add_row(*(Text(cell, "bold" if i in bold else "") for i, cell in zip(block, cells, strict=True)))
        return made


def _blocks(narrow: Sequence[int], keys: int, width: int) -> list[list[int]]:
    """Which columns each block has."""
    first = list(range(min(keys, len(narrow))))
    blocks = [first]
    for i in range(len(first), len(narrow)):
        if blocks[-1] != first and sum(narrow[j] for j in [*blocks[-1], i]) + _frame(len(blocks[-1]) + 1) > width:
            blocks.append(first)
        blocks[-1] = [*blocks[-1], i]
    return blocks


def _widths(narrow: Sequence[int], wide: Sequence[int], room: int) -> list[int]:
    """The width of each column: its natural width, or what there is room for."""
    widths = list(narrow)
    while sum(widths) > max(room, len(widths)):
        widths[widths.index(max(widths))] -= 1
    while sum(widths) < min(room, sum(wide)):
        widths[min((i for i in range(len(wide)) if widths[i] < wide[i]), key=lambda i: widths[i] / wide[i])] += 1
    return widths


def _narrow_widths(columns: Sequence[Sequence[str]], keys: int, width: int, lines: int) -> list[int]:
    """The least width of each column; key columns leave room for another one."""
    first = [_narrow(column, width // (keys + 1), _MOST_LINES) for column in columns[:keys]]
    room = max(1, width - sum(first) - _frame(keys + 1))
    return [*first, *(_narrow(column, room, lines) for column in columns[keys:])]


def _narrow(column: Sequence[str], most: int, lines: int) -> int:
    """The least width at which a column reads well: whole words, as long as there is room for them."""
    head, cells = column[0], set(column[1:])
    longest = max(map(len, cells), default=0)
    if any(letter.isalpha() for cell in cells for letter in cell):
        words = max(len(word) for cell in cells for word in _glued(cell).split())
        tried = range(min(words, most), longest)
        longest = next((w for w in tried if all(len(_lines(cell, w)) <= lines for cell in cells)), longest)
    return max(longest, *(len(word) for word in head.split()), 1)


class _Wrapper(TextWrapper):
    """A word that is longer than a line, such as a spec, is broken after commas."""

    def _split(self, text: str) -> list[str]:
        words = super()._split(text)
        return [piece for word in words for piece in (_AFTER_COMMA.split(word) if len(word) > self.width else [word])]


def _lines(cell: str, width: int) -> list[str]:
    lines = _Wrapper(width, break_on_hyphens=False).wrap(_glued(cell))
    return [line.replace(GLUE, " ") for line in lines] or [""]


def _glued(cell: str) -> str:
    return _TOGETHER.sub(GLUE, cell)


def _frame(columns: int) -> int:
    """The gaps between the columns."""
    return _GAP * (columns - 1)

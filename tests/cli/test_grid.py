import re
from types import SimpleNamespace

import pytest
from rich.console import Console

from fedskew.algorithms import describe
from fedskew.cli import methods
from fedskew.cli.terminal.grid import Grid


def printed(grid: Grid, width: int) -> list[str]:
    screen = Console(width=width, highlight=False, no_color=True)
    with screen.capture() as capture:
        screen.print(grid)
    return [line.rstrip() for line in capture.get().splitlines()]


def counts(columns: int) -> Grid:
    grid = Grid("client", *(f"c{i}" for i in range(columns)))
    for client in range(2):
        grid.add_row(str(client), *(str(1000 * (client + 1) + i) for i in range(columns)))
    return grid


@pytest.mark.parametrize("width", [20, 40, 80, 120])
def test_a_wide_grid_comes_in_blocks_that_lose_nothing(width: int) -> None:
    lines = printed(counts(60), width)
    assert max(map(len, lines)) <= width
    for client in "01":
        rows = [line.split() for line in lines if line.startswith(f"{client} ")]
        assert [cell for row in rows for cell in row[1:]] == [str(1000 * (int(client) + 1) + i) for i in range(60)]
    heads = [line.split() for line in lines if line.startswith("client")]
    assert [head for row in heads for head in row[1:]] == [f"c{i}" for i in range(60)]


def test_what_fits_is_one_block_with_headings_on_one_line() -> None:
    lines = printed(counts(5), 80)
    assert lines[0].split() == ["client", *(f"c{i}" for i in range(5))]
    assert len(lines) == 5


def test_headings_wrap_between_words_before_anything_else_does() -> None:
    grid = Grid("method", "client-class pairs", "accuracy % of all")
    grid.add_row("fedavg", "12", "44.21 ± 0.52")
    lines = printed(grid, 34)
    assert lines[-2].split() == ["fedavg", "12", "44.21", "±", "0.52"]
    assert " ".join(lines[:2]).split() == ["client-class", "accuracy", "%", "method", "pairs", "of", "all"]


def test_a_text_takes_two_lines_rather_than_a_block() -> None:
    grid = Grid("run", "federation", "seed")
    grid.add_row("06726103", "digits dirichlet:0.1, 20 clients", "0")
    lines = printed(grid, 38)
    assert [line.split() for line in lines[2:4]] == [["06726103", "digits", "dirichlet:0.1,", "0"], ["20", "clients"]]


def test_several_key_columns_are_repeated() -> None:
    grid = Grid("method", "kind", "first", "second", keys=2)
    grid.add_row("fedavg", "all", "1" * 10, "2" * 10)
    assert [line.split() for line in printed(grid, 26) if line.startswith("fed")] == [
        ["fedavg", "all", "1" * 10],
        ["fedavg", "all", "2" * 10],
    ]


@pytest.mark.parametrize("width", [5, 10])
def test_in_a_tiny_terminal_even_numbers_break_but_none_is_lost(width: int) -> None:
    grid = Grid("method", "accuracy")
    grid.add_row("fedlc", "123456789")
    assert sorted(re.sub(r"\W", "", "".join(printed(grid, width)))) == sorted("methodaccuracyfedlc123456789")


def test_bold_counts_for_no_width_and_missing_cells_are_empty() -> None:
    grid = Grid("method", "a", "b")
    grid.add_row("fedavg", "12.34", bold=[1])
    assert printed(grid, 16)[2].split() == ["fedavg", "12.34"]
    screen = Console(width=40, force_terminal=True)
    with screen.capture() as capture:
        screen.print(grid)
    assert "\x1b[1m12.34\x1b[0m" in capture.get()


def test_nothing_in_a_cell_is_obeyed() -> None:
    grid = Grid("method", "title")
    grid.add_row("[/bold]", "\x1b[2Jred\x9b\u202e\udcff")
    assert printed(grid, 60)[2].split() == ["[/bold]", r"\x1b[2Jred\x9b\u202e\udcff"]


def test_a_grid_without_rows_shows_its_headings() -> None:
    assert printed(Grid("run", "seed"), 80)[0].split() == ["run", "seed"]


@pytest.mark.parametrize("width", [60, 80, 100])
def test_words_and_numbers_with_their_spread_stay_whole(width: int) -> None:
    federation = "shapes:train=6000,test=2000 dirichlet:0.1,balance=off, 20 clients"
    said = "above, +6.00 [+3.52, +8.48] over 3 seeds"
    grid = Grid("run", "federation", "accuracy %", "against fedavg", "more")
    grid.add_row("06726103", federation, "44.21 ± 0.52", said, "12.34 ± 0.56 (shortened)")
    text = "\n".join(printed(grid, width))
    assert max(map(len, text.splitlines())) <= width
    for whole in (*federation.split(), "44.21 ± 0.52", "+6.00", "[+3.52, +8.48]", "12.34 ± 0.56", "(shortened)"):
        assert whole in text


def test_a_block_leaves_out_rows_that_are_empty_there() -> None:
    grid = Grid("method", "first column", "second column")
    grid.add_row("fedavg", "1" * 12, "2" * 12)
    grid.add_row("fedlc", "3" * 12, "-")
    narrow, wide = (" ".join(printed(grid, width)) for width in (24, 80))
    assert (narrow.count("fedavg"), narrow.count("fedlc")) == (2, 1)
    assert wide.count("fedlc") == 1


@pytest.mark.parametrize("width", [24, 30, 40])
def test_a_spec_longer_than_its_column_is_broken_after_commas(width: int) -> None:
    spec = "fedopt:server=adam,eta=none,b1=0.9,b2=0.99,eps=0.001"
    grid = Grid("spec")
    grid.add_row(spec)
    lines = printed(grid, width)[2:-1]
    assert len(lines) > 1
    assert "".join(lines) == spec
    assert all(line.endswith(",") for line in lines[:-1])


def test_the_methods_at_eighty_columns_break_only_after_commas(monkeypatch: pytest.MonkeyPatch) -> None:
    made = list[Grid]()
    monkeypatch.setattr(methods, "console", lambda: SimpleNamespace(print=made.append))
    methods.methods_command()
    pieces = {line.split("  ")[0].rstrip() for line in printed(made[0], 80)}
    for method in describe():
        parts = re.findall(r"[^,]+,?", method.spec)
        broken = ({"".join(parts[:i]), "".join(parts[i:])} for i in range(1, len(parts)))
        assert method.spec in pieces
        assert len(method.spec) < 40 or any(halves <= pieces for halves in broken), method.spec

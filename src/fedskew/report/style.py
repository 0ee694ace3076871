"""One style for every figure: a colour and a line per method that remain distinct in grey."""

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

from fedskew.core.spec import family

_LOOKS: dict[str, tuple[str, str]] = {
    "fedavg": ("#4d4d4d", "-"),
    "fedprox": ("#8c6bb1", "--"),
    "scaffold": ("#1b9e77", "-."),
    "fednova": ("#a6761d", ":"),
    "fedopt": ("#e6ab02", "--"),
    "fedavgm": ("#66a61e", "-."),
    "fedrs": ("#2171b5", "-."),
    "fedlc": ("#d7301f", "-"),
    "fedla": ("#e7298a", ":"),
    "trimmed": ("#3690c0", "--"),
    "median": ("#0570b0", ":"),
    "fedlc+fedprox": ("#fc8d59", "--"),
    "fedlc+scaffold": ("#7f0000", "-."),
    "fedlc+fednova": ("#b35806", ":"),
    "fedlc+fedopt": ("#f4a582", ":"),
}
ORDER = tuple(_LOOKS)
_SPARE = ("#1f78b4", "#33a02c", "#6a3d9a", "#b15928", "#01665e", "#c51b7d")
_MARKERS = "osD^vP*Xdph<>"
DARK, PALE = "#333333", "#c6d0dc"
KIND_LOOKS: dict[str, dict[str, str]] = {
    "majority": {"marker": "o", "color": "#2171b5"},
    "minority": {"marker": "^", "color": "#e6ab02"},
    "missing": {"marker": "x", "color": "#7f0000"},
}


def look(name: str, position: int = 0) -> dict[str, Any]:
    """Colour, line and marker of a method; its arguments do not matter unless two variants are drawn."""
    if name in _LOOKS:
        colour, line = _LOOKS[name]
        marker = _MARKERS[list(_LOOKS).index(name) % len(_MARKERS)]
    else:
        colour, line = _SPARE[position % len(_SPARE)], ("-", "--", "-.", ":")[position % 4]
        marker = _MARKERS[-1 - position % len(_MARKERS)]
    return {"color": colour, "linestyle": line, "marker": marker}


def looks(names: Iterable[str]) -> dict[str, dict[str, Any]]:
    """A style for each name: the method's own if one variant of it is drawn, else a distinct one."""
    listed = list(names)
    plain = [family(name.lower()) for name in listed]
    return {
        name: look(bare if plain.count(bare) == 1 else name, position)
        for position, (name, bare) in enumerate(zip(listed, plain, strict=True))
    }


RC: Any = {
    "figure.dpi": 150,
    "savefig.bbox": "tight",
    "font.size": 9,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "grid.color": "#e6e6e6",
    "grid.linewidth": 0.7,
    "axes.axisbelow": True,
    "legend.frameon": False,
    "svg.hashsalt": "fedskew",
}

STYLES = ("screen", "paper")
"""`paper`: as wide as a column, or as both where there are many panels; 8 pt, no title, one vector file."""
COLUMN, BOTH_COLUMNS = 3.3, 6.9
PAPER_SIZE = 8
_PAPER_RC: Any = {
    **RC,
    "savefig.bbox": None,  # else a file is as wide as what is drawn
    "font.size": PAPER_SIZE,
    "axes.labelsize": PAPER_SIZE,
    "xtick.labelsize": PAPER_SIZE,
    "ytick.labelsize": PAPER_SIZE,
    "pdf.fonttype": 42,  # letters as letters: many publishers refuse Type 3
}
_style: ContextVar[str] = ContextVar("style", default="screen")


def checked_style(style: str) -> str:
    if style not in STYLES:
        raise ValueError(f"style is {style!r}; allowed: {', '.join(STYLES)}")
    return style


@contextmanager
def drawn_for(style: str) -> Iterator[None]:
    """Inside, figures are drawn in one of `STYLES`."""
    before = _style.set(checked_style(style))
    try:
        yield
    finally:
        _style.reset(before)


def for_paper() -> bool:
    return _style.get() == "paper"


def settings() -> Any:
    """Matplotlib's, for the style that figures are drawn in."""
    return _PAPER_RC if for_paper() else RC


def size_of(width: float, height: float) -> tuple[float, float]:
    """Inches of a figure that would be so large on a screen."""
    if not for_paper():
        return width, height
    wide = COLUMN if width <= 2 * COLUMN else BOTH_COLUMNS
    return wide, max(height * wide / width, min(height, 2.4))

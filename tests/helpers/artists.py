"""What a figure shows, as numbers and words: its artists' data, not its pixels."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from matplotlib.collections import PathCollection
from matplotlib.figure import Figure
from matplotlib.image import AxesImage
from matplotlib.lines import Line2D
from matplotlib.patches import Rectangle
from matplotlib.text import Text


def shown(monkeypatch: pytest.MonkeyPatch, draw: Callable[[], Any]) -> tuple[set[float], set[str]]:
    """All numbers in lines, bars, images and points of the figure that is drawn, with four decimals, and its texts."""
    figures: list[Figure] = []
    with monkeypatch.context() as patched:
        patched.setattr(Figure, "savefig", lambda figure, *_, **__: figures.append(figure))
        draw()
    found = figures[0].findobj()
    data = [
        *(artist.get_xydata() for artist in found if isinstance(artist, Line2D)),
        *([artist.get_height(), artist.get_y()] for artist in found if isinstance(artist, Rectangle)),
        *(artist.get_array() for artist in found if isinstance(artist, AxesImage)),
        *(artist.get_offsets() for artist in found if isinstance(artist, PathCollection)),
    ]
    numbers = np.concatenate([np.ma.filled(np.ma.asarray(each, float), np.nan).ravel() for each in data])
    return {round(float(n), 4) for n in numbers}, {artist.get_text() for artist in found if isinstance(artist, Text)}

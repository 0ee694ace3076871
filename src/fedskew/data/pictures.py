"""One image file as an array of bytes, with Pillow.

Every image becomes RGB: greyscale is repeated, CMYK and palettes are converted, transparency is blended onto white,
16-bit greyscale keeps its upper eight bits, and an animation counts by its first frame. EXIF orientation is not
applied. The centre square, as wide as the shorter side, is resized to size x size (bilinear, antialiased), which is the
usual "resize the shorter side, crop the centre"; an image that is size x size already keeps its pixels.
"""

from functools import cache
from pathlib import Path

import numpy as np
from PIL import Image, UnidentifiedImageError

from fedskew.core.files import reason, regular
from fedskew.data.image_cache import Pixels

_REFUSED = {"EPS"}  # Pillow hands these to Ghostscript, which runs programs


def pixels(path: Path, size: int | None) -> Pixels:
    """One file as [3, H, W]."""
    try:
        with Image.open(regular(path), formats=_formats()) as image:
            rgb = as_rgb(image)
    except UnidentifiedImageError:
        raise ValueError(f"{path} is not a readable image: unknown format, or truncated") from None
    except Image.DecompressionBombError as error:
        raise ValueError(f"{path} is refused: {error}") from error
    except Exception as error:
        raise ValueError(f"{path} is not a readable image: {reason(error)}") from error
    if size is not None and rgb.size != (size, size):
        side = min(rgb.size)
        left, top = (rgb.width - side) / 2, (rgb.height - side) / 2
        box = (left, top, left + side, top + side)
        rgb = rgb.resize((size, size), Image.Resampling.BILINEAR, box=box)
    return np.ascontiguousarray(np.asarray(rgb).transpose(2, 0, 1))


def as_rgb(image: Image.Image) -> Image.Image:
    if image.mode.startswith("I;16"):
        image = Image.fromarray((np.asarray(image) >> 8).astype(np.uint8))
    if image.mode in ("I", "F"):
        raise ValueError(f"its pixels are 32-bit ({image.mode}); convert it to 8 bits")
    if image.has_transparency_data:
        clear = image.convert("RGBA")
        return Image.alpha_composite(Image.new("RGBA", clear.size, "white"), clear).convert("RGB")
    return image.convert("RGB")


@cache
def _formats() -> list[str]:
    Image.init()
    return [name for name in Image.OPEN if name not in _REFUSED]


@cache
def extensions() -> set[str]:
    return {extension for extension, name in Image.registered_extensions().items() if name in _formats()}

"""Twelve classes of ImageNet, small: from any ImageNet-style folder tree, full size or Tiny-ImageNet.

    imagenet12/train/<wnid>/*.JPEG   or, as in Tiny-ImageNet,   imagenet12/train/<wnid>/images/*.JPEG
    imagenet12/val/<wnid>/*.JPEG     or                         imagenet12/val/images/*.JPEG with val_annotations.txt

`test/<wnid>` is used if there is no `val`. Other classes are ignored. `pictures.py` says how a file becomes pixels.
"""

from collections import defaultdict
from pathlib import Path

from fedskew.core.dataset import Dataset
from fedskew.core.files import read_text
from fedskew.data.images import Progress, image_dataset, images_in
from fedskew.data.places import data_root, user_path

# The paper does not name its twelve classes: these are ours, chosen among those of Tiny-ImageNet.
CLASSES = {
    "n02124075": "Egyptian cat",
    "n07873807": "pizza, pizza pie",
    "n02486410": "baboon",
    "n02233338": "cockroach, roach",
    "n03796401": "moving van",
    "n02950826": "cannon",
    "n03992509": "potter's wheel",
    "n04356056": "sunglasses, dark glasses, shades",
    "n04118538": "rugby ball",
    "n04399382": "teddy, teddy bear",
    "n01698640": "American alligator, Alligator mississipiensis",
    "n03976657": "pole",
}
_PLACES = ("imagenet12", "imagenet12/tiny-imagenet-200", "tiny-imagenet-200", ".")
_ANNOTATIONS = "val_annotations.txt"


def imagenet12(
    classes: str | None = None, size: int = 64, data_dir: str | None = None, progress: Progress | None = None
) -> Dataset:
    """Labels follow the order of the list of classes: ours, or the lines of the text file `classes`.

    Mean and standard deviation are those of the training images. The first load decodes every file and calls `progress`
    with how many of how many are done; later ones map the cache into memory.
    """
    names = _names(classes)
    root = _root(data_dir)
    train, test = _images(root, list(names))
    return image_dataset("imagenet12", root, train, test, list(names.values()), size, progress)


def imagenet12_files(classes: str | None = None, data_dir: str | None = None) -> list[Path]:
    root = _root(data_dir)
    return [path for part in _images(root, list(_names(classes))) for members in part for path in members]


def _names(classes: str | None) -> dict[str, str]:
    return CLASSES if classes is None else read_classes(classes)


def _images(root: Path, wnids: list[str]) -> tuple[list[list[Path]], list[list[Path]]]:
    """The files of each class, for training and for testing."""
    return [_members(root / "train", wnid) for wnid in wnids], _tested(root, wnids)


def read_classes(path: str) -> dict[str, str]:
    """Class folders and names from a text file: a wnid per line, optionally with a name; # begins a comment."""
    file = user_path(path)
    if not file.exists():
        raise FileNotFoundError(f"imagenet12: there is no list of classes {path}; it is a text file, one wnid per line")
    found: dict[str, str] = {}
    for line in read_text(file).splitlines():
        wnid, _, name = line.partition("#")[0].strip().replace("\t", " ").partition(" ")
        if wnid in found:
            raise ValueError(f"imagenet12: {path} has {wnid} twice")
        if wnid:
            found[wnid] = name.strip() or CLASSES.get(wnid, wnid)
    if len(found) < 2:
        raise ValueError(f"imagenet12: {path} lists {len(found)} classes; allowed: 2 or more, one wnid per line")
    return found


def _root(data_dir: str | None) -> Path:
    base = data_root(data_dir)
    for place in _PLACES:
        if (base / place / "train").is_dir():
            return base / place
    raise FileNotFoundError(
        f"imagenet12 is not in {base.absolute()}: looked for the folder train in {', '.join(_PLACES)}; put ImageNet's "
        "train/<wnid> and val/<wnid> there, or Tiny-ImageNet (http://cs231n.stanford.edu/tiny-imagenet-200.zip); "
        "set --data-dir or FEDSKEW_DATA to look elsewhere"
    )


def _tested(root: Path, wnids: list[str]) -> list[list[Path]]:
    if (root / "val" / _ANNOTATIONS).exists():
        return _annotated(root / "val", wnids)
    part = next((root / name for name in ("val", "test") if (root / name).is_dir()), None)
    if part is None:
        raise FileNotFoundError(f"imagenet12: {root} has neither val nor test; one of them holds the test images")
    return [_members(part, wnid) for wnid in wnids]


def _members(part: Path, wnid: str) -> list[Path]:
    if not (part / wnid).is_dir():
        raise FileNotFoundError(
            f"imagenet12: there is no folder {part / wnid}; sort the images into class folders, or list the existing "
            "classes in a text file: imagenet12:classes=my_classes.txt"
        )
    return images_in(part / wnid)


def _annotated(part: Path, wnids: list[str]) -> list[list[Path]]:
    """Tiny-ImageNet's own layout: lines of file name, wnid and a box, separated by tabs."""
    members = defaultdict(list)
    for line in read_text(part / _ANNOTATIONS).splitlines():
        name, wnid, *_ = [*line.split("\t"), ""]
        members[wnid].append(part / "images" / name)
    for wnid in wnids:
        if not members[wnid]:
            raise ValueError(f"imagenet12: {part / _ANNOTATIONS} has no image of {wnid}")
    return [sorted(members[wnid]) for wnid in wnids]

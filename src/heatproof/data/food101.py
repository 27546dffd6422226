"""Food-101 as published: `images/apple_pie/1005649.jpg`, and the lists of the splits in `meta`."""

from __future__ import annotations

from pathlib import Path, PurePosixPath

from heatproof.data.choices import one_split
from heatproof.data.dataset import Data, How
from heatproof.data.files import open_pictures
from heatproof.data.text import as_text, unpacked
from heatproof.errors import UserError

_CLASSES, _LABELS = "classes.txt", "labels.txt"
_SUFFIX = ".jpg"


def food101_lists(path: Path) -> dict[str, Path]:
    """Return the lists of pictures of a folder in the layout of Food-101, by split; none if it has another layout."""
    meta = path / "meta"
    if not (path / "images").is_dir() or not (meta / _CLASSES).is_file():
        return {}
    lists = {split: meta / f"{split}.txt" for split in ("train", "test")}
    return {split: file for split, file in lists.items() if file.is_file()}


def open_food101(path: Path, lists: dict[str, Path], how: How, split: str | None) -> Data:
    """Open the pictures that a split's list names, such as `apple_pie/1005649`, which are their ids.

    Classes are numbered as in `classes.txt`, in torchvision the same, and named as in `labels.txt` where it is there.
    """
    file = one_split(str(path), split, lists)
    ids = _lines(file)
    classes = _lines(path / "meta" / _CLASSES)
    number_of = {name: number for number, name in enumerate(classes)}
    labels, paths = [], []
    for picture in ids:
        parts = PurePosixPath(picture).parts
        if len(parts) != 2 or ".." in parts:
            raise UserError(f"{str(file)!r} has {picture!r}; apple_pie/1005649 was expected")
        if parts[0] not in number_of:
            raise UserError(
                f"{str(file)!r} has {picture!r}, and {_CLASSES} names no class {parts[0]!r}"
            )
        labels.append(number_of[parts[0]])
        paths.append(path / "images" / f"{picture}{_SUFFIX}")
    names = classes
    if (path / "meta" / _LABELS).is_file():
        names = _lines(path / "meta" / _LABELS)
        if len(names) != len(classes):
            raise UserError(
                f"{str(path / 'meta')!r} has {len(classes)} lines in {_CLASSES} and {len(names)} in {_LABELS}"
            )
    return open_pictures(f"{path.resolve().name}-{file.stem}", paths, ids, how, labels, names)


def _lines(path: Path) -> list[str]:
    """Return the lines of a file that are not empty."""
    text = as_text(unpacked(path), str(path))
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    if not lines:
        raise UserError(f"{str(path)!r} is empty")
    return lines

"""COCO as published: `annotations/instances_val2017.json` and a folder of pictures.

A picture shows several things, so which of them is its label has to be said.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path, PurePosixPath
from typing import Any

from heatproof.data.choices import NO_LABEL, Choice, one_split
from heatproof.data.dataset import Data, How
from heatproof.data.files import open_pictures
from heatproof.data.text import as_object, as_text, unpacked
from heatproof.errors import UserError, nearest

_INSTANCES = re.compile(r"instances_(?P<split>[\w-]+)\.json")


def coco_annotations(path: Path) -> dict[str, Path]:
    """Return the files of instances that a path is or holds, by split; none when it is not COCO's layout."""
    if path.is_file():
        match = _INSTANCES.fullmatch(path.name)
        return {} if match is None else {match["split"]: path}
    for folder in (path / "annotations", path):
        by_split = {}
        for file in sorted(folder.glob("instances_*.json")):
            match = _INSTANCES.fullmatch(file.name)
            if match is not None:
                by_split[match["split"]] = file
        if by_split:
            return by_split
    return {}


def open_coco(path: Path, annotations: Mapping[str, Path], how: How, choice: Choice) -> Data:
    """Open the pictures of COCO with one label each; ids are the file names.

    `label="largest"` is the category of the largest object, "first" that of the first object listed; the name of a category
    makes labels of 1 where it is in the picture and 0 where not. Categories are numbered from 0 without the gaps between
    their ids. A picture without objects has no label.
    """
    split = choice.split
    if split is not None and split not in annotations:
        without_year = {re.sub(r"\d{4}$", "", name): name for name in annotations}
        split = without_year.get(split, split)
    file = one_split(str(path), split, annotations)
    match = _INSTANCES.fullmatch(file.name)
    assert match is not None
    content = coco_content(file)
    pictures = {entry["id"]: str(entry["file_name"]) for entry in content["images"]}
    folder = _pictures_folder(file, match["split"], pictures)
    for name in pictures.values():
        if ".." in PurePosixPath(name).parts or name.startswith("/"):
            raise UserError(
                f"{str(file)!r} names the picture {name!r}, which is not in {str(folder)!r}"
            )
    order = sorted(pictures, key=lambda key: pictures[key])
    labels, class_names = _labels(content, order, choice.label, file)
    ids = [pictures[key] for key in order]
    files = [folder / name for name in ids]
    return open_pictures(match["split"], files, ids, how, labels, class_names)


def coco_content(file: Path) -> Mapping[str, Any]:
    """Return the content of COCO's file of instances, after checking that it has the entries that are read."""
    content = as_object(as_text(unpacked(file), str(file)), str(file))
    needed: dict[str, dict[str, type]] = {
        "images": {"id": int, "file_name": str},
        "annotations": {"image_id": int, "category_id": int},
        "categories": {"id": int, "name": str},
    }
    for part, keys in needed.items():
        rows = content.get(part)
        if not isinstance(rows, list):
            raise UserError(
                f"{str(file)!r} has no list {part!r}; images, annotations and categories were expected"
            )
        for i, row in enumerate(rows):
            for key, kind in keys.items():
                if not isinstance(row, Mapping) or not isinstance(row.get(key), kind):
                    raise UserError(
                        f"{str(file)!r}: entry {i} of {part} has no {key} ({kind.__name__})"
                    )
    return content


def _pictures_folder(file: Path, split: str, pictures: Mapping[int, str]) -> Path:
    """Return the folder with the pictures that a file of annotations names, tested by the first of their names.

    It is one called like the split, such as `val2017`, or `images`, beside the folder `annotations` or the file.
    """
    root = file.parent.parent if file.parent.name == "annotations" else file.parent
    candidates = [root / split, root / "images" / split, root / "images", root]
    first_names = list(pictures.values())[:64]
    for folder in candidates:
        if any((folder / name).is_file() for name in first_names):
            return folder
    searched = ", ".join(str(folder.relative_to(root)) for folder in candidates)
    raise UserError(
        f"the pictures of {str(file)!r}, such as {first_names[:1]}, are not in {str(root)!r} (looked in {searched})"
    )


def _labels(
    content: Mapping[str, Any], order: Sequence[int], label: str | None, file: Path
) -> tuple[list[int] | None, tuple[str, ...] | None]:
    """Return the labels of pictures, by their ids in `order`, and the names of the classes.

    `label` says how a picture with several objects gets one label: the category of the "largest" or the "first" object,
    or whether a category of this name is in it (1 or 0). −1 is a picture without objects.
    """
    entries = sorted(content["categories"], key=lambda entry: entry["id"])
    categories = {entry["id"]: entry["name"] for entry in entries}
    names = tuple(categories.values())
    if label == NO_LABEL:
        return None, None
    if label is None or label not in ("largest", "first", *names):
        close = nearest(label, names) if label is not None else []
        hint = f" (did you mean {close[0]!r}?)" if close else ""
        got = "" if label is None else f", got {label!r}{hint}"
        raise UserError(
            f"{str(file)!r} names several objects in a picture, so the label must be chosen: label='largest' or "
            f"'first' for the category of one object, a category such as {names[0] if names else 'dog'!r} for whether "
            f"it is there, or {NO_LABEL!r}{got}"
        )
    annotations = [entry for entry in content["annotations"] if entry["category_id"] in categories]
    if label in names:
        with_category = {
            entry["image_id"] for entry in annotations if categories[entry["category_id"]] == label
        }
        return [int(key in with_category) for key in order], (f"no {label}", label)
    class_of = {key: number for number, key in enumerate(categories)}
    largest: dict[int, tuple[float, int]] = {}  # picture -> area and class of its main object
    for entry in annotations:
        picture = entry["image_id"]
        area = _area(entry) if label == "largest" else 0.0
        if picture not in largest or area > largest[picture][0]:
            largest[picture] = (area, class_of[entry["category_id"]])
    return [largest[key][1] if key in largest else -1 for key in order], names


def _area(entry: Mapping[str, Any]) -> float:
    """Return the area of an object; a crowd counts less than any single object."""
    area = entry.get("area")
    value = float(area) if isinstance(area, int | float) else 0.0
    return value - 1e18 if entry.get("iscrowd") == 1 else value

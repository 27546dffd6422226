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
    """The files of instances that a path is or holds, by split; empty when it is not COCO's layout."""
    match = _INSTANCES.fullmatch(path.name)
    if path.is_file():
        return {} if match is None else {match["split"]: path}
    for folder in (path / "annotations", path):
        files = [
            (file, _INSTANCES.fullmatch(file.name))
            for file in sorted(folder.glob("instances_*.json"))
        ]
        found = {match["split"]: file for file, match in files if match is not None}
        if found:
            return found
    return {}


def open_coco(path: Path, found: Mapping[str, Path], how: How, choice: Choice) -> Data:
    """Pictures by file name. `label="largest"` takes the category of the largest object, "first" of the first listed.

    The name of a category asks whether it is there: 1 or 0. Categories are numbered in the order of their ids, without
    the gaps those have; a picture without objects has no label.
    """
    shortened = {re.sub(r"\d{4}$", "", split): split for split in found}
    split = (
        choice.split if choice.split in found else shortened.get(str(choice.split), choice.split)
    )
    file = one_split(str(path), split, found)
    match = _INSTANCES.fullmatch(file.name)
    assert match is not None
    content = coco_content(file)
    pictures = {entry["id"]: str(entry["file_name"]) for entry in content["images"]}
    folder = _pictures_folder(file, match["split"], pictures)
    outside = [
        name
        for name in pictures.values()
        if ".." in PurePosixPath(name).parts or name.startswith("/")
    ]
    if outside:
        raise UserError(
            f"{str(file)!r} names the picture {outside[0]!r}, which is not in {str(folder)!r}"
        )
    order = sorted(pictures, key=lambda key: pictures[key])
    labels, names = _labels(content, order, choice.label, file)
    files, ids = [folder / pictures[key] for key in order], [pictures[key] for key in order]
    return open_pictures(match["split"], files, ids, how, labels, names)


def coco_content(file: Path) -> Mapping[str, Any]:
    """What a file of instances holds, checked for what is read of it."""
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
    """Where the pictures are: `val2017` beside `annotations`, or `images`, or beside the file."""
    root = file.parent.parent if file.parent.name == "annotations" else file.parent
    places = [root / split, root / "images" / split, root / "images", root]
    some = list(pictures.values())[:64]
    for place in places:
        if any((place / name).is_file() for name in some):
            return place
    looked = ", ".join(str(place.relative_to(root)) for place in places)
    raise UserError(
        f"the pictures of {str(file)!r}, such as {some[:1]}, are not in {str(root)!r} (looked in {looked})"
    )


def _labels(
    content: Mapping[str, Any], order: Sequence[int], label: str | None, file: Path
) -> tuple[list[int] | None, tuple[str, ...] | None]:
    categories = {
        entry["id"]: entry["name"]
        for entry in sorted(content["categories"], key=lambda entry: entry["id"])
    }
    place = {key: i for i, key in enumerate(categories)}
    names = tuple(categories.values())
    if label == NO_LABEL:
        return None, None
    if label is None or label not in ("largest", "first", *names):
        close = nearest(label, names) if label is not None else []
        hint = f" (did you mean {close[0]!r}?)" if close else ""
        given = "" if label is None else f", got {label!r}{hint}"
        raise UserError(
            f"{str(file)!r} names several objects in a picture, so the label must be chosen: label='largest' or "
            f"'first' for the category of one object, a category such as {names[0] if names else 'dog'!r} for whether "
            f"it is there, or {NO_LABEL!r}{given}"
        )
    annotations = [entry for entry in content["annotations"] if entry["category_id"] in categories]
    if label in names:
        wanted = {key for key, name in categories.items() if name == label}
        shown = {entry["image_id"] for entry in annotations if entry["category_id"] in wanted}
        return [int(key in shown) for key in order], (f"no {label}", label)
    chosen: dict[int, tuple[float, int]] = {}
    for entry in annotations:
        area = _area(entry) if label == "largest" else 0.0
        best = chosen.get(entry["image_id"])
        if best is None or area > best[0]:
            chosen[entry["image_id"]] = (area, place[entry["category_id"]])
    return [chosen[key][1] if key in chosen else -1 for key in order], names


def _area(entry: Mapping[str, Any]) -> float:
    """What the annotation says of its area; a crowd counts less than any single object."""
    area = entry.get("area")
    value = float(area) if isinstance(area, int | float) else 0.0
    return value - 1e18 if entry.get("iscrowd") == 1 else value

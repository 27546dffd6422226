"""ImageNet as published: folders by WordNet id, or one flat folder of validation pictures with the ground truth beside.

Labels are positions in the sorted order of the WordNet ids of the whole list, the order of every trained network.
"""

from __future__ import annotations

import csv
import io
import json
import re
import zlib
from collections.abc import Mapping, Sequence
from pathlib import Path

from heatproof.data.text import as_text, unpacked
from heatproof.errors import UserError

_WNID = re.compile(r"n\d{8}")
_VALIDATION = re.compile(r"(ILSVRC2012_val_(\d{8}))\.jpe?g", re.IGNORECASE)
_LEVELS = 5  # from ILSVRC/Data/CLS-LOC/val up to the folder that holds LOC_val_solution.csv
_SOLUTION = "LOC_val_solution.csv"
_MAPPING = "LOC_synset_mapping.txt"
_INDEX = "imagenet_class_index.json"
_DEVKIT = "ILSVRC2012_devkit_t12"
_TRUTH = "ILSVRC2012_validation_ground_truth.txt"


Classes = tuple[list[int], tuple[str, ...]]
"""Labels of the pictures, −1 where there is none, and the names of the classes."""


def imagenet_classes(root: Path, pictures: Sequence[str]) -> Classes | None:
    """Labels of pictures, given by their paths below `root`; None where they are not ImageNet's or nothing says.

    Folders named by WordNet id are numbered among all ids of the list beside them (`LOC_synset_mapping.txt`,
    `imagenet_class_index.json`, the development kit, or a fuller `train`), so that a part of ImageNet keeps its labels.
    """
    tops = [picture.split("/")[0] for picture in pictures]
    if all(
        "/" in picture and _WNID.fullmatch(top) for picture, top in zip(pictures, tops, strict=True)
    ):
        return _numbered(tops, _listed(root, set(tops)), root)
    numbers = [
        int(match[2])
        for picture in pictures
        if (match := _VALIDATION.fullmatch(picture)) is not None
    ]
    if len(numbers) == len(pictures):
        truth = _truth(root)
        if truth is None:
            return None
        by_name = [truth.get(number) for number in numbers]
        return _numbered(by_name, _listed(root, set(truth.values())), root)
    return None


def _numbered(wnids: Sequence[str | None], listed: Mapping[str, str], root: Path) -> Classes | None:
    if not listed:
        return None
    unlisted = next((wnid for wnid in wnids if wnid is not None and wnid not in listed), None)
    if unlisted is not None:
        raise UserError(
            f"{str(root)!r} has pictures of {unlisted}, which the list of {len(listed)} classes lacks"
        )
    order = sorted(listed)
    place = {wnid: i for i, wnid in enumerate(order)}
    return [-1 if wnid is None else place[wnid] for wnid in wnids], tuple(
        listed[wnid] for wnid in order
    )


def _above(root: Path) -> list[Path]:
    root = root.absolute()
    return [root, *root.parents][:_LEVELS]


def _listed(root: Path, present: set[str]) -> Mapping[str, str]:
    """Every WordNet id of the data set and its name: from a list, else those at hand and in `train` beside."""
    for folder in _above(root):
        if (folder / _MAPPING).is_file():
            lines = as_text(unpacked(folder / _MAPPING), _MAPPING).splitlines()
            pairs = [line.strip().partition(" ") for line in lines if line.strip()]
            return {wnid: name.strip() or wnid for wnid, _, name in pairs}
        if (folder / _INDEX).is_file():
            return _class_index(folder / _INDEX)
        if (meta := folder / _DEVKIT / "data" / "meta.mat").is_file():
            return {wnid: name for wnid, name in _devkit(meta).values()}
    train = root.absolute().parent / "train"
    beside = (
        {p.name for p in train.iterdir() if _WNID.fullmatch(p.name)} if train.is_dir() else set()
    )
    return {wnid: wnid for wnid in beside | present}


def _class_index(path: Path) -> dict[str, str]:
    """`{"0": ["n01440764", "tench"], …}`."""
    try:
        found = json.loads(as_text(unpacked(path), str(path)))
        return {str(wnid): str(name) for wnid, name in found.values()}
    except (ValueError, AttributeError, TypeError) as error:
        raise UserError(
            f'{str(path)!r} is not {{"0": ["n01440764", "tench"], …}}: {error}'
        ) from error


def _truth(root: Path) -> dict[int, str] | None:
    """The WordNet id of each validation picture by its number, None where no ground truth is found."""
    for folder in _above(root):
        if (folder / _SOLUTION).is_file():
            return _solution(folder / _SOLUTION)
        for kit in (folder / _DEVKIT / "data", folder):
            if (kit / _TRUTH).is_file() and (kit / "meta.mat").is_file():
                return _ground_truth(kit)
    return None


def _solution(path: Path) -> dict[int, str]:
    """Rows of `ImageId,PredictionString`, the second beginning with the WordNet id."""
    found = {}
    for row in csv.reader(io.StringIO(as_text(unpacked(path), str(path)))):
        match = re.fullmatch(r"ILSVRC2012_val_(\d{8})", row[0]) if len(row) == 2 else None
        wnid = row[1].split(" ")[0] if match is not None else ""
        if match is not None and _WNID.fullmatch(wnid):
            found[int(match[1])] = wnid
        elif row and row[0] != "ImageId":
            raise UserError(
                f"{str(path)!r} has the row {str(row)[:80]}; ImageId,PredictionString was expected"
            )
    return found


def _ground_truth(kit: Path) -> dict[int, str]:
    """Line i is the class of picture i, numbered as in the development kit, which is not the sorted order."""
    synsets = _devkit(kit / "meta.mat")
    lines = as_text(unpacked(kit / _TRUTH), _TRUTH).split()
    wrong = next((line for line in lines if not line.isdecimal() or int(line) not in synsets), None)
    if wrong is not None:
        raise UserError(
            f"{str(kit / _TRUTH)!r} has {wrong!r}; numbers of the {len(synsets)} classes were expected"
        )
    return {i: synsets[int(line)][0] for i, line in enumerate(lines, 1)}


def _devkit(meta: Path) -> dict[int, tuple[str, str]]:
    """Number, WordNet id and name of the classes without children in `meta.mat`."""
    from scipy.io import loadmat
    from scipy.io.matlab import MatReadError

    try:
        synsets = loadmat(str(meta), squeeze_me=True, variable_names=["synsets"])[
            "synsets"
        ].reshape(-1)
        leaves = [row for row in synsets if int(row["num_children"]) == 0]
        return {int(row["ILSVRC2012_ID"]): (str(row["WNID"]), str(row["words"])) for row in leaves}
    except (
        OSError,
        ValueError,
        KeyError,
        TypeError,
        IndexError,
        zlib.error,
        MatReadError,
    ) as error:
        raise UserError(f"cannot read the classes in {str(meta)!r}: {error}") from error

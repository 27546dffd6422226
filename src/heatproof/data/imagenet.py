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
    """Return labels of pictures, given by their paths below `root`; None where they are not ImageNet's or nothing says.

    Folders named by WordNet id are numbered among all ids of the list beside them (`LOC_synset_mapping.txt`,
    `imagenet_class_index.json`, the development kit, or a fuller `train`), so that a part of ImageNet keeps its labels.
    """
    folders = [picture.split("/")[0] for picture in pictures if "/" in picture]
    if len(folders) == len(pictures) and all(map(_WNID.fullmatch, folders)):
        return _numbered(folders, _listed(root, set(folders)), root)
    matches = [_VALIDATION.fullmatch(picture) for picture in pictures]
    numbers = [int(match[2]) for match in matches if match is not None]
    if len(numbers) < len(pictures):
        return None
    truth = _truth(root)
    if truth is None:
        return None
    wnids = [truth.get(number) for number in numbers]
    return _numbered(wnids, _listed(root, set(truth.values())), root)


def _numbered(wnids: Sequence[str | None], listed: Mapping[str, str], root: Path) -> Classes | None:
    """Return the WordNet ids as positions in the sorted order of all that are listed, and the names of all."""
    if not listed:
        return None
    order = sorted(listed)
    class_of = {wnid: number for number, wnid in enumerate(order)}
    labels = []
    for wnid in wnids:
        if wnid is not None and wnid not in class_of:
            raise UserError(
                f"{str(root)!r} has pictures of {wnid}, which the list of {len(listed)} classes lacks"
            )
        labels.append(-1 if wnid is None else class_of[wnid])
    return labels, tuple(listed[wnid] for wnid in order)


def _above(root: Path) -> list[Path]:
    """Return the folder and those above it in which lists of classes may be."""
    root = root.absolute()
    return [root, *root.parents][:_LEVELS]


def _listed(root: Path, present: set[str]) -> Mapping[str, str]:
    """Return the name of every class of the data set by its WordNet id.

    They are read from a list in the folder or above it; without a list they are the ids `present` and those of the
    folders in `train` beside, which name themselves.
    """
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
    wnids = set(present)
    if train.is_dir():
        wnids |= {folder.name for folder in train.iterdir() if _WNID.fullmatch(folder.name)}
    return {wnid: wnid for wnid in wnids}


def _class_index(path: Path) -> dict[str, str]:
    """Return the names by WordNet id in `imagenet_class_index.json`, which has {"0": ["n01440764", "tench"], …}."""
    try:
        entries = json.loads(as_text(unpacked(path), str(path)))
        return {str(wnid): str(name) for wnid, name in entries.values()}
    except (ValueError, AttributeError, TypeError) as error:
        raise UserError(
            f'{str(path)!r} is not {{"0": ["n01440764", "tench"], …}}: {error}'
        ) from error


def _truth(root: Path) -> dict[int, str] | None:
    """Return the WordNet id of each validation picture by its number; None where there is no file of them."""
    for folder in _above(root):
        if (folder / _SOLUTION).is_file():
            return _solution(folder / _SOLUTION)
        for kit in (folder / _DEVKIT / "data", folder):
            if (kit / _TRUTH).is_file() and (kit / "meta.mat").is_file():
                return _ground_truth(kit)
    return None


def _solution(path: Path) -> dict[int, str]:
    """Return WordNet ids by number from rows of `ImageId,PredictionString`, the second beginning with the id."""
    wnids = {}
    for row in csv.reader(io.StringIO(as_text(unpacked(path), str(path)))):
        if not row or row[0] == "ImageId":
            continue
        match = re.fullmatch(r"ILSVRC2012_val_(\d{8})", row[0])
        wnid = row[1].split(" ")[0] if len(row) == 2 else ""
        if match is None or not _WNID.fullmatch(wnid):
            raise UserError(
                f"{str(path)!r} has the row {str(row)[:80]}; ImageId,PredictionString was expected"
            )
        wnids[int(match[1])] = wnid
    return wnids


def _ground_truth(kit: Path) -> dict[int, str]:
    """Return WordNet ids by number: line i is the class of picture i in the numbers of the kit, not in sorted order."""
    synsets = _devkit(kit / "meta.mat")
    wnids = {}
    for number, line in enumerate(as_text(unpacked(kit / _TRUTH), _TRUTH).split(), 1):
        if not line.isdecimal() or int(line) not in synsets:
            raise UserError(
                f"{str(kit / _TRUTH)!r} has {line!r}; numbers of the {len(synsets)} classes were expected"
            )
        wnids[number] = synsets[int(line)][0]
    return wnids


def _devkit(meta: Path) -> dict[int, tuple[str, str]]:
    """Return (WordNet id, name) of the classes in the development kit's `meta.mat`, by the kit's number of the class.

    Entries with children are groups of classes, and left out.
    """
    from scipy.io import loadmat
    from scipy.io.matlab import MatReadError

    classes = {}
    try:
        content = loadmat(str(meta), squeeze_me=True, variable_names=["synsets"])
        for row in content["synsets"].reshape(-1):
            if int(row["num_children"]) == 0:
                classes[int(row["ILSVRC2012_ID"])] = (str(row["WNID"]), str(row["words"]))
        return classes
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

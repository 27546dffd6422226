"""Regions of samples: where the thing of the label is, as masks or boxes, from arrays, folders of masks, and COCO."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from os import PathLike
from pathlib import Path, PurePosixPath
from typing import Any

import numpy as np
import torch
from PIL import Image, ImageDraw
from torch import Tensor

from heatproof.data import images
from heatproof.data.coco import coco_annotations, coco_content
from heatproof.data.dataset import Data, How, Reader, Sample
from heatproof.errors import UserError, nearest, unknown

Region = Tensor | Path | tuple[Mapping[str, Any], Sequence[Mapping[str, Any]]] | None
"""A mask, the file of one, or COCO's entry of a picture with those of objects in it."""
REGION = "_region"
"""The auxiliary tensor that holds regions; see `heatproof.models.tasks`."""
VOID = 255
"""What a palette calls neither object nor background."""


def with_regions(data: Data, regions: Any, source: Any, how: How) -> Data:
    """The data with `regions` as the auxiliary tensor `_region` (…) boolean: as large as a sample, without channels.

    An array (N, …) goes by position, a mapping by id. Of an `.npz` it is the name of an array in it; of COCO "masks" or
    "boxes", those of the objects of the label; else a folder of mask pictures with the names of the samples, where
    everything but 0, and 255 of a palette, is the region. Masks are resized as their pictures are. A sample without
    a region gets an empty one.
    """
    file = Path(source) if isinstance(source, str | PathLike) and Path(source).exists() else None
    found = coco_annotations(file) if file is not None else {}
    if isinstance(regions, str) and found:
        every = _of_coco(data, coco_content(found[data.name]), regions)
    elif isinstance(regions, str) and file is not None and file.suffix == ".npz":
        with np.load(file, allow_pickle=False) as archive:
            if regions not in archive.files:
                raise unknown(f"array of {str(file)!r}", regions, archive.files)
            every = [*torch.as_tensor(archive[regions] > 0)]
    elif isinstance(regions, str):
        every = _of_folder(data, Path(regions))
    elif isinstance(regions, Mapping):
        every = [torch.as_tensor(regions[key]) > 0 if key in regions else None for key in data.ids]
    else:
        every = [*(torch.as_tensor(regions) > 0)]
    if len(every) < len(data):
        raise UserError(
            f"{data.name!r} has {len(data)} samples but {len(every)} regions were given"
        )
    readers = partial(_readers, data.readers, every, how)
    return replace(data, readers=readers, content=partial(_content, data.content, every))


def _of_folder(data: Data, folder: Path) -> list[Region]:
    if not folder.is_dir():
        raise UserError(
            f"regions must name a folder of masks, or what the source has of them; got {str(folder)!r}"
        )
    stems = {
        path.relative_to(folder).with_suffix("").as_posix(): path
        for path in sorted(folder.rglob("*.*"))
    }
    chosen: list[Region] = [
        stems.get(PurePosixPath(key).with_suffix("").as_posix()) for key in data.ids
    ]
    if not any(chosen):
        names = f"{data.ids[0]!r}; the nearest: {', '.join(nearest(data.ids[0], stems)) or 'none'}"
        raise UserError(f"no mask in {str(folder)!r} is named like a sample, such as {names}")
    return chosen


def _of_coco(data: Data, content: Mapping[str, Any], what: str) -> list[Region]:
    """The objects of the category of each picture's label; of pictures without labels, all objects."""
    if what not in ("masks", "boxes"):
        raise unknown("regions of COCO", what, ("masks", "boxes"))
    category = {entry["id"]: entry["name"] for entry in content["categories"]}
    pictures = {str(entry["file_name"]): {**entry, "what": what} for entry in content["images"]}
    objects: dict[int, list[Mapping[str, Any]]] = {}
    for entry in content["annotations"]:
        objects.setdefault(entry["image_id"], []).append(
            {**entry, "name": category.get(entry["category_id"])}
        )
    every: list[Region] = []
    for key, label in zip(data.ids, data.labels or [None] * len(data), strict=True):
        there = objects.get(pictures[key]["id"], [])
        named = (
            "" if label == -1 else None if label is None else (data.class_names or ())[label]
        )  # "no dog" has none
        kept = [entry for entry in there if named is None or entry["name"] == named]
        every.append((pictures[key], kept) if kept else None)
    return every


def _mask(region: Region) -> Tensor | None:
    if isinstance(region, Path):
        with Image.open(region) as picture:
            values = np.asarray(
                picture if picture.mode in ("P", "L", "1", "I;16") else picture.convert("L")
            )
            return torch.from_numpy((values > 0) & ~((values == VOID) & (picture.mode == "P")))
    return _drawn(*region) if isinstance(region, tuple) else region


def _drawn(picture: Mapping[str, Any], objects: Sequence[Mapping[str, Any]]) -> Tensor:
    if not isinstance(picture.get("width"), int) or not isinstance(picture.get("height"), int):
        raise UserError(
            f"COCO's entry of {picture['file_name']!r} has no width and height, so regions cannot be drawn"
        )
    size = (picture["width"], picture["height"])
    canvas, runs = Image.new("1", size), np.zeros(size[::-1], dtype=bool)
    pen = ImageDraw.Draw(canvas)
    for entry in objects:
        shape = entry.get("segmentation")
        if picture["what"] == "boxes":
            left, top, wide, high = entry["bbox"]
            pen.rectangle((left, top, left + wide - 1, top + high - 1), fill=1)
        elif isinstance(shape, Mapping) and isinstance(
            shape.get("counts"), list
        ):  # run lengths, down the columns
            runs |= (
                np.repeat(np.arange(len(shape["counts"])) % 2 == 1, shape["counts"]).reshape(size).T
            )
        elif isinstance(shape, list):
            for outline in shape:
                pen.polygon(outline, fill=1)
        else:
            raise UserError(
                f"the mask of an object in {picture['file_name']!r} is compressed; take regions: boxes"
            )
    return torch.from_numpy(np.asarray(canvas) | runs)


def _readers(
    readers: Callable[[Sequence[int]], Sequence[Reader]],
    every: Sequence[Region],
    how: How,
    positions: Sequence[int],
) -> list[Reader]:
    return [
        partial(_read, reader, every[i], how)
        for reader, i in zip(readers(positions), positions, strict=True)
    ]


def _read(reader: Reader, region: Region, how: How) -> Sample:
    sample, mask = reader(), _mask(region)
    is_set, is_picture = "mask" in sample.aux, sample.x.ndim == 3
    shape = (
        sample.x.shape[1:]
        if sample.x.ndim > 2
        else sample.x.shape[:1]
        if is_set
        else sample.x.shape[-1:]
    )
    if mask is None:
        mask = torch.zeros(shape, dtype=torch.bool)
    elif is_picture and shape[0] == shape[1] and mask.shape != shape:
        mask = images.resize_tensor(mask[None, None].float(), shape[0], how.resize)[0, 0] >= 0.5
    if mask.shape != shape:
        raise UserError(
            f"a region of shape {tuple(mask.shape)} does not fit samples of {tuple(sample.x.shape)}"
        )
    digest = (
        sample.digest
        and hashlib.sha256(sample.digest.encode() + mask.numpy().tobytes()).hexdigest()
    )
    return sample._replace(aux={**sample.aux, REGION: mask}, digest=digest)


def _content(
    content: Callable[[Sequence[int]], Iterable[bytes]],
    every: Sequence[Region],
    positions: Sequence[int],
) -> Iterator[bytes]:
    yield from content(positions)
    for region in (every[position] for position in positions):
        file = region.read_bytes() if isinstance(region, Path) else repr(region).encode()
        yield region.numpy().tobytes() if isinstance(region, Tensor) else file

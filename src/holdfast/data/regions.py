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

from holdfast.data import images
from holdfast.data.coco import coco_annotations, coco_content
from holdfast.data.dataset import Data, How, Reader, Sample
from holdfast.errors import UserError, nearest, unknown

Mask = Callable[[], "Tensor | None"]
"""Gives the mask (…) boolean of a sample, None where it has none."""
REGION = "_region"
"""The auxiliary tensor that holds regions; see `holdfast.models.tasks`."""
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
        masks, about = _of_coco(data, found, regions)
    elif isinstance(regions, str) and file is not None and file.suffix == ".npz":
        with np.load(file, allow_pickle=False) as archive:
            if regions not in archive.files:
                raise unknown(f"array of {str(file)!r}", regions, archive.files)
            masks, about = _of_arrays(data, archive[regions])
    elif isinstance(regions, str):
        masks, about = _of_folder(data, Path(regions))
    elif isinstance(regions, Mapping):
        chosen = [_as_mask(regions.get(key)) for key in data.ids]
        masks = [partial(_as_mask, mask) for mask in chosen]
        about = [b"" if mask is None else mask.numpy().tobytes() for mask in chosen]
    else:
        masks, about = _of_arrays(data, regions)
    return replace(
        data, readers=partial(_readers, data.readers, masks, how), content=partial(_content, data.content, about)
    )


def _as_mask(mask: Any) -> Tensor | None:
    return None if mask is None else torch.as_tensor(mask) > 0


def _of_arrays(data: Data, masks: Any) -> tuple[list[Mask], list[bytes]]:
    if len(masks) < len(data):
        raise UserError(f"{data.name!r} has {len(data)} samples but {len(masks)} regions were given")
    every = torch.as_tensor(masks) > 0
    return [partial(_as_mask, mask) for mask in every], [mask.numpy().tobytes() for mask in every]


def _of_folder(data: Data, folder: Path) -> tuple[list[Mask], list[bytes]]:
    if not folder.is_dir():
        raise UserError(f"regions must name a folder of masks, or what the source has of them; got {str(folder)!r}")
    stems = {path.relative_to(folder).with_suffix("").as_posix(): path for path in sorted(folder.rglob("*.*"))}
    chosen = [stems.get(PurePosixPath(key).with_suffix("").as_posix()) for key in data.ids]
    if not any(chosen):
        close = nearest(data.ids[0], stems)
        raise UserError(
            f"no mask in {str(folder)!r} is named like a sample, such as {data.ids[0]!r}; the nearest: {close}"
        )
    return [partial(_of_file, path) for path in chosen], [path.read_bytes() if path else b"" for path in chosen]


def _of_file(path: Path | None) -> Tensor | None:
    if path is None:
        return None
    with Image.open(path) as picture:
        values = np.asarray(picture if picture.mode in ("P", "L", "1", "I;16") else picture.convert("L"))
        return torch.from_numpy((values > 0) & ~((values == VOID) & (picture.mode == "P")))


def _of_coco(data: Data, found: Mapping[str, Path], what: str) -> tuple[list[Mask], list[bytes]]:
    """The objects of the category of each picture's label; of pictures without labels, all objects."""
    if what not in ("masks", "boxes"):
        raise unknown("regions of COCO", what, ("masks", "boxes"))
    file = found[data.name]
    content = coco_content(file)
    names = [entry["name"] for entry in sorted(content["categories"], key=lambda entry: entry["id"])]
    category = {entry["id"]: entry["name"] for entry in content["categories"]}
    named = data.class_names or ()
    absent = {i for i, name in enumerate(named) if name not in names}  # "no dog"
    objects: dict[int, list[Mapping[str, Any]]] = {}
    for entry in content["annotations"]:
        objects.setdefault(entry["image_id"], []).append(entry)
    pictures = {str(entry["file_name"]): entry for entry in content["images"]}
    masks: list[Mask] = []
    for position, key in enumerate(data.ids):
        label = None if data.labels is None else data.labels[position]
        there = objects.get(pictures[key]["id"], [])
        wanted = None if label is None else "" if label < 0 or label in absent else named[label]
        kept = [entry for entry in there if wanted is None or category.get(entry["category_id"]) == wanted]
        masks.append(partial(_drawn, pictures[key], kept, what))
    return masks, [hashlib.sha256(file.read_bytes()).digest() + what.encode()] * len(data)


def _drawn(picture: Mapping[str, Any], objects: Sequence[Mapping[str, Any]], what: str) -> Tensor | None:
    if not objects:
        return None
    if not isinstance(picture.get("width"), int) or not isinstance(picture.get("height"), int):
        raise UserError(f"COCO's entry of {picture['file_name']!r} has no width and height, so regions cannot be drawn")
    size = (picture["width"], picture["height"])
    canvas = Image.new("1", size)
    pen = ImageDraw.Draw(canvas)
    runs = np.zeros(size[::-1], dtype=bool)
    for entry in objects:
        shape = entry.get("segmentation")
        if what == "boxes":
            left, top, wide, high = entry["bbox"]
            pen.rectangle((left, top, left + wide - 1, top + high - 1), fill=1)
        elif isinstance(shape, Mapping) and isinstance(shape.get("counts"), list):
            turns = np.arange(len(shape["counts"])) % 2 == 1
            runs |= np.repeat(turns, shape["counts"]).reshape(size).T
        elif isinstance(shape, list):
            for outline in shape:
                pen.polygon(outline, fill=1)
        else:
            raise UserError(f"the mask of an object in {picture['file_name']!r} is compressed; take regions: boxes")
    return torch.from_numpy(np.asarray(canvas) | runs)


def _readers(
    readers: Callable[[Sequence[int]], Sequence[Reader]], masks: Sequence[Mask], how: How, positions: Sequence[int]
) -> list[Reader]:
    return [partial(_read, reader, masks[i], how) for reader, i in zip(readers(positions), positions, strict=True)]


def _read(reader: Reader, mask: Mask, how: How) -> Sample:
    sample, region = reader(), mask()
    shape = tuple(sample.x.shape[1:]) if sample.x.ndim == 3 else None
    if region is None:
        places = shape or (sample.x.shape[:1] if "mask" in sample.aux else sample.x.shape[-1:])
        region = torch.zeros(places, dtype=torch.bool)
    elif shape is not None and shape[0] == shape[1] and tuple(region.shape) != shape:
        region = images.resize_tensor(region[None, None].float(), shape[0], how.resize)[0, 0] >= 0.5
    if shape is not None and tuple(region.shape) != shape:
        raise UserError(
            f"a region of shape {tuple(region.shape)} does not fit a sample of shape {tuple(sample.x.shape)}"
        )
    digest = sample.digest and hashlib.sha256(sample.digest.encode() + region.numpy().tobytes()).hexdigest()
    return sample._replace(aux={**sample.aux, REGION: region}, digest=digest)


def _content(content: Callable[[int], Iterable[bytes]], about: Sequence[bytes], n: int) -> Iterator[bytes]:
    yield from content(n)
    yield from about[:n]

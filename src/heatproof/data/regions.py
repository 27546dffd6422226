"""Regions of samples: where the thing of the label is, as masks, boxes or human grades, from arrays, folders and COCO."""

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
"""The region of one sample: a mask, the file of one, or COCO's entry of a picture with those of objects in it."""
REGION = "_region"
"""The auxiliary tensor that holds regions; see `heatproof.models.tasks`."""
VOID = 255
"""What a palette calls neither object nor background."""


def with_regions(data: Data, regions: Any, source: Any, how: How) -> Data:
    """Return the data with a region in each sample: where the object of its label is, as a boolean mask.

    The mask is in the auxiliary tensor `_region`, as large as a sample without its channels. `regions` is one of: an array
    (N, …) by position; a mapping by id; the name of an array, if `source` is an `.npz`; "masks" or "boxes" for COCO, those
    of the objects of the label; a folder of mask pictures with the names of the samples, in which every value but 0 is
    the region (and but 255 of a palette, which is neither object nor background). Masks are resized like their pictures.
    A sample without a region gets an empty one.

    Numbers of an array, mapping or `.npz` that are not all 0 or one other number are grades: how important people find
    each position. They are kept as float32, and the region is where they are above 0.
    """
    file = Path(source) if isinstance(source, str | PathLike) and Path(source).exists() else None
    annotations = coco_annotations(file) if file is not None else {}
    by_position: list[Region]
    if isinstance(regions, str) and annotations:
        by_position = _of_coco(data, coco_content(annotations[data.name]), regions)
    elif isinstance(regions, str) and file is not None and file.suffix == ".npz":
        by_position = _of_npz(file, regions)
    elif isinstance(regions, str):
        by_position = _of_folder(data, Path(regions))
    elif isinstance(regions, Mapping):
        by_position = _of_mapping(data, regions)
    else:
        by_position = list(masks_or_grades([regions])[0])
    if len(by_position) < len(data):
        raise UserError(
            f"{data.name!r} has {len(data)} samples but {len(by_position)} regions were given"
        )
    return replace(
        data,
        readers=partial(_readers, data.readers, by_position, how),
        content=partial(_content, data.content, by_position),
    )


def masks_or_grades(arrays: Sequence[Any]) -> list[Tensor]:
    """Return arrays as boolean masks, or all of them as float32 grades if one of them has floats that are no mask.

    A mask has no more than one value beside 0. Whole numbers always make masks: they number objects.

    >>> masks_or_grades([np.array([0.0, 1.0])])[0].tolist(), masks_or_grades([np.array([0.0, 0.5, 1.0])])[0].tolist()
    ([False, True], [0.0, 0.5, 1.0])
    """
    tensors = [torch.as_tensor(array) for array in arrays]
    is_graded = False
    for tensor in tensors:
        positive = torch.unique(tensor[tensor > 0])
        is_graded |= tensor.is_floating_point() and len(positive) > 1
    if not is_graded:
        return [tensor > 0 for tensor in tensors]
    grades = [tensor.float() for tensor in tensors]
    for grade in grades:
        if not bool((torch.isfinite(grade) & (grade >= 0)).all()):
            raise UserError(
                f"grades of regions must be finite and at least 0, got {float(grade.min()):g} to {float(grade.max()):g}"
            )
    return grades


def _of_mapping(data: Data, regions: Mapping[str, Any]) -> list[Region]:
    """Return the regions of the samples that a mapping names by id, None for the others."""
    with_region = [sample_id for sample_id in data.ids if sample_id in regions]
    tensors = masks_or_grades([regions[sample_id] for sample_id in with_region])
    by_id = dict(zip(with_region, tensors, strict=True))
    return [by_id.get(sample_id) for sample_id in data.ids]


def _of_folder(data: Data, folder: Path) -> list[Region]:
    """Return the files of masks that are named like the samples, whatever their suffixes."""
    if not folder.is_dir():
        raise UserError(
            f"regions must name a folder of masks, or what the source has of them; got {str(folder)!r}"
        )
    masks = {}
    for path in sorted(folder.rglob("*.*")):
        masks[path.relative_to(folder).with_suffix("").as_posix()] = path
    regions: list[Region] = []
    for sample_id in data.ids:
        stem = PurePosixPath(sample_id).with_suffix("").as_posix()
        regions.append(masks.get(stem))
    if not any(regions):
        first = data.ids[0]
        close = ", ".join(nearest(first, masks)) or "none"
        raise UserError(
            f"no mask in {str(folder)!r} is named like a sample, such as {first!r}; the nearest: {close}"
        )
    return regions


def _of_coco(data: Data, content: Mapping[str, Any], shapes: str) -> list[Region]:
    """Return for each sample the objects in COCO's annotations that its region is drawn from, None if there are none.

    They are the objects of the category that is the sample's label, or all objects if the data have no labels. `shapes`
    says whether "masks" or "boxes" are drawn.
    """
    if shapes not in ("masks", "boxes"):
        raise unknown("regions of COCO", shapes, ("masks", "boxes"))
    categories = {entry["id"]: entry["name"] for entry in content["categories"]}
    pictures = {str(entry["file_name"]): {**entry, "what": shapes} for entry in content["images"]}
    objects: dict[int, list[Mapping[str, Any]]] = {}
    for entry in content["annotations"]:
        with_name = {**entry, "name": categories.get(entry["category_id"])}
        objects.setdefault(entry["image_id"], []).append(with_name)
    regions: list[Region] = []
    for position, sample_id in enumerate(data.ids):
        picture = pictures[sample_id]
        of_label = objects.get(picture["id"], [])
        if data.labels is not None:
            category = _category(data, data.labels[position])
            of_label = [entry for entry in of_label if entry["name"] == category]
        regions.append((picture, of_label) if of_label else None)
    return regions


def _mask(region: Region) -> Tensor | None:
    """Return a region as a mask (H, W): drawn from objects, read from a picture, or as it is; None where there is none."""
    if isinstance(region, tuple):
        return _drawn(*region)
    if not isinstance(region, Path):
        return region
    with Image.open(region) as picture:
        holds_numbers = picture.mode in ("P", "L", "1", "I;16")
        values = np.asarray(picture if holds_numbers else picture.convert("L"))
        is_region = values > 0
        if picture.mode == "P":
            is_region &= values != VOID
        return torch.from_numpy(is_region)


def _drawn(picture: Mapping[str, Any], objects: Sequence[Mapping[str, Any]]) -> Tensor:
    """Return the mask of objects of COCO: their boxes, outlines or run lengths."""
    width, height = picture.get("width"), picture.get("height")
    if not isinstance(width, int) or not isinstance(height, int):
        raise UserError(
            f"COCO's entry of {picture['file_name']!r} has no width and height, so regions cannot be drawn"
        )
    canvas = Image.new("1", (width, height))
    pen = ImageDraw.Draw(canvas)
    mask_of_runs = np.zeros((height, width), dtype=bool)
    for entry in objects:
        segmentation = entry.get("segmentation")
        runs = segmentation.get("counts") if isinstance(segmentation, Mapping) else None
        if picture["what"] == "boxes":
            left, top, box_width, box_height = entry["bbox"]
            pen.rectangle((left, top, left + box_width - 1, top + box_height - 1), fill=1)
        elif isinstance(runs, list):
            # COCO's run lengths: of 0 and of 1 in turn, down one column after another.
            is_inside = np.arange(len(runs)) % 2 == 1
            pixels_by_column = np.repeat(is_inside, runs).reshape(width, height)
            mask_of_runs |= pixels_by_column.T
        elif isinstance(segmentation, list):
            for outline in segmentation:
                pen.polygon(outline, fill=1)
        else:
            raise UserError(
                f"the mask of an object in {picture['file_name']!r} is compressed; take regions: boxes"
            )
    return torch.from_numpy(np.asarray(canvas) | mask_of_runs)


def _readers(
    readers: Callable[[Sequence[int]], Sequence[Reader]],
    regions: Sequence[Region],
    how: How,
    positions: Sequence[int],
) -> list[Reader]:
    """Return functions that read the samples at `positions` with their regions, from those that read samples alone."""
    dtype = _dtype(regions)
    with_region: list[Reader] = []
    for reader, position in zip(readers(positions), positions, strict=True):
        with_region.append(partial(_read, reader, regions[position], how, dtype))
    return with_region


def _dtype(regions: Sequence[Region]) -> torch.dtype:
    """Return the type of all regions: float32 where they are graded."""
    for region in regions:
        if isinstance(region, Tensor):
            return region.dtype
    return torch.bool


def _read(reader: Reader, region: Region, how: How, dtype: torch.dtype) -> Sample:
    """Return a sample with the mask of its region, resized as the picture was."""
    sample, mask = reader(), _mask(region)
    shape = _shape_of_region(sample)
    if mask is None:
        mask = torch.zeros(shape, dtype=dtype)
    is_square_picture = sample.x.ndim == 3 and shape[0] == shape[1]
    if is_square_picture and mask.shape != shape:
        resized = images.resize_tensor(mask[None, None].float(), shape[0], how.resize)
        mask = resized[0, 0] >= 0.5 if dtype == torch.bool else resized[0, 0].clamp(min=0)
    if mask.shape != shape:
        raise UserError(
            f"a region of shape {tuple(mask.shape)} does not fit samples of {tuple(sample.x.shape)}"
        )
    digest = sample.digest
    if digest:
        digest = hashlib.sha256(digest.encode() + mask.numpy().tobytes()).hexdigest()
    return sample._replace(aux={**sample.aux, REGION: mask}, digest=digest)


def _content(
    content: Callable[[Sequence[int]], Iterable[bytes]],
    regions: Sequence[Region],
    positions: Sequence[int],
) -> Iterator[bytes]:
    """Yield what identifies the samples at `positions` and their regions: the bytes of masks, or what they are drawn from."""
    yield from content(positions)
    for position in positions:
        region = regions[position]
        if isinstance(region, Tensor):
            yield region.numpy().tobytes()
        elif isinstance(region, Path):
            yield region.read_bytes()
        else:
            yield repr(region).encode()


def _of_npz(file: Path, name: str) -> list[Region]:
    """Return the masks in an array of an archive."""
    with np.load(file, allow_pickle=False) as archive:
        if name not in archive.files:
            raise unknown(f"array of {str(file)!r}", name, archive.files)
        return list(masks_or_grades([archive[name]])[0])


def _category(data: Data, label: int) -> str:
    """Return the category of a label. No category is called like a label of −1, or "no dog" of a yes-or-no label."""
    return "" if label == -1 else (data.class_names or ())[label]


def _shape_of_region(sample: Sample) -> torch.Size:
    """Return the shape of a sample without its channels or features."""
    if sample.x.ndim > 2:
        return sample.x.shape[1:]
    is_set = "mask" in sample.aux
    return sample.x.shape[:1] if is_set else sample.x.shape[-1:]

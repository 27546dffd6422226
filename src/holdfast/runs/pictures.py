"""The pictures of the gallery: small JPEGs with their maps in eight bits, as a run keeps and a report shows them."""

from __future__ import annotations

import io
from collections.abc import Iterable
from typing import Any

import numpy as np
import pyarrow as pa
import torch
from PIL import Image
from torch import Tensor
from torch.nn import functional as F

from holdfast.errors import Damaged
from holdfast.runs import digests, table
from holdfast.runs.storage import Place
from holdfast.types import Exhibit, Shown

EXHIBITS = pa.schema(
    [(name, pa.string()) for name in ("dataset", "model", "explainer", "evaluation", "condition")]
    + [("level", pa.float64()), ("sample", pa.string()), ("image", pa.binary())]
    + [("map", pa.binary()), ("height", pa.int32()), ("width", pa.int32()), ("note", pa.string())]
    + [("role", pa.string()), ("pairs", pa.int32())]
)
_OF_AN_EXHIBIT = ("explainer", "condition", "level", "sample", "role", "pairs")
THUMBNAIL, LONGEST = 128, 400
JPEG = b"\xff\xd8"


def exhibit_rows(dataset: str, model: str, evaluation: str, exhibits: Iterable[Exhibit]) -> pa.Table:
    """Inputs as small JPEGs, series and rows as numbers, with maps summed over channels in eight bits."""
    rows = []
    for e in exhibits:
        image = _plane(e.image)
        pictured = image.ndim == 3
        image = _shrink(image if pictured else image.reshape(-1, image.shape[-1]), pictured)
        row: dict[str, Any] = {"dataset": dataset, "model": model, "evaluation": evaluation, "map": None}
        row |= {name: getattr(e, name) for name in _OF_AN_EXHIBIT}
        row["image"] = _jpeg(image) if pictured else image.numpy().tobytes()
        row["height"], row["width"] = image.shape[-2:]
        row["note"] = e.note or ("the middle plane" if e.image.ndim == 4 else "")
        if e.map is not None:
            flat = _plane(e.map)
            flat = flat.reshape(-1, *flat.shape[1 if flat.ndim > 1 else 0 :])
            total = _shrink(flat.sum(0, keepdim=True), pictured)[0]
            peak = float(total.abs().max()) or 1.0  # only the shape is shown, and 255 shades show it
            row["map"] = (total / peak * 127).round().to(torch.int8).numpy().tobytes()
        rows.append(row)
    return pa.Table.from_pylist(rows, schema=EXHIBITS)


def _plane(values: Tensor) -> Tensor:
    """A picture, series or row as it is, of a volume (C, D, H, W) its middle plane."""
    values = values.detach().float().cpu()
    return values[:, values.shape[1] // 2] if values.ndim == 4 else values


def read_exhibits(root: Place) -> list[Shown]:
    """The pictures of the gallery."""
    paths = digests.parts(root / "gallery")
    shown: list[Shown] = []
    for path, rows in zip(paths, table.read_parts(root, paths, EXHIBITS), strict=True):
        try:
            shown += map(_shown, rows.to_pylist())
        except (OSError, ValueError, TypeError, SyntaxError, Image.DecompressionBombError) as error:
            raise Damaged(f"{path} holds a picture that cannot be shown; {digests.ADVICE}: {error}") from error
    return shown


def _shown(row: dict[str, Any]) -> Shown:
    size: tuple[int, ...] = (row["height"], row["width"])
    if row["image"].startswith(JPEG):
        with Image.open(io.BytesIO(row["image"]), formats=("JPEG",)) as picture:
            picture.thumbnail((THUMBNAIL, THUMBNAIL))  # already so, unless a stranger made it
            image = np.asarray(picture.convert("RGB"))
    else:
        image, size = np.frombuffer(row["image"], np.float32).reshape(size), (row["width"],)
    flat = None if row["map"] is None else np.frombuffer(row["map"], np.int8).reshape(size)
    place = (row["dataset"], row["model"], row["explainer"], row["condition"], row["level"], row["sample"])
    scaled = None if flat is None else (flat / 127).astype(np.float32)
    return Shown(*place, image, scaled, row["evaluation"], row["note"], row["role"], row["pairs"])


def _shrink(picture: torch.Tensor, pictured: bool = True) -> torch.Tensor:
    """At most THUMBNAIL pixels on the longer side; of a series (C, T) so many steps, of which each is a mean."""
    if not pictured:
        return picture if picture.shape[-1] <= LONGEST else F.adaptive_avg_pool1d(picture[None], LONGEST)[0]
    height, width = picture.shape[-2:]
    scale = THUMBNAIL / max(height, width)
    if scale >= 1:
        return picture
    size = (max(1, round(height * scale)), max(1, round(width * scale)))
    return F.interpolate(picture[None], size, mode="bilinear", antialias=True, align_corners=False)[0]


def _jpeg(image: torch.Tensor) -> bytes:
    pixels = (image.clamp(0, 1) * 255).round().to(torch.uint8).permute(1, 2, 0).numpy()
    picture = Image.fromarray(pixels[..., 0] if pixels.shape[2] == 1 else pixels[..., :3])
    sink = io.BytesIO()
    picture.save(sink, "JPEG", quality=90)
    return sink.getvalue()

"""The pictures of the gallery: small JPEGs with their maps in eight bits, as a run keeps and a report shows them."""

from __future__ import annotations

import io
from collections.abc import Collection, Iterable
from functools import lru_cache
from typing import Any

import numpy as np
import pyarrow as pa
import torch
from PIL import Image
from torch import Tensor
from torch.nn import functional as F

from heatproof.data import Data
from heatproof.data.graphs import NODES
from heatproof.data.sequences import spelled
from heatproof.drawing.forms import layout
from heatproof.errors import Damaged
from heatproof.evaluation import GalleryImage, GalleryItem
from heatproof.kinds import IMAGE, kind_of_shape
from heatproof.runs import digests
from heatproof.runs.directory import RunDirectory
from heatproof.runs.storage import Place

GALLERY = pa.schema(
    [(name, pa.string()) for name in ("dataset", "model", "explainer", "evaluation", "condition")]
    + [("level", pa.float64()), ("sample", pa.string()), ("image", pa.binary())]
    + [("map", pa.binary()), ("height", pa.int32()), ("width", pa.int32()), ("note", pa.string())]
    + [("kind", pa.string()), ("words", pa.list_(pa.string()))]
)
_GALLERY_COLUMNS = ("explainer", "condition", "level", "sample", "note")
THUMBNAIL, LARGE, LONGEST = 128, 224, 400
"""The longer side of pictures, of those of a few samples, and how many steps of a series are kept."""
JPEG = b"\xff\xd8"


def gallery_rows(
    dataset: str,
    model: str,
    evaluation: str,
    gallery: Iterable[GalleryImage],
    data: Data | None = None,
    large: Collection[str] = (),
) -> pa.Table:
    """Inputs as small JPEGs or numbers, their maps summed over channels in eight bits, the words that `data` has."""
    rows = []
    for e in gallery:
        kind, image, total, words = _seen(e, data, LARGE if e.sample in large else THUMBNAIL)
        row: dict[str, Any] = {
            "dataset": dataset,
            "model": model,
            "evaluation": evaluation,
            "map": None,
        }
        row |= {name: getattr(e, name) for name in _GALLERY_COLUMNS} | {
            "kind": kind,
            "words": words,
        }
        row["image"] = _jpeg(image) if image.ndim == 3 else image.numpy().tobytes()
        row["height"], row["width"] = image.shape[-2:]
        if total is not None:
            peak = (
                float(total.abs().max()) or 1.0
            )  # only the shape is shown, and 255 shades show it
            row["map"] = (total / peak * 127).round().to(torch.int8).numpy().tobytes()
        rows.append(row)
    return pa.Table.from_pylist(rows, schema=GALLERY)


def _seen(
    e: GalleryImage, data: Data | None, side: int
) -> tuple[str, Tensor, Tensor | None, list[str]]:
    """The kind of data, what is drawn of it (C, H, W) or (C, T), its map (H, W) or (T,), and words for its parts."""
    x, aux = e.image.detach().cpu(), {name: tensor.detach().cpu() for name, tensor in e.aux.items()}
    values = None if e.map is None else e.map.detach().float().cpu()
    if x.is_floating_point() and "mask" not in aux and "adjacency" not in aux:
        kind = (kind_of_shape(x.shape) or IMAGE).name
        picture = x.float() if x.ndim < 4 else _planes(x.float(), 1.0)
        picture = _shrink(picture if x.ndim > 1 else picture[None], side)
        if values is not None:
            values = values if values.ndim < 4 else _planes(values, 0.0)
            values = _shrink(
                (values if values.ndim > 1 else values[None]).sum(0, keepdim=True), side
            )[0]
        return kind, picture, values, list((data and data.columns) or ()) if kind == "table" else []
    there = next(
        (aux[name] > 0 for name in ("attention_mask", "mask") if name in aux),
        torch.ones(len(x)) > 0,
    )
    values = None if values is None else values.reshape(len(x), -1).sum(1)[there]
    if not x.is_floating_point():
        ids = x[there].tolist()
        return "text", x[there].float()[None], values, spelled(data and data.tokenizer, ids)
    if "adjacency" not in aux:
        return "set", F.pad(x[there].float(), (0, 2))[:, :2], values, []
    edges, order = (
        aux["adjacency"][there][:, there].float(),
        aux.get(NODES, torch.arange(len(x)))[there].argsort(),
    )
    home = edges[order][:, order].numpy()  # as it was before it was moved
    return (
        "graph",
        torch.cat([_spots(home.tobytes(), len(home))[order.argsort()], edges], 1),
        values,
        [],
    )


@lru_cache(maxsize=64)
def _spots(edges: bytes, n: int) -> Tensor:
    """Where the nodes of a graph are drawn, which all explainers share."""
    return torch.from_numpy(layout(np.frombuffer(edges, np.float32).reshape(n, n)))


def _planes(volume: Tensor, empty: float) -> Tensor:
    """The middle planes of a volume (C, D, H, W) along its three axes, side by side; one corner of four is empty."""
    d, h, w = volume.shape[1:]
    whole = volume.new_full((len(volume), h + d + 1, w + d + 1), empty)
    whole[:, :h, :w], whole[:, :h, w + 1 :] = volume[:, d // 2], volume[..., w // 2].mT
    whole[:, h + 1 :, :w] = volume[:, :, h // 2]
    return whole


def read_gallery(root: Place) -> list[GalleryItem]:
    """The pictures of the gallery."""
    run_directory = RunDirectory(root)
    paths = run_directory.parts("gallery")
    shown: list[GalleryItem] = []
    for path, rows in zip(paths, run_directory.read_files(paths, GALLERY), strict=True):
        try:
            shown += map(_shown, rows.to_pylist())
        except (OSError, ValueError, TypeError, SyntaxError, Image.DecompressionBombError) as error:
            raise Damaged(
                f"{path} holds a picture that cannot be shown; {digests.ADVICE}: {error}"
            ) from error
    return shown


def _shown(row: dict[str, Any]) -> GalleryItem:
    size = (row["height"], row["width"])
    if row["image"].startswith(JPEG):
        with Image.open(io.BytesIO(row["image"]), formats=("JPEG",)) as picture:
            picture.thumbnail((LARGE, LARGE))  # already so, unless a stranger made it
            image = np.asarray(picture.convert("RGB"))
    else:
        image = np.frombuffer(row["image"], np.float32).reshape(size)
    drawn = (
        None
        if row["map"] is None
        else (np.frombuffer(row["map"], np.int8) / 127).astype(np.float32)
    )
    drawn = drawn if drawn is None or image.ndim == 2 else drawn.reshape(size)
    place = (
        row["dataset"],
        row["model"],
        row["explainer"],
        row["condition"],
        row["level"],
        row["sample"],
    )
    more = (row["evaluation"], row["note"], row["kind"], tuple(row["words"]))
    return GalleryItem(*place, image, drawn, *more)


def _shrink(picture: Tensor, side: int) -> Tensor:
    """At most `side` pixels on the longer side; of a series (C, T) so many steps, of which each is a mean."""
    if picture.ndim == 2:
        return (
            picture
            if picture.shape[-1] <= LONGEST
            else F.adaptive_avg_pool1d(picture[None], LONGEST)[0]
        )
    height, width = picture.shape[-2:]
    scale = side / max(height, width)
    if scale >= 1:
        return picture
    size = (max(1, round(height * scale)), max(1, round(width * scale)))
    return F.interpolate(picture[None], size, mode="bilinear", antialias=True, align_corners=False)[
        0
    ]


def _jpeg(image: torch.Tensor) -> bytes:
    pixels = (image.clamp(0, 1) * 255).round().to(torch.uint8).permute(1, 2, 0).numpy()
    picture = Image.fromarray(pixels[..., 0] if pixels.shape[2] == 1 else pixels[..., :3])
    sink = io.BytesIO()
    picture.save(sink, "JPEG", quality=90)
    return sink.getvalue()

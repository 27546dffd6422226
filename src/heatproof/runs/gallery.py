"""The gallery of a run: images as small JPEGs, other samples as numbers, and their maps in eight bits."""

from __future__ import annotations

import io
from collections.abc import Collection, Iterable, Sequence
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import torch
from PIL import Image
from torch import Tensor
from torch.nn import functional as F

from heatproof.data import Data
from heatproof.data.graphs import NODES
from heatproof.data.sequences import spelled
from heatproof.errors import Damaged
from heatproof.evaluation import GalleryImage, GalleryItem
from heatproof.kinds import IMAGE, kind_of_shape
from heatproof.runs import digests
from heatproof.runs.directory import RunDirectory
from heatproof.runs.graph_layout import node_layout
from heatproof.runs.storage import Place

GALLERY = pa.schema(
    [(name, pa.string()) for name in ("dataset", "model", "explainer", "evaluation", "condition")]
    + [("level", pa.float64()), ("sample", pa.string()), ("image", pa.binary())]
    + [("map", pa.binary()), ("height", pa.int32()), ("width", pa.int32()), ("note", pa.string())]
    + [("kind", pa.string()), ("words", pa.list_(pa.string()))]
)
SMALL_SIDE, LARGE_SIDE = 128, 224
"""The longer side of an image, and of the images of a few samples."""
MAX_STEPS = 400
"""The time steps of a series that are stored; each is a mean if there are more."""
LARGEST_MAP_VALUE = 127
JPEG_MAGIC = b"\xff\xd8"


class Drawable(NamedTuple):
    """What is stored of a sample: its `values` (C, H, W) or (C, T), its map (H, W) or (T,), and words for its parts."""

    kind: str
    values: Tensor
    map: Tensor | None
    words: Sequence[str] = ()


def gallery_rows(
    dataset: str,
    model: str,
    evaluation: str,
    gallery: Iterable[GalleryImage],
    data: Data | None = None,
    large: Collection[str] = (),
) -> pa.Table:
    """Return a row per image, with the words that `data` has for columns and tokens; `large` samples are larger."""
    rows = []
    for item in gallery:
        side = LARGE_SIDE if item.sample in large else SMALL_SIDE
        drawable = _drawable(item, data, side)
        values = drawable.values
        rows.append(
            {
                "dataset": dataset,
                "model": model,
                "evaluation": evaluation,
                "explainer": item.explainer,
                "condition": item.condition,
                "level": item.level,
                "sample": item.sample,
                "note": item.note,
                "kind": drawable.kind,
                "words": list(drawable.words),
                "image": _jpeg(values) if values.ndim == 3 else values.numpy().tobytes(),
                "height": values.shape[-2],
                "width": values.shape[-1],
                "map": None if drawable.map is None else _in_eight_bits(drawable.map),
            }
        )
    return pa.Table.from_pylist(rows, schema=GALLERY)


def _in_eight_bits(map: Tensor) -> bytes:
    """Return a map as int8, relative to its largest absolute value: only its shape is shown."""
    peak = float(map.abs().max()) or 1.0
    return (map / peak * LARGEST_MAP_VALUE).round().to(torch.int8).numpy().tobytes()


def _jpeg(image: Tensor) -> bytes:
    """Return a picture (C, H, W) as JPEG: the first three channels as colours, and one or two as a grey mean."""
    if image.shape[0] == 2:
        image = image.mean(0, keepdim=True)
    pixels = (image.clamp(0, 1) * 255).round().to(torch.uint8).permute(1, 2, 0).numpy()
    picture = Image.fromarray(pixels[..., 0] if pixels.shape[2] == 1 else pixels[..., :3])
    sink = io.BytesIO()
    picture.save(sink, "JPEG", quality=90)
    return sink.getvalue()


# ---- what is drawn of each kind of data ------------------------------------------------------------------------------


def _drawable(item: GalleryImage, data: Data | None, side: int) -> Drawable:
    """Return what is stored of an image of the gallery, by the kind of its data."""
    x = item.image.detach().cpu()
    aux = {name: tensor.detach().cpu() for name, tensor in item.aux.items()}
    map = None if item.map is None else item.map.detach().float().cpu()
    if x.is_floating_point() and "mask" not in aux and "adjacency" not in aux:
        return _drawable_grid(x, map, data, side)

    # Of texts, sets and graphs, padding is left out; an element has one value, the sum over its vector.
    is_element = torch.ones(len(x), dtype=torch.bool)
    for name in ("mask", "attention_mask"):
        if name in aux:
            is_element = aux[name] > 0
    if map is not None:
        map = map.reshape(len(x), -1).sum(1)[is_element]
    if not x.is_floating_point():
        tokens = x[is_element]
        words = spelled(data and data.tokenizer, tokens.tolist())
        return Drawable("text", tokens.float()[None], map, words)
    if "adjacency" not in aux:
        two_columns = F.pad(x[is_element].float(), (0, 2))[:, :2]
        return Drawable("set", two_columns, map)
    edges = aux["adjacency"][is_element][:, is_element].float()
    node_numbers = aux.get(NODES, torch.arange(len(x)))[is_element]
    return Drawable("graph", torch.cat([_node_positions(edges, node_numbers), edges], 1), map)


def _drawable_grid(x: Tensor, map: Tensor | None, data: Data | None, side: int) -> Drawable:
    """Return images, volumes, series and rows of tables, whose maps are summed over channels."""
    kind = (kind_of_shape(x.shape) or IMAGE).name
    values = _shrink(_as_plane(x.float(), empty=1.0), side)
    if map is not None:
        map = _shrink(_as_plane(map, empty=0.0).sum(0, keepdim=True), side)[0]
    columns = data.columns if kind == "table" and data is not None else None
    return Drawable(kind, values, map, columns or ())


def _as_plane(values: Tensor, empty: float) -> Tensor:
    """Return (C, H, W) or (C, T): the planes of a volume side by side, a row of a table with a channel."""
    if values.ndim >= 4:
        return _middle_planes(values, empty)
    return values if values.ndim > 1 else values[None]


def _middle_planes(volume: Tensor, empty: float) -> Tensor:
    """Return the middle planes of a volume (C, D, H, W) along its axes, side by side; one corner of four is empty."""
    depth, height, width = volume.shape[1:]
    # One empty row and column separate the planes.
    planes = volume.new_full((len(volume), height + depth + 1, width + depth + 1), empty)
    planes[:, :height, :width] = volume[:, depth // 2]
    planes[:, :height, width + 1 :] = volume[..., width // 2].mT
    planes[:, height + 1 :, :width] = volume[:, :, height // 2]
    return planes


def _shrink(picture: Tensor, side: int) -> Tensor:
    """Return at most `side` pixels on the longer side of an image, at most `MAX_STEPS` steps of a series (C, T)."""
    if picture.ndim == 2:
        if picture.shape[-1] <= MAX_STEPS:
            return picture
        return F.adaptive_avg_pool1d(picture[None], MAX_STEPS)[0]
    height, width = picture.shape[-2:]
    scale = side / max(height, width)
    if scale >= 1:
        return picture
    size = (max(1, round(height * scale)), max(1, round(width * scale)))
    shrunk = F.interpolate(
        picture[None], size, mode="bilinear", antialias=True, align_corners=False
    )
    return shrunk[0]


def _node_positions(edges: Tensor, node_numbers: Tensor) -> Tensor:
    """Return where nodes are drawn, (N, 2); a graph whose nodes were permuted is drawn as it was before."""
    order = node_numbers.argsort()
    original_edges = edges[order][:, order].numpy()
    positions = _cached_layout(original_edges.tobytes(), len(original_edges))
    return positions[order.argsort()]


@lru_cache(maxsize=64)
def _cached_layout(edges: bytes, n: int) -> Tensor:
    """Return the layout of a graph, which all explainers share."""
    return torch.from_numpy(node_layout(np.frombuffer(edges, np.float32).reshape(n, n)))


# ---- reading ---------------------------------------------------------------------------------------------------------


def read_gallery(root: Place) -> list[GalleryItem]:
    """Return the images of a run with their maps."""
    run_directory = RunDirectory(root)
    paths = run_directory.parts("gallery")
    items: list[GalleryItem] = []
    for path, rows in zip(paths, run_directory.read_files(paths, GALLERY), strict=True):
        try:
            items += map(gallery_item, rows.to_pylist())
        except (OSError, ValueError, TypeError, SyntaxError, Image.DecompressionBombError) as error:
            raise Damaged(
                f"{path} holds a picture that cannot be shown; {digests.ADVICE}: {error}"
            ) from error
    return items


def gallery_item(row: dict[str, Any]) -> GalleryItem:
    """Return the image and map of a row."""
    size = (row["height"], row["width"])
    if row["image"].startswith(JPEG_MAGIC):
        with Image.open(io.BytesIO(row["image"]), formats=("JPEG",)) as picture:
            picture.thumbnail((LARGE_SIDE, LARGE_SIDE))  # a stranger's file may be larger
            image = np.asarray(picture.convert("RGB"))
    else:
        image = np.frombuffer(row["image"], np.float32).reshape(size)

    drawn_map = None
    if row["map"] is not None:
        values = np.frombuffer(row["map"], np.int8) / LARGEST_MAP_VALUE
        drawn_map = values.astype(np.float32)
        if image.ndim == 3:
            drawn_map = drawn_map.reshape(size)
    return GalleryItem(
        dataset=row["dataset"],
        model=row["model"],
        explainer=row["explainer"],
        condition=row["condition"],
        level=row["level"],
        sample=row["sample"],
        image=image,
        map=drawn_map,
        evaluation=row["evaluation"],
        note=row["note"],
        kind=row["kind"],
        words=tuple(row["words"]),
    )

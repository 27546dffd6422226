"""Data at a path: which reader takes it."""

from __future__ import annotations

import math
import struct
from pathlib import Path

import numpy as np

from holdfast import images
from holdfast.data.arrays import open_arrays
from holdfast.data.dataset import Data, How, not_pictures, unpacked
from holdfast.data.files import existing, open_folder, open_npz, open_parquet, open_pictures
from holdfast.data.graphs import holds_tu_files, open_dgcnn, open_tu
from holdfast.data.sequences import Tokeniser, open_series, open_text_file
from holdfast.errors import UserError


def open_path(path: Path, how: How, length: int | None = None, vocabulary: Tokeniser | None = None) -> Data:
    """Data from a file or folder; with a vocabulary a file is read as text, whatever its name."""
    folder = existing(path).is_dir()
    suffix = "" if folder else Path(path.name.removesuffix(".gz")).suffix.lower()
    graphs = suffix in (".txt", ".zip") or (folder and holds_tu_files([p.name for p in path.glob("*.txt")]))
    if vocabulary is not None or graphs or suffix == ".tsv":
        not_pictures(path.name, how)
    if vocabulary is not None:
        if folder:
            raise UserError(f"{str(path)!r} is a folder; with a vocabulary give a file of texts")
        return open_text_file(path, vocabulary, length=length)
    if graphs:
        return open_dgcnn(path, length=length) if suffix == ".txt" else open_tu(path, length=length)
    if length is not None:
        raise UserError(f"length={length} is for sets, graphs and text, which {str(path)!r} does not hold")
    return _open_folder(path, how) if folder else _open_file(path, suffix, how)


def _open_folder(path: Path, how: How) -> Data:
    pixels = sorted(p for p in path.iterdir() if _is_idx(p))
    if len(pixels) > 1:
        raise UserError(f"{str(path)!r} has {', '.join(p.name for p in pixels)}; give the path of one of them")
    return open_idx(pixels[0], how) if pixels else open_folder(path, how)


def _open_file(path: Path, suffix: str, how: How) -> Data:
    if suffix == ".tsv":
        return open_series(path)
    if suffix in (".jsonl", ".ndjson"):
        raise UserError(f"{str(path)!r} holds text; give a vocabulary")
    if suffix in images.suffixes():
        return open_pictures(path.stem, [path], [path.name], how)
    readers = {".npz": open_npz, ".parquet": open_parquet, ".pq": open_parquet}
    reader = open_idx if _is_idx(path) else readers.get(suffix)
    if reader is None:
        raise UserError(
            f"cannot read {str(path)!r}; give a folder of pictures, a picture, .npz, .parquet, pictures as idx3-ubyte, "
            "graphs as .zip or .txt, series as .tsv, or any file of texts with a vocabulary"
        )
    return reader(path, how)


def _is_idx(path: Path) -> bool:
    return path.is_file() and "idx3-ubyte" in path.name


def open_idx(path: Path, how: How) -> Data:
    """Grey pictures of an `images-idx3-ubyte` file, `.gz` or not, with the labels beside it when they are there."""
    pixels = _idx(path, 3)
    name = path.name.replace("images", "labels").replace("idx3", "idx1")
    beside = [path.with_name(n) for n in (name, name.removesuffix(".gz"), f"{name}.gz")]
    found = next((p for p in beside if p != path and p.is_file()), None)
    labels = None if found is None else _idx(found, 1)
    x = pixels[:, None].astype(np.float32) / np.float32(255)
    return open_arrays(path.name.removesuffix(".gz"), x, how, labels=labels)


def _idx(path: Path, axes: int) -> np.ndarray[tuple[int, ...], np.dtype[np.uint8]]:
    """An array of bytes: magic number 0 0 8 axes, one big-endian size per axis, then the values."""
    content = unpacked(path)
    head = 4 + 4 * axes
    if len(content) < head or content[:4] != bytes((0, 0, 8, axes)):
        raise UserError(f"{str(path)!r} is not idx{axes}-ubyte: it begins with {content[:4].hex(' ') or 'nothing'}")
    shape = struct.unpack(f">{axes}I", content[4:head])
    if len(content) != head + math.prod(shape):
        raise UserError(f"{str(path)!r} says {shape} but holds {len(content) - head} values")
    return np.frombuffer(content, np.uint8, offset=head).reshape(shape)

"""Data at a path: which reader takes it, by its suffix or by what a folder holds."""

from __future__ import annotations

import math
import struct
from pathlib import Path
from typing import NamedTuple

import numpy as np

from heatproof.data import images
from heatproof.data.arrays import open_arrays
from heatproof.data.choices import Choice, expanded, grouped, one_split, only_choices
from heatproof.data.cifar import cifar_layout, open_cifar
from heatproof.data.coco import coco_annotations, open_coco
from heatproof.data.dataset import Data, How, not_pictures
from heatproof.data.files import existing, open_folder, open_npz, open_pictures
from heatproof.data.graphs import holds_tu_files, open_tu
from heatproof.data.hub import PREFIX, hub_files, local_copy, saved_files, split_of
from heatproof.data.sequences import Tokeniser, open_text_file, open_texts
from heatproof.data.series import open_series
from heatproof.data.tables import ARROW, PARQUET, group_column, open_table, read_table_texts
from heatproof.data.tars import open_tars
from heatproof.data.text import unpacked
from heatproof.errors import UserError

_SERIES = (".tsv", ".csv")
_COMPRESSED_TARS = (".tar.gz", ".tgz", ".tar.bz2", ".tar.xz", ".tar.zst")


class Texts(NamedTuple):
    """How texts become token ids: with which vocabulary, None where pictures are wanted, and padded to which length."""

    vocabulary: Tokeniser | None = None
    length: int | None = None


def open_path(source: str, how: How, texts: Texts, choice: Choice) -> Data:
    """Data from a file, a folder, a pattern of files, or a name of the hub; with a vocabulary it is read as text."""
    if source.startswith(PREFIX):
        return _open_hub(source, how, texts, choice)
    path = Path(source).expanduser()
    folder = existing(path).is_dir()
    if folder:
        return _open_folder(path, how, texts, choice)
    several = [path] if path.exists() else [path.with_name(name) for name in expanded(path.name)]
    suffix = Path(path.name.removesuffix(".gz")).suffix.lower()
    if len(several) > 1 and suffix not in (*PARQUET, *ARROW, ".tar"):
        raise UserError(
            f"{str(path)!r}: several files may be .tar, .parquet or .arrow, not {suffix or 'others'}"
        )
    if suffix in (*PARQUET, *ARROW):
        only_choices(str(path), choice, "label")
        return _open_tables(several[0].stem, several, how, texts, choice)
    if texts.vocabulary is not None:
        not_pictures(path.name, how)
        only_choices(str(path), choice, "label")
        return open_text_file(path, texts.vocabulary, length=texts.length, label=choice.label)
    if suffix == ".zip":
        not_pictures(path.name, how)
        only_choices(str(path), choice)
        return open_tu(path, length=texts.length)
    _no_length(path, texts)
    return _open_file(path, several, suffix, how, choice)


def _open_hub(source: str, how: How, texts: Texts, choice: Choice) -> Data:
    copy = local_copy(source)
    if copy is not None:
        folder, split = copy
        return _open_folder(
            folder, how, texts, choice._replace(split=split_of(source, split, choice.split))
        )
    return _open_tables(*hub_files(source, choice.split), how, texts, choice)


def _no_length(path: Path, texts: Texts) -> None:
    if texts.length is not None:
        raise UserError(
            f"length={texts.length} is for sets, graphs and text, which {str(path)!r} does not hold"
        )


def _open_tables(name: str, files: list[Path], how: How, texts: Texts, choice: Choice) -> Data:
    if texts.vocabulary is not None:
        not_pictures(name, how)
        data = open_texts(
            name, read_table_texts(files, choice.label), texts.vocabulary, texts.length
        )
    else:
        _no_length(files[0], texts)
        data = open_table(name, files, how, choice.label)
    return data if choice.groups is None else data.grouped(group_column(files, choice.groups))


def _open_folder(path: Path, how: How, texts: Texts, choice: Choice) -> Data:
    saved = saved_files(path, choice.split)
    if saved is not None:
        return _open_tables(*saved, how, texts, choice)
    own = path.resolve().name
    names = sorted(p for p in path.iterdir() if p.is_file() and not p.name.startswith("."))
    inner = (
        path / "data" if (path / "data").is_dir() else path
    )  # where the hub keeps its Parquet files
    loose = any(
        p.suffix.lower() in images.suffixes() for p in names
    )  # pictures, with perhaps a table about them
    for suffixes in (PARQUET, ARROW) if not loose else ():
        tables = [
            p
            for p in (*names, *sorted(inner.iterdir()))
            if p.suffix.lower() in suffixes and p.is_file()
        ]
        if tables:
            files = one_split(str(path), choice.split, grouped(dict.fromkeys(tables)))
            return _open_tables(own, files, how, texts, choice)
    if texts.vocabulary is not None:
        raise UserError(
            f"{str(path)!r} is a folder without tables; with a vocabulary give a file of texts"
        )
    if holds_tu_files([p.name for p in names if p.suffix == ".txt"]):
        not_pictures(path.name, how)
        only_choices(str(path), choice)
        return open_tu(path, length=texts.length)
    _no_length(path, texts)
    return _open_picture_folder(path, names, how, choice)


def _open_picture_folder(path: Path, names: list[Path], how: How, choice: Choice) -> Data:
    folders = [path, *(p for p in sorted(path.glob("cifar-*")) if p.is_dir())]
    cifar = [(folder, layout) for folder in folders if (layout := cifar_layout(folder)) is not None]
    if len(cifar) > 1:
        raise UserError(
            f"{str(path)!r} has {', '.join(folder.name for folder, _ in cifar)}; give the path of one"
        )
    if cifar:
        return open_cifar(*cifar[0], how, choice)
    annotations = coco_annotations(path)
    if annotations:
        return open_coco(path, annotations, how, choice)
    shards = [p for p in names if p.suffix.lower() == ".tar"]
    if shards and not any(p.suffix.lower() in images.suffixes() for p in names):
        files = one_split(str(path), choice.split, grouped(shards))
        return open_tars(path.resolve().name, files, how, choice.label)
    only_choices(str(path), choice, "split")
    pixels = {p.name.partition("-")[0].partition(".")[0]: p for p in names if _is_idx(p)}
    if pixels:
        if len(pixels) < sum(map(_is_idx, names)):
            raise UserError(
                f"{str(path)!r} has {', '.join(p.name for p in names if _is_idx(p))}; give the path of one"
            )
        return open_idx(one_split(str(path), choice.split, pixels), how)
    return open_folder(path, how, choice.split)


def _open_file(path: Path, several: list[Path], suffix: str, how: How, choice: Choice) -> Data:
    layout = cifar_layout(path)
    if layout is not None:
        only_choices(str(path), choice, "label")
        return open_cifar(path, layout, how, choice)
    annotations = coco_annotations(path)
    if annotations:
        return open_coco(path, annotations, how, choice)
    only_choices(str(path), choice, *(("label",) if suffix in (*_SERIES, ".npz", ".tar") else ()))
    if suffix in _SERIES:
        if how.arrays is not None:
            not_pictures(path.name, how)
        return open_series(path, how.shape, choice.label, choice.groups)
    if suffix in (".txt", ".jsonl", ".ndjson"):
        raise UserError(f"{str(path)!r} holds text; give a vocabulary")
    if path.name.lower().endswith(_COMPRESSED_TARS):
        raise UserError(
            f"{str(path)!r} is compressed; unpack it (shards of samples as .tar, CIFAR as its folder)"
        )
    if suffix == ".tar":
        return open_tars(
            several[0].stem if len(several) == 1 else several[0].parent.name,
            several,
            how,
            choice.label,
        )
    if suffix == ".npz":
        return open_npz(path, how, choice.label)
    return _open_pixels(path, suffix, how)


def _open_pixels(path: Path, suffix: str, how: How) -> Data:
    if suffix in images.suffixes():
        return open_pictures(path.stem, [path], [path.name], how)
    if _is_idx(path):
        return open_idx(path, how)
    raise UserError(
        f"cannot read {str(path)!r}; give a folder of pictures, a picture, .npz, .parquet, .arrow, .tar, pictures as "
        "idx3-ubyte, the folder of CIFAR, COCO's instances_*.json, graphs as .zip, series as .tsv or .csv, or "
        "any file of texts with a vocabulary"
    )


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
        raise UserError(
            f"{str(path)!r} is not idx{axes}-ubyte: it begins with {content[:4].hex(' ') or 'nothing'}"
        )
    shape = struct.unpack(f">{axes}I", content[4:head])
    if len(content) != head + math.prod(shape):
        raise UserError(f"{str(path)!r} says {shape} but holds {len(content) - head} values")
    return np.frombuffer(content, np.uint8, offset=head).reshape(shape)

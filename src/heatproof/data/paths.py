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
from heatproof.data.food101 import food101_lists, open_food101
from heatproof.data.graphs import holds_tu_files, open_tu
from heatproof.data.heartbeats import is_mitbih, open_mitbih
from heatproof.data.hub import PREFIX, hub_files, local_copy, saved_files, split_of
from heatproof.data.meshes import is_mesh_folder, open_h5, open_meshes
from heatproof.data.sequences import Tokeniser, open_text_file, open_texts
from heatproof.data.series import open_series
from heatproof.data.stl10 import STL10_FOLDER, is_cinic10, is_stl10, open_stl10
from heatproof.data.tables import ARROW, PARQUET, group_column, open_table, read_table_texts
from heatproof.data.tars import open_tars
from heatproof.data.text import unpacked
from heatproof.errors import UserError

_SERIES = (".tsv", ".csv")
_COMPRESSED_TARS = (".tar.gz", ".tgz", ".tar.bz2", ".tar.xz", ".tar.zst")


class Texts(NamedTuple):
    """How texts become token ids: by which vocabulary, None for pictures, and padded to which length."""

    vocabulary: Tokeniser | None = None
    length: int | None = None


def open_path(source: str, how: How, texts: Texts, choice: Choice) -> Data:
    """Open a file, a folder, a pattern of files such as `shard-{00..12}.tar`, or a Hugging Face name `hf:owner/name`.

    The format is recognised by suffix and layout. With a vocabulary in `texts` it is read as text. `choice` names the
    split and the columns of labels and groups; options that a format does not have are errors.
    """
    if source.startswith(PREFIX):
        return _open_hub(source, how, texts, choice)
    path = Path(source).expanduser()
    if existing(path).is_dir():
        return _open_folder(path, how, texts, choice)
    files = [path] if path.exists() else [path.with_name(name) for name in expanded(path.name)]
    suffix = Path(path.name.removesuffix(".gz")).suffix.lower()
    if len(files) > 1 and suffix not in (*PARQUET, *ARROW, ".tar"):
        raise UserError(
            f"{str(path)!r}: several files may be .tar, .parquet or .arrow, not {suffix or 'others'}"
        )
    if suffix in (*PARQUET, *ARROW):
        only_choices(str(path), choice, "label")
        return _open_tables(files[0].stem, files, how, texts, choice)
    if texts.vocabulary is not None:
        not_pictures(path.name, how)
        only_choices(str(path), choice, "label")
        return open_text_file(path, texts.vocabulary, length=texts.length, label=choice.label)
    if suffix == ".zip":
        not_pictures(path.name, how)
        only_choices(str(path), choice)
        return open_tu(path, length=texts.length)
    if suffix in (".off", ".h5", ".hdf5"):
        not_pictures(path.name, how)
        only_choices(str(path), choice)
        open_points = open_meshes if suffix == ".off" else open_h5
        return open_points(path, choice, texts.length)
    _no_length(path, texts)
    return _open_file(path, files, suffix, how, choice)


def _open_hub(source: str, how: How, texts: Texts, choice: Choice) -> Data:
    """Open a data set named `hf:…`: a local folder if there is one of that name, else one of the Hugging Face hub."""
    copy = local_copy(source)
    if copy is None:
        name, files = hub_files(source, choice.split)
        return _open_tables(name, files, how, texts, choice)
    folder, split = copy
    choice = choice._replace(split=split_of(source, split, choice.split))
    return _open_folder(folder, how, texts, choice)


def _no_length(path: Path, texts: Texts) -> None:
    if texts.length is not None:
        raise UserError(
            f"length={texts.length} is for sets, graphs and text, which {str(path)!r} does not hold"
        )


def _open_tables(name: str, files: list[Path], how: How, texts: Texts, choice: Choice) -> Data:
    """Open the texts or pictures of Parquet or Arrow files."""
    if texts.vocabulary is not None:
        not_pictures(name, how)
        lines = read_table_texts(files, choice.label)
        data = open_texts(name, lines, texts.vocabulary, texts.length)
    else:
        _no_length(files[0], texts)
        data = open_table(name, files, how, choice.label)
    if choice.groups is None:
        return data
    return data.grouped(group_column(files, choice.groups))


def _open_folder(path: Path, how: How, texts: Texts, choice: Choice) -> Data:
    """Open a folder by the layout of its files: a saved data set, tables, graphs, meshes, points, else pictures."""
    saved = saved_files(path, choice.split)
    if saved is not None:
        name, saved_tables = saved
        return _open_tables(name, saved_tables, how, texts, choice)
    files = sorted(p for p in path.iterdir() if p.is_file() and not p.name.startswith("."))
    tables = _tables_in(path, files)
    if tables:
        tables_of_split = one_split(str(path), choice.split, grouped(tables))
        return _open_tables(path.resolve().name, tables_of_split, how, texts, choice)
    if texts.vocabulary is not None:
        raise UserError(
            f"{str(path)!r} is a folder without tables; with a vocabulary give a file of texts"
        )
    if holds_tu_files([file.name for file in files if file.suffix == ".txt"]):
        not_pictures(path.name, how)
        only_choices(str(path), choice)
        return open_tu(path, length=texts.length)
    has_h5 = any(file.suffix.lower() == ".h5" for file in files)
    if has_h5 or is_mesh_folder(path):
        not_pictures(path.name, how)
        only_choices(str(path), choice, "split")
        open_points = open_h5 if has_h5 else open_meshes
        return open_points(path, choice, texts.length)
    _no_length(path, texts)
    return _open_picture_folder(path, files, how, choice)


def _open_published(path: Path, how: How, choice: Choice) -> Data | None:
    """Open a folder in the layout of MIT-BIH, STL-10 or Food-101; None for any other."""
    if is_mitbih(path):
        only_choices(str(path), choice, "split", "label")
        return open_mitbih(path, choice, how.shape)
    for folder in (path, path / STL10_FOLDER):
        if folder.is_dir() and is_stl10(folder):
            only_choices(str(path), choice, "split")
            return open_stl10(folder, how, choice)
    lists = food101_lists(path)
    if lists:
        only_choices(str(path), choice, "split")
        return open_food101(path, lists, how, choice.split)
    return None


def _open_picture_folder(path: Path, files: list[Path], how: How, choice: Choice) -> Data:
    """Open a folder in the layout of a published data set, of tar shards or idx files, or of plain pictures."""
    published = _open_published(path, how, choice)
    if published is not None:
        return published
    # CIFAR in the folder itself or in those that its archives unpack to.
    cifar = []
    for folder in (path, *sorted(path.glob("cifar-*"))):
        layout = cifar_layout(folder) if folder.is_dir() else None
        if layout is not None:
            cifar.append((folder, layout))
    if len(cifar) > 1:
        raise UserError(
            f"{str(path)!r} has {', '.join(folder.name for folder, _ in cifar)}; give the path of one"
        )
    if cifar:
        return open_cifar(*cifar[0], how, choice)
    annotations = coco_annotations(path)
    if annotations:
        return open_coco(path, annotations, how, choice)
    shards = [file for file in files if file.suffix.lower() == ".tar"]
    has_pictures = any(file.suffix.lower() in images.suffixes() for file in files)
    if shards and not has_pictures:
        shards_of_split = one_split(str(path), choice.split, grouped(shards))
        return open_tars(path.resolve().name, shards_of_split, how, choice.label)
    only_choices(str(path), choice, "split")
    idx_files = [file for file in files if _is_idx(file)]
    if idx_files:
        # `train-images-idx3-ubyte.gz` is the split `train`.
        by_split = {file.name.partition("-")[0].partition(".")[0]: file for file in idx_files}
        if len(by_split) < len(idx_files):
            names = ", ".join(file.name for file in idx_files)
            raise UserError(f"{str(path)!r} has {names}; give the path of one")
        return open_idx(one_split(str(path), choice.split, by_split), how)
    if is_cinic10(path):
        # Like CIFAR's, its pictures of 32 × 32 stay as they are unless a size is given.
        how = how._replace(pictures=how.arrays)
    return open_folder(path, how, choice.split)


def _open_file(path: Path, files: list[Path], suffix: str, how: How, choice: Choice) -> Data:
    """Open a file by its suffix, `.gz` left aside; `files` are those of a pattern of shards."""
    layout = cifar_layout(path)
    if layout is not None:
        only_choices(str(path), choice, "label")
        return open_cifar(path, layout, how, choice)
    if is_stl10(path):
        only_choices(str(path), choice)
        return open_stl10(path, how, choice)
    if is_mitbih(path):
        only_choices(str(path), choice, "label")
        return open_mitbih(path, choice, how.shape)
    annotations = coco_annotations(path)
    if annotations:
        return open_coco(path, annotations, how, choice)
    has_labels = suffix in (*_SERIES, ".npz", ".tar")
    only_choices(str(path), choice, *(("label",) if has_labels else ()))
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
        name = files[0].stem if len(files) == 1 else files[0].parent.name
        return open_tars(name, files, how, choice.label)
    if suffix == ".npz":
        return open_npz(path, how, choice.label)
    return _open_pixels(path, suffix, how)


def _open_pixels(path: Path, suffix: str, how: How) -> Data:
    """Open a single picture, or the pictures of an idx file; an error for any other file lists what can be read."""
    if suffix in images.suffixes():
        return open_pictures(path.stem, [path], [path.name], how)
    if _is_idx(path):
        return open_idx(path, how)
    raise UserError(
        f"cannot read {str(path)!r}; give a folder of pictures, a picture, .npz, .parquet, .arrow, .tar, pictures as "
        "idx3-ubyte, the folder of CIFAR or STL-10, COCO's instances_*.json, graphs as .zip, meshes as .off, points as .h5, "
        "series as .tsv or .csv, or "
        "any file of texts with a vocabulary"
    )


def _is_idx(path: Path) -> bool:
    return path.is_file() and "idx3-ubyte" in path.name


def open_idx(path: Path, how: How) -> Data:
    """Open grey pictures of an `images-idx3-ubyte` file, `.gz` or not, with the labels beside it if they are there."""
    pixels = _idx(path, 3)
    label_name = path.name.replace("images", "labels").replace("idx3", "idx1")
    labels = None
    for name in (label_name, label_name.removesuffix(".gz"), f"{label_name}.gz"):
        file = path.with_name(name)
        if file != path and file.is_file():
            labels = _idx(file, 1)
            break
    x = pixels[:, None].astype(np.float32) / np.float32(255)
    return open_arrays(path.name.removesuffix(".gz"), x, how, labels=labels)


def _idx(path: Path, axes: int) -> np.ndarray[tuple[int, ...], np.dtype[np.uint8]]:
    """Return the array of bytes in an idx file, the format of MNIST, with so many axes.

    The file has the magic number 0 0 8 axes, one big-endian size per axis, and then the values.
    """
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


def _tables_in(path: Path, files: list[Path]) -> list[Path]:
    """Return the Parquet files of a folder, else its Arrow files; none where pictures lie beside them.

    The hub keeps its Parquet files in `data`. A table beside pictures is about them.
    """
    if any(file.suffix.lower() in images.suffixes() for file in files):
        return []
    if (path / "data").is_dir():
        files = [*files, *sorted((path / "data").iterdir())]
    for suffixes in (PARQUET, ARROW):
        tables = [file for file in files if file.suffix.lower() in suffixes and file.is_file()]
        if tables:
            return tables
    return []

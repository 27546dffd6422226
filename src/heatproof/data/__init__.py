"""Data sets as heatproof sees them: stable ids first, samples decoded when they are asked for.

`open_data` accepts tensors, arrays, a `Batch`, any map-style Dataset; folders of pictures, ImageNet, COCO, CIFAR, STL-10, idx,
`.npz`, Parquet, Arrow, tar shards, Hugging Face's data sets; sets of points, meshes, graphs, series and text; and every name
that a study file takes. See docs/data.md.
A sample that cannot be read is recorded with its error; it never stops the run and never leaves a gap.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import DataLoader, IterableDataset, default_collate

from heatproof.data import images, sources
from heatproof.data.arrays import as_tensor, open_arrays, open_dataset
from heatproof.data.choices import NO_LABEL, Choice, only_choices, whole_labels
from heatproof.data.dataset import Data, How, Loaded, Sample, Size, how_to, not_pictures
from heatproof.data.encodings import (
    class_names_of,
    encoding_of_rows,
    holds_texts,
    is_encoding,
    open_encoding,
)
from heatproof.data.files import existing, open_pictures
from heatproof.data.frames import is_frame, open_frame
from heatproof.data.graphs import Graph, is_graph, open_graphs, open_pyg
from heatproof.data.hub import PREFIX, check_hub_name, tokeniser
from heatproof.data.images import Resize
from heatproof.data.padding import with_padding
from heatproof.data.paths import Texts, open_path
from heatproof.data.regions import with_regions
from heatproof.data.sequences import Tokeniser, Vocabulary, lines_of, open_texts
from heatproof.data.subsets import Subset, as_subset, order_by_hash
from heatproof.data.tables import Lines
from heatproof.errors import UserError
from heatproof.types import Batch

__all__ = [
    "Data",
    "Loaded",
    "Sample",
    "Size",
    "Subset",
    "Vocabulary",
    "check_hub_name",
    "existing",
    "holds_texts",
    "is_encoding",
    "open_data",
    "order_by_hash",
]


def open_data(
    source: Any,
    *,
    size: Size = "auto",
    resize: Resize = "squash",
    shape: Sequence[int] | None = None,
    name: str | None = None,
    labels: Sequence[int] | Mapping[str, int] | None = None,
    groups: Sequence[str] | Mapping[str, str] | str | int | None = None,
    limit: int | None = None,
    sample: int | Mapping[str, Any] | Subset | None = None,
    length: int | None = None,
    vocabulary: Tokeniser | None = None,
    split: str | None = None,
    label: str | None = None,
    regions: Any = None,
    pad: int | None = None,
    allow_code: bool = False,
) -> Data:
    """Open tensors, arrays, a Batch, a Dataset, sets, graphs, texts, a path, or a name, without reading much yet.

    Names: `bundled:photographs`; `hf:owner/name@split` of the Hugging Face hub, or `hf:folder`; `python:module:factory`
    and `python:path/to/file.py:factory`, which run code and so need `allow_code`. docs/data.md has every form.

    `size` squashes pictures to size × size, or with `resize="crop"` scales the short side to size / 0.875 and takes
    the central square; None keeps them; "auto" is 224 for encoded pictures and None for tensors and arrays. `shape`
    says what each row of an array is. `limit` takes the first samples, `sample` random ones: a number of them, or a
    mapping of `n`, `per_class` and `seed`. `split` and `label` choose where there are several. `labels` go by position or by
    id, and so do `groups` of samples that are not independent, by the level of their folder, 0 the outermost, or by
    the name of a column of a table.
    Samples of sets (n_i, F), graphs and texts are padded to `length`, by default that of the largest; longer texts are
    cut. A `vocabulary`, its path, a function to token ids, or `hf:owner/name` makes the source text. `regions` say
    where the thing of the label is: masks (N, …) or by id, an array of an `.npz`, a folder of mask pictures, COCO's
    "masks" or "boxes". `pad` adds so many zeros on every side of a picture or a series.

    >>> pixels = torch.rand(12, 3, 8, 8)
    >>> data = open_data((pixels, torch.arange(12)), limit=3)
    >>> data.ids, data.load([2]).batch.label
    (('0000', '0001', '0002'), tensor([2]))
    >>> sets = open_data([torch.rand(5, 3), torch.rand(2, 3)])
    >>> sets.shape, sets.load([1]).batch.aux["mask"].tolist()
    ((5, 3), [[True, True, False, False, False]])
    """
    source, label = _unwrapped(source, label)
    is_named = isinstance(source, str | os.PathLike)
    # How the data were opened, for the manifest of a run.
    prepared: dict[str, Any] = {"source": str(source) if is_named else type(source).__name__}
    options = {
        "size": size,
        "resize": resize,
        "length": length,
        "split": split,
        "label": label,
        "pad": pad,
    }
    prepared.update({key: value for key, value in options.items() if value is not None})
    if isinstance(source, str):
        source, size, name = sources.resolve_name(source, size, resize, name, allow_code)
    how = how_to(size, resize, shape)
    if isinstance(vocabulary, str) and vocabulary.startswith(PREFIX):
        vocabulary = tokeniser(vocabulary, length)
    group_column = groups if isinstance(groups, str) else None
    choice = Choice(split, label, group_column)

    if is_frame(source):
        data = open_frame(source, choice)
    else:
        # Paths and data of variable length come first; what remains are samples of one shape.
        opened = _open_path_or_padded(source, how, Texts(vocabulary, length), choice)
        data = _open_equal_shapes(source, size, how) if opened is None else opened

    if label == NO_LABEL:
        data = replace(data, labels=None, class_names=None)
    if labels is not None:
        ordered = [labels.get(key) for key in data.ids] if isinstance(labels, Mapping) else labels
        data = replace(data, labels=whole_labels(ordered, data.name), class_names=None)
    if groups is not None:
        data = _with_groups(data, groups)
    if regions is not None:
        data = with_regions(data, regions, source, how)
    if pad is not None:
        data = with_padding(data, pad)
    if name is not None:
        data = replace(data, name=name)
    if data.columns:
        prepared["columns"] = ", ".join(data.columns)
    data = replace(data, prepared=prepared)
    if sample is not None:
        return _random_subset(data, as_subset(sample), limit)
    return data if limit is None else data.limit(limit)


def _unwrapped(source: Any, label: str | None) -> tuple[Any, str | None]:
    """Return the source without its wrapping, and the name of its label column.

    A DataLoader becomes its Dataset, and a pair (DataFrame, labels) one frame with the labels as a column. Any other
    source is returned as it is, with the given `label`.
    """
    if isinstance(source, DataLoader):
        source = _dataset_of(source)
    if isinstance(source, tuple) and len(source) == 2 and is_frame(source[0]):
        return _with_label_column(*source)
    return source, label


def _dataset_of(loader: DataLoader[Any]) -> Any:
    """Return the Dataset of a DataLoader, whose samples are read one by one; refuse one that changes them in batches."""
    if isinstance(loader.dataset, IterableDataset) or loader.collate_fn is not default_collate:
        raise UserError(
            "a DataLoader is read by its Dataset, which must have __getitem__, and without a collate_fn of its own; "
            "give the samples as a tensor or a Dataset"
        )
    return loader.dataset


def _with_label_column(frame: Any, labels: Any) -> tuple[Any, str]:
    """Return a frame with the labels as a column of their own, and the name of the column."""
    if len(labels) != len(frame):
        raise UserError(f"the DataFrame has {len(frame)} rows but {len(labels)} labels")
    name = "label"
    while name in frame.columns:
        name += "_"
    return frame.assign(**{name: np.asarray(labels)}), name


def _with_groups(data: Data, groups: Sequence[str] | Mapping[str, str] | str | int) -> Data:
    """Return the data with groups of dependent samples: by position, by id, by the level of a folder, or by a column.

    The column of a table, `groups` as text, was read when the table was opened; other data refuse one.
    """
    if isinstance(groups, str):
        if data.groups is None:
            raise UserError(
                f"groups={groups!r} names a column, and {data.name!r} has none to name; give a list, a mapping by id, "
                "or the level of a folder"
            )
        return data
    if isinstance(groups, Mapping):
        # A sample that the mapping leaves out is a group of its own.
        groups = [groups.get(key, key) for key in data.ids]
    return data.grouped(groups)


def _random_subset(data: Data, subset: Subset, limit: int | None) -> Data:
    """Return a random subset of the data, of its first `limit` samples if given, with a note on how it was drawn."""
    if limit is not None:
        data.limit(limit)  # raises an error if it is not a number of samples
    options = {"n": subset.n, "per_class": subset.per_class, "seed": subset.seed, "limit": limit}
    note = ", ".join(f"{key}: {value}" for key, value in options.items() if value is not None)
    chosen = data.only(subset.positions(data, limit))
    return replace(chosen, prepared={**chosen.prepared, "sample": note})


def _open_path_or_padded(source: Any, how: How, texts: Texts, choice: Choice) -> Data | None:
    """Open a path, graphs, texts, or sets (n_i, F) of different sizes; return None for any other source.

    All but paths are padded to one length, as samples may have different numbers of elements.
    """
    length, vocabulary = texts.length, texts.vocabulary
    if isinstance(source, str | os.PathLike):
        return open_path(os.fspath(source), how, texts, choice)
    only_choices(type(source).__name__, choice)
    values, labels = _values_and_labels(source)

    # Graphs of PyTorch Geometric.
    first = None if is_graph(source) else _first(source)
    if is_graph(source) or is_graph(first):
        not_pictures("graphs", how)
        return open_pyg(source, length=length)

    # A Dataset whose rows are mappings with a text each, such as those of Hugging Face.
    if vocabulary is not None and isinstance(first, Mapping):
        not_pictures("texts", how)
        return _open_rows_of_text(source, vocabulary, length)

    # A list of texts; without a vocabulary, strings may be paths of pictures.
    are_pictures = vocabulary is None and all(map(_is_picture, values))
    if values and not are_pictures and all(isinstance(value, str) for value in values):
        not_pictures("texts", how)
        if vocabulary is None:
            raise UserError(
                "texts need a vocabulary, such as vocabulary=Vocabulary.fit(training_texts)"
            )
        return open_texts("texts", Lines(values, labels), vocabulary, length)

    # Sets of different sizes; those of one size are an ordinary array, unless a length is given to pad them to.
    if _are_sets(values) and (length is not None or len({len(value) for value in values}) > 1):
        not_pictures("sets", how)
        sets = [Graph(torch.as_tensor(value).detach().cpu().float()) for value in values]
        return open_graphs("sets", sets, length=length, labels=labels)

    for option, value in (("length", length), ("vocabulary", vocabulary)):
        if value is not None:
            raise UserError(
                f"{option} does not fit {type(source).__name__}: give sets of (n_i, F), graphs or texts"
            )
    return None


def _open_rows_of_text(source: Any, vocabulary: Tokeniser, length: int | None) -> Data:
    """Open a Dataset whose rows are mappings with a text and perhaps a label; every row is read now."""
    kind = type(source).__name__
    rows = []
    for i in range(len(source)):
        try:
            rows.append(source[i])
        except images.READ_ERRORS as error:
            raise UserError(
                f"{kind!r}: entry {i + 1} cannot be read: {error or type(error).__name__}"
            ) from error
    data = open_texts(kind, lines_of(rows, kind), vocabulary, length)
    return replace(data, class_names=class_names_of(source) or data.class_names)


def _values_and_labels(source: Any) -> tuple[list[Any], list[Any] | None]:
    """Return the values and labels of a list or tuple of samples, labels None if it has none.

    Three forms are understood: [value, …], [(value, label), …] and ([value, …], labels). For any other source, such as
    an array or a pair (x, y) of arrays, there are no values.
    """
    if not isinstance(source, list | tuple):
        return [], None
    is_pair_of_arrays = (
        isinstance(source, tuple) and bool(source) and isinstance(source[0], Tensor | np.ndarray)
    )
    if is_pair_of_arrays:
        return [], None

    # ([value, …], labels)
    if isinstance(source, tuple) and len(source) == 2 and isinstance(source[0], list | tuple):
        values, labels = source
        if isinstance(labels, Tensor | np.ndarray):
            labels = labels.tolist()
        are_numbers = isinstance(labels, list | tuple) and all(
            isinstance(label, int | float) for label in labels
        )
        if are_numbers:
            return list(values), list(labels)

    # [(value, label), …]
    if source and all(isinstance(item, list | tuple) and len(item) == 2 for item in source):
        return [value for value, _ in source], [label for _, label in source]

    # [value, …]
    return list(source), None


def _is_picture(value: Any) -> bool:
    return isinstance(value, str | os.PathLike) and Path(value).suffix.lower() in images.suffixes()


def _are_sets(values: Sequence[Any]) -> bool:
    """Return whether all values are arrays (n_i, F) with the same number F of features; False for no values."""
    are_tables = all(isinstance(value, Tensor | np.ndarray) and value.ndim == 2 for value in values)
    return are_tables and len({value.shape[1] for value in values}) == 1


def _first(source: Any) -> Any:
    """Return the first item of a list or map-style Dataset; None for other sources and where it cannot be read."""
    if isinstance(source, Mapping | Tensor | np.ndarray | Batch | Data | IterableDataset):
        return None
    if not _by_position(source):
        return None
    try:
        return source[0] if len(source) else None
    except images.READ_ERRORS:
        return None


def _by_position(source: Any) -> bool:
    """Return whether samples can be read by position: `source[i]` and `len(source)`."""
    return hasattr(source, "__getitem__") and hasattr(source, "__len__")


def _arrays_by_name(source: Any) -> Mapping[str, Any] | None:
    """Return the inputs "x", the labels "y" if any, and further inputs of the model by name; None for other sources.

    The source may be an array x, a pair of arrays (x, y), or a mapping with "x".
    """
    if isinstance(source, Tensor | np.ndarray):
        return {"x": source}
    if isinstance(source, tuple) and len(source) == 2:
        x, y = source
        if isinstance(x, Tensor | np.ndarray) and isinstance(y, Tensor | np.ndarray):
            return {"x": x, "y": y}
    if isinstance(source, Mapping) and isinstance(source.get("x"), Tensor | np.ndarray):
        return source
    return None


def _open_equal_shapes(source: Any, size: Size, how: How) -> Data:
    """Open data in memory whose samples all have one shape, by the type of the source; refuse what is none of these.

    In order: open data, tokenised texts, a `Batch`, a list of paths of pictures, arrays, a map-style Dataset. `size` and
    `how` say how pictures are scaled and what a row of an array is.
    """
    if isinstance(source, Data):
        if size != "auto" or how.shape is not None:
            raise UserError(
                f"{source.name!r} is open already; give size and shape where it is opened"
            )
        return source

    # The output of a Hugging Face tokenizer: input_ids, attention_mask, …
    if is_encoding(source):
        return open_encoding(source)

    if isinstance(source, Batch):
        data = open_arrays(
            "data", source.x, how, labels=source.label, ids=source.ids, aux=source.aux
        )
        return replace(data, tokenizer=source.tokenizer)

    values, labels = _values_and_labels(source)
    if values and all(map(_is_picture, values)):
        paths = [existing(Path(value).expanduser()) for value in values]
        ids = [path.name for path in paths]
        if len(set(ids)) < len(ids):
            # File names repeat, so whole paths tell the pictures apart.
            ids = [str(path) for path in paths]
        return open_pictures("pictures", paths, ids, how, labels)

    arrays = _arrays_by_name(source)
    if arrays is not None:
        further_inputs = {key: value for key, value in arrays.items() if key not in ("x", "y")}
        aux = {key: as_tensor(np.asarray(value)) for key, value in further_inputs.items()}
        return open_arrays("data", arrays["x"], how, labels=arrays.get("y"), aux=aux)

    # A map-style Dataset; its rows may hold token ids.
    if _by_position(source) and not isinstance(source, (Mapping, IterableDataset)):
        columns = encoding_of_rows(source)
        data = open_dataset(source, how) if columns is None else open_encoding(columns)
        return replace(data, class_names=class_names_of(source))
    raise UserError(
        f"cannot read data from {type(source).__name__}; give a tensor, (x, y), {{'x': …}} with more inputs by name, a "
        "Batch, a DataFrame, a path, a list of paths, sets, graphs or texts, or a Dataset with __getitem__ and __len__ "
        "(of a DataLoader, its .dataset; of a DatasetDict, one of its splits)"
    )

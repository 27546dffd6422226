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
    given = str(source) if isinstance(source, str | os.PathLike) else type(source).__name__
    options = {
        "size": size,
        "resize": resize,
        "length": length,
        "split": split,
        "label": label,
        "pad": pad,
    }
    prepared = {
        "source": given,
        **{key: value for key, value in options.items() if value is not None},
    }
    if isinstance(source, str):
        source, size, name = sources.resolve_name(source, size, resize, name, allow_code)
    how = how_to(size, resize, shape)
    if isinstance(vocabulary, str) and vocabulary.startswith(PREFIX):
        vocabulary = tokeniser(vocabulary, length)
    column = groups if isinstance(groups, str) else None
    choice = Choice(split, label, column)
    data = (
        open_frame(source, choice)
        if is_frame(source)
        else _padded(source, how, Texts(vocabulary, length), choice)
    )
    if data is None:
        data = _dispatch(source, size, how)
    if label == NO_LABEL:
        data = replace(data, labels=None, class_names=None)
    if labels is not None:
        ordered = [labels.get(key) for key in data.ids] if isinstance(labels, Mapping) else labels
        data = replace(data, labels=whole_labels(ordered, data.name), class_names=None)
    if column is not None and data.groups is None:
        told = "give a list, a mapping by id, or the level of a folder"
        raise UserError(
            f"groups={column!r} names a column, and {data.name!r} has none to name; {told}"
        )
    if groups is not None and column is None:
        named = (
            [groups.get(key, key) for key in data.ids] if isinstance(groups, Mapping) else groups
        )
        data = data.grouped(named)
    if regions is not None:
        data = with_regions(data, regions, source, how)
    if pad is not None:
        data = with_padding(data, pad)
    if name is not None:
        data = replace(data, name=name)
    data = replace(
        data, prepared=prepared | ({"columns": ", ".join(data.columns)} if data.columns else {})
    )
    if sample is not None:
        return _random_part(data, as_subset(sample), limit)
    return data if limit is None else data.limit(limit)


def _unwrapped(source: Any, label: str | None) -> tuple[Any, str | None]:
    """Return the data set of a loader, or a frame with the column of its labels; anything else as it is."""
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


def _random_part(data: Data, subset: Subset, limit: int | None) -> Data:
    """The samples of a subset, and how they were chosen for the manifest."""
    if limit is not None:
        data.limit(limit)  # refuses what is no number of samples
    chosen = {key: getattr(subset, key) for key in ("n", "per_class", "seed")}
    if limit is not None:
        chosen["limit"] = limit
    said = ", ".join(f"{key}: {value}" for key, value in chosen.items() if value is not None)
    part = data.only(subset.positions(data, limit))
    return replace(part, prepared={**part.prepared, "sample": said})


def _padded(source: Any, how: How, texts: Texts, choice: Choice) -> Data | None:
    """Data of samples that have a number of elements each, None when the source is of another kind."""
    length, vocabulary = texts.length, texts.vocabulary
    if isinstance(source, str | os.PathLike):
        return open_path(os.fspath(source), how, texts, choice)
    only_choices(type(source).__name__, choice)
    values, labels = _with_labels(source)
    first = None if is_graph(source) else _first(source)
    if is_graph(source) or is_graph(first):
        not_pictures("graphs", how)
        return open_pyg(source, length=length)
    if vocabulary is not None and isinstance(first, Mapping):
        not_pictures("texts", how)
        kind, rows = type(source).__name__, []
        for i in range(len(source)):
            try:
                rows.append(source[i])
            except images.READ_ERRORS as error:
                raise UserError(
                    f"{kind!r}: entry {i + 1} cannot be read: {error or type(error).__name__}"
                ) from error
        data = open_texts(kind, lines_of(rows, kind), vocabulary, length)
        return replace(data, class_names=class_names_of(source) or data.class_names)
    pictures = vocabulary is None and all(map(_is_picture, values))
    if values and not pictures and all(isinstance(value, str) for value in values):
        not_pictures("texts", how)
        if vocabulary is None:
            raise UserError(
                "texts need a vocabulary, such as vocabulary=Vocabulary.fit(training_texts)"
            )
        return open_texts("texts", Lines(values, labels), vocabulary, length)
    if _are_sets(values) and (length is not None or len({len(value) for value in values}) > 1):
        not_pictures("sets", how)
        sets = [Graph(torch.as_tensor(value).detach().cpu().float()) for value in values]
        return open_graphs("sets", sets, length=length, labels=labels)
    for what, given in (("length", length), ("vocabulary", vocabulary)):
        if given is not None:
            raise UserError(
                f"{what} does not fit {type(source).__name__}: give sets of (n_i, F), graphs or texts"
            )
    return None


def _with_labels(source: Any) -> tuple[list[Any], list[Any] | None]:
    """Values and labels of [v, …], [(v, label), …] or ([v, …], labels); nothing of anything else."""
    x_and_y = (
        isinstance(source, tuple) and bool(source) and isinstance(source[0], Tensor | np.ndarray)
    )
    if x_and_y or not isinstance(source, list | tuple):
        return [], None
    if isinstance(source, tuple) and len(source) == 2 and isinstance(source[0], list | tuple):
        labels = source[1].tolist() if isinstance(source[1], Tensor | np.ndarray) else source[1]
        if isinstance(labels, list | tuple) and all(
            isinstance(label, int | float) for label in labels
        ):
            return list(source[0]), list(labels)
    if source and all(isinstance(item, list | tuple) and len(item) == 2 for item in source):
        return [item[0] for item in source], [item[1] for item in source]
    return list(source), None


def _is_picture(value: Any) -> bool:
    return isinstance(value, str | os.PathLike) and Path(value).suffix.lower() in images.suffixes()


def _are_sets(values: Sequence[Any]) -> bool:
    numbers = all(isinstance(value, Tensor | np.ndarray) and value.ndim == 2 for value in values)
    return numbers and len({value.shape[1] for value in values}) == 1


def _first(source: Any) -> Any:
    """The first item of a list or map-style Dataset, None when it cannot be had."""
    if isinstance(
        source, Mapping | Tensor | np.ndarray | Batch | Data | IterableDataset
    ) or not _by_position(source):
        return None
    try:
        return source[0] if len(source) else None
    except images.READ_ERRORS:
        return None


def _by_position(source: Any) -> bool:
    return hasattr(source, "__getitem__") and hasattr(source, "__len__")


def _dispatch(source: Any, size: Size, how: How) -> Data:
    if isinstance(source, Data):
        if size != "auto" or how.shape is not None:
            raise UserError(
                f"{source.name!r} is open already; give size and shape where it is opened"
            )
        return source
    if is_encoding(source):
        return open_encoding(source)
    if isinstance(source, Batch):
        data = open_arrays(
            "data", source.x, how, labels=source.label, ids=source.ids, aux=source.aux
        )
        return replace(data, tokenizer=source.tokenizer)
    values, labels = _with_labels(source)
    if values and all(map(_is_picture, values)):
        paths = [existing(Path(value).expanduser()) for value in values]
        names = [
            path.name if len({path.name for path in paths}) == len(paths) else str(path)
            for path in paths
        ]
        return open_pictures("pictures", paths, names, how, labels)
    named = {"x": source} if isinstance(source, Tensor | np.ndarray) else source
    if (
        isinstance(source, tuple)
        and len(source) == 2
        and all(isinstance(s, Tensor | np.ndarray) for s in source)
    ):
        named = {"x": source[0], "y": source[1]}
    if isinstance(named, Mapping) and isinstance(named.get("x"), Tensor | np.ndarray):
        aux = {
            key: as_tensor(np.asarray(value))
            for key, value in named.items()
            if key not in ("x", "y")
        }
        return open_arrays("data", named["x"], how, labels=named.get("y"), aux=aux)
    if _by_position(source) and not isinstance(source, (Mapping, IterableDataset)):
        columns = encoding_of_rows(source)
        data = open_dataset(source, how) if columns is None else open_encoding(columns)
        return replace(data, class_names=class_names_of(source))
    raise UserError(
        f"cannot read data from {type(source).__name__}; give a tensor, (x, y), {{'x': …}} with more inputs by name, a "
        "Batch, a DataFrame, a path, a list of paths, sets, graphs or texts, or a Dataset with __getitem__ and __len__ "
        "(of a DataLoader, its .dataset; of a DatasetDict, one of its splits)"
    )

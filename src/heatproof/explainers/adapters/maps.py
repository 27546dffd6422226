"""Maps that were computed elsewhere: arrays, files, folders, and SHAP's `Explanation`."""

from __future__ import annotations

import copy
import hashlib
import zipfile
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from functools import lru_cache
from pathlib import Path, PurePosixPath
from typing import Annotated, Any, ClassVar, Self

import numpy as np
import torch
from numpy.typing import NDArray
from PIL import Image
from pydantic import BeforeValidator
from torch import Tensor

from heatproof.data.frames import ids_of_index, is_frame
from heatproof.errors import UserError, counted, nearest
from heatproof.explainers.adapters.foreign import Object, fingerprint, has_two_classes
from heatproof.features.segments import COLUMNS
from heatproof.models import Model
from heatproof.types import Batch, Explainer, parameter_class

Maps = Mapping[str, NDArray[Any]]
POSITION = "position "
"""What begins the name of a map that has no id."""
UNNAMED = ("maps", "arr_0", "attributions", "values")
"""Names of the only array in an archive that say that it is all maps, not the map of one sample."""
FOLDER_SUFFIXES = (".npy", ".png", ".jpg", ".jpeg", ".tif", ".tiff", ".webp")


class MapSource:
    """A source of maps: a file or folder that is read when needed, or maps in memory. Its repr identifies the content.

    Maps go by sample id where ids are given, else by position: then `ids` are those of the data that they are for.

    >>> MapSource({"cat": np.zeros((1, 2, 2))})
    1 map sha256:...
    >>> MapSource(np.zeros((3, 1, 2, 2))).count
    3
    """

    def __init__(self, source: Any) -> None:
        """Take maps computed elsewhere: by sample id (a mapping or frame), in the order of samples, or in a file."""
        self.source: Path | dict[str, NDArray[Any]]
        self.ids: tuple[str, ...] | None = None
        # SHAP explains a single output of two classes, which is that of the second class.
        self.is_of_second_class = _is_explanation(source) and np.ndim(source.values) == 2
        if is_frame(source):
            ids = ids_of_index(source.index)
            values = source.to_numpy(dtype=np.float64)
            source = values if ids is None else dict(zip(ids, values, strict=True))
        if isinstance(source, Mapping):
            self.source = {str(key): _array(value) for key, value in source.items()}
            self.label = _counted(len(self.source))
            self.digest = fingerprint(self.source)
        elif isinstance(source, str | Path):
            path = _existing(source)
            self.source, self.label = path, path.name
            self.digest = _digest(path)
            _read(path, self.digest)  # an unreadable file is an error before the run starts
        else:
            self.source = _by_position(_stacked(source))
            self.label = _counted(len(self.source))
            self.digest = fingerprint(self.source)

    @classmethod
    def of(cls, value: Any) -> MapSource:
        """Return the value itself if it is a source already, else a source of it."""
        return value if isinstance(value, MapSource) else cls(value)

    @property
    def count(self) -> int | None:
        """How many maps there are that go by position; None where they go by id."""
        maps, _ = self._stored()
        return len(maps) if maps and all(key.startswith(POSITION) for key in maps) else None

    def for_ids(self, ids: Iterable[str]) -> MapSource:
        """Return the source with the ids of the samples that maps by position belong to."""
        other = copy.copy(self)
        other.ids = tuple(ids)
        return other

    def read(self) -> tuple[Maps, Mapping[str, int]]:
        """Return maps by sample id, and the classes that they explain by sample id, where the file has these.

        Maps without ids have names of positions instead, unless `for_ids` has given them the ids of the samples.
        """
        maps, targets = self._stored()
        if self.count is None or self.ids is None:
            return maps, targets
        by_id = dict(zip(self.ids, maps.values(), strict=True))
        numbers = dict(zip(maps, self.ids, strict=True))
        return by_id, {numbers[key]: target for key, target in targets.items()}

    def _stored(self) -> tuple[Maps, Mapping[str, int]]:
        """Return maps and targets as they are stored, by id or by position."""
        if isinstance(self.source, Path):
            return _read(self.source, self.digest)
        return self.source, {}

    def __str__(self) -> str:
        return self.label

    def __repr__(self) -> str:
        return f"{self.label} sha256:{self.digest}"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, MapSource) and self.digest == other.digest

    def __hash__(self) -> int:
        return hash(self.digest)


@parameter_class
class Precomputed(Explainer):
    """Maps that were computed elsewhere; (B, …) in the shape of the input, or with one channel.

    `path` is an array (n, …), a list of arrays, a SHAP `Explanation`, a mapping of ids to arrays, a DataFrame whose
    index has the ids, a `.npy` or `.npz` file, or a folder of images or `.npy` files that are named like the
    samples. Maps with ids go by id, others by position, and then there must be as many as samples. An npz file
    holds one array per sample under its id, or `maps` (n, …), and with them perhaps `ids` (n,) and `targets` (n,):
    the classes that the maps explain, which must then be those that the model predicts. Of maps with a last axis of
    classes, as SHAP gives them, that of the predicted class is taken; an `Explanation` with one output of a model
    of two classes is turned round where the first class is predicted. Perturbed or transformed inputs cannot be
    explained this way, so evaluations that need their maps leave these out; faithfulness and certificates work.

    >>> maps = Precomputed({"cat": np.ones((1, 2, 2)), "dog": np.zeros((1, 2, 2))})
    >>> batch = Batch(("dog", "cat"), torch.rand(2, 3, 2, 2))
    >>> maps(Model(torch.nn.Flatten()), batch, torch.tensor([0, 0]), seed=0).mean((1, 2, 3))
    tensor([0., 1.])
    """

    name: ClassVar[str] = "precomputed"
    needs_model: ClassVar[bool] = False
    whole_features = True
    cost = "no pass"

    path: Annotated[Any, BeforeValidator(MapSource.of)]

    def configured_for(self, model: Model, sample: Batch) -> Self:
        """Return the explainer itself; raise for maps that do not have the shape of the samples.

        Maps of the columns of a DataFrame are those of samples in which a category has several columns.
        """
        owners = sample.aux.get(COLUMNS)
        has_column_maps = owners is not None and self._has_shape((int(owners.max()) + 1,))
        return self if has_column_maps else super().configured_for(model, sample)

    def _has_shape(self, shape: tuple[int, ...]) -> bool:
        maps, _ = self.path.read()
        return all(_in_layout(values, shape, target=0) is not None for values in maps.values())

    def check(self, model: Model, shape: Sequence[int]) -> None:
        """Raise for maps that do not have the shape of the samples."""
        maps, _ = self.path.read()
        for sample, values in maps.items():
            if not np.issubdtype(values.dtype, np.number):
                raise UserError(
                    f"the map of {sample!r} in {self.path} holds {values.dtype}, not numbers"
                )
            if _in_layout(values, tuple(shape), target=0) is None:
                raise UserError(
                    f"the map of {sample!r} in {self.path} has shape {values.shape}, but samples have shape "
                    f"{tuple(shape)}; a map has that shape, or one channel"
                )

    def check_ids(self, ids: Iterable[str], source: str) -> None:
        """Raise `UserError` unless each of the samples `ids` has a map; `source` is the name of the data.

        Maps without ids belong to samples by position, so there must be as many as samples.
        """
        ids = tuple(ids)
        count = self.path.count
        if count is not None:
            if count != len(ids):
                raise UserError(
                    f"{counted(count, 'map')} without ids {'is' if count == 1 else 'are'} given for the "
                    f"{counted(len(ids), 'sample')} of {source}; give one map for each sample, in the order of the data, "
                    "or a mapping of ids to maps"
                )
            return
        maps, _ = self.path.read()
        missing = [sample for sample in ids if sample not in maps]
        if missing:
            samples = counted(len(missing), "sample")
            raise UserError(
                f"there is no map for {samples} of {source} in {self.path}: {_hint(missing[0], maps)}"
            )

    def for_ids(self, ids: Iterable[str]) -> Precomputed:
        """Return a copy for the samples with these ids, in the order of maps that have no ids."""
        return replace(self, path=self.path.for_ids(ids))

    def __call__(self, model: Model, batch: Batch, target: Tensor, seed: int) -> Tensor:
        """Return the stored maps (B, …) of the samples in the batch, by their ids, for the classes `target` (B,).

        A file may say which classes its maps explain, which then must be the targets. `seed` is unused.
        """
        maps, targets = self.path.read()
        shape = tuple(batch.x.shape[1:])
        owners = batch.aux.get(COLUMNS)
        columns = 0 if owners is None else int(owners.max()) + 1
        batch_maps = []
        for sample, predicted in zip(batch.ids, target.tolist(), strict=True):
            if sample not in maps:
                raise UserError(f"{self.path} has no map for {_hint(sample, maps)}")
            explained = targets.get(sample, predicted)
            if model.is_absent:
                _check_class_is_known(sample, maps[sample], shape, explained, self.path)
            elif explained != predicted:
                raise UserError(
                    f"the map of {sample!r} in {self.path} explains {model.class_name(explained)}, but "
                    f"{model.name} predicts {model.class_name(predicted)}; compute maps for the predicted class"
                )
            values = _in_layout(maps[sample], shape, explained)
            if values is None and owners is not None:
                of_columns = _in_layout(maps[sample], (columns,), explained)
                values = None if of_columns is None else of_columns[owners[0].cpu().numpy()]
            batch_maps.append(torch.as_tensor(maps[sample] if values is None else values).float())
        together = torch.stack(batch_maps).to(batch.x.device)
        if self.path.is_of_second_class and has_two_classes(model):
            together[target.to(together.device) == 0] *= -1
        return together


@parameter_class
class MapFunction(Explainer):
    """Maps that a function makes of a batch, `function(batch)`; (B, …) in the shape of the input, or with one channel.

    A study takes such a function in place of an explainer: `{"mine": lambda batch: my_maps(batch.x)}`. It may return an
    array or a tensor, also with the channels last. It knows its model itself, so it is called anew for changed inputs, and
    works without a model in the study too. `draws` says that it uses random numbers of its own, which no seed repeats.

    >>> maps = MapFunction(lambda batch: batch.x.numpy().mean(1))
    >>> maps(Model(torch.nn.Flatten()), Batch(("a",), torch.ones(1, 3, 2, 2)), torch.tensor([0]), seed=0).shape
    torch.Size([1, 2, 2])
    """

    name: ClassVar[str] = "function"
    needs_model: ClassVar[bool] = False
    cost = "a call of the function"

    function: Object
    draws: bool = False

    @property
    def stochastic(self) -> bool:  # type: ignore[override]
        """Whether two calls may differ."""
        return self.draws

    def __call__(self, model: Model, batch: Batch, target: Tensor, seed: int) -> Tensor:
        """Return the maps (B, …) that the user's function gives for the batch, with channels first as in the samples.

        Model, target and seed are unused: the function knows its own model.
        """
        name, shape = self.function.name, tuple(batch.x.shape[1:])
        values = _array(self.function.value(batch))
        if values.dtype.kind not in "biuf" or len(values) != len(batch):
            raise UserError(
                f"{name} returned {values.dtype} of shape {values.shape} for {counted(len(batch), 'sample')} of "
                f"shape {shape}; it returns one map of numbers for each"
            )
        maps = []
        for sample_values in values:
            laid_out = _in_layout(sample_values, shape)
            if laid_out is None:
                raise UserError(
                    f"{name} returned maps of shape {sample_values.shape} for samples of shape {shape}; a map has that "
                    "shape, or one channel"
                )
            maps.append(torch.as_tensor(np.ascontiguousarray(laid_out)).float())
        return torch.stack(maps).to(batch.x.device)


def _check_class_is_known(
    sample: str, values: NDArray[Any], shape: tuple[int, ...], target: int, source: MapSource
) -> None:
    """Raise for maps of every class where neither a model nor a label says which class is explained."""
    if target < 0 and _in_layout(values, shape) is None:
        raise UserError(
            f"the map of {sample!r} in {source} has shape {values.shape}, one map for each class, and neither a model nor "
            "a label says which class is explained; give the data labels, or the file targets"
        )


def _hint(sample: str, ids: Iterable[str]) -> str:
    """Return a sample's id with the nearest of the ids that have maps."""
    close = nearest(sample, ids)
    suggestion = f"; the nearest id is {close[0]!r}" if close else ""
    return f"{sample!r}{suggestion}"


@lru_cache(maxsize=4)
def _read(path: Path, digest: str) -> tuple[Maps, Mapping[str, int]]:
    """Return the maps in a file or folder, and the classes that they explain, both by sample id or else by position.

    `digest` is in the key of the cache, so that a changed file is read again.
    """
    if path.is_dir():
        return _read_folder(path), {}
    try:
        content = np.load(path, allow_pickle=False)
        if isinstance(content, np.ndarray):
            return _by_position(_stacked(content)), {}
        with content as archive:
            arrays = {key: archive[key] for key in archive.files}
    except (ValueError, OSError, AttributeError, EOFError, zipfile.BadZipFile) as error:
        raise UserError(f"{path} is not an npz or npy file of plain arrays: {error}") from error
    only_maps = len(arrays) == 1 and next(iter(arrays)) in UNNAMED
    if only_maps:
        return _by_position(_stacked(next(iter(arrays.values())))), {}
    if "maps" not in arrays or not {"ids", "targets"} & set(arrays):
        return arrays, {}
    maps, targets = arrays["maps"], arrays.get("targets")
    if "ids" in arrays:
        ids = [str(sample) for sample in arrays["ids"]]
    else:
        ids = list(_by_position(maps))
    for name, values in (("maps", maps), ("targets", targets)):
        if values is not None and len(values) != len(ids):
            raise UserError(f"{path} has {len(ids)} ids but {len(values)} {name}")
    if len(set(ids)) != len(ids):
        raise UserError(f"{path} names a sample twice")
    target_of = {} if targets is None else dict(zip(ids, map(int, targets), strict=True))
    return dict(zip(ids, maps, strict=True)), target_of


def _in_layout(
    values: NDArray[Any], shape: tuple[int, ...], target: int | None = None
) -> NDArray[Any] | None:
    """Return a stored map with its axes in the order of a sample of `shape`; None if its shape does not fit.

    It may have one channel or none, and channels last. With a `target`, its last axis may also be one of classes, of
    which that of the target is taken.
    """
    if not values.ndim:
        return None
    allowed = [shape]  # shapes that need no change
    channels_last = None
    if len(shape) >= 2:
        allowed += [(1, *shape[1:]), shape[1:]]
        channels_last = (*shape[1:], shape[0])
    candidates = [values]
    if target is not None:
        candidates.append(values[..., min(target, values.shape[-1] - 1)])
    for candidate in candidates:
        if candidate.shape in allowed:
            return candidate
        if candidate.shape == channels_last:
            return np.moveaxis(candidate, -1, 0)
    return None


def _counted(count: int) -> str:
    return "1 map" if count == 1 else f"{count} maps"


def _by_position(maps: NDArray[Any]) -> dict[str, NDArray[Any]]:
    """Return maps (n, …) under names of their positions, which are no ids."""
    return {f"{POSITION}{i}": values for i, values in enumerate(maps)}


def _stacked(source: Any) -> NDArray[Any]:
    """Return maps in memory as one array (n, …): an array, a tensor, a list of arrays, or a SHAP `Explanation`."""
    kind = type(source).__name__
    try:
        maps = _array(source.values if _is_explanation(source) else source)
    except ValueError:
        maps = np.empty(0)
    if maps.ndim < 2 or maps.dtype.kind not in "biuf":
        raise UserError(
            "maps come from an array (n, …), a mapping of ids to arrays, a .npy or .npz file, a folder, or a SHAP "
            f"Explanation, got {kind}"
        )
    return maps


def _is_explanation(source: Any) -> bool:
    """Whether something is an `Explanation` of SHAP, which is not imported for it."""
    return type(source).__name__ == "Explanation" and hasattr(source, "values")


def _array(values: Any) -> NDArray[Any]:
    """Return an array, or a tensor on any device, as an array."""
    return np.asarray(values.detach().cpu() if isinstance(values, Tensor) else values)


def _existing(name: str | Path) -> Path:
    """Return the absolute path of a file or folder, or raise with the nearest file of maps beside it."""
    path = Path(name).expanduser().absolute()
    if path.exists():
        return path
    siblings = []
    if path.parent.is_dir():
        siblings = [file.name for file in path.parent.glob("*.np[yz]")]
    close = nearest(path.name, siblings)
    suggestion = f"; did you mean {close[0]!r}?" if close else ""
    raise UserError(f"no file {str(name)!r}{suggestion}")


def _digest(path: Path) -> str:
    """Return the sha256 of a file, or of the names and contents of the files in a folder."""
    if path.is_file():
        return hashlib.sha256(path.read_bytes()).hexdigest()
    digest = hashlib.sha256()
    for file in _files_in(path):
        digest.update(file.relative_to(path).as_posix().encode() + b"|")
        digest.update(hashlib.sha256(file.read_bytes()).digest())
    return digest.hexdigest()


def _files_in(folder: Path) -> list[Path]:
    """Return the files in a folder and its subfolders that may hold maps, by their suffix, in order."""
    return [file for file in sorted(folder.rglob("*")) if file.suffix.lower() in FOLDER_SUFFIXES]


class _ByStem(dict[str, NDArray[Any]]):
    """Maps by file name without suffix, found by an id with or without the suffix of its own file."""

    def __missing__(self, sample: str) -> NDArray[Any]:
        return super().__getitem__(PurePosixPath(sample).with_suffix("").as_posix())

    def __contains__(self, sample: object) -> bool:
        stem = PurePosixPath(str(sample)).with_suffix("").as_posix()
        return super().__contains__(sample) or super().__contains__(stem)


def _read_folder(folder: Path) -> Maps:
    """Return the maps in a folder: `.npy` files, and images, whose channels are averaged."""
    maps = _ByStem()
    for file in _files_in(folder):
        name = file.relative_to(folder).with_suffix("").as_posix()
        if file.suffix.lower() == ".npy":
            maps[name] = np.load(file, allow_pickle=False)
            continue
        with Image.open(file) as image:
            values = np.asarray(image, dtype=np.float32)
        maps[name] = values[..., :3].mean(-1) if values.ndim == 3 else values
    if not maps:
        raise UserError(f"the folder {str(folder)!r} has no maps: {', '.join(FOLDER_SUFFIXES)}")
    return maps

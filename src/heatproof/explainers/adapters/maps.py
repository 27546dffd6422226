"""Maps that were computed elsewhere, read from an npz file."""

from __future__ import annotations

import hashlib
import zipfile
from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Annotated, Any, ClassVar

import numpy as np
import torch
from numpy.typing import NDArray
from pydantic import BeforeValidator
from torch import Tensor

from heatproof.errors import UserError, nearest
from heatproof.explainers.adapters.foreign import fingerprint
from heatproof.models import Model
from heatproof.types import Batch, Explainer, parameter_class

Maps = Mapping[str, NDArray[Any]]


class MapSource:
    """A source of maps: a file that is read when needed, or a mapping in memory. Its repr identifies the content.

    >>> MapSource({"cat": np.zeros((1, 2, 2))})
    1 map sha256:...
    """

    def __init__(self, source: Any) -> None:
        self.source: Path | dict[str, NDArray[Any]]
        if isinstance(source, Mapping):
            self.source = {str(key): np.asarray(value) for key, value in source.items()}
            self.label = "1 map" if len(self.source) == 1 else f"{len(self.source)} maps"
            self.digest = fingerprint(self.source)
        elif isinstance(source, str | Path):
            path = _existing_file(source)
            self.source, self.label = path, path.name
            self.digest = hashlib.sha256(path.read_bytes()).hexdigest()
            _read(path, self.digest)  # an unreadable file is an error before the run starts
        else:
            raise UserError(
                f"maps come from an npz file or a mapping of ids to arrays, got {type(source).__name__}"
            )

    @classmethod
    def of(cls, value: Any) -> MapSource:
        """Return the value itself if it is a source already, else a source of it."""
        return value if isinstance(value, MapSource) else cls(value)

    def read(self) -> tuple[Maps, Mapping[str, int]]:
        """Return maps by sample id, and by id the classes that they explain, if the file tells."""
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
    """Maps that were computed elsewhere, by sample id; (B, …) in the shape of the input, or with one channel.

    `path` is an npz file, or a mapping of ids to arrays. The file holds one array per sample under its id, or the
    arrays `ids` (n,) and `maps` (n, …), and with them perhaps `targets` (n,): the classes that the maps explain, which
    must then be those that the model predicts. Perturbed or transformed inputs cannot be explained this way, so
    evaluations that need their maps leave these out; faithfulness and certificates work.

    >>> maps = Precomputed({"cat": np.ones((1, 2, 2)), "dog": np.zeros((1, 2, 2))})
    >>> batch = Batch(("dog", "cat"), torch.rand(2, 3, 2, 2))
    >>> maps(Model(torch.nn.Flatten()), batch, torch.tensor([0, 0]), seed=0).mean((1, 2, 3))
    tensor([0., 1.])
    """

    name: ClassVar[str] = "precomputed"
    cost = "no pass"

    path: Annotated[Any, BeforeValidator(MapSource.of)]

    def check(self, model: Model, shape: Sequence[int]) -> None:
        """Raise for maps that do not have the shape of the samples."""
        allowed = [tuple(shape)]
        if len(shape) >= 2:
            allowed += [(1, *shape[1:]), tuple(shape[1:])]
        maps, _ = self.path.read()
        for sample, values in maps.items():
            if values.shape not in allowed:
                raise UserError(
                    f"the map of {sample!r} in {self.path} has shape {values.shape}, but samples have shape "
                    f"{tuple(shape)}; a map has that shape, or one channel"
                )
            if not np.issubdtype(values.dtype, np.number):
                raise UserError(
                    f"the map of {sample!r} in {self.path} holds {values.dtype}, not numbers"
                )

    def check_ids(self, ids: Iterable[str], source: str) -> None:
        """Raise if samples of the data called `source` have no map."""
        maps, _ = self.path.read()
        missing = [sample for sample in ids if sample not in maps]
        if missing:
            raise UserError(
                f"{self.path} has no map for {len(missing)} samples of {source}; {_hint(missing[0], maps)}"
            )

    def __call__(self, model: Model, batch: Batch, target: Tensor, seed: int) -> Tensor:
        """Maps (B, …) of the batch's ids."""
        maps, targets = self.path.read()
        batch_maps = []
        for sample, predicted in zip(batch.ids, target.tolist(), strict=True):
            if sample not in maps:
                raise UserError(f"{self.path} has no map for {_hint(sample, maps)}")
            explained = targets.get(sample, predicted)
            if explained != predicted:
                raise UserError(
                    f"the map of {sample!r} in {self.path} explains {model.class_name(explained)}, but "
                    f"{model.name} predicts {model.class_name(predicted)}; compute maps for the predicted class"
                )
            batch_maps.append(torch.as_tensor(maps[sample], dtype=torch.float32))
        return torch.stack(batch_maps).to(batch.x.device)


def _existing_file(name: str | Path) -> Path:
    """Return the absolute path of a file, or raise with the nearest npz file beside it."""
    path = Path(name).expanduser().absolute()
    if path.is_file():
        return path
    siblings = [file.name for file in path.parent.glob("*.npz")] if path.parent.is_dir() else []
    close = nearest(path.name, siblings)
    suggestion = f"; did you mean {close[0]!r}?" if close else ""
    raise UserError(f"no file {str(name)!r}{suggestion}")


def _hint(sample: str, ids: Iterable[str]) -> str:
    """Return a sample's id with the nearest of the ids that have maps."""
    close = nearest(sample, ids)
    suggestion = f"; the nearest id is {close[0]!r}" if close else ""
    return f"{sample!r}{suggestion}"


@lru_cache(maxsize=4)
def _read(path: Path, digest: str) -> tuple[Maps, Mapping[str, int]]:
    """Read maps and targets by sample id; `digest` is in the key of the cache, so that a changed file is read again."""
    try:
        with np.load(path, allow_pickle=False) as archive:
            arrays = {key: archive[key] for key in archive.files}
    except (ValueError, OSError, AttributeError, zipfile.BadZipFile) as error:
        raise UserError(f"{path} is not an npz file of plain arrays: {error}") from error
    if "ids" not in arrays or "maps" not in arrays:
        return arrays, {}
    ids = [str(sample) for sample in arrays["ids"]]
    maps, targets = arrays["maps"], arrays.get("targets")
    for name, values in (("maps", maps), ("targets", targets)):
        if values is not None and len(values) != len(ids):
            raise UserError(f"{path} has {len(ids)} ids but {len(values)} {name}")
    if len(set(ids)) != len(ids):
        raise UserError(f"{path} names a sample twice")
    target_of = {} if targets is None else dict(zip(ids, map(int, targets), strict=True))
    return dict(zip(ids, maps, strict=True)), target_of

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
from pydantic.dataclasses import dataclass
from torch import Tensor

from heatproof.errors import UserError, nearest
from heatproof.explainers.adapters.foreign import fingerprint
from heatproof.models import Model
from heatproof.types import STRICT, Batch, Explainer

Maps = Mapping[str, NDArray[Any]]


class MapSource:
    """Where maps are: a file, opened when they are needed, or a mapping in memory. Its repr identifies the content.

    >>> MapSource({"cat": np.zeros((1, 2, 2))})
    1 map sha256:...
    """

    def __init__(self, given: Any) -> None:
        self.given = given
        if isinstance(given, Mapping):
            self.given = {str(key): np.asarray(value) for key, value in given.items()}
            self.label = f"{len(self.given)} map{'s' if len(self.given) != 1 else ''}"
            self.digest = fingerprint(self.given)
        elif isinstance(given, str | Path):
            path = Path(given).expanduser().absolute()
            if not path.is_file():
                siblings = (
                    [p.name for p in path.parent.glob("*.npz")] if path.parent.is_dir() else []
                )
                close = nearest(path.name, siblings)
                raise UserError(
                    f"no file {str(given)!r}" + (f"; did you mean {close[0]!r}?" if close else "")
                )
            self.given, self.label = path, path.name
            self.digest = hashlib.sha256(path.read_bytes()).hexdigest()
            _read(path, self.digest)  # a file that cannot be read is an error of the plan
        else:
            raise UserError(
                f"maps come from an npz file or a mapping of ids to arrays, got {type(given).__name__}"
            )

    @classmethod
    def of(cls, given: Any) -> MapSource:
        """The object itself if it is one already."""
        return given if isinstance(given, MapSource) else cls(given)

    def read(self) -> tuple[Maps, Mapping[str, int]]:
        """Maps by sample id, and the classes that they explain where the file says so."""
        return (
            (self.given, {}) if isinstance(self.given, Mapping) else _read(self.given, self.digest)
        )

    def __str__(self) -> str:
        return self.label

    def __repr__(self) -> str:
        return f"{self.label} sha256:{self.digest}"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, MapSource) and self.digest == other.digest

    def __hash__(self) -> int:
        return hash(self.digest)


@dataclass(frozen=True, config=STRICT)
class Precomputed(Explainer):
    """Maps that were computed elsewhere, by sample id; (B, …) in the shape of the input, or with one channel.

    `path` is an npz file, or a mapping of ids to arrays. The file holds one array per sample under its id, or the
    arrays `ids` (n,) and `maps` (n, …), and with them perhaps `targets` (n,): the classes that the maps explain, which
    must then be those that the model predicts. Perturbed or transformed inputs cannot be explained this way, so
    evaluations that do so leave these maps out; faithfulness and certificates judge them.

    >>> maps = Precomputed({"cat": np.ones((1, 2, 2)), "dog": np.zeros((1, 2, 2))})
    >>> batch = Batch(("dog", "cat"), torch.rand(2, 3, 2, 2))
    >>> maps(Model(torch.nn.Flatten()), batch, torch.tensor([0, 0]), seed=0).mean((1, 2, 3))
    tensor([0., 1.])
    """

    name: ClassVar[str] = "precomputed"
    cost = "no pass"

    path: Annotated[Any, BeforeValidator(MapSource.of)]

    def check(self, model: Model, shape: Sequence[int]) -> None:
        """Refuse maps that do not have the shape of the samples."""
        expected = (
            [tuple(shape)] if len(shape) < 2 else [tuple(shape), (1, *shape[1:]), tuple(shape[1:])]
        )
        for sample, values in self.path.read()[0].items():
            if values.shape not in expected:
                raise UserError(
                    f"the map of {sample!r} in {self.path} has shape {values.shape}, but samples have shape "
                    f"{tuple(shape)}; a map has that shape, or one channel"
                )
            if not np.issubdtype(values.dtype, np.number):
                raise UserError(
                    f"the map of {sample!r} in {self.path} holds {values.dtype}, not numbers"
                )

    def check_ids(self, ids: Iterable[str], source: str) -> None:
        """Refuse data with samples that have no map."""
        known = self.path.read()[0]
        missing = [sample for sample in ids if sample not in known]
        if missing:
            raise UserError(
                f"{self.path} has no map for {len(missing)} samples of {source}; {_hint(missing[0], known)}"
            )

    def __call__(self, model: Model, batch: Batch, target: Tensor, seed: int) -> Tensor:
        """Maps (B, …) of the batch's ids."""
        maps, targets = self.path.read()
        found = []
        for sample, wanted in zip(batch.ids, target.tolist(), strict=True):
            if sample not in maps:
                raise UserError(f"{self.path} has no map for {_hint(sample, maps)}")
            if targets.get(sample, wanted) != wanted:
                raise UserError(
                    f"the map of {sample!r} in {self.path} explains {model.class_name(targets[sample])}, but "
                    f"{model.name} predicts {model.class_name(wanted)}; compute maps for the predicted class"
                )
            found.append(torch.as_tensor(maps[sample], dtype=torch.float32))
        return torch.stack(found).to(batch.x.device)


def _hint(sample: str, known: Iterable[str]) -> str:
    close = nearest(sample, known)
    return f"{sample!r}" + (f"; the nearest id is {close[0]!r}" if close else "")


@lru_cache(maxsize=4)
def _read(path: Path, digest: str) -> tuple[Maps, Mapping[str, int]]:
    """The content of a file; `digest` makes a changed file another one."""
    try:
        with np.load(path, allow_pickle=False) as archive:
            content = {key: archive[key] for key in archive.files}
    except (ValueError, OSError, AttributeError, zipfile.BadZipFile) as error:
        raise UserError(f"{path} is not an npz file of plain arrays: {error}") from error
    if "ids" not in content or "maps" not in content:
        return content, {}
    ids, maps = [str(sample) for sample in content["ids"]], content["maps"]
    targets = content.get("targets")
    for what, values in (("maps", maps), ("targets", targets)):
        if values is not None and len(values) != len(ids):
            raise UserError(f"{path} has {len(ids)} ids but {len(values)} {what}")
    if len(set(ids)) != len(ids):
        raise UserError(f"{path} names a sample twice")
    classes = {} if targets is None else dict(zip(ids, map(int, targets), strict=True))
    return dict(zip(ids, maps, strict=True)), classes

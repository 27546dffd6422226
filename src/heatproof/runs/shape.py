"""What a manifest looks like: a stranger's may have been written by hand, with a digest that is right."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import Field, StrictFloat, StrictInt, StrictStr, TypeAdapter, ValidationError
from pydantic.dataclasses import dataclass

from heatproof.errors import Damaged


@dataclass(frozen=True)
class _Entry:
    name: StrictStr = ""
    fingerprint: StrictStr = ""
    samples: Annotated[StrictInt, Field(ge=0)] = 0
    references: list[StrictStr] | None = None
    conditions: list[tuple[StrictStr, StrictInt | StrictFloat]] | None = None
    left_out: dict[str, StrictStr] | None = None


@dataclass(frozen=True)
class _Study:
    models: dict[str, _Entry]
    datasets: dict[str, _Entry]
    explainers: dict[str, _Entry]
    evaluations: dict[str, _Entry]
    seed: StrictInt
    tasks: dict[str, dict[str, dict[str, StrictStr]]] | None = None


@dataclass(frozen=True)
class _Manifest:
    heatproof: StrictStr
    study: _Study
    shard_size: Annotated[StrictInt, Field(ge=1)]
    created: StrictStr = ""
    command: StrictStr = ""
    versions: dict[str, StrictStr] | None = None
    sessions: list[dict[str, Any]] | None = None


def check_shape(path: object, manifest: object) -> None:
    """Raise `Damaged` for a manifest that no run of this version has."""
    try:
        TypeAdapter(_Manifest).validate_python(manifest)
    except ValidationError as error:
        first = error.errors()[0]
        raise Damaged(
            f"{path} is no manifest: {'.'.join(map(str, first['loc']))}: {first['msg']}"
        ) from error

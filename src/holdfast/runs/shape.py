"""What a manifest looks like: a stranger's may have been written by hand, with a digest that is right."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import Field, StrictFloat, StrictInt, StrictStr, TypeAdapter, ValidationError, model_validator
from pydantic.dataclasses import dataclass

from holdfast.errors import Damaged

MOST_SHARDS = 10**6
Text = StrictStr
Number = StrictInt | StrictFloat


@dataclass(frozen=True)
class _Named:
    name: Text = ""
    role: Text = ""
    conditions: list[tuple[Text, Number]] = Field(default_factory=list)
    left_out: dict[str, Text] = Field(default_factory=dict)


@dataclass(frozen=True)
class _Source:
    fingerprint: Text = ""
    samples: Annotated[StrictInt, Field(ge=0)] = 0
    references: list[Text] = Field(default_factory=list)


@dataclass(frozen=True)
class _Study:
    seed: StrictInt
    models: dict[str, _Source]
    datasets: dict[str, _Source]
    explainers: dict[str, _Named]
    evaluations: dict[str, _Named]
    tasks: dict[str, dict[str, dict[str, Text]]] = Field(default_factory=dict)


@dataclass(frozen=True)
class _Manifest:
    holdfast: Text
    shard_size: Annotated[StrictInt, Field(ge=1)]
    study: _Study
    created: Text = ""
    command: Text = ""
    versions: dict[str, Text] = Field(default_factory=dict)
    sessions: list[dict[str, Any]] = Field(default_factory=list)

    @model_validator(mode="after")
    def _few_shards(self) -> _Manifest:
        assert all(data.samples <= MOST_SHARDS * self.shard_size for data in self.study.datasets.values()), "too many"
        return self


def check_shape(path: object, manifest: object) -> None:
    """Raise `Damaged` for a manifest that no run of this version has."""
    try:
        TypeAdapter(_Manifest).validate_python(manifest)
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(map(str, first["loc"]))
        raise Damaged(f"{path} is not the manifest of a holdfast run: {where}: {first['msg']}") from error

"""Data by name: `bundled:…`, `hf:owner/name@split`, `python:module:factory`, or a path."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from holdfast import bundled
from holdfast.data import Data, Size, check_hub_name, existing, open_data
from holdfast.errors import unknown
from holdfast.images import Resize
from holdfast.zoo.code import absolute, check_allowed, made_by
from holdfast.zoo.parts import beside
from holdfast.zoo.text import PREFIX, tokeniser

BUNDLED_DATA: dict[str, Callable[..., Data]] = {"photographs": bundled.photographs}


def check_data_name(spec: str, folder: str | Path | None = None) -> str:
    """The name of data, checked without reading it; paths are made absolute, relative to `folder` when given.

    >>> check_data_name("bundled:photos")
    Traceback (most recent call last):
    holdfast.errors.UserError: unknown bundled data 'photos'; did you mean 'photographs'? Allowed: photographs
    """
    scheme, _, rest = spec.partition(":")
    if scheme == "bundled":
        if rest not in BUNDLED_DATA:
            raise unknown("bundled data", rest, BUNDLED_DATA)
        return spec
    if scheme == "python":
        return absolute(spec, folder)
    if scheme == "hf":
        return check_hub_name(spec)
    path = beside(spec, folder)
    if re.match(r"[a-z]{2,}:", spec) and not path.exists():
        raise unknown("kind of data", scheme, ("bundled", "hf", "python"))
    return str(existing(path))


def open_source(
    spec: str,
    *,
    size: Size = "auto",
    resize: Resize = "squash",
    shape: Sequence[int] | None = None,
    name: str | None = None,
    labels: Sequence[int] | Mapping[str, int] | None = None,
    limit: int | None = None,
    length: int | None = None,
    vocabulary: Any = None,
    split: str | None = None,
    label: str | None = None,
    allow_code: bool = False,
) -> Data:
    """Data from a name: `bundled:photographs`, `hf:owner/name@split`, `python:module:factory`, or a path.

    The other parameters are those of `open_data`; a vocabulary may also be `hf:owner/name` or `hf:folder`, the
    tokeniser of a Hugging Face model.

    >>> open_source("no/such/folder")
    Traceback (most recent call last):
    holdfast.errors.UserError: there is no file or folder ...
    """
    scheme, _, rest = check_data_name(spec).partition(":")
    source: Any = spec
    if scheme == "bundled":
        source, size = BUNDLED_DATA[rest](size=size, resize=resize), "auto"
    elif scheme == "python":
        check_allowed(spec, allow_code)
        source, name = made_by(rest), name or rest.rpartition(":")[2]
    if isinstance(vocabulary, str) and vocabulary.startswith(PREFIX):
        vocabulary = tokeniser(vocabulary, length)
    return open_data(
        source,
        size=size,
        resize=resize,
        shape=shape,
        name=name,
        labels=labels,
        limit=limit,
        length=length,
        vocabulary=vocabulary,
        split=split,
        label=label,
    )

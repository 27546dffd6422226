"""Data by name: `bundled:…`, `hf:owner/name@split`, `python:module:factory`, or a path."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

from heatproof.data import bundled
from heatproof.data.code import absolute, check_allowed, made_by
from heatproof.data.dataset import Data, Size
from heatproof.data.files import beside, existing
from heatproof.data.hub import check_hub_name, local_copy
from heatproof.data.images import Resize
from heatproof.errors import unknown

BUNDLED_DATA: dict[str, Callable[..., Data]] = {"photographs": bundled.photographs}


def check_data_name(spec: str, folder: str | Path | None = None) -> str:
    """Return a name of data, checked without reading it; paths are made absolute, relative to `folder` when given.

    >>> check_data_name("bundled:photos")
    Traceback (most recent call last):
    heatproof.errors.UserError: unknown bundled data 'photos'; did you mean 'photographs'? Allowed: photographs
    """
    scheme, _, rest = spec.partition(":")
    if scheme == "bundled":
        if rest not in BUNDLED_DATA:
            raise unknown("bundled data", rest, BUNDLED_DATA)
        return spec
    if scheme == "python":
        return absolute(spec, folder)
    if scheme == "hf":
        copy = local_copy(spec, folder)
        if copy is None:
            return check_hub_name(spec)
        directory, split = copy
        return f"hf:{directory}@{split}" if split else f"hf:{directory}"
    path = beside(spec, folder)
    if re.match(r"[a-z]{2,}:", spec) and not path.exists():
        raise unknown("kind of data", scheme, ("bundled", "hf", "python"))
    return str(existing(path))


def resolve_name(
    spec: str, size: Size, resize: Resize, name: str | None, allow_code: bool
) -> tuple[Any, Size, str | None]:
    """Return what a name of data stands for, with the size and the title that `open_data` should go on with.

    `bundled:…` is opened and `python:…` is called; a path and a name of the hub stay what they are, for `open_data` to
    open. `size` becomes "auto" where the pictures have been resized already, so that it is not done twice. `name` is the
    title that the user gave; if it is None, that of a `python:` object is the last part of its path.

    >>> resolve_name("python:math:pi", "auto", "squash", None, allow_code=True)
    (3.14..., 'auto', 'pi')
    >>> resolve_name("no/such/folder", "auto", "squash", None, allow_code=False)
    Traceback (most recent call last):
    heatproof.errors.UserError: there is no file or folder ...
    """
    checked = check_data_name(spec)
    scheme, _, rest = checked.partition(":")
    if scheme == "bundled":
        data = BUNDLED_DATA[rest](size=size, resize=resize)
        return data, "auto", name
    if scheme == "python":
        check_allowed(spec, allow_code)
        return made_by(rest), size, name or rest.rpartition(":")[2]
    if scheme == "hf":
        return checked, size, name
    return spec, size, name

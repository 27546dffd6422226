"""Where a run lives: a directory, or an address of an object store, behind the few things a run does with files.

A directory is a `pathlib.Path`, as everywhere. An address such as `s3://bucket/run` is a `StorePath`, which has the
same few methods and goes through fsspec, imported only then. A store takes an object whole or not at all, so what is
written there is whole or absent as well. Keys, endpoints and the like are those that fsspec and the store's own package
find in the environment; this library does not look at them.
"""

from __future__ import annotations

import importlib
import re
import sys
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any, TypeAlias

from holdfast.errors import UserError, unknown

STORES = {
    "s3": "s3fs",
    "s3a": "s3fs",
    "gs": "gcsfs",
    "gcs": "gcsfs",
    "az": "adlfs",
    "abfs": "adlfs",
    "abfss": "adlfs",
    "oss": "ossfs",
    "memory": "fsspec",
}
"""The stores in which a put is atomic, and the package through which fsspec reaches each."""
FRESH = 5.0
"""Seconds for which a listing answers whether parts are there, instead of a request for each of them."""
AT_ONCE = 32
_SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+.-]+):[/\\]+(.*)", re.DOTALL)  # one letter is a drive of Windows


@dataclass(frozen=True)
class StorePath:
    """A place in an object store: `inner` under the address `base`. It travels by pickle; its connection does not.

    >>> part = StorePath("memory://run") / "parts" / "00000.parquet"
    >>> part.name, str(part.parent), part.is_file()
    ('00000.parquet', 'memory://run/parts', False)
    """

    base: str
    inner: str = ""

    def __truediv__(self, name: str) -> StorePath:
        return StorePath(self.base, f"{self.inner}/{name}".strip("/"))

    def __str__(self) -> str:
        return f"{self.base}/{self.inner}" if self.inner else self.base

    @property
    def name(self) -> str:
        """The last part of the address."""
        return str(self).rsplit("/", 1)[-1]

    @property
    def parent(self) -> StorePath:
        """The place above, within the address."""
        return StorePath(self.base, self.inner.rpartition("/")[0])

    def resolve(self) -> StorePath:
        """Itself: an address is absolute."""
        return self

    def is_file(self) -> bool:
        """Whether there is an object."""
        files, path = self._there()
        return bool(files.isfile(path))

    def exists(self) -> bool:
        """Whether there is an object, or something lies below."""
        files, path = self._there()
        return bool(files.exists(path))

    def is_dir(self) -> bool:
        """Whether something lies below; a store has no directories of its own."""
        files, path = self._there()
        return bool(files.isdir(path))

    def iterdir(self) -> Iterator[StorePath]:
        """What lies directly below."""
        files, path = self._there()
        return iter([self / _last(name) for name in files.ls(path, detail=False) if _last(name) != _last(path)])

    def read_bytes(self) -> bytes:
        """The content of the object."""
        files, path = self._there()
        return bytes(files.cat_file(path))

    def read_text(self, encoding: str = "utf-8") -> str:
        """The content of the object as text."""
        return self.read_bytes().decode(encoding)

    def write_bytes(self, content: bytes) -> None:
        """Replace the object or make it, in one put."""
        files, path = self._there()
        files.pipe_file(path, content)
        _listed.pop(str(self.parent), None)

    def create(self, content: bytes) -> bool:
        """Make the object unless there is one; the store decides between several who try. Says whether it was made."""
        if self.is_file():
            return False
        files, path = self._there()
        try:
            files.pipe_file(path, content, mode="create")
        except FileExistsError:
            return False
        _listed.pop(str(self.parent), None)
        return True

    def unlink(self, missing_ok: bool = False) -> None:
        """Remove the object."""
        files, path = self._there()
        if not missing_ok or files.exists(path):
            files.rm_file(path)
        _listed.pop(str(self.parent), None)

    def below(self) -> list[StorePath]:
        """Every object below, in the order in which paths are sorted."""
        files, path = self._there()
        names = (name[len(path) :].strip("/") for name in files.find(path) if name != path)
        return [self / name for name in sorted(names, key=lambda name: name.split("/"))]

    def _there(self) -> tuple[Any, str]:
        files, path = _connect(self.base)
        files.invalidate_cache()  # what others wrote meanwhile counts
        return files, f"{path}/{self.inner}" if self.inner else path


Place: TypeAlias = Path | StorePath

_listed: dict[str, tuple[float, set[str]]] = {}


def place(where: str | Path | StorePath) -> Place:
    """The directory or the address in a store that a text names; `file://` is a directory.

    >>> place("runs/first"), str(place("s3://bucket/runs/first/"))
    (PosixPath('runs/first'), 's3://bucket/runs/first')
    >>> place("s4://bucket/run")
    Traceback (most recent call last):
    holdfast.errors.UserError: unknown kind of store 's4'; did you mean 's3'? Allowed: abfs, ...
    """
    if isinstance(where, StorePath):
        return where
    found = _SCHEME.fullmatch(str(where))
    if found is None:
        return Path(where)
    scheme, rest = found[1].lower(), found[2].replace("\\", "/").strip("/")  # a Path has joined the slashes
    if scheme in ("file", "local"):
        return Path(f"/{rest}" if sys.platform != "win32" else rest)
    if scheme not in STORES:
        raise unknown("kind of store", scheme, [*STORES, "file"])
    if not rest:
        raise UserError(f"{str(where)!r} names no place in the store; write {scheme}://bucket/run")
    return StorePath(f"{scheme}://{rest}")


def files(folder: Place, suffix: str) -> list[Any]:
    """The finished files below a folder whose names end so, sorted; names that start with a dot are not finished."""
    if isinstance(folder, Path):
        return sorted(folder.glob(f"**/[!.]*{suffix}"))
    return [path for path in folder.below() if path.name.endswith(suffix) and not path.name.startswith(".")]


def contents(paths: Sequence[Place]) -> Iterator[bytes]:
    """What is in each file, in order; from a store several come at a time."""
    if not any(isinstance(path, StorePath) for path in paths):
        yield from (path.read_bytes() for path in paths)
        return
    with ThreadPoolExecutor(AT_ONCE) as pool:
        for start in range(0, len(paths), 4 * AT_ONCE):  # a bound on what waits in memory
            yield from pool.map(lambda path: path.read_bytes(), paths[start : start + 4 * AT_ONCE])


def present(path: Place) -> bool:
    """Whether a file is there that never goes away again, such as a part; of a store, as of at most `FRESH` ago.

    One request lists a whole folder of a store, so asking for thousands of parts costs few. An answer that is out of
    date makes a process do a shard that another has just done, with the same result.
    """
    if isinstance(path, Path):
        return path.is_file()
    folder = str(path.parent)
    known = _listed.get(folder)
    if known is None or time.monotonic() - known[0] > FRESH:
        known = _listed[folder] = (time.monotonic(), {found.name for found in path.parent.below()})
    return path.name in known[1]


def forget_listings() -> None:
    """Ask the stores again from here on."""
    _listed.clear()


def must_be_shared(where: Place) -> None:
    """Refuse a place that other processes cannot see."""
    if isinstance(where, StorePath) and where.base.startswith("memory:"):
        raise UserError(f"{where} is the memory of one process; workers need a directory or a store that all can reach")


@contextmanager
def reaching(where: Place) -> Iterator[None]:
    """Turn what a store answers to a wrong bucket, key or endpoint into an error that names the address."""
    if isinstance(where, Path):
        yield
        return
    refused: list[type[Exception]] = [OSError]
    _connect(where.base)
    if "botocore" in sys.modules:  # it has errors of its own for missing keys and the like
        refused.append(importlib.import_module("botocore.exceptions").BotoCoreError)
    try:
        yield
    except tuple(refused) as error:
        said = str(error) or type(error).__name__
        raise UserError(f"{where} cannot be reached: {said}; check the address, its bucket and your keys") from error


@lru_cache(maxsize=64)
def _connect(base: str) -> tuple[Any, str]:
    """The file system of an address, and the address as the file system writes it."""
    scheme = base.partition("://")[0]
    try:
        fsspec = importlib.import_module("fsspec")
        found, path = fsspec.core.url_to_fs(base)
    except ImportError as error:
        raise UserError(f"{base} needs {STORES[scheme]}: pip install {STORES[scheme]}") from error
    return found, str(path).rstrip("/")


def _last(name: str) -> str:
    return name.rstrip("/").rsplit("/", 1)[-1]

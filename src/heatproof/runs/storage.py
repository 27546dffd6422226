"""Where a run lives: a directory or an address in an object store, and the few things that a run does with files.

A directory is a `pathlib.Path`, as everywhere. An address such as `s3://bucket/run` is a `StorePath`, which has the
same few methods and goes through fsspec, imported only then. A store takes an object whole or not at all, so what is
written there is whole or absent as well. Keys, endpoints and the like are those that fsspec and the store's own package
find in the environment; this library does not look at them.
"""

from __future__ import annotations

import errno
import importlib
import re
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import lru_cache, partial
from pathlib import Path
from typing import Any, TypeAlias, TypeVar

from heatproof.errors import UserError, retry, unknown

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
EXTRAS = {"s3fs": "s3", "gcsfs": "gcs", "adlfs": "azure"}
"""The extra of heatproof that installs such a package."""
FRESH = (0.5, 5.0)
"""Seconds for which a listing of a directory, and of a store, answers whether parts are there."""
AWAY = (5.0, 10.0, 20.0, 30.0)
"""Seconds before each further try of a store that has answered before: it is waited for about a minute."""
AT_ONCE = 32
"""Requests to a store at a time."""
T = TypeVar("T")
_SCHEME = re.compile(
    r"([A-Za-z][A-Za-z0-9+.-]+):[/\\]+(.*)", re.DOTALL
)  # one letter is a drive of Windows


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
        return self._kind() == "file"

    def exists(self) -> bool:
        """Whether there is an object, or something lies below."""
        return self._kind() is not None

    def is_dir(self) -> bool:
        """Whether something lies below; a store has no directories of its own."""
        return self._kind() == "directory"

    def _kind(self) -> str | None:
        try:  # `isfile` and its like take a store that is away for one without the object
            return str(self._ask("info")["type"])
        except FileNotFoundError:
            return None

    def iterdir(self) -> Iterator[StorePath]:
        """What lies directly below."""
        names = [name.rstrip("/").rsplit("/", 1)[-1] for name in self._ask("ls", detail=False)]
        return iter([self / name for name in names if name != self.name])

    def read_bytes(self) -> bytes:
        """The content of the object."""
        return bytes(self._ask("cat_file"))

    def write_bytes(self, content: bytes) -> None:
        """Replace the object or make it, in one put."""
        self._ask("pipe_file", content, doing="written")

    def create(self, content: bytes) -> bool:
        """Make the object unless there is one; the store decides between several who try. Says whether it was made."""
        if self.is_file():
            return False
        try:
            self._ask("pipe_file", content, doing="written", mode="create")
        except FileExistsError:
            return False
        return True

    def unlink(self, missing_ok: bool = False) -> None:
        """Remove the object."""
        if not missing_ok or self.exists():
            self._ask("rm_file", doing="removed")
        _listed.pop(str(self.parent), None)

    def below(self) -> list[StorePath]:
        """Every object below, in the order in which paths are sorted."""
        path = self._there()[1]
        names = (name[len(path) :].strip("/") for name in self._ask("find") if name != path)
        return [self / name for name in sorted(names, key=lambda name: name.split("/"))]

    def _ask(self, what: str, *content: bytes, doing: str = "read", **options: Any) -> Any:
        """One request to the store, more where it fails for a reason that may pass."""
        files, path = self._there()
        found = tried(self, lambda: getattr(files, what)(path, *content, **options), doing)
        _answered.add(self.base)
        return found

    def _there(self) -> tuple[Any, str]:
        files, path = _connect(self.base)
        files.invalidate_cache()  # what others wrote meanwhile counts
        return files, f"{path}/{self.inner}" if self.inner else path


Place: TypeAlias = Path | StorePath

_listed: dict[str, tuple[float, dict[str, list[str]]]] = {}
_answered: set[str] = set()


def place(where: str | Path | StorePath) -> Place:
    """Return the directory or the address in a store that a text names; `file://` is a directory.

    >>> place("runs/first"), str(place("s3://bucket/runs/first/"))
    (PosixPath('runs/first'), 's3://bucket/runs/first')
    >>> place("s4://bucket/run")
    Traceback (most recent call last):
    heatproof.errors.UserError: unknown kind of store 's4'; did you mean 's3'? Allowed: abfs, ...
    """
    if isinstance(where, StorePath):
        return where
    address = _SCHEME.fullmatch(str(where))
    if address is None:
        return Path(where)
    scheme = address[1].lower()
    # A Path of an address has lost one of its slashes.
    rest = address[2].replace("\\", "/").strip("/")
    if scheme in ("file", "local"):
        return Path(f"/{rest}" if sys.platform != "win32" else rest)
    if scheme not in STORES:
        raise unknown("kind of store", scheme, [*STORES, "file"])
    if not rest:
        raise UserError(f"{str(where)!r} names no place in the store; write {scheme}://bucket/run")
    return StorePath(f"{scheme}://{rest}")


def files(folder: Place, suffix: str) -> list[Any]:
    """Return the finished files below a folder with such names, sorted; a name with a dot first is not finished."""
    if isinstance(folder, StorePath):
        below: list[Any] = folder.below()
    else:
        local_folder = folder
        below = sorted(tried(folder, lambda: list(_walk(local_folder))))
    return [path for path in below if path.name.endswith(suffix) and not path.name.startswith(".")]


def _walk(folder: Path) -> Iterator[Path]:
    """Yield every file below a folder; unlike with `glob`, a folder that cannot be read is an error."""
    for path in _listing(folder):
        if path.is_dir():
            yield from _walk(path)
        else:
            yield path


def _listing(folder: Place) -> list[Any]:
    """Return what lies directly in a folder; nothing if there is no folder."""
    try:
        return list(tried(folder, lambda: list(folder.iterdir())))
    except FileNotFoundError:
        return []


def within(path: Place, root: Place) -> str:
    """Return the name of a file within a run, with slashes.

    >>> within(Path("runs/a/parts/0.parquet"), Path("runs/a"))
    'parts/0.parquet'
    """
    if isinstance(path, Path) and isinstance(root, Path):
        return path.relative_to(root).as_posix()
    return str(path)[len(str(root)) :].strip("/")


def part_of(name: str) -> str:
    """Return a file's name without the digest of its content and without its ending.

    >>> part_of("00003.ba7816bf8f01cfea.parquet"), part_of("00003.parquet")
    ('00003', '00003')
    """
    return name.partition(".")[0]


def present(path: Place) -> bool:
    """Return whether a part is there, whatever digest its name has, as of at most `FRESH` seconds ago."""
    return bool(existing_files(path))


def existing_files(path: Place) -> list[Any]:
    """Return the files of a part: none or one, or several if processes did a shard at the same time.

    One listing answers for a whole folder, so asking for thousands of parts takes few requests. With an answer that is
    out of date, a process computes a shard that another has just finished, with the same result.
    """
    folder = str(path.parent)
    longest_use = FRESH[isinstance(path, StorePath)]
    listing = _listed.get(folder)
    if listing is None or time.monotonic() - listing[0] > longest_use:
        listed_at = time.monotonic()
        names_by_part: dict[str, list[str]] = {}
        for name in sorted(entry.name for entry in _listing(path.parent)):
            if name.endswith(".parquet") and not name.startswith("."):
                names_by_part.setdefault(part_of(name), []).append(name)
        listing = _listed[folder] = (listed_at, names_by_part)
    _, names_by_part = listing
    return [path.parent / name for name in names_by_part.get(part_of(path.name), ())]


def note(path: Place) -> None:
    """Add a part that this process wrote to the listing of its folder."""
    listing = _listed.get(str(path.parent))
    if listing is not None:
        _, names_by_part = listing
        names = names_by_part.setdefault(part_of(path.name), [])
        names[:] = sorted({*names, path.name})


def drop_parts(paths: Iterable[Place]) -> None:
    """Remove parts that are about to be written anew with other content, and so under another name."""
    for part in paths:
        for path in existing_files(part):
            tried(path, partial(path.unlink, missing_ok=True), "removed")
    forget_listings()


def forget_listings() -> None:
    """List folders anew from here on."""
    _listed.clear()


def must_be_shared(where: Place) -> None:
    """Raise for an address that other processes cannot reach."""
    if isinstance(where, StorePath) and where.base.startswith("memory:"):
        raise UserError(
            f"{where} is the memory of one process; workers need a directory or a store that all can reach"
        )


def expect(where: Place) -> None:
    """Wait for a store from the first request on, as another process has reached it."""
    _answered.add(str(where))


def tried(where: Place, act: Callable[[], T], doing: str = "read") -> T:
    """Return what `act` returns, with retries while these may help; raise an error that names the file and what to do.

    That there is no such file, or one already, is not a failure of the storage and is passed on.
    """
    failures: tuple[type[Exception], ...] = (OSError,)
    if "botocore" in sys.modules:  # it has errors of its own for missing keys and the like
        failures += (importlib.import_module("botocore.exceptions").BotoCoreError,)
    try:
        return retry(act, AWAY if isinstance(where, StorePath) and where.base in _answered else ())
    except failures as error:
        if isinstance(error, FileExistsError) or (
            isinstance(error, FileNotFoundError) and doing != "written"
        ):
            raise
        raise failure(where, error, doing) from error


def failure(where: Place, error: Exception, doing: str = "written") -> UserError:
    """Return the error for a file that cannot be read or written, with what to do about it.

    >>> print(failure(Path("runs/a"), OSError(errno.ENOSPC, "No space left on device")))
    runs/a cannot be written: No space left on device; make room, then rerun the command to resume
    """
    reason = getattr(error, "strerror", None) or str(error) or type(error).__name__
    if isinstance(where, StorePath):
        return UserError(
            f"{where} cannot be {doing}: {reason}; check the address, its bucket and your keys"
        )
    full = getattr(error, "errno", None) in (errno.ENOSPC, errno.EDQUOT)
    advice = "; make room, then rerun the command to resume" if full else ""
    return UserError(f"{where} cannot be {doing}: {reason}{advice}")


@lru_cache(maxsize=64)
def _connect(base: str) -> tuple[Any, str]:
    """Return the file system of an address, and the address in that file system's notation."""
    scheme = base.partition("://")[0]
    try:
        fsspec = importlib.import_module("fsspec")
        file_system, path = fsspec.core.url_to_fs(base)
    except ImportError as error:
        package = STORES[scheme]
        install = f'"heatproof[{EXTRAS[package]}]"' if package in EXTRAS else package
        raise UserError(f"{base} needs {package}: pip install {install}") from error
    return file_system, str(path).rstrip("/")

"""Atomic writes: a file is whole or absent, whatever happens to the processes that write it, on any machine."""

from __future__ import annotations

import errno
import hashlib
import os
import re
import secrets
import shutil
import socket
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import cache
from pathlib import Path

from heatproof.runs.storage import Place, StorePath, failure

_writing: set[str] = set()
ABANDONED_AFTER = 3600.0
"""Seconds after which a temporary file of another machine counts as left over."""
_TEMPORARY = re.compile(r"\..+?\.((?P<host>[^\W_]*)-)?(?P<pid>\d+)(\.[0-9a-f]{8})?\.tmp")


@contextmanager
def scratch() -> Iterator[Path]:
    """Yield a temporary folder; unlike the standard library's, it gives up if the system refuses to remove it."""
    folder = Path(tempfile.mkdtemp(prefix="heatproof-"))
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def write_atomically(path: Place, content: bytes) -> None:
    """Write under another name, sync, rename; an error leaves nothing behind. In a store, one put."""
    if isinstance(path, StorePath):
        path.write_bytes(content)
        return
    with _written_beside(path, content) as temporary:
        temporary.replace(path)
        sync(path.parent)


def create_atomically(path: Place, content: bytes) -> bool:
    """Write a file unless it exists, and return whether it was written; see `write_atomically`."""
    if isinstance(path, StorePath):
        return path.create(content)
    with _written_beside(path, content) as temporary:
        try:
            # Of several processes, on one machine or on many, one succeeds.
            os.link(temporary, path)
        except FileExistsError:
            return False
        except OSError:
            # A file system without hard links: of several processes at the same instant the last one wins.
            if path.exists():
                return False
            temporary.replace(path)
        sync(path.parent)
    return True


@contextmanager
def _written_beside(path: Path, content: bytes) -> Iterator[Path]:
    """Yield a synced temporary file beside `path` with this content, ready to be renamed."""
    # Host and process id tell later whether the writer is still alive; the token keeps threads apart.
    temporary = path.with_name(
        f".{path.name}.{this_host()}-{os.getpid()}.{secrets.token_hex(4)}.tmp"
    )
    _writing.add(temporary.name)
    try:
        _make_directory(path.parent)
        with temporary.open("xb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        yield temporary
    except OSError as error:
        raise failure(path, error) from error
    finally:
        with suppress(OSError):  # else `sweep` removes it later
            temporary.unlink(missing_ok=True)
        _writing.discard(temporary.name)


def _make_directory(folder: Path) -> None:
    """Make a directory and its parents, and sync each so that it survives a power loss."""
    if not folder.is_dir():
        _make_directory(folder.parent)
        folder.mkdir(exist_ok=True)
        sync(folder.parent)


def sync(path: Path) -> None:
    """Sync the content of a file, or the names in a directory, to the disk; Windows does so by itself."""
    if os.name == "posix":
        handle = os.open(path, os.O_RDONLY)
        try:
            os.fsync(handle)
        except OSError as error:
            # Some file systems sync files only.
            if error.errno not in (errno.EINVAL, errno.ENOTSUP):
                raise
        finally:
            os.close(handle)


@cache
def this_host() -> str:
    """Return a name for this machine since its start, or this container, within which process ids are unique."""
    facts = []
    # Containers may share a host name, and a process id means nothing in another container.
    with suppress(OSError):
        facts = [
            Path("/proc/sys/kernel/random/boot_id").read_text(),
            str(os.stat("/proc/self/ns/pid").st_ino),
        ]
    own = hashlib.sha256("".join(facts).encode()).hexdigest()[:8] if facts else ""
    return re.sub(r"\W+|_", "", socket.gethostname())[:40] + own


def is_leftover(path: Place) -> bool:
    """Return whether a file is a temporary one that `write_atomically` left when its process was killed.

    >>> is_leftover(Path(".manifest.json.node7-123.tmp")), is_leftover(Path("thesis.tmp"))
    (True, False)
    """
    return _TEMPORARY.fullmatch(path.name) is not None


def is_abandoned(path: Path) -> bool:
    """Return whether nobody writes a temporary file any more, as far as this machine can tell.

    A process of this machine is looked up; one of another machine that shares the directory is gone after an hour.
    """
    name = _TEMPORARY.fullmatch(path.name)
    if name is None or path.name in _writing:
        return False
    if name["host"] is None or (name["host"] == this_host() and not _is_alive(int(name["pid"]))):
        return True
    try:
        return time.time() - path.stat().st_mtime > ABANDONED_AFTER
    except FileNotFoundError:  # its writer has just finished
        return False


def sweep(root: Place) -> None:
    """Remove the temporary files of writers that are gone; a store keeps nothing of an interrupted put."""
    if isinstance(root, StorePath):
        return
    for path in root.glob("**/.*.tmp"):
        if is_abandoned(path):
            with suppress(OSError):  # it is in nobody's way, and the next run tries again
                path.unlink()


def _is_alive(pid: int) -> bool:
    """Return whether another process with this id runs here."""
    if os.name != "posix":
        return True  # asking is not possible, so only its age tells
    if pid == os.getpid():
        return False  # numbers are used again; what this process writes now is known
    try:
        os.kill(pid, 0)
    except PermissionError:
        return True
    except (ProcessLookupError, OverflowError):
        return False
    return True

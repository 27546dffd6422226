"""A run directory as one zip, and back: the same run gives the same bytes, and a stranger's zip cannot do harm."""

from __future__ import annotations

import atexit
import re
import shutil
import stat
import tempfile
import zipfile
import zlib
from functools import cache
from pathlib import Path, PurePosixPath

from heatproof.errors import UserError
from heatproof.runs.atomic import scratch
from heatproof.runs.digests import contents, parts
from heatproof.runs.run import Run
from heatproof.runs.storage import files, within
from heatproof.runs.verify import SUFFIXES

MANIFEST, REPORT = "manifest.json", "report.html"
LARGEST_GROWTH = 200
"""How many times its size an archive may unpack to; Parquet is stored as it is, JSON and HTML shrink to a tenth."""
_EPOCH = (1980, 1, 1, 0, 0, 0)  # the first moment that a zip can write, so that no clock shows


def write_zip(run: Run, path: Path) -> list[str]:
    """Write the run to a new zip; gives the names in it. The report is drawn anew, for nothing says that one is whole.

    Names are sorted and carry no times, so equal runs give equal bytes.
    """
    path_of = {MANIFEST: run.path / MANIFEST}
    for folder, suffix in SUFFIXES.items():
        if suffix == ".parquet":
            paths = parts(run.path / folder)
        else:
            paths = files(run.path / folder, suffix)
        for file in paths:
            path_of[within(file, run.path)] = file
    names = sorted(path_of)
    with zipfile.ZipFile(path, "x", allowZip64=True) as archive:
        for name, content in zip(names, contents([path_of[name] for name in names]), strict=True):
            _add(archive, name, content)
        with scratch() as drawn:
            _add(archive, REPORT, run.report(drawn / REPORT).read_bytes())
    return [*names, REPORT]


def _add(archive: zipfile.ZipFile, name: str, content: bytes) -> None:
    entry = zipfile.ZipInfo(name, _EPOCH)
    entry.create_system = 3  # the same on every system
    entry.external_attr = (stat.S_IFREG | 0o644) << 16
    entry.compress_type = zipfile.ZIP_STORED if name.endswith(".parquet") else zipfile.ZIP_DEFLATED
    archive.writestr(entry, content)


def unpacked(path: Path) -> Path:
    """The run in a zip as a directory that lasts as long as this process; the same zip is unpacked once.

    Only the files of a run are taken, at the top of the zip or in one folder there, as packing by hand leaves them. A
    name that leads outside, a link, a name that comes twice, an encrypted or damaged file and an archive that grows
    beyond measure are refused.

    >>> unpacked(Path("no-such.zip"))
    Traceback (most recent call last):
    heatproof.errors.UserError: no-such.zip is not there
    """
    if not path.is_file():
        raise UserError(f"{path} is not there")
    facts = path.stat()
    return _unpacked(path.resolve(), facts.st_mtime_ns, facts.st_size)


@cache
def _unpacked(path: Path, changed: int, size: int) -> Path:
    """Unpack the files of a run into a temporary folder; time and size tell a zip that has changed from the cached one."""
    folder = Path(tempfile.mkdtemp(prefix="heatproof-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    try:
        with zipfile.ZipFile(path) as archive:
            for name, entry in _members(path, archive).items():
                target = folder / name
                target.parent.mkdir(parents=True, exist_ok=True)
                with archive.open(entry) as source, target.open("xb") as sink:
                    shutil.copyfileobj(source, sink)
    except (zipfile.BadZipFile, zlib.error, EOFError, NotImplementedError) as error:
        raise UserError(f"{path} is not a zip that can be read: {error}") from error
    except OSError as error:  # no room, or names that this system does not take
        raise UserError(f"{path} cannot be unpacked: {error}") from error
    return folder


def _members(path: Path, archive: zipfile.ZipFile) -> dict[str, zipfile.ZipInfo]:
    """name in the run -> entry of the zip, after everything about them has been checked."""
    entries = [entry for entry in archive.infolist() if not entry.is_dir()]
    for entry in entries:
        _check(path, entry)
    names = {entry.filename for entry in entries}
    if len(names) < len(entries):
        raise UserError(f"{path} holds a name twice")
    # The run is at the top of the zip or in one folder there: where its manifest is.
    tops = []
    for name in names:
        if re.fullmatch(rf"([^/]+/)?{re.escape(MANIFEST)}", name):
            tops.append(name.removesuffix(MANIFEST))
    if len(tops) != 1:
        raise UserError(f"{path} holds no run: it has {'several' if tops else 'no'} {MANIFEST}")
    (top,) = tops
    members = {}
    for entry in entries:
        name = entry.filename.removeprefix(top)
        if entry.filename.startswith(top) and _belongs(name):
            members[name] = entry
    total_size = sum(entry.file_size for entry in members.values())
    if total_size > LARGEST_GROWTH * path.stat().st_size:
        raise UserError(
            f"{path} would unpack to {total_size:,} bytes, {LARGEST_GROWTH} times its size or more"
        )
    return members


def _belongs(name: str) -> bool:
    """Whether a file is one that runs have.

    >>> [_belongs(name) for name in ("manifest.json", "parts/a/0.parquet", "parts/a/.0.parquet", "setup.py")]
    [True, True, False, False]
    """
    parts = PurePosixPath(name).parts
    if len(parts) == 1:
        return name in (MANIFEST, REPORT)
    return name.endswith(SUFFIXES.get(parts[0], "\0")) and not any(
        part.startswith(".") for part in parts
    )


def _check(path: Path, entry: zipfile.ZipInfo) -> None:
    """Raise for an entry that leads outside of the folder, that is no plain file, or that is encrypted."""
    name = entry.filename
    if name.startswith("/") or re.search(r"[\\:\0]|(^|/)\.\.(/|$)", name) or "//" in name:
        raise UserError(f"{path} holds the name {name!r}, which leads outside of its folder")
    kind = stat.S_IFMT(entry.external_attr >> 16)
    if kind not in (0, stat.S_IFREG):
        raise UserError(f"{path} holds {name!r}, which is a link or a device and not a file")
    if entry.flag_bits & 1:
        raise UserError(f"{path} is encrypted; unpack it yourself and read the folder")

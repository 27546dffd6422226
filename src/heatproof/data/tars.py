"""WebDataset's tar shards: the members of one sample share their name up to its first dot.

Opening scans the headers and reads the labels; a picture is read from its place in the shard when it is asked for.
"""

from __future__ import annotations

import json
import math
import os
import re
import tarfile
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

from heatproof.data import images
from heatproof.data.choices import NO_LABEL, ranked
from heatproof.data.dataset import Data, How
from heatproof.data.files import LARGEST_PICTURE, encoded
from heatproof.data.text import as_text, unpacked
from heatproof.errors import UserError

_LARGEST_LABEL = 2**20
_PREFERRED = ("jpg", "jpeg", "png", "webp")
_BLOCK = tarfile.BLOCKSIZE


class Member(NamedTuple):
    """One file in a shard: the key of its sample, the rest of its name, and where its bytes are."""

    key: str
    kind: str
    start: int
    size: int
    problem: str | None = None


class Found(NamedTuple):
    """One sample: its key and shard, its picture or why there is none, and its label."""

    key: str
    shard: int
    picture: Member
    problem: str | None
    label: Any


def open_tars(name: str, shards: Sequence[Path], how: How, label: str | None = None) -> Data:
    """Pictures of the shards with the label in `.cls`, or under `label` in `.json`; ids are the keys.

    `label` names another member or another key of `.json`. A member that is damaged, or claims more bytes than the
    shard has, is recorded as an error; so is the rest of a shard that cannot be followed further, as one sample.
    """
    found = [
        sample for number, shard in enumerate(shards) for sample in _samples(shard, number, label)
    ]
    if not any(sample.problem is None for sample in found):
        reason = found[0].problem if found else "no files"
        raise UserError(
            f"{str(shards[0])!r} has no picture (found: {reason}); 0001.jpg and 0001.cls were expected"
        )
    found, labels, names = _labelled(found, label, str(shards[0]))
    if names is None and labels is not None:
        path = shards[0].with_name("classnames.txt")
        names = tuple(as_text(unpacked(path), str(path)).splitlines()) if path.is_file() else None
    keys = [sample.key for sample in found]
    ids = (
        keys if len(set(keys)) == len(keys) else [f"{shards[s.shard].stem}/{s.key}" for s in found]
    )
    return encoded(name, ids, partial(_pieces, tuple(shards), found), how, labels, names)


def _samples(shard: Path, number: int, label: str | None) -> Iterator[Found]:
    """The samples of one shard in order; adjacent members with one key are one sample."""
    try:
        with shard.open("rb") as file:
            group: list[Member] = []
            for member in _members(shard, file):
                if group and member.key != group[0].key:
                    yield _sample(group, number, label, file)
                    group = []
                group.append(member)
            if group:
                yield _sample(group, number, label, file)
    except OSError as error:
        raise UserError(f"cannot read {str(shard)!r}: {error}") from error


def _members(shard: Path, file: BinaryIO) -> Iterator[Member]:
    """The files of a shard; where it cannot be followed further, one last member that says so."""
    size = os.fstat(file.fileno()).st_size
    try:
        archive = tarfile.open(fileobj=file, mode="r:")  # noqa: SIM115 - closing it would end what the caller reads
    except tarfile.TarError as error:
        packed = file.seek(0) == 0 and file.read(2) == b"\x1f\x8b"
        hint = (
            "it is compressed; unpack it, for a compressed tar cannot be read from the middle"
            if packed
            else error
        )
        raise UserError(f"cannot read {str(shard)!r} as tar: {hint}") from error
    last = -1
    while True:
        try:
            info = archive.next()
        except (tarfile.TarError, ValueError, OverflowError) as error:
            yield _rest(shard, f"the shard cannot be read after byte {max(last, 0)}: {error}")
            return
        if info is None:
            file.seek(archive.offset)
            if file.read(_BLOCK).strip(b"\0"):
                yield _rest(
                    shard,
                    f"the shard has a damaged header at byte {archive.offset}; what follows is lost",
                )
            return
        if info.size < 0 or info.offset <= last:
            yield _rest(shard, f"the shard has a header at byte {info.offset} that leads backwards")
            return
        last = info.offset
        if info.isfile() and not os.path.basename(info.name).startswith("."):
            yield _member(info, size)
        archive.members.clear()  # type: ignore[attr-defined] # a shard may have millions, and tarfile keeps them all


def _member(info: tarfile.TarInfo, size: int) -> Member:
    folder, name = os.path.split(info.name)
    key, _, kind = name.partition(".")
    whole = f"{folder}/{key}" if folder not in ("", ".") else key
    problem = None
    if info.issparse():
        problem = f"{name} is stored as a sparse file"
    elif info.offset_data + info.size > size:
        problem = f"{name} claims {info.size} bytes, but the shard ends before"
    readable = (
        whole.removeprefix("./")
        .encode("utf-8", "surrogateescape")
        .decode("utf-8", "backslashreplace")
    )
    return Member(readable, kind.lower(), info.offset_data, info.size, problem)


def _rest(shard: Path, problem: str) -> Member:
    return Member(f"{shard.name}:rest", "", 0, 0, problem)


def _sample(group: Sequence[Member], shard: int, label: str | None, file: BinaryIO) -> Found:
    key, problem = group[0].key, next((member.problem for member in group if member.problem), None)
    pictures = [
        member for member in group if f".{member.kind.rpartition('.')[2]}" in images.suffixes()
    ]
    rank = {kind: i - len(_PREFERRED) for i, kind in enumerate(_PREFERRED)}
    plain = sorted(
        (m for m in pictures if "." not in m.kind), key=lambda m: (rank.get(m.kind, 0), m.kind)
    )
    chosen = plain[0] if plain else pictures[0] if len(pictures) == 1 else None
    if problem is None and chosen is None:
        kinds = ", ".join(f".{member.kind}" for member in group)
        problem = f"one picture was expected, found {len(pictures)} among {kinds}"
    if problem is None and chosen is not None and chosen.size > LARGEST_PICTURE:
        problem = f"the picture has {chosen.size} bytes; at most {LARGEST_PICTURE} are read"
    found = None
    if problem is None and label != NO_LABEL:
        try:
            found = _label(group, label, file)
        except (ValueError, RecursionError) as error:
            problem = f"the label cannot be read: {error}"
    return Found(key, shard, chosen or group[0], problem, found)


def _label(group: Sequence[Member], label: str | None, file: BinaryIO) -> Any:
    """A whole number, a word, or None; from the member of that name, else from `.json`."""
    own = next((member for member in group if member.kind == (label or "cls")), None)
    if own is not None:
        text = _bytes(own, file).decode("utf-8").strip()
        return int(text) if re.fullmatch(r"-?\d{1,18}", text) else text
    described = next((member for member in group if member.kind == "json"), None)
    content = None if described is None else json.loads(_bytes(described, file))
    keys = (label,) if label is not None else ("label", "cls")
    value = (
        next((content[key] for key in keys if key in content), None)
        if isinstance(content, dict)
        else None
    )
    if isinstance(value, list | dict):
        raise UserError(
            f"the sample {group[0].key!r} has several labels, {str(value)[:60]}; one target must be chosen: name a "
            f"member or a key of .json that holds one, with label=…, or leave labels out with label={NO_LABEL!r}"
        )
    return value


def _bytes(member: Member, file: BinaryIO) -> bytes:
    if member.size > _LARGEST_LABEL:
        raise ValueError(
            f".{member.kind} has {member.size} bytes; at most {_LARGEST_LABEL} are read"
        )
    back = file.tell()
    file.seek(member.start)
    content = file.read(member.size)
    file.seek(back)
    return content


def _labelled(
    found: list[Found], label: str | None, what: str
) -> tuple[list[Found], list[Any] | None, tuple[str, ...] | None]:
    """Samples, labels and names: words are numbered in their sorted order; a word among numbers is damage."""
    values = [sample.label for sample in found]
    known = [value for value in values if value is not None]
    if not known:
        if label not in (None, NO_LABEL):
            raise UserError(
                f"{what!r} has no member .{label} and no key {label!r} in .json to take labels from"
            )
        return found, None, None
    if all(isinstance(value, str) for value in known):
        return found, *ranked(values)
    whole = [
        None if not isinstance(v, int | float) or not math.isfinite(v) or v != int(v) else int(v)
        for v in values
    ]
    mended = [
        sample._replace(problem=f"the label {str(sample.label)[:40]!r} is not a whole number")
        if sample.label is not None and value is None and sample.problem is None
        else sample
        for sample, value in zip(found, whole, strict=True)
    ]
    return mended, whole, None


def _pieces(
    shards: Sequence[Path], found: Sequence[Found], positions: Sequence[int]
) -> list[Path | bytes | Exception]:
    """The encoded pictures at `positions`; each shard that holds one is opened once."""
    pieces: dict[int, bytes | Exception] = {}
    for shard in sorted({found[i].shard for i in positions}):
        wanted = [i for i in positions if found[i].shard == shard]
        try:
            with shards[shard].open("rb") as file:
                pieces |= {i: _piece(found[i], file) for i in wanted}
        except OSError as error:
            pieces |= dict.fromkeys(wanted, error)
    return [pieces[i] for i in positions]


def _piece(sample: Found, file: BinaryIO) -> bytes | Exception:
    if sample.problem is not None:
        return ValueError(sample.problem)
    file.seek(sample.picture.start)
    content = file.read(sample.picture.size)
    return (
        content
        if len(content) == sample.picture.size
        else OSError("the shard is shorter than when it was opened")
    )

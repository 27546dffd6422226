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
from itertools import groupby
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

from heatproof.data import images
from heatproof.data.choices import NO_LABEL, ranked
from heatproof.data.dataset import Data, How
from heatproof.data.files import LARGEST_PICTURE, encoded
from heatproof.data.text import as_text, unpacked
from heatproof.errors import UserError

_LARGEST_LABEL = 2**20
"""Bytes of a label or `.json` beyond which it is not read."""
_PREFERRED = ("jpg", "jpeg", "png", "webp")
_BLOCK = tarfile.BLOCKSIZE


class Member(NamedTuple):
    """One file in a shard: the key of its sample, the rest of its name, and where its bytes are."""

    key: str
    kind: str
    start: int
    size: int
    problem: str | None = None


def open_tars(name: str, shards: Sequence[Path], how: How, label: str | None = None) -> Data:
    """Open the pictures in tar shards, in the layout of WebDataset: files with the same name but suffix are one sample.

    `0001.jpg` has its label in `0001.cls`, or under the key "label" of `0001.json`; `label` names another suffix or key.
    The common name is the sample's id. A damaged file is recorded as unreadable, and so is, as one sample, the rest of a
    shard behind damage that hides what follows.
    """
    samples: list[TarSample] = []
    for number, shard in enumerate(shards):
        samples += _samples(shard, number, label)
    if all(sample.problem is not None for sample in samples):
        reason = samples[0].problem if samples else "no files"
        raise UserError(
            f"{str(shards[0])!r} has no picture (found: {reason}); 0001.jpg and 0001.cls were expected"
        )
    samples, labels, class_names = _labelled(samples, label, str(shards[0]))
    if class_names is None and labels is not None:
        class_names = _names_beside(shards[0])
    ids = [sample.key for sample in samples]
    if len(set(ids)) < len(ids):
        ids = [f"{shards[sample.shard].stem}/{sample.key}" for sample in samples]
    fetch = partial(_pieces, tuple(shards), samples)
    return encoded(name, ids, fetch, how, labels, class_names)


def _samples(shard: Path, number: int, label: str | None) -> Iterator[TarSample]:
    """Yield the samples of one shard in order; adjacent members with one key are one sample."""
    try:
        with shard.open("rb") as file:
            for _, members in groupby(_members(shard, file), key=lambda member: member.key):
                yield _sample(list(members), number, label, file)
    except OSError as error:
        raise UserError(f"cannot read {str(shard)!r}: {error}") from error


def _members(shard: Path, file: BinaryIO) -> Iterator[Member]:
    """Yield the files of a shard in order.

    Behind damage that hides what follows, the last one yielded stands for the rest and has the problem.
    """
    size = os.fstat(file.fileno()).st_size
    try:
        archive = tarfile.open(fileobj=file, mode="r:")  # noqa: SIM115 - closing it would end what the caller reads
    except tarfile.TarError as error:
        is_compressed = file.seek(0) == 0 and file.read(2) == b"\x1f\x8b"
        reason: object = error
        if is_compressed:
            reason = (
                "it is compressed; unpack it, for a compressed tar cannot be read from the middle"
            )
        raise UserError(f"cannot read {str(shard)!r} as tar: {reason}") from error
    last_offset = -1
    while True:
        try:
            info = archive.next()
        except (tarfile.TarError, ValueError, OverflowError) as error:
            position = max(last_offset, 0)
            yield _rest(shard, f"the shard cannot be read after byte {position}: {error}")
            return
        if info is None:
            # tarfile takes a damaged header for the end, which is marked by a block of zeros.
            file.seek(archive.offset)
            if file.read(_BLOCK).strip(b"\0"):
                yield _rest(
                    shard,
                    f"the shard has a damaged header at byte {archive.offset}; what follows is lost",
                )
            return
        if info.size < 0 or info.offset <= last_offset:
            # Reading on could never end.
            yield _rest(shard, f"the shard has a header at byte {info.offset} that leads backwards")
            return
        last_offset = info.offset
        if info.isfile() and not os.path.basename(info.name).startswith("."):
            yield _member(info, size)
        archive.members.clear()  # type: ignore[attr-defined] # a shard may have millions, and tarfile keeps them all


def _member(info: tarfile.TarInfo, size: int) -> Member:
    """Return a file of a shard of `size` bytes, with the problem that it has, if any."""
    folder, name = os.path.split(info.name)
    stem, _, kind = name.partition(".")
    key = f"{folder}/{stem}" if folder not in ("", ".") else stem
    key = key.removeprefix("./")
    # Names that are no UTF-8 arrive with surrogates, which no table can store.
    key = key.encode("utf-8", "surrogateescape").decode("utf-8", "backslashreplace")
    problem = None
    if info.issparse():
        problem = f"{name} is stored as a sparse file"
    elif info.offset_data + info.size > size:
        problem = f"{name} claims {info.size} bytes, but the shard ends before"
    return Member(key, kind.lower(), info.offset_data, info.size, problem)


def _rest(shard: Path, problem: str) -> Member:
    return Member(f"{shard.name}:rest", "", 0, 0, problem)


def _sample(members: Sequence[Member], shard: int, label: str | None, file: BinaryIO) -> TarSample:
    """Return the sample that some files of a shard make up, with its picture and label, or the problem that it has."""
    problem = next((member.problem for member in members if member.problem), None)
    pictures = []
    for member in members:
        last_suffix = f".{member.kind.rpartition('.')[2]}"
        if last_suffix in images.suffixes():
            pictures.append(member)
    picture = _main_picture(pictures)
    if problem is None and picture is None:
        kinds = ", ".join(f".{member.kind}" for member in members)
        problem = f"one picture was expected, found {len(pictures)} among {kinds}"
    if problem is None and picture is not None and picture.size > LARGEST_PICTURE:
        problem = f"the picture has {picture.size} bytes; at most {LARGEST_PICTURE} are read"
    value = None
    if problem is None and label != NO_LABEL:
        try:
            value = _label(members, label, file)
        except (ValueError, RecursionError) as error:
            problem = f"the label cannot be read: {error}"
    return TarSample(members[0].key, shard, picture or members[0], problem, value)


def _label(members: Sequence[Member], label: str | None, file: BinaryIO) -> Any:
    """Return the label of a sample, a whole number, a word or None.

    It is the content of the file with the suffix `label` (by default `.cls`), else the value of that key in `.json` (by
    default "label" or "cls").
    """
    by_kind: dict[str, Member] = {}
    for member in members:
        by_kind.setdefault(member.kind, member)
    own_file = by_kind.get(label or "cls")
    if own_file is not None:
        text = _bytes(own_file, file).decode("utf-8").strip()
        return int(text) if re.fullmatch(r"-?\d{1,18}", text) else text
    content = json.loads(_bytes(by_kind["json"], file)) if "json" in by_kind else None
    value = None
    if isinstance(content, dict):
        keys = (label,) if label is not None else ("label", "cls")
        value = next((content[key] for key in keys if key in content), None)
    if isinstance(value, list | dict):
        raise UserError(
            f"the sample {members[0].key!r} has several labels, {str(value)[:60]}; one target must be chosen: name a "
            f"member or a key of .json that holds one, with label=…, or leave labels out with label={NO_LABEL!r}"
        )
    return value


def _bytes(member: Member, file: BinaryIO) -> bytes:
    """Return the content of a small file in an open shard; the position in the shard stays where it was."""
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
    samples: list[TarSample], label: str | None, what: str
) -> tuple[list[TarSample], list[Any] | None, tuple[str, ...] | None]:
    """Return samples, their labels as numbers, and the names of the classes.

    If all labels are words, they are numbered in sorted order and name the classes. A word among numbers is damage: the
    sample becomes unreadable.
    """
    values = [sample.label for sample in samples]
    present = [value for value in values if value is not None]
    if not present:
        if label not in (None, NO_LABEL):
            raise UserError(
                f"{what!r} has no member .{label} and no key {label!r} in .json to take labels from"
            )
        return samples, None, None
    if all(isinstance(value, str) for value in present):
        return samples, *ranked(values)
    checked: list[TarSample] = []
    labels: list[int | None] = []
    for sample in samples:
        number = _whole(sample.label)
        problem = sample.problem
        if problem is None and sample.label is not None and number is None:
            problem = f"the label {str(sample.label)[:40]!r} is not a whole number"
        checked.append(sample._replace(problem=problem))
        labels.append(number)
    return checked, labels, None


def _pieces(
    shards: Sequence[Path], samples: Sequence[TarSample], positions: Sequence[int]
) -> list[Path | bytes | Exception]:
    """Return the encoded pictures at `positions`, or why one cannot be read; each shard that holds one is opened once."""
    by_shard: dict[int, list[int]] = {}
    for position in positions:
        by_shard.setdefault(samples[position].shard, []).append(position)
    pieces: dict[int, bytes | Exception] = {}
    for shard, in_shard in by_shard.items():
        try:
            with shards[shard].open("rb") as file:
                for position in in_shard:
                    pieces[position] = _piece(samples[position], file)
        except OSError as error:
            pieces |= dict.fromkeys(in_shard, error)
    return [pieces[position] for position in positions]


def _piece(sample: TarSample, file: BinaryIO) -> bytes | Exception:
    """Return the encoded picture of a sample from its open shard, or why there is none."""
    if sample.problem is not None:
        return ValueError(sample.problem)
    file.seek(sample.picture.start)
    content = file.read(sample.picture.size)
    if len(content) < sample.picture.size:
        return OSError("the shard is shorter than when it was opened")
    return content


class TarSample(NamedTuple):
    """One sample: its key and shard, its picture or why there is none, and its label."""

    key: str
    shard: int
    picture: Member
    problem: str | None
    label: Any


def _names_beside(shard: Path) -> tuple[str, ...] | None:
    """Return the lines of `classnames.txt` beside the shards, if it is there."""
    path = shard.with_name("classnames.txt")
    return tuple(as_text(unpacked(path), str(path)).splitlines()) if path.is_file() else None


def _main_picture(pictures: Sequence[Member]) -> Member | None:
    """Return the picture of a sample: `.jpg` before others, `.png` before `.mask.png`; None where it is not clear."""
    plain = [member for member in pictures if "." not in member.kind]
    if plain:
        preference = {kind: rank for rank, kind in enumerate(_PREFERRED)}
        return min(plain, key=lambda m: (preference.get(m.kind, len(_PREFERRED)), m.kind))
    return pictures[0] if len(pictures) == 1 else None


def _whole(value: Any) -> int | None:
    """Return a value as an int; None where it is no whole number."""
    if not isinstance(value, int | float) or not math.isfinite(value) or value != int(value):
        return None
    return int(value)

"""Every file of a run says what its bytes must be, apart from them: nothing damaged is ever parsed.

A part carries the start of the SHA-256 of its content in its name, `00003.1f0e….parquet`, so one atomic rename gives
both, whoever else writes beside it. JSON ends with a line that seals all before it. Whatever is read is checked first.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise
from typing import Any, TypeVar

from heatproof.errors import Damaged, UserError
from heatproof.runs.storage import AT_ONCE, Place, StorePath, files, part_of, tried

DIGITS = 16
"""How many hexadecimal digits of a SHA-256 a name carries: damage is overlooked once in 2⁶⁴ times."""
ADVICE = "remove it and rerun the command to compute it again"
_NAMED = re.compile(rf"[^.]+\.([0-9a-f]{{{DIGITS}}})\.parquet")
_SEAL = b',\n  "sha256": "'
T = TypeVar("T")


def digest(content: bytes) -> str:
    """The digits that stand in a name for this content.

    >>> digest(b"abc")
    'ba7816bf8f01cfea'
    """
    return hashlib.sha256(content).hexdigest()[:DIGITS]


def named(path: Place, content: bytes) -> Place:
    """Where this content of a part goes.

    >>> from pathlib import Path
    >>> named(Path("run/00003.parquet"), b"abc").name
    '00003.ba7816bf8f01cfea.parquet'
    """
    return path.parent / f"{part_of(path.name)}.{digest(content)}.parquet"


def sealed(content: Mapping[str, Any]) -> bytes:
    """Plain data as JSON with a last line that is the digest of all before it.

    >>> print(sealed({"seed": 0}).decode())
    {
      "seed": 0,
      "sha256": "345a1cb7489f79b1"
    }
    """
    body = as_json(content)[: -len("\n}")]
    return body + _SEAL + digest(body).encode() + b'"\n}'


def as_json(content: Mapping[str, Any]) -> bytes:
    """Plain data as people read it."""
    return json.dumps(content, indent=2, ensure_ascii=False).encode()


def check(path: Place, content: bytes) -> None:
    """Raise `Damaged` unless a file of a run has the bytes that were written."""
    if path.name.endswith(".json"):
        body, _, seal = content.rpartition(_SEAL)
        if seal != digest(body).encode() + b'"\n}':
            raise Damaged(
                f"{path} is damaged: its last line is not the digest of the lines before; {ADVICE}"
            )
        return
    name = _NAMED.fullmatch(path.name)
    if name is None:
        raise Damaged(f"{path} is not a part of a run: its name has no digest; remove it")
    if name[1] != digest(content):
        raise Damaged(
            f"{path} is damaged: the digest of its {len(content)} bytes is not the one in its name; {ADVICE}"
        )


def read(path: Place) -> bytes:
    """The bytes of a file of a run, checked."""
    content = tried(path, path.read_bytes)
    check(path, content)
    return content


def read_json(path: Place) -> dict[str, Any]:
    """The content of a sealed file."""
    content: dict[str, Any] = json.loads(read(path))
    del content["sha256"]
    return content


def contents(paths: Sequence[Place]) -> Iterator[bytes]:
    """What is in each file, in order and checked; from a store several come at a time."""
    if not any(isinstance(path, StorePath) for path in paths):
        yield from map(read, paths)
        return
    with ThreadPoolExecutor(AT_ONCE) as pool:
        for start in range(0, len(paths), 4 * AT_ONCE):  # a bound on what waits in memory
            yield from pool.map(read, paths[start : start + 4 * AT_ONCE])


def parts(folder: Place) -> list[Any]:
    """Return the parts below a folder, sorted; raise if two are of the same shard, for either may be meant."""
    paths = files(folder, ".parquet")
    for first, second in doubled(paths):
        raise UserError(
            f"{first} and {second} are of the same shard; remove one, or rerun the command, which keeps one"
        )
    return paths


def doubled(paths: Sequence[Any]) -> list[tuple[Any, Any]]:
    """Return the neighbours in a sorted list of parts that are of the same shard."""
    pairs = []
    for first, second in pairwise(paths):
        if first.parent == second.parent and part_of(first.name) == part_of(second.name):
            pairs.append((first, second))
    return pairs

"""Text in files: unpacked, decoded, as the object that JSON describes, and as rows of cells."""

from __future__ import annotations

import csv
import gzip
import io
import json
import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from heatproof.errors import UserError


def unpacked(path: Path) -> bytes:
    """The content of a file, of a `.gz` what is inside."""
    try:
        return (
            gzip.decompress(path.read_bytes())
            if path.suffix.lower() == ".gz"
            else path.read_bytes()
        )
    except (OSError, EOFError, zlib.error) as error:
        raise UserError(f"cannot read {str(path)!r}: {error}") from error


def as_text(content: bytes, what: str) -> str:
    """Bytes as text in UTF-8."""
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise UserError(
            f"{what!r} is not text in UTF-8: {error.reason} at byte {error.start}"
        ) from error


def as_object(text: str, what: str) -> Mapping[str, Any]:
    """The object that JSON describes."""
    try:
        found = json.loads(text)
    except (json.JSONDecodeError, RecursionError) as error:
        raise UserError(f"{what} is not JSON: {error}") from error
    if not isinstance(found, Mapping):
        raise UserError(f"{what} is {type(found).__name__}; an object was expected")
    return found


def cells_of(text: str, what: str, delimiter: str, strict: bool = False) -> list[list[str]]:
    """The rows of a table that are not empty; a quoted cell may go over several lines."""
    try:
        rows = csv.reader(io.StringIO(text, newline=""), delimiter=delimiter, strict=strict)
        return [row for row in rows if any(cell.strip() for cell in row)]
    except csv.Error as error:
        raise UserError(f"cannot read {what!r} as rows of cells: {error}") from error

"""Changes to a run directory that leave it well formed, as tests of what is done about its content need them."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq

from heatproof.runs import digests, tables
from heatproof.runs.directory import FOLDERS, RunDirectory, write_part
from heatproof.runs.storage import files


def edit_json(path: Path, change: Callable[[dict[str, Any]], Any]) -> None:
    """Change the manifest or a session in place, and seal it again."""
    content = json.loads(path.read_text(encoding="utf-8"))
    content.pop("sha256", None)
    change(content)
    path.write_bytes(digests.sealed(content))


def edit_study(root: Path, change: Callable[[dict[str, Any]], Any]) -> None:
    """Change the manifest of a run and make all parts those of the changed study."""
    edit_json(root / "manifest.json", change)
    run_directory = RunDirectory(root)
    for path in [path for folder in FOLDERS.values() for path in files(root / folder, ".parquet")]:
        replace_part(run_directory, path, pq.ParquetFile(path).read())


def replace_part(run_directory: RunDirectory, path: Path, rows: pa.Table) -> Path:
    """Put other rows of the same study in the place of a part."""
    path.unlink()
    return add_part(run_directory, path, rows)


def add_part(run_directory: RunDirectory, path: Path, rows: pa.Table) -> Path:
    """Write other rows for the shard of a part that is there."""
    written = write_part(path, rows, run_directory.study_key_of(path))
    assert isinstance(written, Path)
    return written


def rewrite_part(path: Path, frame: pd.DataFrame) -> Path:
    """Put other rows, or the same in other bytes, in the place of a part of scores, under the name they must have."""
    study = pq.read_metadata(path).metadata[b"study"]
    rows = pa.Table.from_pandas(frame, schema=tables.SCORES, preserve_index=False)
    path.unlink()
    with pq.ParquetWriter(path, rows.schema, compression="none") as file:
        file.write_table(rows)
        file.add_key_value_metadata({"study": study})
    return path.rename(digests.named(path, path.read_bytes()))

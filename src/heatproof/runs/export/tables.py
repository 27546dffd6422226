"""The tables of a run as CSV, Arrow IPC and Parquet files."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq

from heatproof.runs.digests import as_json
from heatproof.runs.run import Run
from heatproof.runs.tables import SAMPLES, SCORES
from heatproof.text import inert


def tables(run: Run) -> dict[str, pa.Table]:
    """The three tables of a run: scores (one row per attempted pair and measure), samples and summary."""
    summary = pa.Table.from_pandas(run.summary(), preserve_index=False)
    return {
        "scores": _arrow(run.table(), SCORES),
        "samples": _arrow(run.samples(), SAMPLES),
        "summary": summary.cast(_plain(summary.schema)),
    }


def study_facts(run: Run, gaps: list[str]) -> dict[str, Any]:
    """What was measured, with what, from which run, and what is missing: plain data that goes with every export."""
    manifest = run.manifest
    facts = {
        "heatproof": manifest.heatproof,
        "created": manifest.created,
        "command": manifest.command,
        "versions": manifest.versions,
        "study": manifest.study.as_mapping(),
    }
    return {"run": fingerprint(run), **facts, "missing": gaps}


def fingerprint(run: Run) -> str:
    """SHA-256 of a run's manifest.json, which is written once: the same after a resume, in a copy and in a zip."""
    return hashlib.sha256((run.path / "manifest.json").read_bytes()).hexdigest()


def write_tables(run: Run, folder: Path, kind: str) -> dict[str, int | None]:
    """Write the three tables of a run as files of one of the `WRITERS`; gives the rows of each file."""
    files: dict[str, int | None] = {}
    for name, rows in tables(run).items():
        path = folder / f"{name}.{kind}"
        WRITERS[kind](rows, path)
        files[path.name] = len(rows)
    return files


def write_study(run: Run, folder: Path, gaps: list[str]) -> dict[str, int | None]:
    """Write `study_facts` as study.json."""
    (folder / "study.json").write_bytes(as_json(study_facts(run, gaps)))
    return {"study.json": None}


def _write_csv(rows: pa.Table, path: Path) -> None:
    frame = rows.to_pandas(integer_object_nulls=True)
    for field in rows.schema:
        if field.type == pa.string():
            frame[field.name] = inert(frame[field.name])
    frame.to_csv(path, index=False, lineterminator="\n", encoding="utf-8")


def _write_arrow(rows: pa.Table, path: Path) -> None:
    with pa.OSFile(str(path), "wb") as sink, pa.ipc.new_file(sink, rows.schema) as writer:
        writer.write_table(rows)


WRITERS: dict[str, Callable[[pa.Table, Path], None]] = {
    "csv": _write_csv,
    "arrow": _write_arrow,
    "parquet": partial(pq.write_table, compression="zstd"),
}


def _arrow(frame: pd.DataFrame, schema: pa.Schema) -> pa.Table:
    return pa.Table.from_pandas(
        frame, schema=schema, preserve_index=False
    ).replace_schema_metadata()


def _plain(schema: pa.Schema) -> pa.Schema:
    """The schema with one kind of text and without what only pandas reads."""
    kinds = {pa.large_string(): pa.string(), pa.null(): pa.string()}
    return pa.schema([(field.name, kinds.get(field.type, field.type)) for field in schema])

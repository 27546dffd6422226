"""The tables of a run: scores, samples, and what reference samples add to the error of chance.

`docs/table.md` describes their columns.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from itertools import groupby
from typing import Any

import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc

from heatproof.errors import UserError
from heatproof.evaluation import STATUS, Scores
from heatproof.maps.chance import packed
from heatproof.runs import columns, digests
from heatproof.runs.directory import read_parts
from heatproof.runs.storage import Place
from heatproof.statistics.cubes import SUFFIXES

SCORES = pa.schema(
    [
        (name, pa.string())
        for name in ("dataset", "model", "explainer", "role", "evaluation", "sample", "measure")
    ]
    + [
        ("condition", pa.string()),
        ("level", pa.float64()),
        ("imputer", pa.string()),
        ("order", pa.string()),
    ]
    + [("share", pa.float64()), ("repeat", pa.int32())]
    + [(name, pa.float64()) for name in ("value", "low", "high")]
    + [("status", pa.string()), ("reason", pa.string())]
)
_OF_A_COLUMN = ("explainer", "measure", "condition", "level", "imputer", "order", "share", "repeat")
PARTS = SCORES.append(pa.field("references", pa.binary()))
"""What parts hold: the scores, and with the first row of a column of chance what each reference adds to it."""
SAMPLES = pa.schema(
    [(name, pa.string()) for name in ("dataset", "model", "sample")]
    + [("label", pa.int64()), ("predicted", pa.int64()), ("predicted_name", pa.string())]
    + [("readout", pa.float64()), ("probability", pa.float64()), ("error", pa.string())]
    + [("transient", pa.bool_()), ("digest", pa.string()), ("group", pa.string())]
)
"""`transient`: the error may have passed since; `digest`: of the sample's bytes as they were read."""
KEY = [
    "dataset",
    "model",
    "explainer",
    "evaluation",
    "sample",
    "measure",
    "condition",
    "level",
    "repeat",
]
PLACE = [
    "dataset",
    "model",
    "evaluation",
    "explainer",
    "role",
    "measure",
    "condition",
    "level",
    "order",
]


def score_rows(
    dataset: str,
    model: str,
    evaluation: str,
    role: str,
    ids: Iterable[str],
    scores: Iterable[Scores],
) -> pa.Table:
    """The rows of one part, in the order in which the scores came; `role` is that of its explainer."""
    names = pa.array(list(ids), pa.string())
    n = len(names)
    tables = []
    for s in scores:
        same = {"dataset": dataset, "model": model, "role": role, "evaluation": evaluation}
        same |= {name: getattr(s, name) for name in _OF_A_COLUMN}
        content = {
            **{
                name: pa.repeat(pa.scalar(value, PARTS.field(name).type), n)
                for name, value in same.items()
            },
            "sample": names,
            "value": s.value.double().tolist(),
            "low": pa.nulls(n, pa.float64()) if s.low is None else s.low.double().tolist(),
            "high": pa.nulls(n, pa.float64()) if s.high is None else s.high.double().tolist(),
            "status": [STATUS[code] for code in s.status.tolist()],
            "reason": list(s.reason),
            "references": [
                None if s.by_reference is None else packed(s.by_reference),
                *[None] * (n - 1),
            ][:n],
        }
        tables.append(pa.Table.from_pydict(content, schema=PARTS))
    return pa.concat_tables(tables) if tables else PARTS.empty_table()


def read_scores(
    root: Place,
    compact: bool = False,
    measures: Collection[str] | None = None,
    samples: Collection[str] | None = None,
) -> pd.DataFrame:
    """The rows of a run, of these measures and samples only, sorted by `KEY`; a key that occurs twice is an error.

    Each part is filtered before the next is read, and a measure comes with its chance and aligned forms. With `compact`
    the columns of text are categories, sorted, which hold each text once: a million rows take 57 MB; one column more
    has what the references add to chance, for statistics.
    """
    rows = _read(
        root,
        digests.parts(root / "parts"),
        PARTS if compact else SCORES,
        _filter(measures, samples),
    )
    order, twice = columns.sorted_by_key(rows, KEY)
    rows = rows.take(pa.array(order))
    frame: pd.DataFrame = (rows if compact else rows.cast(SCORES)).to_pandas()
    if twice.any():
        row = frame[twice].iloc[0]
        raise UserError(
            f"{root} holds {int(twice.sum())} duplicate rows, the first is {dict(row[KEY])}"
        )
    return frame


def read_scores_by_explainer(
    root: Place, measures: Collection[str] | None = None, samples: Collection[str] | None = None
) -> Iterator[pd.DataFrame]:
    """The rows of one dataset, model, evaluation and explainer at a time, as they were written, so large runs fit."""
    for _, paths in groupby(digests.parts(root / "parts"), key=lambda path: path.parent):
        yield _read(root, list(paths), SCORES, _filter(measures, samples)).cast(SCORES).to_pandas()


def read_places(root: Place) -> pd.DataFrame:
    """What a run has scores of: every combination of the columns `PLACE` that occurs, sorted."""

    def once(part: pa.Table) -> pa.Table:
        return part.unify_dictionaries().group_by(PLACE).aggregate([]).select(PLACE)

    schema = pa.schema([SCORES.field(name) for name in PLACE])
    rows = _read(root, digests.parts(root / "parts"), schema, once)
    frame: pd.DataFrame = once(rows).cast(schema).to_pandas()
    return frame.sort_values(PLACE, ignore_index=True)


def _filter(
    measures: Collection[str] | None, samples: Collection[str] | None
) -> Callable[[pa.Table], pa.Table]:
    """What keeps the rows of some measures, in all of their forms, and samples."""
    forms = (
        None
        if measures is None
        else {measure + suffix for measure in measures for suffix in ("", *SUFFIXES)}
    )

    def kept(part: pa.Table) -> pa.Table:
        for column, wanted in (("measure", forms), ("sample", samples)):
            if wanted is not None:
                part = part.filter(
                    pc.is_in(part[column], value_set=pa.array(sorted(wanted), pa.string()))
                )
        return part

    return kept


def read_samples(root: Place) -> pd.DataFrame:
    """One row per sample: label, prediction, probability, or why it could not be read."""
    rows = _read(root, digests.parts(root / "samples"), SAMPLES).cast(SAMPLES)
    frame: pd.DataFrame = rows.to_pandas().sort_values(
        ["dataset", "model", "sample"], ignore_index=True
    )
    return frame.astype({"label": "Int64", "predicted": "Int64"})


def read_rows(root: Place, paths: Sequence[Place]) -> list[dict[str, Any]]:
    """The rows of some parts of the samples, as they are."""
    return [row for part in read_parts(root, paths, SAMPLES) for row in part.to_pylist()]


def _read(
    root: Place,
    paths: Sequence[Place],
    schema: pa.Schema,
    change: Callable[[pa.Table], pa.Table] | None = None,
) -> pa.Table:
    """The rows of all parts, each changed before the next is read, with every column of text as one dictionary."""
    texts = [field.name for field in schema if field.type == pa.string()]
    wanted = columns.coded(schema)
    parts = read_parts(root, paths, wanted, texts)
    tables = list(parts if change is None else map(change, parts))
    if not tables:
        return wanted.empty_table()
    rows = pa.concat_tables(tables)
    merged = [
        columns.sorted_dictionary(rows[name]) if name in texts else rows[name].combine_chunks()
        for name in schema.names
    ]
    return pa.Table.from_arrays(merged, names=schema.names)

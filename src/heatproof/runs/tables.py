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
from torch import Tensor

from heatproof.data import Data, Loaded
from heatproof.errors import UserError
from heatproof.evaluation import STATUS, Scores
from heatproof.models.tasks import has_probability
from heatproof.runs import columns, digests
from heatproof.runs.directory import Job, RunDirectory
from heatproof.runs.storage import Place
from heatproof.subject import Subject

SCORES = pa.schema(
    [(name, pa.string()) for name in ("dataset", "model", "explainer", "role", "evaluation")]
    + [("sample", pa.string()), ("measure", pa.string())]
    + [("condition", pa.string()), ("level", pa.float64())]
    + [("imputer", pa.string()), ("order", pa.string())]
    + [("share", pa.float64()), ("repeat", pa.int32())]
    + [(name, pa.float64()) for name in ("value", "chance", "low", "high")]
    + [(name, pa.string()) for name in ("status", "reason", "chance_reason", "predicted_after")]
)
"""One row per attempted pair and measure. `chance` is what an uninformative map scores on the same pair."""
REFERENCES = pa.schema(
    [(name, pa.string()) for name in ("dataset", "model", "explainer", "evaluation")]
    + [("measure", pa.string()), ("condition", pa.string()), ("level", pa.float64())]
    + [("repeat", pa.int32()), ("reference", pa.string()), ("sum", pa.float64())]
    + [("count", pa.int64())]
)
"""How far each reference sample lies above the chance level, summed over the `count` samples compared with it."""
SAMPLES = pa.schema(
    [(name, pa.string()) for name in ("dataset", "model", "sample")]
    + [("label", pa.int64()), ("predicted", pa.int64()), ("predicted_name", pa.string())]
    + [("readout", pa.float64()), ("probability", pa.float64()), ("error", pa.string())]
    + [("transient", pa.bool_()), ("digest", pa.string()), ("group", pa.string())]
)
"""`transient`: the error may have passed since; `digest`: of the sample's bytes as they were read."""
KEY = ["dataset", "model", "explainer", "evaluation", "sample", "measure", "condition", "level"]
KEY += ["repeat"]
PLACE = ["dataset", "model", "evaluation", "explainer", "role", "measure", "condition", "level"]
PLACE += ["order"]
_OF_A_COLUMN = ("explainer", "measure", "condition", "level", "imputer", "order", "share", "repeat")


def score_rows(
    dataset: str,
    model: str,
    evaluation: str,
    role: str,
    ids: Iterable[str],
    scores: Iterable[Scores],
) -> pa.Table:
    """Return the rows of one part, in the order in which the scores came; `role` is that of its explainer."""
    names = pa.array(list(ids), pa.string())
    n = len(names)
    tables = []
    for column in scores:
        constant = {"dataset": dataset, "model": model, "role": role, "evaluation": evaluation}
        constant |= {name: getattr(column, name) for name in _OF_A_COLUMN}
        content: dict[str, Any] = {
            name: pa.repeat(pa.scalar(value, SCORES.field(name).type), n)
            for name, value in constant.items()
        }
        content["sample"] = names
        content["value"] = column.value.double().tolist()
        for name in ("chance", "low", "high"):
            content[name] = _numbers_or_null(getattr(column, name), n)
        content["status"] = [STATUS[code] for code in column.status.tolist()]
        content["reason"] = list(column.reason)
        for name in ("chance_reason", "predicted_after"):
            content[name] = [text or None for text in getattr(column, name) or [""] * n]
        tables.append(pa.Table.from_pydict(content, schema=SCORES))
    return pa.concat_tables(tables) if tables else SCORES.empty_table()


def _numbers_or_null(values: Tensor | None, n: int) -> pa.Array:
    """Return n numbers, null where there is none."""
    if values is None:
        return pa.nulls(n, pa.float64())
    return pa.array(values.double().numpy(), pa.float64(), from_pandas=True)


def reference_rows(
    dataset: str,
    model: str,
    evaluation: str,
    references: Sequence[str],
    scores: Iterable[Scores],
) -> pa.Table:
    """Return what each reference sample adds to chance, a row per column of scores and reference."""
    tables = []
    for column in scores:
        if column.reference_sums is None or column.reference_counts is None:
            continue
        n = len(references)
        constant = {"dataset": dataset, "model": model, "evaluation": evaluation}
        of_column = ("explainer", "measure", "condition", "level", "repeat")
        constant |= {name: getattr(column, name) for name in of_column}
        content: dict[str, Any] = {
            name: pa.repeat(pa.scalar(value, REFERENCES.field(name).type), n)
            for name, value in constant.items()
        }
        content["reference"] = list(references)
        content["sum"] = column.reference_sums.double().tolist()
        content["count"] = column.reference_counts.tolist()
        tables.append(pa.Table.from_pydict(content, schema=REFERENCES))
    return pa.concat_tables(tables) if tables else REFERENCES.empty_table()


def sample_rows(
    job: Job, data: Data, positions: Iterable[int], loaded: Loaded, subject: Subject | None
) -> pa.Table:
    """Return a row per sample of a job: its label and prediction, or why it could not be read.

    Without a subject, none could be.
    """
    row_of_sample = {} if subject is None else {s: row for row, s in enumerate(subject.batch.ids)}
    rows = []
    for position in positions:
        sample = data.ids[position]
        columns: dict[str, Any] = {
            "dataset": job.dataset,
            "model": job.model,
            "sample": sample,
            "group": "" if data.groups is None else data.groups[position],
            "digest": loaded.digests.get(sample, ""),
            "transient": sample in loaded.transient,
        }
        if subject is not None and sample in row_of_sample:
            columns |= {**_prediction(subject, row_of_sample[sample]), "error": ""}
        else:
            nothing = dict.fromkeys(("label", "predicted", "readout", "probability"))
            error = loaded.errors.get(sample, "not loaded")
            columns |= {**nothing, "predicted_name": "", "error": error}
        rows.append(columns)
    return pa.Table.from_pylist(rows, schema=SAMPLES)


def _prediction(subject: Subject, row: int) -> dict[str, Any]:
    """Return the label of a sample and what the model predicts."""
    task, label = subject.model.task, None
    if subject.batch.label is not None and int(subject.batch.label[row]) >= 0:
        label = int(subject.batch.label[row])
    if subject.model.is_absent:
        nothing = dict.fromkeys(("predicted", "readout", "probability"))
        return {"label": label, "predicted_name": "", **nothing}
    target = int(subject.target[row])
    return {
        "label": label,
        "predicted": target,
        "predicted_name": task.shown(subject.logits[row], target, subject.model.class_name),
        "readout": float(subject.readout[row]),
        "probability": float(subject.probability[row]) if has_probability(task) else None,
    }


def read_scores(
    root: Place,
    compact: bool = False,
    measures: Collection[str] | None = None,
    samples: Collection[str] | None = None,
    parts: Sequence[Place] | None = None,
) -> pd.DataFrame:
    """The rows of a run, of these measures and samples only, sorted by `KEY`; a key that occurs twice is an error.

    Each part is filtered before the next is read; `parts` are the files to read, by default all. With `compact` the
    columns of text are categories, sorted, which hold each text once: a million rows take 57 MB.
    """
    rows = _read(
        root,
        digests.parts(root / "parts") if parts is None else parts,
        SCORES,
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
    """Return a function that keeps the rows of some measures and samples; None keeps all of them."""

    def filter_part(part: pa.Table) -> pa.Table:
        for column, wanted in (("measure", measures), ("sample", samples)):
            if wanted is not None:
                names = pa.array(sorted(wanted), pa.string())
                part = part.filter(pc.is_in(part[column], value_set=names))
        return part

    return filter_part


def read_references(root: Place, parts: Sequence[Place] | None = None) -> pd.DataFrame:
    """Return what each reference sample adds to chance, summed over the shards; empty where a run takes no chance.

    `parts` are the files to read, by default all.
    """
    parts = digests.parts(root / "references") if parts is None else parts
    rows = _read(root, parts, REFERENCES).cast(REFERENCES)
    keys = REFERENCES.names[:-2]
    summed = rows.group_by(keys).aggregate([("sum", "sum"), ("count", "sum")])
    frame: pd.DataFrame = summed.rename_columns([*keys, "sum", "count"]).to_pandas()
    return frame.sort_values(keys, ignore_index=True)


def read_samples(root: Place, parts: Sequence[Place] | None = None) -> pd.DataFrame:
    """One row per sample, in the order of the data: label, prediction, probability, or why it could not be read.

    `parts` are the files to read, by default all.
    """
    parts = digests.parts(root / "samples") if parts is None else sorted(parts, key=str)
    rows = _read(root, parts, SAMPLES).cast(SAMPLES)
    # The rows of a data set and model stay in the order of the data.
    frame: pd.DataFrame = rows.to_pandas().sort_values(
        ["dataset", "model"], kind="stable", ignore_index=True
    )
    return frame.astype({"label": "Int64", "predicted": "Int64"})


def read_rows(root: Place, paths: Sequence[Place]) -> list[dict[str, Any]]:
    """Return the rows of some files of samples, as they are."""
    rows: list[dict[str, Any]] = []
    for table in RunDirectory(root).read_files(paths, SAMPLES):
        rows += table.to_pylist()
    return rows


def _read(
    root: Place,
    paths: Sequence[Place],
    schema: pa.Schema,
    change: Callable[[pa.Table], pa.Table] | None = None,
) -> pa.Table:
    """Return the rows of all files, with every column of text as one dictionary of its values.

    Each file is passed through `change`, such as a filter, before the next is read.
    """
    text_columns = [field.name for field in schema if field.type == pa.string()]
    coded_schema = columns.coded(schema)
    tables = []
    for table in RunDirectory(root).read_files(paths, coded_schema, text_columns):
        tables.append(table if change is None else change(table))
    if not tables:
        return coded_schema.empty_table()
    rows = pa.concat_tables(tables)
    merged = []
    for name in schema.names:
        if name in text_columns:
            merged.append(columns.sorted_dictionary(rows[name]))
        else:
            merged.append(rows[name].combine_chunks())
    return pa.Table.from_arrays(merged, names=schema.names)

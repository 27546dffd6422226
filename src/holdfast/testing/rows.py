"""Only those rows of a run that a question is about, so that large runs fit."""

from __future__ import annotations

from collections.abc import Collection

import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from holdfast.errors import UserError
from holdfast.runs.storage import Place, contents, files
from holdfast.runs.table import KEY, SCORES
from holdfast.statistics.cubes import DECISIVE, SUFFIXES

PLACES = ["dataset", "model", "evaluation", "explainer", "measure", "condition", "level"]


def decisive(measures: Collection[str]) -> str:
    """The measure whose status is that of the pair, as `cubes.arrange` chooses it.

    >>> decisive(["fass", "fass_chance", "ssim"])
    'fass'
    """
    bare = [measure for measure in measures if not measure.endswith(SUFFIXES)]
    return next((measure for measure in bare if measure in DECISIVE), bare[-1] if bare else "")


def select(root: Place, measures: Collection[str], statuses: bool = False) -> tuple[pd.DataFrame, pd.DataFrame]:
    """The rows of these measures and their chance and aligned forms, and which places the run has rows of at all.

    Each part is filtered before the next is read. With `statuses` the rows of each part's decisive measure come too.
    The second frame has one row for every dataset, model, evaluation, explainer, measure, condition and level.
    """
    forms = {measure + suffix for measure in measures for suffix in ("", *SUFFIXES)}
    kept, places = [SCORES.empty_table()], [SCORES.empty_table().select(PLACES)]
    for content in contents(files(root / "parts", ".parquet")):
        part = pq.read_table(pa.BufferReader(content), schema=SCORES)
        known = part.group_by(PLACES).aggregate([])
        places.append(known)
        present = known["measure"].unique().to_pylist()
        wanted = forms | {decisive(present)} if statuses else forms
        if wanted & set(present):
            kept.append(part.filter(pc.is_in(part["measure"], value_set=pa.array(sorted(wanted)))))
    rows: pd.DataFrame = pa.concat_tables(kept).to_pandas().sort_values(KEY, kind="stable", ignore_index=True)
    twice = int(rows.duplicated(KEY).sum())
    if twice:
        raise UserError(f"{root} holds {twice} duplicate rows; `holdfast report {root}` names the first")
    offered: pd.DataFrame = pa.concat_tables(places).group_by(PLACES).aggregate([]).to_pandas()
    return rows, offered.sort_values(PLACES, ignore_index=True)

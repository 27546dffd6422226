"""The proof sheet as a drawing, for papers and notebooks."""

from __future__ import annotations

import math
from collections.abc import Sequence

import pandas as pd

from heatproof.axes.tiles import Tiles
from heatproof.errors import UserError, unknown
from heatproof.evaluation import Condition
from heatproof.report.canvas import Box, Picture, Sheet, Stroke, Words, width_of
from heatproof.report.images import place_map
from heatproof.report.map_drawings import ground
from heatproof.report.plots import spot, wrapped
from heatproof.report.proof_sheet import TILE, ProofSheet, proof_sheets
from heatproof.results.axis_result import AxisResult
from heatproof.text import number

LEFT, WIDE, TOP = 168.0, 128.0, 74.0


def drawn(proof: ProofSheet, sample: str | None = None) -> Sheet:
    """The sheet of one sample, or of the one that is opened, as a drawing for paper and notebooks."""
    tiles = proof.tiles or Tiles([], [""], {}, {})
    chosen = sample or tiles.samples[0]
    if chosen not in tiles.samples:
        raise unknown("sample with maps", chosen, tiles.samples)
    wide = max(TILE, proof.wide)
    step, start = wide + 8, LEFT + (wide + 8) * len(tiles.columns)
    high, tall = (TOP + TILE + 8, TILE + 8.0) if tiles.columns else (TOP + 34, 40.0)
    across = max(start + WIDE * len(proof.columns) + 8, 1.1 * width_of(proof.sentence, 19))
    sheet = Sheet(across, high + tall * len(proof.rows) + 8)
    limits = "; ".join(text for text, _ in proof.chips)
    told = "; ".join(filter(None, (chosen, proof.said_of(chosen), limits)))
    sheet.add(Words(0, 22, proof.sentence, "ink", size=19, bold=True), Words(0, 42, told, "third"))
    for j, (condition, words) in enumerate(tiles.columns):
        sheet.add(Words(LEFT + step * j + wide / 2, TOP - 8, words, "soft", "middle"))
        item = proof.seen(tiles, condition, chosen)
        if item is not None and item.image.ndim == 3:
            sheet.add(Picture(LEFT + step * j, TOP, wide, TILE, item.image))
        elif item is not None:
            sheet.place(ground(item, wide, TILE, values=True), LEFT + step * j, TOP)
    for j, column in enumerate(proof.columns):
        small = [*wrapped(column.note, WIDE - 12), *([column.verdict] if column.verdict else [])]
        x, y = start + WIDE * j + 12, high - 6 - 14 * len(small)
        sheet.add(Words(x, y, column.result.title, "ink", bold=True))
        sheet.add(
            *(Words(x, y + 14 * (k + 1), text, "third", size=11) for k, text in enumerate(small))
        )
    for i, explainer in enumerate(proof.rows):
        look, y = proof.looks[explainer], high + tall * i
        if look.control and (i == 0 or not proof.looks[proof.rows[i - 1]].control):
            sheet.add(Stroke([(0, y - 4), (sheet.width, y - 4)], "strong", 1, (4, 3)))
        rank = (
            proof.lead.rows[explainer].rank
            if proof.lead and explainer in proof.lead.rows
            else math.nan
        )
        sheet.add(
            Words(0, y + tall / 2, f"{rank:.0f}" if math.isfinite(rank) else "", "soft", size=15)
        )
        ink = "third" if look.control else look.colour
        sheet.add(Words(22, y + tall / 2, look.name[:24], ink, bold=not look.control))
        sheet.add(Words(22, y + tall / 2 + 15, proof.settings(explainer), "third", size=11))
        for j, (condition, _) in enumerate(tiles.columns):
            _tile(sheet, proof, tiles, (explainer, condition, chosen), LEFT + step * j, y, wide)
        for j, column in enumerate(proof.columns):
            if explainer in column.marks:
                row = spot(column.marks[explainer], column.ends, tall, WIDE - 16)
                sheet.place(row, start + WIDE * j + 8, y - 4)
    return sheet


def _tile(
    sheet: Sheet,
    proof: ProofSheet,
    tiles: Tiles,
    key: tuple[str, Condition, str],
    x: float,
    y: float,
    wide: float,
) -> None:
    item, score = tiles.shown.get(key), tiles.scores.get(key, (math.nan, ""))[0]
    if item is None or item.map is None:
        sheet.add(
            Box(x, y, wide, TILE, "grid"),
            Words(x + wide / 2, y + TILE / 2, "not scored", "third", "middle", 11),
        )
        return
    place_map(sheet, item, key[0] in proof.signed, x, y, wide, TILE)
    if math.isfinite(score):
        corner = (x + wide - 36, y + TILE - 20, 33, 17)
        sheet.add(Box(*corner, "card"), Box(*corner, "heat", 0.45 * min(max(score, 0), 1)))
        sheet.add(Words(x + wide - 19.5, y + TILE - 7, number(score), "ink", "middle", 11, True))


def proof_sheet(
    results: Sequence[AxisResult],
    samples: pd.DataFrame,
    sample: str | None = None,
    dataset: str | None = None,
    model: str | None = None,
) -> Sheet:
    """The sheet of one data set and model of a run, the first where none is named; see `Run.proof_sheet`."""
    for kind, name in (("dataset", dataset), ("model", model)):
        known = {result.arrays.key[kind] for result in results}
        if name is not None and name not in known:
            raise unknown(kind, name, sorted(known))
    for proof in proof_sheets(results, samples):
        arrays = proof.here[0].arrays
        if arrays.dataset == (dataset or arrays.dataset) and arrays.model == (
            model or arrays.model
        ):
            return drawn(proof, sample)
    raise UserError("the run has no scores to show")

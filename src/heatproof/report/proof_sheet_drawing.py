"""The proof sheet as a drawing, for papers and notebooks."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

import pandas as pd

from heatproof.axes.tiles import Tiles
from heatproof.errors import UserError, unknown
from heatproof.evaluation import Condition, GalleryItem
from heatproof.report.canvas import Box, Picture, Sheet, Stroke, Words, width_of
from heatproof.report.images import place_map
from heatproof.report.map_drawings import ground
from heatproof.report.plots import spot, wrapped
from heatproof.report.proof_sheet import TILE, Column, ProofSheet, proof_sheets
from heatproof.results.axis_result import AxisResult
from heatproof.text import number

NAMES = 168.0
"""The room for the names of methods."""
SPOT = 128.0
"""How wide the column of an axis is."""
TOP = 74.0
"""What the sentence, the sample and the heads of the columns take."""


def drawn(proof: ProofSheet, sample: str | None = None) -> Sheet:
    """Return the sheet of one sample, or of the one that the page opens, as a drawing for paper and notebooks."""
    tiles = proof.tiles or Tiles([], [""], {}, {})
    chosen = sample or tiles.samples[0]
    if chosen not in tiles.samples:
        raise unknown("sample with maps", chosen, tiles.samples)
    wide = max(TILE, proof.wide)
    first_spot = NAMES + (wide + 8) * len(tiles.columns)
    # Without maps, rows are lower and no input stands above them.
    top, tall = (TOP + TILE + 8, TILE + 8.0) if tiles.columns else (TOP + 34, 40.0)
    columns_end = first_spot + SPOT * len(proof.columns) + 8
    sheet = Sheet(
        width=max(columns_end, 1.1 * width_of(proof.sentence, 19)),
        height=top + tall * len(proof.rows) + 8,
    )
    _draw_title(sheet, proof, chosen)
    _draw_inputs(sheet, proof, tiles, chosen, wide)
    for j, column in enumerate(proof.columns):
        _draw_axis_head(sheet, column, first_spot + SPOT * j + 12, top)
    for i, explainer in enumerate(proof.rows):
        y = top + tall * i
        is_first_control = proof.looks[explainer].control and (
            i == 0 or not proof.looks[proof.rows[i - 1]].control
        )
        if is_first_control:
            sheet.add(Stroke([(0, y - 4), (sheet.width, y - 4)], "strong", 1, (4, 3)))
        _draw_name(sheet, proof, explainer, y + tall / 2)
        for j, (condition, _) in enumerate(tiles.columns):
            x = NAMES + (wide + 8) * j
            draw_tile(sheet, proof, tiles, (explainer, condition, chosen), x, y, wide)
        for j, column in enumerate(proof.columns):
            if explainer in column.marks:
                dot = spot(column.marks[explainer], column.ends, tall, SPOT - 16)
                sheet.place(dot, first_spot + SPOT * j + 8, y - 4)
    return sheet


def _draw_title(sheet: Sheet, proof: ProofSheet, sample: str) -> None:
    limits = "; ".join(text for text, _ in proof.chips)
    facts = "; ".join(filter(None, (sample, proof.said_of(sample), limits)))
    sheet.add(Words(0, 22, proof.sentence, "ink", size=19, bold=True))
    sheet.add(Words(0, 42, facts, "third"))


def _draw_inputs(sheet: Sheet, proof: ProofSheet, tiles: Tiles, sample: str, wide: float) -> None:
    """Draw what the model saw under every condition, with the condition above it."""
    for j, (condition, words) in enumerate(tiles.columns):
        x = NAMES + (wide + 8) * j
        sheet.add(Words(x + wide / 2, TOP - 8, words, "soft", "middle"))
        item = proof.seen(tiles, condition, sample)
        if item is not None and item.image.ndim == 3:
            sheet.add(Picture(x, TOP, wide, TILE, item.image))
        elif item is not None:
            sheet.place(ground(item, wide, TILE, values=True), x, TOP)


def _draw_axis_head(sheet: Sheet, column: Column, x: float, bottom: float) -> None:
    """Draw the title of an axis above what its numbers are and whether it has a winner."""
    small_print = [*wrapped(column.note, SPOT - 12), *filter(None, [column.verdict])]
    y = bottom - 6 - 14 * len(small_print)
    sheet.add(Words(x, y, column.result.title, "ink", bold=True))
    for k, text in enumerate(small_print, 1):
        sheet.add(Words(x, y + 14 * k, text, "third", size=11))


def _draw_name(sheet: Sheet, proof: ProofSheet, explainer: str, y: float) -> None:
    """Draw rank, name and settings of a method."""
    look = proof.looks[explainer]
    rank = math.nan
    if proof.lead is not None and explainer in proof.lead.rows:
        rank = proof.lead.rows[explainer].rank
    sheet.add(Words(0, y, f"{rank:.0f}" if math.isfinite(rank) else "", "soft", size=15))
    colour = "third" if look.control else look.colour
    sheet.add(Words(22, y, look.name[:24], colour, bold=not look.control))
    sheet.add(Words(22, y + 15, proof.settings(explainer), "third", size=11))


def draw_tile(
    sheet: Sheet,
    proof: ProofSheet,
    tiles: Tiles,
    key: tuple[str, Condition, str],
    x: float,
    y: float,
    wide: float,
    tall: float = TILE,
    seen: GalleryItem | None = None,
) -> None:
    """Draw the map of an explainer under a condition with its score, or `seen`, the input alone."""
    if seen is not None:
        place_map(sheet, replace(seen, map=None), False, x, y, wide, tall)
        return
    item = tiles.shown.get(key)
    score, _ = tiles.scores.get(key, (math.nan, ""))
    if item is None or item.map is None:
        sheet.add(Box(x, y, wide, tall, "grid"))
        sheet.add(Words(x + wide / 2, y + tall / 2, "not scored", "third", "middle", 11))
        return
    place_map(sheet, item, key[0] in proof.signed, x, y, wide, tall)
    if math.isfinite(score):
        corner = (x + wide - 36, y + tall - 20, 33, 17)
        sheet.add(Box(*corner, "card"), Box(*corner, "heat", 0.45 * min(max(score, 0), 1)))
        sheet.add(Words(x + wide - 19.5, y + tall - 7, number(score), "ink", "middle", 11, True))


def proof_sheet(
    results: Sequence[AxisResult],
    samples: pd.DataFrame,
    sample: str | None = None,
    dataset: str | None = None,
    model: str | None = None,
) -> Sheet:
    """Return the sheet of one data set and model of a run, the first where none is named; see `Run.proof_sheet`."""
    for kind, name in (("dataset", dataset), ("model", model)):
        names = {result.arrays.key[kind] for result in results}
        if name is not None and name not in names:
            raise unknown(kind, name, sorted(names))
    for proof in proof_sheets(results, samples):
        arrays = proof.here[0].arrays
        is_dataset = dataset is None or arrays.dataset == dataset
        is_model = model is None or arrays.model == model
        if is_dataset and is_model:
            return drawn(proof, sample)
    raise UserError("the run has no scores to show")

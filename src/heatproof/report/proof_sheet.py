"""The proof sheet: methods by changes, a map in every cell with its score, and a dot with its interval per axis."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import groupby
from typing import Any

import numpy as np
import pandas as pd

from heatproof.axes import BY_NAME, MARKING
from heatproof.axes.tiles import Tiles, tiles_of
from heatproof.evaluation import CLEAN, Condition, GalleryItem
from heatproof.kinds import KINDS
from heatproof.report import images
from heatproof.report.findings import PILOT, unreadable
from heatproof.report.map_drawings import ground, is_drawn, is_wide, uri
from heatproof.report.plots import Mark, mark, of_marks
from heatproof.results.axis_result import AxisResult
from heatproof.results.names import Look, settings_of
from heatproof.results.verdict import Verdict, sentences
from heatproof.text import number, records

MOST_ROWS = 12
"""Methods of the sheet; the others are in the scorecard."""
TILE, SMALLEST = 94, 66
"""Pixels of a tile, and of the smallest."""
TALLEST = 600
"""How tall the rows are together before tiles become smaller."""
BUDGET = 1_650_000
"""Bytes of all pictures of the sheets of a page."""
SIZES = ((6, 128), (4, 128), (2, 128), (1, 128), (1, 112), (1, 96), (0, 80), (0, 64), (0, 48))
"""How many samples have large maps, and how wide the maps of the others are, in the order in which this is tried."""
BYTES_OF_INPUT = 6000
"""What an input costs, about."""


@dataclass(frozen=True)
class Column:
    """One axis in sheet, scorecard and matrix: its numbers by explainer, on one scale."""

    result: AxisResult

    @cached_property
    def rows(self) -> dict[str, Any]:
        """explainer -> its row of the ranking by the first headline that it was measured by."""
        if not self.result.headlines:
            return {}
        rows: dict[str, Any] = {}
        for row in records(self.result.ranking):
            rows.setdefault(row.explainer, row)
        return rows

    @cached_property
    def chance(self) -> float:
        """The level of chance where it is zero."""
        measure = self.result.headlines[0]
        return 0.0 if self.result.zero_is_chance(measure) else math.nan

    @property
    def note(self) -> str:
        """What the numbers are."""
        measure = self.result.headlines[0]
        name = "" if measure.title == self.result.axis.title else measure.title
        chance = "0 is chance" if self.chance == 0 else ""
        direction = "lower is better" if measure.better == "lower" else ""
        return ", ".join(filter(None, (name, chance, direction)))

    @cached_property
    def marks(self) -> dict[str, Mark]:
        """explainer -> its mark; where there is a chance level, it is filled only if the score is above chance."""
        looks = self.result.looks
        has_chance = self.result.headlines[0].name in self.result.arrays.chance
        marks = {}
        for explainer, row in self.rows.items():
            is_above = self.decided is not None and bool(self.decided.above_chance.get(explainer))
            marks[explainer] = mark(
                looks[explainer],
                row.score,
                row.low,
                row.high,
                self.chance,
                above_chance=is_above if has_chance else None,
            )
        return marks

    @cached_property
    def ends(self) -> tuple[float, float]:
        """The ends of the scale that all rows share."""
        scores = [m.value for m in self.marks.values() if math.isfinite(m.value)]
        # A scale that is nearly full ends at 1, so that one sees how near that is.
        is_nearly_full = bool(scores) and 0.45 < max(scores) <= 1
        others = [0.0, 1.0] if is_nearly_full else [0.0]
        return of_marks(self.marks.values(), *others)

    @cached_property
    def decided(self) -> Verdict | None:
        """What the tests of the first headline allow us to say; None where nothing was measured."""
        return self.result.verdict(self.result.headlines[0]) if self.result.headlines else None

    @property
    def verdict(self) -> str:
        """Whether one method is ahead of all others beyond doubt."""
        if self.decided is None or len(self.decided.methods) < 2 or not self.decided.measure.sign:
            return ""
        return "one clear winner" if self.decided.best else "no clear winner"


@dataclass(frozen=True)
class ProofSheet:
    """One dataset and model as a sheet: rows of methods in the order of the first axis, controls below."""

    here: Sequence[AxisResult]
    samples: pd.DataFrame

    @cached_property
    def columns(self) -> list[Column]:
        """The axes that have numbers."""
        columns = [Column(result) for result in self.here if result.headlines]
        return [column for column in columns if column.rows]

    @property
    def lead(self) -> Column | None:
        """The axis whose order the rows have: the first in which one direction is better."""
        directed = [column for column in self.columns if column.result.headlines[0].sign]
        return next(iter(directed or self.columns), None)

    @cached_property
    def order(self) -> list[str]:
        """Explainers: methods by rank, then those without one, then controls."""
        rank_of: dict[str, float] = {}
        explainers: dict[str, None] = {}
        if self.lead is not None:
            explainers |= dict.fromkeys(self.lead.rows)
            for explainer, row in self.lead.rows.items():
                rank_of[explainer] = row.rank if math.isfinite(row.rank) else math.inf
        controls: set[str] = set()
        for column in self.columns:
            explainers |= dict.fromkeys(column.rows)
            controls |= column.result.controls

        def position(explainer: str) -> tuple[bool, float]:
            return explainer in controls, rank_of.get(explainer, math.inf)

        return sorted(explainers, key=position)

    @cached_property
    def rows(self) -> list[str]:
        """Those that the sheet has room for; controls always."""
        methods = [explainer for explainer in self.order if not self.looks[explainer].control]
        controls = [explainer for explainer in self.order if self.looks[explainer].control]
        return methods[:MOST_ROWS] + controls

    @cached_property
    def looks(self) -> dict[str, Look]:
        """The name and colour of every explainer."""
        looks: dict[str, Look] = {}
        for result in self.here:
            looks |= result.looks
        return looks

    def settings(self, explainer: str) -> str:
        """Return the settings of a method, where its name does not say them."""
        look = self.looks[explainer]
        if look.control:
            return "control"
        settings = settings_of(explainer)
        return "" if settings in look.name else settings

    @cached_property
    def pictured_result(self) -> AxisResult | None:
        """The first axis with maps for the sheet."""
        return next((result for result in self.here if tiles_of(result) is not None), None)

    @cached_property
    def tiles(self) -> Tiles | None:
        """The maps of that axis."""
        return None if self.pictured_result is None else tiles_of(self.pictured_result)

    @cached_property
    def size(self) -> int:
        """Pixels of a tile, so that a sheet of usual height fits on a screen."""
        if self.tiles is None:
            return 32
        fitting = TALLEST // (len(self.rows) + 1) - 8
        return max(SMALLEST, min(TILE, fitting))

    @cached_property
    def wide(self) -> int:
        """How wide a tile is: curves, rows and texts are wider than high."""
        if self.tiles is None or not any(map(is_wide, self._items)):
            return self.size
        fitting = 800 // len(self.tiles.columns) - 8
        return max(self.size, min(260, fitting))

    @property
    def _items(self) -> list[GalleryItem]:
        """All stored maps of the sheet."""
        return [] if self.tiles is None else list(self.tiles.shown.values())

    @property
    def kinds(self) -> set[str]:
        """The kinds of what is shown; those whose maps are marks are followed by a star."""
        return {item.kind + ("*" if is_drawn(item) else "") for item in self._items}

    @cached_property
    def signed(self) -> set[str]:
        """Explainers whose maps have a sign."""
        signed = set()
        for item in self._items:
            if item.explainer in signed or item.map is None:
                continue
            if images.is_signed(item.map):
                signed.add(item.explainer)
        return signed

    def said_of(self, sample: str) -> str:
        """Return what the model says of a sample, and whether the label agrees."""
        by_sample = self.samples.drop_duplicates("sample").set_index("sample")
        prediction = images.prediction(by_sample, sample)
        return f"{prediction}, {images.label_words(by_sample, sample)}" if prediction else ""

    def seen(self, tiles: Tiles, condition: Condition, sample: str) -> GalleryItem | None:
        """Return the input under a condition, which all explainers share; None where each has its own."""
        items = [tiles.shown.get((explainer, condition, sample)) for explainer in self.rows]
        stored = [item for item in items if item is not None]
        if not stored:
            return None
        first = stored[0]
        is_shared = all(np.array_equal(first.image, other.image) for other in stored[1:])
        return first if is_shared else None

    def pictured(self, album: images.Album, budget: int) -> list[dict[str, Any]]:
        """Return for each sample its inputs and cells as the page fills them in; see `_input` and `_cell`."""
        tiles = self.tiles
        if tiles is None:
            return []
        sheets = []
        for sample, side in zip(tiles.samples, self._sides(tiles, budget), strict=False):
            inputs = {}
            for condition, _ in tiles.columns:
                inputs[condition] = self._input(album, tiles, sample, condition)
            cells = []
            for explainer in self.rows:
                row = []
                for condition, (picture, _) in inputs.items():
                    key = (explainer, condition, sample)
                    row.append(self._cell(album, tiles, key, side, picture))
                cells.append(row)
            sheets.append(
                {
                    "id": sample,
                    "said": self.said_of(sample),
                    "inputs": list(inputs.values()),
                    "cells": cells,
                }
            )
        return sheets

    def _input(
        self, album: images.Album, tiles: Tiles, sample: str, condition: Condition
    ) -> tuple[str, str]:
        """Return the picture of an input, where methods share it, and why no method has a score on it."""
        reasons = set()
        for explainer in self.rows:
            _, reason_of_one = tiles.scores.get((explainer, condition, sample), (math.nan, ""))
            reasons.add(reason_of_one)
        reason = reasons.pop() if len(reasons) == 1 else ""
        item = self.seen(tiles, condition, sample)
        if item is None:
            return "", reason
        if item.kind == "table":
            drawing = ground(item, self.wide, self.size, values=True)
            return album.add(uri(drawing)), reason
        return album.add(images.draw_ground(item, self.wide, self.size)), reason

    def _map(self, item: GalleryItem, side: int) -> str:
        """Return a map for the page; those of controls are half as wide, for they are noise and cost as much as others."""
        if self.looks[item.explainer].control:
            side //= 2
        return images.draw_over(item, item.explainer in self.signed, self.wide, self.size, side)

    def _cell(
        self,
        album: images.Album,
        tiles: Tiles,
        key: tuple[str, Condition, str],
        side: int,
        above: str,
    ) -> list[str]:
        """Return a map, its score, why there is none, and what lies under it if that is not the input `above`."""
        item = tiles.shown.get(key)
        score, reason = tiles.scores.get(key, (math.nan, ""))
        if item is None or item.map is None:
            return ["", "", reason or "no map", ""]
        under = ""
        if not above or item.kind == "table":
            under = album.add(images.draw_ground(item, self.wide, self.size))
        text = number(score) if math.isfinite(score) else ""
        return [album.add(self._map(item, side)), text, "", under]

    def _sides(self, tiles: Tiles, budget: int) -> list[int]:
        """Return how wide the maps of each sample are, so that all keep within the budget, judged by two samples."""
        n = len(tiles.samples)
        cost_of_large = self._cost(tiles, tiles.samples[0], images.LARGEST_MAP)
        costs: dict[int, int] = {images.LARGEST_MAP: cost_of_large}
        for most_large, side in SIZES:
            if side not in costs:
                costs[side] = self._cost(tiles, tiles.samples[-1], side)
            large = min(most_large, n)
            if large * cost_of_large + (n - large) * costs[side] <= budget:
                return [images.LARGEST_MAP] * large + [side] * (n - large)
        # Not even the smallest maps of all samples fit, so some samples are left out.
        fitting = int(budget / costs[side])
        return [side] * max(1, fitting)

    def _cost(self, tiles: Tiles, sample: str, side: int) -> int:
        """Return the bytes of the pictures of one sample, if all its columns cost as much as the first."""
        cost = BYTES_OF_INPUT
        for explainer in self.rows:
            item = tiles.shown.get((explainer, CLEAN, sample))
            if item is not None:
                cost += len(self._map(item, side))
        return len(tiles.columns) * cost

    @cached_property
    def sentence(self) -> str:
        """What a stranger should take away, and no more than tests and intervals allow."""
        first = self.lead
        if first is None or first.decided is None:
            return "Nothing can be concluded yet."
        names = {explainer: look.name for explainer, look in self.looks.items()}
        return sentences(first.decided, first.result.axis.best, names)[0]

    @property
    def chips(self) -> list[tuple[str, str]]:
        """What limits the sentence, each with its class: few samples, lost predictions, other axes, axes not run."""
        texts = self._sample_chips()
        if self.here:
            texts += _least_kept(self.here[0])
        for column in self.columns:
            if column is not self.lead and column.verdict.startswith("no"):
                texts.append(f"{column.result.title}: {column.verdict}")
        chips = [(text, "") for text in texts]
        axes = {result.axis.name for result in self.here}
        for name in MARKING:
            if axes and name not in axes:
                chips.append((f"{BY_NAME[name].title}: not in this run", "absent"))
        return chips

    def _sample_chips(self) -> list[str]:
        """Return how many samples were tested, and how many could not be read."""
        words = self.here[0].words if self.here else KINDS["image"]
        n = max((len(result.sample_ids) for result in self.here), default=0)
        groups = max((result.groups for result in self.here), default=0)
        chips = []
        if n:
            chip = f"{n} {words.sample if n == 1 else words.samples}"
            if groups:
                chip += f" of {groups} groups"
            if (groups or n) < PILOT:
                chip += ": a trial"
            chips.append(chip)
        unread = len(unreadable(self.samples))
        if unread:
            chips.append(f"{unread} unreadable")
        return chips


def _least_kept(result: AxisResult) -> list[str]:
    """Return the condition that changes most predictions, if it changes more than a tenth; empty if none does."""
    # Explainers × conditions × samples: 1 is flipped, −1 was not attempted.
    status = result.arrays.status
    if not result.axis.separable or not (status == 1).any():
        return []
    share_retained: dict[int, float] = {}
    texts: dict[int, str] = {}
    for i, condition in enumerate(result.conditions):
        of_condition = status[:, i]
        is_attempted = (of_condition >= 0).any(0)
        if not is_attempted.any():
            continue
        is_retained = (of_condition != 1).all(0) & is_attempted
        retained, attempted = int(is_retained.sum()), int(is_attempted.sum())
        share_retained[i] = retained / attempted
        name = result.axis.condition(*condition)
        texts[i] = f"{name[:1].upper()}{name[1:]}: {retained} of {attempted} predictions stay"
    worst = min(share_retained, key=lambda i: share_retained[i])
    return [texts[worst]] if share_retained[worst] <= 0.9 else []


def proof_sheets(results: Sequence[AxisResult], samples: pd.DataFrame) -> list[ProofSheet]:
    """Return the sheet of every data set and model."""
    sheets = []
    by_subject = groupby(results, lambda result: (result.dataset, result.model))
    for (dataset, model), of_subject in by_subject:
        is_here = (samples["dataset"] == dataset) & (samples["model"] == model)
        sheets.append(ProofSheet(list(of_subject), samples[is_here]))
    return sheets

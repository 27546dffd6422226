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
from heatproof.axes.tiles import tiles_of
from heatproof.drawing import pictures
from heatproof.drawing.charts import Tiles
from heatproof.drawing.forms import ground, is_drawn, is_wide, uri
from heatproof.drawing.methods import Look, settings_of
from heatproof.drawing.plots import Mark, mark, of_marks
from heatproof.drawing.prose import number, records
from heatproof.evaluation import CLEAN, Condition, GalleryItem
from heatproof.kinds import KINDS
from heatproof.report.findings import PILOT, unreadable
from heatproof.results.axis_result import AxisResult
from heatproof.results.verdict import Verdict, sentences

MOST_ROWS = 12
"""Methods of the sheet; the others are in the scorecard."""
TILE, SMALLEST, TALLEST = 94, 66, 600
"""Pixels of a tile, and how tall the rows are together before tiles become smaller."""
BUDGET, SIZES = (
    1_650_000,
    ((6, 128), (4, 128), (2, 128), (1, 128), (1, 112), (1, 96), (0, 80), (0, 64), (0, 48)),
)
"""Bytes of all pictures of the sheets of a page; how many samples have large maps and how wide others are, as tried."""
FRACTIONS = {0.1: "a tenth", 0.25: "a quarter", 1 / 3: "a third", 0.5: "half", 2 / 3: "two thirds"}
COUNTS = ("no", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine")


@dataclass(frozen=True)
class Column:
    """One axis in sheet, scorecard and matrix: its numbers by explainer, on one scale."""

    result: AxisResult

    @cached_property
    def rows(self) -> dict[str, Any]:
        """explainer -> its row of the ranking by the first measure that speaks for it."""
        return (
            {r.explainer: r for r in reversed(records(self.result.ranking))}
            if self.result.headlines
            else {}
        )

    @cached_property
    def chance(self) -> float:
        """The level of chance where it is zero."""
        measure = self.result.headlines[0]
        return 0.0 if self.result.zero_is_chance(measure) else math.nan

    @property
    def note(self) -> str:
        """What the numbers are."""
        measure = self.result.headlines[0]
        way = {"higher": "", "lower": "lower is better", "neither": ""}[measure.better]
        name = "" if measure.title == self.result.axis.title else measure.title
        return ", ".join(filter(None, (name, "0 is chance" if self.chance == 0 else "", way)))

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
        known = [m.value for m in self.marks.values() if math.isfinite(m.value)]
        return of_marks(
            self.marks.values(), 0.0, *([1.0] if known and 0.45 < max(known) <= 1 else [])
        )

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
        return [column for j in self.here if j.headlines and (column := Column(j)).rows]

    @property
    def lead(self) -> Column | None:
        """The axis whose order the rows have: the first in which one direction is better."""
        ranked = [c for c in self.columns if c.result.headlines[0].sign]
        return next(iter(ranked or self.columns), None)

    @cached_property
    def order(self) -> list[str]:
        """Explainers: methods by rank, then those without one, then controls."""
        first = self.lead
        every = dict.fromkeys(
            [*(first.rows if first else ()), *(e for c in self.columns for e in c.rows)]
        )
        controls = {e for c in self.columns for e in c.result.controls}
        rank = (
            {e: r.rank if math.isfinite(r.rank) else math.inf for e, r in first.rows.items()}
            if first
            else {}
        )
        return sorted(every, key=lambda e: (e in controls, rank.get(e, math.inf)))

    @cached_property
    def rows(self) -> list[str]:
        """Those that the sheet has room for; controls always."""
        methods = [e for e in self.order if not self.looks[e].control]
        return [*methods[:MOST_ROWS], *(e for e in self.order if self.looks[e].control)]

    @cached_property
    def looks(self) -> dict[str, Look]:
        """The name and colour of every explainer."""
        return {e: look for result in self.here for e, look in result.looks.items()}

    def settings(self, explainer: str) -> str:
        """The settings of a method, where its name does not say them."""
        look, told = self.looks[explainer], settings_of(explainer)
        return "control, no rank" if look.control else "" if told in look.name else told

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
        return max(SMALLEST, min(TILE, TALLEST // (len(self.rows) + 1) - 8)) if self.tiles else 32

    @cached_property
    def wide(self) -> int:
        """How wide a tile is: curves, rows and texts are wider than high."""
        wide = self.tiles is not None and any(map(is_wide, self.tiles.shown.values()))
        return (
            max(self.size, min(260, 800 // len(self.tiles.columns) - 8))
            if wide and self.tiles
            else self.size
        )

    @property
    def kinds(self) -> set[str]:
        """The kinds of what is shown; those whose maps are marks are followed by a star."""
        shown = self.tiles.shown.values() if self.tiles else ()
        return {s.kind + "*" * is_drawn(s) for s in shown}

    @cached_property
    def signed(self) -> set[str]:
        """Explainers whose maps have a sign."""
        shown = self.tiles.shown.values() if self.tiles else ()
        return {s.explainer for s in shown if s.map is not None and pictures.is_signed(s.map)}

    def said_of(self, sample: str) -> str:
        """What the model says of a sample, and whether the label agrees."""
        known = self.samples.drop_duplicates("sample").set_index("sample")
        said = pictures.prediction(known, sample)
        return f"{said}, {pictures.label_words(known, sample)}" if said else ""

    def seen(self, tiles: Tiles, condition: Condition, sample: str) -> GalleryItem | None:
        """The input under a condition, which all explainers share; None where each has its own."""
        items = [s for e in self.rows if (s := tiles.shown.get((e, condition, sample))) is not None]
        same = items and all(np.array_equal(items[0].image, other.image) for other in items[1:])
        return items[0] if same else None

    def pictured(self, album: pictures.Album, budget: int) -> list[dict[str, Any]]:
        """For each sample its inputs and cells, [picture, score, why there is none], as the page fills them in."""
        tiles, found = self.tiles, list[dict[str, Any]]()
        if tiles is None:
            return found
        sides = self._fit(tiles, budget)
        for sample, side in zip(tiles.samples, sides, strict=False):
            inputs = {c: self._input(album, tiles, sample, c) for c, _ in tiles.columns}
            cells = [
                [self._cell(album, tiles, (e, c, sample), side, inputs[c][0]) for c in inputs]
                for e in self.rows
            ]
            found.append(
                {
                    "id": sample,
                    "said": self.said_of(sample),
                    "inputs": [*inputs.values()],
                    "cells": cells,
                }
            )
        return found

    def _input(
        self, album: pictures.Album, tiles: Tiles, sample: str, condition: Condition
    ) -> list[str]:
        """The picture of an input, where methods share it, and what the model says of it now."""
        item = self.seen(tiles, condition, sample)
        said = {tiles.scores.get((e, condition, sample), (0.0, ""))[1] for e in self.rows}
        now = said.pop() if len(said) == 1 else ""
        if item is None or item.kind != "table":
            return [
                "" if item is None else album.add(pictures.draw_ground(item, self.wide, self.size)),
                now,
            ]
        return [album.add(uri(ground(item, self.wide, self.size, values=True))), now]

    def _map(self, item: GalleryItem, side: int) -> str:
        """A map for the page; those of controls are half as wide, for they are noise and cost as much as all others."""
        side = side // 2 if self.looks[item.explainer].control else side
        return pictures.draw_over(item, item.explainer in self.signed, self.wide, self.size, side)

    def _cell(
        self,
        album: pictures.Album,
        tiles: Tiles,
        key: tuple[str, Condition, str],
        side: int,
        above: str,
    ) -> list[str]:
        """A map, its score, why there is none, and what lies under it where that is not the input above."""
        item, (score, why) = tiles.shown.get(key), tiles.scores.get(key, (math.nan, ""))
        if item is None or item.map is None:
            return ["", "", why or "no map", ""]
        own = not above or item.kind == "table"
        under = album.add(pictures.draw_ground(item, self.wide, self.size)) if own else ""
        return [
            album.add(self._map(item, side)),
            number(score) if math.isfinite(score) else "",
            "",
            under,
        ]

    def _fit(self, tiles: Tiles, budget: int) -> list[int]:
        """How wide the maps of each sample are, so that all keep within the budget, from what some cost."""
        n, cost = len(tiles.samples), dict[int, int]()
        for most, side in SIZES:
            for wide, sample in (
                (pictures.LARGEST_MAP, tiles.samples[0]),
                (side, tiles.samples[-1]),
            ):
                if wide not in cost:
                    own = [item for e in self.rows if (item := tiles.shown.get((e, CLEAN, sample)))]
                    cost[wide] = len(tiles.columns) * (
                        6000 + sum(len(self._map(item, wide)) for item in own)
                    )
            large = min(most, n)
            if large * cost[pictures.LARGEST_MAP] + (n - large) * cost[side] <= budget:
                return [pictures.LARGEST_MAP] * large + [side] * (n - large)
        return [side] * max(1, int(budget / cost[side]))

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
        words = self.here[0].words if self.here else KINDS["image"]
        n = max((len(j.sample_ids) for j in self.here), default=0)
        groups = max((j.groups for j in self.here), default=0)
        said = f"{n} {words.sample if n == 1 else words.samples}" + (
            f" of {groups} groups" if groups else ""
        )
        chips = [(said + (": a trial" if (groups or n) < PILOT else ""), "")] if n else []
        chips += [(f"{len(lost)} unreadable", "")] if len(lost := unreadable(self.samples)) else []
        chips += [(chip, "") for j in self.here[:1] for chip in _least_kept(j)]
        chips += [
            (f"{c.result.title}: {c.verdict}", "")
            for c in self.columns
            if c is not self.lead and c.verdict[:2] == "no"
        ]
        ran = {j.axis.name for j in self.here}
        missing = [BY_NAME[name].title for name in MARKING if name not in ran]
        return chips + [(f"{title}: not in this run", "absent") for title in missing if self.here]


def _least_kept(result: AxisResult) -> list[str]:
    """The condition that changes most predictions, where it changes more than a tenth."""
    status = result.arrays.status
    if not result.axis.separable or not (status == 1).any():
        return []
    kept = [(status[:, i] != 1).all(0) & (status[:, i] >= 0).any(0) for i in range(status.shape[1])]
    asked = [(status[:, i] >= 0).any(0).sum() for i in range(status.shape[1])]
    worst = min((i for i, n in enumerate(asked) if n), key=lambda i: kept[i].sum() / asked[i])
    if kept[worst].sum() > 0.9 * asked[worst]:
        return []
    name = result.axis.condition(*result.conditions[worst])
    return [f"{name[:1].upper()}{name[1:]}: {kept[worst].sum()} of {asked[worst]} predictions stay"]


def proof_sheets(every: Sequence[AxisResult], samples: pd.DataFrame) -> list[ProofSheet]:
    """The sheet of every dataset and model."""
    return [
        ProofSheet(
            list(here), samples[(samples["dataset"] == place[0]) & (samples["model"] == place[1])]
        )
        for place, here in groupby(every, lambda j: (j.dataset, j.model))
    ]

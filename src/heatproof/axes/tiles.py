"""The maps of the samples on show under every change, with a score for each, and the worst of them."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from heatproof.evaluation import CLEAN, Condition, GalleryItem
from heatproof.report.components import Tile
from heatproof.results.arrays import ScoreArrays
from heatproof.results.axis_result import AxisResult
from heatproof.results.score_estimates import pair_scores
from heatproof.statistics.arrays import Array, mean_of_finite
from heatproof.text import records


@dataclass(frozen=True)
class Tiles:
    """The maps of some samples under some conditions, for the proof sheet.

    `columns` are conditions in words, the original input first, `samples` in the order in which they are offered.
    `scores` has for each explainer, condition and sample the calibrated score, or NaN and why there is none.
    """

    columns: Sequence[tuple[Condition, str]]
    samples: Sequence[str]
    shown: Mapping[tuple[str, Condition, str], GalleryItem]
    scores: Mapping[tuple[str, Condition, str], tuple[float, str]]


def tiles_of(result: AxisResult) -> Tiles | None:
    """Return the kept maps of the samples on show, with their scores by the first headline; None without such maps.

    Only axes whose record says in words what a condition did to an input (`Axis.describe_change`) have some.
    """
    pictured = result.axis.describe_change
    explained = [item for item in result.gallery if item.explainer]
    perturbed = {item.sample for item in explained if item.condition != CLEAN[0]}
    samples = perturbed & set(result.sample_ids)
    if pictured is None or not samples or not result.headlines:
        return None

    measure = result.headlines[0].name
    arrays = result.arrays.for_measure(measure)
    shown = {
        (item.explainer, (item.condition, item.level), item.sample): item
        for item in explained
        if item.sample in samples
    }
    kept_conditions = {condition for _, condition, _ in shown}
    columns: list[tuple[Condition, str]] = [(CLEAN, "original")]
    for condition in arrays.conditions:
        if condition in kept_conditions:
            columns.append((condition, pictured(*condition)))

    all_scores = pair_scores(arrays, measure)
    order = _in_order(samples, arrays, all_scores, explained)
    position = {sample: i for i, sample in enumerate(arrays.samples)}
    scores: dict[tuple[str, Condition, str], tuple[float, str]] = {}
    for e, explainer in enumerate(arrays.explainers):
        for c, condition in enumerate(arrays.conditions):
            if condition in kept_conditions:
                for sample in order:
                    score = float(all_scores[e, c, position[sample]])
                    scores[explainer, condition, sample] = (score, "")

    rows = result.rows
    is_lost = (rows["measure"] == measure) & (rows["status"] != "ok")
    for row in records(rows[is_lost & rows["sample"].isin(samples)]):
        key = (row.explainer, (row.condition, row.level), row.sample)
        scores[key] = (float("nan"), _why_no_score(row))
    return Tiles(columns, order, shown, scores)


def _in_order(
    samples: Collection[str], arrays: ScoreArrays, scores: Array, gallery: Sequence[GalleryItem]
) -> list[str]:
    """Return the samples in the order in which they are offered.

    First come those with a score under every change, of these those with large maps, which are drawn by key as all are,
    and of these the one nearest to the median of all samples.
    """
    is_method = [explainer not in arrays.controls for explainer in arrays.explainers]
    of_methods = scores[is_method]
    is_scored = np.isfinite(of_methods)
    means = mean_of_finite(np.moveaxis(of_methods, -1, 0).reshape(len(arrays.samples), -1))
    median = np.nanmedian(means) if np.isfinite(means).any() else 0.0
    from_median = np.nan_to_num(np.abs(means - median), nan=np.inf)
    unscored_conditions = (~is_scored.any(0)).sum(0)
    side = {item.sample: max(item.image.shape) if item.image.ndim == 3 else 0 for item in gallery}

    def rank(sample: str) -> tuple[int, int, float, str]:
        position = arrays.samples.index(sample)
        return unscored_conditions[position], -side[sample], from_median[position], sample

    return sorted(samples, key=rank)


def _why_no_score(row: Any) -> str:
    """Return what the model predicts instead, where the prediction changed, else the reason of a row."""
    predicted_after = getattr(row, "predicted_after", None)
    if row.status == "flipped" and not pd.isna(predicted_after) and predicted_after:
        return f"now: {predicted_after}"
    return str(row.reason or row.status)


def worst_pair_tiles(result: AxisResult) -> list[Tile]:
    """Return two tiles for the worst kept pair of each method, the original and the changed map; worst method first."""
    tiles = tiles_of(result)
    if tiles is None:
        return []
    words = dict(tiles.columns)
    gallery = []
    for score, before, after in _worst_pairs(result, tiles):
        change = after.note.replace(" -", " −") or words[after.condition, after.level]
        gallery.append(Tile(before, words[CLEAN]))
        gallery.append(Tile(after, change, score=score))
    return gallery


def _worst_pairs(result: AxisResult, tiles: Tiles) -> list[tuple[float, GalleryItem, GalleryItem]]:
    """Return the lowest score of each method and the maps before and after the change, the lowest score first."""
    lowest: dict[str, tuple[float, str, Condition]] = {}
    for (explainer, condition, sample), (score, _) in tiles.scores.items():
        if explainer in result.controls or not np.isfinite(score):
            continue
        before = tiles.shown.get((explainer, CLEAN, sample))
        after = tiles.shown.get((explainer, condition, sample))
        if before is None or after is None or before.map is None or after.map is None:
            continue
        pair = (round(score, 6), sample, condition)
        lowest[explainer] = min(lowest.get(explainer, pair), pair)

    pairs = []
    for explainer, (score, sample, condition) in sorted(lowest.items(), key=lambda item: item[1]):
        before = tiles.shown[explainer, CLEAN, sample]
        after = tiles.shown[explainer, condition, sample]
        pairs.append((score, before, after))
    return pairs

"""Pairs of an input and its perturbed twin: which were retained, their scores, and the worst, median and best."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from holdfast.axes.stability.perturbations.contract import Perturbation, condition, level
from holdfast.statistics.bootstrap import calibrate
from holdfast.statistics.forms import forms_of
from holdfast.types import Batch, Condition, Exhibit, Subject

ROLES = ("worst", "median", "best")


@dataclass(frozen=True)
class Pairs:
    """The shard's samples after one perturbation, and which of them kept their prediction."""

    perturbation: Perturbation
    batch: Batch
    status: Tensor
    reason: tuple[str, ...]

    @property
    def where(self) -> Condition:
        """Condition and level of the perturbation."""
        return condition(self.perturbation), level(self.perturbation)


@dataclass(frozen=True)
class Candidate:
    """A retained pair that may be shown: its score, its row in the shard, its map (1, H, W), and its perturbation."""

    score: float
    row: int
    map: Tensor
    number: int


def pair_scores(columns: Mapping[str, Any]) -> NDArray[np.float64]:
    """One score per pair from its measures, arrays of one shape: the best form of FASS that has a number.

    >>> pair_scores({"fass": [0.8, 0.8], "fass_chance": [0.6, float("nan")]}).round(3).tolist()
    [0.5, 0.8]
    """
    scores = np.full(np.shape(columns["fass"]), np.nan)
    for score, chance, _ in forms_of("fass", "best", columns.__contains__):
        value = np.asarray(columns[score], dtype=np.float64)
        if chance is not None:
            value = calibrate(value, np.asarray(columns[chance], dtype=np.float64))
        scores = np.where(np.isfinite(scores), scores, value)
    return scores


def extremes(scores: Sequence[float], keys: Sequence[tuple[Any, ...]]) -> dict[str, int]:
    """role -> position of the worst, the median and the best score; ties go by key, so that order does not matter.

    Of an even number the lower median is taken. Without scores there are no roles. Scores that differ by rounding
    only are ties.

    >>> extremes([0.2, 0.9, 0.5, 0.4], [("a",), ("b",), ("c",), ("d",)])
    {'worst': 0, 'median': 3, 'best': 1}
    """
    finite = [i for i, score in enumerate(scores) if np.isfinite(score)]
    order = sorted(finite, key=lambda i: (round(scores[i], 6), keys[i]))
    return dict(zip(ROLES, (order[0], order[(len(order) - 1) // 2], order[-1]), strict=True)) if order else {}


def extreme_exhibits(
    subject: Subject, explainer: str, pairs: Sequence[Pairs], clean: Tensor, candidates: Sequence[Candidate]
) -> Iterator[Exhibit]:
    """The worst, the median and the best retained pair of the shard, each with its clean half."""
    ids = subject.batch.ids
    candidates = [c for c in candidates if np.isfinite(c.score)]
    chosen = extremes([c.score for c in candidates], [(ids[c.row], c.number) for c in candidates])
    shown = {row for row, sample in enumerate(ids) if sample in subject.showcase}
    for role, position in chosen.items():
        c = candidates[position]
        if c.row not in shown:
            shown.add(c.row)
            yield Exhibit(explainer, "clean", 0.0, ids[c.row], subject.batch.x[c.row], clean[c.row])
        pair = pairs[c.number]
        image = pair.batch.x[c.row]
        yield Exhibit(explainer, *pair.where, ids[c.row], image, c.map, role=role, pairs=len(candidates))

"""Pairs of an input and its perturbed twin: which were retained, their scores, and the worst."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from holdfast.axes.stability.perturbations.contract import Perturbation, condition, level
from holdfast.axes.stability.perturbations.texts import Reworded
from holdfast.statistics.bootstrap import calibrate
from holdfast.statistics.forms import forms_of
from holdfast.types import Batch, Condition, Exhibit, Subject

WORST = "worst"


@dataclass(frozen=True)
class Pairs:
    """The shard's samples after one perturbation, and which of them kept their prediction."""

    perturbation: Perturbation
    batch: Batch
    status: Tensor
    reason: tuple[str, ...]
    text: Reworded | None = None

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


def worst_exhibit(
    subject: Subject, explainer: str, pairs: Sequence[Pairs], clean: Tensor, candidates: Sequence[Candidate]
) -> Iterator[Exhibit]:
    """The retained pair of the shard that holds least, with its clean half; ties go by id, so order does not matter."""
    ids = subject.batch.ids
    candidates = [c for c in candidates if np.isfinite(c.score)]
    if not candidates:
        return
    c = min(candidates, key=lambda c: (round(c.score, 6), ids[c.row], c.number))
    if ids[c.row] not in subject.showcase:
        yield Exhibit(explainer, "clean", 0.0, ids[c.row], subject.batch.x[c.row], clean[c.row])
    pair = pairs[c.number]
    yield Exhibit(explainer, *pair.where, ids[c.row], pair.batch.x[c.row], c.map, role=WORST, pairs=len(candidates))

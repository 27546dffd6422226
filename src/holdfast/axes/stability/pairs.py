"""Pairs of an input and its perturbed twin: which were retained, their columns of scores, and those worth showing."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from holdfast.axes.stability import perturbations as perturbing
from holdfast.axes.stability.extremes import extremes, note
from holdfast.types import UNDEFINED, Batch, Exhibit, Scores, Subject


@dataclass(frozen=True)
class Pairs:
    """The shard's samples after one perturbation, and which of them kept their prediction."""

    perturbation: Any
    batch: Batch
    status: Tensor
    reason: tuple[str, ...]


@dataclass(frozen=True)
class Candidate:
    """A retained pair that may be shown: its score, its row in the shard, its map (1, H, W), and its perturbation."""

    score: float
    row: int
    map: Tensor
    number: int


def extreme_exhibits(
    subject: Subject, explainer: str, pairs: Sequence[Pairs], clean: Tensor, candidates: Sequence[Candidate]
) -> Iterator[Exhibit]:
    """The worst, the median and the best retained pair of the shard, each with its clean half."""
    ids = subject.batch.ids
    candidates = [c for c in candidates if math.isfinite(c.score)]
    chosen = extremes([c.score for c in candidates], [(ids[c.row], c.number) for c in candidates])
    given = {row for row, sample in enumerate(ids) if sample in subject.showcase}
    for role, place in chosen.items():
        c = candidates[place]
        if c.row not in given:
            given.add(c.row)
            yield Exhibit(explainer, "clean", 0.0, ids[c.row], subject.batch.x[c.row], clean[c.row])
        perturbation, image = pairs[c.number].perturbation, pairs[c.number].batch.x[c.row]
        where = (perturbing.condition(perturbation), perturbing.level(perturbation))
        yield Exhibit(explainer, *where, ids[c.row], image, c.map, note(role, len(candidates)))


def column(
    explainer: str,
    measure: str,
    where: tuple[str, float],
    value: Tensor,
    rows: Tensor,
    status: Tensor,
    reason: Sequence[str],
) -> Scores:
    """A full column: the values of the scored rows, NaN with a status and a reason elsewhere."""
    values = torch.full((len(status),), torch.nan, dtype=torch.float64)
    values[rows] = value.double()
    lost = rows[~torch.isfinite(values[rows])]
    if not len(lost):
        return Scores(explainer, measure, *where, values, status, tuple(reason))
    status, why = status.clone(), list(reason)
    status[lost] = UNDEFINED
    for i in lost.tolist():
        why[i] = "no other sample to compare with" if measure.endswith("_chance") else "nothing left to compare"
    return Scores(explainer, measure, *where, values, status, tuple(why))

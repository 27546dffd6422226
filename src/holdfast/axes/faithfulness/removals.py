"""What a removal of pixels works on and puts out: what all explainers share, columns of scores, strips of pictures."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from holdfast.axes.faithfulness import mask_bank as maskbank
from holdfast.axes.faithfulness import sweeps
from holdfast.axes.faithfulness.curves import Readout
from holdfast.features import count
from holdfast.maps.undefined import NOT_FINITE
from holdfast.types import UNDEFINED, Batch, Exhibit, Scores, Subject, label_of

Labelled = tuple[Tensor, Tensor]
"""Labels (B, H, W) of features and how many each sample has, (B,); a label from that number on is never removed."""


def labelled(features: Any, batch: Batch) -> Labelled:
    """The features of a batch that may be removed: those that a grouping keeps, as special tokens, come last.

    >>> from holdfast.features import Tokens
    >>> labels, counts = labelled(Tokens(special=(1,), mask_token=3), Batch(("a",), torch.tensor([[1, 7, 8]])))
    >>> labels.tolist(), counts.tolist()
    ([[2, 0, 1]], [2])
    """
    segments = features.segments(batch).to(batch.x.device)
    if not hasattr(features, "fixed"):
        return segments, count(segments)
    fixed = features.fixed(batch)
    counts = (~fixed).sum(1)
    return torch.where(fixed, segments.shape[1] - 1, (~fixed).cumsum(1) - 1), counts


@dataclass(frozen=True)
class Column:
    """Where the scores of one explainer go: which of the shard's samples have a map, and why the others have none."""

    explainer: str
    rows: Tensor
    status: Tensor
    why: tuple[str, ...]

    def __call__(
        self, measure: str, condition: str, level: float, value: Tensor, missing: Sequence[str] | str = NOT_FINITE
    ) -> Scores:
        """A full column from the values of its rows; a row without a number is undefined, for the reason `missing`."""
        full = torch.full(self.status.shape, torch.nan, dtype=torch.float64)
        full[self.rows] = value.double().cpu()
        status, why = self.status.clone(), list(self.why)
        for at in (~torch.isfinite(full[self.rows])).nonzero().flatten().tolist():
            i = int(self.rows[at])
            full[i], status[i] = torch.nan, UNDEFINED
            why[i] = missing if isinstance(missing, str) else missing[at]
        return Scores(self.explainer, measure, condition, level, full, status, tuple(why))


@dataclass(frozen=True)
class Shared:
    """What does not depend on the explainer, for all samples of the shard."""

    clean: Tensor
    start: dict[Readout, Tensor]
    truth: Tensor
    pixels: Labelled
    segments: Labelled | None
    random: dict[str, Tensor]
    random_irof: Tensor | None
    bank: tuple[Tensor, maskbank.Bank] | None


def strip(
    subject: Subject,
    column: Column,
    imputer: Any,
    fractions: Sequence[float],
    ranks: Tensor,
    clean: Tensor,
    curve: Tensor,
    shown: int,
) -> Iterator[Exhibit]:
    """The showcase's images as their most important pixels go, and the probability of their class; of images only.

    `ranks` (R, H, W), the `clean` probability (R,) and its `curve` (R, fractions) belong to the column's rows; at most
    `shown` of the fractions are pictured, beside the untouched image.
    """
    if subject.batch.x.ndim != 4:
        return
    ready = sweeps.bound(imputer, subject.references.x, None)
    last = len(fractions) - 1
    steps = sorted({int(last * i / (shown - 1) + 0.5) for i in range(shown)})
    for at, i in enumerate(column.rows.tolist()):
        sample, x = subject.batch.ids[i], subject.batch.x[i : i + 1]
        if sample not in subject.showcase:
            continue
        name, place = subject.model.class_name(int(subject.target[i])), f"{label_of(imputer)} morf"
        yield Exhibit(column.explainer, place, 0.0, sample, x[0], None, f"{name} {float(clean[at]):.2f}")
        for s in steps:
            fraction, p = fractions[s], float(curve[at, s])
            if fraction == 0 or not math.isfinite(p):
                continue
            size = sweeps.removal_sizes((fraction,), ranks[at].max()[None] + 1)
            picture = ready(x, (ranks[at] >= size)[None], (sample,), subject.seed)[0]
            yield Exhibit(column.explainer, place, fraction, sample, picture, None, f"{name} {p:.2f}")

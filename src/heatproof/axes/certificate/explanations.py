"""The explanations that certificates are about: which features an explainer selects in each sample."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor
from torch.nn.functional import pad

from heatproof.evaluation import OPEN, Condition, Scores
from heatproof.types import Batch

MASKED_NOT_FINITE = "the model's scores of a masked input are not finite"
OTHERWISE = "the explanation alone is predicted otherwise than the whole input"


@dataclass(frozen=True)
class Explanations:
    """The features that an explainer selects in the samples of a shard.

    `rows` (S,) are the samples that have an explanation, `batch` these samples, `mask` (S, n) their features. `reason`
    has an entry per sample of the shard: why it has no explanation, "" where it has one.
    """

    explainer: str
    reason: tuple[str, ...]
    rows: Tensor
    batch: Batch
    mask: Tensor

    def only(self, samples: Sequence[str]) -> Explanations:
        """Return the explanations of samples with these ids."""
        chosen = [i for i, sample in enumerate(self.batch.ids) if sample in samples]
        return replace(
            self, rows=self.rows[chosen], batch=self.batch[chosen], mask=self.mask[chosen]
        )

    def with_class(self, classes: Tensor) -> Tensor:
        """Return masks with the class of their sample in the last column, (S, n + 1) int64; `classes` (B,) of the shard.

        `Subject.compute` takes one tensor beside a batch, so both travel in it.
        """
        class_of_row = classes.cpu()[self.rows].to(self.mask.device)
        return torch.cat([self.mask.long(), class_of_row.long()[:, None]], 1)

    def column(
        self,
        measure: str,
        where: Condition,
        value: Tensor,
        missing: str | Sequence[str] = MASKED_NOT_FINITE,
        bounds: tuple[Tensor | None, Tensor | None] = (None, None),
        chance: Tensor | None = None,
    ) -> Scores:
        """Return values (S,) of the samples with an explanation as a column for all samples of the shard.

        Where a value is not finite, the reason is `missing`, which may be given row by row.
        """
        column = Scores.column(
            self.explainer,
            measure,
            where,
            value,
            self.reason,
            rows=self.rows,
            missing=missing,
            bounds=bounds,
            chance=chance,
        )
        # The usual reason, no sample to compare with, is not why random sets have no rate.
        chance_reason = tuple(
            MASKED_NOT_FINITE if reason else "" for reason in column.chance_reason
        )
        return replace(column, chance_reason=chance_reason)

    def decisions(
        self,
        measure: str,
        where: Condition,
        answer: Tensor,
        bounds: tuple[Tensor, Tensor],
        why_open: str,
    ) -> Scores:
        """Return yes/no decisions about S explanations as a column of scores for all samples of the shard.

        `answer` (S,) is 1 or 0, or NaN where there is none. If the rate behind it has finite `bounds` (S,) all the same, the
        decision is open: it gets that status, the reason `why_open`, and its bounds.
        """
        column = self.column(measure, where, answer)
        is_open = (answer.isnan() & bounds[0].isfinite()).cpu()
        if not is_open.any():
            return column
        rows = self.rows[is_open]
        reason = list(column.reason)
        for row in rows.tolist():
            reason[row] = why_open
        low, high = torch.full((2, len(reason)), torch.nan, dtype=torch.float64)
        low[rows], high[rows] = bounds[0].cpu()[is_open], bounds[1].cpu()[is_open]
        status = column.status.index_fill(0, rows, OPEN)
        return replace(column, status=status, reason=tuple(reason), low=low, high=high)


def joined(batch: Batch, several: Sequence[Explanations]) -> Explanations:
    """Return the explanations of several explainers as one, so that they can be certified in the same batches.

    All are explanations of samples of one shard, `batch`. Their masks, (S, n) features kept, are put below each other;
    they are padded with False where explainers have explanations of samples with different numbers of features.
    """
    if len(several) == 1:
        return several[0]
    rows = torch.cat([explanations.rows for explanations in several])
    width = max(explanations.mask.shape[1] for explanations in several)
    masks = []
    for explanations in several:
        if len(explanations.rows):
            masks.append(pad(explanations.mask, (0, width - explanations.mask.shape[1])))
    mask = torch.cat(masks) if masks else several[0].mask
    return replace(several[0], rows=rows, batch=batch[rows], mask=mask)

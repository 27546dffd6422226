"""What explainers select: the explanations that certificates are about."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor
from torch.nn.functional import pad

from heatproof.evaluation import OPEN, Condition, Scores
from heatproof.types import Batch

MASKED_NOT_FINITE = "the model's scores of a masked input are not finite"


@dataclass(frozen=True)
class Explanations:
    """What an explainer selects in a shard: `batch` and masks (S, n) of the samples `rows`, and why others have none.

    `reason` has an entry per sample of the shard, empty where there is an explanation.
    """

    explainer: str
    reason: tuple[str, ...]
    rows: Tensor
    batch: Batch
    mask: Tensor

    def only(self, samples: Sequence[str]) -> Explanations:
        """Those of samples with these ids."""
        chosen = [i for i, sample in enumerate(self.batch.ids) if sample in samples]
        return replace(
            self, rows=self.rows[chosen], batch=self.batch[chosen], mask=self.mask[chosen]
        )

    def with_class(self, classes: Tensor) -> Tensor:
        """Masks with the class (B,) of their sample in the last column, (S, n + 1) int64."""
        class_of_row = classes.cpu()[self.rows].to(self.mask.device)
        return torch.cat([self.mask.long(), class_of_row.long()[:, None]], 1)

    def column(
        self,
        measure: str,
        where: Condition,
        value: Tensor,
        missing: str = MASKED_NOT_FINITE,
        bounds: tuple[Tensor | None, Tensor | None] = (None, None),
        chance: Tensor | None = None,
    ) -> Scores:
        """Values (S,) of the samples with an explanation as a column for all samples of the shard."""
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
        why = tuple(MASKED_NOT_FINITE if reason else "" for reason in column.chance_reason)
        return replace(column, chance_reason=why)

    def decisions(
        self,
        measure: str,
        where: Condition,
        answer: Tensor,
        bounds: tuple[Tensor, Tensor],
        why_open: str,
    ) -> Scores:
        """Answers (S,), 1 or 0, as a column; one that is NaN though its rate has bounds is open, and keeps the bounds."""
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
    """Explanations of samples of one shard, `batch`, below each other; masks of fewer features are filled up."""
    rows = torch.cat([chosen.rows for chosen in several])
    width = max(chosen.mask.shape[1] for chosen in several)
    masks = [
        pad(chosen.mask, (0, width - chosen.mask.shape[1]))
        for chosen in several
        if len(chosen.rows)
    ]
    mask = torch.cat(masks) if masks else several[0].mask
    return replace(several[0], rows=rows, batch=batch[rows], mask=mask)

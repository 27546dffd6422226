"""What explainers select: the explanations that certificates are about."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor
from torch.nn.functional import pad

from heatproof.evaluation import Condition, Scores
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
        there = [i for i, sample in enumerate(self.batch.ids) if sample in samples]
        return replace(self, rows=self.rows[there], batch=self.batch[there], mask=self.mask[there])

    def with_class(self, classes: Tensor) -> Tensor:
        """Masks with the class (B,) of their sample in the last column, (S, n + 1) int64."""
        own = classes.cpu()[self.rows].to(self.mask.device)
        return torch.cat([self.mask.long(), own.long()[:, None]], 1)

    def column(
        self,
        measure: str,
        where: Condition,
        value: Tensor,
        missing: str | Sequence[str] = MASKED_NOT_FINITE,
        bounds: tuple[Tensor | None, Tensor | None] = (None, None),
    ) -> Scores:
        """Values (S,) of the samples with an explanation as a column for all samples of the shard."""
        return Scores.column(
            self.explainer,
            measure,
            where,
            value,
            self.reason,
            rows=self.rows,
            missing=missing,
            bounds=bounds,
        )


def joined(batch: Batch, several: Sequence[Explanations]) -> Explanations:
    """Explanations of samples of one shard, `batch`, below each other; masks of fewer features are filled up."""
    rows, width = (
        torch.cat([one.rows for one in several]),
        max(one.mask.shape[1] for one in several),
    )
    masks = [pad(one.mask, (0, width - one.mask.shape[1])) for one in several if len(one.rows)]
    return replace(
        several[0],
        rows=rows,
        batch=batch[rows],
        mask=torch.cat(masks) if masks else several[0].mask,
    )

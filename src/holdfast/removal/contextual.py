"""Imputers that need more than the sample: other samples, or what hides a token.

An imputer with a method `bound(reference, features)` is not called itself: an evaluation binds it to the study's
reference samples and to the grouping in use, and calls what it gets.
"""

from __future__ import annotations

from dataclasses import dataclass as plain_dataclass
from typing import Any, ClassVar

import torch
from pydantic.dataclasses import dataclass
from torch import Tensor

from holdfast.errors import UserError
from holdfast.features.tokens import Tokens
from holdfast.removal.imputers import Zero
from holdfast.types import STRICT, Batch


@plain_dataclass(frozen=True)
class Filling:
    """Removed values become those of `fill`, one sample in the shape of the data without its batch."""

    fill: Tensor

    def __call__(self, x: Tensor, keep: Tensor, ids: Any = None, seed: int = 0) -> Tensor:
        """x (B, …) where `keep` says so, else the fill; what is not valid is refused as by `zero`."""
        Zero()(x, keep, ids, seed)
        return torch.where(keep if x.ndim == 2 else keep[:, None], x, self.fill.to(x))


@plain_dataclass(frozen=True)
class Hiding:
    """Removed tokens are hidden as `tokens` says: by its mask token, or from the attention mask."""

    tokens: Tokens

    @property
    def needs_kept(self) -> bool:
        """Whether a text must keep a token: a network that may attend to nothing attends to everything."""
        return self.tokens.mask_token is None

    def hide(self, batch: Batch, keep: Tensor) -> Batch:
        """The texts with only the positions `keep` (B, L)."""
        x, aux = self.tokens.hide(batch.x, batch.aux, keep)
        return Batch(batch.ids, x, aux, batch.label)


@dataclass(frozen=True, config=STRICT)
class ReferenceMean:
    """Removed values become the mean, at the same place, of the study's reference samples: for the columns of a table.

    The references are a few samples of the data set, the same for every shard and method; they are drawn by seed and
    id. Gaps among them are left out. Give `dataset_mean` the means of the training data where they are known.

    >>> from holdfast.features import Pixels
    >>> fill = ReferenceMean().bound(torch.tensor([[1.0, 5.0], [3.0, 7.0]]), Pixels())
    >>> fill(torch.tensor([[0.0, 0.0]]), torch.tensor([[True, False]])).tolist()
    [[0.0, 6.0]]
    """

    name: ClassVar[str] = "reference_mean"
    stochastic: ClassVar[bool] = False
    reads_removed: ClassVar[bool] = False

    def bound(self, reference: Tensor, features: Any) -> Filling:
        """The imputer with the mean of `reference` (R, …)."""
        if not len(reference):
            raise UserError("reference_mean needs at least one reference sample; use dataset_mean or zero")
        values = reference.double()
        return Filling(values.masked_fill(~values.isfinite(), torch.nan).nanmean(0).to(reference.dtype))


@dataclass(frozen=True, config=STRICT)
class Hidden:
    """Removed tokens of a text are hidden the way the grouping `tokens` hides them; nothing else can be hidden.

    >>> hiding = Hidden().bound(torch.zeros(0, 2), Tokens(mask_token=3))
    >>> hiding.hide(Batch(("a",), torch.tensor([[7, 8]])), torch.tensor([[True, False]])).x.tolist()
    [[7, 3]]
    """

    name: ClassVar[str] = "hidden"
    stochastic: ClassVar[bool] = False
    reads_removed: ClassVar[bool] = False

    def bound(self, reference: Tensor, features: Any) -> Hiding:
        """The imputer that hides what these features hide."""
        if not isinstance(features, Tokens):
            raise UserError("hidden is for tokens of texts; other data is filled in: use noisy_linear, zero or a mean")
        return Hiding(features)


CONTEXTUAL: dict[str, Any] = {"reference_mean": ReferenceMean, "hidden": Hidden}
"""Imputers of an evaluation, beside `holdfast.removal.IMPUTERS`, by their names in a study file."""

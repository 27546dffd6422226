"""Imputers that need more than the sample: other samples, or what hides a token.

An imputer with a method `bound(reference, features)` is not called itself: an evaluation binds it to the study's
reference samples and to the grouping in use, and calls what it gets.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass as plain_dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor

from heatproof.errors import UserError
from heatproof.features.tokens import Tokens
from heatproof.removal.imputers import DatasetMean, Zero
from heatproof.types import Batch, parameter_class


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
        x, aux = Tokens.hide(
            self.tokens, batch.x, batch.aux, keep
        )  # positions, whatever the features are
        return Batch(batch.ids, x, aux, batch.label)


@parameter_class
class ReferenceMean:
    """Removed values become the mean, at the same place, of the study's reference samples: for the columns of a table.

    The references are a few samples of the data set, the same for every shard and method; they are drawn by seed and
    id. Gaps among them are left out. Give `dataset_mean` the means of the training data where they are known.

    >>> from heatproof.features import Pixels
    >>> fill = ReferenceMean().bound(torch.tensor([[1.0, 5.0], [3.0, 7.0]]), Pixels())
    >>> fill(torch.tensor([[0.0, 0.0]]), torch.tensor([[True, False]])).tolist()
    [[0.0, 6.0]]
    """

    name: ClassVar[str] = "reference_mean"

    def bound(self, reference: Tensor, features: Any) -> Filling:
        """The imputer with the mean of `reference` (R, …)."""
        if not len(reference):
            raise UserError(
                "reference_mean needs at least one reference sample; use dataset_mean or zero"
            )
        values = reference.double()
        return Filling(
            values.masked_fill(~values.isfinite(), torch.nan).nanmean(0).to(reference.dtype)
        )


@parameter_class
class Hidden:
    """Removed tokens of a text are hidden the way the grouping `tokens` hides them; nothing else can be hidden.

    >>> hiding = Hidden().bound(torch.zeros(0, 2), Tokens(mask_token=3))
    >>> hiding.hide(Batch(("a",), torch.tensor([[7, 8]])), torch.tensor([[True, False]])).x.tolist()
    [[7, 3]]
    """

    name: ClassVar[str] = "hidden"

    def bound(self, reference: Tensor, features: Any) -> Hiding:
        """The imputer that hides what these features hide."""
        if not isinstance(features, Tokens):
            raise UserError(
                "hidden is for tokens of texts; other data is filled in: use noisy_linear, zero or a mean"
            )
        return Hiding(features)


@parameter_class
class OwnBaseline:
    """Removed values become those that an explainer itself measures against, so that mass and drop mean the same.

    That is its `baseline`, or its `fill` where that is one value; what has neither, such as the product of input and
    gradient, measures against 0. Zero is that of the normalised input: the model's mean colour.

    >>> from heatproof.explainers import IntegratedGradients
    >>> OwnBaseline().of(IntegratedGradients(baseline=1.0), [0.5, 0.4], [0.25])
    DatasetMean(mean=(0.75, 0.65))
    """

    name: ClassVar[str] = "own_baseline"

    def of(
        self, explainer: Any, mean: Sequence[float] | None, std: Sequence[float] | None
    ) -> DatasetMean:
        """The constant in the data's own units, with the `mean` and `std` that a model normalises by."""
        while (
            inner := getattr(explainer, "of", None) or getattr(explainer, "call", None)
        ) is not None:
            explainer = inner
        value = getattr(explainer, "baseline", getattr(explainer, "fill", 0.0))
        if (
            isinstance(value, int | float)
            and hasattr(explainer, "fill")
            and hasattr(explainer, "features")
        ):
            return DatasetMean(
                mean=(float(value),)
            )  # the fills of features are in the data's own units
        value = float(value) if isinstance(value, int | float) else 0.0
        shift, scale = list(mean or [0.0]), list(std or [1.0])
        channels = max(len(shift), len(scale))
        shift, scale = (part * channels if len(part) == 1 else part for part in (shift, scale))
        return DatasetMean(
            mean=tuple(round(value * s + m, 7) for m, s in zip(shift, scale, strict=True))
        )

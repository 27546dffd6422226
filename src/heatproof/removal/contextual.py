"""Imputers that need more than the sample: other samples, the features in use, or the explainer.

One with a method `bound(reference, features)` is not called itself: an evaluation binds it to the study's reference
samples and to the grouping in use, and calls the imputer that this returns.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass as plain_dataclass
from dataclasses import field
from typing import Any, ClassVar

import torch
from torch import Tensor

from heatproof.errors import UserError
from heatproof.features.tokens import Tokens
from heatproof.removal.imputers import DatasetMean, check, with_fill
from heatproof.types import Batch, parameter_class


@plain_dataclass(frozen=True)
class Filling:
    """The bound imputer of `ReferenceMean`: removed values become those of `fill`, one sample without a batch axis."""

    fill: Tensor

    def __call__(self, x: Tensor, keep: Tensor, ids: Any = None, seed: int = 0) -> Tensor:
        """Return x (B, …) where `keep` is true, and the fill elsewhere."""
        check(x, keep, ids)
        return with_fill(x, keep, self.fill.to(x))


@plain_dataclass(frozen=True)
class Hiding:
    """The bound imputer of `Hidden`: removed tokens become the mask token, or leave the attention mask."""

    tokens: Tokens

    @property
    def needs_kept(self) -> bool:
        """Whether a text must keep a token: a network that may attend to no token attends to all of them."""
        return self.tokens.mask_token is None

    def hide(self, batch: Batch, keep: Tensor) -> Batch:
        """Return the texts with only the positions `keep` (B, L)."""
        # The method of the base class, because `keep` has a value per position, also where the features are passages.
        x, aux = Tokens.hide(self.tokens, batch.x, batch.aux, keep)
        return Batch(batch.ids, x, aux, batch.label)


@parameter_class
class ReferenceMean:
    """Removed values become the mean of the study's reference samples at the same position: for the columns of a table.

    The references are a few samples of the data set, the same for every shard and method; they are drawn by seed and
    id. Gaps among them are left out. The study's `background` is the reference instead where there is one: its `mean`
    and its description `of` are then filled in.

    >>> from heatproof.features import Pixels
    >>> fill = ReferenceMean().bound(torch.tensor([[1.0, 5.0], [3.0, 7.0]]), Pixels())
    >>> fill(torch.tensor([[0.0, 0.0]]), torch.tensor([[True, False]])).tolist()
    [[0.0, 6.0]]
    """

    name: ClassVar[str] = "reference_mean"
    # Not shown in the names of conditions, which are the same with any background.
    mean: tuple[float, ...] | None = field(default=None, repr=False)
    of: str = field(default="", repr=False)

    def bound(self, reference: Tensor, features: Any) -> Filling:
        """Return the imputer that fills with the mean of the background, or else with that of `reference` (R, …)."""
        if self.mean is not None:
            return Filling(reference.new_tensor(self.mean))
        if not len(reference):
            raise UserError(
                "reference_mean needs at least one reference sample; use dataset_mean or zero"
            )
        values = reference.double()
        without_gaps = values.masked_fill(~values.isfinite(), torch.nan)
        return Filling(without_gaps.nanmean(0).to(reference.dtype))


@parameter_class
class Hidden:
    """Removed tokens of a text are hidden the way the grouping `tokens` hides them; nothing else can be hidden.

    >>> hiding = Hidden().bound(torch.zeros(0, 2), Tokens(mask_token=3))
    >>> hiding.hide(Batch(("a",), torch.tensor([[7, 8]])), torch.tensor([[True, False]])).x.tolist()
    [[7, 3]]
    """

    name: ClassVar[str] = "hidden"

    def bound(self, reference: Tensor, features: Any) -> Hiding:
        """Return the imputer that hides tokens as these features do."""
        if not isinstance(features, Tokens):
            raise UserError(
                "hidden is for tokens of texts; other data is filled in: use noisy_linear, zero or a mean"
            )
        return Hiding(features)


@parameter_class
class OwnBaseline:
    """Removed values become those that an explainer itself measures against, so that mass and drop mean the same.

    That is the mean of its `background`, its `baseline`, or its `fill` where that is one value; what has none of these,
    such as the product of input and gradient, measures against the study's background, whose `mean` is filled in, or
    against 0. Zero is that of the normalised input: the model's mean colour.

    >>> from heatproof.explainers import IntegratedGradients
    >>> OwnBaseline().of(IntegratedGradients(baseline=1.0), [0.5, 0.4], [0.25])
    DatasetMean(mean=(0.75, 0.65))
    """

    name: ClassVar[str] = "own_baseline"
    mean: tuple[float, ...] | None = field(default=None, repr=False)

    def of(
        self, explainer: Any, mean: Sequence[float] | None, std: Sequence[float] | None
    ) -> DatasetMean:
        """Return the imputer that replaces removed values by the baseline of an explainer, in the data's own units.

        `mean` and `std` are those by which the model normalises: a baseline is often a number of the normalised input.
        """
        explainer = _innermost(explainer)
        for name in ("background", "fill"):
            rows: Any = getattr(explainer, name, None)
            if hasattr(rows, "mean"):
                # One number per column, or per channel of images and series.
                per_column = rows.mean().flatten(1).mean(1) if rows.mean().ndim > 1 else rows.mean()
                return DatasetMean(mean=tuple(round(value, 7) for value in per_column.tolist()))
        value: Any = getattr(explainer, "baseline", getattr(explainer, "fill", None))
        if value is None and self.mean is not None:
            return DatasetMean(mean=self.mean)
        is_number = isinstance(value, int | float)
        fills_features = hasattr(explainer, "fill") and hasattr(explainer, "features")
        if is_number and fills_features:
            # The fill of features is in the data's own units already.
            return DatasetMean(mean=(float(value),))

        normalised = float(value) if is_number else 0.0
        means, stds = list(mean or [0.0]), list(std or [1.0])
        channels = max(len(means), len(stds))
        if len(means) == 1:
            means = means * channels
        if len(stds) == 1:
            stds = stds * channels
        per_channel = [
            round(normalised * channel_std + channel_mean, 7)
            for channel_mean, channel_std in zip(means, stds, strict=True)
        ]
        return DatasetMean(mean=tuple(per_channel))


def _innermost(explainer: Any) -> Any:
    """Return the explainer inside of wrappers, such as SmoothGrad's `of` and the `call` of a wrapped callable."""
    while True:
        inner = getattr(explainer, "of", None) or getattr(explainer, "call", None)
        if inner is None:
            return explainer
        explainer = inner

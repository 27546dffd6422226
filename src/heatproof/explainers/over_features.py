"""Base class of explainers that perturb features, such as superpixels, windows and columns."""

from __future__ import annotations

from typing import Self

from heatproof.features import Grouping, with_default_features
from heatproof.kinds import kind_of
from heatproof.models import Model
from heatproof.types import Batch, Explainer


class OverFeatures(Explainer):
    """An explainer with the field `features`, whose default is for images."""

    whole_features = True

    features: Grouping

    def configured_for(self, model: Model, sample: Batch) -> Self:
        """Return a copy with the features of this kind of data; raise `UserError` where the explainer is undefined.

        >>> import torch
        >>> from heatproof.explainers import Lime
        >>> Lime().configured_for(Model(torch.nn.Linear(4, 2)), Batch(("a",), torch.zeros(1, 4))).features
        Pixels()
        """
        kind = kind_of(model, sample)
        with_features: Self = with_default_features(self, kind, sample.x.shape[1:], sample)
        return Explainer.configured_for(with_features, model, sample)

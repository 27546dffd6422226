"""Imputers: values for removed pixels, time steps, columns and tokens.

`NoisyLinear` is the imputation of ROAD, solved in batch on the device of its input; the others are the usual fills.
`IMPUTERS` holds the parameter object of each by name; every one is called as `imputer(x, keep, ids, seed)`. Those in
`CONTEXTUAL` need more than the sample, and are bound to it first.

>>> sorted(IMPUTERS)
['blur', 'dataset_mean', 'image_mean', 'noise', 'noisy_linear', 'noisy_linear_published', 'value', 'zero']
"""

from __future__ import annotations

from heatproof.removal.contextual import CONTEXTUAL, Hidden, OwnBaseline, ReferenceMean
from heatproof.removal.imputers import (
    IMPUTERS,
    Blur,
    DatasetMean,
    ImageMean,
    NoisyLinear,
    UniformNoise,
    Value,
    Zero,
)

__all__ = ["CONTEXTUAL", "IMPUTERS", "Blur", "DatasetMean", "Hidden", "ImageMean", "NoisyLinear"]
__all__ += ["OwnBaseline", "ReferenceMean", "UniformNoise", "Value", "Zero"]

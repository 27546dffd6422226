"""Imputers: values for removed pixels, time steps, columns and tokens.

`NoisyLinear` is the imputation of ROAD, solved in batch on the device of its input; the others are the usual fills.
`IMPUTERS` holds the parameter object of each by name; every one is called as `imputer(x, keep, ids, seed)`. Those in
`CONTEXTUAL` need more than the sample, and are bound to it first. A class is imported when it is first used.

>>> sorted(IMPUTERS)
['biharmonic', 'blur', 'dataset_mean', 'image_mean', 'noise', 'noisy_linear', 'noisy_linear_published', 'telea', ...]
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from heatproof.lazy import LazyRegistry

if TYPE_CHECKING:
    from heatproof.removal.columns import KNearest, Mice
    from heatproof.removal.contextual import Hidden, OwnBaseline, ReferenceMean
    from heatproof.removal.imputers import (
        Blur,
        DatasetMean,
        ImageMean,
        NoisyLinear,
        PublishedNoisyLinear,
        UniformNoise,
        Value,
        Zero,
    )
    from heatproof.removal.inpainting import Biharmonic, Telea

__all__ = [
    "CONTEXTUAL",
    "IMPUTERS",
    "Biharmonic",
    "Blur",
    "DatasetMean",
    "Hidden",
    "ImageMean",
    "KNearest",
    "Mice",
    "NoisyLinear",
    "OwnBaseline",
    "PublishedNoisyLinear",
    "ReferenceMean",
    "Telea",
    "UniformNoise",
    "Value",
    "Zero",
]

IMPUTERS = LazyRegistry(
    {
        "zero": "heatproof.removal.imputers:Zero",
        "value": "heatproof.removal.imputers:Value",
        "dataset_mean": "heatproof.removal.imputers:DatasetMean",
        "image_mean": "heatproof.removal.imputers:ImageMean",
        "blur": "heatproof.removal.imputers:Blur",
        "noise": "heatproof.removal.imputers:UniformNoise",
        "noisy_linear": "heatproof.removal.imputers:NoisyLinear",
        "noisy_linear_published": "heatproof.removal.imputers:PublishedNoisyLinear",
        "biharmonic": "heatproof.removal.inpainting:Biharmonic",
        "telea": "heatproof.removal.inpainting:Telea",
    }
)
"""Every imputer of a sample by its name in a study file."""
CONTEXTUAL = LazyRegistry(
    {
        "reference_mean": "heatproof.removal.contextual:ReferenceMean",
        "hidden": "heatproof.removal.contextual:Hidden",
        "own_baseline": "heatproof.removal.contextual:OwnBaseline",
        "k_nearest": "heatproof.removal.columns:KNearest",
        "mice": "heatproof.removal.columns:Mice",
    }
)
"""Imputers that an evaluation binds to other samples or to the features, by their names in a study file."""


def __getattr__(name: str) -> Any:
    """Import the class of an imputer."""
    return (IMPUTERS | CONTEXTUAL).by_class_name(__name__, name)

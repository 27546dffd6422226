"""Stability of explanations by concepts or examples: vectors of scores, which have no places that could move."""

from __future__ import annotations

import torch
from torch import Tensor

from heatproof.evaluation import Measure
from heatproof.maps.similarity import cosine
from heatproof.maps.undefined import reasons as undefined_reasons
from heatproof.types import Categorical, Explainer

SIMILARITY = "explanation_similarity"
MEASURE = Measure(
    SIMILARITY,
    "Explanation similarity",
    "cosine of concept or example scores; of categories the share that agrees",
    "higher",
    "headline",
    (-1.0, 1.0),
    noise_floor=f"noise_floor_{SIMILARITY}",
)


def is_categorical(explainer: Explainer) -> bool:
    """Whether an explainer gives categories, such as a concept that is present or not."""
    return isinstance(explainer, Categorical) and bool(explainer.categorical)


def similarity(a: Tensor, b: Tensor, categorical: bool) -> Tensor:
    """Return the cosine of vectors (B, n), of categories the share that agrees; (B,) float64 on the CPU.

    >>> similarity(torch.tensor([[1.0, 0.0]]), torch.tensor([[1.0, 1.0]]), categorical=True).tolist()
    [0.5]
    """
    if categorical:
        return (a == b).double().flatten(1).mean(1).cpu()
    return cosine(a.double(), b.double()).cpu()


def to_references(references: Tensor, explanations: Tensor, categorical: bool) -> Tensor:
    """Return the similarity of each of R references (R, n) to each explanation (B, n), (R, B)."""
    scores = [
        similarity(reference.expand_as(explanations), explanations, categorical)
        for reference in references
    ]
    return torch.stack(scores) if scores else torch.empty(0, len(explanations), dtype=torch.float64)


def undefined(explanations: Tensor, subject: str, categorical: bool) -> list[str]:
    """Return why each explanation (B, n) cannot be compared, empty where it can; categories may all be equal."""
    if not categorical:
        return undefined_reasons(explanations, subject)
    is_finite = torch.isfinite(explanations).flatten(1).all(1).tolist()
    return ["" if finite else f"{subject} is not finite" for finite in is_finite]

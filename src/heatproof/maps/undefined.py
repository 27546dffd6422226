"""Maps that cannot be scored, and why: constant ones, and those that are not finite."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from heatproof.maps.similarity import bounds

NOT_FINITE = "the prediction is not finite"


def reasons(maps: Tensor, what: str) -> list[str]:
    """Why each map cannot be scored, empty where it can."""
    if not len(maps):
        return []
    ends = torch.stack(bounds(maps)).double().T.tolist()
    finite = [math.isfinite(low) and math.isfinite(high) for low, high in ends]
    constant = [low == high for low, high in ends]
    why = zip(finite, constant, strict=True)
    return [
        "" if ok and not flat else f"{what} is {'constant' if ok else 'not finite'}"
        for ok, flat in why
    ]

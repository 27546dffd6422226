"""Maps that cannot be scored, and why: constant ones, and those that are not finite."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from heatproof.maps.similarity import bounds

NOT_FINITE = "the prediction is not finite"


def reasons(maps: Tensor, subject: str) -> list[str]:
    """Return for each map (B, …) a sentence saying why it cannot be scored, such as "the map is constant", or "".

    `subject` is the subject of the sentence.

    >>> reasons(torch.tensor([[1.0, 1.0], [1.0, 2.0], [1.0, torch.inf]]), "the map")
    ['the map is constant', '', 'the map is not finite']
    """
    if not len(maps):
        return []
    low, high = bounds(maps)
    # One copy from the device for both.
    limits = torch.stack([low, high], 1).double().tolist()
    texts = []
    for least, greatest in limits:
        if not math.isfinite(least) or not math.isfinite(greatest):
            texts.append(f"{subject} is not finite")
        elif least == greatest:
            texts.append(f"{subject} is constant")
        else:
            texts.append("")
    return texts

"""Chance levels: what a sample scores against other samples, and what each of these adds to the choice of them."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor


def over_references(scores: Tensor, ids: Sequence[str], references: Sequence[str]) -> tuple[Tensor, Tensor]:
    """The chance level (B,) from scores (R, B) against R references, and how far each reference lies above it, (R,).

    A sample that is a reference itself is not compared with itself; without another one its level is NaN. The second is
    the sum over the samples of a reference's score less the sample's level, so those of several shards add up.

    >>> level, above = over_references(torch.tensor([[0.2, 0.9], [0.4, 0.6]]), ["a", "b"], ["b", "c"])
    >>> level.tolist(), [round(float(x), 3) for x in above]
    ([0.300..., 0.600...], [-0.1, 0.1])
    """
    same = torch.tensor([[own == other for own in ids] for other in references], dtype=torch.bool).view(-1, len(ids))
    others = scores.double().masked_fill(same, torch.nan)
    level = others.nanmean(0)
    return level.to(scores.dtype), (others - level).nansum(1)


def packed(above: Tensor) -> bytes:
    """Sums (R,) in R + 4 bytes: the largest as float32, and each as one of 255 steps up to it.

    >>> unpacked(packed(torch.tensor([0.5, -1.0, 0.25]))).round(2).tolist()
    [0.5, -1.0, 0.25]
    """
    sums = above.double().cpu().numpy()
    largest = np.float32(np.abs(sums).max(initial=0.0))
    steps = np.rint(sums / largest * 127) if largest > 0 else np.zeros_like(sums)
    return bytes(largest.tobytes() + steps.astype(np.int8).tobytes())


def unpacked(stored: bytes) -> np.ndarray[tuple[int], np.dtype[np.float64]]:
    """What `packed` has made of the sums, (R,)."""
    steps = np.frombuffer(stored, dtype=np.int8, offset=4).astype(np.float64)
    return np.asarray(steps * float(np.frombuffer(stored, dtype=np.float32, count=1)[0]) / 127)

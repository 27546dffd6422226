"""The reference samples of a data set, from which chance levels are taken: how many there are, and which ones."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import torch

from heatproof import rand
from heatproof.data import Data
from heatproof.errors import UserError
from heatproof.types import Batch

MIN_REFERENCES, MAX_REFERENCES = 8, 32


def default_reference_count(samples: int) -> int:
    """Return how many of a data set's samples are references: 8 and an eighth of the samples, at most 32.

    Each reference costs one more comparison of maps per scored pair, and which ones are chosen is part of the error of
    a calibrated score.

    >>> [default_reference_count(n) for n in (5, 14, 64, 100, 192, 5000)]
    [5, 9, 16, 20, 32, 32]
    """
    return min(samples, MIN_REFERENCES + samples // 8, MAX_REFERENCES)


def reference_positions(data: Data, seed: int) -> list[int]:
    """Return all positions in the order in which they are tried: by a hash of the id, whatever the order of the data."""
    order: list[int] = rand.keys(seed, data.ids, "references").argsort().tolist()
    return order


def load_references(
    data: Data,
    seed: int,
    count: int | None = None,
    ids: Sequence[str] | None = None,
    with_labels: bool = False,
) -> Batch:
    """Load the first `count` samples in that order that can be decoded, or those with these `ids`.

    One of `ids` that cannot be read is an error. So is a sample that the storage failed to deliver: another one in its
    place would change the chance level of every sample. With `with_labels` they bring their labels, if all have some.
    """
    if ids is None:
        order = reference_positions(data, seed)
        count = default_reference_count(len(data.ids)) if count is None else count
    else:
        order = [data.ids.index(sample) for sample in ids]
        count = len(ids)

    batches: list[Batch] = []
    missing = count
    for start in range(0, len(order), count):
        loaded = data.load(order[start : start + count])
        for sample, error in loaded.errors.items():
            if ids is not None or sample in loaded.transient:
                raise UserError(
                    f"{sample!r} of {data.name}, from which chance is taken, cannot be read: {error}"
                )
        if len(loaded.batch):
            batches.append(loaded.batch[:missing])
            missing -= len(batches[-1])
        if not missing:
            break
    if not batches:
        error = next(iter(data.load([0]).errors.values()), "unknown")
        raise UserError(f"no sample of {data.name} could be read; the first error is {error}")
    joined = Batch.joined(batches)
    labels = [batch.label for batch in batches if batch.label is not None]
    if not with_labels or len(labels) < len(batches):
        return joined
    return replace(joined, label=torch.cat(labels))

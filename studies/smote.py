"""SMOTE (Chawla et al. 2002): more samples of rare classes, between neighbours of the same class.

The paper on explanation invariance augments the abnormal heartbeats of MIT-BIH so. Samples between beats are no beats, so
only training sets are augmented.
"""

from __future__ import annotations

import torch
from torch import Tensor

from heatproof import rand
from heatproof.errors import UserError
from heatproof.types import Batch

NEIGHBOURS = 5


def balanced(
    train: Batch, per_class: int | None = None, k: int = NEIGHBOURS, seed: int = 0
) -> Batch:
    """Return the samples, and as many new ones of each class as `per_class` lacks; by default that of the largest class.

    A new sample is x + u (n − x), with a random sample x of the class, a random one n of its k nearest neighbours in the
    class (by Euclidean distance), and u uniform on [0, 1]. Its id says from which two it was made.
    """
    if train.label is None:
        raise UserError("SMOTE needs labels, and the batch has none")
    if train.aux:
        raise UserError(f"SMOTE is for samples without further tensors, got {', '.join(train.aux)}")
    classes, counts = train.label.unique(return_counts=True)
    size = int(counts.max()) if per_class is None else per_class
    ids, x, label = list(train.ids), [train.x], [train.label]
    for number, count in zip(classes.tolist(), counts.tolist(), strict=True):
        missing = size - count
        if missing <= 0:
            continue
        if count < 2:
            raise UserError(
                f"class {number} has a single sample, which has no neighbour in its class"
            )
        rows = (train.label == number).nonzero().flatten()
        members = train[rows]
        first, second, share = _pairs(members, missing, min(k, count - 1), seed)
        step = members.x[second] - members.x[first]
        x.append(members.x[first] + share.reshape(-1, *[1] * (step.ndim - 1)) * step)
        label.append(torch.full((missing,), number, dtype=train.label.dtype))
        names = zip(first.tolist(), second.tolist(), strict=True)
        ids += [f"{members.ids[a]}~{members.ids[b]}~{i}" for i, (a, b) in enumerate(names)]
    return Batch(tuple(ids), torch.cat(x), label=torch.cat(label))


def _pairs(members: Batch, n: int, k: int, seed: int) -> tuple[Tensor, Tensor, Tensor]:
    """Return for each of n new samples the number of a member, that of one of its k nearest, and how far to go."""
    flat = members.x.flatten(1)
    distance = torch.cdist(flat, flat).fill_diagonal_(torch.inf)
    nearest = distance.topk(k, largest=False).indices
    key = rand.keys(seed, [f"{members.ids[0]}~{i}" for i in range(n)], "smote")
    first = rand.integers(key, (1,), len(members))[:, 0]
    which = rand.integers(rand.fold(key, 1), (1,), k)[:, 0]
    share = rand.uniform(rand.fold(key, 2), (1,))[:, 0]
    return first, nearest[first, which], share

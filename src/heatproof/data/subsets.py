"""Random subsets of a data set, chosen by a hash of the ids: every process and every order of files gives the same."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Annotated, Any

from pydantic import Field

from heatproof import rand
from heatproof.data.dataset import Data
from heatproof.errors import UserError, make
from heatproof.types import parameter_class

PURPOSE = "subset"
Count = Annotated[int, Field(ge=1, strict=True)]


def order_by_hash(ids: Sequence[str], seed: int = 0, purpose: str = PURPOSE) -> list[int]:
    """Return the positions of the ids in a random order that only the seed, the ids and the purpose decide.

    The ids come in the same order whatever the order in which they are given, and one id does not move the others
    past each other. So the first n are a simple random sample, and that of a smaller n is part of it.

    >>> ids = ["ant", "bee", "cat", "dog"]
    >>> order = order_by_hash(ids)
    >>> backwards = order_by_hash(ids[::-1])
    >>> [ids[i] for i in order] == [ids[::-1][i] for i in backwards]
    True
    """
    keys = rand.keys(seed, ids, purpose).tolist()
    return sorted(range(len(ids)), key=lambda i: (keys[i], ids[i]))


@parameter_class
class Subset:
    """A random part of a data set: at most `n` samples, at most `per_class` of each label, chosen by the `seed`.

    With both, `per_class` is applied first. Samples without a label belong to no class, and `per_class` leaves them out.
    """

    n: Count | None = None
    per_class: Count | None = None
    seed: Annotated[int, Field(ge=0, strict=True)] = 0

    def positions(self, data: Data, limit: int | None = None) -> list[int]:
        """Return the positions of the chosen samples, in the order of the data; of at most `limit` of them.

        With a limit the sample is smaller and a part of the whole one, so that a trial run is a random part as well.

        >>> from heatproof.data import open_data
        >>> import torch
        >>> data = open_data((torch.rand(6, 2), torch.tensor([0, 0, 0, 1, 1, 1])))
        >>> [int(data.labels[i]) for i in Subset(per_class=2).positions(data)]
        [0, 0, 1, 1]
        """
        order = order_by_hash(data.ids, self.seed)
        if self.per_class is not None:
            order = _at_most_per_class(order, _labels_of(data), self.per_class)
        sizes = [size for size in (self.n, limit) if size is not None]
        chosen = order[: min(sizes)] if sizes else order
        return sorted(chosen)


def as_subset(sample: int | Mapping[str, Any] | Subset) -> Subset:
    """Return a subset from a number of samples, a mapping of `n`, `per_class` and `seed`, or itself.

    >>> as_subset(200), as_subset({"per_class": 2})
    (Subset(n=200, per_class=None, seed=0), Subset(n=None, per_class=2, seed=0))
    >>> as_subset({"perclass": 2})
    Traceback (most recent call last):
    heatproof.errors.BadParameter: sample has no parameter 'perclass'; did you mean 'per_class'? ...
    """
    if isinstance(sample, Subset):
        return sample
    if isinstance(sample, int) and not isinstance(sample, bool):
        sample = {"n": sample}
    if not isinstance(sample, Mapping):
        raise UserError(
            f"sample is a number of samples or a mapping such as {{n: 200, per_class: 2, seed: 0}}, got {sample!r}"
        )
    subset: Subset = make(Subset, "sample", sample)
    if subset.n is None and subset.per_class is None:
        raise UserError("sample needs n or per_class, such as {n: 200} or {per_class: 2}")
    return subset


def _labels_of(data: Data) -> Sequence[int]:
    """Return the labels, which have to be known before anything is read."""
    if data.labels is None:
        raise UserError(
            f"sample.per_class needs labels that are known before samples are read, and {data.name!r} has none; "
            "give labels=, or n alone"
        )
    return data.labels


def _at_most_per_class(order: Sequence[int], labels: Sequence[int], per_class: int) -> list[int]:
    """Return the positions in their order, of each label the first `per_class`; −1 is no label."""
    count: dict[int, int] = defaultdict(int)
    chosen = []
    for position in order:
        label = labels[position]
        if label >= 0 and count[label] < per_class:
            count[label] += 1
            chosen.append(position)
    if not chosen:
        raise UserError("sample.per_class finds no sample with a label")
    return chosen

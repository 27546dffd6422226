"""What evaluations see: a shard of samples of one model, and the reference samples that all shards share."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import torch
from torch import Tensor

from heatproof import rand
from heatproof.data import Data
from heatproof.errors import UserError
from heatproof.explainers.precision import Agreed, settled
from heatproof.models import Model
from heatproof.models.batches import Workbench
from heatproof.models.guards import refuse_probabilities
from heatproof.types import Batch, Explainer

FEWEST_REFERENCES, MOST_REFERENCES = 8, 32


def usual_references(samples: int) -> int:
    """How many of a data set's samples serve as the other halves of mismatched pairs, unless a study says so itself.

    Each costs one more comparison of maps per scored pair, and its choice is part of the error of a calibrated score:
    an eighth of the samples on top of 8, and at most 32.

    >>> [usual_references(n) for n in (5, 14, 64, 100, 192, 5000)]
    [5, 9, 16, 20, 32, 32]
    """
    return min(samples, FEWEST_REFERENCES + samples // 8, MOST_REFERENCES)


@dataclass
class References:
    """A few samples of the data set, the same for every shard, with their maps per explainer."""

    bench: Workbench
    batch: Batch
    seed: int
    load: Callable[[int], Batch]
    target: Tensor = field(init=False)
    maps: dict[str, Tensor] = field(default_factory=dict)
    made: dict[Hashable, Any] = field(default_factory=dict)
    agreed: dict[str, dict[str, tuple[float, float]]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Fix what the task fixes, and let the bench's model have what its task takes from references."""
        self.batch = self.bench.fixed(self.batch)
        table = self.bench.predict(self.batch)
        refuse_probabilities(table, self.bench.model.name, self.bench.model.task)
        self.bench.model = self.bench.model.finished(table)
        self.target = self.bench.model.task.target(table)

    def explain(self, name: str, explainer: Explainer) -> Tensor:
        """The maps (R, …) of one explainer, computed once."""
        if name not in self.maps:
            explainer = self.settle(name, explainer, self.batch, self.target)
            self.maps[name] = self.bench.explain(
                explainer, name, self.batch, self.target, self.seed
            )
        return self.maps[name]

    def settle(self, name: str, explainer: Any, batch: Batch, target: Tensor) -> Any:
        """The explainer, or where it was asked for a precision, with what these samples as they are need for it."""
        if getattr(explainer, "error", None) is None:
            return explainer
        known = self.agreed.setdefault(name, {})
        new = [i for i, sample in enumerate(batch.ids) if sample not in known]
        if new:
            call = partial(settled, explainer, self.bench.model, seed=self.seed)
            found = self.bench.map(call, batch[new], target[new]).tolist()
            known |= {
                batch.ids[i]: (count, error) for i, (count, error) in zip(new, found, strict=True)
            }
        return replace(explainer, error=Agreed(explainer.error, known))


def reference_positions(data: Data, seed: int) -> list[int]:
    """Positions in the order in which they are tried as references: by a hash of the id, so order does not matter."""
    order: list[int] = rand.keys(seed, data.ids, "references").argsort().tolist()
    return order


def load_references(
    data: Data, seed: int, count: int | None = None, ids: Sequence[str] | None = None
) -> Batch:
    """The first samples in that order that can be decoded, or the ones that a manifest names.

    There are as many as are usual where no number is given. One that is named and cannot be read is an error, and so is
    one that only the storage keeps from being read: another in its place would change the chance level of every sample.
    """
    order = (
        reference_positions(data, seed) if ids is None else [data.ids.index(name) for name in ids]
    )
    count = usual_references(len(data.ids)) if count is None else count
    batches: list[Batch] = []
    missing = count if ids is None else len(ids)
    for start in range(0, len(order), count):
        loaded = data.load(order[start : start + count])
        for name, why in loaded.errors.items():
            if ids is not None or name in loaded.transient:
                raise UserError(
                    f"{name!r} of {data.name}, from which chance is taken, cannot be read: {why}"
                )
        if len(loaded.batch):
            batches.append(loaded.batch[:missing])
            missing -= len(batches[-1])
        if not missing:
            break
    if not batches:
        why = next(iter(data.load([0]).errors.values()), "unknown")
        raise UserError(f"no sample of {data.name} could be read; the first error is {why}")
    return Batch.joined(batches)


@dataclass
class Shard:
    """The `Subject` that evaluations see: one shard of samples of one model."""

    bench: Workbench
    batch: Batch
    seed: int
    target: Tensor
    readout: Tensor
    probability: Tensor
    all_explainers: Mapping[str, Explainer]
    shared: References
    showcase: frozenset[str]
    explainers: Mapping[str, Explainer] = field(default_factory=dict)
    logits: Tensor | None = None
    announce: Callable[[str], None] = lambda explainer: None
    _clean: dict[str, Tensor] = field(default_factory=dict)
    _redrawn: dict[tuple[str, int], Tensor] = field(default_factory=dict)

    @property
    def model(self) -> Model:
        """The model under test."""
        return self.bench.model

    @property
    def references(self) -> Batch:
        """Samples that are the same for every shard."""
        return self.shared.batch

    def predict(self, batch: Batch) -> Tensor:
        """The task's table (B, K); that of the shard as it is exists already."""
        if batch is self.batch and self.logits is not None:
            return self.logits
        return self.bench.predict(batch)

    def clean(self, explainer: str) -> Tensor:
        """Maps (B, …) of the shard as it is, computed once."""
        if explainer not in self._clean:
            self._clean[explainer] = self._explain_unless_known(explainer)
        return self._clean[explainer]

    def _explain_unless_known(self, explainer: str) -> Tensor:
        """Maps of the shard's samples; those of samples that are references too exist already."""
        known = dict(zip(self.references.ids, self.reference(explainer), strict=True))
        new = [i for i, sample in enumerate(self.batch.ids) if sample not in known]
        if new:
            maps = self.explain(explainer, self.batch[new], self.target[new])
            known |= {self.batch.ids[i]: maps[j] for j, i in enumerate(new)}
        return torch.stack([known[sample] for sample in self.batch.ids])

    def explain(
        self, explainer: str, batch: Batch, target: Tensor, seed: int | None = None
    ) -> Tensor:
        """Maps (B, …) of samples for the classes `target` (B,), with the run's seed unless another is given."""
        chosen = self.seed if seed is None else seed
        # Noise floors explain the samples as they are with other draws, on every axis with the same.
        is_redraw = batch is self.batch and target is self.target and chosen != self.seed
        if is_redraw and (explainer, chosen) in self._redrawn:
            return self._redrawn[explainer, chosen]
        self.announce(explainer)
        maps = self.bench.explain(self.settled(explainer), explainer, batch, target, chosen)
        if is_redraw:
            self._redrawn[explainer, chosen] = maps
        return maps

    def settled(self, explainer: str) -> Explainer:
        """The explainer, with the counts that the shard's samples and the references need for its precision."""
        item = self.all_explainers[explainer]
        self.shared.settle(explainer, item, self.references, self.shared.target)
        settled_item: Explainer = self.shared.settle(explainer, item, self.batch, self.target)
        return settled_item

    def compute(
        self, call: Callable[[Batch, Tensor], Tensor], batch: Batch, extra: Tensor
    ) -> Tensor:
        """`call(batch, extra)` in batches that fit into memory."""
        return self.bench.map(call, batch, extra)

    def drawn(self, count: int) -> Batch:
        """So many samples of the data set, or all that it has, the same for every shard."""
        batch: Batch = self.once(
            ("drawn", count), lambda: self.bench.fixed(self.shared.load(count))
        )
        return batch

    def once(self, key: Hashable, make: Callable[[], Any]) -> Any:
        """What `make` gives, made by the first shard that asks for the key."""
        if key not in self.shared.made:
            self.shared.made[key] = make()
        return self.shared.made[key]

    def reference(self, explainer: str) -> Tensor:
        """The maps (R, …) of the references."""
        self.announce(explainer)
        return self.shared.explain(explainer, self.all_explainers[explainer])

"""What an evaluation sees: samples of one model, their predictions, and the maps of every explainer."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, TypeVar

import torch
from torch import Tensor

from heatproof.batching import BatchRunner
from heatproof.evaluation import Condition, GalleryImage
from heatproof.models import Model
from heatproof.models.absent import target_of
from heatproof.models.guards import (
    refuse_probabilities,
    refuse_random_outputs,
    refuse_wrong_class_count,
)
from heatproof.models.tasks import at
from heatproof.types import Batch, Explainer

MAX_POOLED_VALUES = 2**27
"""How many values of maps `explain_many` computes in one go: bounds the memory of a shard with many conditions."""

Made = TypeVar("Made")


@dataclass(eq=False)
class Subject:
    """Some samples of one model, as evaluations see them.

    `target` (B,) is the explained output of each sample, for a classifier its predicted class. `references` are a few
    samples of the data set, the same for every shard: chance levels are taken from them. They are a Subject too, whose
    references are itself. `gallery_ids` are the samples whose images and maps are stored for the report. All calls run
    in batches, on the model's device, and again in smaller batches if memory runs out.
    """

    runner: BatchRunner
    batch: Batch
    explainers: Mapping[str, Explainer]
    seed: int
    target: Tensor
    gallery_ids: frozenset[str] = frozenset()
    load_samples: Callable[[int], Batch] | None = None
    _logits: Tensor | None = None
    _references: Subject | None = None
    _shared: dict[Hashable, Any] = field(default_factory=dict)
    _maps: dict[str, Tensor] = field(default_factory=dict)
    _redrawn_maps: dict[str, Tensor] = field(default_factory=dict)

    @classmethod
    def of_references(
        cls,
        runner: BatchRunner,
        batch: Batch,
        explainers: Mapping[str, Explainer],
        seed: int,
        load_samples: Callable[[int], Batch] | None = None,
    ) -> Subject:
        """Return the reference samples of a data set with their predictions, after checks of the model on them.

        A model is refused if it returns probabilities, the wrong number of classes, or other outputs in a second pass.
        Settings that a task takes from the reference samples, such as a tolerance, are filled in in the runner's model.
        `load_samples` loads a number of samples of the data set.
        """
        batch = runner.prepare(batch)
        logits = runner.predict(batch)
        refuse_probabilities(logits, runner.model.name, runner.model.task)
        refuse_wrong_class_count(logits, runner.model)
        passes = runner.model.passes
        first, second = runner.predict(batch[:2]), runner.predict(batch[:2])
        runner.model.passes = passes  # a check, and no work of the study
        refuse_random_outputs(first, second, runner.model.name)
        runner.model = runner.model.finished(logits)
        target = target_of(runner.model, batch, logits)
        return cls(
            runner, batch, explainers, seed, target, load_samples=load_samples, _logits=logits
        )

    def for_batch(self, batch: Batch, gallery_ids: frozenset[str] = frozenset()) -> Subject:
        """Return other samples of the same model and data set, with this subject as their references."""
        batch = self.runner.prepare(batch.to(self.model.device))
        logits = self.runner.predict(batch)
        return replace(
            self,
            batch=batch,
            target=target_of(self.model, batch, logits),
            gallery_ids=gallery_ids,
            _logits=logits,
            _references=self,
            _maps={},
            _redrawn_maps={},
        )

    def with_explainers(self, names: Sequence[str]) -> Subject:
        """Return the same samples with some of the explainers; maps that exist are shared."""
        return replace(self, explainers={name: self.explainers[name] for name in names})

    # ---- samples and predictions ---------------------------------------------------------------

    @property
    def model(self) -> Model:
        """The model under test."""
        return self.runner.model

    @property
    def references(self) -> Subject:
        """The reference samples, the same for every shard of the study."""
        return self if self._references is None else self._references

    @property
    def logits(self) -> Tensor:
        """What the task reads off the model's outputs, (B, K) on the CPU: logits of classes, or numbers."""
        if self._logits is None:
            self._logits = self.runner.predict(self.batch)
        return self._logits

    @cached_property
    def readout(self) -> Tensor:
        """The number of the explained output, (B,)."""
        return at(self.logits, self.target)

    @cached_property
    def probability(self) -> Tensor:
        """The probability of the explained class, (B,); NaN where the task has no probabilities."""
        probabilities = self.model.task.probability(self.logits)
        if probabilities is None:
            return torch.full_like(self.readout, torch.nan)
        return at(probabilities, self.target)

    def predict(self, batch: Batch) -> Tensor:
        """Return the outputs (B, K) of inputs on the CPU; own samples and references are predicted once."""
        if batch is self.batch:
            return self.logits
        if batch is self.references.batch:
            return self.references.logits
        return self.runner.predict(batch)

    def draw_samples(self, count: int) -> Batch:
        """Return so many samples of the data set, or all that it has; the same ones for every shard."""

        def load() -> Batch:
            assert self.load_samples is not None  # whoever has a model has data
            return self.runner.prepare(self.load_samples(count))

        return self.compute_once(("samples", count), load)

    # ---- maps ------------------------------------------------------------------------------------

    def maps(self, explainer: str) -> Tensor:
        """Return the maps (B, …) of the samples for their targets, computed once."""
        if explainer not in self._maps:
            self._maps[explainer] = self._explain_own_samples(explainer)
        return self._maps[explainer]

    def _explain_own_samples(self, explainer: str) -> Tensor:
        """Return an explainer's maps of the samples; maps of samples that are references too are taken from there."""
        if self._references is None:
            return self.explain(explainer, self.batch, self.target)
        reference_maps = self.references.maps(explainer)
        map_of = dict(zip(self.references.batch.ids, reference_maps, strict=True))
        new_rows = [row for row, sample in enumerate(self.batch.ids) if sample not in map_of]
        if new_rows:
            new_maps = self.explain(explainer, self.batch[new_rows], self.target[new_rows])
            for row, new_map in zip(new_rows, new_maps, strict=True):
                map_of[self.batch.ids[row]] = new_map
        return torch.stack([map_of[sample] for sample in self.batch.ids])

    def redrawn_maps(self, explainer: str) -> Tensor:
        """Return maps of the same samples with other random draws, computed once for the noise floors of all axes."""
        if explainer not in self._redrawn_maps:
            redrawn = self.explain(explainer, self.batch, self.target, self.seed + 1)
            self._redrawn_maps[explainer] = redrawn
        return self._redrawn_maps[explainer]

    def explain(
        self, explainer: str, batch: Batch, target: Tensor, seed: int | None = None
    ) -> Tensor:
        """Return the maps (B, …) of other inputs or targets, with the seed of the run unless another is given."""
        chosen_seed = self.seed if seed is None else seed
        return self.runner.explain(
            self.explainers[explainer], explainer, batch, target, chosen_seed
        )

    def explain_many(
        self, explainer: str, batches: Sequence[Batch], targets: Sequence[Tensor]
    ) -> Iterator[Tensor]:
        """Yield an explainer's maps of each batch, for the classes in `targets`.

        Batches are explained together, as far as memory allows, because a GPU is slow on few inputs.
        """
        values_per_batch = max(1, self.maps(explainer).numel())
        group_size = max(1, MAX_POOLED_VALUES // values_per_batch)
        for start in range(0, len(batches), group_size):
            group = slice(start, start + group_size)
            sizes = [len(batch) for batch in batches[group]]
            maps = self.maps(explainer)[:0]
            if sum(sizes):
                joined = Batch.joined([batch for batch in batches[group] if len(batch)])
                maps = self.explain(explainer, joined, torch.cat(list(targets[group])))
            yield from torch.split(maps, sizes)

    def explain_one_sample(self) -> None:
        """Explain one sample by every explainer that hooks into layers, so that a missing layer is an error at once.

        The maps are thrown away, and the passes are not counted.
        """
        counts = self.model.passes, self.model.gradient_passes
        for name, explainer in self.explainers.items():
            if len(self.batch) and explainer.hooks_into_network:
                self.explain(name, self.batch[:1], self.target[:1])
        self.model.passes, self.model.gradient_passes = counts

    # ---- other work ------------------------------------------------------------------------------

    def compute(
        self, function: Callable[[Batch, Tensor], Tensor], batch: Batch, extra: Tensor
    ) -> Tensor:
        """Return `function(batch, extra)`, computed in batches that fit into memory."""
        return self.runner.map(function, batch, extra)

    def compute_once(self, key: Hashable, make: Callable[[], Made]) -> Made:
        """Return what `make` returned for the first shard that asked for this key; all shards share it."""
        if key not in self._shared:
            self._shared[key] = make()
        made: Made = self._shared[key]
        return made

    # ---- the report's gallery --------------------------------------------------------------------

    @property
    def gallery_rows(self) -> list[int]:
        """The positions of the samples that are stored for the report."""
        return [row for row, sample in enumerate(self.batch.ids) if sample in self.gallery_ids]

    def gallery(
        self,
        explainer: str,
        condition: Condition,
        batch: Batch,
        maps: Tensor,
        rows: Tensor | None = None,
    ) -> Iterator[GalleryImage]:
        """Yield the images and maps stored for the report; `rows` are the samples that `maps` belong to."""
        positions = range(len(batch)) if rows is None else rows.tolist()
        map_of_row = dict(zip(positions, maps, strict=True))
        for row in self.gallery_rows:
            yield GalleryImage.of(explainer, condition, batch, row, map_of_row.get(row))

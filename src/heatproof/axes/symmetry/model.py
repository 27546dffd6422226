"""Whether the model itself keeps a symmetry: its outputs on moved inputs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn.functional import normalize

from heatproof.axes.symmetry.orbit import Estimate, Orbit, Piece, estimated
from heatproof.evaluation import Chance
from heatproof.maps.chance import itself
from heatproof.maps.similarity import cosine
from heatproof.models.tasks import Task
from heatproof.types import Batch


class ModelInvariance(NamedTuple):
    """How similar a model's outputs are on moved inputs.

    `cosine` is that of the probabilities, `agreement` whether the top class is the same. Tasks without classes have no
    cosine, and their outputs agree if the prediction counts as unchanged.

    `change` is that of the explained output, |f_c(g·x) − f_c(x)|, in units of what it differs by between unrelated
    samples: 0 is invariant, 1 as different as another sample. NaN where there are no other samples.
    """

    cosine: Estimate | None
    agreement: Estimate
    change: Estimate


def model_scores(
    orbit: Orbit,
    predict: Callable[[Batch], Tensor],
    delta: float,
    target: Tensor | None = None,
    others: Batch | None = None,
    task: Task | None = None,
) -> ModelInvariance:
    """Return the scores of a model whose logits `predict` returns; see `model_invariance`.

    `target` (B,) are the classes that are explained, by default the predicted ones. `others` are unrelated samples, by
    default those of the batch: they give the unit of the change, and the chance level of the rest. `task` is that
    of the model.
    """
    clean = predict(orbit.batch)
    other_outputs = clean if others is None else predict(others)
    other_ids = (orbit.batch if others is None else others).ids
    if target is None:
        has_classes = task is None or task.exclusive
        target = clean.argmax(1) if task is None or has_classes else task.target(clean)
    comparison = _OutputComparison(
        orbit, clean, target.to(clean.device), other_outputs, other_ids, task
    )
    comparison.add(orbit.start(), clean[orbit.exhaustive])
    for piece in orbit.pieces():
        comparison.add(piece, predict(piece.batch))
    return comparison.result(delta)


class _OutputComparison:
    """The outputs of moved inputs compared with those of unmoved ones, gathered piece by piece.

    Each table is (B, n), a number for every sample and element; see `ModelInvariance` for what they hold. `clean` (B, K)
    and `other_outputs` (R, K) are the outputs on the unmoved samples and on unrelated ones.
    """

    def __init__(
        self,
        orbit: Orbit,
        clean: Tensor,
        target: Tensor,
        other_outputs: Tensor,
        other_ids: Sequence[str],
        task: Task | None,
    ) -> None:
        self.orbit, self.task = orbit, task
        self.clean, self.other_outputs = clean, other_outputs
        self.target = target[:, None]
        self.is_other = ~itself(orbit.batch.ids, other_ids).T
        self.unit = _distance_of_unrelated(clean, other_outputs, self.target, self.is_other)
        self.cosine, self.agreement, self.change = (orbit.empty_table() for _ in range(3))
        self.cosine_chance, self.agreement_chance = (orbit.empty_table() for _ in range(2))

    @property
    def has_classes(self) -> bool:
        """Whether the outputs are logits of classes."""
        return self.task is None or self.task.exclusive

    def add(self, piece: Piece, moved: Tensor) -> None:
        """Compare the outputs (R, K) of some moved samples with those of the same samples unmoved."""
        rows = (piece.sample, piece.element)
        before, target = self.clean[piece.sample], self.target[piece.sample]
        gap = (moved - before).double().gather(1, target)[:, 0].abs()
        self.change[rows] = gap / self.unit[piece.sample]
        if self.task is not None and not self.has_classes:
            same = self.task.same(before, moved, target[:, 0]).double()
            self.agreement[rows] = torch.where(gap.isfinite(), same, torch.nan)
            return
        probabilities = moved.double().softmax(1)
        similarity = cosine(probabilities, before.double().softmax(1))
        top = moved.argmax(1)
        same = (top == before.argmax(1)).double()
        self.cosine[rows] = similarity
        self.agreement[rows] = torch.where(similarity.isfinite(), same, torch.nan)
        self._add_chance(piece, probabilities, top)

    def _add_chance(self, piece: Piece, probabilities: Tensor, top: Tensor) -> None:
        """Compare probabilities (R, K) and top classes (R,) of moved samples with those of every unrelated sample."""
        rows = (piece.sample, piece.element)
        other_probabilities = self.other_outputs.double().softmax(1)
        cosines = normalize(probabilities) @ normalize(other_probabilities).T
        agrees = (top[:, None] == self.other_outputs.argmax(1)).double()
        # A reference may be the sample itself, which is no chance.
        is_itself = ~self.is_other[piece.sample]
        self.cosine_chance[rows] = cosines.masked_fill(is_itself, torch.nan).nanmean(1)
        self.agreement_chance[rows] = agrees.masked_fill(is_itself, torch.nan).nanmean(1)

    def result(self, delta: float) -> ModelInvariance:
        """Return the means over the elements, with bounds that miss with probability at most `delta`."""
        orbit = self.orbit
        is_undefined = (self.agreement.isnan() & orbit.used).any(1).tolist()
        not_finite = ["the prediction is not finite" if missing else "" for missing in is_undefined]
        reason = orbit.reasons(not_finite)
        agreement = estimated(orbit, self.agreement, reason, 0.0, delta)
        change = estimated(orbit, self.change, reason, 0.0, delta, perfect=0.0)
        if not orbit.exact:
            # The change has no upper end, and so no bound.
            unbounded = torch.full_like(change.value, torch.nan)
            change = replace(change, low=unbounded, high=unbounded)
        if not self.has_classes:
            return ModelInvariance(None, agreement, change)
        # At the identity every output agrees with itself, as explanations do.
        self.cosine_chance[orbit.exhaustive, 0] = 1.0
        self.agreement_chance[orbit.exhaustive, 0] = 1.0
        of_probabilities = estimated(orbit, self.cosine, reason, 0.0, delta)
        return ModelInvariance(
            replace(of_probabilities, chance=Chance(orbit.mean(self.cosine_chance))),
            replace(agreement, chance=Chance(orbit.mean(self.agreement_chance))),
            change,
        )


def _distance_of_unrelated(
    clean: Tensor, other_outputs: Tensor, target: Tensor, is_other: Tensor
) -> Tensor:
    """Return how far the explained output (B,) of each sample is from that of other samples, NaN where it is not."""
    distance = (other_outputs.T[target[:, 0]] - clean.gather(1, target)).double().abs()
    mean = distance.masked_fill(~is_other, torch.nan).nanmean(1)
    return torch.where(mean > 0, mean, torch.nan)

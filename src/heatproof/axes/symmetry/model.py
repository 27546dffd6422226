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
    """Return how similar a model's outputs stay when its inputs are moved by the elements of a group.

    `orbit` has the samples and the group, and `predict` returns the logits (B, K) of a batch. `target` (B,) are the classes
    that are explained, by default the predicted ones. `others` are unrelated samples, by default those of the batch:
    they give the unit in which changes are measured, and the chance level of the similarities. `task` is the model's,
    by default classification; see `model_invariance`.
    """
    clean = predict(orbit.batch)
    if others is None:
        other_outputs, other_ids = clean, orbit.batch.ids
    else:
        other_outputs, other_ids = predict(others), others.ids
    if target is None:
        if task is None or task.exclusive:
            target = clean.argmax(1)
        else:
            target = task.target(clean)
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
        """Compare a model's outputs (R, K) on some moved samples with those on the same samples unmoved.

        Row i of `piece` is the sample numbered `piece.sample[i]`, moved by the group element numbered `piece.element[i]`;
        its scores are entered there into tables (samples, elements).
        """
        rows = (piece.sample, piece.element)
        before, target = self.clean[piece.sample], self.target[piece.sample]
        # The change of the explained output, in units of its difference between unrelated samples.
        change = (moved - before).double().gather(1, target)[:, 0].abs()
        self.change[rows] = change / self.unit[piece.sample]
        if self.task is not None and not self.has_classes:
            same = self.task.same(before, moved, target[:, 0]).double()
            self.agreement[rows] = torch.where(change.isfinite(), same, torch.nan)
            return
        probabilities = moved.double().softmax(1)
        similarity = cosine(probabilities, before.double().softmax(1))
        top_class = moved.argmax(1)
        same_class = (top_class == before.argmax(1)).double()
        self.cosine[rows] = similarity
        self.agreement[rows] = torch.where(similarity.isfinite(), same_class, torch.nan)
        self._add_chance(piece, probabilities, top_class)

    def _add_chance(self, piece: Piece, probabilities: Tensor, top: Tensor) -> None:
        """Enter the chance level of some moved samples: how similar their outputs are to those of unrelated samples.

        `probabilities` (R, K) and the classes `top` (R,) are predicted on the moved samples. The level is the mean over
        all unrelated samples, of the cosine of probabilities and of whether the class is the same.
        """
        rows = (piece.sample, piece.element)
        other_probabilities = self.other_outputs.double().softmax(1)
        cosines = normalize(probabilities) @ normalize(other_probabilities).T  # (R, others)
        same_class = (top[:, None] == self.other_outputs.argmax(1)).double()
        # The other samples may include the sample itself, which is not unrelated.
        is_itself = ~self.is_other[piece.sample]
        self.cosine_chance[rows] = cosines.masked_fill(is_itself, torch.nan).nanmean(1)
        self.agreement_chance[rows] = same_class.masked_fill(is_itself, torch.nan).nanmean(1)

    def result(self, delta: float) -> ModelInvariance:
        """Return how well a model keeps a symmetry: the mean similarity of its outputs on moved and unmoved inputs.

        The tables (samples, elements) of this object hold, for every sample and element of the group, the cosine of the
        probabilities, whether the predicted class agrees, the change of the explained output, and chance levels. The
        means are over the elements. If only some elements were drawn, bounds miss with probability at most `delta`.
        """
        orbit = self.orbit
        is_undefined = (self.agreement.isnan() & orbit.used).any(1)
        why_undefined = []
        for undefined in is_undefined.tolist():
            why_undefined.append("the prediction is not finite" if undefined else "")
        reason = orbit.reasons(why_undefined)
        agreement = estimated(orbit, self.agreement, reason, 0.0, delta)
        change = estimated(orbit, self.change, reason, 0.0, delta, perfect=0.0)
        if not orbit.exact:
            # The bounds are for scores with a largest value, and a change has none.
            no_bound = torch.full_like(change.value, torch.nan)
            change = replace(change, low=no_bound, high=no_bound)
        if not self.has_classes:
            return ModelInvariance(None, agreement, change)

        # Samples for which all elements are used have the identity as their element 0. There the score of every model
        # is 1, by definition, so chance is 1 as well.
        self.cosine_chance[orbit.exhaustive, 0] = 1.0
        self.agreement_chance[orbit.exhaustive, 0] = 1.0
        chance_of_cosine = Chance(orbit.mean(self.cosine_chance))
        chance_of_agreement = Chance(orbit.mean(self.agreement_chance))
        cosine_score = estimated(orbit, self.cosine, reason, 0.0, delta)
        return ModelInvariance(
            replace(cosine_score, chance=chance_of_cosine),
            replace(agreement, chance=chance_of_agreement),
            change,
        )


def _distance_of_unrelated(
    clean: Tensor, other_outputs: Tensor, target: Tensor, is_other: Tensor
) -> Tensor:
    """Return the mean distance of each sample's explained output from that of unrelated samples, (B,).

    `clean` (B, K) and `other_outputs` (R, K) are a model's outputs on the samples and on the others, `target` (B, 1) the
    explained output, and `is_other` (B, R) is False where the other sample is the sample itself. NaN where there is no
    other sample or all have the same output, since the distance is used as a unit.
    """
    explained_output = clean.gather(1, target)  # (B, 1)
    same_output_of_others = other_outputs.T[target[:, 0]]  # (B, R)
    distance = (same_output_of_others - explained_output).double().abs()
    mean = distance.masked_fill(~is_other, torch.nan).nanmean(1)
    return torch.where(mean > 0, mean, torch.nan)

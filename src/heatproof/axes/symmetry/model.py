"""Whether the model itself keeps a symmetry: its outputs on moved inputs."""

from __future__ import annotations

from collections.abc import Callable
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
    has_classes = task is None or task.exclusive
    clean = predict(orbit.batch)
    other_outputs = clean if others is None else predict(others)
    if target is None:
        target = clean.argmax(1) if task is None or has_classes else task.target(clean)
    target = target.to(clean.device)[:, None]
    other_ids = (orbit.batch if others is None else others).ids
    is_other = ~itself(orbit.batch.ids, other_ids).T
    unit = _distance_of_unrelated(clean, other_outputs, target, is_other)

    names = ("cosine", "agreement", "change", "cosine_chance", "agreement_chance")
    tables = {name: orbit.empty_table() for name in names}

    def compare_outputs(piece: Piece, moved: Tensor) -> None:
        """Fill in the tables for some moved samples from the model's outputs for them."""
        rows = (piece.sample, piece.element)
        before = clean[piece.sample]
        gap = (moved - before).double().gather(1, target[piece.sample])[:, 0].abs()
        tables["change"][rows] = gap / unit[piece.sample]
        if task is not None and not has_classes:
            same = task.same(before, moved, target[piece.sample, 0]).double()
            tables["agreement"][rows] = torch.where(gap.isfinite(), same, torch.nan)
            return
        probabilities, top = moved.double().softmax(1), moved.argmax(1)
        similarity = cosine(probabilities, before.double().softmax(1))
        same = (top == before.argmax(1)).double()
        tables["cosine"][rows] = similarity
        tables["agreement"][rows] = torch.where(similarity.isfinite(), same, torch.nan)

        other_probabilities = normalize(other_outputs.double().softmax(1))
        cosines = normalize(probabilities) @ other_probabilities.T
        agrees = (top[:, None] == other_outputs.argmax(1)).double()
        is_itself = ~is_other[piece.sample]
        tables["cosine_chance"][rows] = cosines.masked_fill(is_itself, torch.nan).nanmean(1)
        tables["agreement_chance"][rows] = agrees.masked_fill(is_itself, torch.nan).nanmean(1)

    compare_outputs(orbit.start(), clean[orbit.exhaustive])
    # At the identity every output agrees with itself, as explanations do.
    tables["cosine_chance"][orbit.exhaustive, 0] = 1.0
    tables["agreement_chance"][orbit.exhaustive, 0] = 1.0
    for piece in orbit.pieces():
        compare_outputs(piece, predict(piece.batch))

    is_undefined = (tables["agreement"].isnan() & orbit.used).any(1).tolist()
    reason = orbit.reasons(
        ["the prediction is not finite" if undefined else "" for undefined in is_undefined]
    )
    agreement = estimated(orbit, tables["agreement"], reason, 0.0, delta)
    change = estimated(orbit, tables["change"], reason, 0.0, delta, perfect=0.0)
    if not orbit.exact:  # the change has no upper end, and so no bound
        unbounded = torch.full_like(change.value, torch.nan)
        change = replace(change, low=unbounded, high=unbounded)
    if not has_classes:
        return ModelInvariance(None, agreement, change)
    of_probabilities = estimated(orbit, tables["cosine"], reason, 0.0, delta)
    cosine_chance = Chance(orbit.mean(tables["cosine_chance"]))
    agreement_chance = Chance(orbit.mean(tables["agreement_chance"]))
    return ModelInvariance(
        replace(of_probabilities, chance=cosine_chance),
        replace(agreement, chance=agreement_chance),
        change,
    )


def _distance_of_unrelated(
    clean: Tensor, other_outputs: Tensor, target: Tensor, is_other: Tensor
) -> Tensor:
    """Return how far the explained output (B,) of each sample is from that of other samples, NaN where it is not."""
    distance = (other_outputs.T[target[:, 0]] - clean.gather(1, target)).double().abs()
    mean = distance.masked_fill(~is_other, torch.nan).nanmean(1)
    return torch.where(mean > 0, mean, torch.nan)

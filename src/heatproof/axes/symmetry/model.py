"""Whether the model itself keeps a symmetry: its outputs on moved inputs."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn.functional import normalize

from heatproof.axes.symmetry.orbit import Estimate, Orbit, Piece, estimated
from heatproof.maps.similarity import cosine
from heatproof.models.tasks import Task
from heatproof.types import Batch


class ModelInvariance(NamedTuple):
    """How alike a model's outputs are on moved inputs: cosine of the probabilities, agreement of the top class, change.

    Of tasks without classes there is no cosine, and inputs agree whose prediction counts as unchanged.

    `change` is that of the explained output, |f_c(g·x) − f_c(x)|, in units of what it differs by between unrelated
    samples: 0 is invariant, 1 as different as another sample. NaN where there are no other samples.
    """

    cosine: Estimate | None
    agreement: Estimate
    change: Estimate


def model_scores(
    around: Orbit,
    predict: Callable[[Batch], Tensor],
    delta: float,
    target: Tensor | None = None,
    others: Batch | None = None,
    task: Task | None = None,
) -> ModelInvariance:
    """The scores of a model whose logits `predict` gives; see `model_invariance`.

    `target` (B,) are the classes that are explained, by default the predicted ones. `others` are unrelated samples, by
    default those of the batch: they give the unit of the change, and the chance level of the rest. `task` is that
    of the model.
    """
    task = (
        None if task is None or task.exclusive else task
    )  # classes are compared by their probabilities
    clean = predict(around.batch)
    there = around.batch if others is None else others
    theirs = clean if others is None else predict(others)
    usual = clean.argmax(1) if task is None else task.target(clean)
    chosen = (usual if target is None else target.to(clean.device))[:, None]
    unrelated = torch.tensor([[a != b for b in there.ids] for a in around.batch.ids])
    apart = (
        (theirs.T[chosen[:, 0]] - clean.gather(1, chosen))
        .double()
        .abs()
        .masked_fill(~unrelated, torch.nan)
    )
    unit = apart.nanmean(1)
    unit = torch.where(unit > 0, unit, torch.nan)
    tables = {name: around.column() for name in ("cosine", "agreement", "change", "chance", "luck")}

    def compared(piece: Piece, moved: Tensor) -> None:
        rows, before, strange = (
            (piece.sample, piece.element),
            clean[piece.sample],
            ~unrelated[piece.sample],
        )
        gap = (moved - before).double().gather(1, chosen[piece.sample])[:, 0].abs()
        tables["change"][rows] = gap / unit[piece.sample]
        if task is not None:
            same = task.same(before, moved, chosen[piece.sample, 0]).double()
            tables["agreement"][rows] = torch.where(gap.isfinite(), same, torch.nan)
            return
        shares, top = moved.double().softmax(1), moved.argmax(1)
        likeness = normalize(shares) @ normalize(theirs.double().softmax(1)).T
        same = (top[:, None] == theirs.argmax(1)).double()
        tables["chance"][rows] = likeness.masked_fill(strange, torch.nan).nanmean(1)
        tables["luck"][rows] = same.masked_fill(strange, torch.nan).nanmean(1)
        alike = cosine(shares, before.double().softmax(1))
        tables["cosine"][rows] = alike
        tables["agreement"][rows] = torch.where(
            alike.isfinite(), (top == before.argmax(1)).double(), torch.nan
        )

    compared(around.start(), clean[around.whole])
    tables["chance"][around.whole, 0] = tables["luck"][around.whole, 0] = 1.0  # as for explanations
    for piece in around.pieces():
        compared(piece, predict(piece.batch))
    lost = (tables["agreement"].isnan() & around.used).any(1).tolist()
    reason = around.reasons(["the prediction is not finite" if one else "" for one in lost])
    names = ("cosine", "agreement", "change")
    alike, agreement, change = (
        estimated(around, tables[name], reason, 0.0, delta) for name in names
    )
    bare = (
        change.value if around.exact else torch.full_like(change.value, torch.nan)
    )  # it has no upper end to bound
    change = replace(change, low=bare, high=bare)
    if task is not None:
        return ModelInvariance(None, agreement, change)
    return ModelInvariance(
        replace(alike, chance=around.mean(tables["chance"])),
        replace(agreement, chance=around.mean(tables["luck"])),
        change,
    )

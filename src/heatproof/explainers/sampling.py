"""Explainers that fit a linear model to the output on random subsets of features: LIME and KernelSHAP."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Annotated, Any, ClassVar

import torch
from pydantic import Field
from pydantic.dataclasses import dataclass
from torch import Tensor

from heatproof import rand
from heatproof.errors import UserError
from heatproof.explainers.coalitions import shapley_coalitions
from heatproof.explainers.masking import Readout, readouts, spread_out
from heatproof.explainers.requested_error import RequestedError, explain_to_error
from heatproof.features import (
    Grouping,
    GroupingField,
    Hiding,
    Patches,
    Superpixels,
    count,
    keep,
    spread,
)
from heatproof.features.fill import Fill, changeable, ground, kept_only, origins
from heatproof.models import Model
from heatproof.types import STRICT, Batch, Method, name_of

_MOST_FEATURES = 4096
_MASKS_AT_ONCE = 1 << 23
_MANY = 1024  # features from which on each further rung costs seconds
_PLENTY = 6  # pairs for each feature from which on a penalty was found to do harm (benchmarks/bench_accuracy.py)
_RIDGES = (1e-8, 1e-4, 1e-3, 3e-3, 1e-2, 3e-2, 0.1, 0.3, 1.0)


@dataclass(frozen=True, config=STRICT)
class Lime(Method):
    """LIME: a weighted ridge regression of the target's score on random subsets of features.

    Each of `samples` subsets z ∈ {0, 1}ⁿ keeps a feature with probability ½; the first keeps all, the others come in
    pairs of complements, so that every feature is there as often as it is not. The weight of a subset is
    √exp(−d² / kernel_width²), where d = 1 − √(|z| / n) is the cosine distance to the whole input, as in the authors'
    package and in Captum. The map is the coefficient of its feature at every position, from a ridge regression with
    penalty `alpha` and a free intercept.

    Features that are not kept are replaced by zero after normalisation (`fill="zero"`), by the feature's mean colour
    (`"mean"`, the authors' choice for images), by a blur, or by a number in the data's units. `error` asks for a
    precision in place of `samples` (see `heatproof.explainers.requested_error`).

    >>> from heatproof.models import Model
    >>> from heatproof.features import Pixels
    >>> batch = Batch(ids=("a",), x=torch.ones(1, 6))
    >>> Lime(samples=50, features=Pixels())(Model(torch.nn.Linear(6, 2)), batch, torch.tensor([1]), seed=0).shape
    torch.Size([1, 6])
    """

    name: ClassVar[str] = "lime"
    stochastic: ClassVar[bool] = True
    samples: Annotated[int, Field(ge=2)] = 1000
    features: GroupingField = Superpixels()
    fill: Fill = "zero"
    alpha: Annotated[float, Field(gt=0, allow_inf_nan=False)] = 1.0
    kernel_width: Annotated[float, Field(gt=0)] = 0.25
    readout: Readout = "probability"
    error: RequestedError = None

    def check(self, model: Model, shape: Sequence[int]) -> None:
        """Raise `UserError` unless the features exist on samples of this shape."""
        _check_features(self, shape)

    def __call__(self, model: Model, batch: Batch, target: Tensor, seed: int) -> Tensor:
        if self.error is not None:
            return explain_to_error(self, model, batch, target, seed)
        self.check(model, batch.x.shape[1:])

        def draw(key: Tensor, counts: Tensor, n: int) -> tuple[Tensor, Tensor]:
            kept = lime_masks(key, counts, n, self.samples)
            distance = 1 - (kept.sum(2) / counts[:, None].double()).sqrt()
            return kept, (-0.5 * (distance / self.kernel_width) ** 2).exp().clamp(
                min=torch.finfo(torch.float64).tiny
            )

        def solve(kept: Tensor, scores: Tensor, weight: Tensor, counts: Tensor) -> Tensor:
            return weighted_ridge(kept.double(), scores, weight, self.alpha)

        return _fit(self, model, batch, target, seed, draw, solve)


@dataclass(frozen=True, config=STRICT)
class KernelShap(Method):
    """KernelSHAP: Shapley values of the features by a constrained weighted regression.

    Coalitions z are drawn in pairs of complements, sizes in proportion to the Shapley kernel and balanced over features
    within a size (`coalitions.shapley_coalitions`); the values minimise Σ_z w_z (f(z) − f(∅) − z·φ)²
    subject to Σφ = f(x) − f(∅), which holds exactly. Where all 2ⁿ − 2 coalitions fit into `samples` they are
    enumerated and the Shapley values are exact. The map is the value of its feature at every position.

    Absent features are replaced by zero after normalisation (`fill="zero"`), by the feature's mean (`"mean"`), or by a
    number in the data's units. `error` asks for a precision in place of `samples`.

    >>> from heatproof.models import Model
    >>> from heatproof.features import Pixels
    >>> net, batch = torch.nn.Linear(3, 2), Batch(ids=("a",), x=torch.ones(1, 3))
    >>> maps = KernelShap(samples=10, features=Pixels())(Model(net), batch, torch.tensor([1]), seed=0)
    >>> torch.allclose(maps, net.weight[1:].detach(), atol=1e-6)
    True
    """

    name: ClassVar[str] = "kernel_shap"
    stochastic: ClassVar[bool] = True
    samples: Annotated[int, Field(ge=2)] = 1000
    features: GroupingField = Patches()
    fill: Fill = "zero"
    readout: Readout = "logit"
    error: RequestedError = None

    def check(self, model: Model, shape: Sequence[int]) -> None:
        """Raise `UserError` unless the features exist and the samples suffice for them; `shape` is that of a sample."""
        n = _check_features(self, shape)
        if self.error is None and n is not None and self.samples < min(2 * n, 2**n - 2):
            raise UserError(
                f"kernel_shap with samples={self.samples} cannot tell {n} {name_of(self.features)} apart; "
                f"use at least {min(2 * n, 2**n - 2)} samples or fewer features"
            )

    def __call__(self, model: Model, batch: Batch, target: Tensor, seed: int) -> Tensor:
        if self.error is not None:
            return explain_to_error(self, model, batch, target, seed)
        self.check(model, batch.x.shape[1:])

        def draw(key: Tensor, counts: Tensor, n: int) -> tuple[Tensor, Tensor]:
            return shapley_coalitions(key, counts, n, self.samples)

        return _fit(self, model, batch, target, seed, draw, shapley_regression)


def lime_masks(key: Tensor, counts: Tensor, n: int, samples: int) -> Tensor:
    """Which features are kept, (B, samples, n) boolean: all in the first, then a random half and its complement.

    Entry (j, i) is a function of the key, j and i alone, so inputs with different numbers of features `counts` (B,)
    share their draws. Features from `counts` on do not exist and are never kept.

    >>> lime_masks(rand.keys(0, ["a"], "x"), torch.tensor([2]), 3, 4)[0, 0].tolist()
    [True, True, False]
    """
    half = _words(key, samples // 2, n) < 0
    pairs = torch.stack([half, ~half], 2).flatten(1, 2)[:, : samples - 1]
    kept = torch.cat([torch.ones_like(half[:, :1]), pairs], 1)
    return kept & _exists(counts, n)[:, None]


def weighted_ridge(x: Tensor, y: Tensor, weight: Tensor, alpha: float) -> Tensor:
    """Coefficients (B, n) that minimise Σ_j w_j (y_j − a − x_j·c)² + alpha·‖c‖² with a free intercept a.

    x is (B, S, n), y and weight (B, S), all float64. A column of zeros has the coefficient 0.

    >>> x = torch.tensor([[[0.0], [1.0], [2.0]]]).double()
    >>> round(float(weighted_ridge(x, 3 * x[..., 0] + 1, torch.ones(1, 3).double(), 1e-9)), 6)
    3.0
    """
    share = weight / weight.sum(1, keepdim=True)
    x = x - (share[..., None] * x).sum(1, keepdim=True)
    y = y - y[:, :1]  # equal scores become exact zeros, and so does the map
    y = y - (share * y).sum(1, keepdim=True)
    weighted = (weight[..., None] * x).mT
    gram = weighted @ x
    gram.diagonal(dim1=1, dim2=2).add_(alpha)
    return torch.cholesky_solve(weighted @ y[..., None], torch.linalg.cholesky(gram))[..., 0]


def shapley_regression(kept: Tensor, scores: Tensor, weight: Tensor, counts: Tensor) -> Tensor:
    """Values φ (B, n) that minimise Σ_j w_j (f_j − f_∅ − z_j·φ)² + λ ‖φ − φ̄‖² subject to Σφ = f_whole − f_∅.

    Rows 0 and 1 of kept (B, S, n) and scores (B, S) are the whole and the empty set, the others pairs of complements,
    of which the half difference is fitted: the rest of a pair says nothing of φ. λ, which draws the values to their
    mean φ̄, is the rung of `_RIDGES` with the least cross-validation error RSS / (pairs − degrees of freedom)²; with six
    pairs for each feature, or every coalition, it is next to nothing. Twice as many coalitions as features could be
    fitted exactly, and the values would be hardly more than noise.

    >>> kept, weight = shapley_coalitions(rand.keys(0, ["a"], "x"), torch.tensor([2]), 2, 2)
    >>> values = shapley_regression(kept, torch.tensor([[5.0, 1.0, 2.0, 3.0]]).double(), weight, torch.tensor([2]))
    >>> [round(value, 6) for value in values[0].tolist()]
    [1.5, 2.5]
    """
    exists = _exists(counts, kept.shape[2]).double()
    equal_share = (scores[:, :1] - scores[:, 1:2]) / counts[:, None]
    paired = 2 + (kept.shape[1] - 2) // 2 * 2
    z, w = kept[:, 2:paired:2].double(), 2 * weight[:, 2:paired:2]
    size = z.sum(2)
    # the sum is fixed, so only differences from an equal share are unknown: they live where the coordinates sum to 0
    centred = z - exists[:, None] * (size / counts[:, None])[..., None]
    gain = (scores[:, 2:paired:2] - scores[:, 3:paired:2]) / 2 - equal_share * (
        size - counts[:, None] / 2
    )
    weighted = (w[..., None] * centred).mT
    gram, right = weighted @ centred, weighted @ gain[..., None]
    scale = (gram.diagonal(dim1=1, dim2=2).sum(1) / counts).clamp(min=1e-30)[:, None, None]
    outside = scale * (
        exists[:, :, None] * exists[:, None] / counts[:, None, None] + torch.diag_embed(1 - exists)
    )
    pairs, total = (w > 0).sum(1), (w * gain.square()).sum(1)
    enough = (pairs >= _PLENTY * counts) | (2 * pairs >= torch.exp2(counts.double()) - 2)
    best, values = torch.full_like(total, torch.inf), torch.zeros_like(exists)
    unit = torch.eye(len(gram[0])).to(gram)
    for ridge in _RIDGES[:: 1 if len(exists[0]) <= _MANY else 4]:
        factor = torch.linalg.cholesky(gram + outside + ridge * scale * unit)
        root = torch.linalg.solve_triangular(
            factor, unit, upper=False
        )  # all at once on a GPU, as inverses are not
        found = root.mT @ (root @ right)
        freedom = (gram * (root.mT @ root)).sum((1, 2))
        left = (total - (2 * right - gram @ found).mul(found).sum((1, 2))).clamp(min=0)
        error = torch.where(pairs - freedom > 0.5, left / (pairs - freedom).square(), torch.inf)
        error = torch.where(enough, float(ridge != _RIDGES[0]), error)
        values = torch.where((error < best)[:, None], found[..., 0], values)
        best = torch.minimum(best, error)
    return exists * (equal_share + values)


def _fit(
    explainer: Lime | KernelShap,
    model: Model,
    batch: Batch,
    target: Tensor,
    seed: int,
    draw: Callable[[Tensor, Tensor, int], tuple[Tensor, Tensor]],
    solve: Callable[[Tensor, Tensor, Tensor, Tensor], Tensor],
) -> Tensor:
    """Draw subsets, score those of positive weight, solve for one value per feature, and spread the values.

    Samples are taken in groups whose masks fit into memory together.
    """
    batch = batch.to(model.device)
    features = explainer.features
    inputs, segments, fill = ground(explainer.name, features, explainer.fill, model, batch)
    key = rand.keys(seed, batch.ids, explainer.name).to(inputs.device)
    total = int(count(segments).max())
    free = _exists(count(segments), total) & changeable(
        features, batch, total
    )  # only these play; the rest stay
    before = origins(
        batch, segments, total
    )  # a moved feature plays the part of the one that it was
    player = (
        (torch.zeros_like(free).scatter(1, before, free).long().cumsum(1) - 1)
        .gather(1, before)
        .clamp(min=0)
    )
    counts = free.sum(1).clamp(min=1)
    n = int(counts.max())
    size = max(1, _MASKS_AT_ONCE // (explainer.samples * n))
    values = []
    for some in (slice(start, start + size) for start in range(0, len(batch), size)):
        kept, weight = draw(key[some], counts[some], n)
        version = partial(_version, features, batch[some], inputs[some], fill[some], segments[some])
        build = partial(version, kept, free[some], player[some])
        scores = _scores(model, batch[some], target[some], weight, explainer.readout, build)
        values.append(solve(kept, scores, weight, counts[some]))
    each = torch.where(free, torch.cat(values).gather(1, player), 0.0)
    return spread_out(spread(each, segments), inputs, batch)


def _version(
    features: Grouping,
    batch: Batch,
    inputs: Tensor,
    fill: Tensor,
    segments: Tensor,
    kept: Tensor,
    free: Tensor,
    player: Tensor,
    owner: Tensor,
    index: Tensor,
) -> Tensor | tuple[Tensor, Mapping[str, Tensor]]:
    """The samples `owner` (R,) with only the players kept in draw `index` (R,), and what never leaves."""

    def present(i: Tensor | int, j: Tensor) -> Tensor:
        return kept[i, j].gather(1, player[i].expand(len(j), -1)) | ~free[i]

    if isinstance(features, Hiding) or inputs.device.type != "cpu":
        aux = {name: value[owner] for name, value in batch.aux.items()}
        return kept_only(
            features, inputs[owner], fill[owner], aux, present(owner, index), segments[owner]
        )
    # On a CPU one sample after another stays in its cache; a GPU would wait for each.
    samples, lengths = torch.unique_consecutive(owner, return_counts=True)
    parts = torch.split(index, lengths.tolist())
    return torch.cat(
        [
            keep(inputs[i], fill[i], present(i, j), segments[i])
            for i, j in zip(samples.tolist(), parts, strict=True)
        ]
    )


def _scores(
    model: Model,
    batch: Batch,
    target: Tensor,
    weight: Tensor,
    readout: Readout,
    build: Callable[[Tensor, Tensor], Any],
) -> Tensor:
    """The target's score, (B, S) float64, on each subset of positive weight (B, S); these come first."""
    scores = torch.zeros_like(weight)
    with torch.no_grad():
        for owner, index, values in readouts(
            model, batch, target, (weight > 0).sum(1), readout, build
        ):
            scores[owner, index] = values
    return scores


def _check_features(explainer: Lime | KernelShap, shape: Sequence[int]) -> int | None:
    one = (1, *shape)
    explainer.features.check(one)
    n = explainer.features.total(one)
    if n is not None and n > _MOST_FEATURES:
        raise UserError(
            f"{explainer.name} with {name_of(explainer.features)} has {n} features per sample, at most "
            f"{_MOST_FEATURES} can be fitted; use larger ones, for instance patches or superpixels"
        )
    return n


def _words(key: Tensor, samples: int, n: int) -> Tensor:
    """64 random bits (B, samples, n) for draw j and feature i, whatever the number of either."""
    draw = torch.arange(samples, device=key.device)
    return rand.bits(rand.fold(key[:, None], draw).flatten(), n).reshape(len(key), samples, n)


def _exists(counts: Tensor, n: int) -> Tensor:
    return torch.arange(n, device=counts.device) < counts[:, None]

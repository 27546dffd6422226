"""LIME and KernelSHAP, which fit a linear model to the output on random subsets of features."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import Annotated, Any, ClassVar

import torch
from pydantic import Field
from torch import Tensor

from heatproof import rand
from heatproof.errors import UserError
from heatproof.explainers.background import BackgroundField, FillField, Fills, fills_of
from heatproof.explainers.coalitions import shapley_coalitions
from heatproof.explainers.masking import Readout, readouts, spread_out
from heatproof.explainers.over_features import OverFeatures
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
from heatproof.features.fill import changeable, kept_only, labelled_inputs, origins
from heatproof.models import Model
from heatproof.types import Batch, name_of, parameter_class

_MAX_FEATURES = 4096
_MAX_MASK_VALUES = 1 << 23
"""The most values, samples times masks times features, whose masks are held in memory together."""
_RIDGES = (1e-8, 1e-4, 1e-3, 3e-3, 1e-2, 3e-2, 0.1, 0.3, 1.0)
"""The penalties that KernelSHAP chooses from."""
_FEWER_RIDGES_FROM = 1024
"""The number of features above which only every fourth penalty is tried, because each costs seconds."""
_PAIRS_WITHOUT_RIDGE = 6
"""Pairs of coalitions per feature from which on a penalty does harm (measured by benchmarks/bench_accuracy.py)."""


@parameter_class
class Lime(OverFeatures):
    """LIME: a weighted ridge regression of the target's score on random subsets of features.

    Each of `samples` subsets z ∈ {0, 1}ⁿ keeps a feature with probability ½; the first keeps all, the others come in
    pairs of complements, so that every feature is kept as often as it is left out. The weight of a subset is
    √exp(−d² / kernel_width²), where d = 1 − √(|z| / n) is the cosine distance to the whole input, as in the authors'
    package and in Captum. Every position gets the coefficient of its feature in a ridge regression with penalty
    `alpha` and a free intercept.

    Features that are not kept are replaced by zero after normalisation (`fill="zero"`), by the feature's mean colour
    (`"mean"`, the authors' choice for images), by a blur, or by a number or a sample in the data's units. With a
    `background`, the score of a subset is the mean over its rows in the place of the other features; in a study of
    tables these are the reference samples. That takes as many passes for each subset as there are rows. `error` asks
    for a precision in place of `samples` (see `heatproof.explainers.requested_error`).

    >>> from heatproof.models import Model
    >>> from heatproof.features import Pixels
    >>> batch = Batch(ids=("a",), x=torch.ones(1, 6))
    >>> Lime(samples=50, features=Pixels())(Model(torch.nn.Linear(6, 2)), batch, torch.tensor([1]), seed=0).shape
    torch.Size([1, 6])
    """

    name: ClassVar[str] = "lime"
    stochastic: ClassVar[bool] = True
    cost = "`samples` passes"

    samples: Annotated[int, Field(ge=2)] = 1000
    features: GroupingField = Superpixels()
    fill: FillField | None = None
    alpha: Annotated[float, Field(gt=0, allow_inf_nan=False)] = 1.0
    kernel_width: Annotated[float, Field(gt=0)] = 0.25
    readout: Readout = "probability"
    error: RequestedError = None
    background: BackgroundField = None

    def check(self, model: Model, shape: Sequence[int]) -> None:
        """Raise `UserError` unless the features exist on samples of this shape."""
        _check_features(self, shape)

    def __call__(self, model: Model, batch: Batch, target: Tensor, seed: int) -> Tensor:
        """Return LIME's maps (B, …) of the classes `target` (B,): each feature's coefficient in a local linear model."""
        if self.error is not None:
            # The user asked for a precision: run with more and more samples until the map is as precise.
            return explain_to_error(self, model, batch, target, seed)
        self.check(model, batch.x.shape[1:])

        def draw(key: Tensor, counts: Tensor, n: int) -> tuple[Tensor, Tensor]:
            """Return random subsets with LIME's weights: a Gaussian of their cosine distance to the whole input.

            The cosine between a 0/1 vector with s ones and the vector of `counts` ones is √(s / counts).
            """
            kept = lime_masks(key, counts, n, self.samples)
            distance = 1 - (kept.sum(2) / counts[:, None].double()).sqrt()
            weight = (-0.5 * (distance / self.kernel_width) ** 2).exp()
            # With a narrow kernel a weight may underflow to 0, and the regression divides by their sum.
            return kept, weight.clamp(min=torch.finfo(torch.float64).tiny)

        def solve(kept: Tensor, scores: Tensor, weight: Tensor, counts: Tensor) -> Tensor:
            """Return the coefficients of the features in the ridge regression."""
            return weighted_ridge(kept.double(), scores, weight, self.alpha)

        return _maps_by_regression(self, model, batch, target, seed, draw, solve)


@parameter_class
class KernelShap(OverFeatures):
    """KernelSHAP: Shapley values of the features by a constrained weighted regression.

    Coalitions z are drawn in pairs of complements, sizes in proportion to the Shapley kernel and balanced over features
    within a size (`coalitions.shapley_coalitions`). The values φ minimise Σ_z w_z (f(z) − f(∅) − z·φ)²
    subject to Σφ = f(x) − f(∅), which holds exactly. If all 2ⁿ − 2 coalitions fit into `samples`, they are
    enumerated and the Shapley values are exact. Every position gets the value of its feature.

    Absent features are replaced by zero after normalisation (`fill="zero"`), by the feature's mean (`"mean"`), or by a
    number or a sample in the data's units. With a `background`, f(z) is the mean over its rows in the place of the
    absent features, as in `shap.KernelExplainer`; in a study of tables these are the reference samples. That takes as
    many passes for each coalition as there are rows. `error` asks for a precision in place of `samples`.

    >>> from heatproof.models import Model
    >>> from heatproof.features import Pixels
    >>> net, batch = torch.nn.Linear(3, 2), Batch(ids=("a",), x=torch.ones(1, 3))
    >>> maps = KernelShap(samples=10, features=Pixels())(Model(net), batch, torch.tensor([1]), seed=0)
    >>> torch.allclose(maps, net.weight[1:].detach(), atol=1e-6)
    True
    """

    name: ClassVar[str] = "kernel_shap"
    stochastic: ClassVar[bool] = True
    cost = "`samples` passes"

    samples: Annotated[int, Field(ge=2)] = 1000
    features: GroupingField = Patches()
    fill: FillField | None = None
    readout: Readout = "logit"
    error: RequestedError = None
    background: BackgroundField = None

    def check(self, model: Model, shape: Sequence[int]) -> None:
        """Raise `UserError` unless the features exist and the samples suffice for them; `shape` is that of a sample."""
        n = _check_features(self, shape)
        if self.error is not None or n is None:
            return
        needed = min(2 * n, 2**n - 2)
        if self.samples < needed:
            raise UserError(
                f"kernel_shap with samples={self.samples} cannot tell {n} {name_of(self.features)} apart; "
                f"use at least {needed} samples or fewer features"
            )

    def __call__(self, model: Model, batch: Batch, target: Tensor, seed: int) -> Tensor:
        """Return the Shapley values of the features for the classes `target` (B,), as maps (B, …)."""
        if self.error is not None:
            # The user asked for a precision: run with more and more samples until the map is as precise.
            return explain_to_error(self, model, batch, target, seed)
        self.check(model, batch.x.shape[1:])

        def draw(key: Tensor, counts: Tensor, n: int) -> tuple[Tensor, Tensor]:
            """Return coalitions with the weights of the Shapley kernel."""
            return shapley_coalitions(key, counts, n, self.samples)

        return _maps_by_regression(self, model, batch, target, seed, draw, shapley_regression)


def lime_masks(key: Tensor, counts: Tensor, n: int, samples: int) -> Tensor:
    """Return the subsets of features that LIME's linear model is fitted to, (B, samples, n) boolean.

    The first one has all features. The others come in pairs: a random subset, which has each feature with probability
    ½, and its complement. Sample b has counts[b] features; those beyond do not exist and are never in a subset. Entry
    (j, i) depends on the key, j and i only, so inputs with different numbers of features share their draws.

    >>> lime_masks(rand.keys(0, ["a"], "x"), torch.tensor([2]), 3, 4)[0, 0].tolist()
    [True, True, False]
    """
    half = _random_words(key, samples // 2, n) < 0
    pairs = torch.stack([half, ~half], 2).flatten(1, 2)[:, : samples - 1]
    kept = torch.cat([torch.ones_like(half[:, :1]), pairs], 1)
    return kept & _exists(counts, n)[:, None]


def weighted_ridge(x: Tensor, y: Tensor, weight: Tensor, alpha: float) -> Tensor:
    """Return the coefficients c (B, n) of weighted ridge regressions, one for each of B samples.

    They minimise Σ_j w_j (y_j − a − x_j·c)² + alpha · ‖c‖², with a free intercept a. x is (B, S, n), y and weight (B,
    S), all float64. A column of zeros has the coefficient 0.

    >>> x = torch.tensor([[[0.0], [1.0], [2.0]]]).double()
    >>> round(float(weighted_ridge(x, 3 * x[..., 0] + 1, torch.ones(1, 3).double(), 1e-9)), 6)
    3.0
    """
    share = weight / weight.sum(1, keepdim=True)
    # Centring x and y by their weighted means takes the intercept out of the problem.
    x = x - (share[..., None] * x).sum(1, keepdim=True)
    y = y - y[:, :1]  # equal scores become exact zeros, and so does the map
    y = y - (share * y).sum(1, keepdim=True)
    weighted = (weight[..., None] * x).mT
    # The normal equations: (XᵀWX + alpha · I) c = XᵀWy.
    gram = weighted @ x
    gram.diagonal(dim1=1, dim2=2).add_(alpha)
    return torch.cholesky_solve(weighted @ y[..., None], torch.linalg.cholesky(gram))[..., 0]


def shapley_regression(kept: Tensor, scores: Tensor, weight: Tensor, counts: Tensor) -> Tensor:
    """Return KernelSHAP's estimates φ (B, n) of the Shapley values, from the scores f_j of coalitions z_j.

    φ minimises Σ_j w_j (f_j − f_∅ − z_j·φ)² + λ ‖φ − φ̄‖² subject to Σφ = f_whole − f_∅ (Lundberg and Lee 2017, with a
    ridge penalty). Rows 0 and 1 of `kept` (B, S, n), `scores` (B, S) and `weight` (B, S) are the whole and the empty set;
    the others are pairs of complements. `counts` (B,) is how many features each sample has.

    Of a pair, only half the difference of the two scores is fitted, because half their sum does not depend on φ. λ pulls
    the values towards their mean φ̄. It is the penalty in `_RIDGES` with the least error by generalised cross-validation,
    RSS / (pairs − degrees of freedom)² (Golub, Heath and Wahba 1979), and close to 0 with six pairs per feature or with
    all coalitions. Without it, twice as many coalitions as features would be fitted exactly, and the values would be
    mostly noise.

    >>> kept, weight = shapley_coalitions(rand.keys(0, ["a"], "x"), torch.tensor([2]), 2, 2)
    >>> values = shapley_regression(kept, torch.tensor([[5.0, 1.0, 2.0, 3.0]]).double(), weight, torch.tensor([2]))
    >>> [round(value, 6) for value in values[0].tolist()]
    [1.5, 2.5]
    """
    n = kept.shape[2]
    exists = _exists(counts, n).double()
    score_of_all, score_of_none = scores[:, :1], scores[:, 1:2]
    equal_share = (score_of_all - score_of_none) / counts[:, None]

    # One row per pair: its first coalition, and half the difference of the two scores.
    end = 2 + (kept.shape[1] - 2) // 2 * 2
    coalition = kept[:, 2:end:2].double()
    pair_weight = 2 * weight[:, 2:end:2]
    half_difference = (scores[:, 2:end:2] - scores[:, 3:end:2]) / 2

    # Σφ is fixed, so only the deviations from an equal share are unknown. They sum to 0, and so do the rows of
    # `centred` and the directions that `gram` sees.
    size = coalition.sum(2)
    centred = coalition - exists[:, None] * (size / counts[:, None])[..., None]
    gain = half_difference - equal_share * (size - counts[:, None] / 2)
    weighted = (pair_weight[..., None] * centred).mT
    gram = weighted @ centred
    right = weighted @ gain[..., None]

    # `outside` makes the matrix invertible along the two kinds of direction that `gram` leaves out: the constant
    # vector, and features that do not exist.
    trace = gram.diagonal(dim1=1, dim2=2).sum(1)
    scale = (trace / counts).clamp(min=1e-30)[:, None, None]
    constant = exists[:, :, None] * exists[:, None] / counts[:, None, None]
    outside = scale * (constant + torch.diag_embed(1 - exists))

    pairs = (pair_weight > 0).sum(1)
    total = (pair_weight * gain.square()).sum(1)
    all_coalitions = 2 * pairs >= torch.exp2(counts.double()) - 2
    no_ridge = (pairs >= _PAIRS_WITHOUT_RIDGE * counts) | all_coalitions
    ridges = _RIDGES if n <= _FEWER_RIDGES_FROM else _RIDGES[::4]

    best_error = torch.full_like(total, torch.inf)
    best_values = torch.zeros_like(exists)
    identity = torch.eye(n).to(gram)
    for ridge in ridges:
        factor = torch.linalg.cholesky(gram + outside + ridge * scale * identity)
        # The inverse by a triangular solve: on a GPU it runs as a batch, and torch.linalg.inv does not.
        root = torch.linalg.solve_triangular(factor, identity, upper=False)
        values = root.mT @ (root @ right)
        degrees_of_freedom = (gram * (root.mT @ root)).sum((1, 2))
        explained = (2 * right - gram @ values).mul(values).sum((1, 2))
        residual = (total - explained).clamp(min=0)
        remaining = pairs - degrees_of_freedom
        error = residual / remaining.square()
        error = torch.where(remaining > 0.5, error, torch.inf)
        # With enough pairs the smallest penalty has the least error.
        error = torch.where(no_ridge, float(ridge != _RIDGES[0]), error)
        best_values = torch.where((error < best_error)[:, None], values[..., 0], best_values)
        best_error = torch.minimum(best_error, error)
    return exists * (equal_share + best_values)


def _maps_by_regression(
    explainer: Lime | KernelShap,
    model: Model,
    batch: Batch,
    target: Tensor,
    seed: int,
    draw: Callable[[Tensor, Tensor, int], tuple[Tensor, Tensor]],
    solve: Callable[[Tensor, Tensor, Tensor, Tensor], Tensor],
) -> Tensor:
    """Return maps (B, …) of LIME or KernelSHAP: draw subsets of features, score them, and fit one value per feature.

    `draw(key, counts, n)` gives the kept features (B, S, n) and the weights (B, S); `solve(kept, scores, weight,
    counts)` the values (B, n). Only features that may change take part (the "players"); padding is always present and
    has 0. Samples are taken in groups whose masks fit into memory together.
    """
    batch = batch.to(model.device)
    features = explainer.features
    inputs, segments = labelled_inputs(explainer.name, features, model, batch)
    fills = fills_of(explainer, model, batch, inputs, segments)
    key = rand.keys(seed, batch.ids, explainer.name).to(inputs.device)
    feature_count = int(count(segments).max())
    exists = _exists(count(segments), feature_count)
    is_player = exists & changeable(features, batch, feature_count)
    player = _player_numbers(is_player, origins(batch, segments, feature_count))
    counts = is_player.sum(1).clamp(min=1)
    n = int(counts.max())
    group_size = max(1, _MAX_MASK_VALUES // (explainer.samples * n))
    player_values = []
    for start in range(0, len(batch), group_size):
        group = slice(start, start + group_size)
        kept, weight = draw(key[group], counts[group], n)
        game = _Game(
            features,
            batch[group],
            inputs[group],
            fills.of(group),
            segments[group],
            kept,
            is_player[group],
            player[group],
        )
        scores = game.scores(model, target[group], weight, explainer.readout)
        player_values.append(solve(kept, scores, weight, counts[group]))
    values = torch.cat(player_values).gather(1, player)
    values = torch.where(is_player, values, 0.0)
    return spread_out(spread(values, segments), inputs, batch)


def _player_numbers(is_player: Tensor, original: Tensor) -> Tensor:
    """Return the number of each feature (B, n) among the players: the features of its sample that may change.

    A test of symmetry moves samples, and `original` (B, n) is the feature of the unmoved sample that each feature comes
    from. Players are numbered by these, so that a moved feature keeps its number, and with it its random draws.
    """
    original_is_player = torch.zeros_like(is_player).scatter(1, original, is_player)
    number = original_is_player.long().cumsum(1) - 1
    return number.gather(1, original).clamp(min=0)


@dataclasses.dataclass(frozen=True)
class _Game:
    """Samples of which subsets of features are scored, the cooperative game of Shapley values.

    features   the grouping, which may hide features itself
    batch      the samples, for their auxiliary tensors
    inputs     (B, …)
    fills      what takes the place of absent features: one fill, or one for each row of a background
    segments   (B, …) the feature of every position
    kept       (B, S, players) the subsets
    is_player  (B, n) which features take part; others, such as padding, always stay
    player     (B, n) the number of each feature among the players
    """

    features: Grouping
    batch: Batch
    inputs: Tensor
    fills: Fills
    segments: Tensor
    kept: Tensor
    is_player: Tensor
    player: Tensor

    def scores(self, model: Model, target: Tensor, weight: Tensor, readout: Readout) -> Tensor:
        """Return the model's score of the class `target` on each of S subsets of features, (B, S) float64.

        With a background it is the mean over the background's rows in place of the absent features. Subsets of `weight`
        (B, S) 0, which come last, are not run and have 0.
        """
        fill_count = len(self.fills)
        scores = torch.zeros_like(weight)
        # A version of a sample is one subset of features with one fill for the others.
        versions = (weight > 0).sum(1) * fill_count

        def make_versions(sample: Tensor, version: Tensor) -> Any:
            """Return the inputs of versions of samples; a version's number is subset · fill_count + fill."""
            return self.with_subset(sample, version // fill_count, version % fill_count)

        with torch.no_grad():
            chunks = readouts(model, self.batch, target, versions, readout, make_versions)
            for sample, version, values in chunks:
                subset, fill = version // fill_count, version % fill_count
                weighted = values * self.fills.weight_of(fill)
                scores.index_put_((sample, subset), weighted, accumulate=True)
        return scores

    def with_subset(
        self, sample: Tensor, subset: Tensor, fill: Tensor
    ) -> Tensor | tuple[Tensor, Mapping[str, Tensor]]:
        """Return R inputs: row r is sample[r] with only the features of subset[r], and fill[r] in place of the others.

        All three are numbers (R,): of a sample in the batch, of one of its subsets in `self.kept`, and of a fill.
        """
        # A grouping that hides features itself (by an attention mask, say) needs the auxiliary tensors.
        if isinstance(self.features, Hiding) or self.inputs.device.type != "cpu":
            aux = {name: value[sample] for name, value in self.batch.aux.items()}
            fill_values = self.fills.at(sample, fill)
            present = self._present(sample, subset)
            return kept_only(
                self.features,
                self.inputs[sample],
                fill_values,
                aux,
                present,
                self.segments[sample],
            )
        # On a CPU each sample is handled by itself, because it then stays in the cache. On a GPU that would be slower.
        samples, lengths = torch.unique_consecutive(sample, return_counts=True)
        sizes = lengths.tolist()
        subsets_by_sample = torch.split(subset, sizes)
        fills_by_sample = torch.split(fill, sizes)
        inputs = []
        for i, subsets, fills in zip(
            samples.tolist(), subsets_by_sample, fills_by_sample, strict=True
        ):
            fill_values = self.fills.of_sample(i, fills)
            present = self._present(i, subsets)
            inputs.append(keep(self.inputs[i], fill_values, present, self.segments[i]))
        return torch.cat(inputs)

    def _present(self, sample: Tensor | int, subset: Tensor) -> Tensor:
        """Return which of a sample's n features are present in each of R subsets, (R, n) boolean.

        Features that do not take part, such as padding, are always present. `sample` is one number or one per subset.
        """
        player = self.player[sample].expand(len(subset), -1)
        is_kept = self.kept[sample, subset].gather(1, player)
        return is_kept | ~self.is_player[sample]


def _check_features(explainer: Lime | KernelShap, shape: Sequence[int]) -> int | None:
    """Check that an explainer's features exist on samples of `shape` and are not too many to fit; return their number.

    None if it depends on the sample.
    """
    batch_shape = (1, *shape)
    explainer.features.check(batch_shape)
    n = explainer.features.total(batch_shape)
    if n is not None and n > _MAX_FEATURES:
        raise UserError(
            f"{explainer.name} with {name_of(explainer.features)} has {n} features per sample, at most "
            f"{_MAX_FEATURES} can be fitted; use larger ones, for instance patches or superpixels"
        )
    return n


def _random_words(key: Tensor, samples: int, n: int) -> Tensor:
    """Return 64 random bits (B, samples, n) that depend on key, draw and feature only, not on `samples` or `n`."""
    draw = torch.arange(samples, device=key.device)
    return rand.bits(rand.fold(key[:, None], draw).flatten(), n).reshape(len(key), samples, n)


def _exists(counts: Tensor, n: int) -> Tensor:
    """Return which of n features exist in samples with `counts` (B,) features, (B, n) boolean."""
    return torch.arange(n, device=counts.device) < counts[:, None]

"""Feature ablation and feature permutation, which change one feature at a time."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Annotated, Any, ClassVar

import torch
from pydantic import BeforeValidator, Field
from torch import Tensor

from heatproof import rand
from heatproof.errors import UserError
from heatproof.explainers.background import BackgroundField, FillField, fills_of
from heatproof.explainers.baselines import Pick, pool_draws
from heatproof.explainers.examples.training_set import Examples, examples
from heatproof.explainers.masking import (
    Readout,
    beside_channels,
    readout_scores,
    readouts,
    spread_out,
)
from heatproof.explainers.over_features import OverFeatures
from heatproof.features import GroupingField, Hiding, Pixels, count, spatial, spread
from heatproof.features.fill import changeable, labelled_inputs, labels, origins
from heatproof.models import Model
from heatproof.types import Batch, parameter_class

ChangeFeature = Callable[[Tensor, Tensor, Tensor], Tensor | tuple[Tensor, Mapping[str, Tensor]]]
"""(owner, feature, draw), all (R,) → versions of the samples `owner` in which `feature` is changed, with or without aux."""


@parameter_class
class FeatureAblation(OverFeatures):
    """Feature ablation: f_t(x) − f_t(x without the feature), at every position of the feature.

    `features` groups the input. `Pixels()` are single positions of images and series, single columns and single
    tokens; sets and graphs need `Elements()`, because their (B, N, F) looks like a series (B, C, T). `fill` replaces an
    absent feature: "zero" in the normalised input or the token's vector, the feature's own "mean" in each channel, a
    "blur", or a number or a sample in the data's units. With a `background`, the score without the feature is the mean
    over its rows in its place; in a study of tables these are the reference samples. `Tokens(...)` hide tokens in their
    own way. Padding is never changed and has 0. `readout` selects the target's logit or its probability.

    Maps are (B, …) in the shape of the input; for token ids, one value per token (B, L). Costs one pass per feature
    and sample, and one for the sample itself: on large images choose patches. If model and fill are invariant under a
    permutation of the positions (zero is), the map is permuted with the input.

    >>> from heatproof.models import Model
    >>> net = torch.nn.Linear(3, 2, bias=False)
    >>> batch = Batch(ids=("a",), x=torch.tensor([[1.0, 2.0, 0.0]]))
    >>> maps = FeatureAblation()(Model(net), batch, torch.tensor([1]), seed=0)
    >>> torch.allclose(maps, batch.x * net.weight[1:].detach(), atol=1e-6)
    True
    """

    name: ClassVar[str] = "feature_ablation"
    cost = "1 pass per feature"

    features: GroupingField = Pixels()
    fill: FillField | None = None
    readout: Readout = "logit"
    background: BackgroundField = None

    def __post_init__(self) -> None:
        if self.fill == "mean" and isinstance(self.features, Pixels):
            raise UserError(
                f"{self.name} with fill='mean' changes nothing of pixels, each its own mean; use patches"
            )

    def check(self, model: Model, shape: Sequence[int]) -> None:
        """Raise `UserError` unless the features exist on samples of this shape."""
        self.features.check((1, *shape))

    def __call__(self, model: Model, batch: Batch, target: Tensor, seed: int) -> Tensor:
        """Maps for the classes `target` (B,); the seed plays no part."""
        batch = batch.to(model.device)
        features = self.features
        inputs, segments = labelled_inputs(self.name, features, model, batch)
        fills = fills_of(self, model, batch, inputs, segments)
        feature_numbers = torch.arange(int(count(segments).max()), device=inputs.device)

        def without_feature(
            owner: Tensor, feature: Tensor, draw: Tensor
        ) -> Tensor | tuple[Tensor, Mapping[str, Tensor]]:
            """Return the inputs of samples `owner` (R,) without their feature number `feature` (R,).

            Row `draw` (R,) of the background takes its place. A grouping that hides features itself needs no
            replacement; it may change auxiliary tensors, such as an attention mask.
            """
            if isinstance(features, Hiding):
                aux = {name: value[owner] for name, value in batch.aux.items()}
                is_present = feature_numbers != feature[:, None]
                return features.hide(inputs[owner], aux, is_present)
            inside = _inside(segments[owner], feature)
            is_removed = beside_channels(inside, inputs, batch)
            return torch.where(is_removed, fills.at(owner, draw), inputs[owner])

        # A draw is a row of the background.
        draws = torch.full((len(batch),), len(fills), device=inputs.device)
        return _mean_differences(
            self, model, batch, target, inputs, segments, draws, without_feature, fills.weights
        )


@parameter_class
class FeaturePermutation(OverFeatures):
    """Feature permutation: the mean over `draws` of f_t(x) − f_t(x with the feature's values replaced).

    The usual method exchanges a feature among the samples of a batch, so a map depends on the rest of the batch. Here
    the values come from the sample itself: each draw has one offset s for all features, and the feature at position p
    takes the values at p + s, cyclically. Offsets are drawn without replacement by seed and sample id, never 0, so two
    versions of a sample share them. In padded sets, graphs and texts only real elements take part. Token ids are
    exchanged as ids; the edges of graphs stay. For features of one position, an invariant model gives maps that move
    with the input: under cyclic shifts with one offset, under any permutation with all of them (draws ≥ positions − 1).

    With a `pool` of samples, such as training data, the values come from the same position in pool samples, drawn
    without replacement: the right choice for the columns of a table, which have different units.

    Features, readout, shapes and cost are those of `FeatureAblation`, the cost `draws` times.

    >>> from heatproof.models import Model
    >>> net = torch.nn.Linear(3, 2, bias=False)
    >>> batch = Batch(ids=("a",), x=torch.tensor([[1.0, 2.0, 0.0]]))
    >>> maps = FeaturePermutation(draws=2)(Model(net), batch, torch.tensor([1]), seed=0)
    >>> torch.allclose(maps, net.weight[1:].detach() * torch.tensor([[0.0, 1.5, -1.5]]), atol=1e-6)
    True
    """

    name: ClassVar[str] = "feature_permutation"
    stochastic: ClassVar[bool] = True
    cost = "`draws` passes per feature"

    features: GroupingField = Pixels()
    draws: Annotated[int, Field(ge=1)] = 1
    pool: Annotated[Examples | None, BeforeValidator(examples)] = None
    readout: Readout = "logit"

    def check(self, model: Model, shape: Sequence[int]) -> None:
        """Raise `UserError` unless the features exist on samples of this shape and the pool's samples have it too."""
        self.features.check((1, *shape))
        if self.pool is not None:
            self.pool.check_shape(shape)

    def __call__(self, model: Model, batch: Batch, target: Tensor, seed: int) -> Tensor:
        """Maps for the classes `target` (B,)."""
        self.check(model, batch.x.shape[1:])
        batch = batch.to(model.device)
        inputs = model.inputs(batch) if batch.x.is_floating_point() else batch.x
        segments = labels(self.features, batch, inputs)
        key = rand.keys(seed, batch.ids, self.name).to(model.device)
        replacements: Pick
        if self.pool is None:
            replacements = _CyclicShifts(self, batch, inputs, segments, key)
            available = replacements.available
        else:
            pool = self.pool.batch.to(model.device)
            pool_values = model.inputs(pool) if batch.x.is_floating_point() else pool.x
            replacements = pool_draws(self.name, batch, pool_values, seed)
            available = torch.full_like(key, len(pool))

        def with_replaced_feature(owner: Tensor, feature: Tensor, draw: Tensor) -> Tensor:
            """Return the inputs of samples `owner` (R,) with values of another draw in one feature each."""
            inside = _inside(segments[owner], feature)
            is_replaced = beside_channels(inside, inputs, batch)
            return torch.where(is_replaced, replacements(owner, draw), inputs[owner])

        draws = available.clamp(max=self.draws)
        return _mean_differences(
            self, model, batch, target, inputs, segments, draws, with_replaced_feature
        )


def _inside(segments: Tensor, feature: Tensor) -> Tensor:
    """Return which positions of `segments` (R, …) belong to the feature (R,) of their row."""
    return segments == feature.reshape(-1, *[1] * (segments.ndim - 1))


class _CyclicShifts:
    """The inputs with their positions shifted cyclically, by offsets drawn without replacement for each sample.

    Calling it with samples `owner` and numbers `draw`, (R,) each, gives their shifted inputs (R, …). `available` (B,)
    is the number of different offsets that each sample has.

    Offsets count along the positions that the samples had before a group moved them (`batch.moved`), so that a moved
    sample takes the same values as the original. Padding neither moves nor is moved to.
    """

    def __init__(
        self,
        explainer: FeaturePermutation,
        batch: Batch,
        inputs: Tensor,
        segments: Tensor,
        key: Tensor,
    ) -> None:
        # Features of sets and graphs are rows of (B, N, F): a position is an element, whatever its columns.
        self.by_row = batch.x.ndim == 3 and segments.ndim == 3
        self.size = tuple(batch.x.shape[1:2]) if self.by_row else spatial(batch.x.shape)
        self.inputs = inputs
        total = math.prod(self.size)
        self.positions = torch.arange(total, device=key.device)
        if self.by_row:
            position_map = self.positions[:, None].expand(batch.x.shape[1:])
        else:
            position_map = self.positions.reshape(self.size)
        # (B, total) each: the original of every position now, and the reverse.
        self.original = origins(batch, position_map.expand(len(batch), *position_map.shape), total)
        self.current = self.original.argsort(1)

        # All of the following is in the order of the original positions.
        self.movable = changeable(explainer.features, batch, total).gather(1, self.current)
        self.movable_count = self.movable.sum(1)
        self.movable_positions = self.movable.long().argsort(dim=1, descending=True, stable=True)
        self.movable_rank = self.movable.long().cumsum(1) - 1

        # A random order of the offsets 1 … movable_count − 1; those that do not exist sort last.
        absent = (self.positions == 0) | (self.positions >= self.movable_count[:, None])
        last = torch.iinfo(torch.int64).max
        random_order = rand.bits(key, total).masked_fill(absent, last)
        self.offsets = random_order.argsort(dim=1, stable=True)
        self.available = (self.movable_count - 1).clamp(min=0)

    def __call__(self, owner: Tensor, draw: Tensor) -> Tensor:
        """Return the inputs (R, …) of the samples `owner`, shifted by their offset number `draw`."""
        offset = self.offsets[owner, draw][:, None]
        source = self._source(owner, offset)
        # From original positions back to the positions of the samples as they are now.
        source = source.gather(1, self.original[owner])
        source = self.current[owner].gather(1, source)
        values = self.inputs[owner]
        if self.by_row:
            return values.gather(1, source[..., None].expand_as(values))
        flat = values.reshape(len(owner), -1, len(self.positions))
        return flat.gather(2, source[:, None].expand_as(flat)).reshape(values.shape)

    def _source(self, owner: Tensor, offset: Tensor) -> Tensor:
        """Return from which original position each one takes its value, (R, total)."""
        if len(self.size) == 1:
            rank = (self.movable_rank[owner] + offset) % self.movable_count[owner, None]
            shifted = self.movable_positions[owner].gather(1, rank)
            return torch.where(self.movable[owner], shifted, self.positions)
        # Shift along each axis separately, so that a cyclic shift of a picture is one of its map.
        coordinates = torch.unravel_index(self.positions, self.size)
        steps = torch.unravel_index(offset, self.size)
        source = torch.zeros_like(offset)
        for length, coordinate, step in zip(self.size, coordinates, steps, strict=True):
            source = source * length + (coordinate + step) % length
        return source


def _mean_differences(
    explainer: FeatureAblation | FeaturePermutation,
    model: Model,
    batch: Batch,
    target: Tensor,
    inputs: Tensor,
    segments: Tensor,
    draws: Tensor,
    change_feature: ChangeFeature,
    weights: Tensor | None = None,
) -> Tensor:
    """Return maps of the mean over `draws` (B,) of f_t(x) − f_t(x with the feature changed).

    The mean has `weights` (draws,), if they are not equal. Features that may not change, such as padding, are not run
    and have 0.
    """
    readout: Any = explainer.readout
    feature_counts = count(segments)
    n = int(feature_counts.max())
    exists = torch.arange(n, device=inputs.device) < feature_counts[:, None]
    may_change = exists & changeable(explainer.features, batch, n)
    # The numbers of the features that may change come first, in order.
    ordered = may_change.long().argsort(dim=1, descending=True, stable=True)

    # A version of a sample is one feature with one draw of what takes its place.
    def make_versions(
        sample: Tensor, version: Tensor
    ) -> Tensor | tuple[Tensor, Mapping[str, Tensor]]:
        """Return the inputs (R, …) of these versions of samples, both given by number (R,)."""
        feature = ordered[sample, version // draws[sample]]
        return change_feature(sample, feature, version % draws[sample])

    values = torch.zeros(len(batch), n, dtype=torch.float64, device=inputs.device)
    with torch.no_grad():
        unchanged = readout_scores(
            model, batch, target, 1, readout, lambda sample, version: inputs[sample]
        )
        versions = may_change.sum(1) * draws
        chunks = readouts(model, batch, target, versions, readout, make_versions)
        for sample, version, scores in chunks:
            feature = ordered[sample, version // draws[sample]]
            difference = unchanged[sample] - scores
            if weights is None:
                weighted = difference / draws[sample]
            else:
                weighted = difference * weights[version % draws[sample]]
            values.index_put_((sample, feature), weighted, accumulate=True)
    return spread_out(spread(values, segments), inputs, batch)

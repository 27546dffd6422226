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
        """Return maps (B, …) of the classes `target` (B,): how far the score falls without each feature; `seed` is unused."""
        batch = batch.to(model.device)
        features = self.features
        inputs, segments = labelled_inputs(self.name, features, model, batch)
        fills = fills_of(self, model, batch, inputs, segments)
        feature_numbers = torch.arange(int(count(segments).max()), device=inputs.device)

        def without_feature(
            owner: Tensor, feature: Tensor, draw: Tensor
        ) -> Tensor | tuple[Tensor, Mapping[str, Tensor]]:
            """Return R versions of inputs: row r is sample owner[r] without its feature number feature[r].

            Row draw[r] of the background takes the feature's place. A grouping that hides features itself needs no
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
        """Return maps (B, …) of the classes `target` (B,): how far the score falls when a feature's values are replaced.

        The values come from other positions of the same sample or, with a `pool`, from other samples. The mean is over
        at most `draws` different replacements of each feature.
        """
        self.check(model, batch.x.shape[1:])
        batch = batch.to(model.device)
        inputs = model.inputs(batch) if batch.x.is_floating_point() else batch.x
        segments = labels(self.features, batch, inputs)
        key = rand.keys(seed, batch.ids, self.name).to(model.device)
        # `replacements(owner, draw)` gives whole inputs (R, …), from which the values of one feature are taken.
        # `available_draws` (B,) is how many different ones each sample has.
        replacements: Pick
        if self.pool is None:
            replacements = _CyclicShifts(self, batch, inputs, segments, key)
            available_draws = replacements.available
        else:
            pool = self.pool.batch.to(model.device)
            pool_values = model.inputs(pool) if batch.x.is_floating_point() else pool.x
            replacements = pool_draws(self.name, batch, pool_values, seed)
            available_draws = torch.full_like(key, len(pool))

        def with_replaced_feature(owner: Tensor, feature: Tensor, draw: Tensor) -> Tensor:
            """Return R versions of inputs: row r is sample owner[r], whose feature[r] has the values of draw[r]."""
            inside = _inside(segments[owner], feature)
            is_replaced = beside_channels(inside, inputs, batch)
            return torch.where(is_replaced, replacements(owner, draw), inputs[owner])

        draws = available_draws.clamp(max=self.draws)
        return _mean_differences(
            self, model, batch, target, inputs, segments, draws, with_replaced_feature
        )


def _inside(segments: Tensor, feature: Tensor) -> Tensor:
    """Return which positions of `segments` (R, …) belong to the feature (R,) of their row."""
    return segments == feature.reshape(-1, *[1] * (segments.ndim - 1))


class _CyclicShifts:
    """Inputs whose positions are shifted cyclically, by offsets drawn without replacement for each sample.

    Calling it with samples `owner` and numbers `draw`, (R,) each, gives their shifted inputs (R, …). `available` (B,)
    is the number of different offsets that each sample has.

    A test of symmetry moves the positions of samples, and `batch.moved` says how. Offsets count along the positions
    before that move, so that a moved sample takes the same values as the original. Padding neither moves nor is moved to.
    """

    def __init__(
        self,
        explainer: FeaturePermutation,
        batch: Batch,
        inputs: Tensor,
        segments: Tensor,
        key: Tensor,
    ) -> None:
        """Prepare the tables that turn an offset into source positions, and draw an order of offsets for each sample.

        `segments` are the feature numbers of the positions, and `key` (B,) the random keys of the samples.
        """
        # Features of sets and graphs are rows of (B, N, F): a position is an element, whatever its columns.
        self.by_row = batch.x.ndim == 3 and segments.ndim == 3
        self.size = tuple(batch.x.shape[1:2]) if self.by_row else spatial(batch.x.shape)
        self.inputs = inputs
        total = math.prod(self.size)
        self.positions = torch.arange(total, device=key.device)

        # Where the positions of each sample were before a symmetry moved them, and the reverse, (B, total) each:
        # what is now at position p was at `position_before[p]`, and what was at q is now at `position_now[q]`.
        if self.by_row:
            position_map = self.positions[:, None].expand(batch.x.shape[1:])
        else:
            position_map = self.positions.reshape(self.size)
        position_maps = position_map.expand(len(batch), *position_map.shape)
        self.position_before = origins(batch, position_maps, total)
        self.position_now = self.position_before.argsort(1)

        # The positions that may be exchanged, which excludes padding. All tables from here on are in the order before
        # the move. `movable_positions` lists the movable positions of each sample first, in order, and `movable_rank`
        # is the number of a position in that list.
        movable_now = changeable(explainer.features, batch, total)
        self.movable = movable_now.gather(1, self.position_now)
        self.movable_count = self.movable.sum(1)
        self.movable_positions = self.movable.long().argsort(dim=1, descending=True, stable=True)
        self.movable_rank = self.movable.long().cumsum(1) - 1

        # A random order of the offsets 1 … movable_count − 1 of each sample; others sort last and are never drawn.
        is_no_offset = (self.positions == 0) | (self.positions >= self.movable_count[:, None])
        last = torch.iinfo(torch.int64).max
        random_order = rand.bits(key, total).masked_fill(is_no_offset, last)
        self.offsets = random_order.argsort(dim=1, stable=True)
        self.available = (self.movable_count - 1).clamp(min=0)

    def __call__(self, owner: Tensor, draw: Tensor) -> Tensor:
        """Return R shifted inputs (R, …): row r is sample owner[r], shifted by its offset number draw[r]."""
        offset = self.offsets[owner, draw][:, None]
        source = self._source(owner, offset)
        # `source` is about positions before a symmetry moved the sample. Translate it to positions as they are now:
        # first its entries are put in today's order, then each entry is replaced by where that position is today.
        source = source.gather(1, self.position_before[owner])
        source = self.position_now[owner].gather(1, source)
        values = self.inputs[owner]
        if self.by_row:
            return values.gather(1, source[..., None].expand_as(values))
        # One column per position, so that all channels of a position are read from the same source.
        flat = values.reshape(len(owner), -1, len(self.positions))
        return flat.gather(2, source[:, None].expand_as(flat)).reshape(values.shape)

    def _source(self, owner: Tensor, offset: Tensor) -> Tensor:
        """Return from which position each position takes its value, (R, total), before any move by a symmetry.

        Row r is about sample owner[r], shifted cyclically by offset[r] (R, 1).
        """
        if len(self.size) == 1:
            rank = (self.movable_rank[owner] + offset) % self.movable_count[owner, None]
            shifted = self.movable_positions[owner].gather(1, rank)
            return torch.where(self.movable[owner], shifted, self.positions)
        # Shift along each axis separately, so that cyclically shifting a picture shifts its map. Positions and offsets
        # are flat numbers; `source` becomes a flat number again, axis by axis.
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
    """Return maps (B, …) with, at every position of a feature, the mean of f_t(x) − f_t(x with the feature changed).

    The mean is over draws[b] versions of each feature of sample b, which `change_feature` makes; it has `weights`
    (draws,) where given, else equal ones. `segments` are the feature numbers of the positions. Features that may not
    change, such as padding, cost no pass and have 0.
    """
    readout: Any = explainer.readout
    feature_counts = count(segments)
    n = int(feature_counts.max())
    exists = torch.arange(n, device=inputs.device) < feature_counts[:, None]
    may_change = exists & changeable(explainer.features, batch, n)
    # The numbers of the features that may change come first, in order.
    ordered = may_change.long().argsort(dim=1, descending=True, stable=True)

    # The versions of a sample are numbered feature by feature, with `draws` consecutive versions of each feature.
    def make_versions(
        sample: Tensor, version: Tensor
    ) -> Tensor | tuple[Tensor, Mapping[str, Tensor]]:
        """Return R changed inputs: row r is version[r] of sample[r], both given by number."""
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

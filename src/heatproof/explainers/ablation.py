"""Explainers that change one feature at a time: ablation and permutation."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Annotated, Any, ClassVar

import torch
from pydantic import BeforeValidator, Field
from pydantic.dataclasses import dataclass
from torch import Tensor

from heatproof import rand
from heatproof.errors import UserError
from heatproof.explainers.baselines import Pick, pool_draws
from heatproof.explainers.examples.training_set import Examples, examples
from heatproof.explainers.masking import Readout, beside_channels, readouts, spread_out
from heatproof.features import Grouping, GroupingField, Hiding, Pixels, count, spatial, spread
from heatproof.features.fill import Fill, changeable, ground, labels, origins
from heatproof.models import Model
from heatproof.types import STRICT, Batch, Method

Changed = Callable[[Tensor, Tensor, Tensor], Tensor | tuple[Tensor, Mapping[str, Tensor]]]


@dataclass(frozen=True, config=STRICT)
class FeatureAblation(Method):
    """Feature ablation: f_t(x) − f_t(x without the feature), at every position of the feature.

    `features` groups the input: `Pixels()` are single positions of images, series and columns and single tokens; use
    `Elements()` for sets and graphs, whose (B, N, F) cannot be told from a series (B, C, T). An absent feature is 0 in
    the normalised input or the token's vector (`fill="zero"`), its own mean in each channel ("mean"), a blur, or a
    number in the data's units; `Tokens(...)` hide tokens in their own way, and padding is left alone and has 0. The
    target's logit is read, or its probability.

    Maps are (B, …) in the shape of the input; for token ids, one value per token (B, L). Costs one pass per feature
    and sample, and one for the sample itself: on large images choose patches. Where the model does not change under a
    permutation of the positions and the fill does not either, as zero does not, the map is permuted with the input.

    >>> from heatproof.models import Model
    >>> net = torch.nn.Linear(3, 2, bias=False)
    >>> batch = Batch(ids=("a",), x=torch.tensor([[1.0, 2.0, 0.0]]))
    >>> maps = FeatureAblation()(Model(net), batch, torch.tensor([1]), seed=0)
    >>> torch.allclose(maps, batch.x * net.weight[1:].detach(), atol=1e-6)
    True
    """

    name: ClassVar[str] = "feature_ablation"

    features: GroupingField = Pixels()
    fill: Fill = "zero"
    readout: Readout = "logit"

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
        inputs, segments, fill = ground(self.name, features, self.fill, model, batch)
        every = torch.arange(int(count(segments).max()), device=inputs.device)

        def without(
            owner: Tensor, feature: Tensor, _: Tensor
        ) -> Tensor | tuple[Tensor, Mapping[str, Tensor]]:
            if isinstance(features, Hiding):
                aux = {name: value[owner] for name, value in batch.aux.items()}
                return features.hide(inputs[owner], aux, every != feature[:, None])
            inside = segments[owner] == feature.reshape(-1, *[1] * (segments.ndim - 1))
            return torch.where(beside_channels(inside, inputs, batch), fill[owner], inputs[owner])

        once = torch.ones(len(batch), dtype=torch.int64, device=inputs.device)
        return _differences(self, model, batch, target, inputs, segments, once, without)


@dataclass(frozen=True, config=STRICT)
class FeaturePermutation(Method):
    """Feature permutation: the mean of f_t(x) − f_t(x with the feature's values from elsewhere) over `draws`.

    The usual method exchanges a feature among the samples of a batch, so a map depends on its neighbours. Here the
    values come from the sample itself: draw s shifts the positions by an offset, round and round, the same for every
    feature, and the feature at position p takes the values at p + s. Offsets are drawn without replacement by seed and
    sample id, never 0, so two versions of a sample share them; of padded sets, graphs and texts only real elements
    take part. Token ids are exchanged as ids, and edges stay. For features of one position and a model that does not
    change, one offset makes maps that move with the input under cyclic shifts, and all of them (draws ≥ positions − 1)
    under any permutation.

    With a `pool` of samples, such as training data, the values come from the same place in pool samples, drawn without
    replacement: the right choice for the columns of a table, which have different units.

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
        if self.pool is None:
            available, elsewhere = _shifts(self.features, batch, inputs, segments, key)
        else:
            pooled = self.pool.batch.to(model.device)
            values = model.inputs(pooled) if batch.x.is_floating_point() else pooled.x
            available = torch.full_like(key, len(pooled))
            elsewhere = pool_draws(self.name, self.pool, batch, values, seed)

        def exchanged(owner: Tensor, feature: Tensor, draw: Tensor) -> Tensor:
            inside = segments[owner] == feature.reshape(-1, *[1] * (segments.ndim - 1))
            return torch.where(
                beside_channels(inside, inputs, batch), elsewhere(owner, draw), inputs[owner]
            )

        each = available.clamp(max=self.draws)
        return _differences(self, model, batch, target, inputs, segments, each, exchanged)


def _shifts(
    features: Grouping, batch: Batch, inputs: Tensor, segments: Tensor, key: Tensor
) -> tuple[Tensor, Pick]:
    """How many offsets there are for each sample (B,), and the inputs shifted by offset number `draw`."""
    rows = (
        batch.x.ndim == 3 and segments.ndim == 3
    )  # features are rows of (B, N, F): elements of sets, nodes of graphs
    size = tuple(batch.x.shape[1:2]) if rows else spatial(batch.x.shape)
    total = math.prod(size)
    place = torch.arange(total, device=key.device)
    at = place[:, None].expand(batch.x.shape[1:]) if rows else place.reshape(size)
    before = origins(
        batch, at.expand(len(batch), *at.shape), total
    )  # offsets count along the places as they were
    after = before.argsort(1)
    real = changeable(features, batch, total).gather(1, after)
    numbers = real.sum(1)
    first = real.long().argsort(
        dim=1, descending=True, stable=True
    )  # the places of the real ones, in order
    rank = real.long().cumsum(1) - 1
    absent = (place == 0) | (place >= numbers[:, None])
    last = torch.iinfo(torch.int64).max
    offsets = rand.bits(key, total).masked_fill(absent, last).argsort(dim=1, stable=True)

    def source(owner: Tensor, offset: Tensor) -> Tensor:
        if len(size) == 1:
            moved = first[owner].gather(1, (rank[owner] + offset) % numbers[owner, None])
            return torch.where(real[owner], moved, place)
        found = torch.zeros_like(
            offset
        )  # offsets along each axis, so that a shift of a picture is one of its map
        for length, at, by in zip(
            size, torch.unravel_index(place, size), torch.unravel_index(offset, size), strict=True
        ):
            found = found * length + (at + by) % length
        return found

    def elsewhere(owner: Tensor, draw: Tensor) -> Tensor:
        where = source(owner, offsets[owner, draw][:, None]).gather(1, before[owner])
        where = after[owner].gather(1, where)
        own = inputs[owner]
        if rows:
            return own.gather(1, where[..., None].expand_as(own))
        flat = own.reshape(len(owner), -1, total)
        return flat.gather(2, where[:, None].expand_as(flat)).reshape(own.shape)

    return (numbers - 1).clamp(min=0), elsewhere


def _differences(
    explainer: FeatureAblation | FeaturePermutation,
    model: Model,
    batch: Batch,
    target: Tensor,
    inputs: Tensor,
    segments: Tensor,
    draws: Tensor,
    changed: Changed,
) -> Tensor:
    """The mean over a sample's `draws` (B,) of f(x) − f(x changed), for every feature that may change, spread out.

    `changed(owner, feature, draw)` builds versions of the samples `owner`, all (R,).
    """
    counts = count(segments)
    n = int(counts.max())
    free = (torch.arange(n, device=inputs.device) < counts[:, None]) & changeable(
        explainer.features, batch, n
    )
    chosen = free.long().argsort(dim=1, descending=True, stable=True)

    def build(owner: Tensor, index: Tensor) -> Tensor | tuple[Tensor, Mapping[str, Tensor]]:
        return changed(owner, chosen[owner, index // draws[owner]], index % draws[owner])

    values = torch.zeros(len(batch), n, dtype=torch.float64, device=inputs.device)
    readout: Any = explainer.readout
    with torch.no_grad():
        whole = torch.cat(
            [
                s
                for *_, s in readouts(
                    model, batch, target, 1, readout, lambda owner, _: inputs[owner]
                )
            ]
        )
        for owner, index, scores in readouts(
            model, batch, target, free.sum(1) * draws, readout, build
        ):
            feature = chosen[owner, index // draws[owner]]
            values.index_put_(
                (owner, feature), (whole[owner] - scores) / draws[owner], accumulate=True
            )
    return spread_out(spread(values, segments), inputs, batch)

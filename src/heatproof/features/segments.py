"""Labels of features: how many there are, and values spread, summed and averaged over them.

Labels (B, *spatial) are whole numbers from 0: the number of the feature that each position belongs to.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from heatproof.errors import UserError

COLUMNS = "_columns"
"""The auxiliary tensor (B, F) that says which columns of a table are one feature, as those of one category are."""


def spatial(shape: Sequence[int]) -> tuple[int, ...]:
    """Return the positions of a sample: (H, W) of (B, C, H, W), likewise of volumes, (T,) of (B, C, T), (F,) of (B, F).

    >>> spatial((8, 3, 32, 48)), spatial((8, 12))
    ((32, 48), (12,))
    """
    if len(shape) < 2:
        raise UserError(
            f"inputs of shape {tuple(shape)} have no features: expected (B, F), (B, C, T) or (B, C, H, W)"
        )
    has_channels = len(shape) > 2
    return tuple(shape[2:] if has_channels else shape[1:])


def count(segments: Tensor) -> Tensor:
    """Return the number of features of each sample, (B,) int64.

    >>> count(torch.tensor([[0, 0, 1], [0, 1, 2]])).tolist()
    [2, 3]
    """
    return segments.flatten(1).amax(1) + 1


def spread(values: Tensor, segments: Tensor) -> Tensor:
    """Return a map (B, *spatial) that has at every position the value of its feature.

    `values` (B, n) has one value per feature, and `segments` (B, *spatial) the number of the feature at every position.

    >>> spread(torch.tensor([[0.5, 2.0]]), torch.tensor([[0, 0, 1]])).tolist()
    [[0.5, 0.5, 2.0]]
    """
    return values.gather(1, segments.flatten(1)).reshape(segments.shape)


def pool(maps: Tensor, segments: Tensor, n: int) -> Tensor:
    """Return the sum of a map over each of n features, (B, n); absent features have 0.

    Maps are (B, C, *spatial) or (B, *spatial); channels are summed as well, everything in float64.

    >>> pool(torch.tensor([[1.0, 2.0, 4.0]]), torch.tensor([[0, 0, 1]]), 3).tolist()
    [[3.0, 4.0, 0.0]]
    """
    values = maps.double()
    has_channels = maps.ndim > segments.ndim
    per_position = values.flatten(2).sum(1) if has_channels else values.flatten(1)
    # A scatter that adds every position's value to the entry of its feature.
    sums = per_position.new_zeros(len(maps), n)
    sums.scatter_add_(1, segments.flatten(1), per_position)
    return sums.to(maps.dtype)


def segment_means(x: Tensor, segments: Tensor) -> Tensor:
    """Return x with every value replaced by the mean of its feature, channel by channel.

    >>> segment_means(torch.tensor([[1.0, 3.0, 4.0]]), torch.tensor([[0, 0, 1]])).tolist()
    [[2.0, 2.0, 4.0]]
    """
    n = int(count(segments).max())
    area = pool(torch.ones_like(segments, dtype=x.dtype), segments, n).clamp_(min=1)
    channels = x.reshape(len(x), -1, *segments.shape[1:])
    means = []
    for channel in channels.unbind(1):
        feature_means = pool(channel, segments, n) / area
        means.append(spread(feature_means, segments))
    return torch.stack(means, 1).reshape(x.shape)


def keep(x: Tensor, fill: Tensor, kept: Tensor, segments: Tensor) -> Tensor:
    """Return R versions of one sample (R, C, *spatial), each with some features and `fill` in place of the others.

    x is (C, *spatial) or (*spatial), fill the same or with one for each version, kept (R, n) is boolean, and segments
    (*spatial) are the sample's labels.

    >>> keep(torch.ones(3), torch.zeros(3), torch.tensor([[True, False]]), torch.tensor([0, 0, 1])).tolist()
    [[1.0, 1.0, 0.0]]
    """
    weight = kept.to(x.dtype).index_select(1, segments.flatten())
    channel_axes = [1] * (x.ndim - segments.ndim)
    weight = weight.reshape(len(kept), *channel_axes, *segments.shape)
    # Exact at 0 and 1, and several times faster than torch.where on a CPU.
    return torch.lerp(fill, x, weight)

"""Time warping: series that run faster at first and slower later, or the other way round."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Annotated, ClassVar

import torch
from pydantic import Field
from torch import Tensor

from heatproof.axes.symmetry.groups.continuous import Sampled
from heatproof.axes.symmetry.groups.contract import (
    Additive,
    Moving,
    aligned,
    draw_keys,
    shape_text,
)
from heatproof.axes.symmetry.groups.distributions import Distribution, Draws, Spread
from heatproof.errors import UserError
from heatproof.types import Batch, parameter_class


@parameter_class
class TimeWarps(Draws, Sampled, Moving, Additive):
    """Series whose time u in [0, 1] is warped to φ_g(u) = u eᵍ / (1 − u + u eᵍ), with linear interpolation.

    The ends stay, the start runs eᵍ times as fast and the end e⁻ᵍ times. φ_g after φ_h is φ_(g + h), so that the warps are a
    group with one parameter; the element g is the logarithm of the factor, drawn uniformly from ±log(most) unless
    `distribution`, `sd` and `weighted` say otherwise, see `Draws`. Every value of a series or of its map is read at the
    time that it came from.

    >>> ramp = Batch(("a",), torch.linspace(0, 1, 5)[None, None])
    >>> TimeWarps(most=3).act(torch.tensor(math.log(3)), ramp).x[0, 0].tolist()
    [0.0, 0.1..., 0.25, 0.5, 1.0]
    """

    name: ClassVar[str] = "time_warp"
    exact: ClassVar[bool] = False
    rank: ClassVar[int] = 0
    most: Annotated[float, Field(gt=1, le=10)] = 1.5
    distribution: Distribution = "uniform"
    sd: Spread = None
    weighted: bool = False

    @property
    def title(self) -> str:
        """The group in words."""
        speeds = f"speeds changed by up to {self.most:g}{self.distribution_title}"
        return f"time warping: {speeds}, approximate (interpolating)"

    @property
    def limit(self) -> float:
        """The logarithm of the largest factor."""
        return math.log(self.most)

    def check(self, shape: Sequence[int]) -> None:
        """Refuse samples that are not series (C, T), and a distribution without its standard deviation."""
        if len(shape) != 2 or shape[1] < 2:
            raise UserError(f"time_warp needs series (B, C, T), got shape {shape_text(shape)}")
        self.check_distribution()

    def identity(self, batch: Batch) -> Tensor:
        """Return 0, ()."""
        return torch.zeros((), dtype=torch.float64, device=batch.x.device)

    def sample(self, batch: Batch, n: int, seed: int) -> Tensor:
        """Return logarithms of factors, (n, B)."""
        return self.drawn(draw_keys(seed, batch, self.name), n)

    def move(self, g: Tensor, maps: Tensor) -> Tensor:
        """Return maps (B, C, T) or (B, T) warped alike."""
        if maps.ndim not in (2, 3) or not maps.is_floating_point():
            raise UserError(
                f"time_warp moves floating-point maps (B, C, T) or (B, T), got {tuple(maps.shape)}"
            )
        g = aligned(self.name, g, self.rank, len(maps), maps.device).double().reshape(-1, 1)
        steps = maps.shape[-1]
        time = torch.linspace(0, 1, steps, dtype=torch.float64, device=maps.device)
        # The value at time φ(u) is that of time u, so it is read at the inverse of φ.
        slower = torch.exp(-g)
        source = time * slower / (1 - time + time * slower) * (steps - 1)
        before = source.floor().clamp(0, steps - 2).long()
        share = (source - before).to(maps.dtype)
        flat = maps.reshape(len(maps), -1, steps)
        before, share = (t.expand(len(maps), steps)[:, None] for t in (before, share))
        left = flat.gather(2, before.expand(flat.shape))
        right = flat.gather(2, (before + 1).expand(flat.shape))
        return torch.lerp(left, right, share.expand(flat.shape)).reshape(maps.shape)

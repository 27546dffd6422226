"""How elements of a continuous group are drawn: uniformly, or more of those near the identity."""

from __future__ import annotations

import math
from typing import Annotated, Literal

import torch
from pydantic import Field
from scipy import special
from torch import Tensor

from heatproof import rand
from heatproof.errors import UserError

Distribution = Literal["uniform", "normal"]
Spread = Annotated[float, Field(gt=0, allow_inf_nan=False)] | None
LARGEST_WEIGHT = 2.0
"""Weighted draws come from the uniform distribution half of the time, so that no weight is larger."""


class Draws:
    """How numbers on −limit … limit are drawn, for a group whose elements are such numbers.

    uniform            the score is the mean over the interval
    normal             a normal distribution with the standard deviation `sd`, cut off at the limits: the score is the mean
                       over this distribution, in which small elements count more
    normal, weighted   half of the draws are normal, half uniform, and each has the weight w(g) = u(g) / p(g), the ratio
                       of the uniform density to that of all draws. The score is the mean over the interval as for
                       "uniform" (importance sampling); it has a smaller error where scores differ near the identity

    A group mixes this in and has the fields `distribution`, `sd` and `weighted`, and the property `limit`.
    """

    distribution: Distribution
    sd: float | None
    weighted: bool

    @property
    def limit(self) -> float:
        """The largest element."""
        raise NotImplementedError

    @property
    def largest_weight(self) -> float:
        """The largest weight that an element can have."""
        return LARGEST_WEIGHT if self.weighted else 1.0

    def check_distribution(self) -> None:
        """Raise `UserError` where the parameters of the distribution contradict each other."""
        is_normal = self.distribution == "normal"
        if is_normal and self.sd is None:
            raise UserError(
                "distribution: normal needs sd, its standard deviation, such as {so2: {distribution: normal, sd: 15}}"
            )
        if not is_normal and (self.sd is not None or self.weighted):
            parameter = "weighted" if self.weighted else f"sd: {self.sd:g}"
            raise UserError(f"{parameter} is for distribution: normal, got distribution: uniform")

    @property
    def distribution_title(self) -> str:
        """What the elements are averaged over, as the end of a title; empty for a uniform mean."""
        if self.sd is None or self.weighted:
            return ""
        return f", normally distributed with sd {self.sd:g}"

    def drawn(self, keys: Tensor, n: int) -> Tensor:
        """Return n random numbers between −limit and limit for each of B random keys, (n, B) float64.

        They are uniform without `sd`, else from a normal distribution cut off at the limits. If `weighted`, half of them are
        normal and half uniform; `weights` makes up for that.
        """
        uniform = rand.uniform(keys, (n,)).T.double()
        if self.sd is None:
            return (2 * uniform - 1) * self.limit
        # Normal numbers by inverting their distribution function between the limits.
        share_below = special.ndtr(-self.limit / self.sd)
        level = share_below + uniform.cpu().numpy() * (1 - 2 * share_below)
        normal = self.sd * torch.from_numpy(special.ndtri(level)).to(uniform)
        if not self.weighted:
            return normal
        is_normal = rand.uniform(rand.fold(keys, 1), (n,)).T < 0.5
        second_uniform = rand.uniform(rand.fold(keys, 2), (n,)).T.double()
        return torch.where(is_normal, normal, (2 * second_uniform - 1) * self.limit)

    def weights(self, g: Tensor) -> Tensor | None:
        """Return the weights of random numbers g in a mean over the uniform distribution (importance sampling).

        Half of the numbers are drawn uniformly and half from a normal distribution between the limits, so the weight is
        u(g) / p(g) with the uniform density u and p = (u + normal) / 2, in the shape of g. None where all weights are 1.
        """
        if not self.weighted or self.sd is None:
            return None
        uniform_density = 1 / (2 * self.limit)
        share_inside = math.erf(self.limit / self.sd / math.sqrt(2))
        largest_density = 1 / (self.sd * math.sqrt(2 * math.pi) * share_inside)
        normal_density = largest_density * torch.exp(-((g.double() / self.sd) ** 2) / 2)
        return uniform_density / ((uniform_density + normal_density) / 2)

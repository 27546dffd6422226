"""Perturbations of tables (B, F): noise in units of each column, and values taken from other rows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass as plain_dataclass
from dataclasses import replace
from typing import Annotated, ClassVar

import torch
from pydantic import Field
from torch import Tensor

from heatproof.axes.stability.perturbations.contract import (
    Family,
    NonNegative,
    PerturbationDefaults,
    values_of,
)
from heatproof.errors import UserError
from heatproof.features.segments import COLUMNS, pool, spread
from heatproof.kinds import KindName
from heatproof.maps.chance import itself
from heatproof.rand import keys, normal, permutation, uniform
from heatproof.types import Batch, parameter_class


@parameter_class
class ColumnNoise(PerturbationDefaults):
    """x + σ s z with z standard normal and s the standard deviation of each column, `scale` or that of the references.

    z is a function of (seed, sample id) shared by all σ of a sweep. The references are a few rows of the data, the same
    for every shard and method; gaps among them are left out. A column that does not vary there, or holds nothing but 0
    and 1, as flags and one-hot columns do, stays as it is.

    >>> rows = Batch(ids=("a", "b", "c"), x=torch.tensor([[10.0, 0.0], [20.0, 1.0], [30.0, 1.0]]))
    >>> noise = ColumnNoise().bound(rows)
    >>> [round(s, 2) for s in noise.scale], (noise(rows, seed=0) == rows.x).all(0).tolist()
    ([8.16, 0.0], [False, True])
    """

    name: ClassVar[str] = "column_noise"
    family: ClassVar[Family] = "noise"
    kind: ClassVar[KindName | None] = "table"
    unit: ClassVar[str] = "σ"
    magnitude_field: ClassVar[str] = "sigma"
    stochastic: ClassVar[bool] = True
    sigma: NonNegative = 0.1
    scale: tuple[NonNegative, ...] | None = None

    def check(self, shape: Sequence[int]) -> None:
        """Refuse a sample shape (F,) that `scale` does not fit."""
        if self.scale is not None and len(self.scale) != shape[0]:
            raise UserError(
                f"column_noise has a scale of {len(self.scale)} numbers, but rows have {shape[0]} columns; give as many, "
                "or leave scale out"
            )

    def bound(self, references: Batch) -> ColumnNoise:
        """Return a copy with the standard deviations of the columns of `references`, unless it has a scale."""
        if self.scale is not None:
            return self
        rows = values_of(self, references).double()
        is_gap = ~rows.isfinite()
        mean = rows.masked_fill(is_gap, torch.nan).nanmean(0)
        squares = (rows - mean).square().masked_fill(is_gap, torch.nan)
        variance = squares.nanmean(0).nan_to_num(0)
        is_flag = ((rows == 0) | (rows == 1) | is_gap).all(0)
        scale = variance.sqrt().masked_fill(is_flag, 0)
        if not bool(scale.any()):
            raise UserError(
                f"column_noise would change nothing: among the {len(rows)} reference rows no column varies, other than "
                "between 0 and 1; give scale, the standard deviation of every column, or use column_swap"
            )
        return replace(self, scale=tuple(scale.tolist()))

    def __call__(self, batch: Batch, seed: int) -> Tensor:
        """Return the rows with noise; without a scale there is nothing to measure columns by."""
        x = values_of(self, batch)
        if self.scale is None:
            raise UserError(
                "column_noise needs rows to measure its columns by: call bound(rows) first, or give scale"
            )
        z = normal(keys(seed, batch.ids, "column_noise").to(x.device), x.shape[1:]).to(x.dtype)
        return x + self.sigma * x.new_tensor(self.scale) * z


@parameter_class
class ColumnSwap(PerturbationDefaults):
    """In a `fraction` of the columns, at least one, the value becomes that of another row, one of the references.

    Columns and row are drawn from (seed, sample id), so only values that occur are put in: for columns of categories,
    which noise would spoil. The row is never the sample's own, and columns in which the two agree are passed over;
    where there is no other row, the sample stays as it is.

    >>> rows = Batch(ids=("a", "b"), x=torch.tensor([[1.0, 2.0, 3.0], [7.0, 8.0, 9.0]]))
    >>> swapped = ColumnSwap(fraction=0.5).bound(rows)(rows, seed=0)
    >>> (swapped != rows.x).sum(1).tolist(), bool(((swapped == rows.x) | (swapped == rows.x.flip(0))).all())
    ([2, 2], True)
    """

    name: ClassVar[str] = "column_swap"
    family: ClassVar[Family] = "exchange"
    kind: ClassVar[KindName | None] = "table"
    unit: ClassVar[str] = "of the columns"
    magnitude_field: ClassVar[str] = "fraction"
    stochastic: ClassVar[bool] = True
    fraction: Annotated[float, Field(strict=True, allow_inf_nan=False, gt=0, le=1)] = 0.1

    def size(self, columns: int) -> int:
        """Return how many of the columns are swapped."""
        return max(1, int(self.fraction * columns + 0.5))

    def bound(self, references: Batch) -> Swapping:
        """Return the perturbation with the rows to take values from."""
        values_of(self, references)
        return Swapping(self, references)

    def __call__(self, batch: Batch, seed: int) -> Tensor:
        values_of(self, batch)
        raise UserError("column_swap needs other rows to take values from: call bound(rows) first")


@plain_dataclass(frozen=True)
class Swapping(PerturbationDefaults):
    """`ColumnSwap` with the rows it takes values from."""

    swap: ColumnSwap
    references: Batch

    def __call__(self, batch: Batch, seed: int) -> Tensor:
        """Return rows (B, F) with some columns of a reference; the columns of one category go together."""
        x, others = values_of(self.swap, batch), self.references
        if not len(others) or not len(batch):
            return x
        device = x.device

        # The other row of each sample: any reference but itself, with equal chance.
        is_itself = itself(batch.ids, others.ids).T.to(device)
        draw = uniform(keys(seed, batch.ids, "column_swap row").to(device), (len(others),))
        other_row = draw.masked_fill(is_itself, -1).argmax(1)
        values = others.x.to(x)[other_row]
        has_other = ~is_itself.all(1, keepdim=True)

        # The first columns, in a random order, of those in which the two rows differ.
        column = batch.aux.get(COLUMNS, torch.arange(x.shape[1]).expand(x.shape)).to(device)
        n = int(column.max()) + 1
        differs = (pool((values != x).float(), column, n) > 0) & has_other
        random_order = permutation(keys(seed, batch.ids, "column_swap").to(device), n).argsort(1)
        rank = random_order.masked_fill(~differs, n).argsort(dim=1, stable=True).argsort(1)
        is_swapped = differs & (rank < self.swap.size(n))
        return torch.where(spread(is_swapped, column), values, x)

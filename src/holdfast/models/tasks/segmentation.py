"""A class for every position of the input."""

from __future__ import annotations

from dataclasses import replace
from typing import Annotated, Any, ClassVar

import torch
from pydantic import Field
from pydantic.dataclasses import dataclass
from torch import Tensor

from holdfast.errors import UserError
from holdfast.models.network import scores_in
from holdfast.models.tasks.contract import (
    REGION,
    Aux,
    Named,
    Names,
    at,
    column_of,
    itself,
    no_probability,
    numbered,
    same_names,
)
from holdfast.types import STRICT


@dataclass(frozen=True, config=STRICT)
class Segmentation:
    """A class for every position: the mean logit of a class over the region where it was predicted is explained.

    The network gives (B, K, …); the class is `label`, a number or a name, or else the one that covers most positions
    of the sample beside `background`. Its region (B, …) is fixed on the sample as it is, or comes with the data as
    the auxiliary tensor `_region`. The prediction is unchanged while the class is then predicted in a region that
    overlaps with it by at least `overlap`, intersection over union. The table has K mean logits, then K overlaps.

    >>> output = torch.tensor([[[[0.0, 0.0, 9.0]], [[2.0, 4.0, 0.0]]]])
    >>> region = Segmentation().fix(output, {})
    >>> region.tolist(), Segmentation().table(output, {"_region": region}).tolist()
    ([[[True, True, False]]], [[0.0, 3.0, 0.0, 1.0]])
    """

    name: ClassVar[str] = "segmentation"
    exclusive: ClassVar[bool] = False
    fixes: ClassVar[str] = REGION
    readout: ClassVar[str] = "the mean logit of a class over the region where it is predicted"
    label: int | str | None = None
    overlap: Annotated[float, Field(gt=0, le=1)] = 0.5
    background: int | None = 0

    names = same_names
    probability = no_probability
    finished = itself

    @property
    def unchanged(self) -> str:
        """By how much the regions must overlap."""
        return f"the region of the class keeps an overlap (intersection over union) of at least {self.overlap:g}"

    def fix(self, output: Any, aux: Aux) -> Tensor:
        """Where the class is predicted, (B, …) boolean."""
        maps = _maps(output)
        predicted, classes = maps.argmax(1), torch.arange(maps.shape[1], device=maps.device)
        if self.label is None:
            sizes = (predicted[:, None] == classes[:, None]).sum(2)
            chosen = sizes.masked_fill(classes == (-1 if self.background is None else self.background), -1).argmax(1)
        else:
            column_of(self.name, self.label, maps)
            chosen = torch.full((len(maps),), int(self.label), device=maps.device)
        return (predicted == chosen[:, None]).reshape(len(maps), *scores_in(output).shape[2:])

    def table(self, output: Any, aux: Aux) -> Tensor:
        """K mean logits over the region, NaN where it is empty, and the overlap of each class with it, (B, 2 K)."""
        maps = _maps(output)
        region = aux[REGION].to(maps.device).bool().flatten(1)[:, None]
        if region.shape[2] != maps.shape[2]:
            raise UserError(f"the region has {region.shape[2]} positions, but the network gives {maps.shape[2]}")
        means = (maps * region).sum(2) / region.sum(2)
        predicted = maps.argmax(1)[:, None] == torch.arange(maps.shape[1], device=maps.device)[:, None]
        overlaps = (predicted & region).sum(2) / (predicted | region).sum(2).clamp(min=1)
        return torch.cat([means, overlaps.to(means)], 1)

    def target(self, table: Tensor) -> Tensor:
        """The class that is asked for, else the one whose region it is."""
        if self.label is not None:
            return torch.full((len(table),), int(self.label), device=table.device)
        return table[:, table.shape[1] // 2 :].argmax(1)

    def same(self, before: Tensor, after: Tensor, target: Tensor) -> Tensor:
        """Whether the regions overlap enough."""
        return at(after, target + after.shape[-1] // 2) >= self.overlap

    def change(self, before: Tensor, after: Tensor, target: int, named: Named) -> str:
        """How little the regions overlap."""
        left = float(after[target + len(after) // 2])
        return f"the region of {named(target)} keeps an overlap of {left:.2f}, less than {self.overlap:g}"

    def shown(self, row: Tensor, target: int, named: Named) -> str:
        """The name of the class."""
        return named(target)

    def numbered(self, classes: Names) -> Segmentation:
        """The task with the number of its class."""
        return self if self.label is None else replace(self, label=numbered("label", self.label, classes))


def _maps(output: Any) -> Tensor:
    maps = scores_in(output)
    if maps.ndim < 3 or maps.shape[1] < 2:
        raise UserError(f"segmentation reads outputs (B, classes, …), got {tuple(maps.shape)}")
    return maps.flatten(2)

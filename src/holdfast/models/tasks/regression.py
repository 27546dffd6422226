"""Predicting numbers."""

from __future__ import annotations

from dataclasses import replace
from typing import Annotated, Any, ClassVar

import torch
from pydantic import Field
from pydantic.dataclasses import dataclass
from torch import Tensor

from holdfast.errors import UserError
from holdfast.models.tasks.contract import (
    Aux,
    Named,
    Names,
    at,
    column_of,
    fixes_nothing,
    its_value,
    no_probability,
    numbered,
    rows_in,
    same_names,
)
from holdfast.types import STRICT

SHARE_OF_SPREAD = 0.1
"""By how many standard deviations of the references' predictions one may move unless a tolerance is given."""


@dataclass(frozen=True, config=STRICT)
class Regression:
    """A number: that of `output`, the number or name of an output, is explained, in the network's own units.

    The prediction is unchanged while it moves by at most `tolerance`, in these units; where that is left open, by at
    most a tenth of the standard deviation of the predictions for the reference samples.

    >>> task = Regression().finished(torch.tensor([[1.0], [3.0], [5.0]]))
    >>> task.tolerance, task.change(torch.tensor([3.0]), torch.tensor([5.0]), 0, str)
    (0.2, 'the prediction moved from 3 to 5, by more than 0.2')
    """

    name: ClassVar[str] = "regression"
    exclusive: ClassVar[bool] = False
    fixes: ClassVar[str] = ""
    readout: ClassVar[str] = "the predicted number"
    output: int | str | None = None
    tolerance: Annotated[float, Field(ge=0, allow_inf_nan=False)] | None = None

    names = same_names
    probability = no_probability
    shown = its_value
    fix = fixes_nothing

    @property
    def unchanged(self) -> str:
        """By how much the number may move."""
        if self.tolerance is None:
            return f"the number moves by at most {SHARE_OF_SPREAD:g} standard deviations of the references' predictions"
        return f"the number moves by at most {self.tolerance:g}"

    def table(self, output: Any, aux: Aux) -> Tensor:
        """The predicted numbers (B, outputs)."""
        return rows_in(output)

    def target(self, table: Tensor) -> Tensor:
        """The output that was chosen, or the only one."""
        if self.output is None and table.shape[1] > 1:
            raise UserError(
                f"the network predicts {table.shape[1]} numbers; say which one is explained: "
                "task={'regression': {'output': 0}}"
            )
        column_of(self.name, self.output or 0, table)
        return torch.full((len(table),), int(self.output or 0), device=table.device)

    def same(self, before: Tensor, after: Tensor, target: Tensor) -> Tensor:
        """Whether the number moved by at most the tolerance."""
        if self.tolerance is None:
            raise UserError("without reference samples give task={'regression': {'tolerance': 0.5}}, in its units")
        return (at(after, target) - at(before, target)).abs() <= self.tolerance

    def change(self, before: Tensor, after: Tensor, target: int, named: Named) -> str:
        """From where to where the number moved."""
        moved = f"from {before[target]:.4g} to {after[target]:.4g}"
        return f"the prediction moved {moved}, by more than {self.tolerance or 0:.2g}"

    def numbered(self, classes: Names) -> Regression:
        """The task with the number of its output."""
        return self if self.output is None else replace(self, output=numbered("output", self.output, classes))

    def finished(self, table: Tensor) -> Regression:
        """The task with a tolerance."""
        if self.tolerance is not None:
            return self
        spread = float(at(table, self.target(table)).double().std()) if len(table) > 1 else 0.0
        if not spread > 0:
            raise UserError(
                f"the predictions for the {len(table)} reference samples do not vary, so they do not say by how much "
                "one may move; give task={'regression': {'tolerance': 0.5}}, in its units"
            )
        return replace(self, tolerance=SHARE_OF_SPREAD * spread)

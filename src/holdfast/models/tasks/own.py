"""A readout of one's own: two functions."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Any, ClassVar

import torch
from pydantic import Field
from pydantic.dataclasses import dataclass
from torch import Tensor

from holdfast.errors import UserError
from holdfast.models.tasks.contract import (
    FIXED,
    Aux,
    Named,
    column_of,
    its_value,
    itself,
    no_probability,
    same_names,
)
from holdfast.types import STRICT


@dataclass(frozen=True, config=STRICT)
class Readout:
    """A task made of two functions, for whatever a network returns.

    `read(output, aux)` gives the readouts, (B,) or (B, K), of which `column` is explained; `keeps(before, after)` says
    of two tables (N, K) of them whether each prediction is unchanged, (N,) boolean. What has to stay as it was on the
    untouched sample, as the box of an object that was detected, is given by `fixing(output)`, a tensor (B, …), and
    is `_fixed` in `aux`. `readout` and `unchanged` are words for the report.

    >>> last = Readout(lambda output, aux: output[:, -1], lambda before, after: (before - after).abs()[:, 0] < 1)
    >>> last.table(torch.tensor([[1.0, 2.0, 7.0]]), {}).tolist()
    [[7.0]]
    """

    name: ClassVar[str] = "own"
    exclusive: ClassVar[bool] = False
    read: Callable[[Any, Any], Any]
    keeps: Callable[[Tensor, Tensor], Any]
    fixing: Callable[[Any], Tensor] | None = None
    column: Annotated[int, Field(ge=0)] = 0
    readout: str = "a readout of one's own"
    unchanged: str = "as its own function says"

    names = same_names
    numbered = itself
    finished = itself
    probability = no_probability
    shown = its_value

    @property
    def fixes(self) -> str:
        """The name of what `fixing` gives."""
        return FIXED if self.fixing is not None else ""

    def table(self, output: Any, aux: Aux) -> Tensor:
        """What `read` gives, (B, K)."""
        found = self.read(output, aux)
        if not isinstance(found, Tensor):
            raise UserError(f"the readout gave {type(found).__name__}; a tensor (B,) or (B, K) was expected")
        return found[:, None] if found.ndim == 1 else found

    def target(self, table: Tensor) -> Tensor:
        """The column that is explained."""
        column_of(self.name, self.column, table)
        return torch.full((len(table),), self.column, device=table.device)

    def same(self, before: Tensor, after: Tensor, target: Tensor) -> Tensor:
        """What `keeps` says of the rows."""
        rows = [table.expand_as(after).reshape(-1, after.shape[-1]) for table in (before, after)]
        kept = self.keeps(*rows)
        if not isinstance(kept, Tensor) or kept.shape != (len(rows[0]),):
            raise UserError(f"`keeps` of the readout must give a boolean tensor ({len(rows[0])},), got {kept!r:.60}")
        return kept.bool().reshape(after.shape[:-1])

    def change(self, before: Tensor, after: Tensor, target: int, named: Named) -> str:
        """From where to where the readout moved."""
        return f"the prediction changed: {self.readout} went from {before[target]:.4g} to {after[target]:.4g}"

    def fix(self, output: Any, aux: Aux) -> Tensor:
        """What `fixing` gives."""
        assert self.fixing is not None  # else `fixes` is empty
        return self.fixing(output)

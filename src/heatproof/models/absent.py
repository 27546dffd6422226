"""What stands in for the model of a study that has none: maps from elsewhere are scored by tests that need no pass."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from heatproof.models.model import Model
from heatproof.models.tasks.contract import Aux, BaseTask, Named
from heatproof.types import Batch

NAME = "no-model"
"""The entry in the column `model` of a run without a model."""
WITHOUT_MODEL = (
    "without one there are agreement, localisation by regions of the data, and evaluations of your own that have "
    "needs_model = False"
)
"""What a study without a model may ask."""


class NoNetwork(nn.Module):
    """A module without weights, for a `Model` needs one; it is never called."""

    differentiable = False


class NoPrediction(BaseTask):
    """The task of a study without a model: nothing is predicted, so nothing is explained and nothing can change."""

    name: ClassVar[str] = "none"
    fixes: ClassVar[str] = ""
    readout: ClassVar[str] = "nothing: there is no model"
    unchanged: ClassVar[str] = "always: there is no model"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, NoPrediction)

    def __hash__(self) -> int:
        return hash(self.name)

    def table(self, output: Any, aux: Aux) -> Tensor:
        """Return the output, which is a column of zeros."""
        zeros: Tensor = output
        return zeros

    def target(self, table: Tensor) -> Tensor:
        """Return column 0 for every sample."""
        return torch.zeros(len(table), dtype=torch.int64, device=table.device)

    def same(self, before: Tensor, after: Tensor, target: Tensor) -> Tensor:
        """Return that no prediction changed."""
        return torch.ones_like(target, dtype=torch.bool)

    def change(self, before: Tensor, after: Tensor, target: int, named: Named) -> str:
        """Return no words: nothing changes."""
        return ""

    def shown(self, row: Tensor, target: int, named: Named) -> str:
        """Return no words: nothing is predicted."""
        return ""


class NoModel(Model):
    """The model of a study without one. Its outputs are a column of zeros, which nothing reads and no pass makes.

    >>> NoModel().is_absent, NoModel().logits(torch.ones(2, 3)).shape, NoModel().passes
    (True, torch.Size([2, 1]), 0)
    """

    is_absent = True

    def __init__(self) -> None:
        super().__init__(NoNetwork(), name=NAME, task=NoPrediction())

    def logits(self, inputs: Tensor, aux: Mapping[str, Tensor] | None = None) -> Tensor:
        """Return zeros (B, 1)."""
        return torch.zeros(len(inputs), 1)


def target_of(model: Model, batch: Batch, table: Tensor) -> Tensor:
    """Return the explained column (B,) of each sample: the task's choice, or without a model the labels.

    Maps from elsewhere are those of the labels, as far as anyone can tell; −1 stands for an unknown label.

    >>> target_of(NoModel(), Batch(("a",), torch.ones(1, 2), label=torch.tensor([3])), torch.zeros(1, 1))
    tensor([3])
    """
    if not model.is_absent:
        return model.task.target(table)
    if batch.label is None:
        return torch.full((len(table),), -1)
    return batch.label.long().to(table.device)

"""Tasks without exclusive classes: a number, a class for every position, and a readout of one's own."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Annotated, Any, ClassVar

import torch
from pydantic import Field
from torch import Tensor

from heatproof.errors import UserError
from heatproof.models.network import scores_in
from heatproof.models.tasks.classes import Options
from heatproof.models.tasks.contract import (
    FIXED,
    REGION,
    Aux,
    BaseTask,
    Named,
    Names,
    at,
    output_number,
    repeated_column,
    rows_in,
)
from heatproof.types import parameter_class

SHARE_OF_SPREAD = 0.1
"""By how many standard deviations of the references' predictions one may move unless a tolerance is given."""


@parameter_class
class Regression(BaseTask):
    """A number: that of `output`, the number or name of an output, is explained, in the network's own units.

    The prediction is unchanged while it moves by at most `tolerance`, in these units; where that is left open, by at
    most a tenth of the standard deviation of the predictions for the reference samples.

    >>> task = Regression().finished(torch.tensor([[1.0], [3.0], [5.0]]))
    >>> task.tolerance, task.change(torch.tensor([3.0]), torch.tensor([5.0]), 0, str)
    (0.2, 'the prediction moved from 3 to 5, by more than 0.2')
    """

    name: ClassVar[str] = "regression"
    fixes: ClassVar[str] = ""
    readout: ClassVar[str] = "the predicted number"
    output: int | str | None = None
    tolerance: Annotated[float, Field(ge=0, allow_inf_nan=False)] | None = None

    @property
    def unchanged(self) -> str:
        """By how much the number may move."""
        if self.tolerance is None:
            return f"the number moves by at most {SHARE_OF_SPREAD:g} standard deviations of the references' predictions"
        return f"the number moves by at most {self.tolerance:g}"

    def table(self, output: Any, aux: Aux) -> Tensor:
        """Return the predicted numbers (B, outputs)."""
        return rows_in(output)

    def target(self, table: Tensor) -> Tensor:
        """Return which output is explained of each sample (B,): the chosen one, or the only one."""
        if self.output is None and table.shape[1] > 1:
            raise UserError(
                f"the network predicts {table.shape[1]} numbers; say which one is explained: "
                "task={'regression': {'output': 0}}"
            )
        return repeated_column(self.name, self.output or 0, table)

    def same(self, before: Tensor, after: Tensor, target: Tensor) -> Tensor:
        """Return whether each prediction moved by at most `self.tolerance`, given the outputs before and after a change."""
        if self.tolerance is None:
            raise UserError(
                "without reference samples give task={'regression': {'tolerance': 0.5}}, in its units"
            )
        return (at(after, target) - at(before, target)).abs() <= self.tolerance

    def change(self, before: Tensor, after: Tensor, target: int, named: Named) -> str:
        """Return a sentence saying from where to where the predicted number moved."""
        moved = f"from {before[target]:.4g} to {after[target]:.4g}"
        return f"the prediction moved {moved}, by more than {self.tolerance or 0:.2g}"

    def numbered(self, classes: Names) -> Regression:
        """Return the task with its output given by number, where it was given by name; `classes` are the names."""
        if self.output is None:
            return self
        return replace(self, output=output_number("output", self.output, classes))

    def finished(self, table: Tensor) -> Regression:
        """Return the task with a tolerance for how far a prediction may move and count as unchanged.

        If none was given, it is a tenth of the standard deviation of `table` (R, outputs), the predictions for the reference
        samples.
        """
        if self.tolerance is not None:
            return self
        spread = float(at(table, self.target(table)).double().std()) if len(table) > 1 else 0.0
        if not spread > 0:
            raise UserError(
                f"the predictions for the {len(table)} reference samples do not vary, so they do not say by how much "
                "one may move; give task={'regression': {'tolerance': 0.5}}, in its units"
            )
        return replace(self, tolerance=SHARE_OF_SPREAD * spread)


@parameter_class
class Answer(BaseTask):
    """The log-probability Σ_t log p(a_t | prompt, a_<t) of an answer to a prompt; see `heatproof.decoder`.

    It comes with the data, or is the greedy one for the sample as it is. The table's second column is its lead, the
    least difference between the logit of a_t and that of any other token: at least 0 where it is the greedy answer.

    >>> Answer().same(torch.tensor([-0.1, 2.0]), torch.tensor([-0.9, -1.0]), torch.tensor(0)).item()
    False
    """

    name: ClassVar[str] = "answer"
    fixes: ClassVar[str] = Options.fixes
    readout: ClassVar[str] = "the log-probability of the answer"
    unchanged: ClassVar[str] = "greedy decoding still gives the answer, or still gives another"
    table, fix = Options.table, Options.fix

    def target(self, table: Tensor) -> Tensor:
        """Return the explained column (B,) of the table, 0: the log-probability of the answer."""
        return repeated_column(self.name, 0, table)

    def probability(self, table: Tensor) -> Tensor:
        """Return the probabilities of the answer and of any other answer, (…, 2)."""
        probability = table[..., 0].exp()
        return torch.stack([probability, 1 - probability], -1)

    def same(self, before: Tensor, after: Tensor, target: Tensor) -> Tensor:
        """Return whether greedy decoding gives the answer both before and after a change, or neither time."""
        return (before[..., 1] >= 0) == (after[..., 1] >= 0)

    def change(self, before: Tensor, after: Tensor, target: int, named: Named) -> str:
        """Return a sentence saying whether greedy decoding now gives the answer or another one."""
        return f"greedy decoding gives {'another' if before[1] >= 0 else 'the'} answer; its log p is {after[0]:.3g}"


@parameter_class
class Segmentation(BaseTask):
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
    fixes: ClassVar[str] = REGION
    readout: ClassVar[str] = "the mean logit of a class over the region where it is predicted"
    label: int | str | None = None
    overlap: Annotated[float, Field(gt=0, le=1)] = 0.5
    background: int | None = 0

    @property
    def unchanged(self) -> str:
        """By how much the regions must overlap."""
        return f"the region of the class keeps an overlap (intersection over union) of at least {self.overlap:g}"

    def fix(self, output: Any, aux: Aux) -> Tensor:
        """Return the region whose class is explained, (B, …) boolean: the positions where that class is predicted.

        The class is `self.label`, or else the one predicted at most positions of the sample, leaving out the background.
        """
        maps = _maps(output)
        predicted = maps.argmax(1)
        if self.label is not None:
            chosen = repeated_column(self.name, self.label, maps)
        else:
            classes = torch.arange(maps.shape[1], device=maps.device)
            sizes = (predicted[:, None] == classes[:, None]).sum(2)
            if self.background is not None:
                sizes = sizes.masked_fill(classes == self.background, -1)
            chosen = sizes.argmax(1)
        region = predicted == chosen[:, None]
        return region.reshape(len(maps), *scores_in(output).shape[2:])

    def table(self, output: Any, aux: Aux) -> Tensor:
        """Return 2·K numbers per sample for K classes: mean logits over the region, then overlaps with it, (B, 2·K).

        The region (B, …) is in `aux`. The overlap of a class is the intersection over union of the region and the positions
        where the class is predicted. Means are NaN where the region is empty.
        """
        maps = _maps(output)
        region = aux[REGION].to(maps.device).bool().flatten(1)[:, None]
        if region.shape[2] != maps.shape[2]:
            raise UserError(
                f"the region has {region.shape[2]} positions, but the network gives {maps.shape[2]}"
            )
        means = (maps * region).sum(2) / region.sum(2)
        classes = torch.arange(maps.shape[1], device=maps.device)[:, None]
        predicted = maps.argmax(1)[:, None] == classes
        intersection = (predicted & region).sum(2)
        union = (predicted | region).sum(2).clamp(min=1)
        overlaps = intersection / union
        return torch.cat([means, overlaps.to(means)], 1)

    def target(self, table: Tensor) -> Tensor:
        """Return the explained class (B,): `self.label`, or else the class whose region it is, with an overlap of 1."""
        if self.label is not None:
            return repeated_column(self.name, self.label, table)
        overlaps = table[:, table.shape[1] // 2 :]
        return overlaps.argmax(1)

    def same(self, before: Tensor, after: Tensor, target: Tensor) -> Tensor:
        """Return whether the region of the class after a change overlaps with the original one by at least `self.overlap`."""
        column_of_overlap = target + after.shape[-1] // 2
        return at(after, column_of_overlap) >= self.overlap

    def change(self, before: Tensor, after: Tensor, target: int, named: Named) -> str:
        """Return a sentence saying how little the region of the class overlaps with the original one."""
        overlap = float(after[target + len(after) // 2])
        return f"the region of {named(target)} keeps an overlap of {overlap:.2f}, less than {self.overlap:g}"

    def shown(self, row: Tensor, target: int, named: Named) -> str:
        """The name of the class."""
        return named(target)

    def numbered(self, classes: Names) -> Segmentation:
        """Return the task with its class given by number, where it was given by name; `classes` are the names."""
        if self.label is None:
            return self
        return replace(self, label=output_number("label", self.label, classes))


def _maps(output: Any) -> Tensor:
    """Return the class scores at all positions, (B, classes, positions), of a segmentation network's output."""
    maps = scores_in(output)
    if maps.ndim < 3 or maps.shape[1] < 2:
        raise UserError(f"segmentation reads outputs (B, classes, …), got {tuple(maps.shape)}")
    return maps.flatten(2)


@parameter_class
class Readout(BaseTask):
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
    read: Callable[[Any, Any], Any]
    keeps: Callable[[Tensor, Tensor], Any]
    fixing: Callable[[Any], Tensor] | None = None
    column: Annotated[int, Field(ge=0)] = 0
    readout: str = "a readout of one's own"
    unchanged: str = "as its own function says"

    @property
    def fixes(self) -> str:
        """The name of what `fixing` gives."""
        return FIXED if self.fixing is not None else ""

    def table(self, output: Any, aux: Aux) -> Tensor:
        """Return what the user's function `self.read` gives for an output of the network, as a table (B, K)."""
        readouts = self.read(output, aux)
        if not isinstance(readouts, Tensor):
            raise UserError(
                f"the readout gave {type(readouts).__name__}; a tensor (B,) or (B, K) was expected"
            )
        return readouts[:, None] if readouts.ndim == 1 else readouts

    def target(self, table: Tensor) -> Tensor:
        """The column that is explained."""
        return repeated_column(self.name, self.column, table)

    def same(self, before: Tensor, after: Tensor, target: Tensor) -> Tensor:
        """Return whether each prediction is unchanged, as the user's function `self.keeps` decides.

        `after` (…, K) may have more dimensions than `before`, which broadcasts to it; `keeps` gets both as rows (N, K).
        """
        columns = after.shape[-1]
        rows_before = before.expand_as(after).reshape(-1, columns)
        rows_after = after.reshape(-1, columns)
        is_same = self.keeps(rows_before, rows_after)
        if not isinstance(is_same, Tensor) or is_same.shape != (len(rows_after),):
            raise UserError(
                f"`keeps` of the readout must give a boolean tensor ({len(rows_after)},), got {is_same!r:.60}"
            )
        return is_same.bool().reshape(after.shape[:-1])

    def change(self, before: Tensor, after: Tensor, target: int, named: Named) -> str:
        """Return a sentence saying from where to where the readout moved."""
        return f"the prediction changed: {self.readout} went from {before[target]:.4g} to {after[target]:.4g}"

    def fix(self, output: Any, aux: Aux) -> Tensor:
        """Return what the user's function `self.fixing` takes from the output for the unchanged samples, (B, …)."""
        assert self.fixing is not None  # else `fixes` is empty
        return self.fixing(output)

"""The contract of a task, the defaults of its methods, and functions that several tasks use."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, ClassVar, Protocol, Self, runtime_checkable

import torch
from torch import Tensor

from heatproof.errors import UserError, unknown
from heatproof.models.network import scores_in
from heatproof.types import Batch

Aux = Mapping[str, Tensor]
Names = Sequence[str] | None
Named = Callable[[int], str]
"""From a column to its name."""
REGION = "_region"
"""The auxiliary tensor (B, …) that says where in a map of outputs a sample is read."""
ANSWER = "answer"
"""The auxiliary tensor (B, L + T) of the answer's token ids where they stand behind a prompt, below 0 elsewhere."""
FIXED = "_fixed"
"""The auxiliary tensor (B, …) that a readout of one's own fixes on the sample as it is."""


@runtime_checkable
class Task(Protocol):
    """What a model is asked, with its parameters as fields of one frozen object.

    `exclusive` says that the columns of the table are classes of which one holds, that of the largest logit.
    `readout` and `unchanged` say in words what is explained, and when a prediction counts as unchanged. `fixes` names
    the auxiliary tensor that is computed once on the sample as it is, and is empty where none is.
    """

    name: ClassVar[str]
    exclusive: ClassVar[bool]

    @property
    def readout(self) -> str: ...

    @property
    def unchanged(self) -> str: ...

    @property
    def fixes(self) -> str: ...

    def table(self, output: Any, aux: Aux) -> Tensor:
        """Readouts (B, K) in whatever the network returned, differentiable; `aux` are those of the batch."""

    def target(self, table: Tensor) -> Tensor:
        """The column (B,) of each row that is explained."""

    def probability(self, table: Tensor) -> Tensor | None:
        """Probabilities (…, K) of a table (…, K); None where the task has none."""

    def same(self, before: Tensor, after: Tensor, target: Tensor) -> Tensor:
        """Whether a prediction is unchanged, (…,), from tables (…, K) and the explained columns (…,)."""

    def change(self, before: Tensor, after: Tensor, target: int, named: Named) -> str:
        """How a change from one row (K,) to another is said."""

    def shown(self, row: Tensor, target: int, named: Named) -> str:
        """The prediction of a row (K,) in words."""

    def names(self, classes: Names) -> Names:
        """Names of the columns, from those of the network's outputs."""

    def numbered(self, classes: Names) -> Task:
        """The task with an output that it gives by name given by its number."""

    def finished(self, table: Tensor) -> Task:
        """The task with what it leaves open taken from the table (R, K) of the reference samples."""

    def fix(self, output: Any, aux: Aux) -> Tensor:
        """The tensor (B, …) that `fixes` names, from the output on samples as they are."""


class BaseTask:
    """Defaults of most tasks: nothing depends on names, references or the sample as it is, and there are no classes.

    >>> BaseTask().names(["cat", "dog"]), BaseTask().shown(torch.tensor([0.5]), 0, str)
    (['cat', 'dog'], '0.5')
    """

    name: ClassVar[str] = "base"
    exclusive: ClassVar[bool] = False

    def names(self, classes: Names) -> Names:
        """The names of the network's outputs."""
        return classes

    def numbered(self, classes: Names) -> Self:
        """The task itself."""
        return self

    def finished(self, table: Tensor) -> Self:
        """The task itself."""
        return self

    def fix(self, output: Any, aux: Aux) -> Tensor:
        """Refused: the task fixes nothing on the sample as it is."""
        raise UserError(f"{self.name} fixes nothing on the sample as it is")

    def probability(self, table: Tensor) -> Tensor | None:
        """None: what is predicted is no class."""
        return None

    def shown(self, row: Tensor, target: int, named: Named) -> str:
        """The explained number."""
        return f"{row[target]:.4g}"


def rows_in(output: Any) -> Tensor:
    """Return the scores (B, K) in whatever a network returned; one number per sample makes one column.

    >>> rows_in((torch.ones(3), "more")).shape
    torch.Size([3, 1])
    """
    scores = scores_in(output)
    return scores[:, None] if scores.ndim == 1 else scores


def at(table: Tensor, column: Tensor) -> Tensor:
    """Return one entry of each row of a table (…, K): the one at the number in `column`, (…,).

    >>> at(torch.tensor([[5.0, 7.0]]), torch.tensor([1])).tolist()
    [7.0]
    """
    return table.gather(-1, column.to(table.device).expand(table.shape[:-1])[..., None])[..., 0]


def with_region(batch: Batch, x: Tensor, move: Callable[[Tensor], Tensor]) -> Batch:
    """Return samples with new values `x`, and with the region of each sample moved in the same way.

    Tests of symmetry move samples, such as by a rotation; `move` does the same with maps (B, …). A sample's region, in
    its auxiliary tensors, says which positions a segmentation task explains. Samples without one just get x.

    >>> batch = Batch(("a",), torch.zeros(1, 2), {REGION: torch.tensor([[True, False]])})
    >>> with_region(batch, batch.x.flip(1), lambda maps: maps.flip(1)).aux[REGION].tolist()
    [[False, True]]
    """
    region = batch.aux.get(REGION)
    if region is None:
        return batch.with_x(x)
    spatial = x.shape[min(x.ndim - 1, 2) :]  # without the channels, which sets and tables lack
    if region.shape[1:] != spatial:
        raise UserError(
            f"regions move with samples of their own size, {tuple(spatial)}, got {tuple(region.shape[1:])}"
        )
    moved = move(region.to(x.device).float())
    if not region.is_floating_point():
        moved = moved > 0.5  # a rotated mask has values between 0 and 1
    # Auxiliary tensors stay on one device, so that moved and unmoved batches can be joined.
    return replace(batch, x=x, aux={**batch.aux, REGION: moved.to(region.device)})


def repeated_column(task: str, column: Any, table: Tensor) -> Tensor:
    """Return the number of a column once for each row of a table (B, K, …), (B,); raise if the table lacks the column."""
    if not 0 <= int(column) < table.shape[1]:
        raise UserError(
            f"{task} reads output {column}, but the network has the outputs 0 to {table.shape[1] - 1}"
        )
    return torch.full((len(table),), int(column), device=table.device)


def output_number(what: str, output: int | str, classes: Names) -> int:
    """Return the number of a network's output, which is given by number or by its name among the `classes`.

    >>> output_number("label", "dog", ["cat", "dog"])
    1
    """
    if isinstance(output, int):
        return output
    if classes is None:
        raise UserError(
            f"{what} {output!r} is a name, and the model's outputs have none: give classes, or a number"
        )
    if output not in classes:
        raise unknown(what, output, classes)
    return list(classes).index(output)


def has_probability(task: Task) -> bool:
    """Return whether a task's readouts are classes with probabilities.

    >>> from heatproof.models.tasks import Binary, Regression
    >>> has_probability(Binary()), has_probability(Regression())
    (True, False)
    """
    return task.probability(torch.zeros(1, 2)) is not None

"""Tasks with classes of which one holds: one of many, yes or no, and one of several independent labels."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Annotated, Any, ClassVar, Literal

import torch
from pydantic import Field
from torch import Tensor

from heatproof.errors import UserError
from heatproof.models.tasks.contract import (
    ANSWER,
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

Outputs = Literal["logits", "probabilities"]


class Exclusive(BaseTask):
    """What tasks with exclusive classes share: the largest logit is the prediction, and is explained."""

    exclusive: ClassVar[bool] = True
    fixes: ClassVar[str] = ""

    def target(self, table: Tensor) -> Tensor:
        """Return the predicted class (B,): the one with the largest logit."""
        return table.argmax(1)

    def probability(self, table: Tensor) -> Tensor:
        """Return the class probabilities: the softmax of the logits."""
        return table.softmax(-1)

    def same(self, before: Tensor, after: Tensor, target: Tensor) -> Tensor:
        """Return whether the class `target`, which was predicted before a change, is predicted after it too."""
        return after.argmax(-1) == target

    def change(self, before: Tensor, after: Tensor, target: int, named: Named) -> str:
        """Return a sentence saying which class is predicted in place of which."""
        return f"top-1 changed from {named(target)} to {named(int(after.argmax()))}"

    def shown(self, row: Tensor, target: int, named: Named) -> str:
        """The name of the class."""
        return named(target)


@parameter_class
class Classification(Exclusive):
    """One of K classes: the logit of the predicted one is explained.

    `outputs` are "logits", or "probabilities" where the network ends in a softmax; their logarithms are read then.

    >>> task = Classification(outputs="probabilities")
    >>> task.table(torch.tensor([[0.25, 0.75]]), {}).softmax(1)
    tensor([[0.2500, 0.7500]])
    """

    name: ClassVar[str] = "classification"
    readout: ClassVar[str] = "the logit of the predicted class"
    unchanged: ClassVar[str] = "the class with the largest logit stays"
    outputs: Outputs | None = None

    def table(self, output: Any, aux: Aux) -> Tensor:
        """Return the logits (B, K) in a network's output; of probabilities, if it gives these, their logarithms."""
        scores = rows_in(output)
        if self.outputs != "probabilities":
            return scores
        return scores.clamp(min=torch.finfo(scores.dtype).tiny).log()


@parameter_class
class Options(Exclusive):
    """The likeliest of several answers to a prompt: the logits are their log-probabilities; see `heatproof.decoder`.

    >>> Options().target(torch.tensor([[-4.0, -0.5, -2.0]])).tolist()
    [1]
    """

    name: ClassVar[str] = "options"
    fixes: ClassVar[str] = ANSWER
    readout: ClassVar[str] = "the log-probability of the likeliest option"
    unchanged: ClassVar[str] = "the likeliest option stays"

    def table(self, output: Any, aux: Aux) -> Tensor:
        """Return the log-probabilities (B, K) of the options, which are the network's output."""
        return rows_in(output)

    def fix(self, output: Any, aux: Aux) -> Tensor:
        """Return at which positions behind the prompt an answer stands, (B, L + T), from the decoder's output."""
        return torch.as_tensor(output[ANSWER])


@parameter_class
class Binary(Exclusive):
    """Yes or no by one output z, the log-odds of "yes": the logits are −z/2 and z/2, so that both answers have maps.

    >>> Binary().table(torch.tensor([3.0]), {}).tolist()
    [[-1.5, 1.5]]
    """

    name: ClassVar[str] = "binary"
    readout: ClassVar[str] = "half the log-odds of the predicted answer"
    unchanged: ClassVar[str] = "the log-odds keep their sign"
    outputs: Outputs | None = None

    def table(self, output: Any, aux: Aux) -> Tensor:
        """Return the logits (B, 2) of no and yes, from the single output of a network."""
        scores = rows_in(output)
        if scores.shape[1] != 1:
            raise UserError(
                f"binary reads one output, and the network has {scores.shape[1]}; use classification"
            )
        return _two_sided(_log_odds(scores[:, 0], self.outputs))


@parameter_class
class MultiLabel(Exclusive):
    """Whether one of several independent labels holds: `label`, the number or name of an output z, its log-odds.

    With t = log(threshold / (1 − threshold)) the logits are −(z − t)/2 and (z − t)/2, so the prediction is unchanged
    while the label stays on its side of the `threshold`. Several labels are several models over the same weights.

    >>> task = MultiLabel(label=1, threshold=0.8)
    >>> table = task.table(torch.tensor([[9.0, 0.0]]), {})
    >>> task.target(table).tolist(), task.probability(table).tolist()
    ([0], [[0.5, 0.5]])
    """

    name: ClassVar[str] = "multi_label"
    readout: ClassVar[str] = (
        "half the log-odds of the label, or of its absence where that is predicted"
    )
    label: int | str
    threshold: Annotated[float, Field(gt=0, lt=1)] = 0.5
    outputs: Outputs | None = None

    @property
    def unchanged(self) -> str:
        """That the label stays on its side of the threshold."""
        return f"the label stays on its side of {self.threshold:g}"

    def table(self, output: Any, aux: Aux) -> Tensor:
        """Return the logits (B, 2) of the label's absence and presence; they are equal at the threshold."""
        scores = rows_in(output)
        odds = _log_odds(at(scores, repeated_column(self.name, self.label, scores)), self.outputs)
        return _two_sided(odds - self._log_odds_of_threshold)

    def probability(self, table: Tensor) -> Tensor:
        """Return the probabilities of absence and presence, from logits that are shifted by the threshold."""
        half = self._log_odds_of_threshold / 2
        return (table + table.new_tensor([-half, half])).softmax(-1)

    def names(self, classes: Names) -> Names:
        """Return the names of the two columns, such as "no cat" and "cat"; `classes` are the names of the outputs."""
        label = self.label
        if classes is not None and isinstance(label, int) and label < len(classes):
            name = classes[label]
        else:
            name = f"label {label}"
        return (f"no {name}", name)

    def numbered(self, classes: Names) -> MultiLabel:
        """Return the task with its label given by number, where it was given by name; `classes` are the names."""
        return replace(self, label=output_number("label", self.label, classes))

    @property
    def _log_odds_of_threshold(self) -> float:
        return math.log(self.threshold / (1 - self.threshold))


def _log_odds(scores: Tensor, outputs: Outputs | None) -> Tensor:
    """Return the log-odds that a network gives, or those of its probabilities."""
    if outputs != "probabilities":
        return scores
    return scores.logit(eps=torch.finfo(scores.dtype).eps)  # finite at 0 and 1


def _two_sided(odds: Tensor) -> Tensor:
    """Return log-odds z (B,) as two logits −z/2 and z/2, (B, 2), whose gradients differ in sign alone."""
    return torch.stack([-odds / 2, odds / 2], 1)

"""What removal sweeps say: accuracy, probability, logit and margin at every step, and one number per curve."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from heatproof.models.tasks import Classification, Task, at

CLASSES = Classification()
Readout = Literal["accuracy", "probability", "logit", "margin"]


def readouts(
    logits: Tensor,
    target: Tensor,
    truth: Tensor | None = None,
    task: Task = CLASSES,
    clean: Tensor | None = None,
) -> dict[Readout, Tensor]:
    """What can be read off a task's table (B, S, K): each (B, S) float64, NaN where it is not finite.

    accuracy: 1 where the largest logit is that of `truth` (B,), by default `target`, and NaN where truth is negative;
    probability and logit: those of `target` (B,); margin: its logit less the largest of the others. Without exclusive
    classes there is no margin, accuracy is 1 where the prediction is that of the `clean` table (B, K), and the logit
    is the number that is explained; tasks without probabilities have none.

    >>> found = readouts(torch.tensor([[[0.0, 1.0, 3.0]]]), torch.tensor([1]))
    >>> found["accuracy"].item(), found["logit"].item(), found["margin"].item()
    (0.0, 1.0, -2.0)
    """
    logits, target = logits.double(), target.to(logits.device)
    if not task.exclusive:
        return _of_numbers(
            logits, target, task, logits[:, 0] if clean is None else clean.to(logits)
        )
    truth = target if truth is None else truth.to(logits.device)
    at = target[:, None, None].expand(*logits.shape[:2], 1)
    finite = torch.isfinite(logits).all(-1)
    own = logits.gather(-1, at)[..., 0]
    found: dict[Readout, Tensor] = {
        "accuracy": (logits.argmax(-1) == truth[:, None])
        .double()
        .masked_fill(truth[:, None] < 0, torch.nan),
        "probability": task.probability(logits).gather(-1, at)[..., 0],  # type: ignore[union-attr]  # classes have it
        "logit": own,
        "margin": own - logits.scatter(-1, at, -torch.inf).amax(-1),
    }
    return {name: value.masked_fill(~finite, torch.nan) for name, value in found.items()}


def _of_numbers(table: Tensor, target: Tensor, task: Task, clean: Tensor) -> dict[Readout, Tensor]:
    columns = target[:, None].expand(table.shape[:2])
    is_same_prediction = task.same(clean[:, None].expand_as(table), table, columns)
    found: dict[Readout, Tensor] = {
        "accuracy": is_same_prediction.double(),
        "logit": at(table, columns),
    }
    probabilities = task.probability(table)
    if probabilities is not None:
        found["probability"] = at(probabilities, columns)
    finite = torch.isfinite(table).all(-1)
    return {name: value.masked_fill(~finite, torch.nan) for name, value in found.items()}


def area(fractions: Sequence[float], curve: Tensor, start: Tensor) -> Tensor:
    """The mean height of a curve (B, S) over removed fractions from 0 to the last, by the trapezoid rule, (B,).

    (1 / f_S) · Σ_s (f_s − f_{s−1}) (y_s + y_{s−1}) / 2, where f_0 = 0 and y_0 = `start` (B,), the clean value.

    >>> area((0.5, 1.0), torch.tensor([[0.5, 0.0]]), torch.tensor([1.0])).tolist()
    [0.5]
    """
    at = torch.tensor([0.0, *fractions], dtype=torch.float64, device=curve.device)
    height = torch.cat([start[:, None].to(curve.device), curve], 1).double()
    return torch.trapezoid(height, at, dim=1) / at[-1]


def road(morf: Tensor, lerf: Tensor) -> Tensor:
    """The mean over fractions of (LeRF − MoRF) / 2, (B, S) each to (B,); larger is better.

    The ROAD paper has no such number: it reports the accuracy after MoRF, and that after LeRF, at each fraction.

    >>> road(torch.tensor([[0.5, 0.25]]), torch.tensor([[1.0, 0.75]])).tolist()
    [0.25]
    """
    return ((lerf - morf) / 2).mean(1)


def aopc(fractions: Sequence[float], curve: Tensor, start: Tensor) -> Tensor:
    """The mean drop over the steps, the untouched input counted as step 0: Σ_{s=0..S} (y_0 − y_s) / (S + 1), (B,).

    >>> aopc((0.5, 1.0), torch.tensor([[0.5, 0.25]]), torch.tensor([1.0])).tolist()
    [0.4166...]
    """
    drops = start[:, None].to(curve.device) - curve
    return drops.sum(1) / (len(fractions) + (fractions[0] > 0))


def irof(fractions: Sequence[float], probability: Tensor, start: Tensor) -> Tensor:
    """The area over the curve of p / p_0 as segments go: 1 − area(p / p_0), (B,); larger is better.

    >>> irof((0.5, 1.0), torch.tensor([[0.5, 0.0]]), torch.tensor([1.0])).tolist()
    [0.5]
    """
    return 1 - area(
        fractions, probability / start[:, None].to(probability.device), torch.ones_like(start)
    )


@dataclass(frozen=True)
class Summary:
    """A curve in one number per sample, (B,), and the same number for a random order, where that is known."""

    value: Tensor
    chance: Tensor | None


READ_FROM = {
    "deletion_auc": "morf",
    "insertion_auc": "lerf",
    "pixel_flipping": "morf",
    "aopc": "morf",
}
"""The order whose curve a number is read from."""


def summaries(
    curves: Mapping[str, Mapping[Readout, Tensor]],
    fractions: Sequence[float],
    start: Mapping[Readout, Tensor],
    readout: Readout = "probability",
) -> dict[str, Summary]:
    """Return what the sweeps of one imputer say in one number per sample, by the name of the measure.

    `curves` maps orders to readouts (B, S), `start` holds the clean readouts (B,). road and aopc are of `readout`;
    deletion_auc is the area under the MoRF curve of the probability, insertion_auc that under the LeRF curve, both
    where there is one, and pixel_flipping the area under the MoRF curve of the logit. Their chance is the same number
    for the order "random". The chance of road is 0: a random order backwards is a random order.

    >>> morf = {"probability": torch.tensor([[0.5]]), "logit": torch.tensor([[1.0]])}
    >>> random = {"probability": torch.tensor([[0.7]]), "logit": torch.tensor([[2.0]])}
    >>> start = {"probability": torch.tensor([1.0]), "logit": torch.tensor([3.0])}
    >>> found = summaries({"morf": morf, "random": random}, (1.0,), start)
    >>> {name: (one.value.item(), round(one.chance.item(), 3)) for name, one in found.items()}
    {'deletion_auc': (0.75, 0.85), 'pixel_flipping': (2.0, 2.5), 'aopc': (0.25, 0.15)}
    """

    found: dict[str, Summary] = {}
    if "morf" in curves and "lerf" in curves:
        value = road(curves["morf"][readout], curves["lerf"][readout])
        found["road"] = Summary(value, torch.zeros_like(value))

    numbers = {
        order: _numbers_of(curve, fractions, start, readout) for order, curve in curves.items()
    }
    at_random = numbers.get("random", {})
    for measure, order in READ_FROM.items():
        if measure in numbers.get(order, {}):
            found[measure] = Summary(numbers[order][measure], at_random.get(measure))
    return found


def _numbers_of(
    curve: Mapping[Readout, Tensor],
    fractions: Sequence[float],
    start: Mapping[Readout, Tensor],
    readout: Readout,
) -> dict[str, Tensor]:
    """Return every number of one curve, whatever its order, by the name of the measure."""
    found = {
        "pixel_flipping": area(fractions, curve["logit"], start["logit"]),
        "aopc": aopc(fractions, curve[readout], start[readout]),
    }
    if "probability" in start:
        found["deletion_auc"] = area(fractions, curve["probability"], start["probability"])
        found["insertion_auc"] = found["deletion_auc"]
    return found

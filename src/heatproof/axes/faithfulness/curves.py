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
    """Return what can be read off a task's outputs (B, S, K): each (B, S) float64, NaN where an output is not finite.

    accuracy     1 where the largest logit is that of `truth` (B,), by default `target`; NaN where truth is negative
    probability  that of `target` (B,)
    logit        that of `target`
    margin       the logit of `target` less the largest of the others

    Without exclusive classes there is no margin, accuracy is 1 where the prediction is that of the `clean` outputs
    (B, K), and the logit is the number that is explained. Tasks without probabilities have none.

    >>> read = readouts(torch.tensor([[[0.0, 1.0, 3.0]]]), torch.tensor([1]))
    >>> read["accuracy"].item(), read["logit"].item(), read["margin"].item()
    (0.0, 1.0, -2.0)
    """
    logits, target = logits.double(), target.to(logits.device)
    if task.exclusive:
        truth = target if truth is None else truth.to(logits.device)
        read = _of_classes(logits, target, truth, task)
    else:
        clean = logits[:, 0] if clean is None else clean.to(logits)
        read = _of_numbers(logits, target, task, clean)
    is_finite = torch.isfinite(logits).all(-1)
    return {name: value.masked_fill(~is_finite, torch.nan) for name, value in read.items()}


def _of_classes(logits: Tensor, target: Tensor, truth: Tensor, task: Task) -> dict[Readout, Tensor]:
    """Return the readouts of a task whose classes exclude each other."""
    column = target[:, None, None].expand(*logits.shape[:2], 1)
    logit = logits.gather(-1, column)[..., 0]
    others = logits.scatter(-1, column, -torch.inf)
    is_right = (logits.argmax(-1) == truth[:, None]).double()
    probabilities = task.probability(logits)
    assert probabilities is not None  # exclusive classes have them
    return {
        "accuracy": is_right.masked_fill(truth[:, None] < 0, torch.nan),
        "probability": probabilities.gather(-1, column)[..., 0],
        "logit": logit,
        "margin": logit - others.amax(-1),
    }


def _of_numbers(
    outputs: Tensor, target: Tensor, task: Task, clean: Tensor
) -> dict[Readout, Tensor]:
    """Return the readouts of a task without exclusive classes."""
    columns = target[:, None].expand(outputs.shape[:2])
    is_same_prediction = task.same(clean[:, None].expand_as(outputs), outputs, columns)
    read: dict[Readout, Tensor] = {
        "accuracy": is_same_prediction.double(),
        "logit": at(outputs, columns),
    }
    probabilities = task.probability(outputs)
    if probabilities is not None:
        read["probability"] = at(probabilities, columns)
    return read


def area(fractions: Sequence[float], curve: Tensor, start: Tensor) -> Tensor:
    """Return the mean height of a curve (B, S) over removed fractions from 0 to the last, by the trapezoid rule, (B,).

    (1 / f_S) · Σ_s (f_s − f_{s−1}) (y_s + y_{s−1}) / 2, where f_0 = 0 and y_0 = `start` (B,), the clean value.

    >>> area((0.5, 1.0), torch.tensor([[0.5, 0.0]]), torch.tensor([1.0])).tolist()
    [0.5]
    """
    x = torch.tensor([0.0, *fractions], dtype=torch.float64, device=curve.device)
    height = torch.cat([start[:, None].to(curve.device), curve], 1).double()
    return torch.trapezoid(height, x, dim=1) / x[-1]


def road(morf: Tensor, lerf: Tensor) -> Tensor:
    """Return the mean over fractions of (LeRF − MoRF) / 2, (B, S) each to (B,); larger is better.

    The ROAD paper has no such number: it reports the accuracy after MoRF, and that after LeRF, at each fraction.

    >>> road(torch.tensor([[0.5, 0.25]]), torch.tensor([[1.0, 0.75]])).tolist()
    [0.25]
    """
    return ((lerf - morf) / 2).mean(1)


def aopc(fractions: Sequence[float], curve: Tensor, start: Tensor) -> Tensor:
    """Return the mean drop over the steps, the untouched input counted as step 0: Σ_{s=0..S} (y_0 − y_s) / (S + 1), (B,).

    >>> aopc((0.5, 1.0), torch.tensor([[0.5, 0.25]]), torch.tensor([1.0])).tolist()
    [0.4166...]
    """
    drops = start[:, None].to(curve.device) - curve
    # Step 0 is counted, unless the first fraction is 0 and so the curve has it already.
    steps = len(fractions) + (fractions[0] > 0)
    return drops.sum(1) / steps


def irof(fractions: Sequence[float], probability: Tensor, start: Tensor) -> Tensor:
    """Return the area over the curve of p / p_0 as segments go: 1 − area(p / p_0), (B,); larger is better.

    >>> irof((0.5, 1.0), torch.tensor([[0.5, 0.0]]), torch.tensor([1.0])).tolist()
    [0.5]
    """
    share_left = probability / start[:, None].to(probability.device)
    return 1 - area(fractions, share_left, torch.ones_like(start))


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
    >>> by_measure = summaries({"morf": morf, "random": random}, (1.0,), start)
    >>> {name: (s.value.item(), round(s.chance.item(), 3)) for name, s in by_measure.items()}
    {'deletion_auc': (0.75, 0.85), 'pixel_flipping': (2.0, 2.5), 'aopc': (0.25, 0.15)}
    """
    by_measure: dict[str, Summary] = {}
    if "morf" in curves and "lerf" in curves:
        value = road(curves["morf"][readout], curves["lerf"][readout])
        by_measure["road"] = Summary(value, torch.zeros_like(value))

    numbers = {
        order: _numbers_of(curve, fractions, start, readout) for order, curve in curves.items()
    }
    of_random = numbers.get("random", {})
    for measure, order in READ_FROM.items():
        if measure in numbers.get(order, {}):
            value = numbers[order][measure]
            by_measure[measure] = Summary(value, of_random.get(measure))
    return by_measure


def _numbers_of(
    curve: Mapping[Readout, Tensor],
    fractions: Sequence[float],
    start: Mapping[Readout, Tensor],
    readout: Readout,
) -> dict[str, Tensor]:
    """Return every number of one curve, whatever its order, by the name of the measure."""
    numbers = {
        "pixel_flipping": area(fractions, curve["logit"], start["logit"]),
        "aopc": aopc(fractions, curve[readout], start[readout]),
    }
    if "probability" in start:
        # Both are the area under a curve; they differ in the order that it belongs to.
        numbers["deletion_auc"] = area(fractions, curve["probability"], start["probability"])
        numbers["insertion_auc"] = numbers["deletion_auc"]
    return numbers

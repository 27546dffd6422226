"""A precision in place of a count: which rung of a fixed ladder a sample needs, found once on the sample as it is.

Of a method that draws, the error is the standard error of the map relative to its size, √(‖m − m′‖² / 2) / ‖m‖ for two
independent maps of as many draws; where the second is of the rung before, the square is over 3, and the larger counts,
so that what more draws would still move is seen too. Of integrated gradients it is the completeness gap,
|Σm − (f_t(x) − f_t(b))| / |f_t(x) − f_t(b)|. The rung is the first whose error is at most the one asked for, from the
second on, else the last: the cap. It is a function of seed, id and the sample alone; copies of the sample share it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Annotated, Any

import torch
from pydantic import BeforeValidator
from torch import Tensor

from heatproof.errors import UserError
from heatproof.models import Model
from heatproof.types import Batch

LADDER = tuple(16 << k for k in range(10))
"""Draws or steps, from 16 to 8192."""
_OTHER_DRAWS = 1 << 40


@dataclass(frozen=True)
class Agreed:
    """The error that was asked for, and (count, error reached) of samples by id; `found` grows while a run goes on."""

    asked: float
    found: Mapping[str, tuple[float, float]] = field(default_factory=dict)


def _asked(value: Any) -> Any:
    if value is None or isinstance(value, Agreed):
        return value
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value < 1:
        raise UserError(
            f"error is a number between 0 and 1, such as 0.05 for a twentieth of the map, got {value!r}"
        )
    return float(value)


Precision = Annotated[Any, BeforeValidator(_asked)]
"""The type of the field `error`: nothing, the error asked for, or what samples need for it."""


def settled(explainer: Any, model: Model, batch: Batch, target: Tensor, seed: int) -> Tensor:
    """The count that each sample needs for the error asked for, and the error that it then has, (B, 2) float64.

    >>> from heatproof.explainers import IntegratedGradients
    >>> model = Model(torch.nn.Sequential(torch.nn.Linear(3, 2), torch.nn.Softplus()))
    >>> asked, batch = IntegratedGradients(error=0.01), Batch(("a",), torch.ones(1, 3))
    >>> int(settled(asked, model, batch, torch.tensor([0]), seed=0)[0, 0])
    16
    """
    asked = explainer.error.asked if isinstance(explainer.error, Agreed) else explainer.error
    found = torch.zeros(len(batch), 2, dtype=torch.float64)
    active, before = torch.arange(len(batch)), None
    for count in LADDER:
        rung = _with_count(explainer, count)
        try:
            rung.check(model, batch.x.shape[1:])
        except UserError:
            if count == LADDER[-1]:
                raise
            continue  # too few for so many features
        part, classes = batch[active], target[active.to(target.device)]
        maps = rung(model, part, classes, seed).flatten(1).double()
        if hasattr(explainer, "steps"):
            other, size = maps, rung.promised(model, part, classes).double()
            off, size = (maps.sum(1) - size).abs(), size.abs()
        else:
            size, other = (
                maps.norm(dim=1),
                rung(model, part, classes, seed + _OTHER_DRAWS).flatten(1).double(),
            )
            off = (maps - other).norm(dim=1) / 2**0.5
            off = off if before is None else off.maximum((maps - before).norm(dim=1) / 3**0.5)
        error = torch.where(off > 0, off / size, 0.0).cpu()
        found[active] = torch.stack([torch.full_like(error, count), error], 1)
        going = ~(error <= asked) | (before is None and not hasattr(explainer, "steps"))
        active, before = active[going], other[going.to(other.device)]
        if not len(active):
            break
    return found


def precisely(explainer: Any, model: Model, batch: Batch, target: Tensor, seed: int) -> Tensor:
    """Maps (B, …) of an explainer that was asked for a precision, each with the count that its sample needs."""
    known = explainer.error.found if isinstance(explainer.error, Agreed) else {}
    new = [i for i, sample in enumerate(batch.ids) if sample not in known]
    if new:
        fresh = settled(explainer, model, batch[new], target[new], seed).tolist()
        known = {**known, **dict(zip((batch.ids[i] for i in new), map(tuple, fresh), strict=True))}
    counts = [int(known[sample][0]) for sample in batch.ids]
    maps: dict[int, Tensor] = {}
    for count in sorted(set(counts)):
        rows = [i for i, own in enumerate(counts) if own == count]
        made = _with_count(explainer, count)(model, batch[rows], target[rows], seed)
        maps.update(zip(rows, made, strict=True))
    return torch.stack([maps[i] for i in range(len(batch))])


def _with_count(explainer: Any, count: int) -> Any:
    return replace(
        explainer, error=None, **{"steps" if hasattr(explainer, "steps") else "samples": count}
    )

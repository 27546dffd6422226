"""Labels of samples: whole numbers as they are, and names by their rank."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
from torch import Tensor

from holdfast.errors import UserError


def whole_label(value: Any, what: str) -> int:
    """A label as an int; None, a missing one, is −1."""
    if value is None:
        return -1
    single = isinstance(value, Tensor | np.ndarray | np.generic) and math.prod(value.shape) == 1
    number = value.item() if single else value
    if isinstance(number, list | tuple | Tensor | np.ndarray):
        raise UserError(
            f"{what} must be one whole number, got several: {str(value)[:60]}; of several labels choose the one "
            "that is the target"
        )
    if not isinstance(number, int | float) or not math.isfinite(number) or number != int(number):
        raise UserError(f"{what} must be one whole number, got {type(value).__name__} {str(value)[:60]}")
    return int(number)


def whole_labels(values: Iterable[Any] | None, what: str) -> tuple[int, ...] | None:
    """Labels as ints; None where there are none.

    >>> whole_labels([3, np.int64(1), None, 2.0], "shapes")
    (3, 1, -1, 2)
    """
    return (
        None if values is None else tuple(whole_label(value, f"label {i} of {what}") for i, value in enumerate(values))
    )


def ranked(labels: Sequence[Any], among: Iterable[Any] = ()) -> tuple[list[int | None], tuple[str, ...]]:
    """Labels of any kind as 0 … K − 1 in their sorted order and that of others, and what each number stands for.

    >>> ranked([-1, 1, None, 1])
    ([0, 1, None, 1], ('-1', '1'))
    """
    distinct = sorted({*labels, *among} - {None})
    number: dict[Any, int | None] = {None: None, **{value: i for i, value in enumerate(distinct)}}
    return [number[value] for value in labels], tuple(f"{v:g}" if isinstance(v, float) else str(v) for v in distinct)

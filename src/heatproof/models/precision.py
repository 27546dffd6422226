"""Precisions that compute faster, what they do to a network, and gradients that do not vanish in them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Literal, get_args

import torch
from torch import Tensor

from heatproof.errors import unknown

Precision = Literal["float32", "tf32", "float16", "bfloat16"]
PRECISIONS: tuple[str, ...] = get_args(Precision)
_SIXTEEN_BITS = {"float16": torch.float16, "bfloat16": torch.bfloat16}
GRADIENT_SCALES = (1024.0, 1.0, 1 / 1024)
"""What gradients are multiplied by inside a 16-bit network, and then where they grew too large for float16. A power of
two changes no digit."""


def check_precision(name: Any) -> Precision:
    """Return the name itself; raise `UserError` with the nearest one if it is none.

    >>> check_precision("fp16")
    Traceback (most recent call last):
    heatproof.errors.UserError: unknown precision 'fp16'; did you mean 'float16'? ...
    """
    if name not in PRECISIONS:
        raise unknown("precision", str(name), PRECISIONS)
    precision: Precision = name
    return precision


def weight_type(name: str) -> torch.dtype | None:
    """Return the type that weights are converted to for a precision by name; None if they stay as they are.

    >>> weight_type("bfloat16"), weight_type("tf32")
    (torch.bfloat16, None)
    """
    return _SIXTEEN_BITS.get(check_precision(name))


@contextmanager
def arithmetic(name: str) -> Iterator[None]:
    """Set whether a GPU may round the factors of products to 10 bits (TF32) while the context is open.

    It may only for the precision `name` "tf32".

    >>> with arithmetic("float32"):
    ...     torch.backends.cuda.matmul.allow_tf32
    False
    """
    allowed = check_precision(name) == "tf32"
    before = torch.backends.cuda.matmul.allow_tf32
    torch.backends.cuda.matmul.allow_tf32 = allowed
    try:
        with torch.backends.cudnn.flags(
            enabled=torch.backends.cudnn.enabled,
            benchmark=torch.backends.cudnn.benchmark,
            allow_tf32=allowed,
        ):
            yield
    finally:
        torch.backends.cuda.matmul.allow_tf32 = before


def scale_gradient(value: Tensor, factor: float) -> Tensor:
    """Return the value unchanged, but with its gradient multiplied by a factor in the backward pass.

    float16 cannot hold numbers below 6e-8. A gradient that is multiplied where it enters the network and divided where
    it leaves keeps its small entries.

    >>> x = torch.ones(1, requires_grad=True)
    >>> scale_gradient(x, 8.0).backward()
    >>> x.grad.item()
    8.0
    """
    if factor == 1 or not (torch.is_grad_enabled() and value.requires_grad):
        return value
    scaled = value.view_as(value)
    scaled.register_hook(lambda gradient: gradient * factor)  # type: ignore[no-untyped-call]
    return scaled

"""GPU kernels, for the few searches and sums in which plain torch operations spend their time on moving memory.

Each has a twin in plain torch, which runs everywhere and defines what is computed. They are written in Triton, which
comes with torch's builds for CUDA.
"""

from __future__ import annotations

from importlib.util import find_spec
from typing import Any

from torch import Tensor

AVAILABLE = find_spec("triton") is not None
OPTIONS: dict[str, Any] = {"enable_fp_fusion": False}
"""Options of every launch: products are rounded before they are added, as on the CPU and in torch's operations."""


def fused(values: Tensor) -> bool:
    """Return whether a kernel can take these values.

    >>> import torch
    >>> fused(torch.ones(2))
    False
    """
    return AVAILABLE and values.is_cuda

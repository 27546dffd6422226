"""Run a model, an explainer or any other function in batches that fit into memory."""

from __future__ import annotations

import ctypes
import math
import os
import sys
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import TypeVar

import torch
from torch import Tensor

from heatproof.errors import UserError
from heatproof.models import Model
from heatproof.models.guards import why_not_read
from heatproof.models.precision import GRADIENT_SCALES
from heatproof.types import Batch, Explainer

PHOTOGRAPH_VALUES = 3 * 224 * 224
BATCH_SIZES = {"cpu": (8, 256), "cuda": (256, 1024)}
"""The batch size for photographs, and the largest one, which is for series and rows of tables.

A GPU gains little beyond these, and a batch size that is measured would differ from run to run.
"""
# Before torch 2.8 a fault of the device is no exception of its own.
DEVICE_FAULT = getattr(torch, "AcceleratorError", torch.OutOfMemoryError)

_TRIM_THRESHOLD, _TOP_PAD, _MMAP_THRESHOLD = -1, -2, -3
_MEBIBYTE = 1 << 20
_USERS_CHOICE = ("MALLOC_TRIM_THRESHOLD_", "MALLOC_TOP_PAD_", "MALLOC_MMAP_THRESHOLD_")
"""Variables of the environment by which users choose how glibc handles memory."""

Item = TypeVar("Item")
Result = TypeVar("Result")


@dataclass
class BatchRunner:
    """Runs a model in batches; the batch size is halved when memory runs out."""

    model: Model
    batch_size: int

    def __post_init__(self) -> None:
        self.model.rows = self.batch_size

    def map(
        self, function: Callable[[Batch, Tensor], Tensor], batch: Batch, extra: Tensor
    ) -> Tensor:
        """Return `function(batch, extra)`, computed in batches and concatenated.

        `extra` has a row per sample too. Where memory runs out, the batch size is halved and the batch tried again.
        """
        results: list[Tensor] = []
        start = 0
        while start < len(batch):
            stop = min(start + self.batch_size, len(batch))
            try:
                results.append(function(batch[start:stop], extra[start:stop]))
            except (RuntimeError, MemoryError) as error:
                if not is_out_of_memory(error):
                    raise
                if self.batch_size == 1:
                    shape = tuple(batch.x.shape[1:])
                    raise UserError(
                        f"out of memory with a single sample of shape {shape} on {self.model.device}"
                    ) from error
            else:
                start = stop
                continue
            # The failed pass frees its tensors only when its exception handler is left.
            self._halve_batch_size()
        return torch.cat(results)

    def _halve_batch_size(self) -> None:
        self.batch_size = max(1, self.batch_size // 2)
        self.model.rows = self.batch_size
        if self.model.device.type == "cuda":
            torch.cuda.empty_cache()

    def predict(self, batch: Batch) -> Tensor:
        """Return what the model's task reads off its outputs, (B, K) float32 on the CPU."""

        def logits(part: Batch, _: Tensor) -> Tensor:
            part = part.to(self.model.device)
            return self.model.logits(self.model.inputs(part), part.aux).float()

        return self._forward(logits, batch).cpu()

    def prepare(self, batch: Batch) -> Batch:
        """Return the samples with what the task fixes on unchanged samples, such as a region; see `Model.fixed`."""
        name = self.model.task.fixes
        if not name or name in batch.aux or not len(batch):
            return batch

        def fix(part: Batch, _: Tensor) -> Tensor:
            return self.model.fixed(part.to(self.model.device)).aux[name]

        fixed = self._forward(fix, batch)
        return replace(batch, aux={**batch.aux, name: fixed.to(batch.x.device)})

    def _forward(self, function: Callable[[Batch, Tensor], Tensor], batch: Batch) -> Tensor:
        """Return `function` of all samples without gradients; a failing network is a user's mistake."""
        try:
            with torch.no_grad():
                return self.map(function, batch, torch.zeros(len(batch)))
        except DEVICE_FAULT:
            raise
        except RuntimeError as error:  # mostly channels or a size that the network does not take
            shape = tuple(batch.x.shape[1:])
            reason = why_not_read(self.model.module, shape)
            detail = f"{reason} ({error})" if reason else str(error)
            raise UserError(
                f"{self.model.name} cannot predict samples of shape {shape}: {detail}"
            ) from error

    def explain(
        self, explainer: Explainer, name: str, batch: Batch, target: Tensor, seed: int
    ) -> Tensor:
        """Return an explainer's maps of the samples for the classes `target`, in float32 on the model's device.

        Maps have the shape of the inputs; of texts, one value per token. In float16, samples whose gradients overflow are
        explained again with gradients scaled down. `name` is the explainer's name in errors.
        """
        of_features = explainer.kind == "feature"
        may_overflow = self.model.precision == "float16" and of_features

        def explain_once(part: Batch, part_target: Tensor) -> Tensor:
            """Return the maps of a batch, checked, without gradients and in the shape of the inputs."""
            maps = explainer(self.model, part, part_target, seed)
            if not isinstance(maps, Tensor):
                raise UserError(
                    f"explainer {name!r} returned {type(maps).__name__}; "
                    "a tensor in the shape of the inputs is needed"
                )
            maps = maps.detach()
            if not of_features:
                return maps
            is_text = not part.x.is_floating_point()
            if is_text and maps.shape[:-1] == part.x.shape:
                maps = maps.sum(-1)  # the value of a token is the sum over its vector
            return repeat_channels(maps.float(), part.x.shape, name)

        def explain_part(part: Batch, part_target: Tensor) -> Tensor:
            """Return the maps of a batch; those that overflow are computed again with smaller and smaller gradients."""
            part, part_target = part.to(self.model.device), part_target.to(self.model.device)
            maps = explain_once(part, part_target)
            for scale in GRADIENT_SCALES[1:] if may_overflow else ():
                overflowed = (~torch.isfinite(maps)).flatten(1).any(1).nonzero().flatten()
                if len(overflowed):
                    with self.model.gradients_times(scale):
                        again = explain_once(part[overflowed.cpu()], part_target[overflowed])
                    maps = maps.index_copy(0, overflowed, again)
            return maps

        return self.map(explain_part, batch, target)


def default_batch_size(values: int, device: str = "cpu") -> int:
    """Return the batch size for inputs of so many values: few photographs, many rows of a table.

    On a CPU it is a power of two, and smaller for small images than their number of values suggests: networks for them
    have no early stride, and activations above 32 MiB are returned to the system and faulted in again.

    >>> default_batch_size(3 * 224 * 224), default_batch_size(3 * 32 * 32), default_batch_size(30)
    (8, 32, 256)
    >>> default_batch_size(3 * 224 * 224, "cuda")
    256
    """
    for_photographs, largest = BATCH_SIZES.get(device, BATCH_SIZES["cuda"])
    if device == "cpu":
        # The batch grows with the root of how many times smaller the inputs are than photographs.
        doublings = max(0, int(math.log2(PHOTOGRAPH_VALUES / max(values, 1)) / 2))
        return min(largest, for_photographs << doublings)
    # As many as need the memory of the photographs, but at least 8.
    same_memory = for_photographs * PHOTOGRAPH_VALUES // max(values, 1)
    return min(largest, max(min(8, for_photographs), same_memory))


def repeat_channels(maps: Tensor, shape: torch.Size, explainer: str) -> Tensor:
    """Return maps in the shape of the inputs; a map without channels, or with one, is repeated for every channel.

    >>> repeat_channels(torch.rand(2, 8, 8), torch.Size((2, 3, 8, 8)), "mine").shape
    torch.Size([2, 3, 8, 8])
    """
    if maps.shape == shape:
        return maps
    with_channel = maps[:, None] if maps.ndim == len(shape) - 1 else maps
    one_channel = torch.Size((shape[0], 1, *shape[2:]))
    if with_channel.ndim == len(shape) and with_channel.shape == one_channel:
        return with_channel.expand(shape).clone()
    raise UserError(
        f"explainer {explainer!r} returned maps of shape {tuple(maps.shape)} for inputs of shape {tuple(shape)}; "
        "they must agree, or have one channel"
    )


def is_out_of_memory(error: BaseException) -> bool:
    """Return whether an exception says that the device or the host has no memory left."""
    if isinstance(error, MemoryError | torch.OutOfMemoryError):
        return True
    text = str(error).lower()
    return "out of memory" in text or "can't allocate memory" in text or "not enough memory" in text


def prefetch(
    function: Callable[[Item], Result], items: Iterable[Item], device: torch.device
) -> Iterator[tuple[Item, Result]]:
    """Return pairs (item, function(item)) in order; on a GPU a thread computes them ahead, while the GPU is busy.

    On a CPU each is computed when it is asked for.

    >>> list(prefetch(lambda n: n * n, [2, 3], torch.device("cpu")))
    [(2, 4), (3, 9)]
    """
    if device.type == "cpu":
        return ((item, function(item)) for item in items)
    with_futures = []
    thread = ThreadPoolExecutor(1, "heatproof-prefetch")
    for item in items:
        with_futures.append((item, thread.submit(function, item)))
    thread.shutdown(wait=False)  # what was submitted is still computed
    return ((item, future.result()) for item, future in with_futures)


@lru_cache(maxsize=1)
def keep_freed_memory() -> bool:
    """Let glibc keep freed memory for the next tensor, and return whether it agreed.

    Otherwise every activation above a few megabytes is returned to the system and faulted in again page by page, which
    took up to half of the processor time of passes on a CPU. The setting holds for the whole process and costs memory
    that stays with it, so it is made when a study begins, not on import. Somebody who set malloc by the environment has
    decided otherwise.

    >>> keep_freed_memory() == sys.platform.startswith("linux")  # with glibc
    True
    """
    if not sys.platform.startswith("linux") or any(name in os.environ for name in _USERS_CHOICE):
        return False
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is None:  # another C library
        return False
    options = (
        (_MMAP_THRESHOLD, 32 * _MEBIBYTE),
        (_TRIM_THRESHOLD, 2**31 - 1),
        (_TOP_PAD, 64 * _MEBIBYTE),
    )
    return all([mallopt(option, value) == 1 for option, value in options])

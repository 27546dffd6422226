"""A model at work: batches that are halved when memory runs out, work beside the device, memory that is kept."""

from __future__ import annotations

import ctypes
import sys
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import TypeVar

import torch
from torch import Tensor

from heatproof.errors import UserError
from heatproof.models import Model
from heatproof.models.precision import GRADIENT_SCALES
from heatproof.types import Batch, Explainer

DEVICE_FAULT = getattr(torch, "AcceleratorError", torch.OutOfMemoryError)
"""What is no user's mistake; releases of torch before 2.8 do not tell it apart."""
_TRIM_THRESHOLD, _TOP_PAD, _MMAP_THRESHOLD = -1, -2, -3
_MEBIBYTE = 1 << 20
Result = TypeVar("Result")


@dataclass
class Workbench:
    """A model with its memory guard: calls in batches, halved when memory runs out."""

    model: Model
    batch_size: int

    def __post_init__(self) -> None:
        self.model.rows = self.batch_size

    def map(self, call: Callable[[Batch, Tensor], Tensor], batch: Batch, target: Tensor) -> Tensor:
        """`call` on successive batches, concatenated."""
        done: list[Tensor] = []
        start = 0
        while start < len(batch):
            stop = min(start + self.batch_size, len(batch))
            try:
                done.append(call(batch[start:stop], target[start:stop]))
            except (RuntimeError, MemoryError) as error:
                if not out_of_memory(error):
                    raise
                if self.batch_size == 1:
                    raise UserError(
                        f"out of memory with a single sample of shape {tuple(batch.x.shape[1:])} on {self.model.device}"
                    ) from error
            else:
                start = stop
                continue
            # Only here, outside the handler, has the failed pass let go of its tensors.
            self.batch_size = max(1, self.batch_size // 2)
            self.model.rows = self.batch_size
            if self.model.device.type == "cuda":
                torch.cuda.empty_cache()
        return torch.cat(done)

    def predict(self, batch: Batch) -> Tensor:
        """The task's table (B, K) on the CPU in float32."""

        def logits(part: Batch, _: Tensor) -> Tensor:
            moved = part.to(self.model.device)
            return self.model.logits(self.model.inputs(moved), moved.aux).float()

        return self._forward(logits, batch).cpu()

    def fixed(self, batch: Batch) -> Batch:
        """The samples with what the task fixes on samples as they are; see `Model.fixed`."""
        name = self.model.task.fixes
        if not name or name in batch.aux or not len(batch):
            return batch
        fixed = self._forward(
            lambda part, _: self.model.fixed(part.to(self.model.device)).aux[name], batch
        )
        return replace(batch, aux={**batch.aux, name: fixed.to(batch.x.device)})

    def _forward(self, call: Callable[[Batch, Tensor], Tensor], batch: Batch) -> Tensor:
        try:
            with torch.no_grad():
                return self.map(call, batch, torch.zeros(len(batch)))
        except DEVICE_FAULT:
            raise
        except RuntimeError as error:  # mostly channels or a size that the network does not take
            shape = tuple(batch.x.shape[1:])
            raise UserError(
                f"{self.model.name} cannot predict samples of shape {shape}: {error}"
            ) from error

    def explain(
        self, explainer: Explainer, name: str, batch: Batch, target: Tensor, seed: int
    ) -> Tensor:
        """Maps on the model's device, in float32; of tokens, one value each.

        Samples whose gradients outgrow float16 are explained again with gradients scaled down.
        """

        of_features = explainer.kind == "feature"

        def once(part: Batch, classes: Tensor) -> Tensor:
            found = explainer(self.model, part, classes, seed)
            if not isinstance(found, Tensor):
                given = type(found).__name__
                raise UserError(
                    f"explainer {name!r} returned {given}; a tensor in the shape of the inputs is needed"
                )
            found = found.detach()
            if not of_features:
                return found
            if not part.x.is_floating_point() and found.shape[:-1] == part.x.shape:
                found = found.sum(-1)  # a token's part is the sum over its vector
            return as_inputs(found.float(), part.x.shape, name)

        def maps(part: Batch, classes: Tensor) -> Tensor:
            part, classes = part.to(self.model.device), classes.to(self.model.device)
            found = once(part, classes)
            for scale in (
                GRADIENT_SCALES[1:] if self.model.precision == "float16" and of_features else ()
            ):
                lost = (~torch.isfinite(found)).flatten(1).any(1).nonzero().flatten()
                if len(lost):
                    with self.model.gradients_times(scale):
                        found = found.index_copy(0, lost, once(part[lost.cpu()], classes[lost]))
            return found

        return self.map(maps, batch, target)


def as_inputs(maps: Tensor, shape: torch.Size, explainer: str) -> Tensor:
    """Maps in the shape of the inputs; a map without channels, or with one, is repeated for every channel.

    >>> as_inputs(torch.rand(2, 8, 8), torch.Size((2, 3, 8, 8)), "mine").shape
    torch.Size([2, 3, 8, 8])
    """
    if maps.shape == shape:
        return maps
    one = maps[:, None] if maps.ndim == len(shape) - 1 else maps
    if (
        one.ndim == len(shape)
        and one.shape[0] == shape[0]
        and one.shape[1] == 1
        and one.shape[2:] == shape[2:]
    ):
        return one.expand(shape).clone()
    raise UserError(
        f"explainer {explainer!r} returned maps of shape {tuple(maps.shape)} for inputs of shape {tuple(shape)}; "
        "they must agree, or have one channel"
    )


def out_of_memory(error: BaseException) -> bool:
    """Whether an exception says that the device or the host has no memory left."""
    if isinstance(error, MemoryError | torch.OutOfMemoryError):
        return True
    text = str(error).lower()
    return "out of memory" in text or "can't allocate memory" in text or "not enough memory" in text


@contextmanager
def beside(
    device: torch.device, calls: Sequence[Callable[[], Result]]
) -> Iterator[Sequence[Callable[[], Result]]]:
    """The calls, made one after another in a thread of their own where the device is not the CPU itself.

    >>> with beside(torch.device("cpu"), [lambda: 2, lambda: 3]) as results:
    ...     [result() for result in results]
    [2, 3]
    """
    if device.type == "cpu":
        yield calls
        return
    with ThreadPoolExecutor(1, "heatproof-beside") as thread:
        yield [thread.submit(call).result for call in calls]


def keep_freed_memory() -> bool:
    """Let glibc keep what is freed for the next tensor; says whether it agreed.

    Otherwise every activation above a few megabytes is given back and faulted in again, page by page, which took a
    third of the processor time of passes on a CPU. It holds for the whole process, so only commands and workers, whose
    process is their own, ask for it.

    >>> keep_freed_memory() == sys.platform.startswith("linux")  # with glibc
    True
    """
    if not sys.platform.startswith("linux"):
        return False
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is None:  # another C library
        return False
    wanted = (
        (_MMAP_THRESHOLD, 32 * _MEBIBYTE),
        (_TRIM_THRESHOLD, 2**31 - 1),
        (_TOP_PAD, 64 * _MEBIBYTE),
    )
    return all([mallopt(option, value) == 1 for option, value in wanted])

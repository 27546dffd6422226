"""How many inputs per second a model takes, and the batch size at which it takes the most."""

from __future__ import annotations

import time
from urllib.parse import quote

import torch
from torch import Tensor

from holdfast.models import Model
from holdfast.models.batches import out_of_memory
from holdfast.runs.atomic import create_atomically
from holdfast.runs.digests import read_json, sealed
from holdfast.runs.storage import Place
from holdfast.types import Batch

SMALLEST = 8
LARGEST = 1024
WORTHWHILE = 1.05
"""A larger batch must be this much faster: it costs memory, and the last one of a shard is only partly filled."""
LONGEST_PASS = 0.25
"""Seconds that a pass on a CPU may take for a larger one to be tried, for measuring should not be felt."""


def pass_rate(model: Model, batch: Batch, rows: int, passes: int = 1, gradients: bool = True) -> float:
    """Inputs per second of passes with `rows` inputs, copies of the batch; a first one to warm up is not counted.

    With `gradients` the pass is differentiated by its input, unless that is not a number with a gradient.

    >>> pass_rate(Model(torch.nn.Linear(3, 2)), Batch(("a",), torch.ones(1, 3)), 4) > 0
    True
    """
    repeated = torch.arange(rows) % len(batch)
    filled = batch[repeated].to(model.device)
    inputs = model.inputs(filled).detach()

    def go() -> None:
        leaf = inputs.clone().requires_grad_(gradients and inputs.is_floating_point())
        with torch.set_grad_enabled(leaf.requires_grad):
            total = model.logits(leaf, filled.aux).sum()
            if total.requires_grad:
                torch.autograd.grad(total, leaf, allow_unused=True)

    counted = model.passes, model.gradient_passes, model.rows
    model.rows = rows
    try:
        go()
        _finish(inputs)
        begun = time.perf_counter()
        for _ in range(passes):
            go()
        _finish(inputs)
        return passes * rows / (time.perf_counter() - begun)
    finally:
        model.passes, model.gradient_passes, model.rows = counted


def best_rows(model: Model, batch: Batch, smallest: int = SMALLEST, largest: int = LARGEST) -> int:
    """The batch size beyond which passes get no faster, found by doubling it until they do not.

    It is measured on the network itself, not a compiled one, which would be compiled again for every size. Running out
    of memory ends the search.

    >>> best_rows(Model(torch.nn.Linear(3, 2)), Batch(("a",), torch.ones(1, 3)), largest=16) in (8, 16)
    True
    """
    on_cpu = model.device.type == "cpu"
    best, best_rate, rows = smallest, 0.0, smallest
    with model.uncompiled():
        while rows <= largest:
            try:
                rate = pass_rate(model, batch, rows, passes=1 if on_cpu else 3)
            except (RuntimeError, MemoryError) as error:
                if not out_of_memory(error):
                    raise
                break
            if rate < WORTHWHILE * best_rate:
                break
            best, best_rate = rows, rate
            if on_cpu and rows / rate > LONGEST_PASS:
                break
            rows *= 2
    if not on_cpu:
        torch.cuda.empty_cache()
    return best


def agreed_rows(root: Place, name: str, model: Model, batch: Batch) -> int:
    """The batch size that was measured first for this model on this kind of device in a run directory.

    Whoever comes later, after an interruption or in another process, computes with the same and so to the same digit.
    """
    path = root / "batch_sizes" / f"{quote(name, safe='')}@{quote(_kind_of(model.device), safe='')}.json"
    if not path.is_file():
        create_atomically(path, sealed({"batch_size": best_rows(model, batch)}))
    return int(read_json(path)["batch_size"])


def _kind_of(device: torch.device) -> str:
    if device.type == "cuda":
        return torch.cuda.get_device_name(device)
    return f"{device.type} with {torch.get_num_threads()} threads"


def _finish(tensor: Tensor) -> None:
    """Wait for the device."""
    if tensor.device.type == "cuda":
        torch.cuda.synchronize(tensor.device)

"""Explainers that cover parts of the input and watch the output: occlusion and RISE."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Annotated, ClassVar, Literal

import torch
from pydantic import Field
from pydantic.dataclasses import dataclass
from torch import Tensor

from heatproof import rand
from heatproof.errors import UserError
from heatproof.explainers.requested_error import RequestedError, explain_to_error
from heatproof.features import spatial
from heatproof.features.fill import is_set, origins
from heatproof.models import Model
from heatproof.types import STRICT, Batch, Method

Readout = Literal["probability", "logit"]


@dataclass(frozen=True, config=STRICT)
class Occlusion(Method):
    """Occlusion: how much the target's score drops when a window is covered.

    A window of `window` positions per axis moves by `stride`; the last ones are cut at the border. Position p gets the
    mean of f(x) − f(x covered) over the windows that contain p, in every channel. Windows are squares on images (B, C,
    H, W), cubes on volumes, intervals on series (B, C, T), on columns (B, F) and on the vectors of tokens (B, L, E),
    where the map has one value per token (B, L). They are filled with `fill` after normalisation. Costs one pass per
    window and sample, and one for the sample itself.

    With `circular`, windows go on at the other end. Where the stride divides the length, the maps then move with the
    input under cyclic shifts by multiples of the stride, for a model that such shifts do not change.

    >>> from heatproof.models import Model
    >>> net = torch.nn.Linear(3, 2, bias=False)
    >>> batch = Batch(ids=("a",), x=torch.ones(1, 3))
    >>> maps = Occlusion(window=1, stride=1)(Model(net), batch, torch.tensor([1]), seed=0)
    >>> torch.allclose(maps, net.weight[1:].detach(), atol=1e-6)
    True
    """

    name: ClassVar[str] = "occlusion"
    window: Annotated[int, Field(ge=1)] = 16
    stride: Annotated[int, Field(ge=1)] = 8
    fill: Annotated[float, Field(allow_inf_nan=False)] = 0.0
    readout: Readout = "logit"
    circular: bool = False

    def check(self, model: Model, shape: Sequence[int]) -> None:
        """Raise `UserError` where the windows do not fit or leave gaps; `shape` is that of a sample."""
        size = spatial((1, *shape))
        if self.window > min(size):
            raise UserError(
                f"occlusion window {self.window} is larger than the input's {'×'.join(map(str, size))} positions; "
                f"choose at most {min(size)}, for instance {max(1, min(size) // 8)}"
            )
        if self.stride > self.window:
            raise UserError(
                f"occlusion stride {self.stride} leaves gaps between windows of {self.window}; "
                f"choose at most {self.window}"
            )

    def __call__(self, model: Model, batch: Batch, target: Tensor, seed: int) -> Tensor:
        self.check(model, batch.x.shape[1:])
        require_order(self.name, batch)
        batch = batch.to(model.device)
        inputs = model.inputs(batch)
        if not inputs.is_floating_point():
            raise UserError(
                "occlusion covers numbers, and token ids are none: give Model(..., embedding=the layer's path), "
                "or use feature_ablation with features=Tokens(...)"
            )
        size = spatial(batch.x.shape)
        axes = [
            _windows(length, self.window, self.stride, self.circular, inputs.device)
            for length in size
        ]
        counts = [len(axis) for axis in axes]
        windows = math.prod(counts)

        def covered(owner: Tensor, index: Tensor) -> Tensor:
            inside = index.new_ones((len(index), *[1] * len(axes)), dtype=torch.bool)
            for dim, axis in enumerate(axes):
                shape = [len(index), *[1] * len(axes)]
                shape[dim + 1] = axis.shape[1]
                inside = inside & axis[index // math.prod(counts[dim + 1 :]) % counts[dim]].reshape(
                    shape
                )
            return inputs[owner].masked_fill_(beside_channels(inside, inputs, batch), self.fill)

        with torch.no_grad():
            whole = torch.cat(
                [
                    s
                    for *_, s in readouts(
                        model, batch, target, 1, self.readout, lambda o, _: inputs[o]
                    )
                ]
            )
            hidden = torch.cat(
                [s for *_, s in readouts(model, batch, target, windows, self.readout, covered)]
            )
        total = whole[:, None] - hidden.reshape(len(batch), windows)
        maps, overlaps = total.reshape(len(batch), *counts), total.new_ones(1, *counts)
        for axis in axes:  # windows are products of intervals: sum over them one axis at a time
            maps, overlaps = (
                torch.tensordot(part, axis.double(), ([1], [0])) for part in (maps, overlaps)
            )
        return spread_out(maps / overlaps, inputs, batch)


@dataclass(frozen=True, config=STRICT)
class Rise(Method):
    """RISE: the mean of random smooth masks, weighted by the target's score under each.

    A mask is a grid of `grid` cells per axis, each kept with probability `keep`, enlarged bilinearly to one cell more
    than the input and cut out at a random shift; masks come in pairs that keep a cell where the draw u of the one is
    below `keep` and 1 − u of the other is. The map is 1/(samples·keep) · Σ_j f(x ⊙ m_j) · m_j; x is normalised,
    so what is masked goes to zero after normalisation. For images, volumes and series (B, C, …). `error` asks for a
    precision in place of `samples` (see `heatproof.explainers.requested_error`).

    >>> from heatproof.models import Model
    >>> net = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(64, 2))
    >>> batch = Batch(ids=("a",), x=torch.ones(1, 1, 8, 8))
    >>> Rise(samples=10, grid=4)(Model(net), batch, torch.tensor([1]), seed=0).shape
    torch.Size([1, 1, 8, 8])
    """

    name: ClassVar[str] = "rise"
    stochastic: ClassVar[bool] = True
    samples: Annotated[int, Field(ge=2)] = 1000
    grid: Annotated[int, Field(ge=2)] = 7
    keep: Annotated[float, Field(gt=0, lt=1)] = 0.5
    readout: Readout = "probability"
    error: RequestedError = None

    def check(self, model: Model, shape: Sequence[int]) -> None:
        """Raise `UserError` unless inputs are images, volumes or series; `shape` is that of a sample."""
        if len(shape) not in (2, 3, 4):
            raise UserError(
                f"rise needs images, volumes or series (C, T), got samples of shape {tuple(shape)}"
            )
        finest = max(shape[1:])
        if self.grid > finest:
            raise UserError(
                f"rise grid {self.grid} is finer than the input; choose at most {finest}"
            )

    def __call__(self, model: Model, batch: Batch, target: Tensor, seed: int) -> Tensor:
        if self.error is not None:
            return explain_to_error(self, model, batch, target, seed)
        self.check(model, batch.x.shape[1:])
        require_order(self.name, batch)
        batch = batch.to(model.device)
        inputs = model.inputs(batch)
        size = spatial(inputs.shape)
        sides = size if len(size) > 1 else (1, *size)
        places = math.prod(size)
        cells = rand.keys(seed, batch.ids, "rise cells").to(inputs.device)
        shifts = rand.keys(seed, batch.ids, "rise shift").to(inputs.device)

        place = torch.arange(places, device=inputs.device).reshape(size)
        before = origins(batch, place.expand(len(batch), *size), places)

        def masks(owner: Tensor, index: Tensor) -> Tensor:
            drawn, shifted = (rand.fold(key[owner], index // 2) for key in (cells, shifts))
            made = smooth_masks(
                drawn, shifted, self.grid, self.keep, *sides, mirrored=index % 2 == 1
            )
            return (
                made
                if batch.moved is None
                else made.flatten(1).gather(1, before[owner]).reshape(made.shape)
            )

        def masked(owner: Tensor, index: Tensor) -> Tensor:
            return inputs[owner].mul_(masks(owner, index).reshape(len(owner), 1, *size))

        total = torch.zeros(len(batch), places, dtype=torch.float64, device=inputs.device)
        done = 0
        with torch.no_grad():
            for owner, index, scores in readouts(
                model, batch, target, self.samples, self.readout, masked
            ):
                first, done = done // self.samples, done + len(owner)
                last = -(
                    -done // self.samples
                )  # the few samples that this pass is about, known without asking a GPU
                belongs = (
                    owner == torch.arange(first, last, device=owner.device)[:, None]
                ) * scores
                total[first:last] += (
                    belongs @ masks(owner, index).flatten(1).double()
                )  # drawn again rather than kept
        return spread_out(
            (total / (self.samples * self.keep)).reshape(len(batch), *size), inputs, batch
        )


def smooth_masks(
    cells: Tensor,
    shifts: Tensor,
    grid: int,
    keep: float,
    *sides: int,
    mirrored: Tensor | None = None,
) -> Tensor:
    """Masks (R, *sides) in [0, 1], of two or three sides: random grids enlarged linearly, one per key pair (R,), (R,).

    Where `mirrored` (R,) says so, 1 − u takes the place of the uniform draw u of every cell.

    >>> k = rand.keys(0, ["a"], "x")
    >>> smooth_masks(k, k, 3, 0.5, 6, 9).shape
    torch.Size([1, 6, 9])
    """
    counts = [min(grid, side) for side in sides]
    drawn = rand.uniform(cells, tuple(counts))
    if mirrored is not None:
        drawn = torch.where(mirrored.reshape(-1, *[1] * len(sides)), 1 - drawn, drawn)
    on = (drawn < keep).float()
    where = rand.uniform(shifts, (len(sides),))
    *deep, down, across = (
        _enlarge(n, side, where[:, i])
        for i, (n, side) in enumerate(zip(counts, sides, strict=True))
    )
    if not deep:
        return down @ on @ across.mT
    return torch.einsum("rds,rshw->rdhw", deep[0], down[:, None] @ on @ across.mT[:, None])


def readouts(
    model: Model,
    batch: Batch,
    target: Tensor,
    repeats: int | Tensor,
    readout: Readout,
    build: Callable[[Tensor, Tensor], Tensor | tuple[Tensor, Mapping[str, Tensor]]],
) -> Iterator[tuple[Tensor, Tensor, Tensor]]:
    """The target's score for `repeats` altered versions of each sample, at most `model.rows` inputs per pass.

    Version `index` of sample `owner`, both (R,) int64, is built when its turn comes by `build(owner, index)`, which may
    also give auxiliary tensors of its own, as (inputs, aux). Yields (owner, index, scores) with float64 scores (R,), in
    the order of samples and versions; `repeats` is one number or one per sample (B,). The batch has to be on the
    model's device.

    >>> from heatproof.models import Model
    >>> model, batch = Model(torch.nn.Linear(2, 2), rows=3), Batch(ids=("a", "b"), x=torch.ones(2, 2))
    >>> chunks = readouts(model, batch, torch.tensor([0, 1]), 2, "logit", lambda owner, index: batch.x[owner])
    >>> [(owner.tolist(), index.tolist()) for owner, index, scores in chunks]
    [([0, 0, 1], [0, 1, 0]), ([1], [1])]
    """
    repeats = torch.as_tensor(repeats, device=batch.x.device).expand(len(batch))
    target = target.to(batch.x.device)
    first = repeats.cumsum(0) - repeats
    for rows in torch.split(torch.arange(int(repeats.sum()), device=batch.x.device), model.rows):
        owner = torch.searchsorted(first, rows, right=True) - 1
        index = rows - first[owner]
        built = build(owner, index)
        own = {name: value[owner] for name, value in batch.aux.items()}
        versions, aux = built if isinstance(built, tuple) else (built, own)
        logits = model.logits(versions, aux).double()
        chance = model.task.probability(logits) if readout == "probability" else None
        scores = logits if chance is None else chance
        yield owner, index, scores.gather(1, target[owner, None])[:, 0]


def beside_channels(values: Tensor, inputs: Tensor, batch: Batch) -> Tensor:
    """Values (R, *spatial) with a dimension of 1 where the inputs have channels, or vectors for token ids.

    >>> x = torch.zeros(2, 3, 4)
    >>> beside_channels(torch.zeros(2, 4), x, Batch(("a", "b"), x)).shape
    torch.Size([2, 1, 4])
    >>> beside_channels(torch.zeros(2, 3), x, Batch(("a", "b"), torch.zeros(2, 3).long())).shape
    torch.Size([2, 3, 1])
    """
    if values.ndim == inputs.ndim:
        return values
    return values[:, None] if inputs.ndim == batch.x.ndim else values[..., None]


def spread_out(values: Tensor, inputs: Tensor, batch: Batch) -> Tensor:
    """Values (B, *spatial) as a map: repeated over the channels of the inputs, but one value per token for token ids.

    >>> x = torch.zeros(2, 3, 4)
    >>> spread_out(torch.zeros(2, 4), x, Batch(("a", "b"), x)).shape
    torch.Size([2, 3, 4])
    """
    if not batch.x.is_floating_point():
        return (values if values.ndim == batch.x.ndim else values[..., 0]).float()
    return beside_channels(values.to(inputs.dtype), inputs, batch).expand_as(inputs).contiguous()


def require_order(name: str, batch: Batch) -> None:
    """Raise `UserError` for sets and graphs, whose elements have no neighbours in a row."""
    if is_set(batch):
        raise UserError(
            f"{name} covers neighbouring positions, and the elements of sets and graphs have no order; "
            "use feature_ablation with features=elements"
        )


def _windows(length: int, window: int, stride: int, circular: bool, device: torch.device) -> Tensor:
    """Which positions each window along one axis covers, (windows, length) boolean."""
    count = -(-length // stride) if circular else -(-(length - window) // stride) + 1
    ahead = (
        torch.arange(length, device=device) - torch.arange(count, device=device)[:, None] * stride
    )
    if circular:
        ahead = ahead % length
    return (ahead >= 0) & (ahead < window)


def _enlarge(cells: int, length: int, shift: Tensor) -> Tensor:
    """Bilinear weights (R, length, cells) from cells to positions, cut out at a random part of a cell, shift (R,)."""
    size = -(-length // cells)
    position = torch.arange(length, device=shift.device) + (shift * size).floor()[:, None]
    centre = ((position + 0.5) * cells / ((cells + 1) * size) - 0.5).clamp(0, cells - 1)
    return (1 - (centre[..., None] - torch.arange(cells, device=shift.device)).abs()).clamp(min=0)

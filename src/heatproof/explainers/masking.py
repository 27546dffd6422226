"""Occlusion and RISE, which cover parts of the input and measure how the output changes."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Annotated, Any, ClassVar, Literal, Self

import torch
from pydantic import Field
from torch import Tensor

from heatproof import rand
from heatproof.errors import UserError
from heatproof.explainers.background import (
    BackgroundField,
    Fills,
    NumberOrSample,
    background_fills,
    background_of,
)
from heatproof.explainers.requested_error import RequestedError, explain_to_error
from heatproof.explainers.undefined import HAS_NO_ORDER, NEEDS_VECTORS, on
from heatproof.features import spatial
from heatproof.features.fill import is_set, origins
from heatproof.features.segments import COLUMNS
from heatproof.kinds import TABLE, kind_of
from heatproof.models import Model
from heatproof.types import Batch, Explainer, parameter_class

Readout = Literal["probability", "logit"]
MakeVersions = Callable[[Tensor, Tensor], Tensor | tuple[Tensor, Mapping[str, Tensor]]]
"""A function (sample, version) of two numbers (R,) int64 that makes these versions of these samples of a batch.

It returns inputs of the network (R, …), or these with auxiliary tensors of their own, as (inputs, aux). Without them a
version has the auxiliary tensors of its sample.
"""
Side = Annotated[int, Field(ge=1)]
Sides = Side | tuple[Side, ...]
"""A number of positions for all axes, or one for each."""
_OCCLUSION_UNDEFINED_ON = {**HAS_NO_ORDER, **NEEDS_VECTORS}
_RISE_UNDEFINED_ON = {
    **HAS_NO_ORDER,
    **on("its smooth masks need positions in a row, and columns of a table have no order", "table"),
    **on(
        "its smooth masks are made for images, volumes and series; use lime or kernel_shap with features: tokens",
        "text",
        "token ids",
    ),
}


@parameter_class
class Occlusion(Explainer):
    """Occlusion: how much the target's score drops when a window is covered.

    A window of `window` positions per axis moves by `stride`; both are one number or one per axis. The last windows are
    cut at the border. Position p gets the mean of f(x) − f(x covered) over the windows that contain p, in every channel.
    There are windows on images (B, C, H, W), volumes, series (B, C, T), columns (B, F), and on the vectors of tokens (B,
    L, E), where the map has one value per token (B, L). They are filled with `fill`, a number after normalisation or a
    sample in the data's own units. With a `background`, f(x covered) is the mean over its rows in the window; in a study
    of tables these are the reference samples. Costs one pass per window, row and sample, and one for the sample itself.
    The default windows of a table are single columns, where all columns of one category count as one.

    With `circular`, windows wrap around at the border. If the stride divides the length and the model is invariant
    under cyclic shifts by multiples of the stride, the maps then shift with the input.

    >>> from heatproof.models import Model
    >>> net = torch.nn.Linear(3, 2, bias=False)
    >>> batch = Batch(ids=("a",), x=torch.ones(1, 3))
    >>> maps = Occlusion(window=1, stride=1)(Model(net), batch, torch.tensor([1]), seed=0)
    >>> torch.allclose(maps, net.weight[1:].detach(), atol=1e-6)
    True
    """

    name: ClassVar[str] = "occlusion"
    whole_features = True
    undefined_on = _OCCLUSION_UNDEFINED_ON
    cost = "1 pass per window"

    window: Sides = 16
    stride: Sides = 8
    fill: NumberOrSample | None = None
    readout: Readout = "logit"
    circular: bool = False
    background: BackgroundField = None

    def configured_for(self, model: Model, sample: Batch) -> Self:
        """Return a copy with windows of one column on a table, where no others were chosen."""
        is_default = (self.window, self.stride) == (Occlusion.window, Occlusion.stride)
        if kind_of(model, sample) is not TABLE or not is_default:
            return super().configured_for(model, sample)
        return Explainer.configured_for(replace(self, window=1, stride=1), model, sample)

    def check(self, model: Model, shape: Sequence[int]) -> None:
        """Raise `UserError` where the windows do not fit or leave gaps; `shape` is that of a sample."""
        size = spatial((1, *shape))
        windows = _per_axis("window", self.window, size)
        strides = _per_axis("stride", self.stride, size)
        for length, window, stride in zip(size, windows, strides, strict=True):
            if window > length:
                raise UserError(
                    f"occlusion window {self.window} is larger than the input's {'×'.join(map(str, size))} positions; "
                    f"choose at most {length}, for instance {max(1, length // 8)}"
                )
            if stride > window:
                raise UserError(
                    f"occlusion stride {self.stride} leaves gaps between windows of {self.window}; "
                    f"choose at most {window}"
                )

    def __call__(self, model: Model, batch: Batch, target: Tensor, seed: int) -> Tensor:
        """Return occlusion maps (B, …) of the classes `target` (B,); `seed` is unused.

        A window's value is how far the score falls when it is covered; a position's is the mean over its windows.
        """
        self.check(model, batch.x.shape[1:])
        require_order(self.name, batch)
        batch = batch.to(model.device)
        inputs = model.inputs(batch)
        if not inputs.is_floating_point():
            raise UserError(
                "occlusion covers numbers, and token ids are none: give Model(..., embedding=the layer's path), "
                "or use feature_ablation with features=Tokens(...)"
            )
        # A category of a table takes several values of a sample; COLUMNS says which column each value belongs to.
        columns = batch.aux.get(COLUMNS)
        size = spatial(batch.x.shape) if columns is None else (int(columns.max()) + 1,)
        axes = []
        windows_per_axis = _per_axis("window", self.window, size)
        strides = _per_axis("stride", self.stride, size)
        for length, window, stride in zip(size, windows_per_axis, strides, strict=True):
            axes.append(_windows(length, window, stride, self.circular, inputs.device))
        counts = [len(axis) for axis in axes]
        windows = math.prod(counts)

        rows = background_of(self)
        if rows is None:
            constant: Any = 0.0 if self.fill is None else self.fill
            fills = Fills(torch.full_like(inputs, constant))
        else:
            fills = background_fills(self.name, rows, model, batch)

        def covered(sample: Tensor, version: Tensor) -> Tensor:
            """Return R inputs, each with one window covered: version = window · fills + fill of the sample's input."""
            window, fill = version // len(fills), version % len(fills)
            inside = window.new_ones((len(window), *[1] * len(axes)), dtype=torch.bool)
            for dim, axis in enumerate(axes):
                # `window` counts the windows row by row, as a position in a grid of shape `counts`.
                index_on_axis = window // math.prod(counts[dim + 1 :]) % counts[dim]
                shape = [len(window), *[1] * len(axes)]
                shape[dim + 1] = axis.shape[1]
                inside = inside & axis[index_on_axis].reshape(shape)
            if columns is not None:
                inside = inside.gather(1, columns[sample].to(inside.device))
            is_covered = beside_channels(inside, inputs, batch)
            return torch.where(is_covered, fills.at(sample, fill), inputs[sample])

        with torch.no_grad():
            original = readout_scores(
                model, batch, target, 1, self.readout, lambda sample, version: inputs[sample]
            )
            scores = readout_scores(
                model, batch, target, windows * len(fills), self.readout, covered
            )
        per_fill = scores.reshape(len(batch), windows, len(fills))
        every_fill = torch.arange(len(fills), device=inputs.device)
        occluded = (per_fill * fills.weight_of(every_fill)).sum(2)
        drops = original[:, None] - occluded
        # Windows are products of intervals, so the sum over the windows of a position goes one axis at a time.
        totals = drops.reshape(len(batch), *counts)
        overlaps = drops.new_ones(1, *counts)
        for axis in axes:
            totals = torch.tensordot(totals, axis.double(), ([1], [0]))
            overlaps = torch.tensordot(overlaps, axis.double(), ([1], [0]))
        values = totals / overlaps
        if columns is not None:
            values = values.gather(1, columns.to(values.device))
        return spread_out(values, inputs, batch)


@parameter_class
class Rise(Explainer):
    """RISE: the mean of random smooth masks, weighted by the target's score under each.

    A mask is a grid of `grid` cells per axis, each kept with probability `keep`, enlarged bilinearly to one cell more
    than the input and cut out at a random shift (Petsiuk, Das and Saenko, BMVC 2018). Masks come in antithetic pairs:
    one keeps the cells whose uniform draw u is below `keep`, the other those whose 1 − u is. The map is
    1/(samples·keep) · Σ_j f(x ⊙ m_j) · m_j with the normalised x, so masked positions are zero after normalisation.
    For images, volumes and series (B, C, …). `error` asks for a precision in place of `samples` (see
    `heatproof.explainers.requested_error`).

    >>> from heatproof.models import Model
    >>> net = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(64, 2))
    >>> batch = Batch(ids=("a",), x=torch.ones(1, 1, 8, 8))
    >>> Rise(samples=10, grid=4)(Model(net), batch, torch.tensor([1]), seed=0).shape
    torch.Size([1, 1, 8, 8])
    """

    name: ClassVar[str] = "rise"
    stochastic: ClassVar[bool] = True
    undefined_on = _RISE_UNDEFINED_ON
    cost = "`samples` passes"

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
        """Return RISE maps (B, …) of the classes `target` (B,): the mean of random masks, weighted by the score under each."""
        if self.error is not None:
            return explain_to_error(self, model, batch, target, seed)
        self.check(model, batch.x.shape[1:])
        require_order(self.name, batch)
        batch = batch.to(model.device)
        inputs = model.inputs(batch)
        size = spatial(inputs.shape)
        sides = size if len(size) > 1 else (1, *size)
        positions = math.prod(size)
        cell_keys = rand.keys(seed, batch.ids, "rise cells").to(inputs.device)
        shift_keys = rand.keys(seed, batch.ids, "rise shift").to(inputs.device)
        position_map = torch.arange(positions, device=inputs.device).reshape(size)
        original = origins(batch, position_map.expand(len(batch), *size), positions)

        def masks(sample: Tensor, number: Tensor) -> Tensor:
            """Return R masks (R, *sides): row r is mask number[r] of sample[r]."""
            # Masks 2k and 2k + 1 are a pair: they share their draws.
            cells = rand.fold(cell_keys[sample], number // 2)
            shifts = rand.fold(shift_keys[sample], number // 2)
            is_mirrored = number % 2 == 1
            unmoved = smooth_masks(
                cells, shifts, self.grid, self.keep, *sides, mirrored=is_mirrored
            )
            if batch.moved is None:
                return unmoved
            # A moved sample gets the masks of its original, moved along.
            return unmoved.flatten(1).gather(1, original[sample]).reshape(unmoved.shape)

        def masked(sample: Tensor, number: Tensor) -> Tensor:
            """Return R inputs: sample[r] times its mask number[r], so that removed positions are 0 after normalisation."""
            return inputs[sample].mul_(masks(sample, number).reshape(len(sample), 1, *size))

        total = torch.zeros(len(batch), positions, dtype=torch.float64, device=inputs.device)
        done = 0
        with torch.no_grad():
            chunks = readouts(model, batch, target, self.samples, self.readout, masked)
            for sample, number, scores in chunks:
                # A chunk has masked inputs of a few consecutive samples, first … last − 1. Which ones follows from the
                # count of inputs done; reading it from the tensor `sample` would wait for the GPU.
                first = done // self.samples
                done += len(sample)
                last = math.ceil(done / self.samples)
                samples = torch.arange(first, last, device=sample.device)
                # One row per sample with the scores of its own masks and 0 elsewhere, so that a matrix product sums
                # score · mask for each sample.
                scores_by_sample = (sample == samples[:, None]) * scores
                # The masks are drawn a second time, which needs less memory than keeping them.
                total[first:last] += scores_by_sample @ masks(sample, number).flatten(1).double()
        maps = (total / (self.samples * self.keep)).reshape(len(batch), *size)
        return spread_out(maps, inputs, batch)


def smooth_masks(
    cells: Tensor,
    shifts: Tensor,
    grid: int,
    keep: float,
    *sides: int,
    mirrored: Tensor | None = None,
) -> Tensor:
    """Return R random smooth masks in [0, 1] for images or volumes, (R, *sides), as RISE uses them.

    A mask is a grid of at most `grid` cells per axis, each 1 with probability `keep` and else 0, enlarged by linear
    interpolation and shifted at random. `cells` and `shifts` (R,) are the random keys of both. A cell is 1 where a
    uniform draw u is below `keep`; where `mirrored` (R,) is true, 1 − u takes the place of u.

    >>> k = rand.keys(0, ["a"], "x")
    >>> smooth_masks(k, k, 3, 0.5, 6, 9).shape
    torch.Size([1, 6, 9])
    """
    counts = [min(grid, side) for side in sides]
    uniform = rand.uniform(cells, tuple(counts))
    if mirrored is not None:
        uniform = torch.where(mirrored.reshape(-1, *[1] * len(sides)), 1 - uniform, uniform)
    kept = (uniform < keep).float()
    shift = rand.uniform(shifts, (len(sides),))
    # Linear interpolation along one axis after another; each is a product with a matrix.
    weights = []
    for axis, (cell_count, side) in enumerate(zip(counts, sides, strict=True)):
        weights.append(_enlarging_weights(cell_count, side, shift[:, axis]))
    rows, columns = weights[-2], weights[-1]
    if len(sides) == 2:
        return rows @ kept @ columns.mT
    slices = rows[:, None] @ kept @ columns.mT[:, None]
    return torch.einsum("rds,rshw->rdhw", weights[0], slices)


def readouts(
    model: Model,
    batch: Batch,
    target: Tensor,
    versions_per_sample: int | Tensor,
    readout: Readout,
    make_versions: MakeVersions,
) -> Iterator[tuple[Tensor, Tensor, Tensor]]:
    """Yield the model's scores of the classes `target` (B,) on altered versions of each sample, pass by pass.

    A version is the input of the network with something removed, such as one occluded by window 7. Versions of one
    sample are numbered from 0 on. `versions_per_sample` says how many there are, as one number or one per sample (B,);
    `make_versions` makes them (see `MakeVersions`) just before they are needed, because all of them rarely fit into
    memory. Yields (sample, version, scores): two numbers (R,) and float64 scores (R,), in the order of samples and
    versions. The batch has to be on the model's device.

    >>> from heatproof.models import Model
    >>> model, batch = Model(torch.nn.Linear(2, 2), rows=3), Batch(ids=("a", "b"), x=torch.ones(2, 2))
    >>> chunks = readouts(model, batch, torch.tensor([0, 1]), 2, "logit", lambda sample, version: batch.x[sample])
    >>> [(sample.tolist(), version.tolist()) for sample, version, scores in chunks]
    [([0, 0, 1], [0, 1, 0]), ([1], [1])]
    """
    counts = torch.as_tensor(versions_per_sample, device=batch.x.device).expand(len(batch))
    target = target.to(batch.x.device)
    # Number the versions of all samples one after another, and split these numbers into passes.
    first_of_sample = counts.cumsum(0) - counts
    numbers = torch.arange(int(counts.sum()), device=batch.x.device)
    for numbers_of_pass in torch.split(numbers, model.rows):
        sample = torch.searchsorted(first_of_sample, numbers_of_pass, right=True) - 1
        version = numbers_of_pass - first_of_sample[sample]
        inputs = make_versions(sample, version)
        if isinstance(inputs, tuple):
            inputs, aux = inputs
        else:
            aux = {name: value[sample] for name, value in batch.aux.items()}
        logits = model.logits(inputs, aux).double()
        probability = model.task.probability(logits) if readout == "probability" else None
        scores = logits if probability is None else probability
        yield sample, version, scores.gather(1, target[sample, None])[:, 0]


def readout_scores(
    model: Model,
    batch: Batch,
    target: Tensor,
    versions_per_sample: int | Tensor,
    readout: Readout,
    make_versions: MakeVersions,
) -> Tensor:
    """Return the model's score of the class `target` (B,) on altered versions of each sample, in one float64 row.

    All versions of sample 0 come first, then those of sample 1, and so on. `make_versions(sample, version)` makes their
    inputs, and `readout` is "logit" or "probability".
    """
    chunks = readouts(model, batch, target, versions_per_sample, readout, make_versions)
    return torch.cat([scores for _, _, scores in chunks])


def beside_channels(values: Tensor, inputs: Tensor, batch: Batch) -> Tensor:
    """Return values (R, *spatial) with an axis of length 1 where the inputs have channels, so that they broadcast.

    For token ids with an embedding, the axis is the last one, of the vectors.

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
    """Return values (B, *spatial) as a map: repeated over the inputs' channels, but one value per token for token ids.

    >>> x = torch.zeros(2, 3, 4)
    >>> spread_out(torch.zeros(2, 4), x, Batch(("a", "b"), x)).shape
    torch.Size([2, 3, 4])
    """
    if not batch.x.is_floating_point():
        per_token = values if values.ndim == batch.x.ndim else values[..., 0]
        return per_token.float()
    return beside_channels(values.to(inputs.dtype), inputs, batch).expand_as(inputs).contiguous()


def require_order(name: str, batch: Batch) -> None:
    """Raise `UserError` for sets and graphs, whose elements have no neighbours in a row."""
    if is_set(batch):
        raise UserError(
            f"{name} covers neighbouring positions, and the elements of sets and graphs have no order; "
            "use feature_ablation with features=elements"
        )


def _per_axis(name: str, value: int | tuple[int, ...], size: Sequence[int]) -> tuple[int, ...]:
    """Return occlusion's setting `name` (window or stride) for each axis of positions; one number is for all axes."""
    values = (value,) * len(size) if isinstance(value, int) else value
    if len(values) != len(size):
        raise UserError(
            f"occlusion's {name} has {len(values)} numbers, and the inputs have {len(size)} axes of positions; "
            "channels are covered together"
        )
    return values


def _windows(length: int, window: int, stride: int, circular: bool, device: torch.device) -> Tensor:
    """Return which positions each window along one axis covers, (windows, length) boolean.

    Windows of `window` positions begin every `stride` positions. If `circular`, they wrap around the end; else the last
    one may be cut off by it.
    """
    if circular:
        count = math.ceil(length / stride)
    else:
        count = math.ceil((length - window) / stride) + 1
    starts = torch.arange(count, device=device) * stride
    distance = torch.arange(length, device=device) - starts[:, None]
    if circular:
        distance = distance % length
    return (distance >= 0) & (distance < window)


def _enlarging_weights(cells: int, length: int, shift: Tensor) -> Tensor:
    """Return the matrices (R, length, cells) that enlarge a row of cells to `length` positions by linear interpolation.

    As in RISE, the row is enlarged to one cell more than `length`, and `length` positions are cut out of it, beginning at
    the share `shift` (R,) in [0, 1) of a cell.
    """
    cell_length = math.ceil(length / cells)
    position = torch.arange(length, device=shift.device) + (shift * cell_length).floor()[:, None]
    coordinate = (position + 0.5) * cells / ((cells + 1) * cell_length) - 0.5
    coordinate = coordinate.clamp(0, cells - 1)
    distance = (coordinate[..., None] - torch.arange(cells, device=shift.device)).abs()
    return (1 - distance).clamp(min=0)

"""Inputs with only some features kept: labels of the features, which of them may go, and the values put in for them."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, Literal, NamedTuple

import torch
import torch.nn.functional as F
from pydantic import Field
from torch import Tensor

from heatproof.errors import UserError, unknown
from heatproof.features import PASSAGES, Grouping, Hiding, Pixels, fixed, segment_means, spatial
from heatproof.types import Batch, name_of

if TYPE_CHECKING:
    from heatproof.models import Model

Fill = Literal["zero", "mean", "blur"] | Annotated[float, Field(allow_inf_nan=False)]


class Ground(NamedTuple):
    """Inputs to leave features out of, the features' labels, and the values in their place, inputs where they hide."""

    inputs: Tensor
    segments: Tensor
    fill: Tensor


def ground(name: str, features: Grouping, fill: Fill, model: Model, batch: Batch) -> Ground:
    """What an explainer `name` starts from. Features that hide work on raw samples, all others on the model's inputs.

    >>> from heatproof.features import Pixels
    >>> from heatproof.models import Model
    >>> found = ground("lime", Pixels(), "zero", Model(torch.nn.Linear(3, 2)), Batch(("a",), torch.ones(1, 3)))
    >>> found.segments.tolist(), found.fill.tolist()
    ([[0, 1, 2]], [[0.0, 0.0, 0.0]])
    """
    hides = isinstance(features, Hiding)
    inputs = batch.x if hides else model.inputs(batch)
    if not hides and not inputs.is_floating_point():
        raise UserError(
            f"{name} with {name_of(features)} sets vectors to a fill, and token ids have none: "
            "use features=Tokens(...), or give Model(..., embedding=the layer's path)"
        )
    segments = labels(features, batch, inputs)
    return Ground(
        inputs, segments, inputs if hides else filled(fill, model, batch, inputs, segments)
    )


def filled(fill: Fill, model: Model, batch: Batch, inputs: Tensor, segments: Tensor) -> Tensor:
    """What replaces absent features, in the shape of the normalised inputs (B, …).

    "zero" is 0 after normalisation, "mean" the feature's own mean in each channel, "blur" the input blurred by a
    Gaussian of a sixteenth of its length, and a number a value in the data's own units.

    >>> from heatproof.models import Model
    >>> model, batch = Model(torch.nn.Flatten(), mean=0.5), Batch(("a",), torch.tensor([[1.0, 2.0]]))
    >>> filled(0.75, model, batch, model.inputs(batch), torch.tensor([[0, 0]])).tolist()
    [[0.25, 0.25]]
    """
    if fill == "zero":
        return torch.zeros_like(inputs)
    if fill == "mean":
        return segment_means(inputs, segments)
    if fill == "blur":
        return blurred(inputs)
    if isinstance(fill, bool) or not isinstance(fill, int | float):
        raise unknown("fill", fill, ("zero", "mean", "blur", "a number"))
    if not math.isfinite(fill):
        raise UserError(f"fill must be a finite number, got {fill!r}")
    return model.inputs(batch.with_x(torch.full_like(batch.x, fill)))


def blurred(x: Tensor) -> Tensor:
    """Each axis of images, volumes or series (B, C, T) smoothed by a Gaussian of a sixteenth of its length.

    Beyond the border the nearest value goes on.

    >>> torch.allclose(blurred(torch.ones(1, 1, 8, 8)), torch.ones(1, 1, 8, 8))
    True
    """
    if x.ndim not in (3, 4, 5):
        raise UserError(
            f"fill='blur' is for images, volumes and series (B, C, T), got inputs of {tuple(x.shape)}"
        )
    for axis, length in enumerate(spatial(x.shape), start=2):
        sigma = max(length / 16, 0.5)
        x = smoothed(x, sigma, min(math.ceil(3 * sigma), length), axis)
    return x.contiguous()


def smoothed(x: Tensor, sigma: float, reach: int, axis: int) -> Tensor:
    """One axis of x (B, C, …) smoothed by a Gaussian that is cut at `reach`; the nearest value goes on at borders.

    >>> smoothed(torch.ones(1, 1, 4), 1.0, 3, 2).round(decimals=5).tolist()
    [[[1.0, 1.0, 1.0, 1.0]]]
    """
    tap = torch.arange(-reach, reach + 1, device=x.device, dtype=torch.float64)
    weight = (-0.5 * (tap / sigma) ** 2).exp()
    weight = (weight / weight.sum()).to(x.dtype)
    moved = x.movedim(axis, -1)
    rows = F.pad(moved.reshape(-1, 1, x.shape[axis]), (reach, reach), mode="replicate")
    return F.conv1d(rows, weight[None, None]).reshape(moved.shape).movedim(-1, axis)


def kept_only(
    features: Grouping | None,
    inputs: Tensor,
    fill: Tensor,
    aux: Mapping[str, Tensor],
    kept: Tensor,
    segments: Tensor,
) -> tuple[Tensor, dict[str, Tensor]]:
    """Inputs with only the features `kept` (R, n) and `fill` elsewhere, row by row; with the matching `aux`.

    inputs and fill are (R, …), segments (R, *spatial). A grouping with a method `hide`, as `Tokens` has, does it
    itself.

    >>> x, labels = torch.ones(1, 3), torch.tensor([[0, 0, 1]])
    >>> kept_only(None, x, 0 * x, {}, torch.tensor([[True, False]]), labels)[0].tolist()
    [[1.0, 1.0, 0.0]]
    """
    if isinstance(features, Hiding):
        return features.hide(inputs, aux, kept)
    share = kept.to(inputs.dtype).gather(1, segments.flatten(1))
    share = share.reshape(len(kept), *[1] * (inputs.ndim - segments.ndim), *segments.shape[1:])
    return torch.lerp(fill, inputs, share), dict(aux)  # exact at 0 and 1


def labels(features: Grouping, batch: Batch, inputs: Tensor) -> Tensor:
    """Which feature each position belongs to, with the vectors of tokens labelled like their tokens.

    >>> from heatproof.features import Tokens
    >>> labels(Tokens(), Batch(("a",), torch.tensor([[5, 6]])), torch.zeros(1, 2, 3)).tolist()
    [[[0, 0, 0], [1, 1, 1]]]
    """
    if isinstance(features, Pixels) and is_set(batch):
        raise UserError(
            "pixels of sets and graphs (B, N, F) would be columns of all elements; use features=elements"
        )
    segments = features.segments(batch).to(inputs.device)
    if inputs.ndim > batch.x.ndim:
        segments = segments[..., None].expand(inputs.shape)
    return segments


def changeable(features: Grouping, batch: Batch, n: int) -> Tensor:
    """Which of n features or positions may change, (B, n) boolean: not padding, nor what the grouping keeps.

    >>> from heatproof.features import Elements
    >>> batch = Batch(("a",), torch.ones(1, 3, 2), {"mask": torch.tensor([[True, True, False]])})
    >>> changeable(Elements(), batch, 3).tolist()
    [[True, True, False]]
    """
    always = fixed(features, batch)
    if always is not None and always.shape[1] == n:
        return ~always
    attended = batch.aux.get("attention_mask")
    if (
        attended is not None
        and not batch.x.is_floating_point()
        and attended.shape == (len(batch), n)
    ):
        return attended.bool()
    return torch.ones(len(batch), n, dtype=torch.bool, device=batch.x.device)


def origins(batch: Batch, segments: Tensor, n: int) -> Tensor:
    """Which of n features each feature of moved samples comes from, (B, n): what was drawn for the one is the other's.

    A feature comes from where its first place does. Features of samples that were not moved, or whose group does not
    map them one to one, are their own.

    >>> from heatproof.types import Moved
    >>> shifted = Moved(lambda g, batch: batch.with_x(batch.x.roll(1, 1)), torch.tensor([1]))
    >>> origins(Batch(("a",), torch.zeros(1, 3), moved=shifted), torch.tensor([[0, 1, 2]]), 3).tolist()
    [[2, 0, 1]]
    """
    own = torch.arange(n, device=segments.device).expand(len(batch), n)
    numbers = batch.aux.get(
        PASSAGES
    )  # these went along, so that a passage has its own number wherever it is
    if batch.moved is None or (numbers is not None and torch.equal(numbers, segments)):
        return own
    x = batch.x
    segments = segments[..., 0] if segments.ndim > x.ndim else segments
    label = (segments if segments.ndim == x.ndim else segments[:, None]).expand(x.shape).flatten(1)
    place = torch.arange(label.shape[1], device=x.device).expand(label.shape)
    start = batch.carried(place.double().reshape(x.shape)).flatten(1).round().long()
    first = torch.full_like(own, label.shape[1] - 1).scatter_reduce(1, label, place, "amin")
    before = label.gather(1, start.clamp(0, label.shape[1] - 1).gather(1, first))
    before = torch.where(own <= label.amax(1, keepdim=True), before, own)
    one_to_one = (
        torch.zeros_like(own, dtype=torch.bool).scatter(1, before, True).all(1, keepdim=True)
    )
    return torch.where(one_to_one, before, own)


def is_set(batch: Batch) -> bool:
    """Whether samples are sets or graphs (B, N, F), which their auxiliary tensors tell of, and not series (B, C, T).

    >>> is_set(Batch(("a",), torch.zeros(1, 4, 3), {"mask": torch.ones(1, 4)}))
    True
    """
    marked = "mask" in batch.aux and batch.aux["mask"].shape == batch.x.shape[:2]
    return (
        batch.x.ndim == 3 and batch.x.is_floating_point() and (marked or "adjacency" in batch.aux)
    )

"""Inputs with some features left out: the label of every position, which features may go, and what takes their place."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, Literal

import torch
import torch.nn.functional as F
from pydantic import Field
from torch import Tensor

from heatproof.errors import UserError, unknown
from heatproof.features import PASSAGES, Grouping, Hiding, Pixels, fixed, segment_means, spatial
from heatproof.types import Batch, name_of

if TYPE_CHECKING:
    from heatproof.models import Model

Finite = Annotated[float, Field(allow_inf_nan=False)]
Fill = Literal["zero", "mean", "blur"] | Finite | tuple[Finite, ...]


def labelled_inputs(
    name: str, features: Grouping, model: Model, batch: Batch
) -> tuple[Tensor, Tensor]:
    """Return the inputs (B, …) that explainer `name` removes features from, and the feature of every position.

    Features that hide themselves, such as tokens, work on the raw samples; all others on the model's normalised inputs.

    >>> from heatproof.features import Pixels
    >>> from heatproof.models import Model
    >>> model, batch = Model(torch.nn.Linear(3, 2)), Batch(("a",), torch.ones(1, 3))
    >>> labelled_inputs("lime", Pixels(), model, batch)[1].tolist()
    [[0, 1, 2]]
    """
    if isinstance(features, Hiding):
        return batch.x, labels(features, batch, batch.x)
    inputs = model.inputs(batch)
    if not inputs.is_floating_point():
        raise UserError(
            f"{name} with {name_of(features)} sets vectors to a fill, and token ids have none: "
            "use features=Tokens(...), or give Model(..., embedding=the layer's path)"
        )
    return inputs, labels(features, batch, inputs)


def filled(fill: Fill, model: Model, batch: Batch, inputs: Tensor, segments: Tensor) -> Tensor:
    """Return the values that take the place of absent features, in the shape of the normalised inputs (B, …).

    `fill` says which: "zero" is 0 after normalisation, "mean" the feature's own mean in each channel, "blur" the input
    blurred by a Gaussian of a sixteenth of its length, and a number a value in the data's own units, as are several
    numbers, one for each column of a table.

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
    if isinstance(fill, tuple):
        values = batch.x.new_tensor(fill)
        if batch.x.shape[1:] != values.shape:
            raise UserError(
                f"fill has {len(fill)} numbers, one for each column, but samples have shape {tuple(batch.x.shape[1:])}"
            )
        return model.inputs(batch.with_x(values.expand_as(batch.x).clone()))
    if isinstance(fill, bool) or not isinstance(fill, int | float):
        raise unknown("fill", fill, ("zero", "mean", "blur", "a number"))
    if not math.isfinite(fill):
        raise UserError(f"fill must be a finite number, got {fill!r}")
    constant = batch.with_x(torch.full_like(batch.x, fill))
    return model.inputs(constant)


def blurred(x: Tensor) -> Tensor:
    """Return images, volumes or series (B, C, …) smoothed along each axis by a Gaussian of a sixteenth of its length.

    Beyond the border the nearest value is repeated.

    >>> torch.allclose(blurred(torch.ones(1, 1, 8, 8)), torch.ones(1, 1, 8, 8))
    True
    """
    if x.ndim not in (3, 4, 5):
        raise UserError(
            f"fill='blur' is for images, volumes and series (B, C, T), got inputs of {tuple(x.shape)}"
        )
    for axis, length in enumerate(spatial(x.shape), start=2):
        sigma = max(length / 16, 0.5)
        reach = min(math.ceil(3 * sigma), length)
        x = smoothed(x, sigma, reach, axis)
    return x.contiguous()


def smoothed(x: Tensor, sigma: float, reach: int, axis: int) -> Tensor:
    """Return x (B, C, …) smoothed along one axis by a Gaussian that is cut off `reach` positions from its centre.

    Beyond the border the nearest value is repeated.

    >>> smoothed(torch.ones(1, 1, 4), 1.0, 3, 2).round(decimals=5).tolist()
    [[[1.0, 1.0, 1.0, 1.0]]]
    """
    distance = torch.arange(-reach, reach + 1, device=x.device, dtype=torch.float64)
    weight = (-0.5 * (distance / sigma) ** 2).exp()
    weight = (weight / weight.sum()).to(x.dtype)
    axis_last = x.movedim(axis, -1)
    lines = axis_last.reshape(-1, 1, x.shape[axis])
    padded = F.pad(lines, (reach, reach), mode="replicate")
    return F.conv1d(padded, weight[None, None]).reshape(axis_last.shape).movedim(-1, axis)


def kept_only(
    features: Grouping | None,
    inputs: Tensor,
    fill: Tensor,
    aux: Mapping[str, Tensor],
    kept: Tensor,
    segments: Tensor,
) -> tuple[Tensor, dict[str, Tensor]]:
    """Return inputs (R, …) in which absent features are replaced by `fill` (R, …), and their auxiliary tensors.

    `kept` (R, n) says which features stay, and `segments` (R, *spatial) which feature each position belongs to. Features
    that hide themselves, such as tokens by an attention mask, may change the auxiliary tensors and need no fill.

    >>> x, labels = torch.ones(1, 3), torch.tensor([[0, 0, 1]])
    >>> kept_only(None, x, 0 * x, {}, torch.tensor([[True, False]]), labels)[0].tolist()
    [[1.0, 1.0, 0.0]]
    """
    if isinstance(features, Hiding):
        return features.hide(inputs, aux, kept)
    weight = kept.to(inputs.dtype).gather(1, segments.flatten(1))
    channel_axes = [1] * (inputs.ndim - segments.ndim)
    weight = weight.reshape(len(kept), *channel_axes, *segments.shape[1:])
    # `lerp` is exact at 0 and 1.
    return torch.lerp(fill, inputs, weight), dict(aux)


def labels(features: Grouping, batch: Batch, inputs: Tensor) -> Tensor:
    """Return the number of the feature that each position of the inputs belongs to, (B, …) int64.

    Where inputs are vectors of tokens, all values of a vector have the token's number.

    >>> from heatproof.features import Tokens
    >>> labels(Tokens(), Batch(("a",), torch.tensor([[5, 6]])), torch.zeros(1, 2, 3)).tolist()
    [[[0, 0, 0], [1, 1, 1]]]
    """
    if isinstance(features, Pixels) and is_set(batch):
        raise UserError(
            "pixels of sets and graphs (B, N, F) would be columns of all elements; use features=elements"
        )
    segments = features.segments(batch).to(inputs.device)
    has_vectors = inputs.ndim > batch.x.ndim
    return segments[..., None].expand(inputs.shape) if has_vectors else segments


def changeable(features: Grouping, batch: Batch, n: int) -> Tensor:
    """Return which of n features or positions may be changed or removed, (B, n) boolean.

    Padding may not, nor features that the grouping always keeps, such as special tokens.

    >>> from heatproof.features import Elements
    >>> batch = Batch(("a",), torch.ones(1, 3, 2), {"mask": torch.tensor([[True, True, False]])})
    >>> changeable(Elements(), batch, 3).tolist()
    [[True, True, False]]
    """
    always_kept = fixed(features, batch)
    if always_kept is not None and always_kept.shape[1] == n:
        return ~always_kept
    attention = batch.aux.get("attention_mask")
    has_tokens = not batch.x.is_floating_point()
    if attention is not None and has_tokens and attention.shape == (len(batch), n):
        return attention.bool()
    return torch.ones(len(batch), n, dtype=torch.bool, device=batch.x.device)


def origins(batch: Batch, segments: Tensor, n: int) -> Tensor:
    """Return for each feature of a moved sample which feature of the original it was before the move, (B, n).

    Tests of symmetry move samples, for instance by rotating an image. Random numbers drawn for a feature of the
    original are those of the same feature in the moved sample, so that a symmetric explainer stays symmetric. A feature
    is the one that its first position belonged to before the group moved it (`batch.moved`). Features of samples that
    were not moved, or whose group does not map features one to one, are themselves.

    >>> from heatproof.types import Moved
    >>> shifted = Moved(lambda g, batch: batch.with_x(batch.x.roll(1, 1)), torch.tensor([1]))
    >>> origins(Batch(("a",), torch.zeros(1, 3), moved=shifted), torch.tensor([[0, 1, 2]]), 3).tolist()
    [[2, 0, 1]]
    """
    itself = torch.arange(n, device=segments.device).expand(len(batch), n)
    if batch.moved is None:
        return itself
    # The numbers of passages move with their tokens: a passage has its own number wherever it is.
    passages = batch.aux.get(PASSAGES)
    if passages is not None and torch.equal(passages, segments):
        return itself

    x = batch.x
    if segments.ndim > x.ndim:  # vectors of tokens: one label per token is enough
        segments = segments[..., 0]
    if segments.ndim < x.ndim:  # all channels have the label of their position
        segments = segments[:, None]
    label = segments.expand(x.shape).flatten(1)
    last = label.shape[1] - 1

    # Where each value came from: the positions 0, 1, 2, … are moved as the sample was.
    position = torch.arange(label.shape[1], device=x.device).expand(label.shape)
    came_from = batch.carried(position.double().reshape(x.shape)).flatten(1).round().long()

    # The lowest position of each feature: a scatter with a minimum over the positions that have its label.
    first_position = torch.full_like(itself, last).scatter_reduce(1, label, position, "amin")
    origin_of_first = came_from.gather(1, first_position).clamp(0, last)
    origin = label.gather(1, origin_of_first)
    exists = itself <= label.amax(1, keepdim=True)
    origin = torch.where(exists, origin, itself)

    # If two features have the same origin, the move does not map features one to one.
    was_hit = torch.zeros_like(itself, dtype=torch.bool).scatter(1, origin, True)
    is_one_to_one = was_hit.all(1, keepdim=True)
    return torch.where(is_one_to_one, origin, itself)


def is_set(batch: Batch) -> bool:
    """Return whether samples are sets or graphs (B, N, F) and not series (B, C, T): their auxiliary tensors tell.

    >>> is_set(Batch(("a",), torch.zeros(1, 4, 3), {"mask": torch.ones(1, 4)}))
    True
    """
    if batch.x.ndim != 3 or not batch.x.is_floating_point():
        return False
    has_mask = "mask" in batch.aux and batch.aux["mask"].shape == batch.x.shape[:2]
    return has_mask or "adjacency" in batch.aux

"""What a perturbation is, and how it is named, described and checked."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any, Literal, Protocol, TypeGuard

from pydantic import Field
from torch import Tensor

from holdfast.errors import UserError
from holdfast.types import KIND_BY_DIMENSIONS, Batch, Kind, label_of, name_of

Family = Literal["geometric", "photometric", "compression", "occlusion", "noise", "scale", "exchange", "control"]
_SHAPES: dict[Kind, str] = {"image": "images (B, C, H, W)", "series": "series (B, C, T)", "table": "rows (B, F)"}
INSTEAD: dict[Kind, str] = {
    "image": "for images there are rotation, brightness, jpeg and others (preset fass-paper)",
    "series": "for series there are jitter, scaling and time_shift (preset series-mild)",
    "table": "for tables there are column_noise and column_swap (preset table-mild)",
}
"""What to use where a perturbation has no meaning."""
Finite = Annotated[float, Field(strict=True, allow_inf_nan=False)]
NonNegative = Annotated[float, Field(strict=True, allow_inf_nan=False, ge=0)]
Positive = Annotated[float, Field(strict=True, allow_inf_nan=False, gt=0)]


class Perturbation(Protocol):
    """Anything callable as (batch, seed) -> x of the same shape; the built-in ones are frozen objects with fields.

    They also have `name`, `family`, `unit`, `text` (how `describe` writes them), `magnitude_field` (which field is
    the severity) and `stochastic` (whether the seed matters), and may have `check(shape)`, which raises `UserError` for
    a sample shape that cannot be perturbed; `kind` says what it is made for where that is not images. One that needs
    other samples has `bound(references)`, which gives what is called. All of these are optional for one's own.
    """

    def __call__(self, batch: Batch, seed: int) -> Tensor: ...


class Geometric(Perturbation, Protocol):
    """A perturbation that can move a map the way it moves the image."""

    def move(self, maps: Tensor, ids: Sequence[str], seed: int) -> tuple[Tensor, Tensor]: ...


def is_geometric(perturbation: Perturbation) -> TypeGuard[Geometric]:
    """Whether it moves pixels and can move a map alike.

    >>> from holdfast.axes.stability.perturbations import Brightness, Rotation
    >>> is_geometric(Rotation()), is_geometric(Brightness())
    (True, False)
    """
    return callable(getattr(perturbation, "move", None))


def condition(perturbation: Perturbation) -> str:
    """A short name without the magnitude, the same for all levels of a sweep.

    >>> from holdfast.axes.stability.perturbations import Rotation, Translation
    >>> condition(Rotation(degrees=5)), condition(Translation(axis="vertical"))
    ('rotation', 'translation(axis=vertical)')
    """
    magnitude = getattr(perturbation, "magnitude_field", "")
    return label_of(perturbation, hide=lambda name: name == magnitude)


def level(perturbation: Perturbation) -> float:
    """The magnitude in the perturbation's unit; 0 for one that has none.

    >>> from holdfast.axes.stability.perturbations import Identity, Rotation
    >>> level(Rotation(degrees=5)), level(Identity())
    (5.0, 0.0)
    """
    magnitude = getattr(perturbation, "magnitude_field", "")
    return float(getattr(perturbation, magnitude)) if magnitude else 0.0


def describe(perturbation: Perturbation) -> str:
    """The perturbation in words, for the report.

    >>> from holdfast.axes.stability.perturbations import Brightness, Jpeg, Rotation
    >>> describe(Rotation()), describe(Jpeg()), describe(Brightness())
    ('rotation 15°', 'JPEG quality 40', 'brightness ×1.5')
    """
    text = getattr(perturbation, "text", None)
    if not isinstance(text, str):
        return condition(perturbation)
    return text.format(**vars(perturbation))


def kind_of(perturbation: Perturbation) -> Kind | None:
    """What a perturbation is made for: images, series or tables; None where any data will do.

    >>> from holdfast.axes.stability.perturbations import Identity, Jitter, Rotation
    >>> kind_of(Rotation()), kind_of(Jitter()), kind_of(Identity())
    ('image', 'series', None)
    """
    if getattr(perturbation, "family", "control") == "control":
        return None
    kind: Kind = getattr(perturbation, "kind", "image")
    return kind


def bound(perturbation: Perturbation, references: Batch) -> Perturbation:
    """What is called: the perturbation itself, or one that needs other samples with these.

    >>> import torch
    >>> from holdfast.axes.stability.perturbations import ColumnNoise
    >>> bound(ColumnNoise(), Batch(("a", "b"), torch.tensor([[1.0, 7.0], [5.0, 7.0]]))).scale
    (2.0, 0.0)
    """
    bind: Any = getattr(perturbation, "bound", None)
    ready: Perturbation = bind(references) if callable(bind) else perturbation
    return ready


def check(perturbation: Perturbation, shape: Sequence[int]) -> None:
    """Raise `UserError` when samples of this shape, without the batch, cannot be perturbed so.

    >>> from holdfast.axes.stability.perturbations import Jitter, Translation
    >>> check(Translation(pixels=20), (3, 16, 16))
    Traceback (most recent call last):
    holdfast.errors.UserError: a horizontal translation by 20 pixels leaves nothing of images of width 16; ...
    >>> check(Jitter(), (12,))
    Traceback (most recent call last):
    holdfast.errors.UserError: jitter needs series (B, C, T), got shape (B, 12); for tables there are column_noise ...
    """
    kind, found = kind_of(perturbation), KIND_BY_DIMENSIONS.get(len(shape))
    if kind is not None and (found != kind or min(shape) < 1):
        text = ", ".join(str(n) for n in ("B", *shape))
        hint = "" if found in (None, kind) else f"; {INSTEAD[found]}"
        raise UserError(f"{name_of(perturbation)} needs {_SHAPES[kind]}, got shape ({text}){hint}")
    own = getattr(perturbation, "check", None)
    if callable(own):
        own(shape)


def images_of(perturbation: Perturbation, batch: Batch) -> Tensor:
    """The batch's pixels in float32, after the checks that need a shape."""
    check(perturbation, batch.x.shape[1:])
    if not batch.x.is_floating_point():
        raise UserError(
            f"{name_of(perturbation)} needs floating-point pixels in [0, 1], got {batch.x.dtype}; divide by 255 first"
        )
    return batch.x.float()


def values_of(perturbation: Perturbation, batch: Batch) -> Tensor:
    """The batch's series or rows in their own units, after the checks that need a shape."""
    check(perturbation, batch.x.shape[1:])
    if not batch.x.is_floating_point():
        raise UserError(f"{name_of(perturbation)} needs floating-point numbers, got {batch.x.dtype}")
    return batch.x


def check_maps(perturbation: Perturbation, maps: Tensor, ids: Sequence[str]) -> None:
    check(perturbation, maps.shape[1:])
    if len(maps) != len(ids):
        raise UserError(f"{name_of(perturbation)} was asked to move {len(maps)} maps with {len(ids)} ids")

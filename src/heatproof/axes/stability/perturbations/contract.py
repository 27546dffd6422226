"""What a perturbation is, and how it is named, described and checked."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields
from inspect import unwrap
from typing import Annotated, Any, ClassVar, Literal, Protocol, TypeGuard, runtime_checkable

from pydantic import AfterValidator, Field
from torch import Tensor

from heatproof.errors import UserError
from heatproof.kinds import KindName, kind_of_shape
from heatproof.types import Batch, label_of, name_of

Family = Literal[
    "geometric",
    "photometric",
    "compression",
    "occlusion",
    "noise",
    "scale",
    "exchange",
    "wording",
    "other",
    "control",
]
_SHAPES: dict[KindName, str] = {
    "image": "images (B, C, H, W)",
    "series": "series (B, C, T)",
    "table": "rows (B, F)",
}
_SHAPES["volume"] = "volumes (B, C, D, H, W)"
OF_VOLUMES = frozenset(
    {"rotation", "translation", "elastic", "brightness", "contrast", "gaussian_noise"}
)
OF_VOLUMES |= {"gaussian_blur", "occluding_patch"}
"""Perturbations of images that volumes (B, C, D, H, W) take too: rotation and elastic move each plane (H, W) alike."""
INSTEAD: dict[KindName, str] = {
    "image": "for images there are rotation, brightness, jpeg and others (preset fass-paper)",
    "series": "for series there are jitter, scaling and time_shift (preset series-mild)",
    "volume": "for volumes there are rotation, translation, brightness, gaussian_noise and others (preset volume-mild)",
    "table": "for tables there are column_noise and column_swap (preset table-mild)",
}
"""What to use where a perturbation has no meaning."""
Finite = Annotated[float, Field(strict=True, allow_inf_nan=False)]
NonNegative = Annotated[float, Field(strict=True, allow_inf_nan=False, ge=0)]
Positive = Annotated[float, Field(strict=True, allow_inf_nan=False, gt=0)]


def _check_sigma(sigma: float) -> float:
    """Refuse a σ that was meant for pixels from 0 to 255."""
    if sigma > 1:
        raise ValueError(
            f"pixels are in [0, 1], so sigma must be at most 1; {sigma:g} of 255 is {sigma / 255:.2g}"
        )
    return sigma


def _check_factor(factor: float) -> float:
    """Refuse a factor that was meant in percent."""
    if factor > MOST_FACTOR:
        raise ValueError(
            f"factor must be at most {MOST_FACTOR:g}, got {factor:g}; {factor:g} % is {factor / 100:g}"
        )
    return factor


MOST_FACTOR = 20.0
"""A larger factor leaves hardly anything of an image or series; it was meant in percent."""
PixelSigma = Annotated[NonNegative, AfterValidator(_check_sigma)]
Factor = Annotated[Positive, AfterValidator(_check_factor)]


@runtime_checkable
class Perturbation(Protocol):
    """Anything callable as (batch, seed) -> x of the same shape; the built-in ones are frozen objects with fields.

    family           what kind of change it is
    kind             the data it is made for, None for any
    unit             the unit of its magnitude
    magnitude_field  the name of the field that is its severity, "" for none
    stochastic       whether the seed matters

    A user's callable may lack all of these; `wrap_perturbation` fills them in. A perturbation that needs other samples
    has `bound(references)`, which returns what is called; one that does not fit every sample has `check(shape)`, which
    raises `UserError`.
    """

    @property
    def family(self) -> Family: ...

    @property
    def kind(self) -> KindName | None: ...

    @property
    def unit(self) -> str: ...

    @property
    def magnitude_field(self) -> str: ...

    @property
    def stochastic(self) -> bool: ...

    def __call__(self, batch: Batch, seed: int) -> Tensor: ...


@runtime_checkable
class Geometric(Perturbation, Protocol):
    """A perturbation that can move a map the way it moves the image."""

    def move(self, maps: Tensor, ids: Sequence[str], seed: int) -> tuple[Tensor, Tensor]: ...


class PerturbationDefaults:
    """Default attributes of built-in perturbations: photometric, of images, and not random."""

    family: ClassVar[Family] = "photometric"
    kind: ClassVar[KindName | None] = "image"
    unit: ClassVar[str] = ""
    magnitude_field: ClassVar[str] = ""
    stochastic: ClassVar[bool] = False


@dataclass(frozen=True)
class CallablePerturbation:
    """A user's callable with default attributes: no severity, any data, random draws.

    `move`, `check` and `bound` are those of the callable, None where it has none.
    """

    call: Callable[[Batch, int], Tensor]
    family: Family = "other"
    kind: KindName | None = None
    unit: str = ""
    magnitude_field: str = ""
    stochastic: bool = True
    move: Callable[..., tuple[Tensor, Tensor]] | None = None
    check: Callable[[Sequence[int]], None] | None = None
    bound: Callable[[Batch], Callable[[Batch, int], Tensor]] | None = None

    @property
    def __wrapped__(self) -> Any:
        """The callable itself, whose name and parameters are recorded; `inspect.unwrap` finds it."""
        return self.call

    def __call__(self, batch: Batch, seed: int) -> Tensor:
        """Return what the callable returns."""
        return self.call(batch, seed)


def wrap_perturbation(perturbation: Any) -> Perturbation:
    """Return a `Perturbation` itself, or a callable wrapped as one; attributes that it defines are kept.

    >>> wrap_perturbation(lambda batch, seed: 0.9 * batch.x).stochastic
    True
    """
    if isinstance(perturbation, Perturbation):
        return perturbation
    attributes = {}
    for field in fields(CallablePerturbation)[1:]:
        if hasattr(perturbation, field.name):
            attributes[field.name] = getattr(perturbation, field.name)
    return CallablePerturbation(perturbation, **attributes)


def is_geometric(perturbation: Any) -> TypeGuard[Geometric]:
    """Whether it moves pixels and can move a map alike.

    >>> from heatproof.axes.stability.perturbations import Brightness, Rotation
    >>> is_geometric(Rotation()), is_geometric(Brightness())
    (True, False)
    """
    return isinstance(perturbation, Geometric)


def condition(perturbation: Perturbation) -> str:
    """Return a short name without the magnitude, the same for all levels of a sweep.

    >>> from heatproof.axes.stability.perturbations import Rotation, Translation
    >>> condition(Rotation(degrees=5)), condition(Translation(axis="vertical"))
    ('rotation', 'translation(axis=vertical)')
    """
    return label_of(perturbation, hide=lambda name: name in (perturbation.magnitude_field, "words"))


def level(perturbation: Perturbation) -> float:
    """Return the magnitude in the perturbation's unit; 0 for one that has none.

    >>> from heatproof.axes.stability.perturbations import Identity, Rotation
    >>> level(Rotation(degrees=5)), level(Identity())
    (5.0, 0.0)
    """
    magnitude = perturbation.magnitude_field
    return float(getattr(unwrap(perturbation), magnitude)) if magnitude else 0.0


def bound(perturbation: Perturbation, references: Batch) -> Callable[[Batch, int], Tensor]:
    """Return what is called: the perturbation itself, or with these samples if it needs some.

    >>> import torch
    >>> from heatproof.axes.stability.perturbations import ColumnNoise
    >>> bound(ColumnNoise(), Batch(("a", "b"), torch.tensor([[1.0, 7.0], [5.0, 7.0]]))).scale
    (2.0, 0.0)
    """
    bind = getattr(perturbation, "bound", None)
    return perturbation if bind is None else bind(references)


def check(perturbation: Perturbation, shape: Sequence[int]) -> None:
    """Raise `UserError` when samples of this shape, without the batch, cannot be perturbed so.

    >>> from heatproof.axes.stability.perturbations import Jitter, Translation
    >>> check(Translation(pixels=20), (3, 16, 16))
    Traceback (most recent call last):
    heatproof.errors.UserError: a horizontal translation by 20 pixels leaves nothing of images of width 16; ...
    >>> check(Jitter(), (12,))
    Traceback (most recent call last):
    heatproof.errors.UserError: jitter needs series (B, C, T), got shape (B, 12); for tables there are column_noise ...
    """
    name, kind = name_of(perturbation), perturbation.kind
    data_kind = kind_of_shape(shape)
    data = None if data_kind is None else data_kind.name
    takes_volumes = data == "volume" and name in OF_VOLUMES
    fits = (data == kind or takes_volumes) and min(shape) > 0
    if kind is not None and not fits:
        text = ", ".join(str(n) for n in ("B", *shape))
        hint = "" if data in (None, kind) else f"; {INSTEAD[data]}"
        raise UserError(f"{name} needs {_SHAPES[kind]}, got shape ({text}){hint}")
    check_shape = getattr(perturbation, "check", None)
    if check_shape is not None:
        check_shape(shape)


def values_of(perturbation: Perturbation, batch: Batch) -> Tensor:
    """Return the values of a batch in their own units, images in float32, after the checks that need a shape."""
    check(perturbation, batch.x.shape[1:])
    is_image = perturbation.kind == "image"
    if not batch.x.is_floating_point():
        needed, hint = (
            ("pixels in [0, 1]", "; divide by 255 first") if is_image else ("numbers", "")
        )
        raise UserError(
            f"{name_of(perturbation)} needs floating-point {needed}, got {batch.x.dtype}{hint}"
        )
    return batch.x.float() if is_image else batch.x


def check_maps(perturbation: Perturbation, maps: Tensor, ids: Sequence[str]) -> None:
    """Refuse maps whose shape the perturbation does not fit, or that are not one per sample id."""
    check(perturbation, maps.shape[1:])
    if len(maps) != len(ids):
        raise UserError(
            f"{name_of(perturbation)} was asked to move {len(maps)} maps with {len(ids)} ids"
        )

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


def _not_of_bytes(sigma: float) -> float:
    if sigma > 1:
        raise ValueError(
            f"pixels are in [0, 1], so sigma must be at most 1; {sigma:g} of 255 is {sigma / 255:.2g}"
        )
    return sigma


def _not_in_percent(factor: float) -> float:
    if factor > MOST_FACTOR:
        raise ValueError(
            f"factor must be at most {MOST_FACTOR:g}, got {factor:g}; {factor:g} % is {factor / 100:g}"
        )
    return factor


MOST_FACTOR = 20.0
"""Beyond it hardly anything of an image or series is left; a larger one was meant in percent."""
PixelSigma = Annotated[NonNegative, AfterValidator(_not_of_bytes)]
Factor = Annotated[Positive, AfterValidator(_not_in_percent)]


@runtime_checkable
class Perturbation(Protocol):
    """Anything callable as (batch, seed) -> x of the same shape; the built-in ones are frozen objects with fields.

    `kind` is the data it is made for, None for any; `magnitude_field` names the field that is the severity, and
    `stochastic` says whether the seed matters. A callable of one's own may lack all of these; `adopted` gives it the
    usual. One that needs other samples has `bound(references)`, which gives what is called, and one that does not fit
    every sample `check(shape)`, which raises `UserError`.
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


class Usual:
    """What most built-in perturbations are: photometric, of images, and not random."""

    family: ClassVar[Family] = "photometric"
    kind: ClassVar[KindName | None] = "image"
    unit: ClassVar[str] = ""
    magnitude_field: ClassVar[str] = ""
    stochastic: ClassVar[bool] = False


@dataclass(frozen=True)
class Own:
    """Somebody's own perturbation with the usual for what it leaves out: no severity, any data, random draws."""

    call: Callable[[Batch, int], Tensor]
    family: Family = "other"
    kind: KindName | None = None
    unit: str = ""
    magnitude_field: str = ""
    stochastic: bool = True
    move: Callable[..., tuple[Tensor, Tensor]] | None = (
        None  # None says that it is not `Geometric`, and so on
    )
    check: Callable[[Sequence[int]], None] | None = None
    bound: Callable[[Batch], Callable[[Batch, int], Tensor]] | None = None

    @property
    def __wrapped__(self) -> Any:
        """The callable itself, whose name and parameters are recorded; `inspect.unwrap` finds it."""
        return self.call

    def __call__(self, batch: Batch, seed: int) -> Tensor:
        """What the callable gives."""
        return self.call(batch, seed)


def adopted(perturbation: Any) -> Perturbation:
    """A perturbation with all that the evaluation asks for; what one's own says itself counts.

    >>> adopted(lambda batch, seed: 0.9 * batch.x).stochastic
    True
    """
    if isinstance(perturbation, Perturbation):
        return perturbation
    said = {
        f.name: getattr(perturbation, f.name)
        for f in fields(Own)[1:]
        if hasattr(perturbation, f.name)
    }
    return Own(perturbation, **said)


def is_geometric(perturbation: Any) -> TypeGuard[Geometric]:
    """Whether it moves pixels and can move a map alike.

    >>> from heatproof.axes.stability.perturbations import Brightness, Rotation
    >>> is_geometric(Rotation()), is_geometric(Brightness())
    (True, False)
    """
    return isinstance(perturbation, Geometric)


def condition(perturbation: Perturbation) -> str:
    """A short name without the magnitude, the same for all levels of a sweep.

    >>> from heatproof.axes.stability.perturbations import Rotation, Translation
    >>> condition(Rotation(degrees=5)), condition(Translation(axis="vertical"))
    ('rotation', 'translation(axis=vertical)')
    """
    return label_of(perturbation, hide=lambda name: name in (perturbation.magnitude_field, "words"))


def level(perturbation: Perturbation) -> float:
    """The magnitude in the perturbation's unit; 0 for one that has none.

    >>> from heatproof.axes.stability.perturbations import Identity, Rotation
    >>> level(Rotation(degrees=5)), level(Identity())
    (5.0, 0.0)
    """
    magnitude = perturbation.magnitude_field
    return float(getattr(unwrap(perturbation), magnitude)) if magnitude else 0.0


def bound(perturbation: Perturbation, references: Batch) -> Callable[[Batch, int], Tensor]:
    """What is called: the perturbation itself, or one that needs other samples with these.

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
    kind = perturbation.kind
    data_kind = kind_of_shape(shape)
    data = None if data_kind is None else data_kind.name
    voxels = data == "volume" and name_of(perturbation) in OF_VOLUMES
    if kind is not None and not ((data == kind or voxels) and min(shape) > 0):
        text = ", ".join(str(n) for n in ("B", *shape))
        hint = "" if data in (None, kind) else f"; {INSTEAD[data]}"
        raise UserError(f"{name_of(perturbation)} needs {_SHAPES[kind]}, got shape ({text}){hint}")
    demands = getattr(perturbation, "check", None)
    if demands is not None:
        demands(shape)


def values_of(perturbation: Perturbation, batch: Batch) -> Tensor:
    """The batch's values in their own units, images in float32, after the checks that need a shape."""
    check(perturbation, batch.x.shape[1:])
    images = perturbation.kind == "image"
    if not batch.x.is_floating_point():
        what, more = ("pixels in [0, 1]", "; divide by 255 first") if images else ("numbers", "")
        raise UserError(
            f"{name_of(perturbation)} needs floating-point {what}, got {batch.x.dtype}{more}"
        )
    return batch.x.float() if images else batch.x


def check_maps(perturbation: Perturbation, maps: Tensor, ids: Sequence[str]) -> None:
    check(perturbation, maps.shape[1:])
    if len(maps) != len(ids):
        raise UserError(
            f"{name_of(perturbation)} was asked to move {len(maps)} maps with {len(ids)} ids"
        )

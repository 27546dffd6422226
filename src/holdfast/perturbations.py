"""Perturbations of images in pixel space: each has a family, a magnitude with a unit and, when geometric, a `move`.

A perturbation maps `batch.x`, (B, C, H, W) in [0, 1] and not yet normalised, to another tensor of that shape. Random
ones draw as a function of (seed, sample id) alone; the magnitude scales the draw, so a sweep shares its draws.
"""

from __future__ import annotations

import io
import math
import os
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import fields
from typing import Annotated, Any, ClassVar, Literal, Protocol, TypeGuard

import numpy as np
import torch
from PIL import Image
from pydantic import Field, ValidationError
from pydantic.dataclasses import dataclass
from torch import Tensor
from torch.nn import functional

from holdfast.errors import UserError, nearest, unknown
from holdfast.rand import keys, normal, uniform
from holdfast.types import STRICT, Batch, label_of, name_of
from holdfast.warping import elastic_offsets, resample, rotation_offsets, shift

Family = Literal["geometric", "photometric", "compression", "occlusion", "control"]
Finite = Annotated[float, Field(strict=True, allow_inf_nan=False)]
NonNegative = Annotated[float, Field(strict=True, allow_inf_nan=False, ge=0)]
Positive = Annotated[float, Field(strict=True, allow_inf_nan=False, gt=0)]

_LUMA = (0.299, 0.587, 0.114)
_TRUNCATE = 4.0


class Perturbation(Protocol):
    """Anything callable as (batch, seed) -> x of the same shape; the built-in ones are frozen objects with fields.

    They also have `name`, `family`, `unit`, `text` (how `describe` writes them), `magnitude_field` (which field is
    the severity) and `stochastic` (whether the seed matters), and may have `check(shape)`, which raises `UserError` for
    a sample shape that cannot be perturbed; all of these are optional for one's own.
    """

    def __call__(self, batch: Batch, seed: int) -> Tensor: ...


class Geometric(Perturbation, Protocol):
    """A perturbation that can move a map the way it moves the image."""

    def move(self, maps: Tensor, ids: Sequence[str], seed: int) -> tuple[Tensor, Tensor]: ...


@dataclass(frozen=True, config=STRICT)
class Identity:
    """The control: x itself, for data of any shape. Every stability measure must score it 1.

    >>> batch = Batch(ids=("a",), x=torch.rand(1, 3, 4, 4))
    >>> Identity()(batch, seed=0) is batch.x
    True
    """

    name: ClassVar[str] = "identity"
    family: ClassVar[Family] = "control"
    unit: ClassVar[str] = ""
    magnitude_field: ClassVar[str] = ""
    text: ClassVar[str] = "identity"
    stochastic: ClassVar[bool] = False

    def __call__(self, batch: Batch, seed: int) -> Tensor:
        return batch.x


@dataclass(frozen=True, config=STRICT)
class Rotation:
    """Rotation about the centre by `degrees`, counter-clockwise when positive; bilinear, exposed regions zero.

    Works in pixel coordinates, so it is a true rotation on images of any proportions.

    >>> x = torch.tensor([[[[0.1, 0.2], [0.3, 0.4]]]])
    >>> torch.allclose(Rotation(degrees=90)(Batch(ids=("a",), x=x), seed=0), torch.rot90(x, 1, (2, 3)))
    True
    """

    name: ClassVar[str] = "rotation"
    family: ClassVar[Family] = "geometric"
    unit: ClassVar[str] = "°"
    magnitude_field: ClassVar[str] = "degrees"
    text: ClassVar[str] = "rotation {degrees:g}°"
    stochastic: ClassVar[bool] = False
    degrees: Finite = 15.0

    def __call__(self, batch: Batch, seed: int) -> Tensor:
        return self.move(_images(self, batch), batch.ids, seed)[0].clamp(0, 1)

    def move(self, maps: Tensor, ids: Sequence[str], seed: int) -> tuple[Tensor, Tensor]:
        """Maps (B, C, H, W) rotated alike, and the mask (B, 1, H, W) of pixels whose source lies inside."""
        _check_maps(self, maps, ids)
        return resample(maps, rotation_offsets(self.degrees, *maps.shape[-2:]))


@dataclass(frozen=True, config=STRICT)
class Translation:
    """Shift by whole pixels, right or down when positive; exposed regions zero: out[i, j] = x[i, j − pixels].

    >>> x = torch.tensor([[[[0.1, 0.2, 0.3]]]])
    >>> Translation(pixels=1)(Batch(ids=("a",), x=x), seed=0).flatten().tolist() == [0.0, *x.flatten()[:2].tolist()]
    True
    """

    name: ClassVar[str] = "translation"
    family: ClassVar[Family] = "geometric"
    unit: ClassVar[str] = "px"
    magnitude_field: ClassVar[str] = "pixels"
    text: ClassVar[str] = "{axis} translation {pixels} px"
    stochastic: ClassVar[bool] = False
    pixels: int = 20
    axis: Literal["horizontal", "vertical"] = "horizontal"

    def check(self, shape: Sequence[int]) -> None:
        """Refuse a sample shape (C, H, W) of which nothing would remain."""
        side, what = (shape[-1], "width") if self.axis == "horizontal" else (shape[-2], "height")
        if abs(self.pixels) >= side:
            raise UserError(
                f"a {self.axis} translation by {self.pixels} pixels leaves nothing of images of {what} {side}; "
                f"pixels must be below {side}"
            )

    def __call__(self, batch: Batch, seed: int) -> Tensor:
        return self.move(_images(self, batch), batch.ids, seed)[0]

    def move(self, maps: Tensor, ids: Sequence[str], seed: int) -> tuple[Tensor, Tensor]:
        """Maps (B, C, H, W) shifted alike, and the mask (B, 1, H, W) of pixels that are not fill."""
        _check_maps(self, maps, ids)
        down, right = (0, self.pixels) if self.axis == "horizontal" else (self.pixels, 0)
        return shift(maps, down, right)


@dataclass(frozen=True, config=STRICT)
class Elastic:
    """A smooth random displacement field; its longest vector is `amplitude` pixels, it varies over `smoothness` pixels.

    Bilinear, zero outside. The field depends on (seed, sample id); amplitudes of a sweep share it.

    >>> batch = Batch(ids=("a",), x=torch.ones(1, 1, 16, 16))
    >>> warped, valid = Elastic(amplitude=2.0).move(batch.x, batch.ids, seed=0)
    >>> torch.allclose(warped[valid], torch.ones(1))
    True
    """

    name: ClassVar[str] = "elastic"
    family: ClassVar[Family] = "geometric"
    unit: ClassVar[str] = "px"
    magnitude_field: ClassVar[str] = "amplitude"
    text: ClassVar[str] = "elastic deformation up to {amplitude:g} px, smooth over {smoothness:g} px"
    stochastic: ClassVar[bool] = True
    amplitude: NonNegative = 4.0
    smoothness: Positive = 8.0

    def __call__(self, batch: Batch, seed: int) -> Tensor:
        return self.move(_images(self, batch), batch.ids, seed)[0].clamp(0, 1)

    def move(self, maps: Tensor, ids: Sequence[str], seed: int) -> tuple[Tensor, Tensor]:
        """Maps (B, C, H, W) warped by each sample's field, and the mask (B, 1, H, W) of pixels read from inside."""
        _check_maps(self, maps, ids)
        key = keys(seed, ids, "elastic").to(maps.device)
        return resample(maps, elastic_offsets(key, self.amplitude, self.smoothness, *maps.shape[-2:]))


@dataclass(frozen=True, config=STRICT)
class Brightness:
    """Every pixel times `factor`: min(1, factor · x).

    >>> Brightness(factor=1.5)(Batch(ids=("a",), x=torch.full((1, 1, 1, 1), 0.5)), seed=0).item()
    0.75
    """

    name: ClassVar[str] = "brightness"
    family: ClassVar[Family] = "photometric"
    unit: ClassVar[str] = "×"
    magnitude_field: ClassVar[str] = "factor"
    text: ClassVar[str] = "brightness ×{factor:g}"
    stochastic: ClassVar[bool] = False
    factor: Positive = 1.5

    def __call__(self, batch: Batch, seed: int) -> Tensor:
        return (_images(self, batch) * self.factor).clamp(0, 1)


@dataclass(frozen=True, config=STRICT)
class Contrast:
    """Distance from the image's own mean grey level m times `factor`: clamp(m + factor · (x − m), 0, 1).

    The grey level is 0.299 R + 0.587 G + 0.114 B for three channels, else the mean of the channels.

    >>> x = torch.tensor([[[[0.25, 0.5]]]])
    >>> Contrast(factor=2.0)(Batch(ids=("a",), x=x), seed=0).flatten().tolist()
    [0.125, 0.625]
    """

    name: ClassVar[str] = "contrast"
    family: ClassVar[Family] = "photometric"
    unit: ClassVar[str] = "×"
    magnitude_field: ClassVar[str] = "factor"
    text: ClassVar[str] = "contrast ×{factor:g}"
    stochastic: ClassVar[bool] = False
    factor: Positive = 1.5

    def __call__(self, batch: Batch, seed: int) -> Tensor:
        x = _images(self, batch)
        means = x.mean((2, 3))
        grey = (means * means.new_tensor(_LUMA)).sum(1) if x.shape[1] == 3 else means.mean(1)
        grey = grey.reshape(-1, 1, 1, 1)
        return (grey + self.factor * (x - grey)).clamp(0, 1)


@dataclass(frozen=True, config=STRICT)
class GaussianNoise:
    """clamp(x + σ z, 0, 1) with z standard normal, a function of (seed, sample id) shared by all σ of a sweep.

    >>> batch = Batch(ids=("a",), x=torch.full((1, 1, 8, 8), 0.5))
    >>> torch.equal(GaussianNoise()(batch, seed=0), GaussianNoise()(batch, seed=1))
    False
    """

    name: ClassVar[str] = "gaussian_noise"
    family: ClassVar[Family] = "photometric"
    unit: ClassVar[str] = "σ"
    magnitude_field: ClassVar[str] = "sigma"
    text: ClassVar[str] = "Gaussian noise σ {sigma:g}"
    stochastic: ClassVar[bool] = True
    sigma: NonNegative = 0.15

    def __call__(self, batch: Batch, seed: int) -> Tensor:
        x = _images(self, batch)
        z = normal(keys(seed, batch.ids, "gaussian_noise").to(x.device), x.shape[1:])
        return (x + self.sigma * z).clamp(0, 1)


@dataclass(frozen=True, config=STRICT)
class GaussianBlur:
    """Convolution with a Gaussian of standard deviation `sigma` pixels, cut at 4σ, edge pixels repeated outwards.

    >>> batch = Batch(ids=("a",), x=torch.full((1, 1, 3, 3), 0.5))
    >>> torch.allclose(GaussianBlur(sigma=5.0)(batch, seed=0), batch.x)
    True
    """

    name: ClassVar[str] = "gaussian_blur"
    family: ClassVar[Family] = "photometric"
    unit: ClassVar[str] = "px"
    magnitude_field: ClassVar[str] = "sigma"
    text: ClassVar[str] = "Gaussian blur σ {sigma:g} px"
    stochastic: ClassVar[bool] = False
    sigma: NonNegative = 2.0

    def __call__(self, batch: Batch, seed: int) -> Tensor:
        x = _images(self, batch)
        return _smooth(_smooth(x, self.sigma, 2), self.sigma, 3).clamp(0, 1)


@dataclass(frozen=True, config=STRICT)
class Jpeg:
    """A round trip through a real JPEG codec (Pillow's, 4:2:0) at `quality` 1 to 100; images of 1 or 3 channels.

    Pixels are rounded to 8 bits first. Qualities above 95 are allowed, but give much larger files and hardly a better
    image; 100 still quantises.

    >>> batch = Batch(ids=("a",), x=torch.full((1, 3, 8, 8), 128 / 255))
    >>> torch.allclose(Jpeg()(batch, seed=0), batch.x, atol=0.02)
    True
    """

    name: ClassVar[str] = "jpeg"
    family: ClassVar[Family] = "compression"
    unit: ClassVar[str] = "quality"
    magnitude_field: ClassVar[str] = "quality"
    text: ClassVar[str] = "JPEG quality {quality}"
    stochastic: ClassVar[bool] = False
    quality: Annotated[int, Field(ge=1, le=100)] = 40

    def check(self, shape: Sequence[int]) -> None:
        """Refuse a sample shape (C, H, W) that the codec has no colour space for."""
        if shape[0] not in (1, 3):
            raise UserError(f"jpeg needs images of 1 or 3 channels, got {shape[0]}")

    def __call__(self, batch: Batch, seed: int) -> Tensor:
        x = _images(self, batch)
        pixels = (x.detach().clamp(0, 1) * 255).round().to("cpu", torch.uint8)
        pictures = pixels.permute(0, 2, 3, 1).contiguous().numpy()
        with ThreadPoolExecutor(max(1, min(len(pictures), os.cpu_count() or 1))) as pool:
            decoded = list(pool.map(self._round_trip, pictures))
        out = torch.from_numpy(np.stack(decoded)) if decoded else pixels.permute(0, 2, 3, 1)
        return out.permute(0, 3, 1, 2).to(x.device, torch.float32).contiguous() / 255

    def _round_trip(self, picture: np.ndarray[Any, np.dtype[np.uint8]]) -> np.ndarray[Any, np.dtype[np.uint8]]:
        file = io.BytesIO()
        Image.fromarray(picture[..., 0] if picture.shape[2] == 1 else picture).save(file, "JPEG", quality=self.quality)
        with Image.open(file) as image:
            return np.array(image).reshape(picture.shape)


@dataclass(frozen=True, config=STRICT)
class OccludingPatch:
    """A square of `fraction` of the area, at least one pixel, filled with `value` at a place drawn from (seed, id).

    Its side is round(√(fraction · H · W)).

    >>> batch = Batch(ids=("a",), x=torch.ones(1, 1, 10, 10))
    >>> int((OccludingPatch(fraction=0.09)(batch, seed=0) == 0.5).sum())
    9
    """

    name: ClassVar[str] = "occluding_patch"
    family: ClassVar[Family] = "occlusion"
    unit: ClassVar[str] = "of the area"
    magnitude_field: ClassVar[str] = "fraction"
    text: ClassVar[str] = "occluding patch, {fraction:g} of the area, value {value:g}"
    stochastic: ClassVar[bool] = True
    fraction: Annotated[float, Field(strict=True, allow_inf_nan=False, gt=0, lt=1)] = 0.1
    value: Annotated[float, Field(strict=True, allow_inf_nan=False, ge=0, le=1)] = 0.5

    def side(self, height: int, width: int) -> int:
        """The side of the square in pixels."""
        return max(1, round(math.sqrt(self.fraction * height * width)))

    def check(self, shape: Sequence[int]) -> None:
        """Refuse a sample shape (C, H, W) that the square does not fit into."""
        side = self.side(shape[-2], shape[-1])
        if side > min(shape[-2:]):
            raise UserError(
                f"a square patch of fraction {self.fraction:g} has side {side} and does not fit into images of "
                f"{shape[-2]} × {shape[-1]}; use a fraction of at most {min(shape[-2:]) / max(shape[-2:]):.3g}"
            )

    def __call__(self, batch: Batch, seed: int) -> Tensor:
        x = _images(self, batch)
        height, width = x.shape[-2:]
        side = self.side(height, width)
        draw = uniform(keys(seed, batch.ids, "occluding_patch").to(x.device), (2,))
        rows = torch.arange(height, device=x.device) - _start(draw[:, :1], height - side)
        columns = torch.arange(width, device=x.device) - _start(draw[:, 1:], width - side)
        inside = ((rows >= 0) & (rows < side))[:, None, :, None] & ((columns >= 0) & (columns < side))[:, None, None]
        return torch.where(inside, self.value, x)


PERTURBATIONS: dict[str, type] = {
    "identity": Identity,
    "rotation": Rotation,
    "translation": Translation,
    "brightness": Brightness,
    "gaussian_noise": GaussianNoise,
    "jpeg": Jpeg,
    "contrast": Contrast,
    "gaussian_blur": GaussianBlur,
    "occluding_patch": OccludingPatch,
    "elastic": Elastic,
}
"""Every perturbation by its name in a study file."""

PRESETS: dict[str, tuple[Perturbation, ...]] = {
    "fass-paper": (
        Rotation(degrees=15.0),
        Translation(pixels=20),
        Brightness(factor=1.5),
        GaussianNoise(sigma=0.15),
        Jpeg(quality=40),
    ),
    "fass-mild": (
        Rotation(degrees=5.0),
        Translation(pixels=10),
        Brightness(factor=1.1),
        GaussianNoise(sigma=0.01),
        Jpeg(quality=85),
    ),
    "beyond-paper": (Contrast(), GaussianBlur(), OccludingPatch(), Elastic()),
}
"""The magnitudes printed in the FASS paper, those its released code ran, and the perturbations the paper lacks."""


def is_geometric(perturbation: Perturbation) -> TypeGuard[Geometric]:
    """Whether it moves pixels and can move a map alike.

    >>> is_geometric(Rotation()), is_geometric(Brightness())
    (True, False)
    """
    return callable(getattr(perturbation, "move", None))


def condition(perturbation: Perturbation) -> str:
    """A short name without the magnitude, the same for all levels of a sweep.

    >>> condition(Rotation(degrees=5)), condition(Translation(axis="vertical"))
    ('rotation', 'translation(axis=vertical)')
    """
    magnitude = getattr(perturbation, "magnitude_field", "")
    return label_of(perturbation, hide=lambda name: name == magnitude)


def level(perturbation: Perturbation) -> float:
    """The magnitude in the perturbation's unit; 0 for one that has none.

    >>> level(Rotation(degrees=5)), level(Identity())
    (5.0, 0.0)
    """
    magnitude = getattr(perturbation, "magnitude_field", "")
    return float(getattr(perturbation, magnitude)) if magnitude else 0.0


def describe(perturbation: Perturbation) -> str:
    """The perturbation in words, for the report.

    >>> describe(Rotation()), describe(Jpeg()), describe(Brightness())
    ('rotation 15°', 'JPEG quality 40', 'brightness ×1.5')
    """
    text = getattr(perturbation, "text", None)
    if not isinstance(text, str):
        return condition(perturbation)
    return text.format(**vars(perturbation))


def check(perturbation: Perturbation, shape: Sequence[int]) -> None:
    """Raise `UserError` when samples of this shape, (C, H, W) without the batch, cannot be perturbed so.

    >>> check(Translation(pixels=20), (3, 16, 16))
    Traceback (most recent call last):
    holdfast.errors.UserError: a horizontal translation by 20 pixels leaves nothing of images of width 16; ...
    """
    built_in = type(perturbation) in PERTURBATIONS.values() and not isinstance(perturbation, Identity)
    if built_in and (len(shape) != 3 or min(shape) < 1):
        text = ", ".join(str(n) for n in ("B", *shape))
        raise UserError(f"{name_of(perturbation)} needs images (B, C, H, W), got shape ({text})")
    own = getattr(perturbation, "check", None)
    if callable(own):
        own(shape)


def resolve(spec: Any) -> tuple[Perturbation, ...]:
    """The perturbations that a study names, in order.

    `spec` is a preset, a name, an object, a mapping {name: {parameter: value}}, or a list of these. A list as the
    value of one parameter is a sweep.

    >>> [describe(p) for p in resolve(["jpeg", {"rotation": {"degrees": [5, 10]}}])]
    ['JPEG quality 40', 'rotation 5°', 'rotation 10°']
    """
    found = tuple(_flatten(spec))
    if not found:
        raise UserError("no perturbations were given; name at least one, for example 'fass-paper'")
    seen = set()
    for perturbation in found:
        key = condition(perturbation), level(perturbation)
        if key in seen:
            raise UserError(f"the perturbation {key[0]!r} at level {key[1]:g} is given twice; each may occur once")
        seen.add(key)
    return found


def _flatten(spec: Any) -> Iterable[Perturbation]:
    if isinstance(spec, str):
        if spec in PRESETS:
            yield from PRESETS[spec]
        elif spec in PERTURBATIONS:
            yield PERTURBATIONS[spec]()
        else:
            raise unknown("perturbation or preset", spec, [*PERTURBATIONS, *PRESETS])
    elif isinstance(spec, type):
        raise UserError(f"got the class {spec.__name__} as a perturbation; pass an object, such as {spec.__name__}()")
    elif isinstance(spec, Mapping):
        for name, values in spec.items():
            yield from _flatten(name) if values is None or values == {} else _sweep(name, values)
    elif callable(spec):
        yield spec
    elif isinstance(spec, Iterable):
        for item in spec:
            yield from _flatten(item)
    else:
        raise UserError(
            f"a perturbation must be a name, an object, a mapping {{name: {{parameter: value}}}} or a list of these, "
            f"got {spec!r}"
        )


def _sweep(name: Any, values: Any) -> Iterable[Perturbation]:
    """One perturbation, or one for each value of the parameter that is a list."""
    if name in PRESETS:
        raise UserError(f"the preset {name!r} takes no parameters, got {values!r}")
    if name not in PERTURBATIONS:
        raise unknown("perturbation", name, PERTURBATIONS)
    if not isinstance(values, Mapping):
        raise UserError(f"{name}: expected a mapping of parameters {_example(name)}, got {values!r}")
    allowed = [f.name for f in fields(PERTURBATIONS[name])]
    for parameter in values:
        if parameter not in allowed:
            close = nearest(str(parameter), allowed)
            hint = f"; did you mean {close[0]!r}?" if close else "."
            raise UserError(f"{name} has no parameter {parameter!r}{hint} Allowed: {', '.join(allowed) or 'none'}")
    swept = [
        key for key, value in values.items() if isinstance(value, Sequence | np.ndarray) and not isinstance(value, str)
    ]
    if len(swept) > 1:
        raise UserError(f"{name}: only one parameter may be a list, got lists for {' and '.join(swept)}")
    if not swept:
        yield _build(name, dict(values))
        return
    steps = list(values[swept[0]])
    if not steps:
        raise UserError(f"{name}: the list for {swept[0]} is empty")
    for step in steps:
        yield _build(name, {**values, swept[0]: step})


def _example(name: str) -> str:
    defaults = {f.name: f.default for f in fields(PERTURBATIONS[name])}
    return "such as {" + ", ".join(f"{key}: {value}" for key, value in list(defaults.items())[:1]) + "}"


def _build(name: str, values: dict[str, Any]) -> Perturbation:
    try:
        built: Perturbation = PERTURBATIONS[name](**values)
    except ValidationError as error:
        problems = []
        for problem in error.errors():
            wanted = problem["msg"].replace("Input should be", "must be")
            problems.append(f"{'.'.join(map(str, problem['loc']))} {wanted}, got {problem['input']!r}")
        raise UserError(f"{name}: {'; '.join(problems)}") from error
    return built


def _images(perturbation: Perturbation, batch: Batch) -> Tensor:
    """The batch's pixels in float32, after the checks that need a shape."""
    check(perturbation, batch.x.shape[1:])
    if not batch.x.is_floating_point():
        raise UserError(
            f"{name_of(perturbation)} needs floating-point pixels in [0, 1], got {batch.x.dtype}; divide by 255 first"
        )
    return batch.x.float()


def _check_maps(perturbation: Perturbation, maps: Tensor, ids: Sequence[str]) -> None:
    check(perturbation, maps.shape[1:])
    if len(maps) != len(ids):
        raise UserError(f"{name_of(perturbation)} was asked to move {len(maps)} maps with {len(ids)} ids")


def _smooth(x: Tensor, sigma: float, dim: int) -> Tensor:
    """One axis of a Gaussian blur; tap by tap, because a GPU's convolution may round to ten bits."""
    radius = int(_TRUNCATE * sigma + 0.5)
    if radius == 0:
        return x
    taps = torch.exp(-0.5 * (torch.arange(-radius, radius + 1, dtype=torch.float64) / sigma) ** 2)
    padded = functional.pad(x, (0, 0, radius, radius) if dim == 2 else (radius, radius, 0, 0), mode="replicate")
    out = torch.zeros_like(x)
    for index, weight in enumerate((taps / taps.sum()).tolist()):
        out += weight * padded.narrow(dim, index, x.shape[dim])
    return out


def _start(draw: Tensor, room: int) -> Tensor:
    """Where a patch begins when it has `room` pixels to move: uniform on 0 … room."""
    return (draw * (room + 1)).long().clamp(max=room)

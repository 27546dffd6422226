"""Perturbations: each has a family, a magnitude with a unit and, when geometric, a `move`.

A perturbation maps `batch.x` to another tensor of that shape: images (B, C, H, W) in [0, 1] and not yet normalised,
volumes (B, C, D, H, W) alike, series (B, C, T) or rows of a table (B, F) in their own units. Random ones draw as a
function of (seed, sample id) alone; the magnitude scales the draw, so a sweep shares its draws.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import fields, replace
from typing import Any

import numpy as np
from torch import Tensor

from heatproof.axes.stability.perturbations.contract import (
    INSTEAD,
    Geometric,
    Perturbation,
    bound,
    check,
    condition,
    is_geometric,
    level,
    wrap_perturbation,
)
from heatproof.axes.stability.perturbations.geometric import Elastic, Rotation, Translation
from heatproof.axes.stability.perturbations.photometric import (
    Brightness,
    Contrast,
    GaussianBlur,
    GaussianNoise,
    Identity,
    Jpeg,
    OccludingPatch,
)
from heatproof.axes.stability.perturbations.series import Jitter, Scaling, TimeShift
from heatproof.axes.stability.perturbations.tables import ColumnNoise, ColumnSwap
from heatproof.axes.stability.perturbations.texts import (
    Case,
    OfTexts,
    PassageOrder,
    Reworded,
    Synonyms,
    WhiteSpace,
)
from heatproof.errors import BadParameter, inside, make, unknown
from heatproof.kinds import KINDS, KindName

__all__ = [
    "FOR_SERIES",
    "FOR_TABLES",
    "INSTEAD",
    "KNOWN",
    "KNOWN_PRESETS",
    "OPEN",
    "PERTURBATIONS",
    "PRESETS",
]
__all__ += [
    "Brightness",
    "ColumnNoise",
    "ColumnSwap",
    "Contrast",
    "Elastic",
    "GaussianBlur",
    "GaussianNoise",
]
__all__ += [
    "Geometric",
    "Identity",
    "Jitter",
    "Jpeg",
    "OccludingPatch",
    "Perturbation",
    "Rotation",
]
__all__ += [
    "Scaling",
    "TimeShift",
    "Translation",
    "bound",
    "check",
    "condition",
    "describe",
]
__all__ += ["fitted", "is_geometric", "known", "level", "milder", "resolve", "title"]
__all__ += ["wrap_perturbation"]
__all__ += ["FOR_TEXTS", "Case", "OfTexts", "PassageOrder", "Reworded", "Synonyms", "WhiteSpace"]

_OF_IMAGES: tuple[Any, ...] = (Identity, Rotation, Translation, Brightness, GaussianNoise, Jpeg)
_OF_IMAGES += (Contrast, GaussianBlur, OccludingPatch, Elastic)
PERTURBATIONS: dict[str, Any] = {kind.name: kind for kind in _OF_IMAGES}
"""Every perturbation of images by its name in a study file."""
FOR_SERIES: dict[str, Any] = {"jitter": Jitter, "scaling": Scaling, "time_shift": TimeShift}
FOR_TABLES: dict[str, Any] = {"column_noise": ColumnNoise, "column_swap": ColumnSwap}
FOR_TEXTS: dict[str, Any] = {kind.name: kind for kind in (Case, WhiteSpace, Synonyms, PassageOrder)}
KNOWN: dict[str, Any] = {**PERTURBATIONS, **FOR_SERIES, **FOR_TABLES, **FOR_TEXTS}
"""Every perturbation of any data."""

PRESETS: dict[str, tuple[Perturbation, ...]] = {
    "fass-paper": (Rotation(15.0), Translation(20), Brightness(1.5), GaussianNoise(0.15), Jpeg(40)),
    "fass-mild": (Rotation(5.0), Translation(10), Brightness(1.1), GaussianNoise(0.01), Jpeg(85)),
    "beyond-paper": (Contrast(), GaussianBlur(), OccludingPatch(), Elastic()),
}
"""The magnitudes printed in the FASS paper, those its released code ran, and the perturbations the paper lacks."""
KNOWN_PRESETS: dict[str, tuple[Perturbation, ...]] = {
    **PRESETS,
    "series-mild": (Jitter(sigma=0.1), Scaling(factor=1.1), TimeShift(steps=2)),
    "table-mild": (ColumnNoise(sigma=0.05), ColumnNoise(sigma=0.1)),
    "volume-mild": (
        Rotation(5.0),
        Translation(1),
        Brightness(1.1),
        GaussianNoise(0.05),
        GaussianBlur(0.5),
    ),
}
"""The presets of any data."""
OPEN: dict[str, dict[KindName, str]] = {
    word: {kind.name: kind.presets[word] for kind in KINDS.values() if kind.presets}
    for word in ("usual", "mild")
}
"""What an evaluation may leave open until it knows the data: the preset for each kind."""
NEUTRAL = {"brightness": 1.0, "contrast": 1.0, "scaling": 1.0, "jpeg": 100.0}
"""The levels at which perturbations change next to nothing; 0 for the others."""


def known(condition: str) -> Perturbation | None:
    """Return the built-in perturbation of a condition, with default parameters; None for a user's own.

    >>> known("translation(axis=vertical)").unit, known("my_own")
    ('px', None)
    """
    name = condition.split("(", maxsplit=1)[0]
    return KNOWN[name]() if name in KNOWN else None


def title(condition: str, level: float) -> str:
    """Return a condition of the table with its level and unit in words.

    >>> title("rotation", 15.0), title("brightness", 1.5), title("jpeg", 40.0)
    ('rotation 15°', 'brightness ×1.5', 'jpeg quality 40')
    >>> title("time_shift", 2.0), title("my_own", 0.0)
    ('time shift 2 steps', 'my own')
    """
    name = condition.replace("_", " ")
    perturbation = known(condition)
    if perturbation is None:
        return f"{name} {level:g}" if level else name
    unit = perturbation.unit
    if not unit:
        return name
    if unit == "×":
        return f"{name} ×{level:g}"
    if unit in ("σ", "quality"):
        return f"{name} {unit} {level:g}"
    if unit == "°":
        return f"{name} {level:g}°"
    return f"{name} {level:g} {unit}"


EFFECTS = {
    "rotation": "rotated {:g}°",
    "translation": "shifted {:g} px",
    "jpeg": "JPEG {:g}",
    "gaussian_noise": "noise σ {:g}",
}


def effect(condition: str, level: float) -> str:
    """Return what a perturbation does to the input, in a few words for the head of a picture.

    >>> effect("rotation", 15.0), effect("brightness", 1.5)
    ('rotated 15°', '50 % brighter')
    >>> effect("time_shift", 2.0)
    'time shift 2 steps'
    """
    if condition == "brightness":
        return f"{abs(100 * (level - 1)):.0f} % {'brighter' if level > 1 else 'darker'}"
    if condition in EFFECTS:
        return EFFECTS[condition].format(level)
    return title(condition, level)


def describe(perturbation: Perturbation) -> str:
    """Return the perturbation in words.

    >>> describe(Rotation()), describe(Jpeg()), describe(Brightness())
    ('rotation 15°', 'jpeg quality 40', 'brightness ×1.5')
    """
    return title(condition(perturbation), level(perturbation))


def milder(condition: str, level: float) -> dict[str, dict[str, list[float]]]:
    """Return a sweep over milder levels of a perturbation, up to this one, as an entry of a study file.

    It is empty for perturbations of the user, and for those with other parameters than a level.

    >>> milder("rotation", 15.0), milder("jpeg", 40.0), milder("mine", 1.0)
    ({'rotation': {'degrees': [1.5, 3.75, 7.5, 15]}}, {'jpeg': {'quality': [94, 85, 70, 40]}}, {})
    """
    kind = KNOWN.get(condition)
    if kind is None or not kind.magnitude_field:
        return {}
    neutral = NEUTRAL.get(condition, 0.0)
    takes_integers = isinstance(getattr(kind(), kind.magnitude_field), int)
    levels: list[float] = []
    for share in (0.1, 0.25, 0.5, 1.0):
        step = round(neutral + (level - neutral) * share, 3)
        if takes_integers and float(level).is_integer():
            step = max(1, round(step))
        levels.append(int(step) if float(step).is_integer() else step)
    return {condition: {kind.magnitude_field: list(dict.fromkeys(levels))}}


def resolve(spec: Any) -> tuple[Perturbation, ...]:
    """Return the perturbations that a study names, in order.

    `spec` is a preset, a name, an object, a mapping {name: {parameter: value}}, or a list of these. A list as the
    value of one parameter is a sweep.

    >>> [describe(p) for p in resolve(["jpeg", {"rotation": {"degrees": [5, 10]}}])]
    ['jpeg quality 40', 'rotation 5°', 'rotation 10°']
    """
    perturbations = tuple(_flatten(spec))
    if not perturbations:
        raise BadParameter(
            "no perturbations were given; name at least one, for example 'fass-paper'"
        )
    seen = set()
    for perturbation in perturbations:
        key = condition(perturbation), level(perturbation)
        if key in seen:
            raise BadParameter(
                f"the perturbation {key[0]!r} at level {key[1]:g} is given twice; each may occur once"
            )
        seen.add(key)
    return perturbations


def _flatten(spec: Any) -> Iterable[Perturbation]:
    """Yield the perturbations of a specification, however it is nested."""
    if isinstance(spec, str):
        yield from _named(spec)
    elif isinstance(spec, type):
        raise BadParameter(
            f"got the class {spec.__name__} as a perturbation; pass an object: {spec.__name__}()"
        )
    elif isinstance(spec, Mapping):
        for name, values in spec.items():
            with inside(name):
                has_parameters = values is not None and values != {}
                yield from _sweep(name, values) if has_parameters else _named(name)
    elif callable(spec):
        yield wrap_perturbation(spec)
    elif isinstance(spec, Iterable) and not isinstance(spec, np.ndarray | Tensor):
        for number, item in enumerate(spec):
            with inside(number):
                yield from _flatten(item)
    else:
        raise BadParameter(
            f"a perturbation must be a name, an object, a mapping {{name: {{parameter: value}}}} or a list of these, "
            f"got {spec!r}"
        )


def _named(name: str) -> Iterable[Perturbation]:
    """Return the perturbations of a preset, or the one of this name."""
    if name in KNOWN_PRESETS:
        return KNOWN_PRESETS[name]
    if name in KNOWN:
        return (KNOWN[name](),)
    raise BadParameter(str(unknown("perturbation or preset", name, [*KNOWN, *KNOWN_PRESETS])))


def _sweep(name: Any, values: Any) -> Iterable[Perturbation]:
    """Yield one perturbation, or one for each value of the parameter that is a list."""
    if name in KNOWN_PRESETS:
        raise BadParameter(f"the preset {name!r} takes no parameters, got {values!r}")
    if name not in KNOWN:
        raise BadParameter(str(unknown("perturbation", name, KNOWN)))
    if not isinstance(values, Mapping):
        raise BadParameter(
            f"{name}: expected a mapping of parameters {_example(name)}, got {values!r}"
        )
    lists = (list, tuple, range, np.ndarray)
    swept = [key for key, value in values.items() if isinstance(value, lists)]
    if len(swept) > 1:
        raise BadParameter(
            f"{name}: only one parameter may be a list, got {' and '.join(swept)}", (swept[1],)
        )
    if not swept:
        yield make(KNOWN[name], name, values)
        return
    steps = list(values[swept[0]])
    if not steps:
        raise BadParameter(f"{name}: the list for {swept[0]} is empty", (swept[0],))
    for step in steps:
        yield make(KNOWN[name], name, {**values, swept[0]: step})


def _example(name: str) -> str:
    """Return an example of the parameters of a perturbation: the first with its default."""
    parameters = [f"{field.name}: {field.default}" for field in fields(KNOWN[name])]
    return f"such as {{{', '.join(parameters[:1])}}}"


PUBLISHED_WIDTH = 224
"""The width of the images for which presets are published."""


def fitted(perturbation: Perturbation, shape: Sequence[int]) -> Perturbation:
    """Return a perturbation of a preset for samples of a shape: translations larger than an image in proportion to it.

    >>> fitted(Translation(20), (1, 8, 8)), fitted(Translation(20), (3, 32, 32))
    (Translation(pixels=1, axis='horizontal'), Translation(pixels=20, axis='horizontal'))
    """
    if not isinstance(perturbation, Translation) or len(shape) < 3:
        return perturbation
    width = shape[-1]
    if abs(perturbation.pixels) < width:
        return perturbation
    return replace(
        perturbation, pixels=max(1, round(perturbation.pixels * width / PUBLISHED_WIDTH))
    )

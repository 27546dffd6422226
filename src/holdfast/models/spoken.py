"""How the page speaks of what was perturbed: pictures and their pixels, series and their steps, rows and columns."""

from __future__ import annotations

from dataclasses import dataclass

from holdfast.axes.stability.perturbations import KNOWN, Kind, kind_of
from holdfast.statistics.cubes import Cube


@dataclass(frozen=True)
class Spoken:
    """One sample, many, the places of a map, and what milder perturbations a study may name."""

    sample: str
    samples: str
    places: str
    milder: str


SPOKEN: dict[Kind, Spoken] = {
    "image": Spoken("picture", "pictures", "pixels", "perturbations: fass-mild"),
    "series": Spoken("series", "series", "time steps", "jitter: {sigma: [0.01, 0.03, 0.1]} in perturbations"),
    "table": Spoken("row", "rows", "columns", "column_noise: {sigma: [0.01, 0.03, 0.1]} in perturbations"),
}


def spoken_kind(cube: Cube) -> Kind:
    """Which kind of data the stability scores of a cube are of, by the perturbations; images where nothing says more.

    >>> import numpy as np, pandas as pd
    >>> none, rows = np.zeros((0, 1, 0), np.int8), pd.DataFrame()
    >>> spoken_kind(Cube("d", "net", "stability", [], [("jitter", 0.1)], [], {}, none, {}, rows, {}))
    'series'
    """
    for condition, _ in cube.conditions:
        made_for = KNOWN.get(condition.split("(", maxsplit=1)[0])
        kind = None if made_for is None else kind_of(made_for)
        if kind is not None:
            return kind
    return "table" if "spearman" in cube.values and "ssim" not in cube.values else "image"


def spoken(cube: Cube) -> Spoken:
    """The words for the data of a cube."""
    return SPOKEN[spoken_kind(cube)]

"""The colours of methods differ from each other and from the grey of controls, with and without deuteranopia."""

from __future__ import annotations

from itertools import combinations

import numpy as np
import pytest
from numpy.typing import NDArray

from heatproof.report.styles import INKS
from heatproof.results.names import OWN_COLOURS

color = pytest.importorskip("skimage.color")

# Machado, Oliveira and Fernandes 2009, severity 1, on linear RGB.
DEUTERANOPIA = np.array(
    [
        [0.367322, 0.860646, -0.227968],
        [0.280085, 0.672501, 0.047413],
        [-0.011820, 0.042940, 0.968881],
    ]
)
LIGHT, DARK = 0, 1


def srgb(colour: str) -> NDArray[np.float64]:
    return np.array([int(colour[i : i + 2], 16) for i in (1, 3, 5)]) / 255


def linear(colour: str) -> NDArray[np.float64]:
    values = srgb(colour)
    return np.where(values <= 0.04045, values / 12.92, ((values + 0.055) / 1.055) ** 2.4)


def with_deuteranopia(colour: str) -> NDArray[np.float64]:
    values = np.clip(DEUTERANOPIA @ linear(colour), 0, 1)
    return np.where(values <= 0.0031308, 12.92 * values, 1.055 * values ** (1 / 2.4) - 0.055)


def smallest_difference(colours: list[NDArray[np.float64]]) -> float:
    labs = [color.rgb2lab(colour[None, None])[0, 0] for colour in colours]
    return min(float(color.deltaE_ciede2000(a, b)) for a, b in combinations(labs, 2))


def contrast(a: str, b: str) -> float:
    luminances = [float(linear(c) @ [0.2126, 0.7152, 0.0722]) + 0.05 for c in (a, b)]
    return max(luminances) / min(luminances)


@pytest.mark.parametrize("mode", [LIGHT, DARK])
def test_methods_and_controls_differ_with_and_without_deuteranopia(mode: int) -> None:
    colours = [pair[mode] for pair in OWN_COLOURS] + [INKS["control"][mode]]
    assert smallest_difference([srgb(colour) for colour in colours]) > 15
    assert smallest_difference([with_deuteranopia(colour) for colour in colours]) > 12


@pytest.mark.parametrize("mode", [LIGHT, DARK])
def test_names_in_the_colour_of_their_method_can_be_read(mode: int) -> None:
    assert all(contrast(pair[mode], INKS["card"][mode]) >= 4.5 for pair in OWN_COLOURS)

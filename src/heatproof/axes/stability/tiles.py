"""The maps of the samples on show under every perturbation, and the worst pair of each method."""

from __future__ import annotations

from heatproof.axes.contract import AxisResult
from heatproof.axes.stability.evaluation import FASS
from heatproof.axes.stability.perturbations import title
from heatproof.axes.tiles import tiles_of, worst_panel
from heatproof.drawing.charts import Panel, Tiles

WORDS = {
    "rotation": "rotated {:g}°",
    "translation": "shifted {:g} px",
    "jpeg": "JPEG {:g}",
    "gaussian_noise": "noise σ {:g}",
}
WORST = (
    "The lowest-scoring pair of each method among those whose maps were kept: the original map, and the map after the "
    "perturbation. Not a typical case."
)
ASKED = (
    "A {} is changed a little and the prediction stays the same: does the map stay the same too?"
)


def condition_words(condition: str, level: float) -> str:
    """Return what a perturbation does to the input, in a few words.

    >>> condition_words("rotation", 15.0), condition_words("brightness", 1.5)
    ('rotated 15°', '50 % brighter')
    >>> condition_words("time_shift", 2.0)
    'time shift 2 steps'
    """
    if condition == "brightness":
        return f"{abs(100 * (level - 1)):.0f} % {'brighter' if level > 1 else 'darker'}"
    if condition in WORDS:
        return WORDS[condition].format(level)
    return title(condition, level)


def tiles(result: AxisResult) -> Tiles | None:
    """Return the kept maps of the samples on show; None where none was kept."""
    return tiles_of(result, FASS, ASKED, condition_words)


def worst_pairs(result: AxisResult) -> Panel | None:
    """Return the pair of each method with the lowest score, of all whose maps were kept."""
    return worst_panel(result, tiles(result), "worst", "Worst pairs", WORST)

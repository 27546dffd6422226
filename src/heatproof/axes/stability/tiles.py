"""The maps of the samples on show under every perturbation, and the worst pair of each method."""

from __future__ import annotations

from heatproof.axes.contract import AxisResult
from heatproof.axes.stability.frames import FASS
from heatproof.axes.stability.perturbations import title
from heatproof.axes.tiles import tiles_of, worst_panel
from heatproof.drawing.charts import Panel, Tiles

SAID = {"rotation": "turned {:g}°", "translation": "moved {:g} px", "jpeg": "JPEG {:g}"}
SAID["gaussian_noise"] = "noise σ {:g}"
WORST = "The worst pair of each method among those whose maps were kept: the map as it is, and after the change. A bad "
WORST += "case, not a typical one."
ASKED = "A {} is changed a little and the model still says the same: does the map of what it looked at stay?"


def said(condition: str, level: float) -> str:
    """A perturbation in the words of somebody who sees what it does.

    >>> said("rotation", 15.0), said("brightness", 1.5), said("time_shift", 2.0)
    ('turned 15°', '50 % brighter', 'time shift 2 steps')
    """
    if condition == "brightness":
        return f"{abs(100 * (level - 1)):.0f} % {'brighter' if level > 1 else 'darker'}"
    return SAID[condition].format(level) if condition in SAID else title(condition, level)


def tiles(judged: AxisResult) -> Tiles | None:
    """What was kept of the samples on show; None where nothing was."""
    return tiles_of(judged, FASS, ASKED, said)


def worst_pairs(judged: AxisResult) -> Panel | None:
    """The pair of each method that holds least, of all whose maps were kept: as it is, and after the change."""
    return worst_panel(judged, tiles(judged), "worst", "Worst pairs", WORST)

"""The worst pair of each method."""

from __future__ import annotations

from heatproof.axes.contract import AxisResult
from heatproof.axes.tiles import tiles_of, worst_panel
from heatproof.drawing.charts import Panel

WORST = (
    "The lowest-scoring pair of each method among those whose maps were kept: the original map, and the map after the "
    "perturbation. Not a typical case."
)


def worst_pairs(result: AxisResult) -> Panel | None:
    """Return the pair of each method with the lowest score, of all whose maps were kept."""
    return worst_panel(result, tiles_of(result), "worst", "Worst pairs", WORST)

"""Figures of dependence for papers: the charts of the page."""

from __future__ import annotations

from collections.abc import Iterator

from holdfast.axes.dependence.page import cascade_chart, score_chart
from holdfast.axes.material import Material, drawings
from holdfast.drawing.pieces import Item, Piece

NONE = "no dependence rows: add `dependence` to the study"


def scores(material: Material, width: float) -> Iterator[Piece]:
    """Dependence on weights and class of every method, with intervals."""
    yield from drawings([(j, score_chart(j)) for j in material.of("dependence")], NONE, "no map has a score")


def cascades(material: Material, width: float) -> Iterator[Piece]:
    """Curves over the layers."""
    every = [(j, cascade_chart(j)) for j in material.of("dependence")]
    yield from drawings(every, NONE, "no cascade: add `cascades: top_down` to dependence")


ITEMS = (
    Item("dependence-scores", "sanity checks, Figure 4, with chance", "figure", scores),
    Item("dependence-cascades", "sanity checks, Figure 4, by layer", "figure", cascades),
)

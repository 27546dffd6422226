"""The figure of agreement for papers: the matrix of the page."""

from __future__ import annotations

from collections.abc import Iterator

from holdfast.axes.agreement.page import matrix_chart
from holdfast.axes.material import Material, drawings
from holdfast.drawing.pieces import Item, Piece


def matrices(material: Material, width: float) -> Iterator[Piece]:
    """Agreement of every two methods beyond chance, by each measure."""
    every = [(j, matrix_chart(j)) for j in material.of("agreement")]
    yield from drawings(every, "no rows of agreement: add `agreement` to the study", "no two maps could be compared")


ITEMS = (Item("agreement-matrix", "the disagreement problem, Figure 3, with chance", "figure", matrices),)

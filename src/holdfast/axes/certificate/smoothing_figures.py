"""Figures of smoothing for papers: what SCA and MuS guarantee, rates and accuracy of the smoothed models."""

from __future__ import annotations

from collections.abc import Iterator

from holdfast.axes.certificate.smoothing_page import accuracy_chart, guarantee_chart, rates_chart, rule_chart
from holdfast.axes.material import Material, drawings
from holdfast.drawing.pieces import Item, Piece

NO_SMOOTHING = "no smoothing rows: add `smoothing` to the study"
NOT_CERTIFIED = "no sample has an explanation to certify"


def guarantee_curves(material: Material, width: float) -> Iterator[Piece]:
    """The share of samples with a guarantee against the radius, by method and λ."""
    charts = [(judged, guarantee_chart(judged)) for judged in material.of("smoothing")]
    yield from drawings(charts, NO_SMOOTHING, NOT_CERTIFIED)


def rule_curves(material: Material, width: float) -> Iterator[Piece]:
    """The share of samples with a guarantee against the radius, by rule and λ."""
    charts = [(judged, rule_chart(judged)) for judged in material.of("smoothing")]
    yield from drawings(charts, NO_SMOOTHING, NOT_CERTIFIED)


def smoothing_curves(material: Material, width: float) -> Iterator[Piece]:
    """Stability rate against the radius, by method and λ."""
    charts = [(judged, rates_chart(judged)) for judged in material.of("smoothing")]
    yield from drawings(charts, NO_SMOOTHING, "the smoothing rows hold no rates: set `mode: estimate`")


def accuracy_curves(material: Material, width: float) -> Iterator[Piece]:
    """Accuracy of the smoothed models against λ."""
    charts = [(judged, accuracy_chart(judged.cube)) for judged in material.of("smoothing")]
    yield from drawings(charts, NO_SMOOTHING, "the smoothed samples have no labels")


ITEMS = (
    Item("certificate-guarantees", "soft stability, Figures 5 and 9", "figure", guarantee_curves),
    Item("certificate-rules", "soft stability, Figure 10", "figure", rule_curves),
    Item("certificate-smoothing", "soft stability, Figures 7 and 12", "figure", smoothing_curves),
    Item("certificate-accuracy", "soft stability, Figure 8", "figure", accuracy_curves),
)

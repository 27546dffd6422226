"""Figures of smoothing for papers: what SCA and MuS guarantee, rates and accuracy of the smoothed models."""

from __future__ import annotations

from heatproof.axes.certificate.smoothing_page import (
    accuracy_chart,
    guarantee_chart,
    rates_chart,
    rule_chart,
)
from heatproof.axes.material import charted
from heatproof.drawing.pieces import Item

NO_SMOOTHING = "no smoothing rows: add `smoothing` to the study"
NOT_CERTIFIED = "no sample has an explanation to certify"
NO_RATES = "the smoothing rows hold no rates: set `mode: estimate`"
NO_LABELS = "the smoothed samples have no labels"

guarantees = charted("smoothing", guarantee_chart, NO_SMOOTHING, NOT_CERTIFIED)
rules = charted("smoothing", rule_chart, NO_SMOOTHING, NOT_CERTIFIED)
rates = charted("smoothing", rates_chart, NO_SMOOTHING, NO_RATES)
accuracies = charted(
    "smoothing", lambda result: accuracy_chart(result.cube), NO_SMOOTHING, NO_LABELS
)

ITEMS = (
    Item("certificate-guarantees", "soft stability, Figures 5 and 9", "figure", guarantees),
    Item("certificate-rules", "soft stability, Figure 10", "figure", rules),
    Item("certificate-smoothing", "soft stability, Figures 7 and 12", "figure", rates),
    Item("certificate-accuracy", "soft stability, Figure 8", "figure", accuracies),
)

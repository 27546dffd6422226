"""Certificates: how often does the prediction survive when features are added to the explanation?"""

from holdfast.axes.certificate.evaluation import Certificate
from holdfast.axes.certificate.smoothing import Smoothing
from holdfast.axes.contract import Axis, Measure

SHARE = (0.0, 1.0)
_COMMON = (
    Measure(
        "rate",
        "stability rate",
        "share of supersets within a radius that keep the prediction, with bounds",
        "higher",
        "headline",
        SHARE,
    ),
    Measure("stable", "stable", "mode decide: whether the rate is at least the threshold", "higher", "headline", SHARE),
    Measure(
        "unflipped",
        "unflipped",
        "mode hard: no draw flipped it, so the rate is at least 1 − ε",
        "higher",
        "headline",
        SHARE,
    ),
    Measure("certified", "certified rate", "the guaranteed lower bound of the rate", "higher", "component", SHARE),
    Measure("passes", "passes", "model passes that it cost", "neither", "cost"),
)

CERTIFICATE = Axis(
    name="certificate",
    title="Certificates",
    question="how often does the prediction survive when features are added to the explanation?",
    verb="is certified better than",
    evaluation=Certificate,
    measures=_COMMON,
    page="holdfast.axes.certificate.page",
    findings="holdfast.axes.certificate.findings",
    figures="holdfast.axes.certificate.figures",
)
SMOOTHING = Axis(
    name="smoothing",
    title="Smoothing",
    question="what does smoothing by random masks buy in certificates, and cost in accuracy?",
    verb="is certified better, smoothed, than",
    evaluation=Smoothing,
    measures=(
        *_COMMON,
        Measure("hard_radius", "hard radius", "how many features can surely be added", "higher", "component"),
        Measure(
            "hard_radius_bernoulli",
            "hard radius, Bernoulli",
            "the same by the tighter rule for Bernoulli masks",
            "higher",
            "component",
        ),
        Measure("correct", "correct", "whether the smoothed model predicts the label", "neither", "model", SHARE),
    ),
    separable="keeps",
    page="holdfast.axes.certificate.smoothing_page",
    findings="holdfast.axes.certificate.smoothing_findings",
    figures="holdfast.axes.certificate.smoothing_figures",
)
AXES = (CERTIFICATE, SMOOTHING)

"""Certificates: how often does the prediction survive when features are added to the explanation?"""

from typing import Any

from heatproof.axes.certificate.evaluation import MEASURES, Certificate, condition_title
from heatproof.axes.certificate.smoothing import SMOOTHED_MEASURES, Smoothing
from heatproof.axis import Axis

UNABLE = {"rate": ("noise 0.3", "noise 1", "noise 3", "blurred", "wrong class", "edge filter")}
PATCHES: dict[str, Any] = {"radii": [1, 2], "epsilon": 0.3, "features": {"patches": {"size": 4}}}
CERTIFICATE = Axis(
    name="certificate",
    title="Certificates",
    question="how often does the prediction survive when features are added to the explanation?",
    heading="Is the marked part enough?",
    fakeable=False,
    verb="has a higher stability rate than",
    best="has the highest stability rate",
    evaluation=Certificate,
    measures=MEASURES,
    report="heatproof.axes.certificate.report",
    condition=condition_title,
    blind_spots=UNABLE,
    trial={
        "image": PATCHES,
        "set": {"radii": [1, 2], "epsilon": 0.3},
        "table": {"radii": [1, 2], "epsilon": 0.3},
    },
)
SMOOTHING = Axis(
    name="smoothing",
    title="Smoothing",
    question="what does smoothing by random masks buy in certificates, and cost in accuracy?",
    purpose="describe",
    verb="has a higher certified rate than",
    best="has the highest certified rate",
    evaluation=Smoothing,
    measures=SMOOTHED_MEASURES,
    separable="keeps",
    report="heatproof.axes.certificate.smoothing_report",
    condition=condition_title,
    blind_spots=UNABLE,
    trial={"image": {**PATCHES, "keeps": [0.5], "samples": 8}},
)

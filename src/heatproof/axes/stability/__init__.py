"""Stability (FASS): does the map survive a perturbation that leaves the prediction unchanged?"""

from heatproof.axes.stability.evaluation import MEASURES, Stability
from heatproof.axes.stability.perturbations import effect, title
from heatproof.axis import Axis

AXIS = Axis(
    name="stability",
    title="Stability",
    question="does the map survive a perturbation that leaves the prediction unchanged?",
    heading="Stays the same?",
    verb="is more stable than",
    evaluation=Stability,
    measures=MEASURES,
    separable="perturbations",
    report="heatproof.axes.stability.report",
    condition=title,
    describe_change=effect,
    best="is the most stable method",
    in_first_study=True,
    trial={
        "image": {
            "perturbations": [{"translation": {"pixels": 2}}, "brightness", "gaussian_noise"],
            "k": 0.1,
        },
        "series": {"perturbations": ["jitter", "scaling", "time_shift"], "k": 0.1},
        "table": {"perturbations": ["column_noise"], "k": 0.2},
    },
    blind_spots={"fass": ("blurred", "shifted", "sign flipped")},
)

"""Localisation: does the map lie where the class is?"""

from heatproof.axes.localisation.evaluation import MEASURES, Localisation
from heatproof.axis import Axis

AXIS = Axis(
    name="localisation",
    title="Localisation",
    question="does the map lie where the class is?",
    heading="Lies on the object?",
    fakeable=False,
    verb="localises better than",
    best="localises best",
    evaluation=Localisation,
    measures=MEASURES,
    report="heatproof.axes.localisation.report",
    frontier_partner="faithfulness",
    blind_spots={"relevance_mass": ("sign flipped",)},
    trial={"region": {"any_class": True}},
    condition=lambda condition, level: f"by {condition}",
)

"""Localisation: does the map lie where the class is?"""

from holdfast.axes.contract import Axis
from holdfast.axes.localisation.evaluation import MEASURES, Localisation

AXIS = Axis(
    name="localisation",
    title="Localisation",
    question="does the map lie where the class is?",
    verb="points better than",
    evaluation=Localisation,
    measures=MEASURES,
    page="holdfast.axes.localisation.page",
    findings="holdfast.axes.localisation.page",
    figures="holdfast.axes.localisation.page",
    against="faithfulness",
    unable={"relevance_mass": ("sign turned",)},
    trial={"region": {"any_class": True}},
    condition=lambda condition, level: f"by {condition}",
)
AXES = (AXIS,)

"""Agreement: do methods say the same of the same sample?"""

from holdfast.axes.agreement.evaluation import MEASURES, Agreement
from holdfast.axes.contract import Axis

AXIS = Axis(
    name="agreement",
    title="Agreement",
    question="do methods say the same of the same sample?",
    verb="agrees more with the others than",
    evaluation=Agreement,
    measures=MEASURES,
    page="holdfast.axes.agreement.page",
    findings="holdfast.axes.agreement.page",
    figures="holdfast.axes.agreement.page",
    trial={"any": {"k": 0.1}},
    condition=lambda other, level: f"with {other}",
)
AXES = (AXIS,)

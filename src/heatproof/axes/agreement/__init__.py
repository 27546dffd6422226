"""Agreement: do methods say the same of the same sample?"""

from heatproof.axes.agreement.evaluation import MEASURES, Agreement
from heatproof.axis import Axis

AXIS = Axis(
    name="agreement",
    title="Agreement",
    question="do methods say the same of the same sample?",
    purpose="describe",
    verb="agrees more with the others than",
    best="agrees most with the others",
    evaluation=Agreement,
    measures=MEASURES,
    report="heatproof.axes.agreement.report",
    in_first_study=True,
    trial={"any": {"k": 0.1}},
    condition=lambda other, level: f"with {other}",
)

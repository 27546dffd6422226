"""Dependence: does the map depend on what the model has learned, and on the class that is asked about?"""

from heatproof.axes.dependence.evaluation import MEASURES, Dependence
from heatproof.axis import Axis

TITLES = {
    "weights": "random weights",
    "class": "another class",
    "clean": "the map itself",
    "redraw": "second draw",
    "top_down": "from the output",
    "bottom_up": "from the input",
}


def title(condition: str, level: float) -> str:
    """Return a condition in words, with the share of layers that were randomised.

    >>> title("weights", 0.0), title("top_down", 0.25)
    ('random weights', 'from the output, 25 % of layers')
    """
    words = TITLES.get(condition, condition)
    return f"{words}, {100 * level:.3g} % of layers" if level else words


AXIS = Axis(
    name="dependence",
    title="Dependence",
    question="does the map depend on what the model has learned, and on the class asked about?",
    heading="Uses the model?",
    purpose="check",
    verb="changes more with the model than",
    best="depend on the trained weights",
    evaluation=Dependence,
    measures=MEASURES,
    report="heatproof.axes.dependence.report",
    marks="heatproof.axes.dependence.verdicts",
    condition=title,
    in_first_study=True,
    trial={"any": {"k": 0.1, "draws": 2}},
)

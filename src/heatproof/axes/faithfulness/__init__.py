"""Faithfulness: does removing what the map calls important hurt the prediction?"""

from dataclasses import replace

from heatproof.axes.faithfulness.evaluation import (
    ACCURACY,
    MEASURES,
    SHARE,
    Faithfulness,
    spans_of_curves,
)
from heatproof.axis import Axis
from heatproof.evaluation import Measure
from heatproof.removal.names import removal_words


def removed(condition: str, level: float) -> str:
    """Return a condition in words, with the share that was removed if there is one.

    >>> removed("noisy_linear morf", 0.5), removed("zero", 0.0)
    ('noisy linear MoRF 0.5', 'zero')
    """
    return removal_words(f"{condition} {level:g}" if level else condition)


AXIS = Axis(
    name="faithfulness",
    title="Faithfulness",
    question="does removing what the map calls important hurt the prediction?",
    heading="Does removing it hurt?",
    fakeable=False,
    verb="is more faithful than",
    best="is the most faithful method",
    evaluation=Faithfulness,
    measures=MEASURES,
    separable="imputers",
    report="heatproof.axes.faithfulness.report",
    frontier_partner="stability",
    in_first_study=True,
    trial={
        **{
            kind: {"fractions": [0.1, 0.3, 0.5, 0.7, 0.9], "masks": 32}
            for kind in ("image", "series", "table")
        },
        "text": {
            "fractions": [0.25, 0.5, 0.75],
            "masks": 32,
            "features": {"tokens": {"special": [], "mask_token": 0}},
        },
    },
    blind_spots={
        **{name: ("blurred",) for name in ("road", "deletion_auc", "aopc", "pixel_flipping")},
        "road_morf_accuracy": ("noise 0.3", "noise 1", "blurred", "edge filter"),
        "insertion_auc": ("noise 0.3", "blurred"),
        "irof": ("noise 0.3", "noise 1", "blurred"),
        "infidelity_scaled": ("sign flipped",),
    },
    condition=removed,
    spans=spans_of_curves,
)
RETRAINING = Axis(
    name="retraining",
    title="Retraining",
    question="how well does a network learn from what is left?",
    purpose="describe",
    verb="",
    evaluation=None,
    measures=(ACCURACY,),
    report="heatproof.axes.faithfulness.report",
    shown_on=AXIS.name,
    condition=removed,
)
_PROBES = {"mask": "the mask", "imputed": "the imputed image", "both": "both"}
_ANSWERS = {"hit": "right answers", "log2": "log₂ probability of the class"}
_MEASURES_OF_PROBES = tuple(
    Measure(
        f"{probe}_{answer}",
        f"{probe}, {words}",
        f"{words} of a probe that sees {sees}",
        "neither",
        "model",
    )
    for probe, sees in _PROBES.items()
    for answer, words in _ANSWERS.items()
)
LEAKAGE = Axis(
    name="leakage",
    title="Leakage",
    question="does the shape of what is removed give the class away?",
    purpose="describe",
    verb="",
    evaluation=None,
    measures=(
        Measure(
            "prior", "class", "the true class, from which the prior is counted", "neither", "model"
        ),
        Measure(
            "pixels",
            "pixels",
            "share of pixels whose removal a probe recognises",
            "neither",
            "model",
            SHARE,
        ),
        *_MEASURES_OF_PROBES,
    ),
    report="heatproof.axes.faithfulness.report",
    shown_on=AXIS.name,
    condition=removed,
)
FIDELITY = replace(
    RETRAINING,
    name="f_fidelity",
    title="F-Fidelity",
    question="what does a network tuned to random removals still recognise?",
)

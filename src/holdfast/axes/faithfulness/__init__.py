"""Faithfulness: does removing what the map calls important hurt the prediction?"""

from holdfast.axes.contract import Axis, Measure
from holdfast.axes.faithfulness.evaluation import Faithfulness

SHARE = (0.0, 1.0)


def removed(condition: str, level: float) -> str:
    """A condition with the share that was removed, where there is one; imputers keep the names that a study gives them.

    >>> removed("noisy_linear morf", 0.5), removed("zero", 0.0)
    ('noisy_linear morf 0.5', 'zero')
    """
    return f"{condition} {level:g}" if level else condition


_ACCURACY = Measure(
    "accuracy", "accuracy", "whether the top class stays when a fraction is removed", "neither", "curve", SHARE
)

AXIS = Axis(
    name="faithfulness",
    title="Faithfulness",
    question="does removing what the map calls important hurt the prediction?",
    verb="is more faithful than",
    evaluation=Faithfulness,
    measures=(
        Measure("road", "ROAD", "mean over fractions of (LeRF − MoRF) / 2", "higher", "headline", chance="zero"),
        Measure("deletion_auc", "deletion area", "area under the MoRF curve", "lower", "headline", SHARE, "random"),
        Measure(
            "insertion_auc", "insertion area", "area under LeRF read backwards", "higher", "headline", SHARE, "random"
        ),
        Measure("aopc", "AOPC", "mean drop along the MoRF curve", "higher", "headline", chance="random"),
        Measure(
            "pixel_flipping",
            "pixel flipping",
            "area under the MoRF curve of the logit",
            "lower",
            "headline",
            chance="random",
        ),
        Measure("irof", "IROF", "area over the curve when segments are removed", "higher", "headline", chance="random"),
        Measure(
            "faithfulness_correlation",
            "correlation",
            "of removed importance and drop, over random masks",
            "higher",
            "headline",
            (-1.0, 1.0),
            "zero",
        ),
        Measure(
            "sensitivity_n",
            "sensitivity-n",
            "the same over masks of one size",
            "higher",
            "headline",
            (-1.0, 1.0),
            "zero",
        ),
        Measure(
            "infidelity_scaled",
            "infidelity, scaled",
            "squared error of the map as a forecast of removals, best scaling",
            "lower",
            "headline",
        ),
        Measure(
            "infidelity",
            "infidelity, not scaled",
            "the same without scaling; for maps in the logit's unit",
            "lower",
            "headline",
        ),
        Measure("probability", "probability", "of the class predicted for the whole input", "neither", "curve", SHARE),
        _ACCURACY,
        Measure("logit", "logit", "of the class predicted for the whole input", "neither", "curve"),
        Measure("margin", "margin", "of that class over the next", "neither", "curve"),
    ),
    separable="imputers",
    page="holdfast.axes.faithfulness.page",
    findings="holdfast.axes.faithfulness.findings",
    figures="holdfast.axes.faithfulness.figures",
    against="stability",
    condition=removed,
)
RETRAINING = Axis(
    name="retraining",
    title="Retraining",
    question="how well does a network learn from what is left?",
    verb="",
    evaluation=None,
    measures=(_ACCURACY,),
    page="holdfast.axes.faithfulness.retraining.page",
    findings="holdfast.axes.faithfulness.findings",
    within=AXIS.name,
    condition=removed,
)
LEAKAGE = Axis(
    name="leakage",
    title="Leakage",
    question="does the shape of what is removed give the class away?",
    verb="",
    evaluation=None,
    measures=(
        Measure("prior", "class", "the true class, from which the prior is counted", "neither", "model"),
        Measure("pixels", "pixels", "share of pixels whose removal a probe recognises", "neither", "model", SHARE),
        *(
            Measure(f"{probe}_{what}", f"{probe}, {words}", f"{words} of a probe that sees {sees}", "neither", "model")
            for probe, sees in (("mask", "the mask"), ("imputed", "the imputed image"), ("both", "both"))
            for what, words in (("hit", "right answers"), ("log2", "log₂ probability of the class"))
        ),
    ),
    page="holdfast.axes.faithfulness.retraining.page",
    within=AXIS.name,
    condition=removed,
)
AXES = (AXIS, RETRAINING, LEAKAGE)

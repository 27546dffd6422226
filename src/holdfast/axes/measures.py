"""Which measure speaks for an evaluation, which way is better, and how that is said."""

from __future__ import annotations

from collections.abc import Iterable

from holdfast.statistics.cubes import SUFFIXES

HEADLINES = {
    "stability": (("fass",),),
    "certificate": (("rate", "stable", "unflipped"),),
    "smoothing": (("rate", "stable", "unflipped"),),
    "symmetry": (("equivariance",), ("invariance",)),
    "faithfulness": (("road", "insertion_auc", "deletion_auc", "aopc", "irof", "faithfulness_correlation"),),
}
"""For each kind of evaluation groups of measures; the first of a group that was measured speaks for the evaluation."""

LOWER_IS_BETTER = frozenset({"deletion_auc", "pixel_flipping", "infidelity", "infidelity_scaled", "max_sensitivity"})
LOWER_IS_BETTER |= {"layer_invariance_error", "layer_equivariance_error"}
NEUTRAL = frozenset({"passes", "correct", "model_invariance", "model_agreement"})
NEUTRAL |= {"accuracy", "probability", "logit", "margin"}
"""What tells about the model, the cost or one point of a curve, and not how good an explanation is."""

BETTER = {
    "stability": "holds better than",
    "certificate": "is certified better than",
    "smoothing": "is certified better, smoothed, than",
    "symmetry": "respects the symmetry better than",
    "faithfulness": "is more faithful than",
}
TITLES = {"fass": "FASS", "ssim": "SSIM", "spearman": "Spearman", "jaccard": "Jaccard", "road": "ROAD", "irof": "IROF"}
TITLES |= {"aopc": "AOPC", "rate": "stability rate", "hard_radius": "hard radius", "certified": "certified rate"}


def headlines(kind: str, measured: Iterable[str]) -> list[str]:
    """The measures that speak for an evaluation; of one that holdfast does not know, its first measure.

    >>> headlines("faithfulness", ["probability", "aopc", "road"]), headlines("mine", ["sharpness", "depth"])
    (['road'], ['sharpness'])
    """
    found = [m for m in measured if not m.endswith(SUFFIXES)]
    if kind not in HEADLINES:
        return found[:1]
    chosen = (next((m for m in group if m in found), None) for group in HEADLINES[kind])
    return [measure for measure in chosen if measure is not None]


def direction(kind: str, measure: str) -> int:
    """1 where more is better, −1 where less is, 0 where neither can be said.

    >>> direction("stability", "fass"), direction("faithfulness", "deletion_auc"), direction("certificate", "passes")
    (1, -1, 0)
    """
    if kind not in HEADLINES or measure in NEUTRAL or measure.endswith("_random"):
        return 0
    return -1 if measure in LOWER_IS_BETTER else 1


def measure_title(measure: str) -> str:
    """A measure as it is written in a sentence.

    >>> measure_title("fass"), measure_title("deletion_auc")
    ('FASS', 'deletion auc')
    """
    return TITLES.get(measure, measure.replace("_", " "))

"""The texts of stability's findings: what each means and what to do. Words in braces are filled in by the rules."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from heatproof.axes.contract import NO_SCORE, Finding, Severity


@dataclass(frozen=True)
class Text:
    """What is the same whenever a finding is made."""

    severity: Severity
    title: str
    means: str
    do: str


def finding(
    text: Text,
    seen: str,
    names: Sequence[str] = (),
    items: Sequence[str] = (),
    fill: Mapping[str, str] | None = None,
) -> Finding:
    """A finding with this text, its braces filled in.

    >>> finding(FEW_PAIRS, "8 pairs.", ["lime"]).title
    'Few pairs'
    """
    title, means, do = (
        part.format(**(fill or {})).strip() for part in (text.title, text.means, text.do)
    )
    return Finding("stability", text.severity, title, seen, means, do, tuple(names), tuple(items))


SALIENT, ORDINAL, SPATIAL = "jaccard", "spearman", "ssim"

AT_CHANCE = Text(
    "act",
    "Hardly more stable than unrelated maps",
    "Even where a change left the prediction as it was, these maps look almost like those of another {sample}. What "
    "they show of a {sample} is hardly there when it is taken again.",
    "Do not show these maps for single {samples}; use a method higher in the ranking. Milder perturbations tell "
    "whether anything holds: {milder}. {smoothing}",
)
MILDER = {
    "image": "perturbations: fass-mild",
    "volume": "gaussian_noise: {sigma: [0.005, 0.01, 0.03]} in perturbations",
    "series": "jitter: {sigma: [0.01, 0.03, 0.1]} in perturbations",
    "table": "column_noise: {sigma: [0.01, 0.03, 0.1]} in perturbations",
}
AT_CHANCE_UNDER = Text(
    "mind",
    "Next to chance under {where}",
    "Where the prediction survived this change, the maps did not: they are hardly more alike than those of different "
    "samples.",
    "{sweep} {smoothing}",
)
SWEEP = "Find the strength at which they break: {} in perturbations draws the curve."
NO_SWEEP = "Test a milder change to find the strength at which they break."
SMOOTHING = "Averaging over noise may help: smoothgrad: {{of: {}}} among the explainers."
NOT_ABOVE_CHANCE = Text(
    "mind",
    "Scores at chance",
    "The maps of a pair are not shown to resemble each other more than maps of different samples do, whatever the raw "
    "score.",
    "Do not read these raw scores as stability; more samples narrow the intervals.",
)
CONTROL_AHEAD = Text(
    "mind",
    "The control {control} holds better",
    "Edges of a picture hardly move when it is disturbed, so a map that only shows edges is very stable and explains "
    "nothing. A high stability score alone is therefore no reason to choose a method.",
    "{do}",
)
BOTH_AXES = (
    "Choose by both axes: the chart of stability against faithfulness has them side by side."
)
ADD_FAITHFULNESS = (
    "Add faithfulness to the evaluations; the report then shows both axes side by side."
)
NOT_FAITHFULNESS = Text(
    "note",
    "Stability is not faithfulness",
    "A map can be perfectly stable and wrong: an edge detector is. Stability says that an explanation holds still, not "
    "that it is true of the model.",
    "{do}",
)
FAILURES = {
    SPATIAL: Text(
        "mind",
        "Spatial failure: the picture of the map moves",
        "SSIM, which looks at the map as a picture, gives way more than {others}: the order of the features and the "
        "top spots survive better than the shape they are drawn in.",
        "{do}",
    ),
    ORDINAL: Text(
        "mind",
        "Ordinal failure: the order of the features changes",
        "Spearman, which looks at the order of all features, gives way more than {others}: about the same places light "
        "up, but which of them matters more changes.",
        "{do}",
    ),
    SALIENT: Text(
        "mind",
        "Salient-region failure: the top spots jump",
        "Jaccard, which looks at {k} only, gives way more than {others}: the map as a whole holds better than the "
        "spots that the eye goes to first.",
        "{do}",
    ),
}
READ_REGIONS = "Read regions and not single spots. If regions are what you show, score them so: k: 0.05 compares the top "
READ_REGIONS += "5 %. {}"
READ_MORE = "Do not read much into the first few {}; k: 0.3 compares more of them. {}"
NOT_SINGLE = "{} not say which single {} matter."
MORE_STEPS = "More steps may help: {}: {{steps: 64}}. "
NO_RANKS = "Show which places matter and not their order, or one colour above a threshold in place of ranks."
FIXED_PATCHES = "Superpixels are cut anew for every picture and come out differently after a change. Fixed patches do "
FIXED_PATCHES += "not: {}: {{features: {{patches: {{size: 16}}}}}}."
SMOOTH_MAPS = "Smooth the maps before they are shown. {}"
MISSING_CONDITIONS = Text(
    "mind",
    "Missing conditions",
    "Overall scores average the conditions that have one; these methods lack some and compare badly.",
    "Compare them under the conditions that all methods have; why a pair has no score is in the column reason of the "
    "table.",
)
FEW_REFERENCES = Text(
    "mind",
    "Chance from few samples",
    "More samples alone will not narrow the intervals much: others in the place of these would move all scores "
    "together.",
    "Ask for more with “references: 64” in the study; each costs one comparison of maps per pair and no model pass.",
)

LOUD_DRAWS = Text(
    "act",
    "The method’s own random draws move its maps",
    "Another seed changes the map more than the perturbations do: the score says more about shared draws than about "
    "the method.",
    "{more} The noise floor should rise towards 1.",
)
NOISY_DRAWS = Text(
    "mind",
    LOUD_DRAWS.title,
    "Part of what is seen in one map is chance. Someone who explains the same {sample} with another seed gets another "
    "map, however well the scores hold.",
    LOUD_DRAWS.do,
)
DRAW_MORE = "Draw more: {}; {} times as many halve the noise."
LOW_RETENTION = Text(
    "mind",
    "Most predictions do not survive {where}",
    "The filter keeps only pairs whose prediction is unchanged. Where a small share remains, the score describes the "
    "easiest samples, not the data. The model itself is not robust to this change.",
    "{milder} and give the retention with every score.",
)
FEW_PAIRS = Text(
    "mind",
    "Few pairs",
    "A mean of so few pairs is rough, whatever share of the data they are.",
    "Test more samples, and give the number of pairs with every score.",
)
UNDEFINED_MAPS = Text(
    "mind",
    NO_SCORE,
    "A map that is constant or not finite explains nothing, so it gets no score. The scores of these methods are those "
    "of the other samples.",
    "{cams}Look at such a sample before you use the method; its reason is in the column reason of the table.",
)
OTHER_LAYER = "For {} another layer, layer: …, or relu: false may give a map. "
NOT_ALIGNED = Text(
    "act",
    "Moved {samples} were compared with maps that were not moved",
    "A map that follows the {sample} perfectly is then marked down for following it: the score measures the shift and "
    "not the method.",
    "Set aligned: true in the stability evaluation and run the study into a new directory, or leave these "
    "perturbations out of every comparison.",
)

"""The texts of stability's findings. Words in braces are filled in by the rules."""

from __future__ import annotations

from heatproof.axes.contract import finding_template

AXIS = "stability"
SALIENT, ORDINAL, SPATIAL = "jaccard", "spearman", "ssim"

NEAR_CHANCE = finding_template(
    "near-chance",
    "Maps hardly more alike than unrelated maps",
    "Even where the change left the prediction as it was, these maps agree little more than maps of different {samples} "
    "do. Take the {sample} again, and the map shows something else.",
    "Do not show these maps for single {samples}; use a method higher in the ranking. Milder changes tell whether the "
    "maps are stable at all. {smoothing}",
    axis=AXIS,
)
NEAR_CHANCE_UNDER_CHANGE = finding_template(
    "near-chance-under-change",
    "Close to chance under {where}",
    "Where the prediction survived this change, the maps did not: they agree little more than maps of different samples.",
    "{sweep} {smoothing}",
    axis=AXIS,
)
SWEEP = "Sweep the strength of the change to find where the maps break."
NO_SWEEP = "Test a milder change to find where the maps break."
SMOOTHING = "Averaging over noise may help (SmoothGrad)."
NOT_ABOVE_CHANCE = finding_template(
    "not-above-chance",
    "Scores not above chance",
    "The maps of a pair do not agree significantly more than maps of different samples, whatever the raw score is.",
    "Do not read these raw scores as stability. More samples narrow the intervals.",
    axis=AXIS,
)
NO_FAITHFULNESS = finding_template(
    "no-faithfulness",
    "Stability does not mean faithfulness",
    "A map can be perfectly stable and wrong; that of an edge filter is. Stability says that an explanation stays the "
    "same, not that it is true of the model.",
    "Add faithfulness to the evaluations. The report then shows both side by side.",
    seen="This run did not test faithfulness.",
    axis=AXIS,
)
FAILURES = {
    SPATIAL: finding_template(
        "spatial-failure",
        "Spatial failure: the shape of the map changes",
        "SSIM compares the maps as pictures, and it falls more than {others}. The order of the features and the top "
        "features survive better than their shape.",
        "{do}",
        axis=AXIS,
    ),
    ORDINAL: finding_template(
        "ordinal-failure",
        "Ordinal failure: the order of the features changes",
        "Spearman compares the order of all features, and it falls more than {others}. The map highlights about the same "
        "places, but which of them matters more changes.",
        "{do}",
        axis=AXIS,
    ),
    SALIENT: finding_template(
        "salient-failure",
        "Salient-region failure: the top features change",
        "Jaccard compares only {k}, and it falls more than {others}. The map as a whole is more stable than its top "
        "features.",
        "{do}",
        axis=AXIS,
    ),
}
READ_REGIONS = (
    "Read regions, not single spots. If regions are what you show, compare the top 5 %. {}"
)
READ_MORE = "Do not read much into the top {}; compare more of them, such as the top 30 %. {}"
NOT_SINGLE = "{} not say which single {} matter."
MORE_STEPS = "More steps may help. "
NO_RANKS = "Show which places matter and not their order, or one colour above a threshold."
FIXED_PATCHES = "Superpixels are computed anew for every picture, so they differ after a change. Fixed patches do not."
SMOOTH_MAPS = "Smooth the maps before you show them. {}"
MISSING_CONDITIONS = finding_template(
    "missing-conditions",
    "Missing conditions",
    "Overall scores average the conditions that have a score. With some missing, these methods are hard to compare.",
    "Compare them under the conditions that all methods have. The column reason of the table says why a pair has no "
    "score.",
    axis=AXIS,
)
NOISY_DRAWS = finding_template(
    "noisy-draws",
    "The random draws of the method change its maps",
    "Part of each map is noise. Explain the same {sample} with another seed, and you get another map, however high the "
    "score is.",
    "{more} The noise floor should rise towards 1.",
    axis=AXIS,
)
LOUDER_THAN_CHANGES = (
    "Another seed changes the map more than the perturbations do. Both maps of a pair use the same draws, so the score "
    "says more about the draws than about the method."
)
DRAW_MORE = "Draw {} times as many samples; that halves the noise."
LOW_RETENTION = finding_template(
    "low-retention",
    "Most predictions change under {where}",
    "Only pairs with an unchanged prediction are compared. Where few remain, the score describes the easiest samples, "
    "not the data. The model itself is not robust to this change.",
    "{milder} and report the retention with every score.",
    axis=AXIS,
)
FEW_PAIRS = finding_template(
    "few-pairs",
    "Few pairs",
    "A mean over so few pairs is rough, whatever share of the data they are.",
    "Test more samples, and report the number of pairs with every score.",
    axis=AXIS,
)
UNDEFINED_MAPS = finding_template(
    "undefined-maps",
    "Maps without a score",
    "A map that is constant or not finite explains nothing, so it has no score. The scores of these methods are those "
    "of the other samples.",
    "{cams}Look at such a sample before you use the method. The column reason of the table says what is wrong.",
    axis=AXIS,
)
OTHER_LAYER = "For {} another layer, or relu: false, may give a map. "
UNALIGNED = finding_template(
    "unaligned-maps",
    "Maps of moved {samples} were compared without moving them back",
    "A map that follows the {sample} perfectly scores low for following it: the score measures the shift, not the "
    "method.",
    "Compare aligned maps in a new run directory, or leave these perturbations out of every comparison.",
    axis=AXIS,
)

"""The rules by which findings are reported: the name of each, how serious it is, and one line on what it says.

`rules.md` beside this file has a section on each rule, which `heatproof rule NAME` prints; it is a page of the docs too.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import cache
from importlib import metadata
from importlib.resources import files
from typing import Literal, NamedTuple

from heatproof.errors import UserError, nearest

Severity = Literal["problem", "warning", "note"]
SEVERITIES: tuple[Severity, ...] = ("problem", "warning", "note")
"""From the most serious: change something before you use the results; read them with care; good to know."""


class Rule(NamedTuple):
    """What is known of a rule without a run. A finding may be more serious than its rule usually is."""

    name: str
    severity: Severity
    summary: str


_PROBLEMS = {
    "unfinished-run": "Some parts of the run are not computed yet.",
    "untrained-model": "The last layer of the model looks as if it was never trained.",
    "missing-normalisation": "The model was given without the mean and std that it was trained with.",
    "too-few-samples": "There are too few samples for intervals and tests.",
    "no-score": "No method has a score in a test.",
    "near-chance": "Maps hardly agree more than maps of different samples do.",
    "unaligned-maps": "Maps of shifted or rotated inputs were compared without moving them back.",
    "insufficient-features": "Adding a few features to the explanation changes the prediction.",
    "smoothing-cost": "The smoothed model is less accurate than the model itself.",
    "ignores-weights": "The map stays the same under random weights.",
    "broken-symmetry": "The explanation breaks a symmetry that the model has.",
    "leaking-imputer": "The filled-in inputs give away which features were removed, and with them the class.",
    "worse-than-random": "Removing features in the order of the map does worse than a random order.",
}
_WARNINGS = {
    "probability-outputs": "The scores of the model look like probabilities, not logits.",
    "few-samples": "So few samples are a pilot: intervals are wide, and small differences are missed.",
    "precision-not-reached": "The run ended before it was as precise as the study asked for.",
    "no-interval": "A score rests on too few samples for an interval.",
    "unreadable-files": "Some files could not be read and took no part.",
    "undefined-maps": "Some maps are constant or not finite, so they have no score.",
    "small-budget": "An explainer draws fewer samples than its default.",
    "few-references": "Chance is estimated from few reference samples.",
    "single-class-references": "All reference samples are of one class.",
    "control-not-beaten": "A method does not significantly beat a control that ignores the model.",
    "dominated-method": "Another method is significantly better in two tests at once.",
    "near-chance-under-change": "Under one change, maps hardly agree more than maps of different samples do.",
    "not-above-chance": "A score is not significantly above chance.",
    "not-above-random": "A method is not significantly better than random features.",
    "spatial-failure": "SSIM falls more than the other parts of FASS: the shape of the map changes.",
    "ordinal-failure": "Spearman falls more than the other parts of FASS: the order of the features changes.",
    "salient-failure": "Jaccard falls more than the other parts of FASS: the top features change.",
    "missing-conditions": "A method has no score under some conditions that others are scored under.",
    "noisy-draws": "Another random seed gives another map.",
    "low-retention": "A change flips most predictions, so that few pairs of maps are compared.",
    "few-pairs": "Few pairs of maps are compared under a change.",
    "loose-bound": "The guaranteed rate is below one half, the measured rate is not.",
    "methods-disagree": "Methods rank the features differently.",
    "dependence-unclear": "It is undecided whether the map depends on the trained weights.",
    "ignores-class": "The map stays the same when another class is explained.",
    "dependence-within-noise": "Random weights change the map no more than another random seed does.",
    "model-not-invariant": "The model itself does not keep the symmetry that was tested.",
    "possible-leak": "One imputer may leak the class, and the leak was not measured.",
    "orders-disagree": "MoRF and LeRF rank the methods differently.",
    "imputers-disagree": "Two imputers rank the methods differently.",
    "unrealistic-inputs": "The model can tell filled-in inputs from real ones.",
    "lost-samples": "Less than half of the samples could be compared between two runs.",
    "other-predictions": "Two runs explain different predictions.",
    "controls-differ": "Controls score differently in two runs, although they ignore the model.",
}
_NOTES = {
    "tied-methods": "The two best methods are not significantly different.",
    "no-faithfulness": "Stability was tested without faithfulness.",
    "rare-failures-unseen": "Rare kinds of samples may be missing among so few samples.",
    "identical-scores": "A method has the same score on all samples.",
    "few-networks": "Dependence was tested with few random networks.",
    "interpolating-group": "The group moves pixels between pixels, so exact equality is impossible.",
    "few-elements": "Few elements of the group were tried on each sample.",
    "soft-beyond-hard": "Soft guarantees hold at radii that hard ones do not reach.",
}
RULES: dict[str, Rule] = {
    name: Rule(name, severity, summary)
    for severity, rules in zip(SEVERITIES, (_PROBLEMS, _WARNINGS, _NOTES), strict=True)
    for name, summary in rules.items()
}
"""Every rule by its name, the most serious first."""


def check_rules(names: Iterable[str]) -> tuple[str, ...]:
    """Return the names of rules without repetitions; a name that is no rule is an error.

    >>> check_rules(["few-samples", "few-samples"])
    ('few-samples',)
    >>> check_rules(["few_sample"])
    Traceback (most recent call last):
    heatproof.errors.UserError: unknown rule 'few_sample'; did you mean 'few-samples'? `heatproof rule` lists all rules
    """
    if isinstance(names, str) or not isinstance(names, Iterable):
        raise UserError(f"rules are given as a list of names, such as [few-samples], got {names!r}")
    known = dict.fromkeys(map(str, names))
    for name in known:
        if name not in RULES:
            close = nearest(name, RULES)
            hint = f"did you mean {close[0]!r}? " if close else ""
            raise UserError(f"unknown rule {name!r}; {hint}`heatproof rule` lists all rules")
    return tuple(known)


def section_of(name: str) -> str:
    """Return what `rules.md` says of a rule, in Markdown without its heading.

    >>> section_of("few-samples").splitlines()[0].startswith("**Warning.**")
    True
    """
    check_rules([name])
    return sections()[name]


@cache
def sections() -> dict[str, str]:
    """Return the sections of `rules.md` by their headings."""
    text = (files("heatproof") / "rules.md").read_text(encoding="utf-8")
    _, *parts = re.split(r"^## (.+)\n", text, flags=re.MULTILINE)
    return {heading: part.strip() for heading, part in zip(parts[::2], parts[1::2], strict=True)}


def docs_link(name: str) -> str:
    """Return the address of a rule in the docs; empty as long as the package names no address of its docs."""
    for entry in metadata.metadata("heatproof").get_all("Project-URL") or []:
        label, _, address = entry.partition(", ")
        if label.lower() == "documentation":
            return f"{address.rstrip('/')}/rules.html#{name}"
    return ""

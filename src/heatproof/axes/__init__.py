"""The axes of the bench. `BY_NAME` is the one list of them; an axis is imported when it is looked up."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from heatproof.axis import Axis, axis_of_own_evaluation
from heatproof.evaluation import Measure
from heatproof.lazy import LazyRegistry

if TYPE_CHECKING:
    from heatproof.axes.agreement.evaluation import Agreement
    from heatproof.axes.certificate.evaluation import Certificate
    from heatproof.axes.certificate.smoothing import Smoothing
    from heatproof.axes.dependence.evaluation import Dependence
    from heatproof.axes.faithfulness.evaluation import Faithfulness
    from heatproof.axes.localisation.evaluation import Localisation
    from heatproof.axes.stability.evaluation import Stability
    from heatproof.axes.symmetry.evaluation import Symmetry

    # Runs are built on the axes, which only need the type of a manifest.
    from heatproof.runs.manifest import Manifest

    AXES: tuple[Axis, ...]

__all__ = [
    "AXES",
    "AXIS_EXPLAINERS",
    "BY_NAME",
    "DEFAULT_EVALUATION",
    "EVALUATIONS",
    "MARKING",
    "Agreement",
    "Axis",
    "Certificate",
    "Dependence",
    "Faithfulness",
    "Localisation",
    "Measure",
    "Smoothing",
    "Stability",
    "Symmetry",
    "axis_of",
    "settings_of",
]

BY_NAME = LazyRegistry(
    {
        "stability": "heatproof.axes.stability:AXIS",
        "certificate": "heatproof.axes.certificate:CERTIFICATE",
        "smoothing": "heatproof.axes.certificate:SMOOTHING",
        "symmetry": "heatproof.axes.symmetry:AXIS",
        "faithfulness": "heatproof.axes.faithfulness:AXIS",
        "retraining": "heatproof.axes.faithfulness:RETRAINING",
        "f_fidelity": "heatproof.axes.faithfulness:FIDELITY",
        "leakage": "heatproof.axes.faithfulness:LEAKAGE",
        "dependence": "heatproof.axes.dependence:AXIS",
        "localisation": "heatproof.axes.localisation:AXIS",
        "agreement": "heatproof.axes.agreement:AXIS",
    }
)
"""The record of every axis, in the order in which they are shown. `AXES` has all records."""
EVALUATIONS = LazyRegistry(
    {
        "stability": "heatproof.axes.stability.evaluation:Stability",
        "certificate": "heatproof.axes.certificate.evaluation:Certificate",
        "smoothing": "heatproof.axes.certificate.smoothing:Smoothing",
        "symmetry": "heatproof.axes.symmetry.evaluation:Symmetry",
        "faithfulness": "heatproof.axes.faithfulness.evaluation:Faithfulness",
        "dependence": "heatproof.axes.dependence.evaluation:Dependence",
        "localisation": "heatproof.axes.localisation.evaluation:Localisation",
        "agreement": "heatproof.axes.agreement.evaluation:Agreement",
    }
)
"""The evaluation of every axis that has one of its own, by the name that a study file uses."""
AXIS_EXPLAINERS = LazyRegistry({"symmetrised": "heatproof.axes.symmetry.symmetrised:Symmetrised"})
"""Explainers that are built on an axis, and so are not in `heatproof.explainers`."""
MARKING = ("dependence",)
"""The axes whose results mark explainers for every other axis (`Axis.marks`)."""
DEFAULT_EVALUATION = "stability"
"""The evaluation of a study that names none."""


def __getattr__(name: str) -> Any:
    """Import the class of an evaluation, or the records of all axes."""
    if name == "AXES":
        return tuple(BY_NAME.values())
    return EVALUATIONS.by_class_name(__name__, name)


def axis_of(evaluation: str, manifest: Manifest | None, measured: Iterable[str] = ()) -> Axis:
    """Return the axis of an evaluation, by its name in a study; a user's own evaluation has one with what it measured.

    >>> axis_of("stability", None).title, axis_of("mine", None, ["depth"]).measures[0].name
    ('Stability', 'depth')
    """
    settings = settings_of(evaluation, manifest)
    registered_name = str(settings.get("name") or evaluation)
    if registered_name in BY_NAME:
        axis: Axis = BY_NAME[registered_name]
        return axis
    return axis_of_own_evaluation(evaluation, settings, list(measured))


def settings_of(
    evaluation: str, manifest: Manifest | None, dataset: str = "", model: str = ""
) -> dict[str, Any]:
    """Return what the manifest stores about an evaluation for a data set and model; empty without a manifest."""
    if manifest is None:
        return {}
    return manifest.study.evaluation(evaluation, dataset, model).as_mapping()

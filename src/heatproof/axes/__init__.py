"""The axes of the bench. `AXES` is the one list of them: everything else asks it."""

from __future__ import annotations

import importlib
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from heatproof.axes.agreement.evaluation import Agreement
from heatproof.axes.certificate.evaluation import Certificate
from heatproof.axes.certificate.smoothing import Smoothing
from heatproof.axes.dependence.evaluation import Dependence
from heatproof.axes.faithfulness.evaluation import Faithfulness
from heatproof.axes.localisation.evaluation import Localisation
from heatproof.axes.stability.evaluation import Stability
from heatproof.axes.symmetry.evaluation import Symmetry
from heatproof.axis import Axis, axis_of_own_evaluation
from heatproof.errors import speak_plainly
from heatproof.evaluation import Measure

if TYPE_CHECKING:
    # Runs are built on the axes, which only need the type of a manifest.
    from heatproof.runs.manifest import Manifest

__all__ = [
    "AXES",
    "BY_NAME",
    "DEFAULT_EVALUATION",
    "EVALUATIONS",
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

ROOMS = (
    "stability",
    "certificate",
    "symmetry",
    "faithfulness",
    "dependence",
    "localisation",
    "agreement",
)
"""The folders of the axes, in the order in which they are shown. Each has its records in `AXES`."""
AXES: tuple[Axis, ...] = tuple(
    axis for room in ROOMS for axis in importlib.import_module(f"{__name__}.{room}").AXES
)
BY_NAME = {axis.name: axis for axis in AXES}
EVALUATIONS = {axis.name: axis.evaluation for axis in AXES if axis.evaluation is not None}
"""The evaluations by the name that a study file uses."""
for evaluation in EVALUATIONS.values():
    speak_plainly(evaluation)
DEFAULT_EVALUATION = AXES[0].name
"""The evaluation of a study that names none."""


def axis_of(evaluation: str, manifest: Manifest | None, measured: Iterable[str] = ()) -> Axis:
    """Return the axis of an evaluation, by its name in a study; a user's own evaluation has one with what it measured.

    >>> axis_of("stability", None).title, axis_of("mine", None, ["depth"]).measures[0].name
    ('Stability', 'depth')
    """
    settings = settings_of(evaluation, manifest)
    registered = BY_NAME.get(str(settings.get("name") or evaluation))
    return registered or axis_of_own_evaluation(evaluation, settings, list(measured))


def settings_of(
    evaluation: str, manifest: Manifest | None, dataset: str = "", model: str = ""
) -> dict[str, Any]:
    """Return what the manifest stores about an evaluation for a data set and model; empty without a manifest."""
    if manifest is None:
        return {}
    return manifest.study.evaluation(evaluation, dataset, model).as_mapping()

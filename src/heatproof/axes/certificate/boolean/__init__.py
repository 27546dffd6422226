"""Boolean theory of certificates: functions on {0, 1}^n, their expansions, exact rates and proven bounds."""

from heatproof.axes.certificate.boolean.bounds import (
    containment,
    difference,
    hard_radius,
    instability_bound,
    instability_weight,
    prediction_bound,
    prediction_rate,
    restrict,
    stability_rate,
)
from heatproof.axes.certificate.boolean.expansions import (
    Basis,
    degrees,
    fourier,
    from_fourier,
    from_function,
    from_monotone,
    masking,
    masks,
    monotone,
)

__all__ = [
    "Basis",
    "containment",
    "degrees",
    "difference",
    "fourier",
    "from_fourier",
    "from_function",
]
__all__ += [
    "from_monotone",
    "hard_radius",
    "instability_bound",
    "instability_weight",
    "masking",
    "masks",
]
__all__ += ["monotone", "prediction_bound", "prediction_rate", "restrict", "stability_rate"]

"""Boolean theory of certificates: functions on {0, 1}^n, their expansions, exact rates and proven bounds."""

from holdfast.axes.certificate.boolean.bounds import (
    Shift,
    containment,
    difference,
    hard_radius,
    instability_bound,
    instability_weight,
    masked_tail_bound,
    masking_against_flipping,
    plot_shift,
    prediction_bound,
    prediction_rate,
    random_functions,
    restrict,
    stability_rate,
)
from holdfast.axes.certificate.boolean.expansions import (
    Basis,
    degrees,
    flipping,
    fourier,
    from_fourier,
    from_function,
    from_monotone,
    masking,
    masking_with_rebias,
    masks,
    mass_by_degree,
    monotone,
    variance,
)

__all__ = ["Basis", "Shift", "containment", "degrees", "difference", "flipping", "fourier", "from_fourier"]
__all__ += ["from_function", "from_monotone", "hard_radius", "instability_bound", "instability_weight"]
__all__ += ["masked_tail_bound", "masking", "masking_against_flipping", "masking_with_rebias", "masks"]
__all__ += ["mass_by_degree", "monotone", "plot_shift", "prediction_bound", "prediction_rate", "random_functions"]
__all__ += ["restrict", "stability_rate", "variance"]

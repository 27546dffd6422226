"""The plan of `heatproof demo`: an ImageNet classifier and photographs that come with heatproof."""

from __future__ import annotations

from typing import Any

from heatproof.models import Model
from heatproof.runs.plan import Plan, make_plan

MODEL, DATA = "bundled:efficientnet-lite0", "bundled:photographs"
METHODS: list[Any] = [
    {"integrated_gradients": {"steps": 8}},
    "gradient_shap",
    "grad_cam",
    {"lime": {"samples": 32}},
]
CONTROLS = ["random", "sobel", "weight_noise"]
EVALUATIONS: list[Any] = [
    {"stability": {"perturbations": "fass-paper"}},
    {"certificate": {"radii": [1, 5, 10], "features": {"patches": {"size": 32}}, "epsilon": 0.2}},
    {"symmetry": {"group": {"dihedral": {"n": 1}}}},
    {"faithfulness": {"fractions": [0.1, 0.3, 0.5, 0.7, 0.9], "metrics": ["road"]}},
    "dependence",
    "localisation",
    "agreement",
]
PHOTOGRAPHS = 14

# The quick demo leaves out LIME, which needs the most passes of all methods, and every test but the two that readers
# look at first. All controls stay: without them a score says little.
QUICK_METHODS = METHODS[:3]
QUICK_EVALUATIONS: list[Any] = [
    {"stability": {"perturbations": "fass-paper"}},
    {"faithfulness": {"fractions": [0.1, 0.5, 0.9], "metrics": ["road"]}},
]
QUICK_PHOTOGRAPHS = 4
QUICK_NOTE = (
    "quick demo: 2 of 6 tests (stability and faithfulness), 3 of 4 methods (not LIME), few photographs; "
    "`heatproof demo` runs everything"
)


def demo_plan(limit: int | None = None, *, quick: bool = False, model: Model | str = MODEL) -> Plan:
    """Return the plan of the six tests and of agreement for four methods and three controls, or the quick part of it.

    `limit` is the number of photographs; by default 14, and 4 for the quick part.
    """
    methods = QUICK_METHODS if quick else METHODS
    evaluations = QUICK_EVALUATIONS if quick else EVALUATIONS
    photographs = QUICK_PHOTOGRAPHS if quick else PHOTOGRAPHS
    return make_plan(
        model,
        DATA,
        [*methods, *CONTROLS],
        evaluations,
        limit=photographs if limit is None else limit,
        shard_size=8,
    )

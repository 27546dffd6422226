"""The embedded default: a real ImageNet classifier and real photographs, all from the package registry."""

from __future__ import annotations

from heatproof.runs.plan import Plan, make_plan

EXPLAINERS = [
    {"integrated_gradients": {"steps": 8}},
    "gradient_shap",
    "grad_cam",
    {"lime": {"samples": 32}},
    "random",
]
EXPLAINERS += ["sobel", "weight_noise"]
EVALUATIONS = [
    {"stability": {"perturbations": "fass-paper"}},
    {"certificate": {"radii": [1, 5, 10], "features": {"patches": {"size": 32}}, "epsilon": 0.2}},
    {"symmetry": {"group": {"dihedral": {"n": 1}}}},
    {"faithfulness": {"fractions": [0.1, 0.3, 0.5, 0.7, 0.9], "metrics": ["road"]}},
    {"dependence": {"draws": 2}},
    "localisation",
    "agreement",
]
PHOTOGRAPHS = 14


def demo_plan(limit: int = PHOTOGRAPHS) -> Plan:
    """Seven explainers on every axis: FASS' perturbations, certificates, mirrors, ROAD, random weights, mosaics."""
    model, data = "bundled:efficientnet-lite0", "bundled:photographs"
    return make_plan(model, data, EXPLAINERS, EVALUATIONS, limit=limit, shard_size=8)

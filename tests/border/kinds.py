"""A study of each kind of data: which explainers and which tests, as lines of YAML."""

from __future__ import annotations

from typing import Any

import yaml

from border import nets

IMAGE_PATCHES = "features: {patches: {size: 4}}"
TOKENS = "features: {tokens: {mask_token: 1}}"
FEW = "metrics: [road, infidelity]"
"""Images and tables have every metric of faithfulness."""
USUAL = ["dependence: {draws: 1}", "agreement"]
EVALUATIONS: dict[str, list[str]] = {
    "image": [
        "stability: {perturbations: [jpeg, {rotation: {degrees: [5, 10]}}]}",
        f"certificate: {{radii: [1], {IMAGE_PATCHES}}}",
        f"smoothing: {{keeps: [0.5], samples: 8, radii: [1], {IMAGE_PATCHES}}}",
        "symmetry: {group: dihedral, elements: 4}",
        f"faithfulness: {{fractions: [0.2, 0.5], segments: {{patches: {{size: 4}}}}, masks: 8, {IMAGE_PATCHES}}}",
        "localisation",
        *USUAL,
    ],
    "volume": [
        "stability",
        "certificate: {radii: [1], features: {patches: {size: 3}}}",
        "symmetry: {group: octahedral, elements: 4}",
        f"faithfulness: {{imputers: zero, fractions: [0.2, 0.5], masks: 8, {FEW}}}",
        *USUAL,
    ],
    "series": [
        "stability",
        "certificate: {radii: [1]}",
        "symmetry: {group: cyclic, elements: 4}",
        f"faithfulness: {{fractions: [0.2, 0.5], masks: 8, {FEW}}}",
        *USUAL,
    ],
    "table": [
        "stability",
        "certificate: {radii: [1]}",
        "faithfulness: {fractions: [0.2, 0.5], masks: 8}",
        *USUAL,
    ],
    "set": ["certificate: {radii: [1]}", "symmetry: {group: permutation, elements: 4}", *USUAL],
    "graph": [
        "certificate: {radii: [1]}",
        "symmetry: {group: node_permutation, elements: 4}",
        *USUAL,
    ],
    "text": [
        f"certificate: {{radii: [1], {TOKENS}}}",
        "symmetry: {group: permutation, elements: 4}",
        f"faithfulness: {{fractions: [0.2, 0.5], masks: 8, {FEW}, {TOKENS}}}",
        *USUAL,
    ],
}
KINDS = tuple(EVALUATIONS)
EXPLAINERS = {kind: "[saliency, random]" for kind in KINDS}


def model_and_data(kind: str) -> tuple[Any, Any]:
    """Return the model and the samples of a kind, made anew."""
    return getattr(nets, f"{kind}_model")(), getattr(nets, f"{kind}_data")()


def evaluations(kind: str, but: tuple[str, ...] = ()) -> list[Any]:
    """Return the same evaluations as `heatproof.evaluate` takes them."""
    read = [yaml.safe_load(line) for line in EVALUATIONS[kind]]
    return [one for one in read if (one if isinstance(one, str) else next(iter(one))) not in but]

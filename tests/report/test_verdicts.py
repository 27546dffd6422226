"""What is concluded from runs with known truths: the sheet's sentence, its limits and findings."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

import pytest

from heatproof.report.findings import findings
from heatproof.report.proof_sheet import proof_sheets
from support import synthetic
from support.recorded import recorded

SHORT = (("rotation", 15.0), ("jpeg", 40.0))
CASES: dict[str, dict[str, Any]] = {
    "winner": {"quality": {"grad_cam": 0.8, "saliency": 0.3, "lime": 0.2, "sobel": 0.1}},
    "plural": {"quality": {"integrated_gradients": 0.8, "saliency": 0.3, "random": 0.0}},
    "two lead": {"quality": {"grad_cam": 0.7, "saliency": 0.7, "lime": 0.1, "sobel": 0.9}},
    "four lead": {
        "quality": {
            **dict.fromkeys(("grad_cam", "saliency", "deep_lift", "rise"), 0.6),
            "lime": 0.0,
        }
    },
    "none apart": {"quality": {"grad_cam": 0.5, "saliency": 0.5, "sobel": 0.5}},
    "chance": {"quality": {"grad_cam": 0.0, "saliency": 0.0, "random": 0.0}},
    "alone": {"quality": {"grad_cam": 0.6, "sobel": 0.2}},
    "perfect": {"quality": {"grad_cam": 1.0, "saliency": 0.4}},
    "few": {"quality": {"grad_cam": 0.8, "saliency": 0.3}, "samples": 6},
    "lost": {"quality": {"grad_cam": 0.8, "saliency": 0.3}, "flip": 0.85, "undefined": 0.1},
    "undefined": {"quality": {"grad_cam": 0.8, "saliency": 0.3}, "flip": 0.0, "undefined": 0.6},
}


@pytest.mark.parametrize("name", CASES)
def test_what_is_concluded(name: str) -> None:
    given = {"conditions": SHORT, "samples": 16, **CASES[name]}
    table, samples = (
        synthetic.table(**given),
        synthetic.samples(given["samples"], unreadable=len(name) % 3),
    )
    judged = synthetic.judged_of(table)
    (proof,) = proof_sheets([judged], samples)
    found: dict[str, Any] = {"sentence": proof.sentence, "chips": proof.chips}
    found["columns"] = [[column.verdict, column.chance, column.leaders] for column in proof.columns]
    found["findings"] = [
        asdict(finding) for finding in findings(table, samples, synthetic.manifest())
    ]
    recorded(f"verdicts/{name.replace(' ', '-')}", found)

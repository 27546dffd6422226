"""What is concluded from runs with known truths: which methods lead, and that the sentence names them."""

from __future__ import annotations

from typing import Any

import pytest

from heatproof.report.proof_sheet import ProofSheet, proof_sheets
from support import synthetic

SHORT = (("rotation", 15.0), ("jpeg", 40.0))
FOUR = ("grad_cam", "saliency", "deep_lift", "rise")


def proof_of(quality: dict[str, float], samples: int = 16, **options: Any) -> ProofSheet:
    given = {"conditions": SHORT, "samples": samples, "seed": 0, **options}
    judged = synthetic.judged_of(synthetic.table(quality, **given))
    (proof,) = proof_sheets([judged], synthetic.samples(samples))
    return proof


@pytest.mark.parametrize(
    ("quality", "leaders"),
    [
        ({"grad_cam": 0.8, "saliency": 0.3, "lime": 0.2, "sobel": 0.1}, {"grad_cam"}),
        ({"grad_cam": 0.4, "saliency": 1.0}, {"saliency"}),
        ({"grad_cam": 0.7, "saliency": 0.7, "lime": 0.1, "sobel": 0.9}, {"grad_cam", "saliency"}),
        ({**dict.fromkeys(FOUR, 0.6), "lime": 0.0}, set(FOUR)),
        ({"grad_cam": 0.5, "saliency": 0.5, "sobel": 0.5}, {"grad_cam", "saliency"}),
    ],
)
def test_methods_that_lead_are_those_made_best_and_never_a_control(
    quality: dict[str, float], leaders: set[str]
) -> None:
    proof = proof_of(quality)
    assert proof.lead is not None and proof.lead.decided is not None
    verdict = proof.lead.decided
    assert ({verdict.best} if verdict.best else set(verdict.undecided)) == leaders
    assert all(proof.looks[leader].name in proof.sentence for leader in leaders)
    assert not any(look.name in proof.sentence for look in proof.looks.values() if look.control)


def test_methods_at_chance_are_not_said_to_lead() -> None:
    sentence = proof_of({"grad_cam": 0.0, "saliency": 0.0, "random": 0.0}).sentence
    assert "chance" in sentence or "random" in sentence
    assert "Grad-CAM" not in sentence and "Saliency" not in sentence


def test_the_number_of_samples_and_of_unreadable_ones_stands_beside_the_sentence() -> None:
    judged = synthetic.judged_of(synthetic.table({"grad_cam": 0.8, "saliency": 0.3}, SHORT, 6))
    (proof,) = proof_sheets([judged], synthetic.samples(6, unreadable=2))
    limits = [text for text, _ in proof.chips]
    assert any(text.startswith("6 ") for text in limits)
    assert any(text.startswith("2 ") for text in limits)

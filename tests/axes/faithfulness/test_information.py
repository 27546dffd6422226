"""Fano's and Hellman–Raviv's bounds against exact mutual information on random joint distributions."""

from __future__ import annotations

import math
import re

import numpy as np
import pytest

from heatproof.axes.faithfulness.retraining.information import entropy, fano, hellman_raviv
from heatproof.errors import UserError


def exact(joint: np.ndarray) -> tuple[float, float, float]:
    """Mutual information in bits, the accuracy of the best classifier, and the entropy of the class."""
    classes, values = joint.sum(1), joint.sum(0)
    product = np.outer(classes, values)
    seen = joint > 0
    information = float((joint[seen] * np.log2(joint[seen] / product[seen])).sum())
    return information, float(joint.max(0).sum()), float(-(classes * np.log2(classes)).sum())


@pytest.mark.parametrize("classes", [2, 3, 10])
def test_the_truth_lies_between_the_bounds(classes: int) -> None:
    rng = np.random.default_rng(classes)
    tight = 0
    for _ in range(300):
        joint = rng.dirichlet(np.full(classes * 6, rng.choice([0.05, 0.3, 2.0]))).reshape(
            classes, 6
        )
        information, best, prior = exact(joint)
        assert fano(best, classes, prior) <= information + 1e-9
        assert hellman_raviv(best, classes, prior) >= min(information, prior) - 1e-9
        guess = rng.integers(0, classes, 6)  # any other classifier gives a bound as well
        worse = float(joint[guess, np.arange(6)].sum())
        assert fano(worse, classes, prior) <= information + 1e-9
        tight += fano(best, classes, prior) > 0.5 * information
    assert tight > 20, "the bound is not empty"


def test_fano_is_an_equality_for_a_symmetric_channel() -> None:
    error, classes = 0.2, 5
    joint = np.full((classes, classes), error / (classes - 1) / classes)
    np.fill_diagonal(joint, (1 - error) / classes)
    information, best, prior = exact(joint)
    assert fano(best, classes) == pytest.approx(information) and prior == pytest.approx(
        math.log2(classes)
    )


def test_edges_and_mistakes() -> None:
    assert fano(1.0, 4) == 2.0 and fano(0.25, 4) == 0.0 and fano(0.0, 4) == 0.0
    assert hellman_raviv(1.0, 4) == 2.0 and hellman_raviv(0.0, 4) == 0.0
    assert round(fano(0.8, 10), 2) == 1.97
    assert entropy([1, 1, 2]) == 1.5 and entropy([]) == 0.0
    for accuracy, classes in ((1.2, 3), (-0.1, 3), (0.5, 1)):
        wrong = str(accuracy) if classes > 1 else str(classes)
        with pytest.raises(UserError, match=re.escape(wrong)):
            fano(accuracy, classes)


def test_hellman_and_raviv_take_two_bits_for_an_error_of_one() -> None:
    for accuracy, classes in ((0.8, 10), (0.5, 2), (0.34, 3)):
        expected = max(0.0, math.log2(classes) - 2 * (1 - accuracy))
        assert hellman_raviv(accuracy, classes) == pytest.approx(expected)
    assert hellman_raviv(0.9, 3, 1.2) == pytest.approx(1.2 - 0.2)

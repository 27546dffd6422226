"""From the accuracy of a classifier to bits: what a variable must at least reveal about the class."""

from __future__ import annotations

import math

from heatproof.errors import UserError


def entropy(counts: list[int]) -> float:
    """Return the entropy in bits of classes that occur this often.

    >>> entropy([5, 5])
    1.0
    """
    total = sum(counts)
    shares = [n / total for n in counts if n]
    return -sum(share * math.log2(share) for share in shares) if shares else 0.0


def fano(accuracy: float, classes: int, prior: float | None = None) -> float:
    """Return a lower bound in bits on the information about the class in an input, from the accuracy of a classifier.

    It is Fano's inequality: I ≥ H(C) − H₂(acc) − (1 − acc)·log₂(c − 1) for c classes, with the entropy H(C) of the classes
    (`prior`, by default log₂ c) and the binary entropy H₂. It holds for every classifier, so the accuracy on held-out
    samples gives a guarantee, up to its sampling error. At or below chance the bound is 0.

    >>> round(fano(0.8, 10), 2)
    1.97
    """
    _check(accuracy, classes)
    if accuracy <= 1 / classes:
        return 0.0
    error = 1 - accuracy
    of_being_right = -sum(p * math.log2(p) for p in (accuracy, error) if p > 0)
    of_wrong_class = error * math.log2(classes - 1) if classes > 2 else 0.0
    of_class = math.log2(classes) if prior is None else prior
    return max(0.0, of_class - of_being_right - of_wrong_class)


def hellman_raviv(accuracy: float, classes: int, prior: float | None = None) -> float:
    """Return H(C) − 2·(1 − acc): the most information that is compatible with this accuracy of the best possible classifier.

    A trained probe is seldom the best possible one, so from its accuracy this is an indication, no bound.

    >>> round(hellman_raviv(0.8, 10), 2)
    2.92
    """
    _check(accuracy, classes)
    of_class = math.log2(classes) if prior is None else prior
    return max(0.0, of_class - 2 * (1 - accuracy))


def _check(accuracy: float, classes: int) -> None:
    """Refuse accuracies outside [0, 1] and fewer than two classes."""
    if not 0 <= accuracy <= 1:
        raise UserError(f"accuracy must lie in [0, 1], got {accuracy!r}")
    if classes < 2:
        raise UserError(f"a classifier needs at least 2 classes, got {classes}")

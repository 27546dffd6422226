"""One exception for every mistake a user can make, with a message that says how to mend it."""

from __future__ import annotations

import difflib
from collections.abc import Iterable


class UserError(ValueError):
    """Something in the study, the data or a call cannot work; the message names the value and what was expected.

    >>> raise UserError("k must be at least 1, got 0")
    Traceback (most recent call last):
    holdfast.errors.UserError: k must be at least 1, got 0
    """


def nearest(value: str, choices: Iterable[str], n: int = 1) -> list[str]:
    """The choices most like `value`, best first; empty when none is close.

    >>> nearest("sailency", ["saliency", "random"])
    ['saliency']
    """
    options = list(choices)
    folded = {option.lower().replace("-", "_"): option for option in options}
    found = difflib.get_close_matches(value.lower().replace("-", "_"), folded, n=n, cutoff=0.5)
    return [folded[key] for key in found]


def unknown(what: str, value: object, choices: Iterable[str]) -> UserError:
    """The error for a name that is not one of `choices`.

    >>> print(unknown("explainer", "sailency", ["saliency", "random"]))
    unknown explainer 'sailency'; did you mean 'saliency'? Allowed: random, saliency
    """
    options = sorted(choices)
    guess = nearest(str(value), options)
    hint = f"; did you mean {guess[0]!r}?" if guess else "."
    return UserError(f"unknown {what} {str(value)!r}{hint} Allowed: {', '.join(options)}")

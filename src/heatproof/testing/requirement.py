"""What a requirement says, read from text. Nothing heavy is imported here: pytest loads it at every start."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from heatproof.errors import UserError, unknown

GRAMMAR = "AXIS.MEASURE[.READOUT][{explainer=…, condition=…, level=…, model=…, dataset=…}] >=|<=|>|< NUMBER [@ CONFIDENCE]"
EXAMPLE = "stability.fass >= 0.6 @ 0.95"
READOUTS = ("mean", "calibrated", "chance")
SHARES = ("retention", "flipped", "undefined", "open")
"""Of the attempted pairs, in the order of their statuses: docs/gate.md says what each of these is."""
EACH = "each"
"""The value of `condition` or `level` that asks for every one by itself instead of their mean."""
USUAL_CONFIDENCE, LEAST_CONFIDENCE, MOST_CONFIDENCE = 0.95, 0.5, 0.999
_FORM = re.compile(
    r"\s*(?P<axis>[^.{}<>=≤≥@\s]+)\.(?P<name>[^{}<>=≤≥@\s]+)\s*(?:\{(?P<where>.*)\})?"
    r"\s*(?P<sign>>=|<=|≥|≤|>|<)\s*(?P<number>[^@\s]+)\s*(?:@\s*(?P<confidence>\S+)\s*)?"
)


@dataclass(frozen=True)
class Requirement:
    """A bound that a number of a run must keep.

    With `sign` ">=" or ">" the one-sided lower confidence bound at level `confidence` is compared with the `threshold`,
    with "<=" or "<" the upper one. `where` holds (key, pattern) pairs that choose rows of the table.
    """

    axis: str
    measure: str
    sign: str
    threshold: float
    readout: str = "mean"
    where: tuple[tuple[str, str], ...] = ()
    confidence: float = USUAL_CONFIDENCE
    text: str = field(default="", compare=False)

    @property
    def at_least(self) -> bool:
        """Whether the number must be large, so that its lower bound counts."""
        return self.sign.startswith(">")

    def holds(self, bound: float) -> bool:
        """Whether a confidence bound keeps the requirement; what is not a number never does.

        >>> parse("stability.fass >= 0.6").holds(0.6), parse("stability.fass > 0.6").holds(0.6)
        (True, False)
        """
        if math.isnan(bound):
            return False
        strictly = bound > self.threshold if self.at_least else bound < self.threshold
        return strictly or (len(self.sign) > 1 and bound == self.threshold)

    def chosen(self, key: str) -> str | None:
        """The pattern given for a key."""
        return dict(self.where).get(key)

    def __str__(self) -> str:
        return self.text


def parse(text: str) -> Requirement:
    """A requirement from its text.

    >>> wish = parse("stability.fass.calibrated{explainer=grad*, condition=jpeg} >= 0.4 @ 0.9")
    >>> wish.measure, wish.readout, wish.where, wish.sign, wish.threshold, wish.confidence
    ('fass', 'calibrated', (('explainer', 'grad*'), ('condition', 'jpeg')), '>=', 0.4, 0.9)
    >>> parse("stability.fass 0.6")
    Traceback (most recent call last):
    heatproof.errors.UserError: cannot read the requirement 'stability.fass 0.6'; one looks like stability.fass >= ...
    """
    parts = _FORM.fullmatch(text)
    if parts is None:
        raise UserError(
            f"cannot read the requirement {text!r}; one looks like {EXAMPLE}, in full {GRAMMAR}"
        )
    measure, *readout = parts["name"].split(".")
    if measure in SHARES and readout:
        raise UserError(
            f"{measure} is a share and has no readout, got {parts['name']!r} in {text!r}"
        )
    if len(readout) > 1 or not measure:
        raise UserError(f"{parts['name']!r} is not a measure with at most one readout, in {text!r}")
    if readout and readout[0] not in READOUTS:
        raise UserError(f"{unknown('readout', readout[0], READOUTS)}, in {text!r}")
    confidence = (
        _number("the confidence", parts["confidence"], text)
        if parts["confidence"]
        else USUAL_CONFIDENCE
    )
    if not LEAST_CONFIDENCE <= confidence <= MOST_CONFIDENCE:
        allowed = f"from {LEAST_CONFIDENCE} to {MOST_CONFIDENCE}, such as {USUAL_CONFIDENCE}"
        raise UserError(
            f"the confidence after @ is {allowed}; got {parts['confidence']} in {text!r}"
        )
    return Requirement(
        axis=parts["axis"],
        measure=measure,
        sign=parts["sign"].replace("≥", ">=").replace("≤", "<="),
        threshold=_number("the threshold", parts["number"], text),
        readout=readout[0] if readout else "mean",
        where=_conditions(parts["where"] or "", text),
        confidence=confidence,
        text=" ".join(text.split()),
    )


def parse_all(texts: str | Iterable[str | Requirement]) -> list[Requirement]:
    """Return requirements from texts, in order; a `Requirement` stays itself.

    >>> [wish.axis for wish in parse_all([EXAMPLE, parse("certificate.rate{radius=5} > 0.5")])]
    ['stability', 'certificate']
    """
    if isinstance(texts, str):
        texts = [texts]
    wishes = [text if isinstance(text, Requirement) else parse(text) for text in texts]
    if not wishes:
        raise UserError(f"there is nothing to check; give a requirement such as '{EXAMPLE}'")
    return wishes


class RequirementsFile(NamedTuple):
    """What a file asks of a run: requirements, and the names of rules that must not find anything."""

    require: list[str]
    forbid: list[str]


def read_requirements(path: Path) -> RequirementsFile:
    """Read a file: YAML (a list, or lists under `require` and `forbid`), or one requirement a line with # comments."""
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise UserError(f"cannot read the requirements in {path}: {error}") from error
    if path.suffix not in (".yaml", ".yml"):
        lines = [re.sub(r"(^|\s)#.*", "", line).strip() for line in text.splitlines()]
        return RequirementsFile(list(filter(None, lines)), [])
    import yaml

    try:
        content: Any = yaml.safe_load(text)
    except yaml.YAMLError as error:
        raise UserError(f"{path} is not valid YAML: {error}") from error
    if isinstance(content, list):
        content = {"require": content}
    if not isinstance(content, dict) or not content or set(content) - {"require", "forbid"}:
        raise _not_requirements(path)
    require, forbid = content.get("require") or [], content.get("forbid") or []
    for names in (require, forbid):
        if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
            raise _not_requirements(path)
    return RequirementsFile(require, forbid)


def _not_requirements(path: Path) -> UserError:
    example = f"such as - '{EXAMPLE}'"
    return UserError(
        f"{path} must hold a list of requirements in quotes, {example}, or such a list under require and one of the "
        "names of rules under forbid"
    )


def _number(what: str, number: str, text: str) -> float:
    try:
        value = float(number)
    except ValueError:
        value = math.nan
    if not math.isfinite(value):
        raise UserError(f"{what} must be a number, got {number!r} in {text!r}")
    return value


def _conditions(braces: str, text: str) -> tuple[tuple[str, str], ...]:
    """The pairs between braces; commas inside quotes and parentheses belong to a name such as lime(samples=32, k=1)."""
    pieces = re.findall(r"""(?:'[^']*'|"[^"]*"|\((?:[^()]|\([^()]*\))*\)|[^,])+""", braces)
    pairs = []
    for piece in filter(str.strip, pieces):
        key, equals, value = (part.strip() for part in piece.partition("="))
        if not (key and equals and value):
            raise UserError(
                f"between braces there are key=value pairs, got {piece.strip()!r} in {text!r}"
            )
        pairs.append((key, value[1:-1] if value[0] in "'\"" and value[-1] == value[0] else value))
    keys = [key for key, _ in pairs]
    if len(set(keys)) != len(keys):
        raise UserError(f"a key is given twice between the braces of {text!r}")
    return tuple(pairs)

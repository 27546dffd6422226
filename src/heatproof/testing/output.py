"""What a check found, for a terminal, a log of GitHub, a program, and a JUnit report."""

from __future__ import annotations

import json
import math
import re
import secrets
import textwrap
from collections.abc import Sequence
from itertools import groupby
from typing import Any
from xml.etree import ElementTree

from heatproof.testing.check import Outcome

_NOT_XML = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


def shown(value: float, up: bool | None = None, digits: int = 3) -> str:
    """A number for reading, rounded away from flattery: bounds go down for a lower one and up for an upper one.

    >>> shown(0.5999, up=False), shown(0.5999), shown(float("nan"))
    ('0.599', '0.600', '-')
    """
    if not math.isfinite(value):
        return "-"
    scale = 10**digits
    whole = (
        round(value * scale)
        if up is None
        else (math.ceil if up else math.floor)(round(value * scale, 6))
    )
    return f"{whole / scale:.{digits}f}"


def lines(outcomes: Sequence[Outcome], width: int | None = None) -> list[str]:
    """A heading for each requirement and place, one aligned line for each explainer, and how many passed at the end.

    A line longer than `width` goes on in the next one.
    """
    room = max(len(name) for name in ("explainer", *map(who, outcomes)))
    if width is not None:
        room = max(12, min(room, width - 42))
    places = list(dict.fromkeys(_where(outcome) for outcome in outcomes))
    text = [places[0], ""] if len(places) == 1 else []
    for (wish, place), group in groupby(outcomes, key=lambda o: (o.requirement, _where(o))):
        text.append(str(wish) if len(places) == 1 else f"{wish}, {place}")
        side = "at least" if wish.at_least else "at most"
        text.append(f"        {'explainer':<{room}}  {side:>8}    mean      n  needs")
        for outcome in group:
            seen = outcome.seen
            bound, mean = shown(seen.bound, not wish.at_least), shown(seen.mean)
            state = "PASS" if outcome.passed else "FAIL"
            name = who(outcome)
            name = name if len(name) <= room else f"{name[: room - 1]}…"
            head = f"  {state}  {name:<{room}}  {bound:>8}  {mean:>6}  {seen.n:>5}"
            needs = f"{wish.sign} {wish.threshold:g}" + (
                f": {outcome.need}" if outcome.need else ""
            )
            text += _with_tail(head, needs, width)
        text.append("")
    return [*text, summary(outcomes)]


def styled(text: Sequence[str]) -> list[tuple[str, str]]:
    """The lines of a check with their colours."""
    styles = {"  PASS": "green", "  FAIL": "red"}
    *body, last = text
    return [(line, styles.get(line[:6], "")) for line in body] + [
        (last, "bold red" if "failed" in last else "bold green")
    ]


def summary(outcomes: Sequence[Outcome]) -> str:
    """How many passed, in one line."""
    failed = sum(not outcome.passed for outcome in outcomes)
    total = f"{len(outcomes)} check{'' if len(outcomes) == 1 else 's'}"
    return f"{failed} of {total} failed" if failed else f"{total} passed"


def who(outcome: Outcome) -> str:
    """The explainer, and the condition where each is judged by itself."""
    return _one_line(
        f"{outcome.explainer}, {outcome.condition}" if outcome.condition else outcome.explainer
    )


def sentence(outcome: Outcome) -> str:
    """One outcome without its surroundings."""
    wish, seen = outcome.requirement, outcome.seen
    side = "lower" if wish.at_least else "upper"
    bound = f"{side} bound {shown(seen.bound, not wish.at_least)} ({seen.method}), mean {shown(seen.mean)}, n = {seen.n}"
    text = f"{who(outcome)} of {_where(outcome)}: {wish}: {bound}"
    return f"{text}; needs {outcome.need}" if outcome.need else text


def as_json(outcomes: Sequence[Outcome], directory: str) -> str:
    """Everything as JSON; what is not a number is null."""

    def number(value: float) -> float | None:
        return value if math.isfinite(value) else None

    entries: list[dict[str, Any]] = []
    for o in outcomes:
        wish = o.requirement
        entry = {
            "requirement": str(wish),
            "passed": o.passed,
            "dataset": o.dataset,
            "model": o.model,
        }
        entry |= {
            "evaluation": o.evaluation,
            "explainer": o.explainer,
            "condition": o.condition or None,
        }
        entry |= {
            "bound": number(o.seen.bound),
            "mean": number(o.seen.mean),
            "n": o.seen.n,
            "method": o.seen.method,
        }
        entry |= {
            "sign": wish.sign,
            "threshold": wish.threshold,
            "confidence": wish.confidence,
            "needs": o.need or None,
        }
        entries.append(entry)
    passed = all(o.passed for o in outcomes)
    return json.dumps(
        {"directory": directory, "passed": passed, "outcomes": entries},
        indent=2,
        ensure_ascii=False,
    )


def github_log(outcomes: Sequence[Outcome]) -> list[str]:
    """The lines for a log of GitHub, which takes no commands from them, and one `::error` for each failure.

    GitHub's page shows the errors. What ends a command or a property is written as GitHub wants it: % as %25, line
    ends as %0A, : and , as %3A and %2C.
    """
    key = secrets.token_hex(16)  # one that no name in the lines can hold
    log = [f"::stop-commands::{key}", *lines(outcomes), f"::{key}::"]
    for outcome in outcomes:
        if not outcome.passed:
            title = (
                _escaped(f"{who(outcome)}: {outcome.requirement}")
                .replace(":", "%3A")
                .replace(",", "%2C")
            )
            log.append(f"::error title={title}::{_escaped(sentence(outcome))}")
    return log


def junit(outcomes: Sequence[Outcome], directory: str) -> bytes:
    """A JUnit report with one test case for each outcome, in the form that Jenkins, GitLab and GitHub read."""
    failed = str(sum(not outcome.passed for outcome in outcomes))
    counts = {
        "name": "heatproof",
        "tests": str(len(outcomes)),
        "failures": failed,
        "errors": "0",
        "time": "0",
    }
    root = ElementTree.Element("testsuites", counts)
    suite = ElementTree.SubElement(root, "testsuite", counts | {"skipped": "0"})
    properties = ElementTree.SubElement(suite, "properties")
    ElementTree.SubElement(
        properties, "property", {"name": "directory", "value": _clean(directory)}
    )
    for o in outcomes:
        place = _clean(f"heatproof.{o.evaluation}.{o.dataset}.{o.model}")
        name = _clean(f"{o.requirement} [{who(o)}]")
        case = ElementTree.SubElement(
            suite, "testcase", {"classname": place, "name": name, "time": "0"}
        )
        if not o.passed:
            failure = {"message": _clean(f"needs {o.need}"), "type": "AssertionError"}
            ElementTree.SubElement(case, "failure", failure).text = _clean(sentence(o))
        ElementTree.SubElement(case, "system-out").text = _clean(sentence(o))
    ElementTree.indent(root)
    return bytes(ElementTree.tostring(root, encoding="utf-8", xml_declaration=True))


def _where(outcome: Outcome) -> str:
    return _one_line(f"{outcome.model} on {outcome.dataset}")


def _one_line(name: str) -> str:
    """A name without what would break or colour a line."""
    return "".join(character if character.isprintable() else "�" for character in name)


def _with_tail(head: str, tail: str, width: int | None) -> list[str]:
    whole = f"{head}  {tail}"
    if width is None or len(whole) <= width:
        return [whole]
    first, colon, rest = tail.partition(": ")
    below = textwrap.wrap(
        rest, max(30, width - 8), initial_indent=" " * 8, subsequent_indent=" " * 8
    )
    return [f"{head}  {first}{colon.rstrip()}", *below]


def _escaped(text: str) -> str:
    return text.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


def _clean(text: str) -> str:
    """Text without the characters that XML cannot hold."""
    return _NOT_XML.sub("�", text)

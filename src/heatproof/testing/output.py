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

from heatproof.results.findings import Finding
from heatproof.testing.check import Outcome
from heatproof.testing.forbid import Ruling

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


def lines(outcomes: Sequence[Outcome | Ruling], width: int | None = None) -> list[str]:
    """A heading for each requirement and place, one aligned line for each explainer, and how many passed at the end.

    Forbidden rules come last. A line longer than `width` goes on in the next one.
    """
    judged = [outcome for outcome in outcomes if isinstance(outcome, Outcome)]
    rulings = [outcome for outcome in outcomes if isinstance(outcome, Ruling)]
    text = _requirement_lines(judged, width) if judged else []
    if rulings:
        text += ["forbidden rules", *_rule_lines(rulings, width), ""]
    return [*text, summary(outcomes)]


def _rule_lines(rulings: Sequence[Ruling], width: int | None) -> list[str]:
    """A line for each rule that found nothing, and one for each finding of the others."""
    text = []
    for ruling in rulings:
        if ruling.passed:
            text.append(f"  PASS  {ruling.rule}")
        for finding in ruling.findings:
            text.append(f"  FAIL  {ruling.rule}")
            text += _wrapped(_finding_text(finding), width)
    return text


def _finding_text(finding: Finding) -> str:
    """A finding with the explainers and the place that it is about."""
    who = f"{', '.join(finding.explainers)} of " if finding.explainers else ""
    return _one_line(f"{who}{finding.model} on {finding.dataset}: {finding.title}. {finding.seen}")


def _requirement_lines(outcomes: Sequence[Outcome], width: int | None) -> list[str]:
    room = max(len(name) for name in ("explainer", *map(who, outcomes)))
    if width is not None:
        room = max(12, min(room, width - 42))
    places = list(dict.fromkeys(_where(outcome) for outcome in outcomes))
    text = [places[0], ""] if len(places) == 1 else []
    for (wish, place), outcomes_here in groupby(outcomes, key=lambda o: (o.requirement, _where(o))):
        group = list(outcomes_here)
        text.append(str(wish) if len(places) == 1 else f"{wish}, {place}")
        methods = dict.fromkeys(outcome.seen.method for outcome in group)
        text += _wrapped(f"bound: {'; '.join(methods)}", width)
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
    return text


def styled(text: Sequence[str]) -> list[tuple[str, str]]:
    """The lines of a check with their colours."""
    styles = {"  PASS": "green", "  FAIL": "red"}
    *body, last = text
    return [(line, styles.get(line[:6], "")) for line in body] + [
        (last, "bold red" if "failed" in last else "bold green")
    ]


def summary(outcomes: Sequence[Outcome | Ruling]) -> str:
    """How many passed, in one line."""
    failed = sum(not outcome.passed for outcome in outcomes)
    total = f"{len(outcomes)} check{'' if len(outcomes) == 1 else 's'}"
    return f"{failed} of {total} failed" if failed else f"{total} passed"


def who(outcome: Outcome) -> str:
    """The explainer, and the condition where each is judged by itself."""
    return _one_line(
        f"{outcome.explainer}, {outcome.condition}" if outcome.condition else outcome.explainer
    )


def sentence(outcome: Outcome | Ruling) -> str:
    """One outcome without its surroundings."""
    if isinstance(outcome, Ruling):
        found = "; ".join(map(_finding_text, outcome.findings))
        return f"{outcome.rule}: {found or 'nothing found'}"
    wish, seen = outcome.requirement, outcome.seen
    side = "lower" if wish.at_least else "upper"
    bound = f"{side} bound {shown(seen.bound, not wish.at_least)} ({seen.method}), mean {shown(seen.mean)}, n = {seen.n}"
    text = f"{who(outcome)} of {_where(outcome)}: {wish}: {bound}"
    return f"{text}; needs {outcome.need}" if outcome.need else text


def as_json(outcomes: Sequence[Outcome | Ruling], directory: str) -> str:
    """Everything as JSON; what is not a number is null."""

    def number(value: float) -> float | None:
        return value if math.isfinite(value) else None

    entries: list[dict[str, Any]] = []
    rules: list[dict[str, Any]] = []
    for o in outcomes:
        if isinstance(o, Ruling):
            rules.append({"rule": o.rule, "passed": o.passed, "findings": _finding_entries(o)})
            continue
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
        {"directory": directory, "passed": passed, "outcomes": entries, "forbidden": rules},
        indent=2,
        ensure_ascii=False,
    )


def _finding_entries(ruling: Ruling) -> list[dict[str, Any]]:
    return [
        {
            "dataset": finding.dataset,
            "model": finding.model,
            "axis": finding.axis or None,
            "explainers": list(finding.explainers),
            "title": finding.title,
            "seen": finding.seen,
        }
        for finding in ruling.findings
    ]


def github_log(outcomes: Sequence[Outcome | Ruling]) -> list[str]:
    """The lines for a log of GitHub, which takes no commands from them, and one `::error` for each failure.

    GitHub's page shows the errors. What ends a command or a property is written as GitHub wants it: % as %25, line
    ends as %0A, : and , as %3A and %2C.
    """
    key = secrets.token_hex(16)  # one that no name in the lines can hold
    log = [f"::stop-commands::{key}", *lines(outcomes), f"::{key}::"]
    for outcome in outcomes:
        if not outcome.passed:
            title = _escaped(_heading(outcome)).replace(":", "%3A").replace(",", "%2C")
            log.append(f"::error title={title}::{_escaped(sentence(outcome))}")
    return log


def _heading(outcome: Outcome | Ruling) -> str:
    if isinstance(outcome, Ruling):
        return f"forbidden rule {outcome.rule}"
    return f"{who(outcome)}: {outcome.requirement}"


def junit(outcomes: Sequence[Outcome | Ruling], directory: str) -> bytes:
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
        if isinstance(o, Ruling):
            place, name, message = "heatproof.forbidden", _clean(o.rule), _clean(sentence(o))
        else:
            place = _clean(f"heatproof.{o.evaluation}.{o.dataset}.{o.model}")
            name = _clean(f"{o.requirement} [{who(o)}]")
            message = _clean(f"needs {o.need}")
        case = ElementTree.SubElement(
            suite, "testcase", {"classname": place, "name": name, "time": "0"}
        )
        if not o.passed:
            failure = {"message": message, "type": "AssertionError"}
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
    return [f"{head}  {first}{colon.rstrip()}", *_wrapped(rest, width)]


def _wrapped(text: str, width: int | None) -> list[str]:
    """A text below the line that it belongs to."""
    indent = " " * 8
    if width is None:
        return [indent + text]
    return textwrap.wrap(text, max(30, width - 8), initial_indent=indent, subsequent_indent=indent)


def _escaped(text: str) -> str:
    return text.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


def _clean(text: str) -> str:
    """Text without the characters that XML cannot hold."""
    return _NOT_XML.sub("�", text)

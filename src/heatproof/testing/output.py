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
    """Return a number as text, rounded to some digits: to the nearest, or always `up` (True) or down (False).

    A lower confidence bound is rounded down and an upper one up, so that the printed bound still holds.

    >>> shown(0.5999, up=False), shown(0.5999), shown(float("nan"))
    ('0.599', '0.600', '-')
    """
    if not math.isfinite(value):
        return "-"
    scale = 10**digits
    if up is None:
        scaled = round(value * scale)
    else:
        # Without the rounding error of the product: 0.07 · 100 is a little more than 7, and would be rounded up to 8.
        exact = round(value * scale, 6)
        scaled = math.ceil(exact) if up else math.floor(exact)
    return f"{scaled / scale:.{digits}f}"


def lines(outcomes: Sequence[Outcome | Ruling], width: int | None = None) -> list[str]:
    """Return the result of a check as lines of text: a table per requirement, then forbidden rules, then a summary.

    A table has a line for each explainer. A line longer than `width` is wrapped; None does not wrap.
    """
    judged = [outcome for outcome in outcomes if isinstance(outcome, Outcome)]
    rulings = [outcome for outcome in outcomes if isinstance(outcome, Ruling)]
    text = _requirement_lines(judged, width) if judged else []
    if rulings:
        text += ["forbidden rules", *_rule_lines(rulings, width), ""]
    return [*text, summary(outcomes)]


def _rule_lines(rulings: Sequence[Ruling], width: int | None) -> list[str]:
    """Return a line for each forbidden rule without findings, and for the others one per finding with its text."""
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
    """Return a table for each requirement, model and data set: the bound, mean and result of each explainer.

    If all are about one model and data set, that is named once at the top.
    """
    name_width = max(len(name) for name in ("explainer", *map(who, outcomes)))
    if width is not None:
        name_width = max(12, min(name_width, width - 42))
    subjects = list(dict.fromkeys(_where(outcome) for outcome in outcomes))
    text = [subjects[0], ""] if len(subjects) == 1 else []
    tables = groupby(outcomes, key=lambda outcome: (outcome.requirement, _where(outcome)))
    for (requirement, subject), grouped_outcomes in tables:
        group = list(grouped_outcomes)
        text.append(str(requirement) if len(subjects) == 1 else f"{requirement}, {subject}")
        methods = dict.fromkeys(outcome.seen.method for outcome in group)
        text += _wrapped(f"bound: {'; '.join(methods)}", width)
        side = "at least" if requirement.at_least else "at most"
        text.append(f"        {'explainer':<{name_width}}  {side:>8}    mean      n  needs")
        for outcome in group:
            seen = outcome.seen
            bound = shown(seen.bound, up=not requirement.at_least)
            mean = shown(seen.mean)
            state = "PASS" if outcome.passed else "FAIL"
            name = who(outcome)
            if len(name) > name_width:
                name = f"{name[: name_width - 1]}…"
            head = f"  {state}  {name:<{name_width}}  {bound:>8}  {mean:>6}  {seen.n:>5}"
            needs = f"{requirement.sign} {requirement.threshold:g}"
            if outcome.need:
                needs += f": {outcome.need}"
            text += _with_tail(head, needs, width)
        text.append("")
    return text


def styled(text: Sequence[str]) -> list[tuple[str, str]]:
    """Return the lines of a check (see `lines`) as pairs of a line and its style for the terminal, "" for plain."""
    styles = {"  PASS": "green", "  FAIL": "red"}
    *body, summary_line = text
    styled_lines = [(line, styles.get(line[:6], "")) for line in body]
    summary_style = "bold red" if "failed" in summary_line else "bold green"
    return [*styled_lines, (summary_line, summary_style)]


def summary(outcomes: Sequence[Outcome | Ruling]) -> str:
    """How many passed, in one line."""
    failed = sum(not outcome.passed for outcome in outcomes)
    total = f"{len(outcomes)} check{'' if len(outcomes) == 1 else 's'}"
    return f"{failed} of {total} failed" if failed else f"{total} passed"


def who(outcome: Outcome) -> str:
    """Return the name of the explainer, with the condition where each condition is checked by itself."""
    name = outcome.explainer
    if outcome.condition:
        name = f"{name}, {outcome.condition}"
    return _one_line(name)


def sentence(outcome: Outcome | Ruling) -> str:
    """Return one outcome as a sentence that can stand alone, such as in a log."""
    if isinstance(outcome, Ruling):
        found = "; ".join(map(_finding_text, outcome.findings))
        return f"{outcome.rule}: {found or 'nothing found'}"
    wish, seen = outcome.requirement, outcome.seen
    side = "lower" if wish.at_least else "upper"
    bound = f"{side} bound {shown(seen.bound, not wish.at_least)} ({seen.method}), mean {shown(seen.mean)}, n = {seen.n}"
    text = f"{who(outcome)} of {_where(outcome)}: {wish}: {bound}"
    return f"{text}; needs {outcome.need}" if outcome.need else text


def as_json(outcomes: Sequence[Outcome | Ruling], directory: str) -> str:
    """Return the result of a check as JSON, for programs; numbers that are not finite are null.

    `directory` is the run that was checked.
    """
    entries: list[dict[str, Any]] = []
    rules: list[dict[str, Any]] = []
    for outcome in outcomes:
        if isinstance(outcome, Ruling):
            findings = _finding_entries(outcome)
            rules.append({"rule": outcome.rule, "passed": outcome.passed, "findings": findings})
        else:
            entries.append(_outcome_entry(outcome))
    passed = all(outcome.passed for outcome in outcomes)
    return json.dumps(
        {"directory": directory, "passed": passed, "outcomes": entries, "forbidden": rules},
        indent=2,
        ensure_ascii=False,
    )


def _outcome_entry(outcome: Outcome) -> dict[str, Any]:
    """Return one outcome as a JSON object; what does not apply or is not finite is null."""
    requirement, seen = outcome.requirement, outcome.seen
    return {
        "requirement": str(requirement),
        "passed": outcome.passed,
        "dataset": outcome.dataset,
        "model": outcome.model,
        "evaluation": outcome.evaluation,
        "explainer": outcome.explainer,
        "condition": outcome.condition or None,
        "bound": seen.bound if math.isfinite(seen.bound) else None,
        "mean": seen.mean if math.isfinite(seen.mean) else None,
        "n": seen.n,
        "method": seen.method,
        "sign": requirement.sign,
        "threshold": requirement.threshold,
        "confidence": requirement.confidence,
        "needs": outcome.need or None,
    }


def _finding_entries(ruling: Ruling) -> list[dict[str, Any]]:
    """Return the findings of a forbidden rule as JSON objects."""
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
    """Return the lines of a check for a log of GitHub Actions, with an `::error` command for each failure.

    GitHub shows the errors on its page. The lines themselves stand between `::stop-commands::` and its end, so that no
    name in them can be a command. Characters that end a command or a property are escaped as GitHub documents it: %, line
    ends, and in a title : and , too.
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
    """Return the result of a check as a JUnit report in XML, which Jenkins, GitLab and GitHub read: a test per outcome."""
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
    """Return a line with a tail such as ">= 0.6: 20 samples"; if it is too long, what follows the colon is below it."""
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

"""The page: results, samples and manifest in, one HTML string out."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any

import pandas as pd
from markupsafe import Markup

from heatproof.report import sections as parts
from heatproof.report.findings import unreadable
from heatproof.report.html import page, shared_script, shared_style, template
from heatproof.report.images import Album, filters
from heatproof.report.provenance import cited, made
from heatproof.report.sections import NUMBER_COLUMNS, PACKAGE, Section, sections_of
from heatproof.results.axis_result import AxisResult
from heatproof.rules import docs_link
from heatproof.runs.manifest import Manifest


def build_report(
    results: Iterable[AxisResult],
    samples: pd.DataFrame,
    manifest: Manifest,
    missing: Sequence[str] = (),
) -> str:
    """Return one HTML page that needs no network: verdict, findings, charts, galleries, numbers and how they were made.

    `samples` has a row per dataset, model and sample, and `manifest` the study with versions and fingerprints.
    `missing` names the parts of the study that are not computed yet.
    """
    album = Album()
    sections = sections_of(results, samples, manifest, album, missing)
    # All numbers of the summary are in the page as JSON, which its script makes tables of when they are opened.
    numbers = {}
    for section in sections:
        for axis in section.axes:
            rows = parts.number_rows(axis.result)
            cells = [[*row.cells, int(row.control)] for row in rows]
            numbers[f"{section.key}-{axis.key}"] = cells
    style = shared_style() + template(PACKAGE, "style.css") + template(PACKAGE, "verdict.css")
    study = manifest.study.as_mapping()
    payload = {
        "pictures": album.pictures,
        "sheets": {section.key: section.pictured for section in sections},
        "number_columns": NUMBER_COLUMNS,
        "numbers": numbers,
    }
    context = {
        "manifest": manifest,
        "made": made(manifest),
        "study": study,
        "facts": _facts(sections, manifest),
        "sections": sections,
        "matrix": parts.matrix_of(sections),
        "stops": _stops(sections),
        "about": _about(sections, manifest),
        "cite": cited(manifest),
        "filters": filters(),
        "change_yaml": parts.change_yaml,
        "rule_link": docs_link,
        "ignored": manifest.ignore,
        "parameters": json.dumps(study, indent=2, ensure_ascii=False, default=str),
        "across": parts.across(sections),
        "payload": embed(payload),
        "style": Markup(style),
        "script": Markup(shared_script() + template(PACKAGE, "report.js")),
    }
    return page(PACKAGE, "report.html").render(context)


def _stops(sections: Sequence[Section]) -> list[tuple[str, str]]:
    """Return the anchors and names of the parts of the page that its head leads to."""
    stops = [("matrix", "Matrix")] if len(sections) > 1 else []
    if sections:
        first = sections[0]
        stops += [("verdict", "Verdict"), ("sheet", "All maps")]
        if first.proof.columns:
            stops.append(("scorecard", "Scorecard"))
        if first.findings:
            stops.append(("findings", "Findings"))
        if first.axes:
            stops.append(("axes", "Tests"))
    return [*stops, ("details", "Details")]


def _about(sections: Sequence[Section], manifest: Manifest) -> str:
    """Return what the page is of, in a few words."""
    day = _date(manifest.created).partition(",")[0]
    if not sections:
        return day
    if len(sections) == 1:
        (section,) = sections
        facts = [section.model, f"{section.samples} {section.words.samples}", day]
    else:
        models = len({section.model for section in sections})
        datasets = len({section.dataset for section in sections})
        facts = [f"{_counted(models, 'model')} × {_counted(datasets, 'data set')}", day]
    return " · ".join(filter(None, facts))


def _counted(n: int, noun: str) -> str:
    return f"{n} {noun}{'' if n == 1 else 's'}"


def embed(data: Any) -> Markup:
    r"""Return JSON that is safe inside a script element: no text in it can end the element or start a comment.

    >>> print(embed({"name": "</script><b>"}))
    {"name":"\u003c/script\u003e\u003cb\u003e"}
    """
    text = json.dumps(data, ensure_ascii=False, separators=(",", ":"))
    for char in "<>&\u2028\u2029":
        text = text.replace(char, f"\\u{ord(char):04x}")
    return Markup(text)


def _date(text: Any) -> str:
    """Return an ISO date and time as it is written in a sentence, anything else unchanged."""
    try:
        moment = datetime.fromisoformat(str(text))
    except ValueError:
        return str(text or "")
    zone = " UTC" if moment.utcoffset() == timedelta(0) else ""
    return f"{moment.day} {moment:%B %Y, %H:%M}{zone}"


def _backgrounds(sections: Sequence[Section], manifest: Manifest) -> list[tuple[str, list[str]]]:
    """Return each background that takes the place of removed features, with the explainers that use it."""
    users: dict[str, dict[str, None]] = {}
    for section in sections:
        for name in manifest.study.explainers:
            entry = manifest.study.explainer(name, section.dataset, section.model)
            parameters = entry.parameters
            inner = parameters.get("of")
            if isinstance(inner, Mapping):
                parameters = {**parameters, **inner}
            background = parameters.get("background")
            if isinstance(background, str):
                users.setdefault(background, {})[name] = None
    return [(background, list(names)) for background, names in users.items()]


def _facts(sections: Sequence[Section], manifest: Manifest) -> list[tuple[str, list[str]]]:
    """Return titled lists of facts about the run: models, data, date and version, pairs."""
    models = list(dict.fromkeys(section.model for section in sections))
    data = {}
    attempted = 0
    for section in sections:
        lost = len(unreadable(section.proof.samples))
        unread = f", {lost} unreadable" if lost else ""
        data[section.dataset] = f"{section.dataset}: {section.samples} samples{unread}"
        for axis in section.axes:
            attempted += int((axis.result.arrays.status >= 0).sum())
    version = f"heatproof {manifest.heatproof}"
    backgrounds = [
        f"{name}: {', '.join(users)}" for name, users in _backgrounds(sections, manifest)
    ]
    facts = [
        ("Model" if len(models) == 1 else "Models", models),
        ("Data", list(data.values())),
        ("In place of removed features", backgrounds),
        ("Run", [", ".join(filter(None, (_date(manifest.created), version)))]),
        ("Pairs attempted", [f"{attempted:,}".replace(",", "\u202f")]),
    ]
    return [(title, values) for title, values in facts if values]

"""The page: results, samples and manifest in, one HTML string out."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
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
    numbers = {
        f"{section.key}-{axis.key}": parts.number_rows(axis.result)
        for section in sections
        for axis in section.axes
    }
    study = manifest.study.as_mapping()
    payload = {
        "pictures": album.pictures,
        "sheets": {section.key: section.pictured for section in sections},
        "number_columns": NUMBER_COLUMNS,
        "numbers": {
            key: [[*row.cells, int(row.control)] for row in rows] for key, rows in numbers.items()
        },
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
        "style": Markup(shared_style() + template(PACKAGE, "style.css")),
        "script": Markup(shared_script() + template(PACKAGE, "report.js")),
    }
    return page(PACKAGE, "report.html").render(context)


def _stops(sections: Sequence[Section]) -> list[tuple[str, str]]:
    """The parts of the page that its head leads to."""
    first = sections[0] if sections else None
    stops = [("matrix", "Matrix")] if len(sections) > 1 else []
    if first is not None:
        stops += [
            ("sheet", "Proof sheet"),
            *([("scorecard", "Scorecard")] if first.proof.columns else []),
        ]
        stops += [("findings", "Findings")] if first.findings else []
        stops += [(axis.key, axis.result.title) for axis in first.axes]
    return [*stops, ("details", "Details")]


def _about(sections: Sequence[Section], manifest: Manifest) -> str:
    """What the page is of, in a few words."""
    day = _date(manifest.created).partition(",")[0]
    models, data = ({getattr(s, name) for s in sections} for name in ("model", "dataset"))
    if len(sections) == 1:
        told = [sections[0].model, f"{sections[0].samples} {sections[0].words.samples}"]
    else:
        told = [
            f"{len(models)} model{'s' * (len(models) != 1)} × {len(data)} data set{'s' * (len(data) != 1)}"
        ]
    return " · ".join(filter(None, (*told, day))) if sections else day


def embed(data: Any) -> Markup:
    r"""JSON that is safe inside a script element: no text in it can end the element or start a comment.

    >>> print(embed({"name": "</script><b>"}))
    {"name":"\u003c/script\u003e\u003cb\u003e"}
    """
    text = json.dumps(data, ensure_ascii=False, separators=(",", ":"))
    for char in "<>&\u2028\u2029":
        text = text.replace(char, f"\\u{ord(char):04x}")
    return Markup(text)


def _date(text: Any) -> str:
    """An ISO date and time as it is written in a sentence; anything else as it stands."""
    try:
        moment = datetime.fromisoformat(str(text))
    except ValueError:
        return str(text or "")
    zone = " UTC" if moment.utcoffset() == timedelta(0) else ""
    return f"{moment.day} {moment:%B %Y, %H:%M}{zone}"


def _facts(sections: list[Section], manifest: Manifest) -> list[tuple[str, list[str]]]:
    run = ", ".join(filter(None, (_date(manifest.created), f"heatproof {manifest.heatproof}")))
    models = dict.fromkeys(s.model for s in sections)
    lost = {s.key: len(unreadable(s.proof.samples)) for s in sections}
    told = {s.key: f", {lost[s.key]} unreadable" if lost[s.key] else "" for s in sections}
    data = {s.dataset: f"{s.dataset}: {s.samples} samples{told[s.key]}" for s in sections}
    results = [axis.result for section in sections for axis in section.axes]
    attempted = sum(int((result.arrays.status >= 0).sum()) for result in results)
    facts = [("Model" if len(models) == 1 else "Models", list(models))]
    facts += [("Data", list(data.values())), ("Run", [run])]
    facts += [("Pairs attempted", [f"{attempted:,}".replace(",", "\u202f")])]
    return [(name, values) for name, values in facts if values]

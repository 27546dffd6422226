"""The page from its parts: table, samples, exhibits and manifest in, one HTML string out."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any

import pandas as pd
from markupsafe import Markup

from holdfast.axes import Judged, judge
from holdfast.drawing.pages import page, shared_script, shared_style, template
from holdfast.drawing.tables import Row
from holdfast.report.provenance import audit_text, made
from holdfast.report.sections import NUMBER_COLUMNS, PACKAGE, Section, across, sections_of
from holdfast.types import Shown

FINGERPRINT = 12
MOST_CONDITIONS = 7  # of an axis that the head of the page names
MOST_INLINE = 400  # rows of numbers that are part of the page itself; more are written when they are asked for


def build_report(
    table: pd.DataFrame, samples: pd.DataFrame, exhibits: Iterable[Shown], manifest: Mapping[str, Any]
) -> str:
    """One HTML page that needs no network: verdict, findings, charts, galleries, numbers and how they were made.

    `table` has one row per attempted pair and measure, `samples` one per dataset, model and sample, `exhibits` the
    pictures of some samples, and `manifest` the study with versions and fingerprints; see `runs.table`. Whatever
    the manifest lacks is left out.

    >>> none = pd.DataFrame(columns=["dataset", "model", "sample", "error", "explainer", "evaluation", "measure"])
    >>> "Nothing can be concluded" in build_report(none, none, [], {})
    True
    """
    shown = list(exhibits)
    return draw_page(judge(table, samples, shown, manifest), samples, shown, manifest)


def draw_page(
    every: Iterable[Judged], samples: pd.DataFrame, exhibits: Sequence[Shown], manifest: Mapping[str, Any]
) -> str:
    """The page of `build_report` from what was judged."""
    about = dict(manifest)
    sections = sections_of(every, samples, exhibits, about)
    over_models = across(sections)
    numbers = {f"{axis.key}-numbers": axis.numbers for section in sections for axis in section.axes}
    inline = sum(map(len, numbers.values())) <= MOST_INLINE
    study = about.get("study") or {}
    panels = [panel for section in sections for panel in section.panels]
    payload = {
        "pictures": {key: uri for panel in panels for key, uri in panel.pictures.items()},
        "number_columns": NUMBER_COLUMNS,
        "numbers": {} if inline else {key: _compact(lines) for key, lines in numbers.items()},
    }
    context = {
        "manifest": about,
        "made": made(about),
        "audit": audit_text(about),
        "study": study,
        "facts": _facts(sections, about),
        "sections": sections,
        "numbers": numbers,
        "inline": inline,
        "number_columns": NUMBER_COLUMNS,
        "parameters": json.dumps(study, indent=2, ensure_ascii=False, default=str),
        "across": over_models,
        "payload": embed(payload),
        "style": Markup(shared_style() + template(PACKAGE, "style.css")),
        "script": Markup(shared_script() + template(PACKAGE, "report.js")),
    }
    return page(PACKAGE, "report.html").render(context)


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


def _facts(sections: list[Section], manifest: Mapping[str, Any]) -> list[tuple[str, list[str]]]:
    study = manifest.get("study") or {}
    version = manifest.get("holdfast")
    created = ", ".join(filter(None, (_date(manifest.get("created")), f"holdfast {version}" if version else "")))

    def mark(kind: str, name: str) -> str:
        print_ = ((study.get(kind) or {}).get(name) or {}).get("fingerprint") or ""
        return f"{name} ({str(print_).removeprefix('sha256:')[:FINGERPRINT]})" if print_ else name

    models = dict.fromkeys(s.model for s in sections)
    data = {}
    for s in sections:
        unread = f", {s.unreadable} unreadable" if s.unreadable else ""
        data[s.dataset] = f"{mark('datasets', s.dataset)}: {s.samples} samples{unread}"
    judged = [axis.judged for section in sections for axis in section.axes]
    explainers = dict.fromkeys(e for j in judged for e in j.cube.explainers)
    attempted = sum(int((j.cube.status >= 0).sum()) for j in judged)
    facts = [("Model" if len(models) == 1 else "Models", [mark("models", m) for m in models])]
    facts += [("Data", list(data.values())), ("Run", [created] if created else [])]
    facts += [("Pairs attempted", [f"{attempted:,}".replace(",", "\u202f")])]
    facts += [("Explainers", [_some(list(explainers))] if explainers else [])]
    for j in {j.title: j for j in judged if j.axis.separable}.values():
        conditions = list(dict.fromkeys(j.axis.condition(*c) for c in j.cube.conditions))
        facts.append((j.title, [", ".join(conditions)] if len(conditions) <= MOST_CONDITIONS else []))
    return [(name, values) for name, values in facts if values]


def _some(names: list[str], most: int = 14) -> str:
    more = len(names) - most
    return ", ".join(names[:most]) + (f" and {more} more" if more > 0 else "")


def _compact(rows: list[Row]) -> list[list[Any]]:
    return [[*row.cells, int(row.control)] for row in rows]

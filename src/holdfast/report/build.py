"""The page from its parts: table, samples, exhibits and manifest in, one HTML string out."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from functools import lru_cache
from importlib.resources import files
from typing import Any

import pandas as pd
from jinja2 import DictLoader, Environment, StrictUndefined
from markupsafe import Markup
from plotly.offline import get_plotlyjs

from holdfast import statistics
from holdfast.cubes import Cube, arrange
from holdfast.perturbations import title
from holdfast.report import verdict as words
from holdfast.report.axes import AxisSection, across_models, axis_sections, base_model
from holdfast.report.charts import COMPONENT_NAMES, Chart, charts
from holdfast.report.gallery import Gallery, gallery
from holdfast.report.severity import severity_charts
from holdfast.table import Shown

UNTESTED = "Stability was not tested."
INPUTS = "inputs"  # under which the engine keeps the first images as the model sees them
MOST_TESTS = 150
FINGERPRINT = 12


@dataclass(frozen=True)
class Row:
    """One line of a table: its cells as text, and whether it belongs to a control."""

    cells: list[str]
    control: bool = False


@dataclass(frozen=True)
class Section:
    """Everything the page shows about one dataset and model."""

    key: str
    dataset: str
    model: str
    samples: int
    unreadable: int
    verdict: list[str]
    cautions: list[words.Caution]
    charts: list[Chart]
    ranking: list[Row]
    tests: list[Row]
    tests_left_out: int
    disagreement: str
    floor: list[Row]
    gallery: Gallery
    numbers: list[tuple[str, list[Row]]]
    axes: list[AxisSection] = field(default_factory=list)


def build_report(
    table: pd.DataFrame,
    samples: pd.DataFrame,
    exhibits: Iterable[Shown],
    manifest: Mapping[str, Any],
) -> str:
    """One HTML page that needs no network: verdict, limits, charts, gallery, numbers and how they were made.

    `table` has one row per attempted pair and measure, `samples` one per dataset, model and sample, `exhibits` the
    pictures of some samples, and `manifest` the study with versions and fingerprints; see `holdfast.table`. Whatever
    the manifest lacks is left out.

    >>> none = pd.DataFrame(columns=["dataset", "model", "sample", "error", "explainer", "evaluation", "measure"])
    >>> "Nothing can be concluded" in build_report(none, none, [], {})
    True
    """
    about = dict(manifest)
    shown = list(exhibits)
    cubes = arrange(table)
    found = words.findings(cubes)
    sections = [_section(f"s{i}", f, table, samples, shown, about) for i, f in enumerate(found)]
    others = [cube for cube in cubes if "fass" not in cube.values]
    sections += _silent_sections(sections, samples, others)
    sections = [_with_axes(s, others, table, samples, shown, about) for s in sections]
    across = across_models(axis for section in sections for axis in section.axes)
    study = about.get("study") or {}
    context = {
        "manifest": about,
        "study": study,
        "facts": _facts(sections, found, about),
        "sections": sections,
        "axis_numbers": {a.key: _number_rows(statistics.summary([a.cube])) for s in sections for a in s.axes},
        "number_columns": _NUMBER_COLUMNS,
        "parameters": json.dumps(study, indent=2, ensure_ascii=False, default=str),
        "across": across,
        "payload": embed(_payload(sections, across)),
        "plotly": Markup(get_plotlyjs().replace("</", "<\\/")) if any(s.charts or s.axes for s in sections) else "",
        "style": Markup(_template("style.css")),
        "script": Markup(_template("report.js")),
    }
    return _environment().get_template("report.html").render(context)


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


def _template(name: str) -> str:
    return files("holdfast.report").joinpath("templates", name).read_text(encoding="utf-8")


@lru_cache(maxsize=1)
def _environment() -> Environment:
    loader = DictLoader({"report.html": _template("report.html")})
    return Environment(autoescape=True, loader=loader, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True)


def _section(
    key: str,
    found: words.Findings,
    table: pd.DataFrame,
    samples: pd.DataFrame,
    shown: list[Shown],
    manifest: dict[str, Any],
) -> Section:
    here = (table["dataset"] == found.dataset) & (table["model"] == found.model)
    here &= table["evaluation"] == found.cube.evaluation
    own = samples[(samples["dataset"] == found.dataset) & (samples["model"] == found.model)]
    pictures = [
        item
        for item in shown
        if (item.dataset, item.model) == (found.dataset, found.model)
        and item.evaluation in ("", INPUTS, found.cube.evaluation)
    ]
    here &= table["sample"].isin({item.sample for item in pictures})
    tests = _test_rows(found)
    cells = found.cells()
    numbers = []
    for condition, level in found.cube.conditions:
        rows = found.summary[(found.summary["condition"] == condition) & (found.summary["level"] == level)]
        numbers.append((title(condition, level), _number_rows(rows)))
    floor = [
        Row([r.explainer, *(words.number(v) for v in (r.noise_floor, rows["mean"].mean()))])
        for r in words.records(cells[cells["noise_floor"].notna()].drop_duplicates("explainer"))
        for rows in [cells[cells["explainer"] == r.explainer]]
    ]
    return Section(
        key=key,
        dataset=found.dataset,
        model=found.model,
        samples=len(found.cube.samples),
        unreadable=len(words.unreadable(samples, found.dataset, found.model)),
        verdict=words.verdict(found),
        cautions=words.cautions(found, samples, manifest),
        charts=charts(found) + severity_charts(found),
        ranking=_ranking_rows(found),
        tests=tests[:MOST_TESTS],
        tests_left_out=max(0, len(tests) - MOST_TESTS),
        disagreement=_disagreement(found),
        floor=floor,
        gallery=gallery(pictures, table[here], own),
        numbers=numbers,
    )


def _with_axes(
    section: Section,
    cubes: list[Cube],
    table: pd.DataFrame,
    samples: pd.DataFrame,
    shown: list[Shown],
    manifest: dict[str, Any],
) -> Section:
    """The section with its other axes, whose first sentences join the verdict at the top."""
    axes = axis_sections(section.key, (section.dataset, section.model), cubes, table, samples, shown, manifest)
    said = [f"{axis.title}: {axis.lead[0]}" for axis in axes if axis.lead]
    verdict = [*said, *section.verdict] if said and section.verdict == [UNTESTED] else [*section.verdict, *said]
    return replace(section, axes=axes, verdict=verdict)


def _silent_sections(sections: list[Section], samples: pd.DataFrame, others: list[Cube]) -> list[Section]:
    """Datasets and models that were asked for but gave no stability score at all."""
    seen = {(s.dataset, s.model) for s in sections}
    silent: list[Section] = []
    asked = [*zip(samples["dataset"], samples["model"], strict=True), *((c.dataset, base_model(c)) for c in others)]
    for dataset, model in dict.fromkeys(asked):
        if (dataset, model) in seen:
            continue
        unread = words.unreadable(samples, dataset, model)
        items = [f"{name}: {error}" for name, error in zip(unread["sample"], unread["error"], strict=True)]
        limits = [words.Caution("Unreadable files", f"{len(unread)} could not be read.", items)] if items else []
        own = samples[(samples["dataset"] == dataset) & (samples["model"] == model)]
        judged = any((cube.dataset, base_model(cube)) == (dataset, model) for cube in others)
        said = [UNTESTED if judged else "Nothing can be concluded: no pair was attempted."]
        empty = Gallery({}, [], {}, 0)
        key, read = f"s{len(sections) + len(silent)}", len(own) - len(unread)
        silent.append(
            Section(key, str(dataset), str(model), read, len(unread), said, limits, [], [], [], 0, "", [], empty, [])
        )
    return silent


def _facts(
    sections: list[Section], found: list[words.Findings], manifest: Mapping[str, Any]
) -> list[tuple[str, list[str]]]:
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
    explainers = dict.fromkeys(e for f in found for e in f.cube.explainers)
    conditions = list(dict.fromkeys(title(*c) for f in found for c in f.cube.conditions))
    attempted = sum(int((f.cube.status >= 0).sum()) for f in found)
    facts = [("Model" if len(models) == 1 else "Models", [mark("models", m) for m in models])]
    facts += [("Data", list(data.values())), ("Run", [created] if created else [])]
    facts += [("Pairs attempted", [f"{attempted:,}".replace(",", "\u202f")])]
    facts += [("Explainers", [_some(list(explainers))] if explainers else [])]
    facts += [("Perturbations", [_some(conditions)] if conditions else [])]
    return [(name, values) for name, values in facts if values]


def _some(names: list[str], most: int = 14) -> str:
    more = len(names) - most
    return ", ".join(names[:most]) + (f" and {more} more" if more > 0 else "")


def _ranking_rows(found: words.Findings) -> list[Row]:
    rows = []
    for r in words.records(found.ranking):
        rank = words.number(r.rank, 0)
        spread = f"{words.number(r.rank_low, 0)} to {words.number(r.rank_high, 0)}"
        first = f"{100 * r.p_best:.0f} %" if r.p_best == r.p_best else "–"
        score = words.with_interval(r.score, r.low, r.high)
        raw = words.with_interval(r.raw, r.raw_low, r.raw_high)
        name = f"{r.explainer} (control)" if r.control else str(r.explainer)
        rows.append(Row([name, rank, spread, first, score, raw, str(r.samples)], bool(r.control)))
    return rows


def _test_rows(found: words.Findings) -> list[Row]:
    """Pairs in the order of the ranking, the better one first."""
    order = {name: i for i, name in enumerate(found.ranking["explainer"])}
    rows = []
    for t in words.records(found.tests):
        a, b, gap = str(t.a), str(t.b), (t.difference, t.low, t.high)
        if order[a] > order[b]:
            a, b, gap = b, a, (-t.difference, -t.high, -t.low)
        answer = "–" if t.n < 1 else "yes" if t.significant else "no"
        p = words.p_value(t.p_holm).removeprefix("p ").removeprefix("= ") if t.n else "–"
        rows.append((order[a], order[b], Row([f"{a} − {b}", words.with_interval(*gap), p, answer, str(t.n)])))
    return [row for _, _, row in sorted(rows, key=lambda item: item[:2])]


def _disagreement(found: words.Findings) -> str:
    if found.disagreement.empty or not found.disagreement["compared"].iloc[0]:
        return ""
    row = found.disagreement.iloc[0]
    parts = [
        f"{COMPONENT_NAMES[a]} and {COMPONENT_NAMES[b]} {100 * row[f'{a}_{b}']:.0f} %"
        for a, b in (("ssim", "spearman"), ("ssim", "jaccard"), ("spearman", "jaccard"))
    ]
    text = f"The three components disagree on which of two methods is better in {row['count']} of {row['compared']}"
    return f"{text} comparisons ({100 * row['share']:.0f} %): {words.listing(parts)}."


_NUMBER_COLUMNS = ["Explainer", "Measure", "Raw", "Chance", "Calibrated", "Aligned", "Aligned + calibrated"]
_NUMBER_COLUMNS += ["Noise floor", "Retained", "Flipped", "Undefined"]


def _number_rows(summary: pd.DataFrame) -> list[Row]:
    rows = []
    for r in words.records(summary):
        moved = words.with_interval(r.aligned_calibrated, r.aligned_calibrated_low, r.aligned_calibrated_high)
        calibrated = words.with_interval(r.calibrated, r.calibrated_low, r.calibrated_high)
        cells = [
            str(r.explainer),
            COMPONENT_NAMES.get(r.measure, r.measure),
            words.with_interval(r.mean, r.low, r.high),
        ]
        cells += [words.number(r.chance), calibrated if r.calibrated == r.calibrated else "–", words.number(r.aligned)]
        cells += [moved if r.aligned_calibrated == r.aligned_calibrated else "–", words.number(r.noise_floor)]
        share = words.with_interval(100 * r.retention, 100 * r.retention_low, 100 * r.retention_high, 0)
        cells += [f"{r.retained}/{r.attempted}, {share} %", str(r.flipped), str(r.undefined)]
        rows.append(Row(cells, statistics.is_control(str(r.explainer))))
    return rows


def _payload(sections: list[Section], across: list[Chart]) -> dict[str, Any]:
    """What the page's script needs: the charts' views and the pictures, by element id."""
    drawn: dict[str, Any] = {c.key: [json.loads(figure.to_json()) for _, figure in c.views] for c in across}
    for section in sections:
        for key, charts_ in ((section.key, section.charts), *((a.key, a.charts) for a in section.axes)):
            for chart in charts_:
                drawn[f"{key}-{chart.key}"] = [json.loads(figure.to_json()) for _, figure in chart.views]
    pictures = {f"{s.key}-{key}": uri for s in sections for key, uri in s.gallery.pictures.items()}
    return {"charts": drawn, "pictures": pictures}

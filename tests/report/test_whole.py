"""Two whole runs with every axis: their page, terminal, figures and comparison are sound and show the numbers of the table."""

from __future__ import annotations

import base64
import io
import json
import math
import re
from functools import lru_cache
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
from PIL import Image

import heatproof
from heatproof.report import comparison as room
from heatproof.report.figures import File, figures_of_run, write_all, write_figures
from heatproof.report.page import build_report
from heatproof.report.proof_sheet import proof_sheets
from heatproof.report.sample import sample_text
from heatproof.report.show import overview
from heatproof.report.terminal import styled_summary
from heatproof.results.reports import findings_of
from heatproof.runs.gallery import read_gallery
from heatproof.runs.manifest import Manifest
from heatproof.runs.results import axis_results
from heatproof.runs.run import Run
from support.pages import Page
from support.whole import BASE, MOVED

EVALUATIONS = (
    "stability",
    "certificate",
    "smoothing",
    "symmetry",
    "faithfulness",
    "dependence",
    "localisation",
    "agreement",
)


@lru_cache(maxsize=2)
def run(path: Path = BASE) -> Run:
    return heatproof.read(path)


@lru_cache(maxsize=1)
def rows() -> Any:
    return run().in_study_order()


@lru_cache(maxsize=1)
def pictures() -> Any:
    return read_gallery(run().path)


def manifest(evaluation: str) -> Manifest:
    whole = run().manifest
    one = {evaluation: whole.study.evaluation(evaluation)}
    study = whole.study.model_copy(update={"evaluations": one})
    return whole.model_copy(update={"study": study})


def drawings_are_sound(text: str) -> list[ElementTree.Element]:
    """Every SVG of a text is well-formed and has a number wherever it needs one."""
    drawings = [
        ElementTree.fromstring(svg) for svg in re.findall(r"<svg.*?</svg>", text, re.DOTALL)
    ]
    for drawing in drawings:
        for element in drawing.iter():
            for name, value in element.attrib.items():
                if not name.startswith(("data-", "aria")):
                    assert not re.search(r"\b(nan|inf|None)\b", value), (element.tag, name, value)
    return drawings


@pytest.mark.parametrize("evaluation", EVALUATIONS)
def test_the_page_of_an_axis_shows_the_numbers_of_the_table(evaluation: str) -> None:
    table = rows()[rows()["evaluation"] == evaluation]
    shown = [item for item in pictures() if item.evaluation in ("inputs", evaluation)]
    html = build_report(
        axis_results(table, run().samples(), shown, manifest(evaluation)),
        run().samples(),
        manifest(evaluation),
    )
    page = Page(html)
    drawings = drawings_are_sound(html)
    assert len(drawings) > 1
    judged = axis_results(table, run().samples(), shown, manifest(evaluation))
    for proof in proof_sheets(judged, run().samples()):
        text = " ".join(page.words)
        assert all(look.name in text for look in proof.looks.values()), "every method is named"
        drawn = [
            (a.get("data-method"), float(a["data-value"] or "nan"))
            for tag, a in page.tags
            if tag == "g" and a.get("class") == "mark" and a.get("data-value")
        ]
        for column in proof.columns:
            for mark in column.marks.values():
                found = any(
                    method == mark.method and math.isclose(value, mark.value, abs_tol=1e-5)
                    for method, value in drawn
                )
                assert found or not math.isfinite(mark.value), (mark.method, mark.value)
    used = [str(a["src"]) for tag, a in page.tags if tag == "img" and a.get("src")]
    for uri in [*used, *page.payload["pictures"].values()]:
        if uri.startswith("data:image/webp"):
            with Image.open(io.BytesIO(base64.b64decode(uri.partition(",")[2]))) as image:
                image.load()  # fails where the file is damaged


@pytest.mark.parametrize("evaluation", EVALUATIONS)
def test_a_terminal_gets_the_axis_in_lines_that_fit(evaluation: str) -> None:
    table = rows()[rows()["evaluation"] == evaluation]
    samples, about = run().samples(), manifest(evaluation)
    lines = [
        line
        for line, _ in styled_summary(axis_results(table, samples, (), about), samples, about, 72)
    ]
    judged = axis_results(table, samples, (), about)
    assert max(map(len, lines)) <= 72
    assert any(judged[0].axis.title.lower() in line.lower() for line in lines)
    for one in judged:
        for finding in findings_of(one):
            assert set(finding.explainers) <= set(table["explainer"])
            assert finding.severity in ("problem", "warning", "note")


def test_the_overview_lists_the_worst_samples_of_the_methods_asked_for() -> None:
    lines = [line for line, _ in overview(run(MOVED), "lime*", 2, 60)]
    named = {name for line in lines for name in re.findall(r"^ +(set/\d\d\.png)", line)}
    assert len(named) == 2 and named <= set(run(MOVED).samples()["sample"])


def test_the_story_of_a_sample_has_its_prediction_and_every_method_asked_for() -> None:
    lines = [line for line, _ in sample_text(run(MOVED), "set/07.png", "*i*", 70)]
    facts = run(MOVED).samples().set_index("sample").loc["set/07.png"]
    text = "\n".join(lines)
    assert facts.predicted_name in text and f"{facts.probability:.2f}" in text
    assert "integrated_gradients" in text and "lime" in text and "grad_cam" not in text


def test_figures_and_tables_of_the_papers_are_written(tmp_path: Path) -> None:
    figures = figures_of_run(run())
    written = write_figures(figures, run().manifest, tmp_path, ["svg"], 3.25)
    assert {file.item for file in written.files} == {figure.name for figure in figures}
    assert {"proof-sheet", "symmetry-boxes", "symmetry-scores"} <= {f.name for f in figures}
    for file in written.files:
        assert_is_sound(file)


def assert_is_sound(file: File) -> None:
    assert file.caption
    text = file.path.read_text(encoding="utf-8")
    if file.path.suffix == ".svg":
        assert len(drawings_are_sound(text)) == 1
    else:
        assert text.count(r"\begin{tabular}") == text.count(r"\end{tabular}") >= 1


def test_figures_go_where_they_are_told(tmp_path: Path) -> None:
    write_all(MOVED, tmp_path / "here", ["svg", "svg"], ["stability-map"], "column")
    names = sorted(path.name for path in (tmp_path / "here").iterdir())
    assert names == ["index.json", "stability-map.svg", "stability-map.tex"]


def test_a_comparison_of_two_models_has_a_sound_page_and_names_every_method(tmp_path: Path) -> None:
    found = room.compare(BASE, MOVED, only_shared=True)
    assert set(found.differences["evaluation"]) == {"stability", "faithfulness"}
    known = found.differences.dropna(subset=["difference"])
    assert len(known)
    html = found.page(tmp_path / "page.html").read_text(encoding="utf-8")
    assert drawings_are_sound(html)
    text = " ".join(Page(html).words)
    assert all(name in text for name in ("Grad-CAM", "Integrated Gradients", "LIME"))


def test_a_leaderboard_has_the_scores_of_the_ranking(tmp_path: Path) -> None:
    data, html = room.write_leaderboard([BASE, MOVED], tmp_path)
    boards = json.loads(data.read_text(encoding="utf-8"))["boards"]
    ranking = run().ranking()
    first = ranking[(ranking["evaluation"] == "stability") & ~ranking["control"].astype(bool)]
    told = json.dumps([board for board in boards if board["axis"] == "stability"])
    for score in first["score"]:
        assert any(
            math.isclose(float(n), score, abs_tol=1e-4) for n in re.findall(r"-?\d\.\d+", told)
        )
    drawings_are_sound(html.read_text(encoding="utf-8"))

"""All that is said and drawn of two whole runs, axis by axis, as it was when somebody looked at it."""

from __future__ import annotations

import base64
import io
import json
import re
from collections import defaultdict
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

import heatproof
from heatproof.axes import judge
from heatproof.axes.contract import findings_of
from heatproof.axes.material import Material
from heatproof.drawing.pieces import Item
from heatproof.report import build_report
from heatproof.report import comparison as room
from heatproof.report.figures import items, write_all, write_items
from heatproof.report.show import overview
from heatproof.report.story import story
from heatproof.report.terminal import styled_summary
from heatproof.runs.pictures import read_exhibits
from heatproof.runs.run import Run
from support.pages import Page
from support.recorded import recorded
from support.whole import BASE, MOVED

EVALUATIONS = (
    "stability",
    "certificate",
    "smoothing",
    "symmetry",
    "faithfulness",
    "dependence",
    "localisation",
)
EVALUATIONS += ("agreement",)
SAID = ("aria-label", "title", "alt", "id", "href", "data-said", "data-name")
DRAWN = re.compile(r"-?\d+(?:\.\d+)?")


@lru_cache(maxsize=2)
def run(path: Path = BASE) -> Run:
    return heatproof.read(path)


@lru_cache(maxsize=2)
def rows(path: Path = BASE) -> Any:
    return run(path).in_study_order()


@lru_cache(maxsize=1)
def pictures() -> Any:
    return read_exhibits(run().path)


def manifest(evaluation: str) -> dict[str, Any]:
    study = run().manifest["study"]
    asked = {name: facts for name, facts in study["evaluations"].items() if name == evaluation}
    return {
        **run().manifest,
        "study": {**study, "evaluations": asked},
        "created": "2026-11-15T19:40:00+00:00",
    }


def geometry(svg: str) -> list[str]:
    """How many elements of each kind a drawing has, and the sums of the numbers in their attributes."""
    sums: dict[str, list[float]] = defaultdict(list)
    for tag, attributes in Page(svg).tags:
        for name, value in attributes.items():
            found = [float(number) for number in DRAWN.findall(value or "")]
            if found and not name.startswith(
                ("data-", "aria", "id", "href", "clip", "class", "style")
            ):
                sums[f"{tag} {name}"] += found
    return [
        f"{key}: {len(found)}, {sum(found):.1f}, {sum(map(abs, np.diff(found))):.1f}"
        for key, found in sums.items()
    ]


def marks(page: Page) -> list[str]:
    """The numbers and names that every mark of a chart carries."""
    found = []
    for tag, attributes in page.tags:
        if tag == "g" and attributes.get("class") == "mark":
            told = {
                key.removeprefix("data-"): value
                for key, value in attributes.items()
                if key.startswith("data-")
            }
            found.append(", ".join(f"{key} {_short(value)}" for key, value in told.items()))
    return found


def _short(value: str | None) -> str:
    try:
        return f"{float(value or ''):.3f}"
    except ValueError:
        return str(value)


def seen(uri: str) -> list[float]:
    """The size of a picture and its mean colours, of the upper and of the lower half."""
    with Image.open(io.BytesIO(base64.b64decode(uri.partition(",")[2]))) as image:
        pixels = np.asarray(image.convert("RGBA"), dtype=float)
    height = len(pixels) // 2
    return [
        *pixels.shape[:2],
        *pixels[:height].mean((0, 1)).round(),
        *pixels[height:].mean((0, 1)).round(),
    ]


@pytest.mark.parametrize("evaluation", EVALUATIONS)
def test_what_the_page_of_an_axis_says_and_draws(evaluation: str) -> None:
    table = rows()[rows()["evaluation"] == evaluation]
    shown = [item for item in pictures() if item.evaluation in ("inputs", evaluation)]
    html = build_report(table, run().samples(), shown, manifest(evaluation))
    page = Page(html)
    words = [re.sub(r"\s+", " ", word) for word in page.words if word]
    recorded(f"report/{evaluation}/words", words[: words.index("Cite")])
    recorded(f"report/{evaluation}/marks", marks(page)[:: 3 if evaluation == "faithfulness" else 1])
    said = [
        f"{tag} {name}: {a[name]}"
        for tag, a in page.tags
        for name in SAID
        if a.get(name) and tag not in ("img", "g")
    ]
    recorded(f"report/{evaluation}/attributes", said)
    drawings = re.findall(r"<svg.*?</svg>", html, re.DOTALL)
    recorded(f"report/{evaluation}/geometry", [geometry(svg) for svg in drawings], rtol=1e-3)
    payload = page.payload
    rest = {name: own[::17] for name, own in payload["numbers"].items()}
    lines = {name: [" | ".join(map(str, row)) for row in own] for name, own in rest.items()}
    keys = {key: i for i, key in enumerate(payload["pictures"])}
    sheets = re.sub(
        r'"([0-9a-z]+)"', lambda m: str(keys.get(m[1], m[0])), json.dumps(payload["sheets"])
    )
    recorded(f"report/{evaluation}/numbers", [payload["number_columns"], lines, sheets])
    cards = [
        str(own["src"])
        for tag, own in page.tags
        if tag == "img" and str(own.get("src")).startswith("data:image/")
    ]
    recorded(
        f"report/{evaluation}/cards",
        [seen(uri) for uri in cards if "svg" not in uri[:20]][:24],
        atol=4,
        rtol=0.05,
    )
    recorded(
        f"report/{evaluation}/pictures",
        [seen(uri) for uri in payload["pictures"].values()],
        atol=4,
        rtol=0.05,
    )


@pytest.mark.parametrize("evaluation", EVALUATIONS)
def test_what_a_terminal_says_of_an_axis(evaluation: str) -> None:
    table = rows()[rows()["evaluation"] == evaluation]
    samples, about = run().samples(), manifest(evaluation)
    recorded(
        f"terminal/{evaluation}",
        [f"{line}|{style}" for line, style in styled_summary(table, samples, about, 72)],
    )
    found = [
        finding for judged in judge(table, samples, (), about) for finding in findings_of(judged)
    ]
    recorded(f"terminal/{evaluation}-findings", found)


def without_place(text: str) -> str:
    """A text without the directory that a zip was unpacked to."""
    return re.sub(r"/[^ \"]*heatproof-[^ ,\"]*", "RUN", text)


def told(lines: list[tuple[str, str]]) -> list[str]:
    return [f"{without_place(line)}|{style}" for line, style in lines]


def test_what_a_run_holds_and_its_worst_samples() -> None:
    text = " ".join(without_place(line) for line, _ in overview(run(MOVED), worst=3))
    moved = text.replace(run(MOVED).manifest["created"][:10], "DATE").split()
    recorded(
        "terminal/overview", " ".join(moved).partition("by heatproof")[2]
    )  # before it is a path
    recorded("terminal/overview-lime", told(overview(run(MOVED), "lime*", 2, 60))[-8:])


def test_the_story_of_a_sample() -> None:
    lines = told(story(run(MOVED), "set/07.png", "*i*", 70))
    recorded("terminal/story", [line for i, line in enumerate(lines) if i < 40 or i % 7 == 0])


@lru_cache(maxsize=1)
def material() -> Material:
    return Material(
        judge(rows(), run().samples(), pictures(), run().manifest), run().manifest, run().samples()
    )


@pytest.mark.parametrize("item", items(), ids=lambda item: item.name)
def test_a_figure_or_table_of_the_papers(item: Item, tmp_path: Path) -> None:
    written = write_items(material(), [item], tmp_path, ["svg"], 3.25)
    files: list[Any] = [[file.path.name, file.subject, file.caption] for file in written.files[:3]]
    for file in written.files[:2]:
        text = file.path.read_text()
        files += (
            [geometry(text), Page(text).words] if file.path.suffix == ".svg" else text.splitlines()
        )
    index = json.loads(written.index.read_text())
    recorded(f"figures/{item.name}", [files, written.skipped, [*index]], rtol=1e-3)


def test_figures_go_beside_the_run_or_where_they_are_told(tmp_path: Path) -> None:
    write_all(MOVED, tmp_path / "here", ["svg", "svg"], ["stability-map"], "column")
    assert [path.name for path in sorted((tmp_path / "here").iterdir())] == [
        "index.json",
        "stability-map.svg",
    ]


@lru_cache(maxsize=1)
def compared() -> room.Comparison:
    return room.compare(BASE, MOVED, only_shared=True)


def test_a_comparison_in_words_and_numbers() -> None:
    found = compared()
    recorded("comparison/text", [without_place(line) for line in found.text().splitlines()])
    lines = found.differences.iloc[::11].to_dict("records")
    recorded(
        "comparison/differences",
        [" | ".join(f"{k} {_short(str(v))}" for k, v in line.items()) for line in lines],
    )
    matched = [[e.names, e.axis.name, e.order, e.conditions] for e in found.common.evaluations]
    recorded("comparison/common", [found.subject, found.left_out, matched])


def test_a_comparison_on_its_page(tmp_path: Path) -> None:
    html = compared().page(tmp_path / "page.html").read_text()
    page = Page(html)
    words = [without_place(re.sub(r"\s+", " ", word)) for word in page.words if word]
    recorded("comparison/words", words[:300] + words[300::9])
    recorded("comparison/marks", marks(page)[::2])
    recorded(
        "comparison/geometry",
        [geometry(svg) for svg in re.findall(r"<svg.*?</svg>", html, re.DOTALL)],
        rtol=1e-3,
    )


def test_a_leaderboard_and_its_page(tmp_path: Path) -> None:
    data, html = (path.read_text() for path in room.write_leaderboard([BASE, MOVED], tmp_path))
    found = json.loads(data)
    text = json.dumps(
        [found["boards"][0], found["boards"][-1], *found["runs"][:1]], indent=0, ensure_ascii=False
    )
    text = re.sub(r"\d{4}-\d\d-\d\dT[^\"]*", "DATE", text)
    recorded("comparison/boards", [without_place(line) for line in text.splitlines()])
    page = Page(html)
    words = [without_place(re.sub(r"\s+", " ", word)) for word in page.words if word]
    recorded("comparison/leaderboard", [word for word in words if "2026" not in word][::2])
    recorded("comparison/leaderboard-marks", marks(page)[::3])

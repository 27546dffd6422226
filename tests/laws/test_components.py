"""Every kind of component renders on page, figure, LaTeX and terminal, from much and from little."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch

import heatproof
from heatproof.axes import BY_NAME
from heatproof.evaluation import GalleryItem
from heatproof.report.canvas import flowed
from heatproof.report.chart_tables import MOST_ROWS
from heatproof.report.components import (
    Component,
    CurveChart,
    Estimate,
    Gallery,
    Matrix,
    Scatter,
    ScoreChart,
    Table,
    Tile,
)
from heatproof.report.draw import Looks, plots_of, shown_name
from heatproof.report.figures import write
from heatproof.report.latex import escape, render, tabular_of
from heatproof.report.notebook import ShownComponent
from heatproof.report.page_parts import Chart, Panel, part_of
from heatproof.report.terminal import component_text
from heatproof.results.names import looks
from heatproof.results.reports import components_across, components_of
from support import runs_with_findings as real
from support.latex import assert_compiles
from support.laws import AXES, retrained
from support.small import model, pictures

METHODS = ("lime", "grad_cam", "random")
LOOKS = looks(METHODS, {"random"}, {})
NAMES = [LOOKS[name].name for name in METHODS]
HEAD: dict[str, Any] = {"key": "key", "title": "Title", "caption": "Caption."}


def scores() -> pd.DataFrame:
    """Three methods, neither in the order of their scores nor of their names, in two panels."""
    first = pd.DataFrame(
        {
            "explainer": METHODS,
            "score": [0.3, 0.6, 0.1],
            "low": [0.2, 0.5, -0.1],
            "high": [0.4, 0.7, 0.2],
            "chance": [0.0, 0.0, 0.0],
            "above_chance": [True, True, False],
            "panel": "rotation",
            "note": "12 of 13",
        }
    )
    return pd.concat([first, first.assign(panel="noise", chance=[0.1, 0.2, 0.3])])


def curves() -> pd.DataFrame:
    frames = [
        scores().assign(x=x, curve=curve) for x in (0.2, 0.5, 0.9) for curve in ("MoRF", "LeRF")
    ]
    return pd.concat(frames, ignore_index=True)


def cells() -> pd.DataFrame:
    cells = scores().rename(columns={"explainer": "row", "panel": "column"})
    return cells.assign(row_group="photos", column_group="FASS", best=cells["score"] > 0.5)


def points() -> pd.DataFrame:
    frame = scores().rename(columns={"score": "y", "low": "y_low", "high": "y_high"})
    on_frontier = frame["explainer"] == "grad_cam"
    return frame.assign(x=frame["y"] / 2, x_low=0.0, x_high=0.5, on_frontier=on_frontier)


def stored(explainer: str, sample: str) -> GalleryItem:
    image = np.full((16, 16, 3), 120, np.uint8)
    ramp = np.linspace(-1, 1, 256, dtype=np.float32).reshape(16, 16)
    return GalleryItem("d", "m", explainer, "clean", 0.0, sample, image, ramp)


def tiles() -> list[Tile]:
    views = ("map", "input", "input_and_mask", "region")
    return [
        Tile(stored(explainer, "cat"), "a title", view, note="0.5", score=0.25)
        for explainer in METHODS
        for view in views
    ]


COMPONENTS: dict[str, Callable[[pd.DataFrame | None], Component]] = {
    "scores": lambda frame: ScoreChart(
        **HEAD, scores=scores() if frame is None else frame, limits=(0.0, 1.0), guides={"half": 0.5}
    ),
    "scores on a logarithmic axis": lambda frame: ScoreChart(
        **HEAD, scores=scores() if frame is None else frame, log_x=True, percent=True
    ),
    "a plot per line": lambda frame: CurveChart(
        **HEAD, points=curves() if frame is None else frame, x_label="share", y_label="accuracy"
    ),
    "all lines in one plot": lambda frame: CurveChart(
        **HEAD,
        points=curves() if frame is None else frame,
        x_label="share",
        y_label="accuracy",
        plot_per_line=False,
        references=pd.DataFrame({"curve": "random", "x": [0.2, 0.9], "score": [0.5, 0.1]}),
        guides={"guess": 0.5},
        diagonal=True,
    ),
    "a heat map": lambda frame: Matrix(**HEAD, scores=cells() if frame is None else frame),
    "a plain matrix": lambda frame: Matrix(
        **HEAD, scores=cells() if frame is None else frame, shaded=False, percent=True
    ),
    "named points": lambda frame: Scatter(
        **HEAD,
        points=points() if frame is None else frame,
        x_label="x",
        y_label="y",
        reverse_x=True,
    ),
    "samples": lambda frame: Scatter(
        **HEAD,
        points=points() if frame is None else frame,
        x_label="x",
        y_label="y",
        is_sample=True,
        panel_estimates={"rotation": Estimate(0.5)},
        estimate_name="ρ",
        diagonal=True,
        limits=(0.0, 1.0),
    ),
    "a table": lambda frame: Table(
        **HEAD,
        rows=scores() if frame is None else frame,
        columns={"explainer": "Method", "score": "Score", "note": "Pairs"},
        group="panel",
    ),
}
FRAMES = {
    "scores": scores,
    "scores on a logarithmic axis": scores,
    "a plot per line": curves,
    "all lines in one plot": curves,
    "a heat map": cells,
    "a plain matrix": cells,
    "named points": points,
    "samples": points,
    "a table": scores,
}
ENDS = ["low", "high", "x_low", "x_high", "y_low", "y_high"]
OPTIONAL = [*ENDS, "chance", "above_chance", "note", "best", "on_frontier"]


def rendered(component: Component, looks: Looks = LOOKS) -> tuple[Chart | Panel | None, str, str]:
    """Return the part of a page, the LaTeX and the text of a component, after writing its figure as SVG, PDF and PNG."""
    for sheet in flowed(plots_of(component, looks), 5.0):
        drawing = sheet.svg("alt")
        assert not re.search(r'="[^"]*\b(nan|inf)\b', drawing)
        assert sheet.encoded("pdf", "title", 5.0).startswith(b"%PDF")
        assert sheet.encoded("png", "title", 5.0).startswith(b"\x89PNG")
    pictures = ["a.5-picture.pdf"] if isinstance(component, Gallery) else []
    content = tabular_of(component, looks, pictures)
    latex = ""
    if content is not None:
        latex = render(content, "Caption.", "tab:x", [], 6.75)
        assert_compiles(latex)
    assert not re.search(r"\bnan\b", latex)
    text = component_text(component, looks, 80)
    assert not re.search(r"\bnan\b", text)
    assert all(len(line) <= 80 for line in text.splitlines())
    part = part_of(component, looks)
    # What is empty is left out of every view.
    assert bool(latex) == (part is not None), component.title
    return part, latex, text


# ---- the facts of a component ----------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Fact:
    """A number that is drawn, with the words that stand in its line."""

    words: tuple[str, ...]
    value: float


SCORE = ("score", "low", "high")


def drawn_frames(
    component: Component, is_paper: bool
) -> list[tuple[pd.DataFrame, str, Sequence[str]]]:
    """Return frames whose rows are drawn: with the column that names a row, and those of its numbers.

    Curves have a row per x on paper, and a row per curve in a terminal.
    """
    if isinstance(component, ScoreChart):
        frame = component.scores
        return [(frame, component.row, SCORE), (frame, component.row, ("chance",))]
    if isinstance(component, Matrix):
        return [(component.scores, "row", SCORE)]
    if isinstance(component, CurveChart):
        points = component.points[component.points["score"].notna()]
        points = points[points["x"] > 0] if component.log_x else points
        frames = [(points, "x" if is_paper else component.line, SCORE)]
        if component.references is not None:
            frames.append((component.references, "x" if is_paper else "curve", SCORE))
        return frames
    if isinstance(component, Scatter):
        points = component.points.dropna(subset=["x", "y"])
        points = points[points["x"] > 0] if component.log_x else points
        name = "" if component.is_sample or "explainer" not in points else "explainer"
        return [(points, name, ("x", "x_low", "x_high")), (points, name, ("y", "y_low", "y_high"))]
    return []


def facts(component: Component, looks: Looks, is_paper: bool) -> list[Fact]:
    """Return every number that the figure of a component draws; on paper those of its intervals too."""
    scale = 100 if getattr(component, "percent", False) else 1
    drawn: list[Fact] = []
    for frame, name, columns in drawn_frames(component, is_paper):
        for row in frame.to_dict("records"):
            words = (shown_name(row[name], looks),) if name else ()
            estimate, *interval = (float(row.get(column, math.nan)) for column in columns)
            # An interval is written where it has both ends.
            has_interval = is_paper and all(map(math.isfinite, interval))
            numbers = [estimate, *interval] if has_interval else [estimate]
            drawn += [Fact(words, scale * value) for value in numbers if math.isfinite(value)]
    if isinstance(component, Gallery):
        for tile in component.tiles:
            words = (shown_name(tile.item.explainer, looks), tile.item.sample)
            if tile.score is not None:
                drawn.append(Fact(words, tile.score))
    return drawn


def is_thinned(component: Component) -> bool:
    """Whether a panel has more rows than a table of it shows."""
    if isinstance(component, CurveChart):
        points = component.points.assign(panel=component.points.get("panel", ""))
        return bool(points.groupby("panel", observed=True)["x"].nunique().max() > MOST_ROWS)
    if isinstance(component, Scatter) and component.is_sample:
        points = component.points.assign(panel=component.points.get("panel", ""))
        return bool(points.groupby("panel", observed=True).size().max() > MOST_ROWS)
    return False


NUMBER = re.compile(r"-?\d+(?:\.\d+)?(?:e[-+]?\d+)?")


def states(line: str, fact: Fact) -> bool:
    """Whether a line has the words of a fact, and its number to the places that are written."""
    if not all(word in line or escape(word) in line for word in fact.words):
        return False
    for text in NUMBER.findall(line.replace("−", "-").replace("$-$", "-")):
        places = len(text.partition(".")[2])
        if abs(float(text) - fact.value) <= 0.5001 * 10**-places:
            return True
    return False


def assert_states(view: str, drawn: Sequence[Fact]) -> None:
    lines = view.splitlines()
    for fact in drawn:
        assert any(states(line, fact) for line in lines), (fact, view)


@pytest.mark.parametrize("kind", COMPONENTS)
def test_a_component_renders_in_every_view(kind: str) -> None:
    component = COMPONENTS[kind](None)
    part, latex, text = rendered(component)
    assert part is not None and part.title == "Title" and part.key == "key"
    assert isinstance(part, Panel) or part.plots
    is_cloud = isinstance(component, Scatter) and component.is_sample
    if not is_cloud:
        assert all(name in latex for name in NAMES)
        assert all(name in text for name in NAMES), text
    assert_states(latex, facts(component, LOOKS, is_paper=True))
    assert_states(text, facts(component, LOOKS, is_paper=False))


def test_every_kind_of_component_is_tried() -> None:
    tried = {type(make(None)) for make in COMPONENTS.values()} | {Gallery}
    assert tried == set(Component.__subclasses__())


def localised() -> heatproof.Run:
    """A run of localisation, whose samples have regions."""
    images, labels = pictures(6)
    regions = {f"{i:04}": torch.eye(32) + (i == torch.arange(32)) for i in range(6)}
    data = heatproof.open_data((images, labels), regions=regions)
    return heatproof.evaluate(model(), data, ["saliency", "grad_cam", "random"], "localisation")


def quick_run(axis: str) -> heatproof.Run:
    """A small run of a test that has no other run here, such as a new one."""
    return heatproof.evaluate(model(), pictures(6), ["saliency", "random"], [{axis: AXES[axis]}])


REAL = {
    "stable or not": "stability",
    "faithful or not": "faithfulness",
    "undone predictions": "certificate",
    "costly smoothing": "smoothing",
    "blind or not": "dependence",
    "disagreeing": "agreement",
    "broken symmetry": "symmetry",
}
"""A small run of every test."""
MAKE: dict[str, Callable[[], heatproof.Run]] = {name: partial(real.run_of, name) for name in REAL}
MAKE |= {"localisation": localised, "retraining": partial(retrained, 6)}
MAKE |= {axis: partial(quick_run, axis) for axis in AXES if axis not in {*REAL.values(), *MAKE}}
AXES_TRIED: set[str] = set()


@pytest.mark.parametrize("name", MAKE)
def test_the_components_of_a_real_run_render_in_every_view(name: str) -> None:
    results = MAKE[name]().results(gallery=True)
    for result in results:
        AXES_TRIED.add(result.axis.name)
        parts = []
        for component in components_of(result):
            part, latex, text = rendered(component, result.looks)
            parts.append(part)
            if part is not None and not is_thinned(component):
                assert_states(latex, facts(component, result.looks, is_paper=True))
                assert_states(text, facts(component, result.looks, is_paper=False))
        assert any(parts)
    looks_of_all = {key: look for result in results for key, look in result.looks.items()}
    for component in components_across(results):
        rendered(component, looks_of_all)


def test_every_axis_is_tried() -> None:
    if not AXES_TRIED:
        pytest.skip("the runs were not chosen")
    assert set(BY_NAME) - AXES_TRIED == set()


def test_long_curves_are_thinned_to_a_readable_number_of_rows() -> None:
    xs = np.linspace(0, 1, 101)
    points = pd.DataFrame({"explainer": "lime", "x": xs, "score": xs**2})
    chart = CurveChart(**HEAD, points=points, x_label="share", y_label="accuracy")
    _, latex, text = rendered(chart)
    rows = [line.split()[0] for line in latex.splitlines() if re.match(r"[01](\.\d+)? & ", line)]
    # A wide table is set in blocks, each with its line of heads.
    head_lines = [line for line in text.splitlines() if line.strip().startswith("share")]
    heads = [head for line in head_lines for head in line.split()[1:]]
    for values_of_x in (rows, heads):
        assert len(values_of_x) == MOST_ROWS
        assert (values_of_x[0], values_of_x[-1]) == ("0", "1")
    for view in (latex, text):
        assert "101" in view, "the reader is told that rows are left out"


def test_curves_that_begin_later_keep_their_place_among_the_columns() -> None:
    late = pd.DataFrame({"explainer": "grad_cam", "x": [0.5, 0.9], "score": [0.25, 0.35]})
    early = pd.DataFrame({"explainer": "lime", "x": [0.2, 0.5], "score": [0.45, 0.55]})
    points = pd.concat([late, early])
    chart = CurveChart(**HEAD, points=points, x_label="share", y_label="accuracy")
    _, latex, text = rendered(chart)
    assert re.search(r"share +0.2 +0.5 +0.9\n +Grad-CAM +– +0.25 +0.35\n +LIME", text)
    assert "share & Grad-CAM & LIME" in latex and "0.2 & -- & 0.45" in latex


@pytest.mark.parametrize("kind", COMPONENTS)
def test_a_component_renders_one_row(kind: str) -> None:
    part, _, _ = rendered(COMPONENTS[kind](FRAMES[kind]().head(1)))
    assert part is not None


@pytest.mark.parametrize("kind", COMPONENTS)
def test_a_component_renders_without_intervals(kind: str) -> None:
    frame = FRAMES[kind]()
    without_ends = frame.assign(**{name: math.nan for name in ENDS if name in frame})
    bare = frame.drop(columns=[name for name in OPTIONAL if name in frame and name != "note"])
    for less in (without_ends, bare):
        part, _, _ = rendered(COMPONENTS[kind](less))
        assert part is not None


@pytest.mark.parametrize("kind", COMPONENTS)
def test_an_empty_component_is_left_out(kind: str) -> None:
    part, latex, _ = rendered(COMPONENTS[kind](FRAMES[kind]().iloc[:0]))
    assert part is None and not latex


@pytest.mark.parametrize("kind", COMPONENTS)
def test_undefined_scores_are_drawn_as_missing(kind: str) -> None:
    frame = FRAMES[kind]()
    name = "y" if "y" in frame else "score"
    rendered(COMPONENTS[kind](frame.assign(**{name: math.nan})))


@pytest.mark.parametrize("kind", COMPONENTS)
def test_a_notebook_shows_a_component(kind: str) -> None:
    for frame in (FRAMES[kind](), FRAMES[kind]().iloc[:0]):
        shown = ShownComponent(COMPONENTS[kind](frame), LOOKS)
        assert "Title" in shown._repr_html_() and "Title" in str(shown)


def test_rows_stay_in_the_order_of_the_frame() -> None:
    chart = COMPONENTS["scores"](None)
    first = plots_of(chart, LOOKS)[0].sheet.marks
    assert [m["name"] for m in first if "y" in m] == NAMES
    for kind in ("scores", "a heat map", "a table"):
        text = component_text(COMPONENTS[kind](None), LOOKS)
        places = [text.index(name) for name in NAMES]
        assert places == sorted(places)


def test_panels_share_their_scale() -> None:
    frame = scores()
    frame.loc[frame["panel"] == "noise", ["score", "high"]] = 3.0
    plots = plots_of(ScoreChart(**HEAD, scores=frame.assign(chance=0.0)), LOOKS)
    guides = [next(m for m in plot.sheet.marks if m["name"] == "chance") for plot in plots]
    strokes = [plot.sheet.svg().split("stroke-dasharray")[0].split("M")[-1] for plot in plots]
    assert guides[0] == guides[1] and strokes[0].split()[0] == strokes[1].split()[0]


def test_a_dot_is_hollow_unless_a_verdict_says_that_it_is_above_chance() -> None:
    frame = scores()[lambda rows: rows["panel"] == "rotation"]

    def is_hollow(verdicts: list[Any]) -> bool:
        chart = ScoreChart(**HEAD, scores=frame.assign(above_chance=verdicts))
        return 'fill="var(--card)"' in re.sub(
            r"<rect[^>]*>", "", plots_of(chart, LOOKS)[0].sheet.svg()
        )

    assert is_hollow([True, None, True]) and is_hollow([False, True, True])
    assert not is_hollow([True, True, True])


def test_controls_are_grey_and_methods_have_their_colour() -> None:
    drawing = plots_of(COMPONENTS["scores"](None), LOOKS)[0].sheet.svg()
    colours = re.findall(r'data-method="([^"]*)".*?<circle[^>]*var\(--(\w+)\)', drawing)
    assert dict(colours) == {look.name: look.colour for look in LOOKS.values()}
    assert dict(colours)[LOOKS["random"].name] == "control"


def test_the_best_cells_are_bold() -> None:
    _, latex, _ = rendered(COMPONENTS["a plain matrix"](None))
    bold = re.findall(r"(\S.*?) & .*textbf", latex)
    assert bold == [LOOKS["grad_cam"].name]


def test_a_gallery_shows_every_view() -> None:
    gallery = Gallery(**HEAD, tiles=tiles())
    part = part_of(gallery, LOOKS)
    assert isinstance(part, Panel) and part.strip
    assert part.html.count("<article") == len(METHODS)
    assert all(name in part.html for name in NAMES)
    plots = plots_of(gallery, LOOKS)
    assert [plot.title for plot in plots] == NAMES
    for sheet in flowed(plots, 6.75):
        assert sheet.encoded("pdf", "title", 6.75).startswith(b"%PDF")
        assert "<image" in sheet.svg("alt")
    assert part_of(replace(gallery, tiles=()), LOOKS) is None


def test_a_gallery_in_a_paper_includes_its_pictures_and_a_terminal_names_them() -> None:
    gallery = Gallery(**HEAD, tiles=tiles(), paper="a figure")
    _, latex, text = rendered(gallery)
    assert r"\includegraphics{{a.5-picture}.pdf}" in latex and "graphicx" in latex
    assert "heatproof figures" in text
    for name in NAMES:
        (line,) = [line for line in text.splitlines() if line.startswith(f"  {name}, ")]
        assert "cat" in line and "a title" in line
        assert name in latex
    assert_states(latex, facts(gallery, LOOKS, is_paper=True))
    assert component_text(replace(gallery, tiles=()), LOOKS).startswith("Title")


def test_the_latex_of_a_gallery_names_files_that_were_written(tmp_path: Path) -> None:
    run = real.run_of("faithful or not")
    for formats, ending in ((("svg", "png"), ".png"), (("png", "pdf"), ".pdf"), (("svg",), None)):
        paths = write(run, tmp_path / "-".join(formats), formats, ["removal-pictures"])
        (latex,) = [path for path in paths if path.suffix == ".tex"]
        included = re.findall(r"\\includegraphics\{\{(.*)\}(\..*)\}", latex.read_text())
        # LaTeX includes no SVG: without another format there is the table alone.
        assert [bool(included)] == [ending is not None]
        for name, suffix in included:
            assert suffix == ending and (latex.parent / f"{name}{suffix}") in paths


def test_the_names_of_methods_and_samples_cannot_harm_latex() -> None:
    nasty = r"we_ird {50%} & $x$ #1 ~^ \input"
    names = looks([nasty], set(), {})
    items = [Tile(stored(nasty, nasty), nasty, note=nasty)]
    frame = pd.DataFrame({"explainer": [nasty], "score": [0.5], "x": [0.1], "y": [0.2]})
    components = [
        ScoreChart(**HEAD, scores=frame.assign(panel=nasty), guides={nasty: 0.5}, x_label=nasty),
        CurveChart(**HEAD, points=frame.assign(curve=nasty), x_label=nasty, y_label=nasty),
        Scatter(**HEAD, points=frame, x_label=nasty, y_label=nasty),
        Gallery(**HEAD, tiles=items),
    ]
    for component in components:
        _, latex, _ = rendered(component, names)
        assert escape(names[nasty].name) in latex and r" \input" not in latex


def test_a_gallery_of_pairs_has_the_score_in_the_corner() -> None:
    pairs = [
        Tile(stored(explainer, "cat"), title, score=score)
        for explainer in METHODS
        for title, score in (("original", None), ("turned 15°", 0.25))
    ]
    part = part_of(Gallery(**HEAD, tiles=pairs), LOOKS)
    assert isinstance(part, Panel)
    assert part.html.count('class="badge">0.25') == len(METHODS) and "turned 15°" in part.html


def test_sentences_in_a_table_are_folded_on_page_and_paper() -> None:
    advice = "Use a baseline that the group leaves unchanged, such as a constant."
    rows = pd.DataFrame({"explainer": METHODS, "advice": [advice, "Nothing.", "Nothing."]})
    table = Table(**HEAD, rows=rows, columns={"explainer": "Method", "advice": "What to do"})
    part, latex, _ = rendered(table)
    assert isinstance(part, Panel) and f'<td class="prose">{advice}</td>' in part.html
    assert r"p{" in latex and advice in latex
    _, short, _ = rendered(replace(table, rows=rows.tail(2)))
    assert r"p{" not in short

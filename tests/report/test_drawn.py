"""Plots, pictures, tables and numbers from a few fixed values: what lies where, and what is written."""

from __future__ import annotations

import io
import math
import re
from itertools import combinations
from typing import Any
from xml.etree import ElementTree

import numpy as np
import pandas as pd
import pytest
from PIL import Image, ImageColor

from heatproof import text
from heatproof.evaluation import GalleryItem
from heatproof.maps.overlay import overlaid
from heatproof.report import html, images, latex, map_drawings, plots
from heatproof.report.canvas import (
    GAP,
    PIXELS,
    TALLEST,
    Box,
    Dot,
    Picture,
    Plot,
    Sheet,
    Stroke,
    Words,
    flowed,
    inches_of,
)
from heatproof.report.components import CurveChart
from heatproof.report.draw import plots_of
from heatproof.report.plots import (
    Curve,
    Mark,
    Scale,
    cells,
    curves,
    dots,
    log_ticks,
    mark,
    spot,
    wrapped,
)
from heatproof.report.scatter import points
from heatproof.report.styles import COLOURS
from heatproof.report.table_rows import Row
from heatproof.results import names as names_of
from heatproof.runs.graph_layout import node_layout
from support.pages import marks as marks_of

ENDS = (-0.2, 1.1)
MARKS = [
    Mark("LIME", 0.31, 0.12, 0.52, "m1", x=1.0, x_low=0.8, x_high=1.4, cloud=(0.1, 0.5)),
    Mark("integrated gradients, 32 steps", 0.64, -0.3, 1.3, "m2", "hollow", x=2.0, method="ig"),
    Mark("Sobel", math.nan, colour="control", x=4.0),
    Mark("Random", -0.05, -0.1, -0.01, "control", x=8.0),
]
KNOWN = [m for m in MARKS if math.isfinite(m.value)]
PLOTS: dict[str, Plot] = {
    "dots": dots("t", MARKS, ENDS, "axis", "note", [("zero", 0.0), ("far", 9.0)]),
    "percent": dots("t", MARKS[:1], (0.0, 1.0), percent=True, width=180),
    "log": dots("t", MARKS[:1], (0.01, 2.0), log=True),
    "spot": Plot("t", spot(MARKS[0], ENDS, 40)),
    "curves": curves("t", [Curve("one", MARKS, "m1", (5, 3))], ENDS, "x", "y"),
    "curves-log": curves("t", [Curve("one", MARKS, "m1")], ENDS, "x", log=True, diagonal=True),
    "one point": curves("t", [Curve("", MARKS[:1])], ENDS, "x", at=[1.0]),
    "cells": cells(["a", "b"], ["one", "two"], [[MARKS[0], None], [MARKS[2], MARKS[3]]], "t"),
    "points": points("t", MARKS, (0.0, 9.0), (-0.4, 1.4), "x", "y", named=True, diagonal=True),
    "small": points("t", MARKS[:1], (0.5, 9.0), ENDS, "x", "y", "n", [(1, 0.2)], small=True),
}


def dots_of(plot: Plot, radius: float = 3) -> list[Dot]:
    """The dots of a plot, without those of single samples."""
    return [p for p in plot.sheet.pieces if isinstance(p, Dot) and p.radius > radius]


@pytest.mark.parametrize("name", PLOTS)
def test_a_plot_is_well_formed_and_keeps_within_its_sheet(name: str) -> None:
    sheet = PLOTS[name].sheet
    ElementTree.fromstring(str(sheet.svg("what it is")))
    for piece in sheet.pieces:
        if isinstance(piece, Stroke):
            corners = list(piece.points)
        elif isinstance(piece, Box | Picture):
            corners = [(piece.x, piece.y), (piece.x + piece.width, piece.y + piece.height)]
        else:
            corners = [(piece.x, piece.y)]
        for x, y in corners:
            assert -0.01 <= y <= sheet.height + 0.01, piece
            assert -0.01 <= x <= sheet.width + 0.01, piece


def test_rows_stand_in_their_order_with_larger_values_further_right() -> None:
    plot = PLOTS["dots"]
    found = dots_of(plot)
    assert [d.y for d in found] == sorted(d.y for d in found)
    by_value = sorted(zip([m.value for m in KNOWN], found, strict=True), key=lambda pair: pair[0])
    places = [d.x for _, d in by_value]
    assert places == sorted(places)
    gaps = np.diff(places) / np.diff([value for value, _ in by_value])
    np.testing.assert_allclose(gaps, gaps[0], rtol=1e-6)
    texts = [p.text for p in plot.sheet.pieces if isinstance(p, Words)]
    assert "no score" in texts and texts.index("LIME") < texts.index("Sobel")
    guides = marks_of([plot])["name"].tolist()
    assert "zero" in guides and "far" not in guides, "a guide beyond the ends is left out"


def test_an_interval_spans_its_dot_and_is_cut_at_the_ends_of_the_scale() -> None:
    plot = PLOTS["dots"]
    bands = [p for p in plot.sheet.pieces if isinstance(p, Box) and p.colour != "card"]
    for band, dot in zip(bands, dots_of(plot), strict=True):
        assert band.x <= dot.x <= band.x + band.width
        assert band.y <= dot.y <= band.y + band.height
    wide = bands[1]  # from −0.3 to 1.3 on a scale from −0.2 to 1.1
    assert wide.x >= 0 and wide.x + wide.width <= plot.sheet.width


def test_marks_carry_the_numbers_that_they_draw() -> None:
    for name in ("dots", "curves", "points"):
        carried = marks_of([PLOTS[name]]).set_index("name")
        for m in KNOWN:
            row = carried.loc[m.name]
            assert (row["value"], row["low"], row["high"]) == (m.value, m.low, m.high)
            assert row["method"] == (m.method or m.name)


def test_a_curve_rises_with_its_values_and_goes_right_with_its_levels() -> None:
    found = dots_of(PLOTS["curves"])
    across = [d.x for d in found]
    assert across == sorted(across)
    by_value = sorted(zip([m.value for m in KNOWN], [d.y for d in found], strict=True))
    heights = [y for _, y in by_value]
    assert heights == sorted(heights, reverse=True), "y runs down on a sheet"


def test_equal_ratios_are_equal_distances_on_a_logarithmic_scale() -> None:
    scale = Scale(1, 100, 0, 50, log=True)
    assert scale(10) == pytest.approx(25)
    assert scale(4) - scale(2) == pytest.approx(scale(40) - scale(20))
    assert Scale(0, 4, 10, 50)(1) == pytest.approx(20)
    assert Scale(0, 1, 100, 0)(0.25) == pytest.approx(75), "a scale may run backwards"


@pytest.mark.parametrize("ends", [(0, 1), (-0.2, 0.34), (3, 4.1), (1, 0), (0, 1e-3), (-7e5, 2e6)])
@pytest.mark.parametrize("most", [2, 3, 4])
def test_ticks_lie_between_the_ends_at_even_steps(ends: tuple[float, float], most: int) -> None:
    low, high = sorted(ends)
    ticks = Scale(*ends, 0, 100).ticks(most)
    assert 1 <= len(ticks) <= most + 1
    slack = 1e-9 * (high - low)
    assert all(low - slack <= tick <= high + slack for tick in ticks)
    steps = np.diff(ticks)
    if len(steps):
        np.testing.assert_allclose(steps, steps[0], rtol=1e-6)


def test_logarithmic_ticks_are_within_reach_of_the_ends() -> None:
    for low, high in ((0.02, 0.9), (0.001, 3.0), (1, 100), (1, 99.9)):
        ticks = log_ticks(low, high)
        assert ticks == sorted(ticks) and 2 <= len(ticks) <= 8
        assert 0.98 * low <= ticks[0] and ticks[-1] <= 1.02 * high
    assert log_ticks(3, 4) == [3, 4], "a scale without a round number has its ends"


def test_cells_are_stronger_the_further_they_are_from_zero_and_tell_the_sign() -> None:
    values = [Mark("m", v) for v in (0.1, 0.5, -0.9)]
    plot = cells(["row"], ["a", "b", "c"], [values])
    boxes = [p for p in plot.sheet.pieces if isinstance(p, Box)]
    assert [b.opacity for b in boxes] == sorted(b.opacity for b in boxes)
    assert boxes[0].colour == boxes[1].colour != boxes[2].colour


def test_every_method_has_a_plot_in_which_the_others_are_faint() -> None:
    looks = names_of.looks(["lime", "grad_cam", "saliency"])
    scores = pd.DataFrame({"x": [1.0, 2.0, 8.0], "score": [0.31, 0.64, -0.05]})
    points = pd.concat([scores.assign(explainer=name) for name in looks])
    chart = CurveChart(key="", title="", caption="", points=points, x_label="x", y_label="y")
    drawn = plots_of(chart, looks)
    assert [plot.title for plot in drawn] == [look.name for look in looks.values()]
    for plot in drawn:
        strokes = [p for p in plot.sheet.pieces if isinstance(p, Stroke) and len(p.points) > 2]
        assert len(strokes) == 3 and sum(p.opacity < 1 for p in strokes) == 2
        assert len(dots_of(plot)) == len(scores), "only its own curve has dots"


@pytest.mark.parametrize("inches", [3.25, 6.75])
def test_plots_flow_onto_sheets_and_none_is_lost(inches: float) -> None:
    plots = [dots(f"plot {i}", MARKS[: 1 + i % 4], ENDS) for i in range(40)]
    sheets = flowed(plots, inches)
    assert len(sheets) > 1
    for sheet in sheets:
        widest = max(plot.sheet.width for plot in plots)
        assert widest <= sheet.width <= max(inches * PIXELS, 1.3 * widest)
        assert 6 <= 12 * 72 * inches_of(sheet, inches) / sheet.width <= 7.01, "points of its type"
        assert sheet.height <= TALLEST + GAP
    texts = [p.text for sheet in sheets for p in sheet.pieces if isinstance(p, Words)]
    assert [t for t in texts if t.startswith("plot ")] == [plot.title for plot in plots]


def test_a_long_name_is_broken_into_lines_that_lose_nothing_or_is_cut_with_an_ellipsis() -> None:
    name = "integrated_gradients(steps=16)"
    assert "".join(wrapped(name, 140)) == name
    assert wrapped("Saliency", 100) == ["Saliency"]
    (cut,) = wrapped("x" * 50, 60)
    assert "…" in cut and len(cut) < 50
    assert len(wrapped("a b c d e f g h i j k l m", 20, 3)) <= 3


@pytest.mark.parametrize(
    ("interval", "kind"), [((0.1, 0.6, 0.3), "hollow"), ((0.1, 0.6, 0.7), "filled")]
)
def test_a_mark_is_hollow_where_its_interval_reaches_chance(
    interval: tuple[float, float, float], kind: str
) -> None:
    look = names_of.looks(["lime"])["lime"]
    assert mark(look, 0.4, *interval).kind == kind


def test_a_file_of_pixels_shows_what_the_drawing_says() -> None:
    sheet = Sheet(120, 80)
    sheet.add(Box(0, 0, 30, 20, "for"), Box(60, 40, 60, 40, "against"), Dot(45, 60, 12, "ink"))
    sheet.add(Picture(30, 0, 30, 20, np.full((4, 6, 3), (200, 30, 90), np.uint8)))
    sheet.add(Stroke([(0, 30), (60, 30)], "ink", 6), Words(2, 75, "WORDS", "ink", size=20))
    with Image.open(io.BytesIO(sheet.encoded("png", "t", 1.2))) as file:
        assert file.size == (360, 240)
        pixels = np.asarray(file.convert("RGB"), dtype=float)

    def at(x: float, y: float) -> Any:
        return pixels[int(3 * y), int(3 * x)]

    def colour(name: str) -> tuple[int, ...]:
        return ImageColor.getrgb(COLOURS[name][0])

    np.testing.assert_allclose(at(15, 10), colour("for"), atol=3)
    np.testing.assert_allclose(at(45, 10), (200, 30, 90), atol=3)
    np.testing.assert_allclose(at(90, 60), colour("against"), atol=3)
    np.testing.assert_allclose(at(45, 60), colour("ink"), atol=3)
    np.testing.assert_allclose(at(30, 30), colour("ink"), atol=3)
    np.testing.assert_allclose(at(100, 10), (255, 255, 255), atol=3)
    assert pixels[180:225, :100].min() < 60, "letters are drawn"
    assert sheet.encoded("pdf", "t", 1.2).startswith(b"%PDF")
    ElementTree.fromstring(sheet.encoded("svg", "t", 1.2))


def test_an_svg_of_its_own_keeps_the_size_and_weight_of_every_text() -> None:
    sheet = Sheet(100, 50)
    sheet.add(Words(0, 20, "title", size=19, bold=True), Words(0, 40, "note"))
    svg = sheet.encoded("svg", "t", 1.0).decode()
    assert not re.search(r"text\s*\{[^}]*font", svg), "a rule would win over the attributes"
    title = next(e for e in ElementTree.fromstring(svg).iter() if e.text == "title")
    assert title.get("font-size") == "19" and title.get("font-weight")


def test_rows_up_to_twenty_four_columns_have_bars() -> None:
    def row(columns: int) -> GalleryItem:
        values = np.arange(columns, dtype=np.float32)[None]
        return GalleryItem("d", "m", "e", "c", 0.0, "s", values, None, kind="table")

    assert [map_drawings.is_drawn(row(n)) for n in (1, 24, 25)] == [True, True, False]


def test_neighbours_of_a_graph_lie_closer_than_strangers() -> None:
    star = np.zeros((5, 5), np.float32)
    star[0, 1:4] = 1  # three leaves, and one node apart
    spots = node_layout(star)
    np.testing.assert_array_equal(spots, node_layout(star))
    apart = np.linalg.norm(spots[:, None] - spots, axis=2)
    neighbours = apart[0, 1:4]
    leaves = [apart[i, j] for i, j in combinations((1, 2, 3), 2)]
    assert neighbours.max() < min(leaves)
    assert neighbours.max() < apart[4, :4].min(), "what has no edge lies furthest away"
    assert node_layout(np.zeros((1, 1), np.float32)).shape == (1, 2)


def test_nodes_are_drawn_inside_their_tile() -> None:
    edges = np.diag(np.ones(6, np.float32), 1)
    image = np.concatenate([node_layout(edges), edges], axis=1)
    item = GalleryItem("d", "m", "e", "c", 0.0, "s", image, None, kind="graph")
    for width, height in ((120, 80), (60, 200)):
        nodes = [p for p in map_drawings.ground(item, width, height).pieces if isinstance(p, Dot)]
        assert len(nodes) == 7
        assert all(p.radius <= p.x <= width - p.radius for p in nodes)
        assert all(p.radius <= p.y <= height - p.radius for p in nodes)


def test_a_map_is_signed_where_it_has_negative_values_to_speak_of() -> None:
    values = np.random.default_rng(0).normal(size=(10, 15))
    assert images.is_signed(values) and images.is_signed(-np.abs(values))
    assert not images.is_signed(np.abs(values)) and not images.is_signed(np.zeros((2, 2)))


@pytest.mark.parametrize("signed", [True, False])
def test_a_map_covers_its_photograph_where_it_is_strong_and_shows_it_where_it_is_zero(
    signed: bool,
) -> None:
    image = np.full((8, 8, 3), 128, np.uint8)
    values = np.zeros((8, 8))
    values[:4] = 1.0
    laid = overlaid(image, values, signed).astype(int)
    assert laid.shape == (8, 8, 3)
    assert np.ptp(laid[:4], axis=2).min() > 60, "a strong map has a colour"
    assert np.ptp(laid[4:], axis=2).max() == 0, "the photograph under it is grey"
    if signed:
        turned = overlaid(image, -values, signed).astype(int)
        assert np.abs(turned[0, 0] - laid[0, 0]).max() > 60, "the sign has a colour"


def test_a_prediction_has_its_class_and_probability_and_says_whether_the_label_agrees() -> None:
    known = pd.DataFrame(
        {
            "predicted": [1, 7, 2],
            "predicted_name": ["cat", "", "dog"],
            "probability": [0.91, 0.5, 0.4],
            "label": [1, 2, None],
        },
        index=["a", "b", "c"],
    )
    said = [images.prediction(known, sample) for sample in "abcz"]
    assert "cat" in said[0] and "91" in said[0]
    assert "7" in said[1] and "50" in said[1], "a class without a name is told by its number"
    assert said[3] == ""
    labels = [images.label_words(known, sample) for sample in "abc"]
    assert len(set(labels)) == 3 and "2" in labels[1]
    unsure = known.assign(probability=math.nan)
    assert images.prediction(unsure, "a") == "cat"


def test_an_album_holds_every_picture_once() -> None:
    album = images.Album()
    first, second, again = (album.add(uri) for uri in ("data:a", "data:b", "data:a"))
    assert first == again != second and len(album.pictures) == 2


def test_numbers_are_rounded_without_a_negative_zero() -> None:
    assert [text.number(v) for v in (0.0, -0.004, 0.614, -7.0)] == [
        "0.00",
        "0.00",
        "0.61",
        "−7.00",
    ]
    assert text.number(math.nan) == text.number(math.inf)
    for bound in np.linspace(-1, 1, 401):
        told = float(text.at_least(bound).replace("−", "-"))
        assert bound - 0.01 - 1e-9 < told <= bound + 1e-6, "a lower bound is never rounded up"


def test_p_values_below_a_thousandth_are_told_as_such() -> None:
    assert "< 0.001" in text.p_value(0.00099) and "0.001" in text.p_value(0.001)
    assert "0.05" in text.p_value(0.05)


def test_an_interval_without_width_is_told_as_identical_scores() -> None:
    assert "identical" in text.with_interval(1.0, 1.0, 1.0, n=14)
    assert "14" in text.with_interval(1.0, 1.0, 1.0, n=14)
    assert "identical" not in text.with_interval(0.5, 0.4, 0.6, n=14)
    assert "identical" not in text.with_interval(0.5, math.nan, math.nan, n=3)


def test_a_dot_is_filled_only_where_its_interval_is_clear_of_chance() -> None:
    look = names_of.looks(["saliency"])["saliency"]
    assert plots.mark(look, 0.5, 0.4, 0.6, chance=0.0).kind == "filled"
    assert plots.mark(look, 0.5, -0.1, 1.1, chance=0.0).kind == "hollow"
    assert plots.mark(look, 0.5, chance=0.0).kind == "hollow", "three samples have no interval"
    assert plots.mark(look, 0.5).kind == "hollow"


def test_a_list_names_the_first_and_counts_the_rest() -> None:
    for n in range(1, 12):
        names = list("abcdefghijkl"[:n])
        told = text.some(names, most=3)
        assert all(name in told.replace("and", "").replace("more", "") for name in names[:3])
        assert (str(n - 3) in told) == (n > 3)


def test_a_difference_turns_its_sign_with_its_order() -> None:
    test = {"a": "x", "b": "y", "difference": 0.2, "low": 0.1, "high": 0.3, "n": 9}
    test |= {"score_a": 0.5, "score_b": 0.3, "p": 0.01, "significant": True}
    tests = pd.DataFrame([test])
    there, back = text.difference(tests, "x", "y"), text.difference(tests, "y", "x")
    assert there is not None and back is not None
    assert back["difference"] == -there["difference"]
    assert (back["low"], back["high"]) == (-there["high"], -there["low"])
    assert (back["score_a"], back["score_b"]) == (there["score_b"], there["score_a"])
    assert text.difference(tests, "x", "z") is None
    told = text.ahead_of(tests, "x", "y")
    assert all(fact in told for fact in ("9", "0.50", "0.30", "0.20", "0.10", "0.01"))


def test_methods_have_names_that_differ_and_controls_have_a_colour_of_their_own() -> None:
    every = ["lime(samples=8)", "lime(samples=32)", "grad_cam", "sobel", "shap(method=tree)"]
    looks = names_of.looks(every, {"sobel"})
    assert len({look.name for look in looks.values()}) == len(every)
    assert "8" in looks[every[0]].name and "32" in looks[every[1]].name
    assert looks[every[0]].colour == looks[every[1]].colour, "settings of one method share a colour"
    assert looks[every[1]].open and not looks[every[0]].open
    controls = {e for e, look in looks.items() if look.colour == "control"}
    assert controls == {"sobel"}
    assert names_of.looks(["mine(k=1)"], (), {"mine(k=1)": "lime"})["mine(k=1)"].colour == (
        names_of.looks(["lime"])["lime"].colour
    )


def test_text_is_escaped_for_latex() -> None:
    told = latex.escape("a_b & 50% $x {y} #1")
    assert all(f"\\{character}" in told for character in "_&%$#{}")


def test_a_table_for_latex_has_every_row_with_its_best_in_bold() -> None:
    rows: list[list[Any]] = [["one", latex.Cell(0.5, 0.4, 0.6, True)], ["two", latex.Cell(0.25)]]
    rendered = latex.render(latex.Tabular(["", "x"], rows), "A caption", "tab:x", ["a note"], 6.75)
    lines = {line.split(" & ")[0]: line for line in rendered.splitlines() if " & " in line}
    assert re.search(r"(textbf|bfseries).*0\.50", lines["one"])
    assert "0.25" in lines["two"] and "bf" not in lines["two"]
    assert "A caption" in rendered and "tab:x" in rendered and "a note" in rendered
    assert rendered.count("{") == rendered.count("}")


def test_a_wide_table_is_cut_into_blocks_that_repeat_its_first_column() -> None:
    numbers = [latex.Cell(i / 7) for i in range(10)]
    many = latex.Tabular(["n", *"abcdefghij"], [["r", *numbers]])
    for most in (3, 4, 9, 10):
        blocks = many.blocks(most)
        assert all(block.heads[0] == "n" and len(block.heads) <= most + 1 for block in blocks)
        assert [head for block in blocks for head in block.heads[1:]] == list("abcdefghij")


def test_a_spreadsheet_gets_no_formula_and_every_number() -> None:
    frame = pd.DataFrame({"=a": ["=1", "+x", "b"], "n": [1.0, math.nan, 1e-9]})
    read = pd.read_csv(io.StringIO(text.to_csv(frame)))
    assert read.columns.tolist() == ["'=a", "n"]
    assert read["'=a"].tolist() == ["'=1", "'+x", "b"]
    np.testing.assert_allclose(read["n"], frame["n"])


def test_a_table_of_a_page_leaves_out_empty_columns_and_escapes_text() -> None:
    rows = [Row(["1", "–", "<x>"]), Row(["2", "–", "3"], control=True)]
    grid = str(html.grid(["a", "b", "c"], rows, "Numbers"))
    assert "&lt;x&gt;" in grid and "<x>" not in grid
    assert ">a<" in grid and ">c<" in grid and ">b<" not in grid

"""Plots, drawings of every kind of data, tables and sentences from a few fixed numbers: every coordinate and word."""

from __future__ import annotations

import io
import math
import re
from typing import Any

import numpy as np
import pandas as pd
import pytest
from PIL import Image, ImageColor

from heatproof.drawing import forms, latex, methods, pictures, prose, tables
from heatproof.drawing.plots import (
    Curve,
    Mark,
    Scale,
    by_method,
    cells,
    curves,
    dots,
    log_ticks,
    mark,
    span,
    spot,
    wrapped,
)
from heatproof.drawing.scatter import points
from heatproof.drawing.sheet import (
    Box,
    Dot,
    Picture,
    Plot,
    Sheet,
    Stroke,
    Words,
    digits,
    flowed,
    plain,
    width_of,
)
from heatproof.results import Shown
from support.recorded import recorded

LOOKS = methods.looks(
    ["lime(samples=8)", "lime(samples=32)", "grad_cam", "mine(k=1)", "sobel"], {"sobel"}
)
MARKS = [
    Mark("LIME", 0.31, 0.12, 0.52, "m1", x=1.0, x_low=0.8, x_high=1.4, cloud=(0.1, 0.5)),
    Mark(
        "integrated gradients, 32 steps",
        0.64,
        -0.3,
        1.3,
        "m2",
        "hollow",
        "said",
        x=2.0,
        method="ig",
    ),
    Mark("Sobel", math.nan, colour="control", x=4.0),
    Mark("Random", -0.05, -0.1, -0.01, "control", x=8.0),
]


def drawn(plot: Plot | Sheet) -> list[str]:
    """A drawing, an element on each line."""
    sheet = plot.sheet if isinstance(plot, Plot) else plot
    text = str(sheet.svg("what it is"))
    return [
        *([plot.title, plot.note] if isinstance(plot, Plot) else []),
        *re.findall(r"<[^/][^>]*>[^<]*", text),
    ]


PLOTS: dict[str, Any] = {
    "dots": lambda: dots("t", MARKS, (-0.2, 1.1), "axis", "note", [("zero", 0.0), ("far", 9.0)]),
    "dots-percent": lambda: dots("t", MARKS[:1], (0.0, 1.0), percent=True, width=180),
    "dots-log": lambda: dots("t", MARKS[:2], (0.01, 2.0), log=True),
    "spot": lambda: spot(MARKS[0], (-0.2, 1.1), 40),
    "spot-control": lambda: spot(MARKS[3], (-0.2, 1.1), 40, 90),
    "curves": lambda: curves(
        "t",
        [Curve("one", MARKS, "m1", (5, 3)), Curve("", MARKS[:2], faint=True)],
        (-0.2, 1.1),
        "x",
        "y",
    ),
    "curves-log": lambda: curves(
        "t", [Curve("one", MARKS, "m1")], (0.0, 1.0), "x", log=True, diagonal=True, percent=True
    ),
    "curves-one": lambda: curves("t", [Curve("", MARKS[:1])], (0.0, 1.0), "x", at=[1.0], note="n"),
    "curves-many": lambda: curves(
        "t", [Curve("a", [Mark("a", i / 20, x=float(i)) for i in range(15)])], (0, 1), "x"
    ),
    "cells": lambda: cells(
        ["a", "b"], ["one", "two three"], [[MARKS[0], None], [MARKS[2], MARKS[3]]], "t"
    ),
    "cells-turned": lambda: cells(
        ["a" * 40], [f"column{i}" for i in range(16)], [[MARKS[i % 4] for i in range(16)]]
    ),
    "points": lambda: points(
        "t", MARKS, (0.0, 9.0), (-0.2, 1.1), "x", "y", named=True, diagonal=True
    ),
    "points-small": lambda: points(
        "t", MARKS[:2], (0.5, 9.0), (0.01, 2.0), "x", "y", "n", [(1, 0.2), (2, 0.5)], small=True
    ),
}


@pytest.mark.parametrize("name", PLOTS)
def test_a_plot_coordinate_by_coordinate(name: str) -> None:
    recorded(f"drawing/{name}", drawn(PLOTS[name]()))


def test_curves_of_every_method_before_the_others() -> None:
    lines = [
        (look, [Curve(look.name, MARKS[:2], look.colour), Curve("more", MARKS[1:], look.colour)])
        for look in LOOKS.values()
    ]
    made = by_method(lines, (-0.2, 1.1), "x", "y")
    recorded(
        "drawing/by-method",
        [[plot.title, len(plot.sheet.pieces), len(plot.sheet.marks)] for plot in made],
    )
    sheets = flowed(made, 6.75)
    recorded(
        "drawing/flowed",
        [
            [sheet.width, sheet.height, len(sheet.pieces)]
            for sheet in [*sheets, *flowed(made, 3.25)]
        ],
    )
    assert made[0].sheet._repr_svg_().startswith("<svg xmlns=") and not str(
        made[0].sheet.svg()
    ).startswith("<svg xmlns=")


def shown(kind: str, image: Any, words: tuple[str, ...] = (), values: Any = None) -> Shown:
    return Shown(
        "d",
        "m",
        "e",
        "c",
        0.0,
        "s",
        np.asarray(image, dtype=np.float32),
        values,
        kind=kind,
        words=words,
    )


EDGES = np.array([[0, 1, 0, 0], [0, 0, 1, 0], [0, 0, 0, 0], [0, 0, 0, 0]], np.float32)
FORMS = {
    "series": shown("series", [[0, 1, 4, 2], [3, 2, 0, 1]]),
    "table": shown("table", [[0.5, -2, 300]], ("age", "a very long name of a column", "c")),
    "long": shown("table", [list(range(30))]),
    "text": shown("text", [[1, 2, 3]], ("a", "Ġrather", "long word that goes on", "▁and", "on")),
    "graph": shown("graph", np.concatenate([[[0, 0], [1, 0], [2, 1], [5, 5]], EDGES], 1)),
    "set": shown("set", np.concatenate([[[0, 0], [1, 3]], np.zeros((2, 2))], 1)),
}


@pytest.mark.parametrize("name", FORMS)
def test_inputs_and_maps_of_every_kind(name: str) -> None:
    item = FORMS[name]
    count = {"text": 5, "graph": 4, "set": 2, "table": 3, "series": 4, "long": 30}[name]
    unit = np.linspace(-1, 1, count).astype(np.float32)
    found: dict[str, Any] = {
        "kind": [forms.is_drawn(item), forms.is_wide(item)],
        "ground": drawn(forms.ground(item, 120, 80)),
    }
    found["values"] = drawn(forms.ground(item, 200, 60, values=True))
    if forms.is_drawn(item):
        found |= {
            f"over {signed}": drawn(forms.over(item, unit, signed, 120, 80))
            for signed in (True, False)
        }
        found["uri"] = forms.uri(forms.over(item, unit, True, 40, 30))[:300]
    recorded(f"drawing/form-{name}", found)


def test_a_file_of_pixels_shows_what_the_drawing_says() -> None:
    sheet = Sheet(120, 80)
    sheet.add(Box(0, 0, 30, 20, "for"), Box(60, 40, 60, 40, "against", 0.5), Dot(45, 60, 12, "ink"))
    sheet.add(
        Stroke([(0, 40), (60, 40)], "ink", 4), Stroke([(90, 0), (90, 30)], "strong", 6, (4, 4))
    )
    sheet.add(Picture(30, 0, 30, 20, np.full((4, 6, 3), (200, 30, 90), np.uint8)))
    sheet.add(
        Dot(100, 20, 8, "m1", "hollow"),
        Dot(110, 35, 6, "m2", "open"),
        Words(2, 75, "WORDS", "ink", size=20),
    )
    with Image.open(io.BytesIO(sheet.encoded("png", "t", 1.2))) as file:
        assert file.size == (360, 240)
        pixels = np.asarray(file.convert("RGB"), dtype=float)
    blocks = pixels.reshape(8, 30, 12, 30, 3).mean((1, 3)).round()
    recorded("drawing/png", blocks.mean(-1), atol=10)
    np.testing.assert_allclose(blocks[0, 3], (200, 30, 90), atol=3)
    np.testing.assert_allclose(
        blocks[0, 0], np.asarray(ImageColor.getrgb(methods.COLOURS["for"][0])), atol=3
    )
    assert sheet.encoded("svg", "t", 1.2).startswith(b"<svg xmlns=")
    assert sheet.encoded("pdf", "t", 1.2).startswith(b"%PDF")


def test_rows_up_to_twenty_four_columns_have_bars() -> None:
    rows = [shown("table", [list(range(n))]) for n in (1, 24, 25)]
    assert [forms.is_drawn(row) for row in rows] == [True, True, False]


def test_graphs_are_laid_out_by_their_distances() -> None:
    star = np.zeros((5, 5), np.float32)
    star[0, 1:4] = 1  # and one node apart
    spots = forms.layout(star)
    apart = np.linalg.norm(spots[:, None] - spots, axis=2)
    recorded(
        "drawing/layout",
        [np.sort(apart, None)[5::2], len(forms.layout(np.zeros((1, 1), np.float32)))],
        rtol=1e-2,
    )


def test_photographs_and_maps_as_pictures() -> None:
    g = np.random.default_rng(0)
    image, values = g.integers(0, 256, (20, 30, 3), dtype=np.uint8), g.normal(size=(10, 15))
    found: dict[str, Any] = {
        "laid": [pictures.laid(image, values, signed).mean((0, 1)) for signed in (True, False)]
    }
    found["signed"] = [
        pictures.is_signed(v)
        for v in (values, np.abs(values), None, -np.abs(values), np.zeros((2, 2)))
    ]
    found["unit"] = [
        pictures._unit(values).mean(),
        pictures._unit(values, 5).shape,
        pictures._unit(None).shape,
    ]
    known = pd.DataFrame(
        {"sample": ["a", "b", "c"], "predicted": [1, None, 2], "predicted_name": ["cat", "", "dog"]}
    )
    known = known.assign(probability=[0.91, math.nan, math.nan], label=[1, 2, None], error="")
    found["said"] = [
        [pictures.prediction(known, s), pictures.label_words(known, s)]
        for s in ("a", "b", "c", "z")
    ]
    look = LOOKS["grad_cam"]
    pair = [shown("image", image, values=values), shown("image", image, values=values[::-1])]
    pair = [Shown(**{**item.__dict__, "image": image}) for item in pair]
    card = str(pictures.pair_card(look, *pair, "0.31", "some words"))
    found["card"] = re.sub(r'data:image/[^"\')]*', "PICTURE", card)
    album = pictures.Album()
    found["album"] = (
        [album.add("data:a"), album.add("data:b"), album.add("data:a"), len(album.pictures)]
        if hasattr(album, "add")
        else []
    )
    found["filters"] = len(str(pictures.filters()))
    recorded("drawing/pictures", found, atol=0.5)


def test_numbers_in_a_sentence() -> None:
    values = (0.0, -0.004, 0.614, 12.345, -7.0, math.inf, math.nan, 1e-7)
    spans = (
        (0.61, 0.58, 0.64),
        (0.6, 0.6, 0.6),
        (0, 0, 0),
        (0.5, 0.1, 0.9),
        (3, math.nan, 4),
        (1e-8, 0, 1e-7),
        (50, 20, 90),
    )
    found: dict[str, Any] = {
        "number": [prose.number(v) for v in values],
        "three": [prose.number(v, 3) for v in values],
    }
    found["intervals"] = [[prose.digits_of(*s), prose.with_interval(*s)] for s in spans]
    found["bounds"] = [prose.at_least(v) for v in (0.7069, 0.71, 0.999999, -0.001, math.nan)]
    found["lists"] = [
        [prose.listing("abc"[:n]), prose.some("abcdefghij"[:n]), prose.some("abcdefg"[:n], 3)]
        for n in range(10)
    ]
    found["p"] = [prose.p_value(p) for p in (0.0009999, 0.001, 0.05, 0.5, 1.0)]
    tests = pd.DataFrame(
        {
            "a": ["x", "y"],
            "b": ["y", "z"],
            "difference": [0.2, -0.1],
            "low": [0.1, -0.3],
            "high": [0.3, 0.1],
        }
    )
    tests = tests.assign(
        score_a=[0.5, 0.3],
        score_b=[0.3, 0.4],
        n=[9, 8],
        p_holm=[0.01, 0.5],
        significant=[True, False],
    )
    pairs = [("x", "y"), ("y", "x"), ("z", "y"), ("x", "z")]
    found["tests"] = [
        [prose.difference(tests, *p), prose.ahead_of(tests, *p), prose.above(tests, *p)]
        for p in pairs
    ]
    found["each"] = prose.each([(c, "1") for c in "abcdef"])
    found["ticks"] = [
        Scale(*ends, 0, 100).ticks(most)
        for ends in ((0, 1), (-0.2, 0.34), (3, 4.1), (1, 0), (0, 1e-3))
        for most in (2, 3, 4)
    ]
    found["logarithmic"] = [
        log_ticks(*ends) for ends in ((0.02, 0.9), (0.001, 3.0), (1, 100), (3, 4), (1, 99.9))
    ]
    found["places"] = [
        Scale(1, 100, 0, 50, True)(10),
        Scale(0, 4, 10, 50)(1),
        Scale(0, 1, 100, 0)(0.25),
    ]
    found["span"] = [span([0.2, math.nan], 0.0, 1.0), span([]), span([3.0]), span([1, 5])]
    found["wrapped"] = [
        wrapped(t, most, n)
        for t in ("integrated_gradients(steps=16)", "a b c d e f g", "x" * 50)
        for most in (60, 140)
        for n in (1, 2, 3)
    ]
    found["written"] = [[plain(v), digits(v)] for v in (0.0, 1.0, 1.25, -0.00004, 123456.789)]
    found["wide"] = [width_of("abc"), width_of("WWW", 20), width_of("")]
    made = [
        mark(LOOKS["lime(samples=32)"], 0.4, *rest)
        for rest in ((0.1, 0.6), (0.1, 0.6, 0.3), (0.1, 0.6, 0.7), (0.1, 0.6, 0.6))
    ]
    found["marks"] = [
        [m.kind, m.name, m.colour, m.method] for m in [*made, mark(LOOKS["sobel"], 0.2, chance=0.2)]
    ]
    recorded("drawing/words", found)


def test_names_and_colours_of_methods() -> None:
    every = [
        "lime(samples=8)",
        "lime(samples=32, features=tokens(k=1))",
        "grad_cam",
        "mine(k=1)",
        "captum(attribution=InputXGradient, arguments={'n_steps': 5})",
    ]
    every += [
        "captum(attribution=captum.attr.DeepLift)",
        "quantus(x=1)",
        "sobel",
        "random",
        "shap(method=tree)",
        "a",
        "b",
        "zennit(composite=EpsilonPlus)",
    ]
    found: dict[str, Any] = {
        e: str(look) for e, look in methods.looks(every, {"sobel"}, {"mine(k=1)": "lime"}).items()
    }
    found["settings"] = [methods.settings_of(e) for e in every]
    found["colours"] = {name: methods.colour_of(name) for name in (*methods.TITLES, "x", "y", "z")}
    sentence = "lime(samples=8) beats grad_cam, mine(k=1) and morf; see lime: {samples: 3} [grad_cam] noisy_linear"
    found["spoken"] = methods.spoken(sentence, methods.looks(every))
    found["css"] = [len(methods.css()), methods.css()[:60]]
    recorded("drawing/methods", found)


def test_tables_for_papers_and_spreadsheets() -> None:
    cell = latex.Cell
    rows: list[list[Any]] = [
        ["a_b", cell(0.5, 0.4, 0.6, True), cell(0.01234, 0.0121, 0.0125)],
        ["c", cell(math.nan), cell(0.25, percent=True)],
    ]
    table = latex.Tabular(["", "x", "y"], rows, {1: "head & more"}, [("", 1), ("both", 2)])
    many = latex.Tabular(
        ["n", *"abcdefghij"], [["r", *[cell(i / 7) for i in range(10)]]] * 2, {1: ""}
    )
    found: dict[str, Any] = {
        "table": latex.render(table, "A caption, 5 %", "tab:x y", ["note_1"], 6.75).splitlines()
    }
    found["blocks"] = [[len(b.heads) for b in many.blocks(most)] for most in (3, 4, 9, 10)]
    found["wide"] = latex.render(many, "c", "l", [], 3.25).splitlines()
    found["words"] = [
        latex.escape("a_b & 50% $x {y} ~ ^ \\ # λ ≥ → −"),
        latex.comment("one\ntwo"),
        latex.number(-0.5, 2),
        latex.number(0, 1),
    ]
    found["digits"] = [latex.digits_for(row) for row in rows]
    tests = pd.DataFrame(
        {
            "a": ["x", "x", "y"],
            "b": ["y", "z", "z"],
            "difference": [0.2, 0.3, 0.0],
            "low": [0.1, -0.1, -0.1],
        }
    )
    tests = tests.assign(
        high=[0.3, 0.5, 0.1],
        significant=[True, False, False],
        score_a=0.5,
        score_b=0.3,
        n=9,
        p_holm=0.01,
    )
    means = pd.Series({"x": 0.6, "y": 0.4, "z": 0.4, "control": 0.9})
    found["best"] = [sorted(latex.unbeaten(means, tests, {"control"}, sign)) for sign in (1, -1)]
    frame = pd.DataFrame(
        {
            "=a": ["=1", "+x", "b"],
            "n": [1.0, math.nan, 1e-9],
            "ok": [True, False, True],
            "big": [1e12, 2.5, math.inf],
        }
    )
    found["csv"] = tables.to_csv(frame).splitlines()
    grid = tables.grid(
        ["a", "b", "c"], [tables.Row(["1", "", "<x>"]), tables.Row(["2", "", "3"], True)], "Numbers"
    )
    found["grid"] = re.sub(r"\s+", " ", str(grid))
    recorded("drawing/tables", found)


def test_a_class_without_a_name_is_told_by_its_number() -> None:
    known = pd.DataFrame(
        {"predicted": [7, 7], "predicted_name": ["", "cat"], "probability": [0.5, None]}, ["a", "b"]
    )
    assert [pictures.prediction(known, sample) for sample in "abc"] == ["class 7 (50 %)", "cat", ""]

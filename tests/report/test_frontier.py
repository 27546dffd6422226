"""The frontier of two axes: who is on it, by brute force, and what the chart says of it."""

from __future__ import annotations

from dataclasses import replace
from itertools import combinations

import numpy as np
import pandas as pd
import pytest

from heatproof.report.canvas import Dot, Plot, Stroke, Words, width_of
from heatproof.report.components import Scatter
from heatproof.report.draw import plots_of
from heatproof.report.frontier import (
    MOST_PANELS,
    frontier,
    frontier_components,
    frontier_findings,
    frontier_points,
    on_frontier,
)
from heatproof.report.images import Album
from heatproof.report.page_parts import Chart, part_of
from heatproof.report.scatter import free_positions
from heatproof.report.sections import sections_of
from heatproof.results.axis_result import AxisResult
from heatproof.results.names import colour_of, looks
from heatproof.results.ranking import ranking
from heatproof.runs.results import axis_results
from heatproof.text import with_interval
from support import synthetic
from support.faithfulness import axis_of, made_up
from support.manifests import manifest_of
from support.pages import NASTY, is_sound, marks
from support.synthetic import judged_of, rows_of

STABLE = {"grad_cam": 0.2, "saliency": 0.6, "lime": 0.1, "random": 0.0}
ZERO = ("zero", 0.0)


def stability(quality: dict[str, float] = STABLE) -> AxisResult:
    return judged_of(synthetic.table(quality, synthetic.CONDITIONS[:2], samples=12, model="net"))


def faithfulness(**options: object) -> AxisResult:
    return axis_of(made_up(**options))  # type: ignore[arg-type]


@pytest.mark.parametrize("seed", range(6))
def test_dominance_by_brute_force(seed: int) -> None:
    g = np.random.default_rng(seed)
    x, y = g.integers(0, 5, (2, 14)) / 4  # ties on purpose
    expected = []
    for i in range(14):
        beaten = False
        for j in range(14):
            no_worse = x[j] >= x[i] and y[j] >= y[i]
            beaten = beaten or (no_worse and (x[j] > x[i] or y[j] > y[i]))
        expected.append(not beaten)
    assert on_frontier(x, y).tolist() == expected and any(expected)


def test_points_are_the_two_rankings() -> None:
    held, true = stability(), faithfulness()
    points = frontier_points(held, true, ZERO).set_index("explainer")
    scores = ranking(held.arrays, "fass").set_index("explainer")
    table = made_up()
    road = (
        table[(table.measure == "road") & (table.condition == "zero")]
        .groupby("explainer")["value"]
        .mean()
    )
    for explainer in STABLE:
        assert points.loc[explainer, "x"] == scores.loc[explainer, "score"]
        assert points.loc[explainer, "x_low"] == scores.loc[explainer, "low"]
        assert points.loc[explainer, "y"] == pytest.approx(road[explainer])
    assert set(points.index[points["on_frontier"]]) == {"grad_cam", "saliency"}, (
        "lime is beaten on both"
    )


def test_the_chart_shows_bars_both_ways_and_the_line() -> None:
    chart = frontier(stability(), faithfulness())
    assert chart is not None
    plots = plots_of(chart, stability().looks)
    assert [plot.title for plot in plots] == ["noisy linear", "zero"]
    part = part_of(chart, stability().looks)
    assert isinstance(part, Chart)
    is_sound(part)
    plot = plots[0]
    found = marks([plot]).set_index("name")
    assert set(found.index) == {"Grad-CAM", "Saliency", "LIME", "Random map"}
    assert (found["x_low"] < found["x_high"]).all() and (found["low"] < found["high"]).all()
    spots = {
        m.name: (d.x, d.y)
        for m, d in zip(found.reset_index().itertuples(), dots_of(plot), strict=True)
    }
    line = next(p.points for p in plot.sheet.pieces if isinstance(p, Stroke) and p.dash)
    assert spots["Grad-CAM"] in line and spots["Saliency"] in line and spots["LIME"] not in line
    written = {piece.text: piece.colour for piece in plot.sheet.pieces if isinstance(piece, Words)}
    assert written["Random map"] == "control" and written["LIME"] == colour_of("lime")
    assert all(name in chart.caption for name in ("edge filter", "Saliency", "Grad-CAM"))


def drawn(chart: Scatter) -> list[Plot]:
    explainers = chart.points["explainer"]
    controls = set(explainers[chart.points["is_control"]])
    return plots_of(chart, looks(explainers, controls, {}))


def dots_of(plot: Plot) -> list[Dot]:
    return [piece for piece in plot.sheet.pieces if isinstance(piece, Dot)]


def test_a_control_never_leads() -> None:
    quality = STABLE | {"sobel": 0.95}
    true = faithfulness(
        skill={"grad_cam": 0.6, "saliency": 0.35, "lime": 0.3, "sobel": 0.9, "random": 0.0}
    )
    points = frontier_points(stability(quality), true, ZERO)
    assert (
        not points[points["is_control"]]["on_frontier"].any() and points["on_frontier"].sum() == 2
    )


def test_less_is_better_turns_the_axis() -> None:
    table = made_up()
    true = axis_of(table[table["measure"] == "deletion_auc"])
    chart = frontier(stability(), true)
    assert chart is not None
    (plot,) = drawn(chart)[:1]
    found = marks([plot]).assign(up=[dot.y for dot in dots_of(plot)])
    assert found["value"].rank().tolist() == found["up"].rank().tolist(), "less is further up"
    assert "Saliency" in chart.caption and "Grad-CAM" in chart.caption
    across = frontier(true, stability())
    assert across is not None
    (plot,) = drawn(across)[:1]
    found = marks([plot]).assign(right=[-dot.x for dot in dots_of(plot)])
    assert found["x"].rank().tolist() == found["right"].rank().tolist()
    texts = {piece.text for piece in plot.sheet.pieces if isinstance(piece, Words)}
    assert any("faithfulness" in text and "lower" in text for text in texts)
    held = stability(STABLE | {"grad_cam": 0.4})
    (finding,) = frontier_findings(held, true)
    assert "Grad-CAM" in finding.title and finding.explainers == ("lime",)
    gaps = []
    for judged, sign in ((held, 1), (true, -1)):
        tests = judged.tests[judged.tests["measure"] == judged.headlines[0].name]
        pairs = map(set, zip(tests["a"], tests["b"], strict=True))
        (row,) = tests[[pair == {"grad_cam", "lime"} for pair in pairs]].itertuples()
        turn = sign if row.a == "grad_cam" else -sign
        gaps.append(
            with_interval(turn * row.difference, *sorted((turn * row.low, turn * row.high)))
        )
    assert gaps[0] != gaps[1] and finding.seen.index(gaps[0]) < finding.seen.index(gaps[1])


def test_names_do_not_lie_on_each_other() -> None:
    names = {f"integrated_gradients(steps={i})": 0.3 + 0.001 * i for i in range(4)}
    chart = frontier(stability(names), faithfulness(skill=names))
    assert chart is not None
    texts = [
        p for p in drawn(chart)[0].sheet.pieces if isinstance(p, Words) and p.text.endswith("steps")
    ]
    assert len(texts) == 4
    for a, b in combinations(texts, 2):
        apart = abs(a.y - b.y) >= 10 or abs(a.x - b.x) >= width_of(a.text, a.size)
        assert apart, "four points at one place have their names at four others"


def test_a_name_keeps_clear_of_a_bar_under_its_letters() -> None:
    free, beside = ([[(100.0, y), (160.0, y)]] for y in (60.0, 95.0))
    assert free_positions(["saliency"], [(100.0, 100.0)], free, 400) == [(106, 92)]
    ((x, y),) = free_positions(["saliency"], [(100.0, 100.0)], beside, 400)
    clear = y + 2 <= 93 or y - 10 >= 97 or x + width_of("saliency", 11) <= 100
    assert clear, "with what hangs below the line"


def test_nothing_to_compare() -> None:
    assert frontier(stability(), faithfulness(skill={"grad_cam": 0.5, "random": 0.0})) is None
    assert frontier(stability({"other": 0.5, "another": 0.1}), faithfulness()) is None, (
        "no method in common"
    )
    gone = faithfulness()
    assert (
        frontier(stability(), replace(gone, arrays=replace(gone.arrays, values={}, has_rows={})))
        is None
    )
    nan = {m: np.full_like(v, np.nan) for m, v in gone.arrays.values.items()}
    assert frontier(stability(), replace(gone, arrays=replace(gone.arrays, values=nan))) is None
    assert frontier(gone, gone) is None and list(frontier_findings(gone, gone)) == []
    own = judged_of(rows_of([(e, "depth", "x", 1.0, [0.5, 0.6]) for e in STABLE], "mine"))
    assert frontier(stability(), own) is None, "nobody knows which direction is good"
    one = frontier(stability(), faithfulness(n=1))
    assert (
        one is not None
        and marks(drawn(one))[["x", "value"]].notna().all().all()
        and marks(drawn(one))["low"].isna().all()
    )


def test_many_methods_and_hostile_names() -> None:
    names = {f"m{i}": 0.02 * i for i in range(20)} | {NASTY: 0.5}
    chart = frontier(stability(names), faithfulness(skill=names, imputers=("zero",)))
    assert chart is not None
    (plot,) = drawn(chart)
    texts = {piece.text for piece in plot.sheet.pieces if isinstance(piece, Words)}
    assert "m3" not in texts and "m3" in set(marks([plot])["name"]), (
        "twenty labels would cover each other"
    )
    assert "<script>" not in plot.sheet.svg() and plot.title == ""


def test_of_many_conditions_the_first_are_drawn() -> None:
    imputers = ("noisy_linear", *(f"fill{i}" for i in range(MOST_PANELS)))
    chart = frontier(stability(), faithfulness(imputers=imputers))
    assert chart is not None and len(drawn(chart)) == MOST_PANELS


def test_it_closes_the_section_where_both_were_tested() -> None:
    table = made_up(imputers=("zero",), n=4)
    held = synthetic.table(STABLE, synthetic.CONDITIONS[:2], samples=8, model="net")
    samples = synthetic.samples(8, unreadable=0, model="net")

    def keys(rows: pd.DataFrame) -> list[str]:
        (section,) = sections_of(
            axis_results(rows, samples, [], manifest_of()), samples, manifest_of(), Album()
        )
        return [part.key for axis in section.axes for part in axis.parts]

    assert (
        keys(pd.concat([table, held], ignore_index=True))[-1] == "frontier-stability-faithfulness"
    )
    assert not [key for key in keys(table) if key.startswith("frontier")]


def test_any_two_axes_have_a_chart() -> None:
    held, true = stability(), faithfulness()
    third = replace(
        held,
        axis=replace(held.axis, name="depth", title="Depth"),
        arrays=replace(held.arrays, evaluation="depth"),
    )
    (chart,), others = frontier_components([held, true, third])
    title = chart.title.lower()
    assert "stability" in title and "faithfulness" in title, (
        "the pair that an axis names comes first"
    )
    assert len(others) == 2 and all("depth" in other.title.lower() for other in others)
    (alone,), others = frontier_components([true, third])
    assert "depth" in alone.title.lower() and not others
    nowhere = replace(
        third,
        axis=replace(
            third.axis, measures=tuple(replace(m, better="neither") for m in held.axis.measures)
        ),
    )
    _, others = frontier_components([held, true, nowhere])
    assert others == [], "more must be better or worse"

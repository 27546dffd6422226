"""The frontier of two axes: who is on it, by brute force, and what the chart says of it."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest

from holdfast.axes import Judged, judge
from holdfast.report.frontier import frontier_chart, frontier_findings, frontier_points, on_frontier
from holdfast.report.sections import sections_of
from holdfast.statistics import ranking
from support import synthetic
from support.faithfulness import axis_of, made_up
from support.pages import NASTY
from support.synthetic import judged_of, rows_of

STABLE = {"grad_cam": 0.2, "saliency": 0.6, "lime": 0.1, "random": 0.0}
ZERO = ("zero", 0.0)


def stability(quality: dict[str, float] = STABLE) -> Judged:
    return judged_of(synthetic.table(quality, synthetic.CONDITIONS[:2], samples=12, model="net"))


def faithfulness(**options: object) -> Judged:
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
    scores = ranking([held.cube], "fass").set_index("explainer")
    table = made_up()
    road = table[(table.measure == "road") & (table.condition == "zero")].groupby("explainer")["value"].mean()
    for explainer in STABLE:
        assert points.loc[explainer, "x"] == scores.loc[explainer, "score"]
        assert points.loc[explainer, "x_low"] == scores.loc[explainer, "low"]
        assert points.loc[explainer, "y"] == pytest.approx(road[explainer])
    assert set(points.index[points["frontier"]]) == {"grad_cam", "saliency"}, "lime is beaten on both"


def test_the_chart_shows_bars_both_ways_and_the_line() -> None:
    chart = frontier_chart(stability(), faithfulness())
    assert chart is not None and [name for name, _ in chart.views] == ["noisy_linear", "zero"]
    figure = chart.views[0][1]
    dots = {t.name: t for t in figure.data if t.name != "frontier"}
    assert dots.keys() == STABLE.keys()
    assert all(t.error_x.array[0] > 0 and t.error_y.array[0] > 0 for t in dots.values())
    assert dots["random"].marker.symbol == "circle-open" and dots["lime"].text[0] == "lime"
    line = next(t for t in figure.data if t.name == "frontier")
    for explainer in ("grad_cam", "saliency"):
        assert (dots[explainer].x[0], dots[explainer].y[0]) in zip(line.x, line.y, strict=True)
    assert (dots["lime"].x[0], dots["lime"].y[0]) not in zip(line.x, line.y, strict=True)
    for words in ("Sobel", "saliency and grad_cam", "hollow"):
        assert words in chart.caption


def test_a_control_never_leads() -> None:
    quality = STABLE | {"sobel": 0.95}
    true = faithfulness(skill={"grad_cam": 0.6, "saliency": 0.35, "lime": 0.3, "sobel": 0.9, "random": 0.0})
    points = frontier_points(stability(quality), true, ZERO)
    assert not points[points["control"]]["frontier"].any() and points["frontier"].sum() == 2


def test_less_is_better_turns_the_axis() -> None:
    table = made_up()
    true = axis_of(table[table["measure"] == "deletion_auc"])
    chart = frontier_chart(stability(), true)
    assert chart is not None
    figure = chart.views[0][1]
    low, high = figure.layout.yaxis.range
    assert low > high and "lower is better" in figure.layout.yaxis.title.text
    assert "saliency and grad_cam" in chart.caption
    across = frontier_chart(true, stability())
    assert across is not None
    low, high = across.views[0][1].layout.xaxis.range
    line = next(t for t in across.views[0][1].data if t.name == "frontier")
    assert low > high and list(line.x) == sorted(line.x, reverse=True)
    (finding,) = frontier_findings(stability(), true)
    assert finding.title == "grad_cam is better on both axes" and finding.explainers == ("lime",)


def test_names_do_not_lie_on_each_other() -> None:
    names = {f"integrated_gradients(steps={i})": 0.3 + 0.001 * i for i in range(4)}
    chart = frontier_chart(stability(names), faithfulness(skill=names))
    assert chart is not None
    places = [t.textposition for t in chart.views[0][1].data if t.name != "frontier"]
    assert len(set(places)) == 4, "four points at one place have their names on four sides"


def test_nothing_to_compare() -> None:
    assert frontier_chart(stability(), faithfulness(skill={"grad_cam": 0.5, "random": 0.0})) is None
    assert frontier_chart(stability({"other": 0.5, "another": 0.1}), faithfulness()) is None, "no method in common"
    gone = faithfulness()
    assert frontier_chart(stability(), replace(gone, cube=replace(gone.cube, values={}, asked={}))) is None
    nan = {m: np.full_like(v, np.nan) for m, v in gone.cube.values.items()}
    assert frontier_chart(stability(), replace(gone, cube=replace(gone.cube, values=nan))) is None
    assert frontier_chart(gone, gone) is None and list(frontier_findings(gone, gone)) == []
    own = judged_of(rows_of([(e, "depth", "x", 1.0, [0.5, 0.6]) for e in STABLE], "mine"))
    assert frontier_chart(stability(), own) is None, "nobody knows which direction is good"
    one = frontier_chart(stability(), faithfulness(n=1))
    assert one is not None and "no interval" in one.views[0][1].data[1].hovertext


def test_many_methods_and_hostile_names() -> None:
    names = {f"m{i}": 0.02 * i for i in range(20)} | {NASTY: 0.5}
    chart = frontier_chart(stability(names), faithfulness(skill=names, imputers=("zero",)))
    assert chart is not None
    dots = [t for t in chart.views[0][1].data if t.name != "frontier"]
    assert all(t.mode == "markers" and t.showlegend for t in dots), "a legend in place of twenty labels"
    assert "<script>" not in chart.views[0][1].to_json() and chart.views[0][0] == ""


def test_it_closes_the_section_where_both_were_tested() -> None:
    table = made_up(imputers=("zero",), n=4)
    held = synthetic.table(STABLE, synthetic.CONDITIONS[:2], samples=8, model="net")
    samples = synthetic.samples(8, unreadable=0, model="net")

    def keys(rows: pd.DataFrame) -> list[str]:
        (section,) = sections_of(judge(rows, samples, [], {}), samples, [], {})
        return [part.key for axis in section.axes for part in axis.parts]

    assert keys(pd.concat([table, held], ignore_index=True))[-1] == "frontier-stability-faithfulness"
    assert not [key for key in keys(table) if key.startswith("frontier")]

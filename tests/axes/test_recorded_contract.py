"""The contract of an axis: its records, somebody's own evaluation, and how results are put in order."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch

from heatproof import UserError
from heatproof.axes import AXES, arrange, axis_of, judge, marked
from heatproof.axes.contract import Judged, Measure, adopted, figures_of, own_axis, plain_title
from heatproof.axes.material import Material
from heatproof.axes.tiles import tiles_of, worst_panel
from heatproof.results import Scores, Shown
from support.fixed import batch_of, brief, row_model
from support.recorded import recorded
from support.synthetic import Entry, rows_of
from support.told import drawn, figures


def test_records() -> None:
    found: dict[str, Any] = {}
    for axis in AXES:
        measures = [
            f"{m.name} {m.better} {m.role} {m.span} {m.chance} {m.sign}" for m in axis.measures
        ]
        known = [
            axis.measure(name)
            for name in (f"{axis.measures[0].name}_chance", f"{axis.measures[0].name}_random", "x")
        ]
        shown = [getattr(m, "name", None) for m in known]
        more = [
            axis.separable,
            axis.within,
            axis.against,
            sorted(axis.aside),
            axis.best,
            list(axis.trial),
            shown,
        ]
        found[axis.name] = [
            axis.title,
            measures,
            axis.of_role("headline"),
            more,
            [i.name for i in figures_of(axis)],
        ]
        found[axis.name] += [
            axis.condition("some_thing", 3.0),
            axis.condition("some_thing", 0.0),
            dict(axis.unable),
        ]
        found[axis.name] += [{k: str(dict(v)) for k, v in axis.trial.items()}]
    found["plain"] = [plain_title("a_b", 0.0), plain_title("a_b", 1.5)]
    recorded("contract/records", found)


def test_figures_of_nothing_say_what_is_missing() -> None:
    recorded("contract/nothing", {axis.name: figures([], axis) for axis in AXES})


class Bare:
    """An evaluation that leaves out all that may be left out."""

    def __call__(self, subject: Any) -> Iterator[Scores]:
        yield from ()

    def conditions(self) -> list[tuple[str, float]]:
        return [("here", 1.0)]


class Picky(Bare):
    kinds, reexplains = frozenset({"concept"}), False
    measures = (Measure("depth", "Depth", "how deep", "lower", "headline", (0.0, 2.0)),)

    def check(self, shape: tuple[int, ...]) -> None:
        raise UserError(f"not of {shape}")

    def suited(self, model: Any, batch: Any) -> Bare:
        return Bare()


def test_an_evaluation_of_ones_own() -> None:
    model, batch = row_model(2), batch_of(1, 2)
    bare, picky = adopted(Bare(), "mine"), adopted(Picky(), "hers")
    bare.check((2,))
    with pytest.raises(UserError, match="not of"):
        picky.check((2,))
    assert bare.suited(model, batch) is bare and isinstance(picky.suited(model, batch).of, Bare)  # type: ignore[union-attr]
    assert (bare.name, bare.kinds, bare.reexplains, bare.measures) == (
        "mine",
        frozenset({"feature"}),
        True,
        (),
    )  # type: ignore[union-attr]
    assert (picky.kinds, picky.reexplains, picky.conditions()) == (
        frozenset({"concept"}),
        False,
        [("here", 1.0)],
    )
    assert adopted(bare, "x") is bare and list(bare(None)) == []  # type: ignore[arg-type]
    depth = {
        "name": "depth",
        "title": "D",
        "text": "",
        "better": "lower",
        "role": "headline",
        "span": [0, 1],
    }
    measured = ["depth", "width", "width_chance"]
    axes = [own_axis("my_own", given, measured) for given in ({"measures": [depth]}, {})]
    told = [[(m.name, m.role, m.better, m.span) for m in axis.measures] for axis in axes]
    recorded("contract/own", [*told, own_axis("my_own", {}, []).title])


def results() -> pd.DataFrame:
    blocks = []
    for dataset, model in (("photos", "net"), ("faces", "net"), ("photos", "deep")):
        g = np.random.default_rng(len(dataset))
        entries: list[Entry] = []
        for name, level in (("a", 0.6), ("b", 0.2), ("sobel", 0.0)):
            moved = np.abs(g.normal(level, 0.02 if level else 0.0, 8))
            entries += [
                (name, "dependence", "weights", 0.0, moved),
                (name, "class_dependence", "class", 0.0, moved),
            ]
        blocks.append(rows_of(entries, "dependence", model=model).assign(dataset=dataset))
        entries = [(n, "spearman", o, 0.0, g.random(8)) for n, o in (("a", "b"), ("b", "a"))]
        blocks.append(rows_of(entries, "agreement", model=model).assign(dataset=dataset))
        blocks.append(
            rows_of([("a", "depth", "here", 1.0, g.random(8))], "mine", model=model).assign(
                dataset=dataset
            )
        )
    return pd.concat(blocks, ignore_index=True)


def test_results_are_put_in_order() -> None:
    table = results()
    samples = table.drop_duplicates(["dataset", "model", "sample"])[
        ["dataset", "model", "sample"]
    ].assign(error="")
    samples["group"] = [i % 3 for i in range(len(samples))]
    study = {
        "datasets": {"photos": {"references": ["s00", "s01"]}},
        "evaluations": {"mine": {"name": "mine"}},
    }
    manifest = {"study": study, "heatproof": "1"}
    every = judge(table, samples, [], manifest)
    found: dict[str, Any] = {
        "order": [
            [j.cube.dataset, j.cube.model, j.label, j.title, len(j.rows), len(j.samples)]
            for j in every
        ]
    }
    found["more"] = [
        [len(j.related), dict(j.marks), j.groups, list(j.cube.references), str(dict(j.settings))]
        for j in every
    ]
    found["looks"] = {e: look.name for e, look in every[0].looks.items()}
    found["ranking"] = [
        [r["explainer"], brief(r["score"]), r["control"]]
        for r in every[0].ranking.to_dict("records")
    ]
    found["tests"] = [
        [t["a"], t["b"], brief(t["difference"])] for t in every[0].tests.to_dict("records")
    ]
    cubes = arrange(table, manifest, samples)
    found["spans"] = {name: str(span) for name, span in sorted(cubes[0].spans.items())}
    found["marked"] = {" ".join(place): words for place, words in marked(cubes, manifest).items()}
    found["axis"] = [
        axis_of("mine", manifest, ["depth"]).title,
        axis_of("x", {"study": {"evaluations": {"x": {"name": "stability"}}}}).name,
    ]
    material = Material(every, manifest)
    found["material"] = [len(material.of("dependence")), material.fingerprint]
    recorded("contract/judged", found)


def exhibits(judged: Judged) -> list[Shown]:
    g, shown = np.random.default_rng(0), []
    for explainer in judged.cube.explainers:
        for i, sample in enumerate(("s03", "s00", "s05")):
            for condition, level in (("clean", 0.0), ("rotation", 15.0), ("jpeg", 40.0)):
                image = g.integers(0, 255, (8 + 4 * (i == 2), 8, 3)).astype(np.uint8)
                held = (
                    None
                    if (explainer, sample, condition) == ("b", "s00", "jpeg")
                    else g.random((8, 8)).astype(np.float32)
                )
                place = (
                    "photos",
                    "net",
                    explainer,
                    condition,
                    level,
                    sample,
                    image,
                    held,
                    "stability",
                )
                shown.append(Shown(*place, note="worse by -0.2" if i == 1 else ""))
    return shown


def test_tiles_and_the_worst_of_them() -> None:
    g, entries = np.random.default_rng(2), list[Entry]()
    for name in ("a", "b", "sobel"):
        for where in (("rotation", 15.0), ("jpeg", 40.0)):
            values = g.random(8)
            if name == "b":
                values[[1, 5]] = np.nan
            entries += [
                (name, "fass", *where, values),
                (name, "fass_chance", *where, 0.1 * g.random(8)),
            ]
    rows = rows_of(entries, "stability")
    lost = rows["value"].isna() & rows["condition"].eq("jpeg")
    rows.loc[lost, ["status", "reason"]] = ["flipped", "top-1 changed from cat to dog"]
    samples = rows.drop_duplicates("sample")[["dataset", "model", "sample"]].assign(error="")
    (bare,) = judge(rows, samples, [], {})
    (judged,) = judge(rows, samples, exhibits(bare), {})
    tiles = tiles_of(judged, "fass", "A {} moves", lambda c, x: f"{c} by {x:g}")
    assert tiles is not None and tiles_of(bare, "fass", "", plain_title) is None
    assert (
        tiles_of(judged, "nothing", "", plain_title) is None
        and worst_panel(bare, None, "", "", "") is None
    )
    scores = {
        " ".join(map(str, key)): f"{brief(value)} {why}"
        for key, (value, why) in tiles.scores.items()
    }
    panel = drawn(worst_panel(judged, tiles, "worst", "Worst", "Bad cases."))
    recorded(
        "contract/tiles",
        [[str(c) for c in tiles.columns], tiles.samples, scores, tiles.asked, panel],
    )
    assert torch.tensor([len(tiles.shown)]).item() == 27

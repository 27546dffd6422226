"""The atlas: its page is what its tables make, verdicts follow from intervals, and a run is set beside its networks."""

from __future__ import annotations

import copy
import dataclasses
import importlib
import re
import shutil
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from scipy import stats

import heatproof
from heatproof.report.canvas import Box, Words
from support import small
from support.paths import ROOT

FOLDER = ROOT / "studies" / "atlas"
NUMBER = re.compile(r"(?<![\w.])[-−]?\d[\d,]*\.?\d*")
MODULES = (
    "reading",
    "claims",
    "claims_fass",
    "claims_invariance",
    "claims_road",
    "claims_soft",
    "claims_sanity",
)
MODULES += ("spread", "figures", "leaderboard", "page", "tables", "beside", "retest")


@pytest.fixture(scope="module")
def study() -> Iterator[SimpleNamespace]:
    """The modules of studies/atlas."""
    before = set(sys.modules)
    sys.path.insert(0, str(FOLDER))
    yield SimpleNamespace(**{name: importlib.import_module(name) for name in MODULES})
    sys.path.remove(str(FOLDER))
    for name in set(sys.modules) - before:
        if str(getattr(sys.modules[name], "__file__", None) or "").startswith(str(FOLDER)):
            del sys.modules[name]


@pytest.fixture(scope="module")
def tables(study):
    """The committed tables."""
    return study.reading.load()


@pytest.fixture(scope="module")
def judged(study, tables) -> list:
    """Every claim, judged by the committed tables."""
    return [study.claims.judge(claim, tables) for claim in study.claims.all_claims()]


def same(one: str, other: str) -> bool:
    """Whether two texts have the same words, and the same numbers but for one in their last digit."""
    if NUMBER.sub("#", one) != NUMBER.sub("#", other):
        return False
    for a, b in zip(NUMBER.findall(one), NUMBER.findall(other), strict=True):
        x, y = (float(text.replace(",", "").replace("−", "-").rstrip(".")) for text in (a, b))
        if abs(x - y) > 1.01 * 10.0 ** -len(a.partition(".")[2]):
            return False
    return True


def test_the_page_is_what_the_tables_make(study, tables, judged):
    """Fails where a table, a claim or the page was changed alone: `python studies/atlas/page.py` writes it again."""
    docs = ROOT / "docs"
    pictures = study.page.pictures_of(tables, judged, tables.split, docs, write=False)
    made = study.page.markdown(tables, judged, pictures, tables.split).splitlines()
    kept = (docs / "atlas-claims.md").read_text("utf-8").splitlines()
    assert [(a, b) for a, b in zip(made, kept, strict=True) if not same(a, b)] == []
    first = (docs / "atlas.md").read_text("utf-8").splitlines()
    made = study.page.first_screen(tables, judged, pictures).splitlines()
    assert [(a, b) for a, b in zip(made, first, strict=True) if not same(a, b)] == []
    boards = (docs / "atlas-leaderboard.md").read_text("utf-8").splitlines()
    made = study.leaderboard.page(tables).splitlines()
    assert [(a, b) for a, b in zip(made, boards, strict=True) if not same(a, b)] == []
    assert {path.name for path in (docs / "figures").glob("atlas-*")} == set(pictures.values())
    assert (
        sum(path.stat().st_size for path in (docs / "figures").glob("atlas-*"))
        <= study.page.LARGEST
    )


def test_one_changed_number_is_seen():
    assert same("0.41 [0.35, 0.47] of 1,024", "0.42 [0.35, 0.47] of 1,024")
    assert not same("0.41 [0.35, 0.47]", "0.43 [0.35, 0.47]")
    assert not same("holds: 0.41", "does not: 0.41")


def test_there_are_claims_of_every_paper_and_none_without_a_number(judged, study):
    assert len(judged) >= 30
    assert {"FASS", "Soft stability", "Invariance", "ROAD", "SRG", "LATEC", "Adebayo 2018"} <= {
        j.claim.paper for j in judged
    }
    for j in judged:
        told = j.verdict in (study.claims.NOT_RUN, study.claims.UNTESTABLE)
        assert told != bool(j.found.parts), j.claim.key
        assert bool(j.claim.why) == (j.verdict == study.claims.UNTESTABLE), j.claim.key
        if j.verdict == study.claims.DOES_NOT:
            assert j.power or all(p.low == p.high for p in j.found.parts), (
                f"{j.claim.key} has no power"
            )


def test_the_first_screen_has_every_paper_with_the_verdicts_of_its_claims(judged, study):
    rows = study.page.main_claims(judged)[2:]
    main = [j for j in judged if j.claim.plain]
    assert len(rows) == len(main) <= 16
    assert {"FASS", "Soft stability", "Invariance", "ROAD", "SRG", "LATEC"} <= {
        j.claim.paper for j in main
    }
    for row, j in zip(rows, main, strict=True):
        assert f"**{j.verdict}" in row.replace("\u00a0", " ") and "{" not in row
        assert NUMBER.search(study.claims.in_short(j)), j.claim.key


def test_published_numbers_are_in_the_table_of_printed_values(judged, tables):
    found = []
    printed = {float(str(v).lstrip("<")) for v in tables.papers["value"]}
    means = [
        tables.paper("fass", f"retention by {by}")["mean"].mean() for by in ("perturbation", "data")
    ]
    printed |= {round(m, 1) for m in means} | {1.0}
    for j in judged:
        for text in re.findall(r"(?<!\w)[-−]?\d*\.\d+", j.claim.published):
            value = float(text.replace("−", "-"))
            if not any(abs(value - p) < 1e-9 for p in printed):
                found.append((j.claim.key, text))
    assert found == []


def test_earlier_results_stand_on_the_page_that_they_name(tables):
    for r in tables.earlier.itertuples():
        text = (ROOT / r.page).read_text("utf-8").replace("**", "")
        if r.low == 0.9999:
            assert "1 to four digits in every sample" in text
            continue
        in_one_line = re.sub(r"\s+", " ", text)
        forms = [printed(r, digits) for digits in (1, 2, 3)]
        assert any(form in in_one_line for form in forms), (r.key, forms)


def printed(row: Any, digits: int) -> str:
    """An earlier result as a page prints it, with its interval where it has one."""
    if not np.isfinite(row.low):
        return f"{row.value:g}"
    numbers = [f"{v:.{digits}f}".replace("-", "−") for v in (row.value, row.low, row.high)]
    value, low, high = ["0.00" if number == "−0.00" else number for number in numbers]
    return f"{value} [{low}, {high}]"


def test_appendix_cells_are_whole(tables):
    """Row means that the paper's text repeats come out of the transcribed cells."""
    t = tables
    cells = t.paper("fass", "cells ImageNet Grad-CAM")
    assert cells.shape == (4, 5)
    for network in ("ConvNeXt-T", "ResNet-50"):
        told = t.printed("fass", "text", f"Grad-CAM on ImageNet, {network}", "FASS")
        assert round(cells.loc[network].mean(), 3) == told
    retained = t.paper("fass", "retention ImageNet")[["rotation", "noise"]].to_numpy().mean()
    assert round(retained, 1) == t.printed("fass", "retention by data", "ImageNet", "mean")


@pytest.mark.parametrize(
    ("intervals", "more", "verdict"),
    [
        ([(0.2, 0.1, 0.3)], {}, "holds"),
        ([(0.2, -0.1, 0.5)], {}, "undecided"),
        ([(-0.2, -0.3, -0.1)], {}, "does not"),
        ([(0.2, 0.1, 0.3)], {"side": "below"}, "does not"),
        ([(0.2, 0.1, 0.3), (-0.2, -0.3, -0.1)], {}, "mixed"),
        ([(0.2, 0.1, 0.3), (-0.2, -0.3, -0.1)], {"every": True}, "does not"),
        ([(0.2, 0.1, 0.3), (0.2, -0.1, 0.5)], {}, "undecided"),
        ([(0.2, np.nan, np.nan)], {}, "no interval"),
        ([(0.02, -0.03, 0.07)], {"side": "within", "margin": 0.1}, "holds"),
        ([(0.02, -0.13, 0.17)], {"side": "within", "margin": 0.1}, "undecided"),
        ([], {}, "not run yet"),
    ],
)
def test_a_verdict_is_that_of_the_intervals(study, intervals, more, verdict):
    parts = tuple(study.claims.Part("", *numbers) for numbers in intervals)
    assert study.claims.verdict(study.claims.Found(parts, **more)) == verdict


def test_intervals_of_several_parts_hold_together(study):
    """Of many claims whose truth is exactly the bound, at most one in twenty has a part beyond it."""
    random, wrong, tries = np.random.default_rng(0), 0, 4000
    for draws in random.normal(size=(tries, 8)):
        found = study.claims.Found(
            tuple(study.claims.Part("", x, x - 1.959964, x + 1.959964) for x in draws)
        )
        wrong += any(
            study.claims.part_verdict(p, found) != "undecided"
            for p in study.claims.widened(found).parts
        )
    assert wrong / tries < 0.05 + 3 * (0.05 * 0.95 / tries) ** 0.5


def test_sign_flips_find_who_is_ahead_and_leave_out_pairs_of_controls(study):
    random = np.random.default_rng(0)
    means = {
        "lime(samples=32)": 1.0,
        "saliency": 0.0,
        "grad_cam": 0.0,
        "random": -1.0,
        "sobel": 2.0,
    }
    rows = [
        {
            "explainer": name,
            "condition": "radius",
            "severity": level,
            "sample": f"s{i}",
            "value": mean + 0.1 * random.normal(),
        }
        for name, mean in means.items()
        for level in (1.0, 2.0)
        for i in range(12)
    ]
    pairs = set(study.retest.ahead(pd.DataFrame(rows)))
    names = sorted(means, key=means.get, reverse=True)
    expected = {(a, b) for a in names for b in names if means[a] > means[b]}
    assert pairs == expected - {("sobel", "random")}


def test_power_is_the_distance_seen_four_times_out_of_five(study):
    part = study.claims.Part("", 0.0, -1.959964, 1.959964)
    distance = float(study.claims.power(study.claims.Found((part,))))
    assert stats.norm.sf(1.959964 - distance) == pytest.approx(0.8, abs=0.01)


def test_more_samples_decide_what_lies_off_the_bound(study, tables):
    claims, page = study.claims, study.page
    parts = (
        claims.Part("squeezenet", 0.19, -0.01, 0.39),
        claims.Part("five networks", 0.19, -0.01, 0.39),
    )
    about = next(claim for claim in claims.all_claims() if claim.key == "fass-data")
    few = claims.AxisResult(about, claims.Found(parts), claims.UNDECIDED, "", "")
    said = "1 of 2 undecided parts of claims would be decided, and no verdict would be another."
    assert said in page.more_lines(tables, [few])[0]  # what has networks for samples stays as it is
    alone = dataclasses.replace(few, found=claims.Found(parts[:1]))
    assert (
        f"1 verdict would be another: {about.text} (undecided, then holds)."
        in page.more_lines(tables, [alone])[0]
    )


def test_variances_are_those_of_a_balanced_analysis(study):
    """On a balanced table MINQUE gives the estimates of the textbook's mean squares."""
    random = np.random.default_rng(1)
    a, b, n = 5, 4, 3
    y = (
        random.normal(size=(a, 1, 1))
        + 0.5 * random.normal(size=(1, b, 1))
        + 0.3 * random.normal(size=(a, b, n))
    )
    codes = [
        np.broadcast_to(np.arange(k).reshape(shape), y.shape).ravel()
        for k, shape in ((a, (-1, 1, 1)), (b, (1, -1, 1)))
    ]
    rows, columns = y.mean((1, 2), keepdims=True), y.mean((0, 2), keepdims=True)
    rest = ((y - rows - columns + y.mean()) ** 2).sum() / (y.size - a - b + 1)
    by_rows = b * n * ((rows - y.mean()) ** 2).sum() / (a - 1)
    by_columns = a * n * ((columns - y.mean()) ** 2).sum() / (b - 1)
    expected = [(by_rows - rest) / (b * n), (by_columns - rest) / (a * n), rest]
    assert study.spread.variances(y.ravel(), codes) == pytest.approx(expected)


def test_a_part_below_0_is_not_known_exactly(study, tables):
    """A factor without any variance: its share is 0, and its interval is as wide as the spread of its estimates."""
    random, rows = np.random.default_rng(3), []
    for network in range(8):
        for method in "abcdef":
            score = random.normal() + 2 * "abcdef".index(method)
            about = {
                "network": f"n{network}",
                "explainer": method,
                "condition": f"c{network % 2}",
                "severity": 0.0,
            }
            about |= {
                "data": "d",
                "architecture": f"n{network}",
                "axis": "stability",
                "measure": "fass",
            }
            about |= {"modality": "image", "variant": "plain", "sweep": False, "control": False}
            rows.append({**about, "best": score - 0.0001 * network})
    found = (
        study.spread.split(dataclasses.replace(tables, cells=pd.DataFrame(rows)))
        .table()
        .set_index("factor")
    )
    nothing = found.loc["architecture"]
    assert nothing["value"] < 0.05 and nothing["low"] == 0 < nothing["high"]
    assert found["value"].sum() == pytest.approx(1) and found.loc["method", "low"] > 0.5


def test_orders_are_compared_where_methods_differ_and_seeds_count_as_one(study, tables):
    """Three kinds of networks, one of two seeds, and a share at which every method is wrong always."""
    rows = []
    for seeds, architecture in ((2, "a"), (1, "b"), (1, "c")):
        for seed, method in ((s, m) for s in range(seeds) for m in range(5)):
            for severity, order in ((v, o) for v in (0.5, 0.9) for o in ("morf", "lerf")):
                falls = order == "morf" and architecture != "b"
                level = {0.5: 0.8 - 0.1 * method if falls else 0.1 * method, 0.9: 0.0}[severity]
                about = {
                    "network": f"{architecture}{seed}",
                    "architecture": architecture,
                    "data": "d",
                }
                about |= {
                    "variant": "plain",
                    "axis": "faithfulness",
                    "measure": "accuracy",
                    "control": False,
                }
                about |= {
                    "modality": "image",
                    "condition": f"dataset_mean {order}",
                    "severity": severity,
                }
                rows.append({**about, "explainer": f"m{method}", "mean": level})
    (found,) = study.claims_road.on_grid(
        dataclasses.replace(tables, cells=pd.DataFrame(rows)), "dataset_mean"
    )
    each = [1.0, -1.0, 1.0]  # b's order is the other way round; of a's two seeds one number
    half = stats.t.ppf(0.975, 2) * np.std(each, ddof=1) / 3**0.5
    assert found.label == "all methods on 3 kinds of networks"
    assert (found.value, found.low, found.high) == pytest.approx(
        (1 / 3, 1 / 3 - half, 1 / 3 + half)
    )


def test_samples_are_those_of_the_axis_that_a_claim_is_about(study, tables):
    judged = SimpleNamespace(
        found=study.claims.Found(
            (study.claims.Part("net, more", 0.0, 0.0, 0.0),), command=study.claims.GRID
        ),
        claim=SimpleNamespace(key="soft-perturbing"),
    )
    cells = pd.DataFrame(
        {"network": "net", "axis": ["certificate", "faithfulness"], "attempted": [64, 128]}
    )
    cells["sweep"] = False
    told = study.page.samples_of(dataclasses.replace(tables, cells=cells), judged)
    assert told == "n = 64 samples a network"


def test_predictions_kept_are_those_of_the_run_with_most_samples(study, tables, tmp_path):
    """A sweep of severity adds its samples to what is said of predictions, and nothing to what is said of scores."""
    shutil.copytree(study.reading.TABLES, tmp_path / "tables")
    cells = pd.read_parquet(tmp_path / "tables" / "cells.parquet")
    asked = (
        (cells["run"] == "squeezenet.paper")
        & (cells["measure"] == "fass")
        & (cells["explainer"] == "saliency")
    )
    numbers = {
        "attempted": 499,
        "retention": 0.9137,
        "retention_low": 0.87,
        "retention_high": 0.93,
        "mean": 0.5,
    }
    more = cells[asked].astype({"run": str}).assign(run="squeezenet.sweeps", **numbers)
    pd.concat([more, cells[cells["run"] != "squeezenet.sweeps"]]).to_parquet(
        tmp_path / "tables" / "cells.parquet"
    )
    given = study.reading.load(tmp_path / "tables")
    for key in ("fass-mild", "fass-translation"):
        before, found = (study.claims_fass.TESTS[key](t) for t in (tables, given))
        assert max(before.samples) <= 500 and found.samples.count(499) == 1
        (part,) = [part for part in found.parts if part.label == "squeezenet"]
        assert (part.value, part.low, part.high) == pytest.approx((91.37, 87, 93))
        assert len(found.parts) == len(before.parts) == len(before.samples)
    judged = SimpleNamespace(found=study.claims_fass.TESTS["fass-translation"](given))
    assert study.page.samples_of(given, judged).endswith(" to 499 samples a network")
    own = given.cells[
        (given.cells["network"] == "squeezenet") & (given.cells["axis"] == "stability")
    ]
    assert set(own["attempted"]) == set(cells.loc[asked, "attempted"])
    marks = [
        data for data, _ in study.figures.severity(given).groups if data.get("value") == "0.9137"
    ]
    assert len(marks) == len(more), "one for every condition"


def test_sanity_checks_are_of_each_network_once(study, tables):
    """Of a network that both have the benchmark's number; of others the grid's, on the scale of the claim."""
    about = {
        "axis": "dependence",
        "measure": "class_dependence",
        "condition": "class",
        "modality": "image",
    }
    numbers = {"saliency": (0.9, 0.8, 1.0), "guided_backprop": (0.25, 0.2, 0.3)}
    rows = [
        {
            **about,
            "network": network,
            "base": name,
            **dict(zip(("mean", "low", "high"), ends, strict=True)),
        }
        for network in ("mobilenet_v2", "squeezenet")
        for name, ends in numbers.items()
    ]
    given = dataclasses.replace(tables, cells=pd.DataFrame(rows))
    expected = {
        "sanity-guided-class": (-0.15, -0.2, -0.1),
        "sanity-guided-class-less": (0.65, 0.5, 0.8),
    }
    for key, ends in expected.items():
        known, new = tables.measured(key), study.claims_sanity.TESTS[key](given).parts[-1]
        labels = [part.label for part in study.claims_sanity.TESTS[key](given).parts]
        assert labels == [*known["part"], "squeezenet"] and "mobilenet_v2" in labels
        assert (new.value, new.low, new.high) == pytest.approx(ends)


def test_rankings_that_agree_and_rankings_that_do_not(study):
    random = np.random.default_rng(2)
    names = [f"m{i}" for i in range(6)]
    one = pd.DataFrame(np.arange(6.0) + 0.1 * random.normal(size=(60, 6)), columns=names)
    same_order, turned = 2 * one, -one
    assert study.claims_road.rank_agreement(one, same_order) == pytest.approx((1, 1, 1))
    assert study.claims_road.rank_agreement(one, turned) == pytest.approx((-1, -1, -1))


# -- from runs to the page


QUICK = {"faithfulness": {"fractions": [0.5], "metrics": ["road"]}}
WHOLE = [QUICK, {"stability": {"perturbations": ["jpeg", {"rotation": {"degrees": [5, 15]}}]}}]


@pytest.fixture(scope="module")
def exported(study, tmp_path_factory) -> tuple[Path, list[heatproof.Run]]:
    """Three small networks as the grid would have them: real runs, kept as its exporter keeps them."""
    target, runs, cards = tmp_path_factory.mktemp("tables"), [], []
    x, _ = small.pictures(20)
    methods = [
        "saliency",
        "grad_cam",
        {"integrated_gradients": {"steps": 2}},
        "input_x_gradient",
        "random",
    ]
    for seed in range(3):
        net = copy.deepcopy(small.network())
        with torch.no_grad():
            for weights in net.parameters():
                weights.mul_(1 + 0.05 * seed)
        name = f"cifar10-net{seed % 2}-s{seed}"
        model = heatproof.Model(
            net, mean=(0.5,) * 3, std=(0.5,) * 3, classes=small.CLASSES, name=name
        )
        runs.append(heatproof.evaluate(model, {"shapes": x}, methods, WHOLE, show_progress=False))
        cards.append(
            (name, "cifar10", f"net{seed % 2}", "convolutional", seed, "plain", "image", 60.0)
        )
    columns = [
        "network",
        "data",
        "architecture",
        "family",
        "seed",
        "variant",
        "modality",
        "seconds_to_train",
    ]
    pd.DataFrame(cards, columns=columns).to_csv(target / "networks.csv", index=False)
    found = {}
    for (name, *_), run in zip(cards, runs, strict=True):
        ranked = study.tables.ranking(run)
        found[f"{name}.paper"] = {
            "cells": study.tables.cells(run),
            "pairs": study.tables.pairs(run),
        }
        found[f"{name}.paper"] |= {"values": study.tables.values(run, ranked), "ranking": ranked}
    for name in ("cells", "pairs", "values", "ranking"):
        columns = getattr(study.tables, name.upper())
        study.tables.store(target / f"{name}.parquet", study.tables.joined(found, name, columns))
    facts = [
        study.tables.facts(run, f"{name}.paper", {}, "0")
        for (name, *_), run in zip(cards, runs, strict=True)
    ]
    pd.DataFrame(facts).to_csv(target / "runs.csv", index=False)
    for name in ("papers", "earlier"):
        shutil.copy(FOLDER / "tables" / f"{name}.csv", target)
    return target, runs


def test_the_atlas_has_the_scores_of_the_runs(study, exported):
    folder, runs = exported
    rows = study.beside.atlas_scores(study.reading.load(folder))
    for run in runs:
        own = study.beside.headline_scores(run)
        there = rows[rows["network"] == own["model"].iloc[0]]
        both = own.merge(there, on=study.beside.KEY, suffixes=("", "_there"))
        defined = own[own["score"].notna()]
        assert len(both) == len(there) == len(defined) > 10
        for end in ("score", "low", "high"):
            np.testing.assert_allclose(both[end], both[f"{end}_there"], atol=2e-4)


def test_claims_and_pictures_are_those_of_the_runs(study, exported, tmp_path):
    folder, runs = exported
    tables = study.reading.load(folder)
    found = study.claims_fass.retained("jpeg")(tables)
    told = [
        run.summary().query("measure == 'fass' and condition == 'jpeg'").iloc[0] for run in runs
    ]
    assert [p.value for p in found.parts] == pytest.approx(
        [100 * r.retention for r in told], abs=0.02
    )
    assert [p.low for p in found.parts] == pytest.approx(
        [100 * r.retention_low for r in told], abs=0.02
    )
    lead = tables.contrast(
        {"measure": "fass"}, {"base": "grad_cam"}, {"base": "saliency"}, ("condition", "severity")
    )
    for run, r in zip(runs, lead.itertuples(), strict=True):
        # The atlas keeps the values of maps that were not moved with the input.
        rows = run.table().query("measure in ('fass', 'fass_unaligned') and status == 'ok'")
        rows = rows.sort_values("measure").drop_duplicates(
            ["sample", "explainer", "condition", "level"], keep="last"
        )
        wide = rows.pivot_table(
            index=["sample", "condition", "level"],
            columns="explainer",
            values="value",
            observed=True,
        )
        apart = (wide["grad_cam"] - wide["saliency"]).dropna().groupby("sample").mean()
        assert r.value == pytest.approx(apart.mean(), abs=1e-3)
        assert r.low < r.value < r.high
    judged = [study.claims.judge(claim, tables) for claim in study.claims.all_claims()]
    (tmp_path / "figures").mkdir()
    pictures = study.page.pictures_of(tables, judged, tables.split, tmp_path)
    assert set(pictures) == {"verdicts", "strip", "matrix", "frontier", "spread"}
    text = study.page.markdown(tables, judged, pictures, tables.split)
    assert "{{" not in text and "nan" not in text
    assert tables.split.share.sum() == pytest.approx(1)


def test_every_claim_is_a_square(study, judged):
    figures, page = study.page.figures, study.page
    told = figures.board(judged, page.PAPERS)
    counts = Counter(j.verdict for j in judged)
    boxes = Counter(piece.colour for piece in told.pieces if isinstance(piece, Box))
    legend = {verdict: 1 for verdict in counts}
    for verdict, colour in figures.COLOURS.items():
        assert boxes[colour] == counts[verdict] + legend[verdict] + counts["mixed"] + legend.get(
            "mixed", 0
        )
    texts = [piece.text for piece in told.pieces if isinstance(piece, Words)]
    assert all(f"{verdict} {n}" in texts for verdict, n in counts.items())


def test_the_frontier_is_of_methods_that_all_its_networks_have(study, exported):
    tables = study.reading.load(exported[0])
    drawn = study.page.figures.frontier(tables)
    texts = {piece.text for piece in drawn.pieces if isinstance(piece, Words)}
    assert {"Saliency", "Grad-CAM"} <= texts
    one = tables.cells["network"].iloc[0]
    fewer = tables.cells[~((tables.cells["network"] == one) & (tables.cells["base"] == "saliency"))]
    drawn = study.page.figures.frontier(dataclasses.replace(tables, cells=fewer))
    texts = {piece.text for piece in drawn.pieces if isinstance(piece, Words)}
    assert "Grad-CAM" in texts and "Saliency" not in texts


def test_boards_have_the_ranks_of_the_product(study, exported):
    folder, runs = exported
    text = study.leaderboard.page(study.reading.load(folder))
    ranked = (
        runs[0].ranking().query("evaluation == 'stability' and explainer == 'grad_cam'").iloc[0]
    )
    low, high = int(ranked.rank_low), int(ranked.rank_high)
    score = f"{ranked.score:.2f}".replace("-", "−")
    shown = f"**{score}**" if low == 1 else score
    own = text[text.index("## Stability") :].split("| Grad-CAM |")[1].splitlines()[0]
    assert (
        own.split("|")[0].strip()
        == f"{shown} <small>{low if low == high else f'{low}–{high}'}</small>"
    )


def test_a_method_whose_maps_are_all_constant_is_no_part(study, tables):
    """The gradient of a bag of words is the same for every word: no score, and nothing said of it."""
    about = {
        "network": "net",
        "axis": "symmetry",
        "condition": "permutation",
        "low": 0.0,
        "high": 0.0,
    }
    rows = [{**about, "measure": "model_change", "base": "saliency", "mean": 0.0}]
    for name, score in (("saliency", np.nan), ("integrated_gradients", 1.0)):
        rows.append(
            {
                **about,
                "measure": "equivariance",
                "base": name,
                "mean": score,
                "low": score,
                "high": score,
            }
        )
    given = dataclasses.replace(tables, cells=pd.DataFrame(rows))
    found = study.claims_invariance.TESTS["inv-gradients"](given).parts
    assert [part.label for part in found if "net" in part.label] == ["net, integrated_gradients"]


def test_a_sample_of_two_runs_is_one(study, tables):
    """Of a sample that was asked twice a correlation has one value; cells are those of the run of more samples."""
    random, rows = np.random.default_rng(4), []
    for i in range(30):
        about = {
            "network": "net",
            "explainer": "lime",
            "axis": "symmetry",
            "sample": f"s{i}",
            "condition": "cyclic",
        }
        for measure, value in (
            ("max_sensitivity", random.normal()),
            ("equivariance", random.normal()),
        ):
            rows += [{**about, "measure": measure, "value": value}] * (1 + i % 2)
    (part,) = study.claims_invariance.sensitivity(
        dataclasses.replace(tables, values=pd.DataFrame(rows))
    ).parts
    once = (
        pd.DataFrame(rows)
        .drop_duplicates()
        .pivot(index="sample", columns="measure", values="value")
    )
    expected = stats.pearsonr(once["max_sensitivity"], once["equivariance"])
    ends = expected.confidence_interval(0.95)
    assert (part.value, part.low, part.high) == pytest.approx((expected.statistic, *ends), abs=1e-4)
    twice = tables.cells[
        (tables.cells["network"] == "ecg-circular") & (tables.cells["base"] == "car, features")
    ]
    assert set(twice["run"]) == {"ecg_concepts.other"} and twice["attempted"].min() > 24


def test_concepts_are_compared_after_as_many_elements(study, tables):
    about = {
        "network": "net",
        "axis": "symmetry",
        "measure": "invariance",
        "condition": "symmetrised",
    }
    rows = []
    for i, level in enumerate(np.linspace(0.2, 0.8, 12)):
        for n, name, value in (
            (4.0, "car", level + 0.1),
            (4.0, "cav", level + 0.001 * i),
            (16.0, "car", 1.0),
            (16.0, "cav", 1.0),
        ):
            rows.append(
                {
                    **about,
                    "severity": n,
                    "explainer": f"{name}, features",
                    "sample": f"s{i}",
                    "value": value,
                }
            )
    rows.append({**rows[0], "explainer": "random", "value": 0.0})
    found = study.claims_invariance.car_first(
        dataclasses.replace(tables, values=pd.DataFrame(rows))
    )
    assert [p.label for p in found.parts] == ["net, n = 4"]  # after 16 both are 1
    assert (
        found.parts[0].value == pytest.approx(0.1 - 0.0055)
        and 0.09 < found.parts[0].low < found.parts[0].high < 0.1
    )


@pytest.mark.parametrize(("own", "verdict"), [(0.9, "holds"), (0.35, "does not")])
def test_the_best_over_all_axes_leads_every_other(study, tables, own, verdict):
    generator, rows = np.random.default_rng(0), []
    scores = {"expected_gradients": own, "saliency": 0.1, "lime": 0.3, "lrp": 0.5}
    for kind in range(6):
        for axis, measure in (
            ("stability", "fass"),
            ("faithfulness", "road"),
            ("certificate", "rate"),
        ):
            about = {
                "network": f"n{kind}",
                "data": f"d{kind}",
                "architecture": "a",
                "variant": "plain",
            }
            about |= {"axis": axis, "measure": measure, "modality": "image", "control": False}
            rows += [
                {**about, "base": m, "best": s + 0.06 * generator.normal()}
                for m, s in scores.items()
            ]
    found = study.claims_road.expected_gradients(
        dataclasses.replace(tables, cells=pd.DataFrame(rows))
    )
    assert {p.label for p in found.parts} == {"than saliency", "than lime", "than lrp"}
    assert study.claims.verdict(study.claims.widened(found)) == verdict


def test_smoothing_is_compared_within_a_sample(study, tables):
    about = {
        "network": "net",
        "axis": "smoothing",
        "measure": "rate",
        "modality": "image",
        "explainer": "lime",
    }
    rows, levels = [], np.linspace(0.1, 0.9, 12)
    for i, level in enumerate(levels):
        for condition, value in (
            ("λ=1", level),
            ("λ=0.5", level - 0.05 - 0.002 * (i % 2)),
            ("λ=0.25", 0.0),
        ):
            rows.append(
                {
                    **about,
                    "condition": condition,
                    "severity": 1.0,
                    "sample": f"s{i}",
                    "value": value,
                }
            )
    found = study.claims_soft.smoothing("rate", 0.0, "")(
        dataclasses.replace(tables, values=pd.DataFrame(rows))
    )
    (part,) = found.parts
    assert (
        part.label == "net"
        and part.value == pytest.approx(-0.051)
        and -0.06 < part.low < part.high < -0.04
    )


def test_data_sets_are_compared_over_networks(study, tables):
    row = {
        "axis": "stability",
        "measure": "fass",
        "modality": "image",
        "variant": "plain",
        "sweep": False,
    }
    row |= {"base": "grad_cam", "condition": "jpeg"}
    scores = {"photographs": [0.5, 0.7], "cifar10": [0.6, 0.8, 0.7]}
    cells = pd.DataFrame(
        {
            **row,
            "data": data,
            "architecture": f"a{i}",
            "mean": value,
            "low": value - 0.01,
            "high": value + 0.01,
        }
        for data, values in scores.items()
        for i, value in enumerate(values)
    )
    (part,) = study.claims_fass.data_order(dataclasses.replace(tables, cells=cells)).parts
    a, b = (np.array(values) for values in scores.values())
    error = np.sqrt(a.var(ddof=1) / 2 + b.var(ddof=1) / 3)
    freedom = error**4 / ((a.var(ddof=1) / 2) ** 2 / 1 + (b.var(ddof=1) / 3) ** 2 / 2)
    half = stats.t.ppf(0.975, freedom) * error
    assert (part.value, part.low, part.high) == pytest.approx((-0.1, -0.1 - half, -0.1 + half))
    (part,) = study.claims_fass.data_order(dataclasses.replace(tables, cells=cells[1:])).parts
    assert np.isnan(part.low)  # one network says nothing of others


# -- a run beside the atlas


ASKED = {"stability": {"stability": {"perturbations": ["jpeg", {"rotation": {"degrees": 15}}]}}}


@pytest.fixture(scope="module")
def own(tmp_path_factory) -> heatproof.Run:
    x, _ = small.pictures(30)
    out = tmp_path_factory.mktemp("own") / "mine"
    return heatproof.evaluate(
        small.model(), {"shapes": x}, ["saliency", "random"], ASKED, out, show_progress=False
    )


@pytest.fixture
def there(own, study) -> pd.DataFrame:
    """The scores of an atlas of networks whose scores are the run's own, moved up and down."""
    rows = study.beside.headline_scores(own).rename(
        columns={
            "level": "severity",
            "score": "best",
            "score_low": "best_low",
            "score_high": "best_high",
        }
    )
    scores, moved = ["mean", "low", "high", "best", "best_low", "best_high"], []
    for i, distance in enumerate((-5.0, 0.0, 0.001, 7.0)):
        moved.append(
            rows.assign(network=f"net{i}", run="r", **{k: rows[k] + distance for k in scores})
        )
    cells = pd.concat(moved, ignore_index=True).assign(data="d", n=12)
    cells = cells[~((cells["condition"] == "jpeg") & (cells["explainer"] == "random"))]
    return study.beside.atlas_scores(SimpleNamespace(cells=cells))


def test_a_run_is_above_and_below_the_networks_whose_intervals_it_does_not_touch(study, own, there):
    found = study.beside.beside_atlas(own, there)
    assert len(found) == 4
    for r in found.itertuples():
        like = there[(there["condition"] == r.condition) & (there["explainer"] == r.explainer)]
        assert (
            r.networks
            == len(like)
            == (0 if (r.condition, r.explainer) == ("jpeg", "random") else 4)
        )
        assert r.above == int((r.low > like["high"]).sum()) == (1 if r.networks else 0)
        assert r.below == int((r.high < like["low"]).sum()) == (1 if r.networks else 0)
        assert not r.networks or (r.least, r.most) == (like["score"].min(), like["score"].max())


def test_the_text_names_what_the_atlas_lacks(study, own, there):
    text = study.beside.atlas_text(own, there)
    assert all(word in text for word in ("networks", "above", "below"))
    lacking = [line for line in text.splitlines() if "in the atlas" in line]
    assert len(lacking) == 1 and "random" in lacking[0] and "jpeg" in lacking[0]


def test_other_settings_are_not_compared(study, own, there):
    others = there.assign(settings="{}")
    found = study.beside.beside_atlas(own, others)
    assert (found["networks"] == 0).all()
    assert "rotation" in study.beside.atlas_text(own, others)


def test_the_command_reads_the_committed_tables(own):
    command = [sys.executable, str(FOLDER / "beside.py"), str(own.path)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "saliency" in done.stdout


@pytest.mark.parametrize(("apart", "below"), [(6e-5, 0), (3e-4, 1)])
def test_what_the_decimals_of_the_table_hide_is_no_difference(study, own, there, apart, below):
    """A score of 1 is 1.0000 there and 0.99999994 here."""
    mine = study.beside.headline_scores(own).drop(columns=["score", "low"])
    moved = (
        there.drop_duplicates(study.beside.KEY)
        .drop(columns=["low", "high"])
        .merge(mine, on=study.beside.KEY)
    )
    moved = moved.assign(low=moved["high"] + apart, high=moved["high"] + 2 * apart)
    found = study.beside.beside_atlas(own, moved)
    assert (found["below"] == below * found["networks"]).all() and found["networks"].sum() == len(
        moved
    ) > 0

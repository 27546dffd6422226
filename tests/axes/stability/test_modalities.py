"""Stability on series and tables: references by hand, laws of the perturbations, study files, and what is refused."""

from __future__ import annotations

import pickle
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pandas as pd
import pytest
import torch
from torch import Tensor, nn
from typer.testing import CliRunner

import heatproof
from heatproof import Batch, Model, Stability, UserError, cli, open_data, perturbations, similarity
from heatproof.axes.stability.perturbations import (
    ColumnNoise,
    ColumnSwap,
    Jitter,
    Scaling,
    TimeShift,
    milder,
)
from heatproof.errors import make
from heatproof.rand import keys, normal
from heatproof.runs.references import load_references
from heatproof.runs.tables import KEY
from heatproof.testing import assert_holds
from heatproof.testing.check import check as gate
from heatproof.testing.requirement import parse_all
from support.modalities import case

UNITS = torch.tensor([1.0, 20.0, 300.0, 0.05, 1.0])
# One entry per registered name; a new perturbation must be added here.
SERIES = {
    "jitter": Jitter(sigma=0.3),
    "scaling": Scaling(factor=1.5),
    "time_shift": TimeShift(steps=-3),
}
TABLES = {"column_noise": ColumnNoise(sigma=0.5), "column_swap": ColumnSwap(fraction=0.4)}
METHODS = ["saliency", "smoothgrad", "random"]
EVERY_SERIES = Stability(perturbations=["identity", "series-mild"])
EVERY_TABLE = Stability(perturbations=["identity", "table-mild", "column_swap"])


def waves(n: int, seed: int = 5) -> Tensor:
    return torch.randn(n, 2, 40, generator=torch.Generator().manual_seed(seed)).cumsum(2) / 4


def rows(n: int, seed: int = 3) -> Tensor:
    """Rows of five columns with units of their own, and one of flags."""
    g = torch.Generator().manual_seed(seed)
    return torch.cat(
        [
            UNITS * (1 + torch.randn(n, 5, generator=g)),
            (torch.rand(n, 1, generator=g) > 0.5).float(),
        ],
        1,
    )


def batch_of(x: Tensor) -> Batch:
    return Batch(tuple(f"sample-{i}" for i in range(len(x))), x)


def convolutional() -> Model:
    with torch.random.fork_rng():
        torch.manual_seed(6)
        layers = (
            nn.Conv1d(2, 6, 5, padding=2),
            nn.ReLU(),
            nn.AdaptiveAvgPool1d(4),
            nn.Flatten(),
            nn.Linear(24, 3),
        )
        return Model(nn.Sequential(*layers), name="waves")


def tabular() -> Model:
    with torch.random.fork_rng():
        torch.manual_seed(7)
        net = nn.Sequential(nn.Linear(6, 8), nn.Tanh(), nn.Linear(8, 3))
        with torch.no_grad():
            net[0].weight[:, :5] /= UNITS
        return Model(net, name="rows")


@pytest.fixture(scope="module")
def series() -> pd.DataFrame:
    return heatproof.evaluate(
        convolutional(), waves(7), METHODS, EVERY_SERIES, batch_size=16
    ).table()


@pytest.fixture(scope="module")
def table() -> pd.DataFrame:
    return heatproof.evaluate(tabular(), rows(7), METHODS, EVERY_TABLE, batch_size=16).table()


# ------------------------------------------------------------------------------------ references by hand


def ssim_by_loops(a: np.ndarray, b: np.ndarray, valid: np.ndarray, inside: bool) -> float:
    """Windows of 11 steps along each row of (C, T), stride 1, zeros around; the mean over the valid places."""

    def unit(m: np.ndarray) -> np.ndarray:
        part = m[:, valid]
        return np.where(valid, (m - part.min()) / (part.max() - part.min()), 0)

    x, y, found = unit(a), unit(b), []
    for c in range(len(x)):
        for t in np.flatnonzero(valid):
            if inside and not 5 <= t < x.shape[1] - 5:
                continue
            u, v = (
                np.array([m[c, i] if 0 <= i < m.shape[1] else 0 for i in range(t - 5, t + 6)])
                for m in (x, y)
            )
            c1, c2, covariance = 0.01**2, 0.03**2, (u * v).mean() - u.mean() * v.mean()
            top = (2 * u.mean() * v.mean() + c1) * (2 * covariance + c2)
            found.append(top / ((u.mean() ** 2 + v.mean() ** 2 + c1) * (u.var() + v.var() + c2)))
    return float(np.mean(found))


@pytest.mark.parametrize(("channels", "steps"), [(1, 25), (3, 14)])
def test_ssim_of_series_is_that_of_brute_force(channels: int, steps: int) -> None:
    a, b = torch.randn(2, 2, channels, steps, generator=torch.Generator().manual_seed(steps))
    everywhere, some = np.ones(steps, bool), np.arange(steps) >= 3
    for padding in ("zero", "valid"):
        expected = [
            ssim_by_loops(*pair, everywhere, padding == "valid")
            for pair in zip(a.numpy(), b.numpy(), strict=True)
        ]
        assert np.allclose(similarity.ssim(a, b, padding=padding, dims=1), expected, atol=1e-5)
    mask = torch.from_numpy(some).view(1, 1, -1).expand(2, 1, -1)
    p, q = (similarity.profile(m, 0.1, valid=mask, dims=1) for m in (a, b))
    expected = [
        ssim_by_loops(*pair, some, False) for pair in zip(a.numpy(), b.numpy(), strict=True)
    ]
    assert np.allclose(similarity.compare(p, q)["ssim"], expected, atol=1e-5)
    crossed = similarity.compare_all(p, q)["ssim"]
    assert crossed[1, 0].item() == pytest.approx(
        ssim_by_loops(a[1].numpy(), b[0].numpy(), some, False), abs=1e-5
    )
    if channels == 1:
        assert torch.equal(similarity.ssim(a, b, dims=1), similarity.ssim(a[:, 0], b[:, 0]))


def test_perturbations_are_their_formulas() -> None:
    batch, wave = batch_of(rows(9)), batch_of(waves(4))
    x, w = batch.x.numpy(), wave.x.numpy()
    z = normal(keys(3, wave.ids, "jitter"), (2, 40)).numpy()
    assert np.allclose(Jitter(0.3)(wave, 3), w + 0.3 * w.std(2, keepdims=True) * z, atol=1e-6)
    middle = w.mean(2, keepdims=True)
    assert np.allclose(Scaling(1.5)(wave, 0), middle + 1.5 * (w - middle), atol=1e-6)
    for steps in (3, -3):
        source = [min(max(t - steps, 0), 39) for t in range(40)]
        moved, valid = TimeShift(steps).move(wave.x, wave.ids, 0)
        shifted = TimeShift(steps)(wave, 0)
        assert np.array_equal(shifted, w[:, :, source])
        assert valid.shape == (4, 1, 40) and int(valid.sum()) == 4 * 37
        assert torch.equal(moved.masked_select(valid), shifted.masked_select(valid))
    noise = perturbations.bound(ColumnNoise(0.5), batch)
    spread = np.append(x[:, :5].std(0), 0)  # flags stay
    z = normal(keys(3, batch.ids, "column_noise"), (6,)).numpy()
    assert np.allclose(noise(batch, 3), x + 0.5 * spread * z, rtol=1e-4)
    given = ColumnNoise(0.5, scale=(1, 0, 0, 0, 0, 2))
    assert perturbations.bound(given, batch) is given
    assert np.allclose(
        given(batch, 3).numpy() - x, 0.5 * np.array([1, 0, 0, 0, 0, 2]) * z, atol=1e-4
    )
    gaps = Batch(("a", "b", "c"), torch.tensor([[1.0, torch.nan], [3.0, 4.0], [torch.nan, 8.0]]))
    assert ColumnNoise().bound(gaps).scale == (1.0, 2.0)
    swapped = ColumnSwap(0.4).bound(batch[:3])(batch, 3)
    for i in range(9):
        others = [r for r in range(3) if r != i]
        took = [r for r in others if all(swapped[i, c] in (x[i, c], x[r, c]) for c in range(6))]
        assert took, "one other row gives all the values"
        assert int((swapped[i] != batch.x[i]).sum()) == 2
    assert torch.equal(ColumnSwap().bound(batch[:1])(batch[:1], 3), batch.x[:1])
    kinds = torch.eye(3)[[0, 1, 2, 0, 1, 2, 0, 1, 2]]
    owner = torch.tensor([0, 1, 1, 1]).expand(9, 4)
    table = Batch(batch.ids, torch.cat([batch.x[:, :1], kinds], 1), {"_columns": owner})
    for fraction, changed in ((0.1, 1), (1.0, 2)):
        mixed = ColumnSwap(fraction).bound(table[:4])(table, 3)
        assert torch.equal(mixed[:, 1:].sum(1), torch.ones(9)), "a category is put in as a whole"
        parts = torch.stack([mixed[:, 0] != table.x[:, 0], (mixed != table.x)[:, 1:].any(1)], 1)
        assert int(parts.sum(1).max()) == changed and bool(parts[:, 1].any())
    almost = Batch(("a", "b"), torch.tensor([[1.0, 2.0, 3.0, 4.0], [1.0, 2.0, 9.0, 4.0]]))
    for fraction in (0.1, 1.0):
        assert torch.equal(ColumnSwap(fraction).bound(almost)(almost, 0), almost.x.flip(0)), (
            "where rows differ"
        )


def test_column_noise_is_measured_by_the_columns_that_vary() -> None:
    x = torch.rand(5, 4, generator=torch.Generator().manual_seed(2))
    x[0, 0] = torch.nan
    x[:, 1] = 3.0
    x[:, 2] = (x[:, 2] > 0.5).float()
    noise = ColumnNoise().bound(Batch(tuple("abcde"), x))
    spread = np.nanstd(x.numpy(), 0)
    assert noise.scale == pytest.approx((spread[0], 0, 0, spread[3]), rel=1e-5)


def test_laws_of_the_perturbations() -> None:
    assert set(SERIES) == set(perturbations.FOR_SERIES) and set(TABLES) == set(
        perturbations.FOR_TABLES
    )
    assert set(perturbations.KNOWN) == {
        *perturbations.PERTURBATIONS,
        *SERIES,
        *TABLES,
        *perturbations.FOR_TEXTS,
    }
    for given, kind, x in ((SERIES, "series", waves(5)), (TABLES, "table", rows(5))):
        batch, references = batch_of(x), Batch(("r", "sample-1"), x[:2] * 1.5)
        for name, perturbation in given.items():
            ready = perturbations.bound(perturbation, references)
            before, out = batch.x.clone(), ready(batch, 7)
            assert out.shape == x.shape and out.dtype == x.dtype and torch.equal(batch.x, before)
            alone = torch.cat([ready(batch[i : i + 1], 7) for i in range(5)])
            assert torch.allclose(out, alone, rtol=1e-6) and not torch.equal(out, x)
            assert torch.allclose(ready(batch[[3, 0, 4, 1, 2]], 7), out[[3, 0, 4, 1, 2]], rtol=1e-6)
            assert torch.equal(out, ready(batch, 8)) is not perturbation.stochastic
            assert type(perturbation) is perturbations.KNOWN[name] and perturbation.name == name
            assert name in perturbations.INSTEAD[kind] and perturbation.kind == kind
            assert perturbations.is_geometric(perturbation) is (perturbation.family == "geometric")
            assert perturbations.condition(perturbation) == name and milder(
                name, perturbations.level(perturbation)
            )
    for name, preset in perturbations.KNOWN_PRESETS.items():
        kinds = {p.kind for p in preset}
        assert kinds == {{"series-mild": "series", "table-mild": "table"}.get(name, "image")}
    assert "0.1" in perturbations.title("column_swap", 0.1)


# ------------------------------------------------------------------------------------------ the axis


def wide(frame: pd.DataFrame) -> pd.DataFrame:
    return frame.pivot(
        index=["explainer", "condition", "level", "sample"], columns="measure", values="value"
    )


@pytest.mark.parametrize("kind", ["series", "table"])
def test_scores_by_hand_and_the_identity_is_one(kind: str, request: pytest.FixtureRequest) -> None:
    frame: pd.DataFrame = request.getfixturevalue(kind)
    model, x = (convolutional(), waves(7)) if kind == "series" else (tabular(), rows(7))
    axis = EVERY_SERIES if kind == "series" else EVERY_TABLE
    batch = Batch(tuple(sorted(frame["sample"].unique())), x)
    assert not frame.duplicated(KEY).any()
    assert set(zip(frame.condition, frame.level, strict=True)) == {
        *axis.conditions(),
        ("redraw", 0.0),
    }
    components = ["spearman", "jaccard"] if kind == "table" else ["ssim", "spearman", "jaccard"]
    found = wide(frame)
    assert ("ssim" in found) is (kind == "series")
    assert ("fass_unaligned" in found) is (kind == "series"), "a shift in time moves the series"
    checks = ["identity_check", *(f"identity_check_{component}" for component in components)]
    assert (found.xs("identity", level="condition")[checks] == 1).all(axis=None)
    assert np.allclose(found["fass"], found[components].mean(axis=1), equal_nan=True)
    references = load_references(open_data(batch), 0)
    target = model.logits(x).argmax(1)
    clean = heatproof.Saliency()(model, batch, target, 0)
    for perturbation in axis.perturbations[1:]:
        changed = batch.with_x(perturbations.bound(perturbation, references)(batch, 0))
        kept = (model.logits(changed.x).argmax(1) == target).tolist()
        maps = heatproof.Saliency()(model, changed, target, 0)
        where = (perturbations.condition(perturbation), perturbations.level(perturbation))
        here = frame[
            (frame.explainer == "saliency")
            & (frame.condition == where[0])
            & (frame.level == where[1])
        ]
        assert [
            s == "ok" for s in here[here.measure == "fass"].sort_values("sample").status
        ] == kept
        for i in np.flatnonzero(kept):
            row = here[here["sample"] == batch.ids[i]].set_index("measure").value
            if "fass_unaligned" in row:
                row = row.filter(like="_unaligned").rename(
                    lambda name: name.removesuffix("_unaligned")
                )
            pair = clean[i].flatten(), maps[i].flatten()
            rho = pd.Series(pair[0]).corr(pd.Series(pair[1]), method="spearman")
            assert row["spearman"] == pytest.approx((rho + 1) / 2, abs=1e-5)
            top = [
                set(m.argsort(descending=True)[: max(1, round(0.1 * len(m)))].tolist())
                for m in pair
            ]
            assert row["jaccard"] == pytest.approx(len(top[0] & top[1]) / len(top[0] | top[1]))
            if kind == "series":
                expected = ssim_by_loops(
                    clean[i].numpy(), maps[i].numpy(), np.ones(40, bool), False
                )
                assert row["ssim"] == pytest.approx(expected, abs=1e-5)


def test_weights_of_a_table_share_the_whole_between_two() -> None:
    axis = Stability(weights=(5, 3, 1))
    found = wide(heatproof.evaluate(tabular(), rows(5), ["saliency"], axis).table())
    assert np.allclose(found["fass"], 0.75 * found["spearman"] + 0.25 * found["jaccard"])


def test_a_map_that_moves_with_the_series_is_aligned() -> None:
    with torch.random.fork_rng():
        torch.manual_seed(0)
        layers = (
            nn.Conv1d(2, 6, 1),
            nn.Tanh(),
            nn.AdaptiveAvgPool1d(1),
            nn.Flatten(),
            nn.Linear(6, 2),
        )
    axis = Stability(perturbations={"time_shift": {"steps": [2, -7]}})
    frame = heatproof.evaluate(nn.Sequential(*layers), waves(6), ["saliency"], axis).table()
    found = frame[frame.status == "ok"].groupby("measure").value.mean()
    for measure in ("ssim", "spearman", "jaccard", "fass"):
        assert found[measure] == pytest.approx(1, abs=1e-4)
    assert found["fass_unaligned"] < 0.9
    assert (frame[frame.measure == "fass"].chance.dropna() < 0.9).all()


@pytest.mark.parametrize("kind", ["series", "table"])
def test_batches_shards_and_order_change_nothing(kind: str, request: pytest.FixtureRequest) -> None:
    first = request.getfixturevalue(kind).set_index(KEY)
    model, x = (convolutional(), waves(7)) if kind == "series" else (tabular(), rows(7))
    axis = EVERY_SERIES if kind == "series" else EVERY_TABLE
    ids = np.array(sorted(first.index.unique("sample")))
    order = [4, 1, 6, 0, 3, 5, 2]
    shuffled = Batch(tuple(ids[order]), x[order])
    again = heatproof.evaluate(
        model, {"data": shuffled}, METHODS, axis, batch_size=2, shard_size=3
    ).table()
    second = again.set_index(KEY).reindex(first.index)
    assert (first.status == second.status).all() and (first.value - second.value).abs().max() < 1e-4


def test_what_is_left_open_is_chosen_for_the_data() -> None:
    wave, row = (convolutional(), batch_of(waves(1))), (tabular(), batch_of(rows(1)))
    picture = (Model(nn.Flatten()), batch_of(torch.rand(1, 3, 64, 64)))
    presets = perturbations.KNOWN_PRESETS
    assert Stability().configured_for(*picture) == Stability(perturbations="fass-paper", k=100)
    assert Stability(perturbations="mild").configured_for(*picture) == Stability(
        perturbations="fass-mild", k=100
    )
    for given in (Stability(), Stability(perturbations="mild")):
        assert given.configured_for(*wave) == Stability(perturbations=presets["series-mild"], k=0.1)
        assert given.configured_for(*row) == Stability(perturbations=presets["table-mild"], k=0.1)
    chosen = Stability(k=3).configured_for(*row)
    assert chosen.k == 3 and chosen.configured_for(*row) == chosen
    named = Stability(perturbations="column_swap")
    assert named.configured_for(*row) == Stability(perturbations="column_swap", k=0.1)


@dataclass(frozen=True)
class Own:
    change: Any
    name: ClassVar[str] = "own"
    stochastic: ClassVar[bool] = False

    def __call__(self, batch: Batch, seed: int) -> Any:
        return self.change(batch.x)


@pytest.mark.parametrize(("x", "value"), [(1.5, "1.5"), (-0.5, "-0.5")])
def test_volumes_out_of_range_are_refused(x: float, value: str) -> None:
    volumes = torch.rand(2, 1, 8, 8, 8, generator=torch.Generator().manual_seed(0))
    volumes[0, 0, 0, 0, 0] = x
    with pytest.raises(UserError, match=rf"\[0, 1\].*{value}"):
        Stability().configured_for(Model(nn.Flatten()), batch_of(volumes))


def test_k_must_leave_values_out() -> None:
    picture = (Model(nn.Flatten()), batch_of(torch.rand(1, 3, 8, 8)))
    Stability(k=191, perturbations="contrast").configured_for(*picture)
    with pytest.raises(UserError, match=r"k .*192"):
        Stability(k=192, perturbations="contrast").configured_for(*picture)


def test_without_rows_to_swap_with_a_row_stays() -> None:
    batch = batch_of(rows(2))
    assert torch.equal(ColumnSwap().bound(batch[:0])(batch, 0), batch.x)
    assert not torch.equal(ColumnSwap().bound(batch)(batch, 0), batch.x)


def test_what_makes_no_sense_is_refused_before_any_pass() -> None:
    row, wave = (tabular(), rows(3)), (convolutional(), waves(3))
    pictures = (
        Model(nn.Flatten()),
        torch.rand(2, 3, 16, 16, generator=torch.Generator().manual_seed(0)),
    )
    sets, graphs, texts = (case(name)[:2] for name in ("set", "graph", "tokens"))
    cases: list[tuple[tuple[Model, Any], Stability, str]] = [
        (
            wave,
            Stability(perturbations="jpeg"),
            r"jpeg.*2, 40.*series.*jitter, scaling",
        ),
        (
            wave,
            Stability(perturbations="column_noise"),
            r"column_noise.*series.*jitter",
        ),
        (
            row,
            Stability(perturbations="fass-mild"),
            r"rotation.*tables.*column_noise",
        ),
        (
            row,
            Stability(perturbations="jitter"),
            r"jitter.*B, 6\).*tables.*column_noise",
        ),
        (
            pictures,
            Stability(perturbations="table-mild"),
            r"column_noise.*images.*rotation",
        ),
        (
            wave,
            Stability(perturbations={"time_shift": {"steps": -40}}),
            r"-40 steps.*series.* 40",
        ),
        (
            row,
            Stability(perturbations=ColumnNoise(scale=(1.0, 2.0))),
            r"scale.*2.*6",
        ),
        (row, Stability(weights=(1, 0, 0)), r"table.*ssim"),
        (row, Stability(k=6), r"k .*6"),
        (sets, Stability(), r"set.*permutation"),
        (graphs, Stability(), r"graph.*features: elements"),
        (
            texts,
            Stability(),
            r"(text|token).*white_space",
        ),
    ]
    for (model, data), axis, why in cases:
        with pytest.raises(UserError, match=why):
            heatproof.evaluate(model, data, ["random"], axis)
        assert model.passes == 0, why
    with pytest.raises(
        UserError,
        match=r"images.*2, 3, 4, 5, 6",
    ):
        Stability().configured_for(Model(nn.Flatten()), batch_of(torch.rand(1, 2, 3, 4, 5, 6)))
    with pytest.raises(UserError, match="weight"):
        make(Stability, "stability", {"weights": [0, 0, 0]})
    for wrong, given in ((lambda x: x[:, :3], r"\(3, 3\)"), (lambda x: x.tolist(), "list")):
        with pytest.raises(UserError, match=rf"'own'.*{given}.*\(3, 6\)"):
            heatproof.evaluate(
                *row, ["random"], Stability(perturbations=Own(wrong), noise_floor=False)
            )
    with pytest.raises(UserError, match=r"column_noise|column_swap"):
        heatproof.evaluate(tabular(), rows(3)[:1], ["random"])
    for unbound in (ColumnNoise(), ColumnSwap()):
        with pytest.raises(UserError, match=r"bound\(rows\)"):
            unbound(batch_of(rows(2)), 0)


# -------------------------------------------------------------------------------- from a study file on

NETS = """
import pickle
from pathlib import Path
from torch import nn
def series():
    return nn.Sequential(nn.Conv1d(1, 4, 3), nn.ReLU(), nn.AdaptiveAvgPool1d(4), nn.Flatten(), nn.Linear(16, 2))
def table():
    return pickle.loads((Path(__file__).parent / "made.pkl").read_bytes())
"""
EXPLAINERS = {
    "series": "[saliency, random]",
    "table": "[{feature_ablation: {features: pixels}}, random]",
}


@pytest.mark.parametrize("kind", ["series", "table"])
def test_a_study_file_that_only_names_the_axis(kind: str, tmp_path: Path) -> None:
    (tmp_path / "nets.py").write_text(NETS)
    values = np.random.default_rng(0).normal(size=(12, 5 if kind == "table" else 30)).round(3)
    if kind == "table":
        forest = pytest.importorskip("sklearn.ensemble", reason="scikit-learn is not installed")
        made = forest.RandomForestClassifier(8, random_state=0).fit(
            values, values[:, 0] + values[:, 1] > 0
        )
        (tmp_path / "made.pkl").write_bytes(pickle.dumps(made))
    (tmp_path / "data.tsv").write_text(
        "\n".join("\t".join(map(str, [i % 2, *r])) for i, r in enumerate(values))
    )
    data = "{source: data.tsv, shape: [5]}" if kind == "table" else "data.tsv"
    study = f"model: python:nets.py:{kind}\ndata: {data}\nexplainers: {EXPLAINERS[kind]}\nevaluations:\n  - stability\n"
    (tmp_path / "study.yaml").write_text(study)
    out = tmp_path / "run"
    with torch.random.fork_rng():
        torch.manual_seed(0)
        done = CliRunner().invoke(
            cli.app, ["run", str(tmp_path / "study.yaml"), "--allow-code", "--out", str(out)]
        )
    assert done.exit_code == 0, done.output
    run = heatproof.read(out)
    axis = run.manifest.study.evaluation("stability").parameters
    names = (
        ["jitter", "scaling", "time_shift"]
        if kind == "series"
        else ["column_noise", "column_noise"]
    )
    assert [item["name"] for item in axis["perturbations"]] == names and axis["k"] == 0.1
    frame = run.table()
    pairs = frame[frame.condition != "redraw"]
    assert set(pairs.condition) == set(names)
    assert (pairs[pairs.measure == "fass"].status == "ok").mean() > 0.5
    page = (out / "report.html").read_text()
    places = "time steps" if kind == "series" else "columns"
    assert f"most important {places}" in page and "most important pixels" not in page
    assert ("SSIM" in page) is (kind == "series")
    shown = CliRunner().invoke(cli.app, ["show", str(out)])
    assert shown.exit_code == 0 and names[0].split("_")[0] in shown.output
    wishes = parse_all(
        ["stability.fass{explainer=random} >= 0.01 @ 0.9", "stability.spearman.calibrated <= 2"]
    )
    assert all(outcome.passed for outcome in gate(run, wishes, None))


def test_assertions_on_a_table() -> None:
    mild = Stability(perturbations="table-mild", k=0.3)
    assert assert_holds(tabular(), rows(30), "saliency", "stability.fass >= 0.5 @ 0.95", mild)[
        0
    ].passed
    with pytest.raises(AssertionError, match=r"random.*0\.9"):
        assert_holds(tabular(), rows(12), "random", "stability.fass{explainer=random} >= 0.9", mild)

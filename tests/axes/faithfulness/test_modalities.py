"""Faithfulness on series, tables and texts: exact on linear models, by hand on others, and from a study file."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from torch import Tensor, nn
from typer.testing import CliRunner

import heatproof
from heatproof import Batch, Faithfulness, Model, UserError, cli, removal
from heatproof.axes.faithfulness.curves import readouts
from heatproof.axes.faithfulness.sweeps import bound, removal_ranks, removal_sizes, resolve_imputers
from heatproof.features import Pixels, Tokens, Windows
from heatproof.removal import Hidden, ReferenceMean
from heatproof.runs.tables import KEY
from support.modalities import case

UNITS = torch.tensor([1.0, 20.0, 300.0, 0.05, 1.0])
BOTH = ["reference_mean", "zero"]
METHODS = ["input_x_gradient", "random"]


def rows(n: int) -> Tensor:
    """Rows of five columns with units of their own."""
    return UNITS * (1 + torch.randn(n, 5, generator=torch.Generator().manual_seed(3)))


def linear() -> Model:
    net = nn.Linear(5, 3, bias=False)
    with torch.no_grad():
        net.weight.copy_(torch.randn(3, 5, generator=torch.Generator().manual_seed(4)) / UNITS)
    return Model(net, name="linear")


def waves(n: int) -> Tensor:
    return torch.randn(n, 2, 40, generator=torch.Generator().manual_seed(5)).cumsum(2) / 4


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
        return Model(nn.Sequential(*layers), name="waves", rows=8)


@pytest.fixture(scope="module")
def tables() -> pd.DataFrame:
    axis = Faithfulness(imputers=BOTH)
    return heatproof.evaluate(linear(), rows(40), ["input_x_gradient", "random"], axis).table()


@pytest.fixture(scope="module")
def series() -> pd.DataFrame:
    return heatproof.evaluate(
        convolutional(), waves(6), METHODS, Faithfulness(masks=8), batch_size=16
    ).table()


def part(table: pd.DataFrame, **where: Any) -> pd.DataFrame:
    for column, value in where.items():
        table = table[table[column] == value]
    return table.sort_values("sample")


def test_the_deletion_curve_of_a_linear_model_of_a_table_is_known_exactly() -> None:
    x, model = rows(6), linear()
    table = heatproof.evaluate(model, x, METHODS, Faithfulness()).table()
    weight, mean = model.module.weight.detach(), x.mean(0)  # six rows are all among the references
    logits = x @ weight.T
    target = logits.argmax(1)
    order = (x * weight[target]).argsort(1, descending=True)
    for fraction, size in zip(Faithfulness().fractions, (1, 1, 2, 2, 3, 4, 5), strict=True):
        filled = x.scatter(1, order[:, :size], mean.expand(6, 5).gather(1, order[:, :size]))
        expected = (filled @ weight.T).gather(1, target[:, None])[:, 0]
        where = {
            "explainer": "input_x_gradient",
            "condition": "reference_mean morf",
            "level": fraction,
        }
        found = part(table, measure="logit", **where)
        assert np.allclose(found.value, expected, atol=1e-4), fraction
    exact = table[(table.explainer == "input_x_gradient") & (table.condition == "own_baseline")]
    assert part(exact, measure="infidelity").value.max() < 1e-8
    correlations = exact[exact.measure.isin(["sensitivity_n", "faithfulness_correlation"])]
    assert len(correlations) == 18 and np.allclose(correlations.value, 1)


def test_rows_of_series_are_what_the_model_says_of_series_imputed_by_hand(
    series: pd.DataFrame,
) -> None:
    model, x = convolutional(), waves(6)
    batch = Batch(tuple(sorted(series["sample"].unique())), x)
    target = model.logits(x).argmax(1)
    maps = heatproof.InputXGradient()(model, batch, target, 0).sum(1).double()
    for order in ("morf", "lerf"):
        ranks = removal_ranks(maps, torch.full((6,), 40), batch.ids, order, 0)
        for fraction in (0.1, 0.5, 0.9):
            size = int(removal_sizes((fraction,), torch.tensor([40])))
            filled = removal.NoisyLinear()(x, ranks >= size, batch.ids, 0)
            found = readouts(model.logits(filled)[:, None], target)
            here = part(
                series,
                explainer="input_x_gradient",
                condition=f"noisy_linear {order}",
                level=fraction,
            )
            for name, value in found.items():
                got = here[here.measure == name].value
                assert np.allclose(got, value[:, 0].detach().numpy(), atol=1e-4), (
                    order,
                    fraction,
                    name,
                )


@pytest.mark.parametrize("steps", [30, 400])
def test_noisy_linear_in_one_dimension_solves_the_dense_system(steps: int) -> None:
    g = torch.Generator().manual_seed(steps)
    x, keep = torch.randn(3, 2, steps, generator=g), torch.rand(3, steps, generator=g) > 0.7
    keep[0, :4], keep[1, -3:], keep[:, steps // 2] = False, False, True
    filled = removal.NoisyLinear(sigma=0.0)(x, keep)
    for i in range(3):
        gone = (~keep[i]).numpy()
        side = np.eye(steps, k=1) + np.eye(
            steps, k=-1
        )  # equal weights for the neighbours that exist
        matrix = np.diag(side.sum(1)) - side
        known = np.where(gone, 0, x[i].double().numpy())
        solved = np.linalg.solve(matrix[np.ix_(gone, gone)], (side @ known.T)[gone])
        assert np.allclose(filled[i][:, gone].T, solved, atol=1e-4)
        assert torch.equal(filled[i][:, keep[i]], x[i][:, keep[i]])
    more = keep & (torch.rand(3, steps, generator=g) > 0.3) | (torch.arange(steps) == steps // 2)
    noise = [
        removal.NoisyLinear()(x, k) - removal.NoisyLinear(sigma=0.0)(x, k) for k in (keep, more)
    ]
    both = (~keep & ~more)[:, None].expand_as(x)
    assert torch.allclose(noise[0][both], noise[1][both], atol=1e-5), (
        "nested masks share their noise"
    )
    assert noise[0][both].std() == pytest.approx(0.01, rel=0.3)


@pytest.mark.parametrize("kind", ["series", "tables"])
def test_what_a_configured_axis_announces_is_what_comes(
    kind: str, request: pytest.FixtureRequest
) -> None:
    table = request.getfixturevalue(kind)
    model, x = (convolutional(), waves(1)) if kind == "series" else (linear(), rows(1))
    axis = (Faithfulness() if kind == "series" else Faithfulness(imputers=BOTH)).configured_for(
        model, Batch(("a",), x)
    )
    assert axis.segments == (Windows(2) if kind == "series" else Pixels())
    assert axis.configured_for(model, Batch(("a",), x)) == axis
    assert set(zip(table.condition, table.level, strict=True)) == set(axis.conditions())
    assert not table.duplicated(KEY).any() and set(
        table[table.measure != "detectability"].status
    ) == {"ok"}
    given = Faithfulness(imputers="zero", segments=Windows(4), baseline="value")
    assert given.configured_for(model, Batch(("a",), x)) == replace(
        given, against="prediction", readout="probability"
    )


def test_a_random_map_is_near_chance_and_a_good_one_is_not(tables: pd.DataFrame) -> None:
    mean = tables.groupby(["condition", "measure", "explainer"]).value.mean().unstack()
    good, chance = mean["input_x_gradient"], mean["random"]
    at_random = tables.groupby(["measure", "condition"]).chance.mean()
    assert good["zero", "road"] > 0.15
    for condition in ("zero", "reference_mean"):
        assert abs(chance[condition, "road"]) < 0.06
        assert good[condition, "aopc"] > at_random["aopc", condition]
    for measure in ("sensitivity_n", "faithfulness_correlation"):
        assert abs(chance["own_baseline", measure]) < 0.15 and good["own_baseline", measure] > 0.99
    assert good["own_baseline", "irof"] > at_random["irof", "own_baseline"] + 0.05


def test_batches_and_shards_change_nothing(series: pd.DataFrame) -> None:
    first = series.set_index(KEY)
    axis = Faithfulness(masks=8)
    again = heatproof.evaluate(
        convolutional(), waves(6), METHODS, axis, batch_size=1, shard_size=2
    ).table()
    second = again.set_index(KEY).reindex(first.index)
    assert (first.status == second.status).all() and (first.value - second.value).abs().max() < 2e-4
    x = rows(12)
    whole, parts = (
        heatproof.evaluate(linear(), x, ["saliency"], Faithfulness(), shard_size=s) for s in (12, 5)
    )
    whole, parts = (run.table().set_index(KEY).value for run in (whole, parts))
    assert (whole - parts.reindex(whole.index)).abs().max() < 1e-4


@pytest.mark.parametrize("hiding", [{"mask_token": 2}, {}])
@pytest.mark.parametrize("name", ["tokens", "vectors"])
def test_tokens_are_hidden_and_special_ones_stay(name: str, hiding: dict[str, int]) -> None:
    model, batch, _ = case(name)
    special = int(batch.x[1, 0])
    tokens = Tokens(special=(special,), **hiding)
    axis = Faithfulness(features=tokens, fractions=(0.5,), masks=8)
    methods = [
        {"feature_ablation": {"features": tokens}},
        *(["saliency"] if name == "vectors" else []),
    ]
    table = heatproof.evaluate(model, batch, methods, axis).table()
    assert set(table.condition) == {"hidden morf", "hidden lerf", "hidden random", "hidden"}
    assert set(table[table.measure.isin(["road", "irof", "infidelity"])].status) == {"ok"}
    clean = model.logits(model.inputs(batch), batch.aux)
    target = clean.argmax(1)
    maps = heatproof.FeatureAblation(features=tokens)(model, batch, target, 0)
    free = ~tokens.fixed(batch)
    for i in range(len(batch)):
        places = free[i].nonzero().flatten()
        size = int(0.5 * len(places) + 0.5)
        values = maps[i, places]
        kept = torch.ones_like(free[i])
        kept[places[values.argsort(descending=True)[:size]]] = False
        one = batch[i : i + 1]
        x, aux = tokens.hide(one.x, one.aux, kept[None])
        logits = model.logits(model.inputs(one.with_x(x)), aux)
        where = {"measure": "logit", "condition": "hidden morf", "sample": batch.ids[i]}
        found = part(table[table.explainer.str.startswith("feature_ablation")], **where)
        assert found.value.item() == pytest.approx(logits[0, target[i]].item(), abs=1e-4)


def test_what_makes_no_sense_is_refused_before_any_pass() -> None:
    table, wave = (linear(), rows(3)), (convolutional(), waves(3))
    sets, graphs, texts = (case(name)[:2] for name in ("set", "graph", "tokens"))
    pictures = (Model(nn.Flatten()), torch.rand(2, 3, 8, 8))
    hidden = Faithfulness(features=Tokens(mask_token=2), imputers="zero")
    cases: list[tuple[tuple[Model, Any], Faithfulness, str]] = [
        (
            table,
            Faithfulness(imputers="noisy_linear"),
            r"noisy_linear.*reference_mean",
        ),
        (table, Faithfulness(baseline="blur"), r"blur"),
        (table, Faithfulness(imputers="image_mean"), r"image_mean"),
        (
            table,
            Faithfulness(imputers={"dataset_mean": {"mean": [1, 2]}}),
            r"2 .*5 columns",
        ),
        (table, Faithfulness(segments="superpixels"), r"superpixels.*images"),
        (wave, Faithfulness(features={"windows": {"size": 40}}), r"40 steps"),
        (
            wave,
            Faithfulness(fractions=(1.0,)),
            r"40 features.*noisy_linear",
        ),
        (sets, Faithfulness(), r"set data"),
        (graphs, Faithfulness(), r"graph.*features: elements"),
        (texts, Faithfulness(), r"tokens.*features: \{tokens"),
        (texts, hidden, r"zero.*tokens"),
        (pictures, Faithfulness(imputers="hidden"), r"hidden.*pixels"),
        (
            table,
            Faithfulness(features=Tokens(mask_token=2)),
            r"tokens.*table",
        ),
    ]
    for (model, data), axis, why in cases:
        with pytest.raises(UserError, match=why):
            heatproof.evaluate(model, data, ["random"], axis)
        assert model.passes == 0, why
    batch = Batch(("a",), torch.rand(1, 2, 3, 4, 5, 6))
    with pytest.raises(UserError, match=r"images.*2, 3, 4, 5, 6"):
        Faithfulness().configured_for(Model(nn.Flatten()), batch)
    with pytest.raises(UserError, match="'reference_mean'"):
        resolve_imputers("reference_mean")
    with pytest.raises(UserError, match=r"hidden.*tokens"):
        bound(Hidden(), torch.zeros(1, 2), Pixels())
    gaps = torch.tensor([[1.0, torch.nan], [3.0, 4.0]])
    assert bound(ReferenceMean(), gaps, None).fill.tolist() == [2.0, 4.0]


NETS = """
import torch
from torch import nn
def table():
    return nn.Linear(4, 2)
def series():
    return nn.Sequential(nn.Conv1d(1, 4, 3), nn.ReLU(), nn.AdaptiveAvgPool1d(1), nn.Flatten(), nn.Linear(4, 2))
"""


@pytest.mark.parametrize(
    ("kind", "parts", "imputer"),
    [("table", "columns", "reference_mean"), ("series", "time steps", "noisy_linear")],
)
def test_a_study_file_that_only_names_the_axis(
    kind: str, parts: str, imputer: str, tmp_path: Path
) -> None:
    (tmp_path / "nets.py").write_text(NETS)
    values = np.random.default_rng(0).normal(size=(4, 4 if kind == "table" else 24)).round(3)
    lines = ["\t".join(map(str, [i % 2, *row])) for i, row in enumerate(values)]
    (tmp_path / "data.tsv").write_text("\n".join(lines))
    data = "{source: data.tsv, shape: [4]}" if kind == "table" else "data.tsv"
    study = f"model: python:nets.py:{kind}\ndata: {data}\nexplainers: [saliency, random]\nevaluations:\n  - faithfulness\n"
    (tmp_path / "study.yaml").write_text(study)
    out = tmp_path / "run"
    with torch.random.fork_rng():
        torch.manual_seed(0)
        done = CliRunner().invoke(
            cli.app, ["run", str(tmp_path / "study.yaml"), "--allow-code", "--out", str(out)]
        )
    assert done.exit_code == 0, done.output
    run = heatproof.read(out)
    axis = run.manifest.study.evaluation("faithfulness")
    assert [item["name"] for item in axis.parameters["imputers"]] == [imputer]
    table = run.table()
    assert set(zip(table.condition, table.level, strict=True)) == {
        (c, x) for c, x in axis.conditions
    }
    assert set(table[table.measure == "road"].status) == {"ok"}
    page = (out / "report.html").read_text()
    assert parts in page
    assert "share of pixels" not in page

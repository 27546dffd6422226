"""Agreement of methods: against scipy and by counting, and the same table whenever an explainer came."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch
from scipy import stats

import heatproof
from heatproof import UserError
from heatproof.axes.agreement.clusters import ALIKE, clustered, matrix
from heatproof.axes.agreement.report import corrected_pairs, lead
from support import synthetic
from support.small import model, pictures

METHODS = ["saliency", "input_x_gradient", {"integrated_gradients": {"steps": 4}}, "random"]
AXIS = {"agreement": {"k": 40}}


@pytest.fixture(scope="module")
def run() -> heatproof.Run:
    return heatproof.evaluate(model(), pictures(6), METHODS, [AXIS])


def maps_of(run: heatproof.Run) -> dict[str, np.ndarray]:
    net, (images, _) = model(), pictures(6)
    batch = heatproof.Batch(tuple(sorted(run.samples()["sample"])), images)
    target = net.logits(net.inputs(batch)).argmax(1)
    explainers = {"input_x_gradient": heatproof.InputXGradient(), "saliency": heatproof.Saliency()}
    return {name: e(net, batch, target, 0).flatten(1).numpy() for name, e in explainers.items()}


def test_each_measure_against_its_definition(run):
    table, maps = run.table(), maps_of(run)
    a, b = maps["input_x_gradient"], maps["saliency"]
    rows = table[
        (table.explainer == "input_x_gradient") & (table.condition == "saliency")
    ].sort_values("sample")
    found = {name: group for name, group in rows.groupby("measure", observed=True)}

    def rho(i: int, j: int) -> float:
        return float(stats.spearmanr(a[i], b[j]).statistic + 1) / 2

    def overlap(i: int, j: int) -> float:
        top = [set(np.argsort(-maps)[:40]) for maps in (a[i], b[j])]
        return len(top[0] & top[1]) / len(top[0] | top[1])

    def signs(i: int, j: int) -> float:
        both = (a[i] != 0) & (b[j] != 0)
        return float((np.sign(a[i]) == np.sign(b[j]))[both].mean())

    for measure, score in (("spearman", rho), ("jaccard", overlap), ("sign_agreement", signs)):
        own = [score(i, i) for i in range(6)]
        assert np.allclose(found[measure].value, own, atol=1e-6), measure
        others = [np.mean([score(i, j) for j in range(6) if j != i]) for i in range(6)]
        assert np.allclose(found[measure].chance, others, atol=1e-6), measure


def test_a_method_agrees_with_itself_and_noise_with_nobody():
    copies = {
        "one": heatproof.Saliency(),
        "two": heatproof.Saliency(),
        "noise": heatproof.RandomMap(),
    }
    run = heatproof.evaluate(model(), pictures(6), copies, [AXIS])
    (result,) = run.results()
    found = matrix(result)
    one, two, noise = (found.explainers.index(name) for name in copies)
    assert found.mean[one, two] == 1 and abs(found.mean[one, noise]) < 0.05
    assert found.clusters[one] == found.clusters[two] != found.clusters[noise]
    assert "one and two" in run.report().read_text()


def test_a_pair_is_said_to_agree_only_by_an_interval_that_holds_for_all_pairs() -> None:
    quantiles = stats.norm.ppf((np.arange(14) + 0.5) / 14)
    spread = quantiles / quantiles.std(ddof=1)
    # The means are 2.45 standard errors above 0.65, half of the way from 0.3 to 1: t is 2.16 alone and 2.75 for three pairs.
    borderline = 0.65 + 2.45 * 0.045 / 14**0.5
    entries: list[synthetic.Entry] = []
    for pair, level in {("a", "b"): borderline, ("a", "c"): 0.9, ("b", "c"): 0.3}.items():
        scores = level + 0.045 * spread
        for one, other in (pair, pair[::-1]):
            entries.append((one, "spearman", other, 0.0, scores, np.full(14, 0.3)))
    result = synthetic.judged_of(synthetic.rows_of(entries, "agreement"))
    shown_alone = sum(pair.low > ALIKE for pair in matrix(result).pairs)
    shown_together = sum(pair.low > ALIKE for pair in corrected_pairs(result, matrix(result).pairs))
    assert (shown_alone, shown_together) == (2, 1)
    assert f"{shown_together} of 3 pairs" in lead(result)[0]


def test_maps_of_a_single_sample_have_no_chance_to_be_compared_with() -> None:
    entries: list[synthetic.Entry] = [("a", "spearman", "b", 0.0, np.array([0.7]))]
    result = synthetic.judged_of(synthetic.rows_of(entries, "agreement"))
    (sentence,) = lead(result)
    assert "Nothing can be concluded" in sentence and "other samples" in sentence


def test_no_extra_pass_beside_another_axis():
    def passes(*axes: dict[str, object]) -> int:
        net = model()
        heatproof.evaluate(net, pictures(5), METHODS, list(axes))
        return net.passes

    stability = {"stability": {"perturbations": "jpeg", "k": 40}}
    assert passes(stability, AXIS) == passes(stability)


def test_an_explainer_added_later_gives_the_same_table(run, tmp_path: Path):
    for number, first in enumerate((METHODS[:2], METHODS[2:], [METHODS[3], METHODS[1]])):
        out = tmp_path / str(number)
        heatproof.evaluate(model(), pictures(6), first, [AXIS], out, shard_size=4)
        grown = heatproof.evaluate(model(), pictures(6), METHODS, [AXIS], out)
        pd.testing.assert_frame_equal(grown.table(), run.table(), rtol=1e-6)


def test_a_run_cut_off_while_one_is_added_is_finished_all_the_same(run, tmp_path: Path):
    heatproof.evaluate(model(), pictures(6), METHODS[:2], [AXIS], tmp_path)
    old = {path: path.read_bytes() for path in tmp_path.glob("parts/**/*.parquet")}
    heatproof.evaluate(model(), pictures(6), METHODS, [AXIS], tmp_path)
    folders = {path.parent for path in old}
    last = [path for path in tmp_path.glob("parts/**/*.parquet") if path.parent not in folders]
    assert len(last) == 2 and not any(path.exists() for path in old)
    last[0].unlink()  # as if killed before the last part of the new explainers was written
    for path, content in list(old.items())[:1]:
        next(path.parent.iterdir()).unlink()
        path.write_bytes(content)  # and before the first of the old ones was written anew
    grown = heatproof.evaluate(model(), pictures(6), METHODS, [AXIS], tmp_path)
    pd.testing.assert_frame_equal(grown.table(), run.table(), rtol=1e-6)


def test_one_explainer_is_refused_before_any_pass():
    net = model()
    with pytest.raises(UserError, match=r"agreement.*explainers.* one"):
        heatproof.evaluate(net, pictures(2), "saliency", [AXIS])
    assert net.passes == 0


def test_rows_of_tables_and_a_constant_map():
    net = torch.nn.Linear(12, 3)

    def flat(network, batch, target, seed):
        return torch.ones_like(batch.x)

    run = heatproof.evaluate(
        net, torch.rand(5, 12), ["saliency", "input_x_gradient", flat], ["agreement"]
    )
    rows = run.table()[lambda t: t.condition == "flat"]
    assert set(rows.status) == {"undefined"} and rows.reason.str.contains(r"flat.*constant").all()


def test_a_single_method_is_a_cluster_and_none_is_none():
    assert clustered(np.full((1, 1), np.nan)) == ([0], [0]) and clustered(np.empty((0, 0))) == (
        [],
        [],
    )

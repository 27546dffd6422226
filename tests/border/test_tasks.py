"""Every task: when a prediction counts as unchanged, and what is explained."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

import heatproof
from border import nets
from border.entry import NETS, command
from border.tables import rows, values
from support.decoders import PLACES, induction, questions


class Doubled:
    name = "doubled"
    stochastic = False

    def __call__(self, batch: heatproof.Batch, seed: int) -> Tensor:
        return batch.x * 2


class Negated:
    name = "negated"
    stochastic = False

    def __call__(self, batch: heatproof.Batch, seed: int) -> Tensor:
        return -batch.x


class Slightly:
    name = "slightly"
    stochastic = False

    def __call__(self, batch: heatproof.Batch, seed: int) -> Tensor:
        return batch.x + 0.01


class Far:
    name = "far"
    stochastic = False

    def __call__(self, batch: heatproof.Batch, seed: int) -> Tensor:
        return batch.x + 10


def pixel_samples() -> heatproof.Batch:
    return heatproof.Batch(nets.NAMES, nets.pixels(nets.SAMPLES, 3, 8, 8))


SCALED = (Doubled, Negated)
"""Twice the input keeps which output is the largest and the sign of each; its negative turns both."""
SHIFTED = (Slightly, Far)
"""The price moves by 0.035 and by 35."""
CASES: dict[str, tuple[Any, Any, Any, tuple[type, type]]] = {
    "classification": (lambda: nets.columns_net(3), nets.table_data, None, SCALED),
    "binary": (lambda: nets.columns_net(1), nets.table_data, "binary", SCALED),
    "multi_label": (
        lambda: nets.columns_net(3),
        nets.table_data,
        {"multi_label": {"label": 1}},
        SCALED,
    ),
    "regression": (nets.price_net, nets.table_data, {"regression": {"tolerance": 0.5}}, SHIFTED),
    "segmentation": (
        nets.pixel_net,
        pixel_samples,
        {"segmentation": {"background": None}},
        SCALED,
    ),
}
every_task = pytest.mark.parametrize("task", CASES)


def model_of(task: str) -> heatproof.Model:
    build, _, said, _ = CASES[task]
    return heatproof.Model(build()) if said is None else heatproof.Model(build(), task=said)


@every_task
def test_a_pair_is_scored_while_the_prediction_is_unchanged_and_flipped_else(task):
    _, data, _, (keeping, turning) = CASES[task]
    test = heatproof.Stability(perturbations=[keeping(), turning()])
    run = heatproof.evaluate(model_of(task), data(), ["random"], test)
    assert set(rows(run, measure="fass", condition=keeping.name)["status"]) == {"ok"}
    turned = rows(run, measure="fass", condition=turning.name)
    assert set(turned["status"]) == {"flipped"}
    assert (turned["reason"] != "").all()
    assert turned["value"].isna().all()


@every_task
def test_faithfulness_reads_every_task(task):
    test = heatproof.Faithfulness(imputers="zero", fractions=(0.5,), metrics=("road",))
    run = heatproof.evaluate(model_of(task), CASES[task][1](), ["input_x_gradient"], test)
    assert np.isfinite(values(run, measure="road")).all()


@pytest.mark.parametrize("task", ["classification", "binary", "multi_label", "regression"])
def test_the_explained_number_of_a_linear_network_has_its_weights_as_gradient(task):
    model, data = model_of(task), CASES[task][1]()
    network = CASES[task][0]()
    maps = torch.from_numpy(heatproof.explain(model, data, heatproof.Saliency(absolute=False)))
    outputs = network(data.x)
    if task == "classification":
        expected = network.weight[outputs.argmax(1)]
    elif task == "regression":
        expected = network.weight.expand(len(data.x), -1)
    else:
        # Half the log-odds of the predicted answer: z / 2 for yes and −z / 2 for no.
        label = 1 if task == "multi_label" else 0
        sign = torch.where(outputs[:, label] > 0, 0.5, -0.5)
        expected = sign[:, None] * network.weight[label]
    torch.testing.assert_close(maps, expected.detach(), rtol=0, atol=1e-5)


def test_a_segmentation_is_explained_inside_its_own_region_and_nowhere_else():
    # The mean logit of a class over its region R has the gradient w / |R| on R, and 0 elsewhere.
    network, data = nets.pixel_net(), pixel_samples()
    model = heatproof.Model(network, task={"segmentation": {"background": None, "label": 1}})
    region = network(data.x).argmax(1) == 1
    sizes = region.flatten(1).sum(1)
    seen = (sizes > 0).nonzero()[:, 0]
    assert len(seen) > 0
    data = data[seen]
    maps = torch.from_numpy(heatproof.explain(model, data, heatproof.Saliency(absolute=False)))
    weights = network.weight[1, :, 0, 0].detach()[None, :, None, None]
    expected = region[seen][:, None] * weights / sizes[seen][:, None, None, None]
    torch.testing.assert_close(maps, expected, rtol=0, atol=1e-6)


def test_a_study_file_names_the_task(tmp_path):
    study = tmp_path / "prices.yaml"
    study.write_text(
        f'model: {{source: "python:{NETS}:price_net", task: {{regression: {{tolerance: 0.5}}}}}}\n'
        f"data: python:{NETS}:table_data\n"
        "explainers: [input_x_gradient, random]\n"
        "evaluations: [stability, {faithfulness: {imputers: zero, metrics: [road]}}]\n"
    )
    done = command("run", study, "--allow-code", "--out", tmp_path / "run")
    assert done.code == 0, done.err
    run = heatproof.read(tmp_path / "run")
    assert np.isfinite(values(run, measure="road")).all()
    assert "probability" not in set(run.table()["measure"])


# A decoder that looks up who lives where: only the passage with the key of the question can hold the answer.


def exact(model, batch, target, seed):
    return batch.aux["_region"].float()


exact.stochastic = False


def asked() -> heatproof.Batch:
    """Prompts in which the passage that holds the answer is known."""
    batch, right = questions(8)
    holds = batch.aux["_passages"] == right[:, None]
    return dataclasses.replace(batch, aux={**batch.aux, "_region": holds})


READOUTS = {"an open answer": {"tokens": 1}, "a choice": {"options": list(PLACES)}}
every_readout = pytest.mark.parametrize("options", READOUTS.values(), ids=list(READOUTS))


@every_readout
def test_the_passage_that_holds_the_answer_keeps_it(options):
    passages = heatproof.features.Passages()
    test = heatproof.Certificate(features=passages, radii=(1, 3), fraction=0.25)
    run = heatproof.evaluate(induction(**options), asked(), {"exact": exact}, test, references=4)
    assert (values(run, measure="rate") == 1).all()
    if "options" in options:  # an open answer has no class to compare with that of the whole
        assert (values(run, measure="sufficient") == 1).all()


@every_readout
def test_ablation_points_at_the_passage_that_holds_the_answer(options):
    passages = heatproof.features.Passages()
    ablation = heatproof.FeatureAblation(features=passages)
    explainers = {"exact": exact, "ablation": ablation}
    run = heatproof.evaluate(
        induction(**options), asked(), explainers, "localisation", references=4
    )
    assert (values(run, measure="pointing") == 1).all()
    assert (values(run, measure="relevance_mass", explainer="exact") == 1).all()


@every_readout
def test_hiding_the_passage_that_holds_the_answer_hurts_more_than_hiding_any_other(options):
    passages = heatproof.features.Passages()
    test = heatproof.Faithfulness(features=passages, fractions=(0.25,), metrics=("road",))

    def wrong(model, batch, target, seed):
        return 1 - exact(model, batch, target, seed)

    wrong.stochastic = False
    explainers = {"exact": exact, "wrong": wrong}
    run = heatproof.evaluate(induction(**options), asked(), explainers, test, references=4)
    better = values(run, measure="road", explainer="exact")
    worse = values(run, measure="road", explainer="wrong")
    assert (better > worse).all()


@every_readout
def test_an_unchanged_prompt_has_an_unchanged_map(options):
    test = heatproof.Stability(perturbations=["identity", "passage_order"])
    explainers = {"gradient": heatproof.InputXGradient()}
    run = heatproof.evaluate(induction(**options), asked(), explainers, test, references=4)
    np.testing.assert_allclose(
        values(run, measure="identity_check", condition="identity"), 1.0, rtol=0, atol=1e-6
    )
    # The decoder looks at no position, so other orders of the passages keep every answer.
    assert "flipped" not in set(run.table()["status"])

"""Metrics in a ball against their papers' formulas by brute force, Captum and the symmetry test; vectors under stability."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

import heatproof
from heatproof import Batch, Model, rand
from heatproof.axes.stability.neighbourhood import EPSILON, METRICS
from heatproof.axes.symmetry.scores import max_sensitivity
from heatproof.errors import UserError
from heatproof.explainers import InputXGradient
from heatproof.explainers.concepts.concepts import Concept
from heatproof.runs.study import registry
from support.laws import CONCEPT, OTHER_KINDS, RED
from support.small import model, pictures

GREEN = Concept("green", RED * torch.tensor([0.2, 1.0, 0.2])[:, None, None], RED)
RADIUS, DRAWS = 0.3, 6


def small_net() -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(5, 7), nn.Tanh(), nn.Linear(7, 3))


def rows(n: int = 8) -> Batch:
    x = torch.randn(n, 5, generator=torch.Generator().manual_seed(1))
    x[0, 0] = 0.0  # the quotients of relative stability must stand it
    return Batch(tuple(f"r{i}" for i in range(n)), x)


def scores(metrics: Any, data: Any = None, net: Any = None, **options: Any) -> Any:
    given = {"metrics": metrics, "radius": RADIUS, "draws": DRAWS} | options
    data = rows() if data is None else data
    run = heatproof.evaluate(net or small_net(), data, ["input_x_gradient"], {"stability": given})
    return run.table()


def brute_force(batch: Batch) -> dict[str, list[float]]:
    """The formulas of the papers, sample by sample and draw by draw."""
    net, explainer = small_net(), InputXGradient()
    wrapped = Model(net)
    result: dict[str, list[float]] = {metric: [] for metric in METRICS}

    def explain(x: torch.Tensor, target: torch.Tensor) -> np.ndarray:
        return explainer(wrapped, Batch(("a",), x[None]), target, 0)[0].double().numpy()

    def relative(after: np.ndarray, before: np.ndarray) -> float:
        divisor = np.where(before == 0, EPSILON, before)
        return float(np.sqrt(np.sum(((after - before) / divisor) ** 2)))

    for i, sample in enumerate(batch.ids):
        x = batch.x[i]
        with torch.no_grad():
            h, inner = net(x), net[:2](x)
        target = h.argmax()[None]
        e = explain(x, target)
        sensitivities, lipschitz = [], []
        by_input, by_output, by_representation = [], [], []
        for draw in range(DRAWS):
            key = rand.fold(rand.keys(0, [sample], "max sensitivity"), torch.tensor([draw]))
            near = x + RADIUS * (2 * rand.uniform(key, (5,))[0] - 1)
            moved = explain(near, target)
            change = float(np.linalg.norm(moved - e))
            sensitivities.append(change / float(np.linalg.norm(e)))
            lipschitz.append(change / float((near.double() - x.double()).norm()))
            with torch.no_grad():
                h_near, inner_near = net(near), net[:2](near)
            if h_near.argmax() != h.argmax():
                continue
            top = relative(moved, e)
            by_input.append(top / max(relative(near.double().numpy(), x.double().numpy()), EPSILON))
            by_output.append(top / max(float((h_near - h).double().norm()), EPSILON))
            change_inside = relative(inner_near.double().numpy(), inner.double().numpy())
            by_representation.append(top / max(change_inside, EPSILON))
        result["average_sensitivity"].append(float(np.mean(sensitivities)))
        result["max_sensitivity"].append(max(sensitivities))
        result["local_lipschitz"].append(max(lipschitz))
        result["relative_input_stability"].append(max(by_input, default=np.nan))
        result["relative_output_stability"].append(max(by_output, default=np.nan))
        result["relative_representation_stability"].append(max(by_representation, default=np.nan))
    return result


def test_every_metric_is_that_of_its_paper() -> None:
    table = scores(list(METRICS), layer="1")
    expected = brute_force(rows())
    for metric in METRICS:
        of_metric = table[table.measure == metric].set_index("sample").value.sort_index()
        np.testing.assert_allclose(of_metric.to_numpy(float), expected[metric], rtol=1e-4)


def test_a_relative_metric_takes_only_draws_that_keep_the_prediction() -> None:
    """With a large ball some samples keep it in some draws and others in none, which are flipped."""
    far = brute_force_flips(radius=8.0)
    table = scores(["relative_output_stability", "max_sensitivity"], radius=8.0, draws=2)
    relative = table[table.measure == "relative_output_stability"].set_index("sample")
    assert dict(relative.status == "flipped") == far
    assert any(far.values()) and not all(far.values())
    assert (table[table.measure == "max_sensitivity"].status == "ok").all()


def brute_force_flips(radius: float) -> dict[str, bool]:
    """Whether both draws around a sample change its prediction."""
    net, batch = small_net(), rows()
    flips = {}
    for x, sample in zip(batch.x, batch.ids, strict=True):
        kept = False
        for draw in range(2):
            key = rand.fold(rand.keys(0, [sample], "max sensitivity"), torch.tensor([draw]))
            near = x + radius * (2 * rand.uniform(key, (5,))[0] - 1)
            kept |= bool(net(near).argmax() == net(x).argmax())
        flips[sample] = not kept
    return flips


def test_max_sensitivity_is_captums() -> None:
    captum = pytest.importorskip("captum.metrics", reason="captum is not installed")
    batch, net = rows(), small_net()
    net.eval()
    target = net(batch.x).argmax(1)
    keys = rand.keys(0, batch.ids, "max sensitivity")
    draw = iter(range(DRAWS))

    def perturb(x: torch.Tensor) -> tuple[torch.Tensor]:
        number = torch.full((len(batch),), next(draw))
        noise = RADIUS * (2 * rand.uniform(rand.fold(keys, number), (5,)) - 1)
        return (x + noise,)

    def explain(inputs: tuple[torch.Tensor], target: torch.Tensor) -> tuple[torch.Tensor]:
        near = Batch(batch.ids, inputs[0].detach())
        return (InputXGradient()(Model(net), near, target, 0),)

    expected = captum.sensitivity_max(
        explain,
        (batch.x,),
        perturb_func=perturb,
        n_perturb_samples=DRAWS,
        target=target,
        max_examples_per_batch=len(batch),
    )
    table = scores("max_sensitivity").set_index("sample").value.sort_index()
    np.testing.assert_allclose(table.to_numpy(float), expected.numpy(), rtol=1e-4)


def test_max_sensitivity_is_that_of_the_symmetry_test() -> None:
    x = pictures(4)[0]
    batch, net = Batch(tuple(f"{i:04}" for i in range(4)), x), model()
    target = net.logits(net.inputs(batch)).argmax(1)
    expected = max_sensitivity(net, batch, target, InputXGradient(), 0.02, 10)
    table = scores("max_sensitivity", batch, net, radius=0.02, draws=10).set_index("sample")
    np.testing.assert_allclose(
        table.value.sort_index().to_numpy(float), expected.numpy(), rtol=1e-4
    )


def test_a_linear_model_has_no_sensitivity_and_identity_maps_have_lipschitz_one() -> None:
    torch.manual_seed(0)
    net = nn.Linear(5, 3)
    table = heatproof.evaluate(
        net,
        rows(),
        ["saliency"],
        {"stability": {"metrics": ["max_sensitivity", "local_lipschitz"]}},
    ).table()
    assert np.allclose(table.value, 0)

    class Itself:
        def __call__(self, model: Any, batch: Batch, target: Any, seed: int) -> torch.Tensor:
            return batch.x

    table = heatproof.evaluate(
        net, rows(), {"itself": Itself()}, {"stability": {"metrics": ["local_lipschitz"]}}
    ).table()
    assert np.allclose(table.value, 1, atol=1e-4)


def test_metrics_stand_beside_fass_and_change_nothing_of_it() -> None:
    alone = heatproof.evaluate(model(), pictures(4), ["saliency"], {"stability": {}}).table()
    both = heatproof.evaluate(
        model(), pictures(4), ["saliency"], {"stability": {"metrics": ["fass", "local_lipschitz"]}}
    )
    table = both.table()
    extra = table.measure == "local_lipschitz"
    assert extra.sum() == 4
    same = table[~extra].reset_index(drop=True)
    assert same[["measure", "sample", "condition", "value"]].equals(
        alone[["measure", "sample", "condition", "value"]].reset_index(drop=True)
    )
    assert both.ranking().measure.tolist() == ["fass"]


def test_without_fass_methods_are_ranked_by_the_metric() -> None:
    run = heatproof.evaluate(
        model(),
        pictures(8),
        ["saliency", "random"],
        {"stability": {"metrics": ["max_sensitivity"]}},
    )
    assert set(run.table().measure) == {"max_sensitivity"}
    assert set(run.ranking().measure) == {"max_sensitivity"}
    assert "sensitivity" in run.text()
    assert "Changes in a small ball" in run.report().read_text()


@pytest.mark.parametrize("batch_size", [1, 64])
def test_batches_change_nothing(batch_size: int) -> None:
    whole = scores(list(METRICS), layer="1")
    again = heatproof.evaluate(
        small_net(),
        rows(),
        ["input_x_gradient"],
        {"stability": {"metrics": list(METRICS), "radius": RADIUS, "draws": DRAWS, "layer": "1"}},
        batch_size=batch_size,
        shard_size=3,
    ).table()
    key = ["measure", "sample"]
    left, right = (t.sort_values(key).value.to_numpy(float) for t in (whole, again))
    np.testing.assert_allclose(left, right, rtol=1e-4)


@pytest.mark.parametrize(
    ("options", "fact"),
    [
        ({"metrics": ["max_sensitivty"]}, "max_sensitivity"),
        ({"metrics": ["fass", "fass"]}, "different"),
        ({"metrics": ["relative_representation_stability"]}, "layer"),
        ({"metrics": ["relative_representation_stability"], "layer": "nine"}, "nine"),
        ({"metrics": []}, "metrics"),
        ({"metrics": ["max_sensitivity"], "radius": 0}, "radius"),
    ],
)
def test_mistakes_are_named_before_any_pass(options: dict[str, Any], fact: str) -> None:
    net = Model(small_net())
    with pytest.raises(UserError, match=fact):
        heatproof.evaluate(net, rows(), ["saliency"], {"stability": options})
    assert net.passes == 0


# ---- explanations by concepts and examples -----------------------------------------------------------


VECTORS = {
    "tracin": {"tracin": OTHER_KINDS["tracin"]},
    "cav": {"cav": OTHER_KINDS["cav"]},
    "present": {"cav": OTHER_KINDS["car"] | {"concepts": [CONCEPT, GREEN], "output": "presence"}},
}
BRIGHTER = {"perturbations": [{"brightness": {"factor": 1.3}}, "identity"]}


@pytest.mark.parametrize("name", ["tracin", "present"])
def test_concept_and_example_scores_are_compared_as_vectors(name: str) -> None:
    """By their cosine, and categories by the share that agrees; chance is the same of other samples."""
    net, (x, _) = model(), pictures(12)
    (explainer,) = registry.explainers([VECTORS[name]]).values()
    run = heatproof.evaluate(net, x, {name: explainer}, {"stability": BRIGHTER})
    table = run.table()
    identity = table[table.measure == "identity_check_explanation_similarity"]
    assert np.allclose(identity.value.dropna(), 1)

    batch = Batch(tuple(f"{i:04}" for i in range(12)), x)
    target = net.logits(net.inputs(batch)).argmax(1)
    brighter = batch.with_x((x * 1.3).clamp(0, 1))
    kept = net.logits(net.inputs(brighter)).argmax(1) == target
    before, after = (explainer(net, each, target, 0).double() for each in (batch, brighter))
    expected = nn.functional.cosine_similarity(before, after, dim=1)
    if name == "present":
        expected = (before == after).double().mean(1)
    scored = table[table.measure == "explanation_similarity"].set_index("sample").sort_index()
    assert (scored.status == "ok").to_numpy().tolist() == kept.tolist()
    got = scored.value[scored.status == "ok"].to_numpy(float)
    np.testing.assert_allclose(got, expected[kept].detach().numpy(), atol=1e-5)
    assert scored.chance[scored.status == "ok"].notna().all()


def test_maps_and_vectors_stand_in_one_study() -> None:
    evaluations = {"stability": BRIGHTER | {"metrics": ["fass", "max_sensitivity"]}}
    explainers = ["saliency", "random", VECTORS["tracin"], VECTORS["cav"]]
    run = heatproof.evaluate(model(), pictures(8)[0], explainers, evaluations)
    measures = run.table().groupby("explainer").measure.unique()
    assert (
        "fass" in measures["saliency"]
        and "explanation_similarity" in measures["tracin(train=train)"]
    )
    assert (
        "fass" not in measures["tracin(train=train)"]
        and "max_sensitivity" in measures["tracin(train=train)"]
    )
    of_cav = run.table().query(
        "explainer.str.startswith('cav') and measure == 'explanation_similarity'"
    )
    assert set(of_cav.status) == {
        "undefined"
    }  # one concept is one number, whose cosine says nothing
    page = run.report().read_text()
    assert "Stability of concept and example explanations" in page
    assert "Changes in a small ball" in page
    assert run.text()

"""Tasks: for each a model whose right explanation is known, and what counts as unchanged; and what is refused."""

from __future__ import annotations

import warnings
from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import heatproof
from heatproof import Batch, Model, UserError, rand, tasks
from heatproof.report.findings import findings
from heatproof.runs.results import axis_results
from heatproof.types import name_of

ROAD = heatproof.Faithfulness(
    imputers="zero", fractions=(0.25, 0.5), metrics=("road", "pixel_flipping")
)


def exact(model: Model, batch: Batch, target: Tensor, seed: int) -> Tensor:
    """Gradient times input, which is exact for what is linear in the features that are there."""
    inputs = model.inputs(batch).requires_grad_()
    with torch.enable_grad():
        total = model.logits(inputs, batch.aux).gather(1, target[:, None]).sum()
    return (torch.autograd.grad(total, inputs)[0] * inputs).detach()


def shuffled(model: Model, batch: Batch, target: Tensor, seed: int) -> Tensor:
    maps = exact(model, batch, target, seed)
    order = rand.permutation(rand.keys(3, batch.ids, "shuffled"), maps[0].numel())
    return maps.flatten(1).gather(1, order).reshape(maps.shape)


def constant(model: Model, batch: Batch, target: Tensor, seed: int) -> Tensor:
    return torch.ones_like(model.inputs(batch))


METHODS = [exact, shuffled, constant]
for method in METHODS:
    method.stochastic = False  # type: ignore[attr-defined]


def linear(outputs: int, seed: int = 0) -> nn.Module:
    net = nn.Linear(8, outputs)
    draws = rand.normal(rand.keys(seed, ("w",), "weights"), (outputs, 8))[0].float()
    net.weight.data, net.bias.data = draws, torch.linspace(-0.2, 0.3, outputs)
    return net


def rows(n: int = 24) -> Tensor:
    return rand.normal(rand.keys(1, [str(i) for i in range(n)], "rows"), (8,)).float()


class Boxes(nn.Module):
    """Two candidate boxes per sample with a score each, as a detector returns them: a list of dicts."""

    def __init__(self) -> None:
        super().__init__()
        self.score = linear(2, seed=5)

    def forward(self, x: Tensor) -> list[dict[str, Tensor]]:
        boxes = torch.tensor([[0.0, 0.0, 1.0, 1.0], [2.0, 2.0, 3.0, 3.0]])
        order = [0, 1] if len(x) % 2 else [1, 0]  # boxes come in any order
        return [{"boxes": boxes[order], "scores": scores[order]} for scores in self.score(x)]


def box_score(output: list[dict[str, Tensor]], aux) -> Tensor:
    """The score of the box that lies where the clean one was."""
    found = []
    for one, box in zip(output, aux["_fixed"], strict=True):
        found.append(one["scores"][(one["boxes"] - box).abs().sum(1).argmin()])
    return torch.stack(found)


def best_box(output: list[dict[str, Tensor]]) -> Tensor:
    return torch.stack([one["boxes"][one["scores"].argmax()] for one in output])


DETECTION = tasks.Readout(
    box_score,
    lambda before, after: (before - after).abs()[:, 0] < 0.5,
    best_box,
    readout="the score of the box",
)


class PixelNet(nn.Module):
    """Three classes for every pixel by its own colour, so that a pixel's part is known."""

    def __init__(self) -> None:
        super().__init__()
        self.head = nn.Conv2d(3, 3, 1)
        self.head.weight.data = 3 * torch.eye(3)[:, :, None, None]
        self.head.bias.data = torch.tensor([0.6, 0.0, 0.0])

    def forward(self, x: Tensor) -> dict[str, Tensor]:
        return {"out": self.head(x)}


def scenes(n: int = 10) -> Tensor:
    """A green patch of its own place and size, each pixel of another brightness, before a red or blue corner."""
    noise = rand.uniform(rand.keys(2, [str(i) for i in range(n)], "scenes"), (3, 8, 8)).float()
    x = 0.1 * noise
    for i in range(n):
        x[i, 1, 1:6, 2 : 5 + i % 3] += 0.4 + 0.5 * noise[i, 0, 1:6, 2 : 5 + i % 3]
        x[i, 2, 6:, :2] += 0.6
    return x


MODELS = {
    "classification": lambda: (Model(linear(3)), rows()),
    "binary": lambda: (Model(linear(1), task="binary"), rows()),
    "multi_label": lambda: (
        Model(
            linear(3),
            classes=["cat", "dog", "fox"],
            task={"multi_label": {"label": "dog", "threshold": 0.7}},
        ),
        rows(),
    ),
    "regression": lambda: (
        Model(linear(2), task={"regression": {"output": 1, "tolerance": 0.5}}),
        rows(),
    ),
    "segmentation": lambda: (Model(PixelNet(), task={"segmentation": {"overlap": 0.55}}), scenes()),
    "own": lambda: (Model(Boxes(), task=DETECTION), rows()),
}


@pytest.mark.parametrize("task", MODELS)
def test_the_exact_map_is_first_on_faithfulness_the_shuffled_last_and_a_constant_undefined(task):
    model, x = MODELS[task]()
    run = heatproof.evaluate(model, x, METHODS, ROAD, references=4, shard_size=7)
    table = run.table()
    ranks = run.ranking().set_index("explainer")["score"]
    assert ranks["exact"] > ranks["shuffled"] + 0.02
    assert set(table.query("explainer == 'constant' and measure == 'road'").status) == {"undefined"}
    (models,) = run.manifest.study.tasks.values()
    (entry,) = models.values()
    assert entry.task == task and entry.readout == model.task.readout and entry.unchanged
    known = set(table.measure)
    assert ("probability" in known) == (task not in ("regression", "segmentation", "own"))
    # Removing everything a linear model reads, but for its constant: the curve is what the formula says.
    if task == "regression":
        at = table.query(
            "explainer == 'exact' and measure == 'logit' and order == 'morf' and level == 0.25"
        )
        parts = (x * model.module.weight[1]).detach()
        kept = parts.sort(1).values[:, :6].sum(1) + model.module.bias[1].detach()
        np.testing.assert_allclose(at.sort_values("sample")["value"], kept, atol=1e-5)


def pushed(x: Tensor) -> Tensor:
    return 0.8 * x.roll(1, -1)


@pytest.mark.parametrize("task", MODELS)
def test_stability_keeps_what_the_task_calls_unchanged(task):
    model, x = MODELS[task]()

    class Push:
        name, stochastic = "push", False

        def __call__(self, batch, seed):
            return pushed(batch.x)

    axis = heatproof.Stability(perturbations=["identity", Push()], k=3)
    run = heatproof.evaluate(model, x, [exact], axis, references=4)
    table = run.table()
    assert set(table.query("measure == 'identity_check'").status) == {"ok"}
    pairs = table.query("measure == 'fass'").query("condition == 'push'").sort_values("sample")
    batch = model.fixed(Batch(tuple(sorted(pairs["sample"])), x))
    before, after = (
        model.logits(model.inputs(batch.with_x(v)), batch.aux).detach() for v in (x, pushed(x))
    )
    if task == "regression":
        kept = (before - after)[:, 1].abs() <= 0.5
        words = "moved"
    elif task == "multi_label":
        odds = np.log(0.7 / 0.3)
        raw = [model.module(v)[:, 1] > odds for v in (x, pushed(x))]
        kept, words = raw[0] == raw[1], "top-1"
    elif task == "binary":
        kept, words = (
            (model.module(x) > 0)[:, 0] == (model.module(pushed(x)) > 0)[:, 0],
            "top-1",
        )
    elif task == "classification":
        kept, words = before.argmax(1) == after.argmax(1), "top-1"
    elif task == "segmentation":
        was, now = (model.module(v)["out"].argmax(1) == 1 for v in (x, pushed(x)))
        kept = (was & now).flatten(1).sum(1) / (was | now).flatten(1).sum(1) >= 0.55
        words = "class 1"
    else:
        kept, words = (
            (before - after).abs()[:, 0] < 0.5,
            "the score of the box",
        )
    assert (pairs["status"] == "ok").tolist() == kept.tolist()
    flipped = pairs[pairs["status"] == "flipped"]
    assert 0 < len(flipped) < len(pairs) and all(words in reason for reason in flipped["reason"])


def test_every_task_goes_through_certificates_and_says_what_it_cannot():
    features = heatproof.features.Pixels()
    axis, rates = heatproof.Certificate(radii=(2,), features=features, fill="zero"), {}
    for task in ("binary", "multi_label", "regression", "own"):
        model, x = MODELS[task]()
        table = heatproof.evaluate(model, x[:6], [exact], axis, references=4).table()
        rates[task] = table.query("measure == 'rate'").sort_values("sample")
        assert set(rates[task].status) == {"ok"} and rates[task].value.between(0, 1).all()
    model, x = MODELS["regression"]()
    # The rate by hand: which of the six columns that were left out move the number by at most the tolerance.
    left = (x * model.module.weight[1]).detach()[:6].sort(1).values[:, :6]
    added = [[], *[[i] for i in range(6)], *[[i, j] for i in range(6) for j in range(i)]]
    share = torch.stack([left[:, some].sum(1).abs() <= 0.5 for some in added], 1).double().mean(1)
    np.testing.assert_allclose(rates["regression"]["value"], share, atol=1e-9)
    for axis, why in (
        (
            heatproof.Certificate(agreement="margin", features=heatproof.features.Pixels()),
            "agreement: margin.*regression",
        ),
        (
            heatproof.Stability(max_drop=0.1),
            "max_drop.*regression",
        ),
        (
            heatproof.Faithfulness(metrics=("irof",)),
            "irof.*regression",
        ),
        (heatproof.Faithfulness(readout="margin"), "margin"),
        (heatproof.Faithfulness(against="label"), "label"),
    ):
        with pytest.raises(UserError, match=why):
            heatproof.evaluate(model, x, [exact], axis)
    with pytest.raises(UserError, match=r"mfaba.*regression"):
        heatproof.evaluate(model, x, ["mfaba"], ROAD)


def test_an_open_tolerance_is_a_share_of_the_spread_of_the_references_on_every_shard():
    net, x = linear(1), rows(30)
    model = Model(net, task="regression")
    axis = heatproof.Stability(perturbations={"column_noise": {"sigma": 0.2}}, k=2)
    tables = [
        heatproof.evaluate(model, x, ["saliency"], axis, references=6, shard_size=size).table()
        for size in (4, 30)
    ]
    assert tables[0].equals(tables[1])
    reasons = set(tables[0].query("status == 'flipped'").reason)
    used = {text.rsplit("more than ", 1)[1] for text in reasons}
    from heatproof.data import open_data
    from heatproof.runs.references import load_references

    spread = float(net(load_references(open_data(x), 0, 6).x).detach().std())
    assert used == {f"{0.1 * spread:.2g}"}
    assert (
        model.task.tolerance is None and model.passes > 0
    )  # the model is as it was, and has counted


def test_regression_on_a_real_table():
    datasets = pytest.importorskip("sklearn.datasets", reason="scikit-learn is not installed")
    linear_models = pytest.importorskip("sklearn.linear_model")
    x, y = datasets.load_diabetes(return_X_y=True)
    ridge = linear_models.LinearRegression().fit(x, y)
    net = nn.Linear(10, 1)
    net.weight.data, net.bias.data = (
        torch.tensor(ridge.coef_).float()[None],
        torch.tensor([ridge.intercept_]).float(),
    )
    data = torch.tensor(x[:24]).float()
    found = {}
    for name, model in {
        "torch": Model(net, task="regression"),
        "sklearn": heatproof.from_sklearn(ridge),
    }.items():
        run = heatproof.evaluate(
            model,
            data,
            ["feature_ablation", "random", {"kernel_shap": {"samples": 200}}],
            ["stability", ROAD],
        )
        ranks = run.ranking().query("measure == 'road'").set_index("explainer")["score"]
        assert ranks.idxmax() != "random" and ranks["feature_ablation"] > ranks["random"] + 5
        seen = run.samples().sort_values("sample")
        np.testing.assert_allclose(seen["readout"], ridge.predict(x[:24]), rtol=1e-3)
        assert (
            seen["probability"].isna().all()
            and seen["predicted_name"].iloc[0] == f"{seen['readout'].iloc[0]:.4g}"
        )
        assert "moved" in run.table().query("status == 'flipped'").reason.iloc[0]
        found[name] = ranks
        run.text()
    np.testing.assert_allclose(
        found["torch"]["feature_ablation"], found["sklearn"]["feature_ablation"], rtol=1e-3
    )


def test_a_multi_label_probability_is_that_of_the_label_whatever_the_threshold():
    task = tasks.MultiLabel(label=0, threshold=0.9)
    z = torch.tensor([[2.0], [3.0]])
    table = task.table(z, {})
    torch.testing.assert_close(task.probability(table)[:, 1], z.sigmoid()[:, 0])
    assert task.target(table).tolist() == [0, 1]  # σ(2) = .88, σ(3) = .95


def test_probabilities_are_read_as_such_where_that_is_said():
    logits = linear(3)
    soft = nn.Sequential(logits, nn.Softmax(1))
    model = Model(soft, task={"classification": {"outputs": "probabilities"}})
    x = rows(4)
    torch.testing.assert_close(model.logits(x).softmax(1), logits(x).softmax(1))
    yes = Model(
        nn.Sequential(linear(1), nn.Sigmoid()), task={"binary": {"outputs": "probabilities"}}
    )
    torch.testing.assert_close(
        yes.logits(x), Model(linear(1), task="binary").logits(x), rtol=1e-3, atol=1e-4
    )


class Softly(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.head = linear(3)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(x).softmax(1)


WRONG = [
    (lambda: Model(linear(1)), "'binary'.*'regression'"),
    (Softly, "Softly.*'probabilities'"),
    (
        lambda: Model(linear(3), task="regresion"),
        "'regresion'.*'regression'",
    ),
    (lambda: Model(linear(3), task={"regression": {"tolerence": 1}}), "'tolerance'"),
    (
        lambda: Model(linear(3), task={"regression": {"tolerance": -1}}),
        "-1",
    ),
    (lambda: Model(linear(3), task={"multi_label": {"label": "dog"}}), "'dog'"),
    (lambda: Model(linear(3), classes="abc", task="binary"), "list"),
    (
        lambda: Model(
            linear(3), classes=["cat", "dog", "fox"], task={"multi_label": {"label": "dgo"}}
        ),
        "'dgo'.*'dog'",
    ),
    (lambda: Model(linear(3), task=tasks.Regression), r"Regression\(\)"),
    (lambda: Model(linear(3), task="regression"), "3 numbers"),
    (
        lambda: Model(linear(3), task={"multi_label": {"label": 7}}),
        "7.*0 to 2",
    ),
    (
        lambda: Model(linear(3), task={"regression": {}, "binary": {}}),
        "regression, binary",
    ),
    (lambda: Model(linear(3), task="binary"), "binary.*3"),
    (lambda: Model(linear(3), task="segmentation"), "segmentation"),
    (lambda: Model(Boxes(), task="classification"), "list"),
    (
        lambda: Model(linear(1), task=tasks.Readout(lambda o, a: [1], lambda b, a: b)),
        "list",
    ),
    (
        lambda: Model(linear(1), task=tasks.Readout(lambda o, a: o, lambda before, after: True)),
        "keeps.*True",
    ),
    (
        lambda: Model(nn.Sequential(linear(1), nn.Threshold(1e9, 0.0)), task="regression"),
        "reference",
    ),
]


@pytest.mark.parametrize(("make", "message"), WRONG, ids=[m[:30] for _, m in WRONG])
def test_wrong_tasks_are_refused_with_a_way_out(make, message):
    with pytest.raises(UserError, match=message):
        heatproof.evaluate(make(), rows(6), ["saliency"], ROAD)


def test_what_a_task_has_not_got_is_said():
    table = torch.zeros(2, 1)
    with pytest.raises(UserError, match=r"regression.*tolerance"):
        tasks.Regression().same(table, table, torch.zeros(2).long())
    with pytest.raises(UserError, match="regression"):
        tasks.Regression().fix(table, {})
    with pytest.raises(UserError, match=r"9.*16"):
        tasks.Segmentation().table(torch.zeros(1, 2, 4, 4), {"_region": torch.ones(1, 3, 3)})


def test_a_single_output_is_yes_or_no_where_names_or_labels_say_so():
    assert name_of(Model(linear(1), classes=["no", "yes"]).task) == "binary"
    run = heatproof.evaluate(
        linear(1), (rows(8), torch.tensor([0, 1] * 4)), ["input_x_gradient"], ROAD, references=4
    )
    assert set(run.table().query("measure == 'road'").status) == {"ok"}  # both answers have maps
    assert set(run.samples()["predicted"]) == {0, 1}


def test_a_study_file_names_the_task_and_a_wrong_one_has_its_line(tmp_path):
    from heatproof.runs.study.file import read_study

    (tmp_path / "nets.py").write_text(
        "import torch\ndef make():\n    return torch.nn.Linear(8, 1)\n"
    )
    np.savez(tmp_path / "rows.npz", x=rows(6).numpy())
    text = "model: {{source: 'python:nets.py:make', task: {}}}\ndata: rows.npz\nexplainers: [saliency]\n"
    file = tmp_path / "study.yaml"
    file.write_text(text.format("{regression: {tolerance: 0.5}}"))
    plan = read_study(file).plan(allow_code=True)
    assert next(iter(plan.models.values())).task == tasks.Regression(tolerance=0.5)
    file.write_text(text.format("regresion"))
    with pytest.raises(UserError, match=r"line 1.*'regresion'.*'regression'"):
        read_study(file)


def test_a_readout_needs_what_is_fixed_and_the_network_does_not_see_it():
    model, x = MODELS["segmentation"]()
    with pytest.raises(UserError, match=r"model\.fixed"):
        model.logits(x)
    batch = model.fixed(Batch(tuple(map(str, range(len(x)))), x))
    table = model.logits(x, batch.aux)
    region = model.module(x)["out"].argmax(1) == 1
    mean = torch.stack(
        [out[1][r].mean() for out, r in zip(model.module(x)["out"], region, strict=True)]
    )
    torch.testing.assert_close(table[:, 1], mean)
    assert batch.aux["_region"].equal(region) and (table[:, 4] == 1).all()


class TwoInputs(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.head = linear(3)

    def forward(self, x: Tensor, depth: Tensor) -> Tensor:
        return self.head(x * depth)


class TwoScores(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.head = linear(3)

    def forward(self, x: Tensor) -> dict[str, Tensor]:
        return {"features": x, "classes": self.head(x)}


def test_networks_are_refused_for_inputs_and_outputs_that_do_not_fit_before_any_pass():
    net = TwoInputs()
    with pytest.raises(UserError, match=r"TwoInputs.*depth"):
        heatproof.evaluate(net, rows(6), ["saliency"], ROAD)
    batch = Batch(tuple("abcdef"), rows(6), {"depht": torch.ones(6, 8), "depth": torch.ones(6, 8)})
    with pytest.raises(UserError, match=r"depht.*TwoInputs.*depth"):
        heatproof.evaluate(net, batch, ["saliency"], ROAD)
    good = Batch(batch.ids, batch.x, {"depth": torch.ones(6, 8)})
    assert set(
        heatproof.evaluate(net, good, ["saliency"], ROAD).table().query("measure == 'road'").status
    ) == {"ok"}
    with pytest.raises(UserError, match=r"logits.*\(4, 8\).*\(4, 3\)"):
        Model(TwoScores()).logits(rows(4))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        script = torch.jit.script(nn.Sequential(nn.Conv2d(3, 2, 3), nn.Flatten(), nn.Linear(72, 2)))
    for method in ("grad_cam", "deep_lift"):
        with pytest.raises(UserError, match=rf"{method}.*torch\.jit"):
            heatproof.evaluate(script, torch.rand(3, 3, 8, 8), [method], ROAD)


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ({"gaussian_noise": {"sigma": 25}}, r"25.*0\.098"),
        ({"brightness": {"factor": 150}}, r"150.*1\.5"),
        ({"contrast": {"factor": 150}}, r"150.*1\.5"),
    ],
)
def test_parameters_far_outside_the_range_of_pixels_are_refused(spec, message):
    with pytest.raises((UserError, ValueError), match=message):
        heatproof.Stability(perturbations=spec)


@pytest.mark.parametrize("dims", [1, 3])
def test_grad_cam_of_series_and_volumes_is_the_formula(dims):
    conv, pool = {1: (nn.Conv1d, nn.AdaptiveAvgPool1d), 3: (nn.Conv3d, nn.AdaptiveAvgPool3d)}[dims]
    net = nn.Sequential(conv(2, 4, 3, padding=1), nn.ReLU(), pool(1), nn.Flatten(), nn.Linear(4, 3))
    shape = (2, 12) if dims == 1 else (2, 4, 6, 6)
    x = rand.normal(rand.keys(0, ("a", "b"), "x"), shape).float()
    maps = heatproof.GradCAM()(Model(net), Batch(("a", "b"), x), torch.tensor([2, 0]), 0)
    features = net[:2](x)
    weights = net[4].weight[[2, 0]] / features[0, 0].numel()  # the gradient of a mean is even
    expected = torch.einsum("bc,bc...->b...", weights, features).relu()
    torch.testing.assert_close(maps, expected[:, None].expand_as(x).detach())
    with pytest.raises(UserError, match="grad_cam"):
        heatproof.GradCAM().check(Model(nn.Linear(12, 2)), (2, 12))


class Sigmoids(nn.Module):
    """Several outputs through a sigmoid that no layer tells of."""

    def __init__(self) -> None:
        super().__init__()
        self.head = linear(3)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(x).sigmoid()


def test_sigmoids_and_a_missing_normalisation_are_findings():
    run = heatproof.evaluate(Sigmoids(), rows(24), ["saliency"], ROAD)
    titles = [
        finding.title
        for finding in findings(
            axis_results(run.table(), run.samples(), (), run.manifest),
            run.samples(),
            run.manifest,
        )
    ]
    assert any("probabilities" in title for title in titles)
    plain = linear(3)
    run = heatproof.evaluate(Model(plain), rows(24), ["saliency"], ROAD)
    titles = [
        finding.title
        for finding in findings(
            axis_results(run.table(), run.samples(), (), run.manifest),
            run.samples(),
            run.manifest,
        )
    ]
    assert not any("probabilities" in title or "normalisation" in title for title in titles)
    plain.pretrained_cfg = {"mean": (0.5,), "std": (0.25,)}  # as timm keeps it
    run = heatproof.evaluate(Model(plain), rows(24), ["saliency"], ROAD)
    (card,) = (
        f
        for f in findings(
            axis_results(run.table(), run.samples(), (), run.manifest),
            run.samples(),
            run.manifest,
        )
        if "normalisation" in f.title
    )
    assert "0.5" in card.seen and "0.25" in card.seen
    known = heatproof.evaluate(Model(plain, mean=0.5, std=0.25), rows(24), ["saliency"], ROAD)
    assert known.manifest.study.model("Linear").unnormalised is None


def test_symmetry_of_a_number_is_what_the_task_calls_unchanged():
    model, x = MODELS["regression"]()
    axis = heatproof.Symmetry(group="cyclic", elements=8)
    run = heatproof.evaluate(model, x, [exact], axis, references=4)
    table = run.table()
    assert not table.measure.str.startswith("model_invariance").any()
    turned = torch.stack([model.module(x.roll(g, 1))[:, 1] for g in range(8)]).detach()
    rows = table.query("condition == 'cyclic'").sort_values("sample").set_index("measure")
    kept = ((turned - turned[0]).abs() <= 0.5).double().mean(0)
    np.testing.assert_allclose(rows.loc["model_agreement", "value"], kept, atol=1e-9)
    from heatproof.data import open_data
    from heatproof.runs.references import load_references

    references = load_references(open_data(x), 0, 4)
    theirs = model.module(references.x)[:, 1].detach()
    for i, value in enumerate(rows.loc["model_change", "value"]):
        others = [j for j, sample in enumerate(references.ids) if int(sample) != i]
        unit = (theirs[others] - turned[0, i]).abs().mean()
        assert value == pytest.approx(
            float((turned[:, i] - turned[0, i]).abs().mean() / unit), rel=1e-4
        )
    assert "model agreement" in run.report().read_text()


def test_the_region_of_a_segmentation_moves_with_the_sample():
    model, x = MODELS["segmentation"]()
    axes = {
        "turns": heatproof.Symmetry(group="dihedral"),
        "shifts": heatproof.Symmetry(group="torus", elements=16),
        "moved": heatproof.Stability(perturbations={"translation": {"pixels": 1}}, k=5),
    }
    table = heatproof.evaluate(model, x, [exact], axes, references=4).table()
    for name in ("turns", "shifts"):
        rows = table[table.evaluation == name].set_index("measure")
        assert (rows.loc["equivariance", "value"] > 1 - 1e-6).all() and (
            rows.loc["model_agreement", "value"] == 1
        ).all()
        assert (rows.loc["model_change", "value"] < 1e-4).all()
    aligned = table.query("measure == 'fass'")
    assert set(aligned.status) == {"ok"} and (aligned["value"] > 1 - 1e-6).all()


def test_each_model_is_read_by_its_own_task_in_any_order():
    rows, nets = torch.randn(8, 6, generator=torch.Generator().manual_seed(0)), {}
    with torch.random.fork_rng():
        torch.manual_seed(0)
        nets["classes"] = Model(nn.Linear(6, 3))
        nets["number"] = Model(nn.Linear(6, 1), task="regression")
    axis = heatproof.Faithfulness(imputers="zero", fractions=(0.2, 0.5))
    tables = []
    for order in (list(nets), list(nets)[::-1]):
        run = heatproof.evaluate(
            {name: nets[name] for name in order}, rows, ["input_x_gradient"], axis, references=4
        )
        (dataset,) = run.manifest.study.datasets
        readouts = {
            name: run.manifest.study.evaluation("faithfulness", dataset, name).parameters["readout"]
            for name in nets
        }
        assert readouts == {"classes": "probability", "number": "logit"}
        tables.append(
            run.table().sort_values(
                ["model", "measure", "condition", "level", "sample"], ignore_index=True
            )
        )
    assert tables[0].equals(tables[1]) and set(tables[0].status) <= {"ok", "undefined"}
    for asked in ({"readout": "probability"}, {"metrics": ("road", "deletion_auc")}):
        passes = [net.passes for net in nets.values()]
        with pytest.raises(
            UserError,
            match=r"logit.*road",
        ):
            heatproof.evaluate(nets, rows, ["input_x_gradient"], replace(axis, **asked))
        assert passes == [net.passes for net in nets.values()]

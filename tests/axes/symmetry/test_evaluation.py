"""Symmetry as an evaluation of a study: its rows against plain loops, and what does not change them."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pandas as pd
import pytest
import torch
from nets import BagOfWords, CircularCNN1d, DeepSet, StandardCNN
from torch import Tensor, nn

import heatproof
from heatproof import Batch, Model, UserError
from heatproof.axes.symmetry.evaluation import Symmetry
from heatproof.axes.symmetry.groups import Cyclic, Dihedral, Permutation
from heatproof.axes.symmetry.scores import equivariance, max_sensitivity, model_invariance
from heatproof.errors import BadParameter, make
from heatproof.explainers import GradientShap, InputXGradient, Saliency
from heatproof.models.randomised import seeded
from heatproof.runs.gallery import read_gallery
from heatproof.runs.tables import KEY
from heatproof.types import Moved

METHODS = {
    "saliency": Saliency(),
    "noisy": GradientShap(samples=2, sigma=0.3),
    "random": heatproof.RandomMap(),
}


def images(n: int = 10) -> Batch:
    x = torch.rand(n, 3, 8, 8, generator=torch.Generator().manual_seed(0))
    return Batch(tuple(f"s{i}" for i in range(n)), x)


def standard() -> Model:
    return Model(
        seeded(lambda: StandardCNN(size=(8, 8), channels=3, classes=3, width=4), 0), name="standard"
    )


def run(
    axis: Symmetry,
    methods: Any = None,
    data: Batch | None = None,
    model: Model | None = None,
    **options: Any,
):
    return heatproof.evaluate(
        model or standard(), data or images(), methods or METHODS, axis, **options
    )


def column(frame: pd.DataFrame, explainer: str, measure: str, condition: str) -> pd.DataFrame:
    rows = frame[
        (frame.explainer == explainer) & (frame.measure == measure) & (frame.condition == condition)
    ]
    assert rows.level.nunique() == 1 and not rows.empty, (explainer, measure, condition)
    return rows.sort_values("sample", ignore_index=True)


def values(rows: pd.DataFrame, name: str = "value") -> Tensor:
    return torch.tensor(rows[name].to_numpy())


def top(model: Model, batch: Batch) -> Tensor:
    with torch.no_grad():
        return model.logits(model.inputs(batch), batch.aux).argmax(1)


@pytest.fixture(scope="module")
def exact() -> pd.DataFrame:
    return run(
        Symmetry(group=Dihedral(4), sensitivity=0.05, sensitivity_draws=3), shard_size=4
    ).table()


@pytest.fixture(scope="module")
def sampled() -> pd.DataFrame:
    return run(Symmetry(group="torus", elements=6), shard_size=4).table()


def test_the_rows_are_the_paper_s_scores_with_bounds(exact, sampled):
    places = exact[["measure", "condition", "level"]].drop_duplicates()
    scored = ["model_agreement", "model_invariance", "equivariance", "model_change"]
    expected = {(measure, "dihedral", 8.0) for measure in scored}
    expected |= {("noise_floor", "redraw", 0.0), ("max_sensitivity", "sensitivity", 0.05)}
    assert set(places.itertuples(index=False, name=None)) == expected
    assert (exact.status == "ok").all()
    for frame, condition, same in ((exact, "dihedral", True), (sampled, "torus", False)):
        bounded = frame[(frame.condition == condition) & (frame.measure != "model_change")]
        assert ((bounded.low <= bounded.value) & (bounded.value <= bounded.high)).all()
        assert (bounded.low == bounded.high).all() == same
    assert set(sampled[sampled.condition == "torus"].level) == {6.0}


def test_scores_have_their_chance_beside_them_and_what_is_a_check_has_none(exact):
    has_chance = exact.groupby("measure").chance.apply(lambda chance: chance.notna().all())
    with_chance = {"equivariance", "model_invariance", "model_agreement"}
    assert set(has_chance[has_chance].index) == with_chance
    without = exact[~exact.measure.isin(with_chance)]
    assert without.chance.isna().all()


@pytest.mark.parametrize(
    ("name", "group", "n"), [("exact", Dihedral(4), 8), ("sampled", "torus", 6)]
)
def test_the_rows_equal_a_loop_over_elements(name, group, n, request):
    frame = request.getfixturevalue(name)
    group = heatproof.groups.build(group) if isinstance(group, str) else group
    model, batch = standard(), images()
    target = top(model, batch)
    elements = (
        group.elements(batch)[:, None].expand(n, 10)
        if name == "exact"
        else group.sample(batch, n, 0)
    )
    for label, explainer in METHODS.items():
        clean = explainer(model, batch, target, 0)
        scores = []
        for g in elements:
            there = replace(group.act(g, batch), moved=Moved(group.act, g))  # draws move along
            moved = explainer(model, there, target, 0).flatten(1).double()
            wanted = group.move(g, clean).flatten(1).double()
            scores.append((moved * wanted).sum(1) / moved.norm(dim=1) / wanted.norm(dim=1))
        found = column(frame, label, "equivariance", group.name)
        assert torch.allclose(values(found), torch.stack(scores).mean(0), atol=1e-5), label
    agreement = torch.stack(
        [(top(model, group.act(g, batch)) == target).double() for g in elements]
    ).mean(0)
    assert torch.equal(values(column(frame, "saliency", "model_agreement", group.name)), agreement)
    assert 0 < float(agreement.mean()) <= 1


def test_the_rows_equal_the_functions(exact):
    model, batch = standard(), images()
    target = top(model, batch)
    whole = equivariance(model, batch, target, METHODS["noisy"], Dihedral(4), n=8)
    assert torch.allclose(
        values(column(exact, "noisy", "equivariance", "dihedral")), whole.value, atol=1e-6
    )
    assert whole.noise_floor is not None
    assert torch.allclose(
        values(column(exact, "noisy", "noise_floor", "redraw")), whole.noise_floor, atol=1e-6
    )
    cosines = model_invariance(model, batch, Dihedral(4), n=8).cosine.value
    assert torch.allclose(
        values(column(exact, "random", "model_invariance", "dihedral")), cosines, atol=1e-6
    )
    changes = max_sensitivity(model, batch, target, METHODS["noisy"], 0.05, 3)
    assert torch.allclose(
        values(column(exact, "noisy", "max_sensitivity", "sensitivity")), changes, atol=1e-5
    )


def test_chance_is_the_score_against_other_samples_moved_alike(exact):
    model, batch, group = standard(), images(), Dihedral(4)
    target, explainer = top(model, batch), METHODS["saliency"]
    references = batch[heatproof.rand.keys(0, batch.ids, "references").argsort()[:9]]  # 8 + 10 / 8
    theirs = explainer(model, references, top(model, references), 0)
    expected = []
    for i, name in enumerate(batch.ids):
        scores = []
        for g in group.elements(batch)[1:]:
            moved = explainer(model, group.act(g, batch[i : i + 1]), target[i : i + 1], 0)
            others = [
                group.move(g, m[None])
                for m, other in zip(theirs, references.ids, strict=True)
                if other != name
            ]
            scores += [float(heatproof.similarity.cosine(moved, other)) for other in others]
        expected.append(
            (1 + 7 * sum(scores) / len(scores)) / 8
        )  # at the identity any explanation agrees with itself
    found = column(exact, "saliency", "equivariance", "dihedral")
    assert found.chance.tolist() == pytest.approx(expected, abs=1e-5)
    unrelated = column(exact, "random", "equivariance", "dihedral").chance
    assert ((unrelated - 1 / 8).abs() < 0.1).all()


def test_a_run_keeps_what_each_reference_adds_to_chance():
    """The sums are of deviations from the chance level of each sample, so those of all references cancel."""
    model, batch = series(6)
    done = run(Symmetry(group="cyclic", elements=12), {"map": InputXGradient()}, batch, model)
    references = done.references()
    assert set(references.measure) == {"equivariance"}
    assert references["sum"].abs().max() > 0.01
    assert references["sum"].sum() == pytest.approx(0, abs=1e-9)
    is_sample = references.reference.isin(batch.ids)
    assert (references["count"] == len(batch) - is_sample).all()


def test_only_stochastic_explainers_have_a_floor(exact):
    assert set(exact[exact.measure == "noise_floor"].explainer) == {"noisy", "random"}
    assert (column(exact, "random", "noise_floor", "redraw").value.abs() < 0.3).all()


@pytest.mark.parametrize(("batch_size", "shard_size"), [(1, 10), (3, 3), (64, 50)])
def test_the_table_does_not_depend_on_batches_or_shards(sampled, batch_size, shard_size):
    again = run(
        Symmetry(group="torus", elements=6), batch_size=batch_size, shard_size=shard_size
    ).table()
    first, second = sampled.set_index(KEY), again.set_index(KEY)
    second = second.reindex(first.index)
    assert (first.status == second.status).all() and (first.reason == second.reason).all()
    for name in ("value", "chance", "low", "high"):
        assert (first[name] - second[name]).abs().max() < 1e-5


def test_an_explanation_without_direction_is_undefined():
    def flat(model: Model, batch: Batch, target: Tensor, seed: int) -> Tensor:
        maps = batch.x.clone()
        maps[[i for i, name in enumerate(batch.ids) if name == "s1"]] = 0
        maps[[i for i, name in enumerate(batch.ids) if name == "s2"]] = torch.nan
        maps[[i for i, name in enumerate(batch.ids) if name == "s3"]] = 0.5
        return maps

    frame = run(Symmetry(group="dihedral", sensitivity=0.1), [flat], images(5)).table()
    for measure, condition in (
        ("equivariance", "dihedral"),
        ("noise_floor", "redraw"),
        ("max_sensitivity", "sensitivity"),
    ):
        rows = column(frame, "flat", measure, condition)
        assert rows.status.tolist() == ["ok", *["undefined"] * 3, "ok"], measure
        reasons = [
            "",
            *(f"the explanation is {flaw}" for flaw in ("zero", "not finite", "constant")),
            "",
        ]
        assert rows.reason.tolist() == reasons
        assert rows.value.isna().tolist() == [False, True, True, True, False]
    assert torch.isnan(
        max_sensitivity(standard(), images(5), torch.zeros(5, dtype=torch.int64), flat, 0.1)
    )[1:4].all()
    assert (frame[frame.measure.str.startswith("model")].status == "ok").all()


def test_a_prediction_that_is_not_finite_is_undefined():
    class Fragile(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return torch.stack(
                [x.mean((1, 2, 3)), 1 / (x.amax((1, 2, 3)) > 0).float() - 1], 1
            ) * x.new_tensor([1, 0])

    data = images(3)
    data.x[1] = 0
    frame = run(Symmetry(group="dihedral"), ["sobel"], data, Model(Fragile())).table()
    for measure in ("model_agreement", "model_invariance"):
        rows = column(frame, "sobel", measure, "dihedral")
        assert rows.status.tolist() == ["ok", "undefined", "ok"]
        assert ["finite" in reason for reason in rows.reason] == [False, True, False]


def test_the_gallery_shows_the_element_with_the_lowest_score(tmp_path):
    done = run(Symmetry(group=Dihedral(4)), {"saliency": Saliency()}, out=tmp_path / "run")
    shown = [s for s in read_gallery(tmp_path / "run") if s.explainer == "saliency"]
    assert {s.condition for s in shown} == {"clean", "dihedral"}
    assert len(shown) == 2 * len(images())
    model, batch = standard(), images()
    each = equivariance(model, batch, top(model, batch), Saliency(), Dihedral(4), n=8).each
    notes = {s.sample: s.note for s in shown if s.condition == "dihedral"}
    assert f"{float(each[3].min()):.2f}" in notes["s3"] and "8" in notes["s3"]
    picture = next(s for s in shown if s.condition == "dihedral" and s.sample == "s3").image
    pixels = torch.from_numpy(picture / 255).permute(2, 0, 1)
    away = [float((Dihedral(4).act(g, batch).x[3] - pixels).norm()) for g in torch.arange(8)]
    assert away.index(min(away)) == int(each[3].argmin()) != 0
    assert done.table().status.eq("ok").all()


class Nearest:
    """Similarity to fixed examples in a layer, an explanation by examples."""

    name, kind, stochastic = "nearest", "example", False

    def __init__(self, examples: Batch, layer: str) -> None:
        self.examples, self.layer = examples, layer

    def __call__(self, model: Model, batch: Batch, target: Tensor, seed: int) -> Tensor:
        own, theirs = (
            heatproof.models.layers.activations(model, b, self.layer).flatten(1)
            for b in (batch, self.examples)
        )
        return own @ theirs.T


class Presence:
    """Whether three directions are present in a layer, a categorical explanation by concepts."""

    name, kind, stochastic, categorical = "presence", "concept", False, True

    def __init__(self, layer: str) -> None:
        self.layer = layer

    def __call__(self, model: Model, batch: Batch, target: Tensor, seed: int) -> Tensor:
        h = heatproof.models.layers.activations(model, batch, self.layer).flatten(1)
        ways = torch.randn(h.shape[1], 3, generator=torch.Generator().manual_seed(0))
        return (h @ (ways - ways.mean(0)) > 0).float()


def series(n: int = 6) -> tuple[Model, Batch]:
    net = seeded(lambda: CircularCNN1d(channels=2, classes=3, width=6, depth=2), 0)
    x = torch.rand(n, 2, 12, generator=torch.Generator().manual_seed(0))
    return Model(net), Batch(tuple(f"s{i}" for i in range(n)), x)


def test_examples_and_concepts_are_judged_by_their_invariance():
    model, batch = series()
    methods = {
        "still": Nearest(batch[:4], "pool"),
        "moving": Nearest(batch[:4], "features"),
        "concepts": Presence("pool"),
        "moving concepts": Presence("features"),
        "map": InputXGradient(),
    }
    frame = run(Symmetry(group="cyclic", elements=12), methods, batch, model).table()
    assert (frame.status == "ok").all()
    measured = (
        frame[frame.measure.isin(["invariance", "equivariance"])]
        .groupby("explainer")
        .measure.unique()
    )
    assert {name: list(found) for name, found in measured.items()} == {
        name: ["equivariance" if name == "map" else "invariance"] for name in methods
    }
    assert (column(frame, "still", "invariance", "cyclic").value - 1).abs().max() < 1e-5
    assert (column(frame, "map", "equivariance", "cyclic").value - 1).abs().max() < 1e-5
    assert (column(frame, "moving", "invariance", "cyclic").value < 0.99999).all()
    assert (column(frame, "concepts", "invariance", "cyclic").value == 1).all()
    moving = column(frame, "moving concepts", "invariance", "cyclic").value
    assert (moving < 1).any()
    assert ((moving * 36).round() - moving * 36).abs().max() < 1e-9, (
        "shares of 3 concepts × 12 shifts"
    )


def test_repair_reaches_one_with_the_whole_group():
    model, batch = series()
    methods = {
        "moving": Nearest(batch[:4], "features"),
        "noisy": GradientShap(samples=1, baseline=batch),
    }
    axis = Symmetry(group="cyclic", elements=12, repair=(1, 4, 12))
    frame = run(axis, methods, batch, model).table()
    for name, measure in (("moving", "invariance"), ("noisy", "equivariance")):
        raw = column(frame, name, measure, "cyclic").value
        curve = frame[(frame.explainer == name) & (frame.measure == "symmetrised")]
        means = curve.groupby("level").value.mean()
        assert means[1.0] == pytest.approx(raw.mean(), abs=1e-6), "one element is no repair"
        assert means[1.0] < means[4.0] < means[12.0]
        assert means[12.0] == pytest.approx(1, abs=1e-5)
    assert [c for c in axis.conditions() if c[0] == "symmetrised"] == [
        ("symmetrised", float(n)) for n in (1, 4, 12)
    ]


def test_layers_are_rows_too():
    model, batch = series()
    axis = Symmetry(group="cyclic", elements=12, layers=("features", "pool"))
    frame = run(axis, {"saliency": Saliency()}, batch, model).table()
    assert (column(frame, "saliency", "layer_equivariance_error", "features").value < 1e-5).all()
    assert (column(frame, "saliency", "layer_invariance_error", "features").value > 0.01).all()
    assert (column(frame, "saliency", "layer_invariance_error", "pool").value < 1e-5).all()
    moved = column(frame, "saliency", "layer_equivariance_error", "pool")
    assert set(moved.status) == {"undefined"} and set(moved.reason) == {
        "the group cannot move what this layer puts out"
    }
    with pytest.raises(UserError, match="'feature'"):
        run(Symmetry(group="cyclic", layers=("feature",)), {"saliency": Saliency()}, batch, model)


def test_sets_and_texts_are_judged_too():
    mask = torch.arange(5) < torch.tensor([5, 3, 4, 5])[:, None]
    x = torch.rand(4, 5, 3, generator=torch.Generator().manual_seed(0)) * mask[..., None]
    points = Batch(tuple("abcd"), x, {"mask": mask})
    net = Model(seeded(lambda: DeepSet(features=3, classes=3, width=8), 0))
    frame = run(Symmetry(group=Permutation()), {"saliency": Saliency()}, points, net).table()
    assert (column(frame, "saliency", "equivariance", "permutation").value - 1).abs().max() < 1e-5

    ids = torch.randint(1, 20, (4, 5), generator=torch.Generator().manual_seed(0)) * mask
    words = Batch(tuple("abcd"), ids, {"attention_mask": mask.long()})
    net = Model(seeded(lambda: BagOfWords(size=20, width=8), 0), embedding="embedding")
    frame = run(
        Symmetry(group="permutation", sensitivity=0.1), {"gradient": InputXGradient()}, words, net
    ).table()
    assert (column(frame, "gradient", "equivariance", "permutation").value - 1).abs().max() < 1e-5
    balls = column(frame, "gradient", "max_sensitivity", "sensitivity")
    assert set(balls.status) == {"undefined"} and "token ids" in balls.reason[0]


def test_each_input_is_explained_once():
    model, batch = series(4)
    run(Symmetry(group=Cyclic(), elements=12), {"saliency": Saliency()}, batch, model)
    predictions = 4 + 4 + 4 * 11  # references, samples, moved samples
    explanations = (
        4 + 4 * 11
    )  # the references, which are all samples, and moved samples; the identity is known
    assert model.passes == predictions + explanations


def test_pictures_cost_no_pass_and_the_second_draw_is_shared_with_stability():
    batch = images(4)
    symmetry = Symmetry(group=Dihedral(1))
    stability = heatproof.Stability(perturbations="identity", k=20)

    def passes(*axes: Any) -> int:
        model = standard()
        heatproof.evaluate(model, batch, {"noisy": GradientShap(samples=2)}, list(axes))
        return model.passes

    predictions = 4 + 4 + 4  # references, samples, mirrored samples
    explanations = 2 * (
        4 + 4 + 4
    )  # the references, which are all samples, their second draw, mirrored samples
    assert passes(symmetry) == predictions + explanations
    assert (
        passes(symmetry, stability) - passes(symmetry) == 4 + 2 * 4
    )  # what is perturbed, and nothing twice


def test_groups_by_name_and_what_cannot_work():
    assert Symmetry(group={"dihedral": {"n": 8}}).group == Dihedral(8)
    assert Symmetry(group=Cyclic(dim=-2)).conditions() == [("cyclic", 8.0)]
    with pytest.raises(BadParameter, match=r"'dihedrall'.*'dihedral'"):
        make(Symmetry, "symmetry", {"group": "dihedrall"})
    with pytest.raises(BadParameter, match=r"symmetry\.group.*n .*5"):
        make(Symmetry, "symmetry", {"group": {"dihedral": {"n": 5}}})
    with pytest.raises(BadParameter, match=r"group.*cyclic"):
        make(Symmetry, "symmetry", {"elements": 4})
    with pytest.raises(BadParameter, match="must be different"):
        make(Symmetry, "symmetry", {"group": "torus", "repair": [2, 2]})
    model, batch = series()
    with pytest.raises(UserError, match="images"):
        run(Symmetry(group="dihedral"), None, batch, model)
    with pytest.raises(UserError, match="ssim"):
        run(Symmetry(group="cyclic", similarity="ssim"), None, batch, model)
    assert model.passes == 0

"""A smoothed model is a model like any other, with masks of exact marginals and radii that hold."""

from __future__ import annotations

from itertools import combinations
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import heatproof
from heatproof import Model
from heatproof.axes.certificate.certify import certify
from heatproof.errors import UserError
from heatproof.explainers import EXPLAINERS
from heatproof.features import Passages, Patches, Pixels, Superpixels, Tokens
from heatproof.models.smoothed import Smoothed
from heatproof.runs.study.registry import build
from heatproof.types import Batch
from support.decoders import PLACES, WORDS, Induction, questions
from support.small import model as shapes
from support.small import pictures


def photographs(n: int = 2) -> Batch:
    images, labels = pictures(n)
    return Batch(tuple(f"p{i}" for i in range(n)), images, label=labels)


def test_it_is_the_mean_of_the_probabilities_over_the_bank() -> None:
    base, batch = shapes(rows=5), photographs(3)
    model = Smoothed(base, keep=0.6, samples=12, features=Patches(8))
    inputs = base.inputs(batch)
    total = torch.zeros(3, 4)
    for kept in model.bank(16):
        grid = kept.reshape(4, 4).repeat_interleave(8, 0).repeat_interleave(8, 1)
        total += base.logits(inputs * grid).softmax(1)
    base.passes = 0
    ours = model.logits(model.inputs(batch))
    torch.testing.assert_close(ours.softmax(1), total / 12)
    torch.testing.assert_close(ours.exp(), total / 12)
    assert model.passes == base.passes == 36
    votes = (
        Smoothed(base, keep=0.6, samples=12, features=Patches(8), votes=True).logits(inputs).exp()
    )
    counts = torch.zeros(3, 4)
    for kept in model.bank(16):
        grid = kept.reshape(4, 4).repeat_interleave(8, 0).repeat_interleave(8, 1)
        counts[torch.arange(3), base.logits(inputs * grid).argmax(1)] += 1
    torch.testing.assert_close(votes, counts / 12)


@pytest.mark.parametrize(
    ("keep", "samples"), [(0.25, 64), (0.125, 8), (0.5, 2), (1.0, 4), (3 / 7, 7)]
)
def test_quantised_masks_have_exact_marginals(keep: float, samples: int) -> None:
    bank = Smoothed(shapes(), keep, samples, masks="quantised").bank(196)
    assert bank.shape == (samples, 196)
    assert (bank.sum(0) == round(keep * samples)).all()
    other = Smoothed(shapes(), keep, samples, masks="quantised", seed=1).bank(196)
    assert samples == 4 or not torch.equal(bank, other)


def test_bernoulli_masks_keep_each_feature_independently() -> None:
    bank = Smoothed(shapes(), 0.3, 4000).bank(30).double()
    assert (bank.mean(0) - 0.3).abs().max() < 4 * (0.21 / 4000) ** 0.5
    correlation = torch.corrcoef(bank.T) - torch.eye(30)
    assert correlation.abs().max() < 5 / 4000**0.5
    assert torch.equal(Smoothed(shapes(), 0.3, 4000).bank(20).double(), bank[:, :20])


def test_keeping_everything_changes_nothing() -> None:
    base, batch = shapes(), photographs(3)
    smooth = Smoothed(base, keep=1.0, samples=3, features=Patches(8))
    torch.testing.assert_close(
        smooth.logits(smooth.inputs(batch)).softmax(1), base.logits(base.inputs(batch)).softmax(1)
    )


@pytest.mark.parametrize("rows", [1, 7, 512])
def test_outputs_and_gradients_do_not_depend_on_rows_or_neighbours(rows: int) -> None:
    batch = photographs(3)

    def run(rows: int, part: slice) -> tuple[Tensor, Tensor]:
        model = Smoothed(shapes(rows=rows), keep=0.5, samples=6, features=Patches(8))
        x = model.inputs(batch[part]).requires_grad_()
        out = model.logits(x)
        (gradient,) = torch.autograd.grad(out[:, 1].sum(), x)
        return out.detach(), gradient

    whole, one = run(64, slice(None)), run(rows, slice(1, 2))
    torch.testing.assert_close(one[0], whole[0][1:2])
    torch.testing.assert_close(one[1], whole[1][1:2], atol=1e-5, rtol=1e-4)
    assert whole[1].abs().sum() > 0


SMALL = {
    "integrated_gradients": {"steps": 3},
    "gradient_shap": {"samples": 2},
    "lime": {"samples": 20, "features": {"patches": {"size": 8}}},
    "kernel_shap": {"samples": 40, "features": {"patches": {"size": 8}}},
    "occlusion": {"window": 16, "stride": 16},
    "feature_ablation": {"features": {"patches": {"size": 16}}},
    "feature_permutation": {"features": {"patches": {"size": 16}}},
    "rise": {"samples": 10, "grid": 4},
    "expected_gradients": {"samples": 2, "baseline": "random"},
    "smoothgrad": {"samples": 2},
    "smoothgrad_squared": {"samples": 2},
    "vargrad": {"samples": 2},
}


FEATURES = {name for name, kind in EXPLAINERS.items() if getattr(kind, "kind", "") == "feature"} - {
    "precomputed"
}


OF_LAYERS = {
    "grad_cam",
    "grad_cam_plus_plus",
    "layer_cam",
    "hires_cam",
    "attention_rollout",
    "chefer",
    "lrp",
    "attn_lrp",
    "guided_grad_cam",
}


@pytest.mark.parametrize("name", sorted(FEATURES - OF_LAYERS))
def test_every_explainer_runs_on_it(name: str) -> None:
    model, batch = Smoothed(shapes(), keep=0.7, samples=4, features=Patches(8)), photographs(2)
    target = model.logits(model.inputs(batch)).argmax(1)
    maps = build("explainer", EXPLAINERS, {name: SMALL.get(name, {})})(model, batch, target, 0)
    assert (
        maps.shape == batch.x.shape
        and torch.isfinite(maps).all()
        and maps.flatten(1).std(1).min() > 0
    )


@pytest.mark.parametrize("name", sorted(OF_LAYERS))
def test_what_reads_layers_refuses_it(name: str) -> None:
    model, batch = Smoothed(shapes(), keep=0.7, samples=4, features=Patches(8)), photographs(1)
    with pytest.raises(UserError, match=f"{name}.*passes"):
        build("explainer", EXPLAINERS, name)(model, batch, torch.tensor([0]), 0)


@pytest.mark.parametrize("masks", ["bernoulli", "quantised"])
def test_its_noise_is_fixed_so_nothing_added_changes_nothing(masks) -> None:
    model, batch = (
        Smoothed(shapes(rows=64), keep=0.5, samples=8, features=Patches(8), masks=masks),
        photographs(3),
    )
    mask = torch.zeros(3, 16, dtype=torch.bool)
    mask[:, 4:9] = True
    result = certify(model, batch, mask, Patches(8), (0, 1, 2), budget=200)
    assert (result.rate[:, 0] == 1).all() and result.exact.all()
    again = certify(model, batch[1:2], mask[1:2], Patches(8), (0, 1, 2), budget=200)
    assert torch.equal(again.rate[0], result.rate[1])
    first = model.logits(model.inputs(batch))
    assert torch.equal(first, model.logits(model.inputs(batch)))


@pytest.mark.parametrize("masks", ["bernoulli", "quantised"])
@pytest.mark.parametrize("keep", [0.125, 0.25])
def test_no_feature_added_within_the_radius_changes_the_prediction(masks, keep: float) -> None:
    g = torch.Generator().manual_seed(0)
    net = nn.Linear(7, 3)
    with torch.no_grad():
        net.weight.copy_(3 * torch.randn(3, 7, generator=g))
        net.bias.copy_(torch.tensor([4.0, 0.0, 0.0]))
    model = Smoothed(Model(net, rows=512), keep, samples=64, features=Pixels(), masks=masks)
    batch = Batch(tuple("abcdefgh"), torch.randn(8, 7, generator=g))
    mask = torch.zeros(8, 7, dtype=torch.bool)
    mask[:, :2] = True
    radius = model.radius(batch, mask)
    assert radius.max() >= 1
    for i, r in enumerate(radius.tolist()):
        start = model.logits((batch.x[i] * mask[i])[None]).argmax()
        for k in range(1, min(r, 5) + 1):
            for added in combinations(range(2, 7), k):
                more = mask[i].clone()
                more[list(added)] = True
                assert model.logits((batch.x[i] * more)[None]).argmax() == start
    result = certify(model, batch, mask, Pixels(), (1, 2, 3), budget=200)
    assert (result.rate[(result.radii <= radius[:, None])] == 1).all()


def test_the_bernoulli_radius_allows_for_the_samples() -> None:
    class Sure(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return torch.stack([torch.full_like(x[:, 0], 50.0), x[:, 0]], 1)

    batch = Batch(("a",), torch.zeros(1, 30))
    few, many = (
        Smoothed(Model(Sure(), rows=9999), 0.125, samples=s, features=Pixels())
        for s in (16, 20_000)
    )
    assert int(few.radius(batch, rule="bernoulli")) < int(many.radius(batch, rule="bernoulli")) == 5
    assert (
        int(
            Smoothed(Model(Sure()), 0.125, samples=16, features=Pixels(), masks="quantised").radius(
                batch
            )
        )
        == 3
    )
    with pytest.raises(UserError, match="independently"):
        Smoothed(Model(Sure()), 0.5, 2, Pixels(), "quantised").radius(batch, rule="bernoulli")


def test_texts_keep_their_special_tokens() -> None:
    class Count(nn.Module):
        def forward(self, ids: Tensor, attention_mask: Tensor) -> Tensor:
            assert (attention_mask[:, 0] == 1).all() and (ids == 1)[:, 0].all()
            return torch.stack([attention_mask.sum(1).float(), torch.full((len(ids),), 2.5)], 1)

    ids = torch.tensor([[1, 5, 6, 7, 0]])
    batch = Batch(("a",), ids, {"attention_mask": (ids > 0).long()})
    model = Smoothed(Model(Count()), 0.5, samples=10, features=Tokens(special=(1,)))
    assert torch.isfinite(model.logits(model.inputs(batch), batch.aux)).all()
    free = model.radii(batch, torch.tensor([[False, True, False, False, False]]))["per_mask"]
    assert float(free) <= 2, "special tokens and padding cannot be added"


def test_tokens_are_hidden_among_the_ids_and_other_features_in_what_they_are_embedded_to() -> None:
    base = Model(nn.Sequential(nn.Embedding(9, 4), nn.Flatten(), nn.Linear(20, 2)), embedding="0")
    assert Smoothed(base, 0.5, 2, Tokens()).embedding is None
    assert Smoothed(base, 0.5, 2, Pixels()).embedding == base.embedding is not None


@pytest.mark.parametrize(
    "hides", [Passages(), Passages(separators=WORDS.encode("."), mask_token=len(WORDS))], ids=str
)
@pytest.mark.parametrize("masks", ["bernoulli", "quantised"])
def test_passages_are_smoothed_whatever_their_number(hides: Passages, masks: Any) -> None:
    class Longer(Induction):
        def __init__(self) -> None:
            super().__init__(len(WORDS) + 1)  # the last token says that something is hidden

        def forward(self, inputs_embeds: Tensor, attention_mask: Tensor) -> Tensor:
            logits: Tensor = super().forward(inputs_embeds, attention_mask).logits
            return logits + 5 * self.table(
                torch.tensor(WORDS.encode(PLACES[0]))
            )  # where it knows nothing better

    batch, base = questions(6)[0], heatproof.decoder(Longer(), WORDS, options=PLACES)
    short = torch.arange(6) >= 4  # these have lost their last passage
    gone = (batch.aux["_passages"] == 4) & short[:, None]
    numbers = (
        {"_passages": batch.aux["_passages"].masked_fill(gone, 0)} if not hides.separators else {}
    )
    attended = {"attention_mask": batch.aux["attention_mask"] * ~gone}
    x = batch.x.masked_fill(gone, len(WORDS)) if hides.separators else batch.x
    batch = base.fixed(Batch(batch.ids, x, {**attended, **numbers}))
    model = Smoothed(base, 0.125, samples=64, features=hides, masks=masks)
    numbered = hides.segments(batch)
    right = torch.zeros(6, int(numbered.max()) + 1, dtype=torch.bool)
    right[:, 2] = True
    found = model.radii(batch, right)
    for i in range(6):  # neighbours with more passages change nothing
        n = int(numbered[i].max()) + 1
        alone = model.radii(batch[i : i + 1], right[i : i + 1, :n])
        assert all(float(alone[rule]) == float(found[rule][i]) for rule in found)
    assert found["per_mask"].max() >= 1
    for i, r in enumerate(found["per_mask"].long().tolist()):
        first = None
        for k in range(r + 1):
            for added in combinations(
                [p for p in range(1, int(numbered[i].max()) + 1) if p != 2], k
            ):
                kept = right[i : i + 1].clone()
                kept[:, list(added)] = True
                inputs, aux = hides.hide(batch.x[i : i + 1], batch[i : i + 1].aux, kept)
                said = int(model.logits(inputs, aux).argmax())
                first = said if first is None else first
                assert said == first


def test_fingerprints_tell_the_parameters_apart() -> None:
    base = shapes()
    models = [
        Smoothed(base, 0.5),
        Smoothed(base, 0.25),
        Smoothed(base, 0.5, 32),
        Smoothed(base, 0.5, seed=1),
    ]
    models += [
        Smoothed(base, 0.5, masks="quantised"),
        Smoothed(base, 0.5, votes=True),
        Smoothed(base, 0.5, features=Pixels()),
    ]
    prints = {m.fingerprint for m in models} | {base.fingerprint}
    assert len(prints) == len(models) + 1
    assert Smoothed(shapes(), 0.5).fingerprint == models[0].fingerprint
    assert (
        models[0].class_name(1) == "bar"
        and models[0].mean == base.mean
        and models[0].device == base.device
    )


def test_accuracy_falls_with_the_share_kept() -> None:
    base, batch = shapes(rows=256), photographs(40)

    def right(keep: float, part: Batch) -> torch.Tensor:
        return (
            Smoothed(base, keep, 8 if keep < 1 else 1, Patches(8)).scores(part).argmax(1)
            == part.label
        )

    assert torch.equal(right(1.0, batch), base.logits(base.inputs(batch)).argmax(1) == batch.label)
    assert right(0.05, batch).sum() < right(1.0, batch).sum()
    assert torch.equal(
        torch.cat([right(0.5, batch[:15]), right(0.5, batch[15:])]), right(0.5, batch)
    )


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"keep": 0.0}, "keep"),
        ({"keep": 1.5}, "keep"),
        ({"keep": 0.5, "samples": 0}, "samples"),
        ({"keep": 0.3, "samples": 64, "masks": "quantised"}, r"0\.296875"),
        ({"keep": 0.5, "masks": "bernouli"}, "'bernoulli'"),
        ({"keep": 0.5, "fill": "blur"}, "fill"),
        ({"keep": 0.5, "fill": float("nan")}, "finite"),
    ],
)
def test_mistakes_are_named(options, message: str) -> None:
    with pytest.raises(UserError, match=message):
        Smoothed(shapes(), **options)


@pytest.mark.parametrize(
    ("mask", "message"),
    [
        (torch.ones(1, 4), "shape"),
        (torch.ones(1, 9).bool(), "shape"),
        (torch.ones(2, 4).bool(), "shape"),
    ],
)
def test_masks_that_do_not_fit_a_radius_are_refused(mask: Tensor, message: str) -> None:
    model = Smoothed(Model(nn.Linear(4, 2)), 0.5, 2, Pixels())
    with pytest.raises(UserError, match=message):
        model.radius(Batch(("a",), torch.ones(1, 4)), mask)
    with pytest.raises(UserError, match="'lipschitz'"):
        model.radius(Batch(("a",), torch.ones(1, 4)), rule="lipshitz")


@pytest.mark.parametrize("votes", [False, True])
def test_scores_that_are_not_finite_have_no_radius(votes: bool) -> None:
    class Broken(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return torch.where(x[:, :2] > 5, torch.nan, x[:, :2])

    model = Smoothed(Model(Broken()), 0.5, 4, Pixels(), votes=votes)
    batch = Batch(("a", "b"), torch.tensor([[1.0, 0.0, 0.0], [9.0, 9.0, 9.0]]))
    assert model.radii(batch)["per_mask"].isnan().tolist() == [False, True]
    with pytest.raises(UserError, match=r"finite.*'b'"):
        model.radius(batch)


def test_what_cannot_be_smoothed_is_named() -> None:
    with pytest.raises(UserError, match=r"heatproof\.Model"):
        Smoothed(nn.Linear(2, 2), 0.5)
    with pytest.raises(UserError, match=r"heatproof\.Model"):
        Smoothed(Smoothed(shapes(), 0.5), 0.5)
    model = Smoothed(shapes(), 0.5, features=Superpixels())
    with pytest.raises(UserError, match="superpixels"):
        model.logits(model.inputs(photographs(1)))
    votes = Smoothed(shapes(), 0.5, 2, Patches(8), votes=True)
    with pytest.raises(UserError, match="no gradient"):
        build("explainer", EXPLAINERS, "saliency")(votes, photographs(1), torch.tensor([0]), 0)

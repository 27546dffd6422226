"""The engine as a user meets it: memory, sharing, samples that fail, and the options of the stability axis."""

from __future__ import annotations

import re
from dataclasses import dataclass

import numpy as np
import pandas as pd
import pytest
import torch
from PIL import Image
from torch import nn

import heatproof
from heatproof import (
    Batch,
    IntegratedGradients,
    Lime,
    Model,
    RandomMap,
    Saliency,
    SmoothGrad,
    Stability,
    UserError,
)
from heatproof.axes.stability.perturbations import Jpeg, Rotation
from heatproof.maps.similarity import compare_all, composite, profile
from heatproof.runs import references as referencing
from support.small import model, pictures

JPEG = Stability(perturbations="jpeg", k=50)
CUDA = torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB")
HOST = RuntimeError(
    "[enforce fail at alloc_cpu.cpp:117] DefaultCPUAllocator: can't allocate memory: you tried …"
)


@dataclass(frozen=True)
class Greedy:
    """Saliency that fails on more than `most` samples."""

    error: Exception
    most: int = 2

    stochastic = False

    def __call__(self, model, batch, target, seed):
        if len(batch) > self.most:
            raise self.error
        return Saliency()(model, batch, target, seed)


def run(explainers, evaluation=JPEG, n=6, **options) -> heatproof.Run:
    given = {"model": model(), "data": pictures(n)[0], **options}
    return heatproof.evaluate(explainers=explainers, evaluations=evaluation, **given)


def fass(frame: pd.DataFrame, measure: str = "fass") -> pd.DataFrame:
    return frame[frame.measure == measure]


# --- memory ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("error", [CUDA, HOST, MemoryError()], ids=["cuda", "host", "python"])
def test_out_of_memory_halves_the_batch_and_loses_nothing(error):
    net = model()
    frame = run({"e": Greedy(error)}, n=7, batch_size=7, model=net).table()
    assert net.rows <= 2
    pd.testing.assert_frame_equal(
        frame, run({"e": Saliency()}, n=7, batch_size=2).table(), rtol=1e-5
    )
    assert len(fass(frame)) == 7


def test_out_of_memory_in_a_prediction_halves_the_batch_too():
    class Small(nn.Module):
        def __init__(self):
            super().__init__()
            self.net = model().module

        def forward(self, x):
            if len(x) > 2:
                raise torch.OutOfMemoryError("CUDA out of memory")
            return self.net(x)

    images = pictures(5)[0]
    frame = run({"e": Saliency()}, model=Model(Small()), data=images, batch_size=5).table()
    plain = run(
        {"e": Saliency()}, model=Model(model().module, name="Small"), data=images, batch_size=2
    ).table()
    pd.testing.assert_frame_equal(frame, plain, rtol=1e-5)


@pytest.mark.parametrize("error", [CUDA, HOST], ids=["cuda", "host"])
def test_out_of_memory_with_one_sample_says_so(error, tmp_path):
    with pytest.raises(UserError, match=r"out of memory.*\(3, 32, 32\).*cpu"):
        run({"e": Greedy(error, most=0)}, n=3, out=tmp_path / "run")
    again = run({"e": Saliency()}, n=3, out=tmp_path / "other").table()
    assert len(fass(again)) == 3


def test_another_error_is_not_swallowed():
    mine = RuntimeError("mat1 and mat2 shapes cannot be multiplied (4x3 and 5x2)")
    with pytest.raises(RuntimeError) as caught:
        run({"e": Greedy(mine, most=0)}, n=3)
    assert caught.value is mine


def test_an_explainer_that_returns_the_wrong_number_of_maps_is_named():
    with pytest.raises(UserError, match="'short'"):
        run({"short": lambda model, batch, target, seed: batch.x[:1]}, n=3)


# --- sharing --------------------------------------------------------------------------------------------------------


def passes(explainers, evaluation=JPEG, n=6, **options) -> int:
    net = model()
    run(explainers, evaluation, n, model=net, **options)
    return net.passes


def test_predictions_are_made_once_for_all_explainers():
    blind = {f"sobel {i}": lambda model, batch, target, seed: batch.x for i in range(3)}
    three = Stability(perturbations=["jpeg", "brightness", "identity"], k=50)
    n, references = 6, 2
    assert passes(blind, three, n, references=references) == references + n + 3 * n
    assert (
        passes(dict(list(blind.items())[:1]), three, n, references=references)
        == references + n + 3 * n
    )


def test_a_second_explainer_adds_only_its_own_passes():
    still = Stability(perturbations=["identity", {"brightness": {"factor": 1.01}}], k=50)
    n, kept = 6, 2 * 6
    table = run({"a": Saliency()}, still, n).table()
    assert (fass(table).status == "ok").all(), "this test counts on pairs that all survive"
    one = passes({"a": Saliency()}, still, n, references=2)
    two = passes({"a": Saliency(), "b": Saliency(absolute=False)}, still, n, references=2)
    assert (
        two - one == n + kept
    )  # clean maps, those of the references among them, and perturbed maps


def test_a_second_evaluation_shares_the_clean_maps():
    first = {"a": Stability(perturbations="identity", k=50)}
    second = {**first, "b": Stability(perturbations={"brightness": {"factor": 1.01}}, k=50)}
    n = 6
    one, two = (passes({"e": Saliency()}, axes, n, references=2) for axes in (first, second))
    assert two - one == n + n  # perturbed predictions and perturbed maps; clean ones exist


def test_nor_does_it_draw_maps_again_that_were_drawn_again():
    first = {"a": Stability(perturbations="identity", k=50)}
    second = {**first, "b": Stability(perturbations={"brightness": {"factor": 1.01}}, k=50)}
    n, draws = 6, 2
    one, two = (
        passes({"e": SmoothGrad(samples=draws)}, axes, n, references=2) for axes in (first, second)
    )
    assert (
        two - one == n + draws * n
    )  # perturbed predictions and perturbed maps; both draws of the clean ones exist


def test_flipped_pairs_are_not_explained():
    strict = Stability(perturbations={"gaussian_noise": {"sigma": 0.5}}, k=50)
    frame = fass(run({"e": Saliency()}, strict, 12).table())
    flipped = int((frame.status == "flipped").sum())
    assert 0 < flipped < 12
    references = referencing.default_reference_count(12)
    assert passes({"e": Saliency()}, strict, 12) == references + 12 + 12 + 12 + (12 - flipped)


def test_references_are_the_same_for_every_shard_and_every_order():
    images = pictures(20)[0]
    ids = tuple(f"{i:04d}" for i in range(20))
    forward = referencing.load_references(heatproof.open_data(Batch(ids, images)), seed=0)
    backward = referencing.load_references(
        heatproof.open_data(Batch(ids[::-1], images.flip(0))), seed=0
    )
    assert forward.ids == backward.ids and torch.equal(forward.x, backward.x)
    assert len(forward) == referencing.default_reference_count(20)
    assert (
        referencing.load_references(heatproof.open_data(Batch(ids, images)), seed=1).ids
        != forward.ids
    )
    explainers = {"saliency": Saliency(), "random": RandomMap()}
    whole, parts = (run(explainers, n=11, shard_size=s, batch_size=4).table() for s in (11, 3))
    assert fass(whole).chance.notna().any()
    pd.testing.assert_frame_equal(fass(whole), fass(parts), rtol=1e-4)


@pytest.mark.parametrize("references", [3, 10])
def test_chance_is_the_mean_over_as_many_references_as_are_asked_for(references):
    images, network = pictures(12)[0], model()
    still = Stability(perturbations={"brightness": {"factor": 1.01}}, k=50)
    frame = fass(run({"e": Saliency()}, still, 12, references=references).table())
    data = heatproof.open_data(images)
    others = referencing.load_references(data, 0, references)
    assert len(others) == references

    def maps(batch: Batch) -> torch.Tensor:
        return Saliency()(network, batch, network.logits(network.inputs(batch)).argmax(1), 0)

    brighter = maps(Batch(data.ids, (images * 1.01).clamp(0, 1)))
    scores = composite(compare_all(profile(maps(others), 50), profile(brighter, 50)))
    for i, (value, sample) in enumerate(zip(frame.chance, data.ids, strict=True)):
        wanted = scores[[other != sample for other in others.ids], i].mean()
        assert value == pytest.approx(float(wanted), abs=1e-5)


def test_other_references_are_another_study(tmp_path):
    data = heatproof.open_data(pictures(4)[0])
    run({"e": Saliency()}, out=tmp_path / "run", data=data)
    chosen = referencing.load_references(data, 0).ids
    assert heatproof.read(tmp_path / "run").manifest.references("data") == list(chosen)
    with pytest.raises(
        UserError,
        match=rf"datasets\.data\.references.*{chosen[3]}",
    ):
        run({"e": Saliency()}, out=tmp_path / "run", data=data, references=3)
    run({"e": Saliency()}, out=tmp_path / "few", data=data, references=3)
    with pytest.raises(UserError, match=rf"datasets\.data\.references.*{chosen[3]}"):
        run({"e": Saliency()}, out=tmp_path / "few", data=data)
    with pytest.raises(UserError, match=r"references.*1"):
        run({"e": Saliency()}, n=4, references=1)


def test_a_reference_that_can_no_longer_be_read_is_another_study(tmp_path):
    def load(x: int) -> torch.Tensor:
        if (tmp_path / f"{x} is gone").exists():
            raise OSError("gone")
        return pictures(6)[0][x]

    class Images(torch.utils.data.Dataset):
        def __len__(self) -> int:
            return 6

        def __getitem__(self, i: int) -> torch.Tensor:
            return load(i)

    data = heatproof.open_data(Images())
    run({"e": Saliency()}, out=tmp_path / "run", data=data, references=2)
    _, second, third = referencing.load_references(data, 0, 3).ids
    (tmp_path / f"{data.ids.index(second)} is gone").touch()
    with pytest.raises(UserError, match=rf"references.*{second}.*{third}"):
        run({"e": Saliency()}, out=tmp_path / "run", data=data, references=2)


# --- samples that fail ----------------------------------------------------------------------------------------------


@pytest.fixture
def folder(tmp_path):
    """Seven pictures, the third and the last of which are cut off."""
    photos = tmp_path / "photos"
    photos.mkdir()
    for i, x in enumerate(pictures(7)[0]):
        pixels = (x * 255).round().to(torch.uint8).permute(1, 2, 0).numpy()
        Image.fromarray(np.asarray(pixels)).resize((48, 48)).save(photos / f"{i}.jpg", quality=95)
    for i in (2, 6):
        whole = (photos / f"{i}.jpg").read_bytes()
        (photos / f"{i}.jpg").write_bytes(whole[: len(whole) // 2])
    return photos


@pytest.mark.parametrize("shard_size", [1, 4])
def test_a_picture_that_cannot_be_read_is_recorded_and_the_run_goes_on(
    folder, shard_size, tmp_path
):
    data = heatproof.open_data(folder, size=32)
    result = run({"e": Saliency()}, data=data, shard_size=shard_size, out=tmp_path / "run")
    samples = result.samples().set_index("sample")
    assert list(samples.index) == [f"{i}.jpg" for i in range(7)]
    broken = samples[samples.error != ""]
    assert list(broken.index) == ["2.jpg", "6.jpg"]
    assert broken.predicted.isna().all() and broken.probability.isna().all()
    assert broken.error.str.contains("truncated").all()
    assert samples.loc["0.jpg", "predicted_name"] in ("disc", "bar", "cross", "ring")
    frame = fass(result.table())
    assert sorted(frame["sample"]) == ["0.jpg", "1.jpg", "3.jpg", "4.jpg", "5.jpg"]
    html = result.report().read_text()
    assert "2.jpg" in html and "6.jpg" in html and "truncated" in html
    assert re.search(r"\b2\b[^<]*(unreadable|read)", html)
    net = model()
    run({"e": Saliency()}, data=data, shard_size=shard_size, out=tmp_path / "run", model=net)
    assert net.passes == 0, "an unreadable shard is finished, too"


def test_data_of_which_nothing_can_be_read_is_an_error(tmp_path):
    (tmp_path / "a.jpg").write_bytes(b"not a picture")
    with pytest.raises(UserError, match="could be read"):
        run({"e": Saliency()}, data=heatproof.open_data(tmp_path, size=32))


class Fragile(nn.Module):
    """NaN for pictures with a first pixel of exactly 0.75."""

    def __init__(self):
        super().__init__()
        self.net = model().module

    def forward(self, x):
        bad = x[:, :1, 0, 0] == 0.75
        return self.net(x).masked_fill(bad, torch.nan)


def test_a_prediction_that_is_not_finite_leaves_that_sample_undefined():
    images = pictures(5)[0]
    images[3, :, 0, 0] = 0.75
    still = Stability(perturbations=["identity", {"brightness": {"factor": 1.001}}], k=50)
    explainers = {"saliency": Saliency(), "sobel": heatproof.SobelEdges()}
    frame = run(explainers, still, data=images, model=Model(Fragile())).table()
    bad = frame[(frame["sample"] == "0003")]
    assert set(bad.status) == {"undefined"}
    assert set(bad.reason) == {"the prediction is not finite"}
    good = frame[frame["sample"] != "0003"]
    assert set(good.status) == {"ok"}
    assert np.isfinite(good.value).all()


def test_the_chance_of_a_single_sample_is_undefined_and_no_error():
    frame = run({"e": Saliency()}, Stability(perturbations=["jpeg", "rotation"], k=50), n=1).table()
    scored = frame[frame.status == "ok"]
    assert len(scored) and scored.chance.isna().all() and scored.value.notna().all()
    assert set(scored.chance_reason) == {"no other sample to compare with"}


# --- options --------------------------------------------------------------------------------------------------------


def test_max_drop_turns_pairs_away_and_says_why():
    turn = {"rotation": {"degrees": 15}}
    free = fass(run({"e": Saliency()}, Stability(perturbations=turn, k=50), 16).table()).set_index(
        "sample"
    )
    strict = fass(
        run({"e": Saliency()}, Stability(perturbations=turn, k=50, max_drop=0.05), 16).table()
    )
    strict = strict.set_index("sample")
    turned = strict.index[(strict.status == "flipped") & (free.status == "ok")]
    assert 0 < len(turned) < (free.status == "ok").sum()
    assert (
        strict.loc[turned]
        .reason.str.fullmatch(r"probability fell by 0\.\d+, more than 0\.05")
        .all()
    )
    same = strict.index.difference(turned)
    pd.testing.assert_frame_equal(strict.loc[same], free.loc[same])


def test_the_composite_is_the_weighted_mean():
    frame = run({"e": Saliency()}, Stability(perturbations="jpeg", k=50, weights=(1, 2, 5))).table()
    ok = frame[frame.status == "ok"]
    wide = ok.pivot(index="sample", columns="measure", values=["value", "chance"])
    assert len(wide)
    for column in ("value", "chance"):
        expected = wide[column]["ssim"] + 2 * wide[column]["spearman"] + 5 * wide[column]["jaccard"]
        np.testing.assert_allclose(wide[column]["fass"], expected / 8, rtol=1e-5)
    alone = run({"e": Saliency()}, Stability(perturbations="jpeg", k=50, weights=(0, 0, 3))).table()
    pd.testing.assert_series_equal(
        fass(alone).value, fass(frame, "jaccard").value, check_index=False
    )


def test_k_as_a_fraction_is_of_all_values():
    size = 3 * 32 * 32
    fraction = run({"e": Saliency()}, Stability(perturbations="jpeg", k=300 / size)).table()
    count = run({"e": Saliency()}, Stability(perturbations="jpeg", k=300)).table()
    pd.testing.assert_frame_equal(fraction, count)
    other = run({"e": Saliency()}, Stability(perturbations="jpeg", k=30)).table()
    assert not np.allclose(
        fass(other, "jaccard").value, fass(count, "jaccard").value, equal_nan=True
    )


def test_ordinal_ties_inflate_the_score_of_piecewise_constant_maps():
    def coarse(model, batch, target, seed):
        return (batch.x * 4).floor()

    explainers = {
        "lime": Lime(samples=30, features=heatproof.features.Patches(size=8)),
        "coarse": coarse,
    }
    gentle = [{"brightness": {"factor": 1.1}}, {"gaussian_noise": {"sigma": 0.1}}]
    frames = []
    for ties in ("average", "ordinal"):
        frame = run(
            {**explainers, "fine": Saliency()}, Stability(perturbations=gentle, k=50, ties=ties), 8
        ).table()
        frames.append(frame[frame.status == "ok"])
    a, o = (f[(f.explainer == "lime") & (f.measure == "spearman")].value.to_numpy() for f in frames)
    assert len(a) > 5 and (o >= a - 1e-6).all() and (o > a + 1e-5).any()
    a, o = (
        f[(f.explainer == "coarse") & (f.measure == "jaccard")].value.to_numpy() for f in frames
    )
    assert np.abs(a - o).max() > 0.05
    a, o = (f[f.explainer == "fine"].value.to_numpy() for f in frames)
    np.testing.assert_allclose(a, o, atol=2e-3)  # no ties: both rules agree


def test_noise_floors_are_for_stochastic_explainers_only():
    explainers = {
        "ig": IntegratedGradients(steps=3),
        "random": RandomMap(),
        "shap": heatproof.GradientShap(samples=2),
    }
    frame = run(explainers, n=4).table()
    floor = frame[frame.condition == "redraw"]
    assert set(floor.explainer) == {"random", "shap"}
    assert len(floor) == 2 * 4 * 4 and floor.measure.str.startswith("noise_floor").all()
    assert not frame[frame.condition != "redraw"].measure.str.startswith("noise_floor").any()
    assert floor[floor.explainer == "random"].value.max() < 0.6
    quiet = run(explainers, Stability(perturbations="jpeg", k=50, noise_floor=False), n=4).table()
    assert "redraw" not in set(quiet.condition)


def test_unaligned_rows_are_for_geometric_perturbations_only():
    kinds = [
        {"rotation": {"degrees": 5}},
        {"translation": {"pixels": 2}},
        "elastic",
        "jpeg",
        "occluding_patch",
    ]
    frame = run({"e": Saliency()}, Stability(perturbations=kinds, k=50), n=4).table()
    unaligned = frame[frame.measure.str.contains("unaligned")]
    assert set(unaligned.condition) == {"rotation", "translation", "elastic"}
    components = ("ssim", "spearman", "jaccard", "fass")
    assert set(unaligned.measure) == {f"{name}_unaligned" for name in components}
    assert set(frame.measure) == {*components, *unaligned.measure}
    off = run({"e": Saliency()}, Stability(perturbations=kinds, k=50, aligned=False), n=4).table()
    assert set(off.measure) == set(components)
    same = ["sample", "condition"]
    as_they_are = (
        unaligned[unaligned.measure == "fass_unaligned"].set_index(same).value.sort_index()
    )
    without = fass(off).set_index(same).value.loc[as_they_are.index]
    np.testing.assert_allclose(without, as_they_are)


# --- one's own ------------------------------------------------------------------------------------------------------


def test_ones_own_explainer_may_be_a_function():
    def gradient(model, batch, target, seed):
        return Saliency()(model, batch, target, seed)

    frame = run([gradient, "saliency"]).table()
    assert set(frame.explainer) == {"gradient", "saliency"}
    mine, theirs = (
        fass(frame[frame.explainer == e]).value.to_numpy() for e in ("gradient", "saliency")
    )
    np.testing.assert_array_equal(mine, theirs)


def darker(batch, seed):
    return batch.x * 0.9


@dataclass(frozen=True)
class Flip:
    """A mirror image, which moves maps alike."""

    times: int = 1
    name = "flip"
    magnitude_field = "times"
    stochastic = False

    def __call__(self, batch, seed):
        return batch.x.flip(-1) if self.times % 2 else batch.x

    def move(self, maps, ids, seed):
        moved = maps.flip(-1) if self.times % 2 else maps
        return moved, torch.ones(len(maps), 1, *maps.shape[-2:], dtype=torch.bool)


def test_ones_own_perturbation_may_be_a_function_or_an_object(tmp_path):
    mine = Stability(
        perturbations=[darker, Flip(1), Flip(2), Jpeg(), {"rotation": {"degrees": 5}}, Rotation()],
        k=50,
    )
    result = run({"e": Saliency()}, mine, n=5, out=tmp_path / "run")
    frame = result.table()
    assert set(zip(frame.condition, frame.level, strict=True)) == {
        *{("darker", 0.0), ("flip", 1.0), ("flip", 2.0)},
        *{("jpeg", 40.0), ("rotation", 5.0), ("rotation", 15.0)},
    }
    twice = frame[(frame.condition == "flip") & (frame.level == 2)]
    assert (twice.value == 1).all() and twice.measure.str.endswith("_unaligned").sum() == 4 * 5
    assert set(frame[frame.condition == "darker"].measure) == set(
        frame[frame.condition == "jpeg"].measure
    )
    assert "darker" in result.report().read_text()


def test_a_map_with_one_channel_or_none_is_repeated_for_all():
    def one_channel(model, batch, target, seed):
        return model.inputs(batch).mean(1, keepdim=True)

    def no_channel(model, batch, target, seed):
        return model.inputs(batch).mean(1)

    table = heatproof.evaluate(
        model(), pictures(3), [one_channel, no_channel], Stability(perturbations="rotation")
    ).table()
    kept = table[table.status == "ok"]
    first, second = (
        kept[kept.explainer == name].value.tolist() for name in ("one_channel", "no_channel")
    )
    assert first == second and first


def test_a_map_of_another_shape_is_refused_with_both_shapes():
    def strange(model, batch, target, seed):
        return model.inputs(batch)[:, :, ::2]

    with pytest.raises(UserError, match=r"'strange'.*\(\d, 3, 16, 32\)"):
        heatproof.evaluate(model(), pictures(3), [strange], Stability(perturbations="jpeg"))


class Smooth(nn.Module):
    """A network without a ReLU, that counts the inputs it is given."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(
            nn.Conv2d(3, 4, 3), nn.GELU(), nn.AdaptiveAvgPool2d(2), nn.Flatten()
        )
        self.head, self.seen = nn.Linear(16, 3), []

    def forward(self, x):
        self.seen.append(len(x))
        return self.head(self.layers(x))


@pytest.mark.parametrize(
    "last", ["guided_backprop", {"smoothgrad": {"of": "guided_backprop", "samples": 2}}]
)
def test_a_network_that_lacks_what_the_last_method_needs_is_refused_before_the_others_work(
    last, tmp_path
):
    net = Model(Smooth())
    with pytest.raises(UserError, match=r"guided_backprop.*ReLU.*Smooth"):
        run(["rise", "occlusion", last], "stability", model=net, out=tmp_path / "run")
    assert sum(net.module.seen) < 20
    assert not list((tmp_path / "run").rglob("*.parquet"))


def test_the_trial_of_such_a_method_counts_for_nothing():
    passes = [
        sum(run([name], n=4).manifest.sessions[-1].passes.values())
        for name in ("saliency", "guided_backprop")
    ]
    assert passes[0] == passes[1]

"""`evaluate` and `read` as a user calls them: what goes in, what comes out, resuming, and refusing."""

from __future__ import annotations

import inspect
import time
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch
from PIL import Image
from torch import nn
from torch.utils.data import TensorDataset

import heatproof
from heatproof import (
    Batch,
    GradientShap,
    IntegratedGradients,
    Model,
    Saliency,
    Stability,
    UserError,
)
from heatproof.explainers import RepresentationSimilarity
from heatproof.runs.references import load_references
from heatproof.runs.storage import part_of
from support.edits import edit_json
from support.small import model, pictures

COLUMNS = [
    "dataset",
    "model",
    "explainer",
    "role",
    "evaluation",
    "sample",
    "measure",
    "condition",
    "level",
]
COLUMNS += [
    "imputer",
    "order",
    "share",
    "repeat",
    "value",
    "chance",
    "low",
    "high",
    "status",
    "reason",
]
COLUMNS += ["chance_reason", "predicted_after"]
JPEG = Stability(perturbations="jpeg", k=50)


def run(explainers=("saliency",), evaluation=JPEG, out=None, n=5, **options) -> heatproof.Run:
    given = {"model": model(), "data": pictures(n)[0], "shard_size": 2, **options}
    return heatproof.evaluate(explainers=explainers, evaluations=evaluation, out=out, **given)


def parts(out: Path) -> dict[str, tuple[int, bytes]]:
    return {
        str(p.relative_to(out)): (p.stat().st_mtime_ns, p.read_bytes())
        for p in out.glob("parts/**/*.parquet")
    }


def test_the_parts_are_read_once_for_statistics_and_again_when_there_are_more(
    tmp_path, monkeypatch
):
    result, reads = run(("saliency", "sobel"), out=tmp_path), []
    before = heatproof.runs.tables.read_scores
    monkeypatch.setattr(
        heatproof.runs.tables, "read_scores", lambda *a, **k: reads.append(1) or before(*a, **k)
    )
    summary, _, _ = result.summary(), result.ranking(), result.tests()
    assert len(reads) == 1
    run(("saliency", "sobel", "random"), out=tmp_path)
    assert len(result.summary()) > len(summary) and len(reads) == 2


# --- what goes in and what comes out ------------------------------------------------------------------------------


def test_the_call_has_the_documented_names():
    given = list(inspect.signature(heatproof.evaluate).parameters)
    assert given[:5] == ["model", "data", "explainers", "evaluations", "out"]


def test_names_and_objects_give_a_run_with_a_table_and_a_summary(tmp_path):
    result = heatproof.evaluate(
        model=model(),
        data=pictures(4)[0],
        explainers=[
            "input_x_gradient",
            IntegratedGradients(steps=5),
            {"gradient_shap": {"samples": 2}},
        ],
        evaluations=[
            "stability",
            {"stability": {"perturbations": "fass-mild", "k": 50}, "as": "mild"},
        ],
        out=tmp_path / "run",
    )
    frame = result.table()
    assert list(frame.columns) == COLUMNS
    assert set(frame.explainer) == {
        "input_x_gradient",
        "integrated_gradients(steps=5)",
        "gradient_shap(samples=2)",
    }
    assert set(frame.evaluation) == {"stability", "mild"}
    assert set(frame.status) <= {"ok", "flipped", "undefined"}
    summary = result.summary()
    for column in (
        *(
            "dataset",
            "model",
            "evaluation",
            "explainer",
            "condition",
            "level",
            "measure",
            "mean",
            "low",
            "high",
        ),
        *(
            "chance",
            "calibrated",
            "calibrated_low",
            "calibrated_high",
            "noise_floor",
        ),
        *(
            "attempted",
            "retained",
            "flipped",
            "undefined",
            "retention",
            "retention_low",
            "retention_high",
            "flag",
        ),
    ):
        assert column in summary, column
    assert (summary.attempted == summary.retained + summary.flipped + summary.undefined).all()
    assert set(summary.measure) >= {"ssim", "spearman", "jaccard", "fass"}
    opened = heatproof.read(tmp_path / "run")
    pd.testing.assert_frame_equal(opened.table(), frame)
    pd.testing.assert_frame_equal(opened.summary(), summary)
    assert "input_x_gradient" in repr(opened) and "shapes" in repr(opened)
    assert set(opened.ranking().explainer) == set(frame.explainer)
    assert opened.report(tmp_path / "elsewhere" / "r.html") == tmp_path / "elsewhere" / "r.html"
    assert (
        (tmp_path / "elsewhere" / "r.html")
        .read_text()
        .lstrip()
        .lower()
        .startswith("<!doctype html")
    )


def test_a_bare_module_a_bare_name_and_no_directory_will_do():
    net = nn.Sequential(nn.Flatten(), nn.Linear(3 * 32 * 32, 4))
    first, second = (heatproof.evaluate(net, pictures(2)[0], "saliency", JPEG) for _ in range(2))
    assert first.path != second.path and first.path.is_dir()
    assert set(first.table().model) == {"Sequential"}


def test_every_form_of_data_gives_the_same_scores(tmp_path):
    images = (pictures(4)[0] * 255).round() / 255
    labels = pictures(4)[1]
    folder = tmp_path / "photos"
    folder.mkdir()
    for i, x in enumerate(images):
        pixels = (x * 255).round().to(torch.uint8).permute(1, 2, 0).numpy()
        Image.fromarray(np.asarray(pixels)).save(folder / f"{i:04d}.png")
    ids = tuple(f"{i:04d}" for i in range(4))
    forms = {
        "tensor": images,
        "tensor and labels": (images, labels),
        "dataset": TensorDataset(images, labels),
        "batch": Batch(ids=ids, x=images),
        "data": heatproof.open_data(images),
        "path": folder,
    }
    found = {}
    for what, data in forms.items():
        source = heatproof.open_data(data, size=32) if what == "path" else data
        found[what] = run(data=source).table().value.to_numpy()
    for what in set(forms) - {"path"}:
        np.testing.assert_allclose(found[what], found["tensor"], rtol=1e-5, err_msg=what)
    assert set(run(data=heatproof.open_data(folder, size=32)).table()["sample"]) == {
        f"{i}.png" for i in ids
    }
    named = [str(folder), folder]
    by_path = [
        heatproof.evaluate(model(), p, "sobel", Stability(perturbations="identity"), limit=1)
        for p in named
    ]
    assert by_path[0].manifest.study.datasets == by_path[1].manifest.study.datasets


def test_labels_and_predictions_are_in_the_samples():
    images, labels = pictures(6)
    samples = run(data=(images, labels)).samples()
    assert samples.label.tolist() == labels.tolist()
    with torch.no_grad():
        net = model()
        logits = net.logits(net.inputs(Batch(tuple("abcdef"), images)))
    assert samples.predicted.tolist() == logits.argmax(1).tolist()
    np.testing.assert_allclose(samples.probability, logits.softmax(1).max(1).values, rtol=1e-5)
    assert run(data=images).samples().label.isna().all()


def test_two_models_and_two_data_sets_in_one_run():
    other = Model(
        nn.Sequential(nn.Conv2d(3, 4, 3), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten()),
        name="ignored",
    )
    sets = {"few": pictures(3)[0], "more": pictures(5, seed=7)[0]}
    frame = run(model={"trained": model(), "fresh": other}, data=sets).table()
    counts = frame[frame.measure == "fass"].groupby(["dataset", "model"]).size().to_dict()
    assert counts == {
        ("few", "fresh"): 3,
        ("few", "trained"): 3,
        ("more", "fresh"): 5,
        ("more", "trained"): 5,
    }
    alone = run(data=sets["more"]).table()
    together = frame[(frame.model == "trained") & (frame.dataset == "more")]
    np.testing.assert_allclose(together.value, alone.value, rtol=1e-5)


def test_limit_takes_the_first_samples():
    assert sorted(run(n=5, limit=2).table()["sample"].unique()) == ["0000", "0001"]
    assert len(run(n=3, limit=50).samples()) == 3


# --- resuming -----------------------------------------------------------------------------------------------------


def test_running_again_computes_nothing(tmp_path):
    first = run(out=tmp_path).table()
    before = parts(tmp_path)
    net = model()
    again = run(out=tmp_path, model=net)
    assert net.passes == 0
    assert parts(tmp_path) == before
    pd.testing.assert_frame_equal(again.table(), first)
    assert [s.passes["shapes"] > 0 for s in again.manifest.sessions] == [True, False]


def test_a_session_says_what_it_took_by_the_clock_and_in_passes(tmp_path):
    net, (x, _) = model(), pictures(5)
    net.logits(x)
    before, begun = net.passes, time.perf_counter()
    done = run(("saliency", "random"), {"a": JPEG, "b": JPEG}, tmp_path, model=net)
    (session,) = done.manifest.sessions
    elapsed = time.perf_counter() - begun + 0.01  # as it is rounded
    assert set(session.durations) == {"a", "b"} and min(session.durations.values()) >= 0
    assert sum(session.durations.values()) - 0.02 <= session.seconds <= elapsed
    assert session.passes == {"shapes": net.passes - before} and before > 0


def test_adding_an_explainer_computes_only_that_one(tmp_path, monkeypatch):
    run(out=tmp_path)
    before = parts(tmp_path)

    def brightness(model, batch, target, seed):
        return batch.x

    net = model()
    logits = net.logits

    def only_predictions(inputs, aux=None):
        assert not torch.is_grad_enabled(), "saliency is computed again"
        return logits(inputs, aux)

    monkeypatch.setattr(net, "logits", only_predictions)
    result = run(["saliency", brightness], out=tmp_path, model=net)
    assert net.passes > 0
    after = parts(tmp_path)
    assert {k: v for k, v in after.items() if k in before} == before
    assert len(after) == 2 * len(before)
    pd.testing.assert_frame_equal(result.table(), run(["saliency", brightness]).table())
    only = run([brightness], out=tmp_path)  # one that is left out of the study stays in the run
    assert set(only.table().explainer) == {"saliency", "brightness"}
    assert set(only.manifest.study.explainers) == {"saliency", "brightness"}


def test_adding_an_evaluation_keeps_the_first(tmp_path):
    run(out=tmp_path)
    before = parts(tmp_path)
    both = {"stability": JPEG, "bright": Stability(perturbations="brightness", k=50)}
    frame = run(evaluation=both, out=tmp_path).table()
    assert {k: v for k, v in parts(tmp_path).items() if k in before} == before
    assert set(frame.evaluation) == {"stability", "bright"}


def test_an_interrupted_run_is_completed_identically(tmp_path):
    explainers = {
        "saliency": Saliency(),
        "shap": GradientShap(samples=2),
        "random": heatproof.RandomMap(),
    }
    whole = run(explainers, out=tmp_path).table()
    files = sorted(tmp_path.glob("**/*.parquet"))
    kept = {p: p.read_bytes() for p in files}
    for path in files[1::2]:
        path.unlink()
    leftover = files[0].with_name(f".{files[0].name}.4242.tmp")
    leftover.write_bytes(b"half")
    result = run(
        explainers, out=tmp_path, shard_size=64, batch_size=2
    )  # the run's own shard size counts
    pd.testing.assert_frame_equal(result.table(), whole, rtol=1e-4)
    assert not leftover.exists()
    there, before = (
        sorted(p.with_name(part_of(p.name)) for p in found if p.is_relative_to(tmp_path / "parts"))
        for found in (tmp_path.glob("parts/**/*.parquet"), files)
    )
    assert there == before
    assert all(
        p.read_bytes() == kept[p] for p in files[0::2] if p.is_relative_to(tmp_path / "parts")
    )


def test_a_run_killed_while_it_wrote_its_first_file_can_start(tmp_path):
    (tmp_path / ".manifest.json.4242.tmp").write_bytes(b'{"format"')
    assert len(run(out=tmp_path).table())
    assert not list(tmp_path.glob(".*.tmp"))


# --- refusing -----------------------------------------------------------------------------------------------------


def changed_weights() -> Model:
    net = Model(model().module, mean=(0.5,) * 3, std=(0.5,) * 3, name="shapes")
    state = {
        name: tensor + 1e-3
        for name, tensor in net.module.state_dict().items()
        if tensor.is_floating_point()
    }
    net.module.load_state_dict({**net.module.state_dict(), **state}, assign=True)
    return net


CHANGES = {
    "a perturbation more": (
        lambda: {"evaluation": Stability(perturbations=["jpeg", "rotation"], k=50)},
        ["evaluations.stability.perturbations", "rotation(degrees=15.0"],
    ),
    "another magnitude": (
        lambda: {"evaluation": Stability(perturbations={"jpeg": {"quality": 41}}, k=50)},
        ["evaluations.stability.perturbations", "jpeg(quality=40", "jpeg(quality=41"],
    ),
    "another k": (
        lambda: {"evaluation": Stability(perturbations="jpeg", k=51)},
        ["evaluations.stability.k", " 50", " 51"],
    ),
    "another seed": (lambda: {"seed": 7}, ["seed", " 0", " 7"]),
    "other weights": (lambda: {"model": changed_weights()}, ["models.shapes", "weights"]),
    "another mean": (
        lambda: {"model": Model(model().module, mean=0.4, std=(0.5,) * 3, name="shapes")},
        ["models.shapes.mean", "[0.5, 0.5, 0.5]", "0.4"],
    ),
    "other data": (lambda: {"data": pictures(5, seed=9)[0]}, ["datasets.data: "]),
    "fewer samples": (
        lambda: {"limit": 3},
        ["datasets.data.samples", " 5", " 3"],
    ),
    "another parameter under the same label": (
        lambda: {"explainers": {"saliency": Saliency(absolute=False)}},
        ["explainers.saliency.absolute", "true", "false"],
    ),
}


@pytest.fixture(scope="module")
def finished(tmp_path_factory) -> Path:
    return run(out=tmp_path_factory.mktemp("finished") / "run").path


@pytest.mark.parametrize("what", CHANGES)
def test_another_study_in_the_same_directory_is_refused_with_the_difference(finished, what):
    before = {p: p.read_bytes() for p in finished.glob("**/*") if p.is_file()}
    change, words = CHANGES[what]
    options = {"model": model(), **change()}
    passes = options["model"].passes
    with pytest.raises(UserError, match="another study") as caught:
        run(out=finished, **options)
    assert str(finished) in str(caught.value)
    for word in words:
        assert word in str(caught.value)
    assert options["model"].passes == passes
    assert {p: p.read_bytes() for p in finished.glob("**/*") if p.is_file()} == before


def test_a_run_of_another_version_is_refused(tmp_path):
    run(out=tmp_path)
    edit_json(tmp_path / "manifest.json", lambda content: content.update(heatproof="0.0.1"))
    with pytest.raises(UserError, match=r'heatproof.*"0\.0\.1"'):
        run(out=tmp_path)


def test_a_directory_of_something_else_is_refused_and_untouched(tmp_path):
    (tmp_path / "thesis.tex").write_text("dear to me")
    net = model()
    with pytest.raises(UserError, match="not empty"):
        run(out=tmp_path, model=net)
    assert [p.name for p in tmp_path.iterdir()] == ["thesis.tex"]
    with pytest.raises(UserError, match=r"thesis\.tex.*file"):
        run(out=tmp_path / "thesis.tex", model=net)
    (tmp_path / "manifest.json").write_text('{"name": "web app"}')
    with pytest.raises(UserError, match="manifest"):
        run(out=tmp_path, model=net)
    assert net.passes == 0


def two_at_a_time(model, batch):
    """An explainer that forgets the class and the seed."""


MISTAKES = {
    "batch_size=0": ({"batch_size": 0}, "batch_size.* 0"),
    "batch_size=2.5": ({"batch_size": 2.5}, r"batch_size.* 2\.5"),
    "shard_size=0": ({"shard_size": 0}, "shard_size.* 0"),
    "seed": ({"seed": "lucky"}, "seed.*'lucky'"),
    "limit=0": ({"limit": 0}, "limit.* 0"),
    "device": ({"device": "gpu"}, "'gpu'.*cpu"),
    "unknown explainer": ({"explainers": ["sailency"]}, "'sailency'.*'saliency'"),
    "no explainer": ({"explainers": []}, "no explainer"),
    "a class": ({"explainers": [Saliency]}, r"Saliency\(\)"),
    "a class as evaluation": ({"evaluation": Stability}, r"Stability\(\)"),
    "the same twice": ({"explainers": ["saliency", Saliency()]}, "'saliency'.*twice"),
    "unknown parameter": ({"explainers": [{"lime": {"sample": 3}}]}, "lime.*'sample'.*'samples'"),
    "bad parameter": ({"explainers": [{"lime": {"samples": -3}}]}, "lime.samples"),
    "an evaluation as explainer": ({"explainers": [Stability()]}, "stability.*explainer"),
    "an explainer as evaluation": ({"evaluation": [Saliency()]}, "saliency.*evaluation"),
    "unknown evaluation": ({"evaluation": "stabilty"}, "'stabilty'.*'stability'"),
    "unknown perturbation": (
        {"evaluation": {"s": {"stability": {"perturbations": "jpg"}}}},
        "'jpg'.*'jpeg'",
    ),
    "k too large": ({"evaluation": Stability(k=3072)}, "k.*3072"),
    "a translation out of the image": (
        {"evaluation": Stability(perturbations={"translation": {"pixels": 40}})},
        "translation.*40",
    ),
    "pixels to 255": ({"data": pictures(2)[0] * 255}, "0, 1|255"),
    "pixels below 0": ({"data": pictures(2)[0] * 2 - 1}, "0, 1"),
    "not a number": ({"data": torch.full((2, 3, 32, 32), torch.nan)}, "finite"),
    "no samples": ({"data": torch.zeros(0, 3, 32, 32)}, "empty"),
    "one channel": ({"data": pictures(2)[0][:, :1]}, r"3 channels.*\(1, 32, 32\)"),
    "not images": ({"data": torch.rand(4, 20)}, r"3 channels.*\(20,\)"),
    "no path": ({"data": "no/such/folder"}, "'no'"),
    "no data": ({"data": {}}, "no data"),
    "a function of two": (
        {"explainers": [two_at_a_time]},
        "two_at_a_time.*model",
    ),
    "nothing of the kind": (
        {
            "explainers": [
                RepresentationSimilarity(train=Batch(("a",), pictures(1)[0]), layer="0")
            ],
            "evaluation": "certificate",
        },
        "certificate.*feature explanations",
    ),
}


@pytest.mark.parametrize("what", MISTAKES)
def test_a_mistake_is_found_before_any_model_pass_and_leaves_no_directory(what, tmp_path):
    options, words = MISTAKES[what]
    net = model()
    with pytest.raises(UserError, match=words):
        run(out=tmp_path / "run", model=net, **options)
    assert net.passes == 0
    assert not (tmp_path / "run").exists()


def test_data_of_which_nothing_can_be_read_are_a_mistake(tmp_path):
    (tmp_path / "a.png").write_bytes(b"no picture")
    net, data = model(), heatproof.open_data(tmp_path, size=32)
    with pytest.raises(UserError, match=r"a.png.*not a picture"):
        run(model=net, data=data)
    with pytest.raises(UserError, match="not a picture"):
        load_references(data, 0)
    assert net.passes == 0


def test_no_model_and_a_model_that_is_none_are_mistakes():
    with pytest.raises(UserError, match="model"):
        run(model={})
    with pytest.raises(UserError, match="model"):
        run(model=3)


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU here")
def test_a_gpu_that_is_not_there_is_a_mistake():
    net = model()
    with pytest.raises(UserError, match=r"cuda.*cpu"):
        run(device="cuda", model=net)
    assert net.passes == 0


def test_reading_what_is_no_run_is_a_mistake(tmp_path):
    with pytest.raises(UserError, match=str(tmp_path)):
        heatproof.read(tmp_path)


def test_the_report_names_conditions_in_the_order_of_the_study(tmp_path):
    judged = Stability(
        perturbations=["translation", "brightness", {"rotation": {"degrees": [20, 10]}}], k=50
    )
    done = heatproof.evaluate(model(), pictures(3), "saliency", judged, out=tmp_path / "run")
    page = done.report().read_text()
    places = [
        page.index(f">{words}</button>")
        for words in ("translation 20 px", "brightness ×1.5", "rotation 10°", "rotation 20°")
    ]
    assert places == sorted(places)

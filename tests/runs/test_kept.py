"""Maps that a run keeps: the same for every batch size and after any loss, exported, and judged without a model."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pandas as pd
import pytest
import torch
from PIL import Image

import heatproof
from heatproof.errors import UserError
from heatproof.evaluation import Scores
from heatproof.maps.complexity import gini
from heatproof.runs.export import export
from heatproof.runs.plan import make_plan
from heatproof.runs.tables import KEY
from heatproof.runs.verify import missing, verify
from support.paths import SMALL
from support.small import model, pictures

METHODS = ["saliency", "grad_cam", {"lime": {"samples": 30}}, "random"]
AXES = {
    "stability": {"stability": {"perturbations": "jpeg", "k": 50}},
    "agreement": {"agreement": {"k": 50}},
}
X, _ = pictures(7)


def keep(
    out: Path | None = None, axes: Any = AXES, keep_maps: Any = True, **options: Any
) -> heatproof.Run:
    options = {"shard_size": 3, "batch_size": 4, **options}
    return heatproof.evaluate(
        model(), X, METHODS, axes, out, keep_maps=keep_maps, show_progress=False, **options
    )


@pytest.fixture(scope="module")
def kept(tmp_path_factory: pytest.TempPathFactory) -> heatproof.Run:
    return keep(tmp_path_factory.mktemp("kept") / "run")


def every(run: heatproof.Run) -> dict[str, np.ndarray]:
    return {name: np.stack(list(run.maps(name).values())) for name in run.manifest.study.explainers}


def assert_alike(one: np.ndarray, other: np.ndarray) -> None:
    """A batch of another size is rounded differently, and near a kink that decides where a gradient goes."""
    far = np.abs(one - other) > 1e-4 * np.abs(one).reshape(len(one), -1).max(1).reshape(-1, 1, 1, 1)
    assert far.mean() < 0.01


def test_maps_are_those_that_the_explainer_gives(kept: heatproof.Run) -> None:
    net = model()
    batch = heatproof.Batch(tuple(f"{i:04d}" for i in range(7)), X)
    target = net.logits(net.inputs(batch)).argmax(1)
    direct = heatproof.Saliency()(net, batch, target, 0).detach().numpy()
    assert (kept.maps("saliency", "0003").shape, kept.maps("saliency", "0003").dtype) == (
        (3, 32, 32),
        np.float32,
    )
    assert_alike(direct, every(kept)["saliency"])
    assert_alike(heatproof.explain(model(), X, "grad_cam"), every(kept)["grad_cam"])


@pytest.mark.parametrize(("batch_size", "shard_size"), [(1, 3), (64, 50)])
def test_maps_do_not_depend_on_batch_and_shard_size(
    kept: heatproof.Run, batch_size: int, shard_size: int
) -> None:
    again = every(keep(axes=[], batch_size=batch_size, shard_size=shard_size))
    for name, maps in every(kept).items():
        assert_alike(maps, again[name])


def test_what_is_lost_or_damaged_comes_again_to_the_last_bit(
    kept: heatproof.Run, tmp_path: Path
) -> None:
    before = every(kept)
    run = keep(tmp_path / "run")
    lost, hurt, *_ = sorted(tmp_path.glob("run/maps/**/*.parquet"))
    lost.unlink()
    hurt.write_bytes(hurt.read_bytes()[:-9])
    states = {verdict.state: verdict for verdict in verify(run.path)}
    assert set(states) == {"intact", "corrupt", "missing"} and "maps of" in states["missing"].name
    assert "1 part is missing" in run._repr_html_()
    passes = run.manifest.sessions[-1].passes["shapes"]
    done = keep(tmp_path / "run")
    assert all(np.array_equal(maps, before[name]) for name, maps in every(done).items())
    assert {verdict.state for verdict in verify(run.path)} == {"intact"}
    assert done.manifest.sessions[-1].passes["shapes"] < passes, "only what was lost is computed"
    packed = heatproof.read(export(done, "zip").path)
    assert np.array_equal(packed.maps("grad_cam", "0003"), before["grad_cam"][3])


def test_some_samples_only(tmp_path: Path) -> None:
    run = keep(tmp_path / "run", keep_maps=["0001", "0005"])
    assert list(run.maps("lime(samples=30)")) == ["0001", "0005"]
    assert missing(run.path) == []
    with pytest.raises(UserError, match="0002"):
        run.maps("saliency", "0002")
    with pytest.raises(UserError, match=r"keep_maps.*'0009'.*'000\d'"):
        keep(keep_maps=["0009"])
    for wrong in (2, "0001", None):
        with pytest.raises(UserError, match=f"{wrong!r}"):
            keep(keep_maps=wrong)
    with pytest.raises(UserError, match=r'maps\.samples.*"0001", "0005".*"all"'):
        keep(tmp_path / "run")
    assert len(run.judge_maps([AXES["agreement"]])["sample"].unique()) == 2


def test_a_run_without_maps_says_how_to_keep_them(tmp_path: Path) -> None:
    run = keep(tmp_path / "run", keep_maps=False)
    for ask in (
        lambda: run.maps("saliency"),
        lambda: run.judge_maps("agreement"),
        lambda: export(run, "maps"),
    ):
        with pytest.raises(UserError, match="keep_maps"):
            ask()
    with pytest.raises(UserError, match=r"'salience'.*'saliency'"):
        run.maps("salience")
    assert keep(tmp_path / "run").maps("saliency", "0000").shape == (3, 32, 32), (
        "maps may be added to a run"
    )


class Sparse:
    """An evaluation of one's own that needs nothing but maps."""

    name: ClassVar[str] = "sparse"

    def conditions(self) -> list[tuple[str, float]]:
        return [("clean", 0.0)]

    def __call__(self, subject: Any) -> Iterator[Scores]:
        for name in subject.explainers:
            maps = subject.maps(name)
            yield Scores.column(name, "gini", ("clean", 0.0), gini(maps), [""] * len(maps))


def test_kept_maps_are_judged_without_the_model(kept: heatproof.Run) -> None:
    table = kept.table()
    own = table[table["evaluation"] == "agreement"].sort_values(KEY, ignore_index=True)
    again = kept.judge_maps({"agreement": AXES["agreement"]}).sort_values(KEY, ignore_index=True)
    pd.testing.assert_frame_equal(own, again[own.columns], check_dtype=False)
    sparse = (
        kept.judge_maps({"sparse": Sparse()})
        .query("explainer == 'grad_cam'")
        .set_index("sample")["value"]
    )
    for sample, values in kept.maps("grad_cam").items():
        sizes = np.sort(np.abs(values.astype(float)).ravel())
        pairs = np.abs(sizes[:, None] - sizes).mean() / (
            2 * sizes.mean()
        )  # half the relative mean difference
        assert sparse[sample] == pytest.approx(pairs, rel=1e-6)
    with pytest.raises(UserError, match=r"model.*maps"):
        kept.judge_maps({"stability": AXES["stability"]})


def test_kept_maps_are_judged_by_regions_of_the_data() -> None:
    x, labels = pictures(5)
    masks = torch.zeros(5, 32, 32)
    masks[:, 8:24, 8:24] = 1
    data = heatproof.open_data((x, labels), regions=masks)
    run = heatproof.evaluate(
        model(), data, ["saliency", "grad_cam"], ["localisation"], keep_maps=True
    )
    again = run.judge_maps("localisation", data)
    own = run.table().sort_values(KEY, ignore_index=True)
    pd.testing.assert_frame_equal(
        own, again.sort_values(KEY, ignore_index=True)[own.columns], check_dtype=False
    )
    with pytest.raises(UserError, match="maps"):
        run.judge_maps([{"localisation": {"by": "mosaics"}}], data)


def test_exported_maps_are_read_by_others_and_by_heatproof(
    kept: heatproof.Run, tmp_path: Path
) -> None:
    done = export(kept, "maps", tmp_path / "maps")
    assert done.files["grad_cam.npz"] == 7
    with np.load(tmp_path / "maps" / "grad_cam.npz") as held:
        assert np.array_equal(held["maps"], every(kept)["grad_cam"])
        assert held["targets"].tolist() == kept.samples()["predicted"].tolist()
    with Image.open(tmp_path / "maps" / "grad_cam" / "0003.png") as picture:
        assert picture.size == (32, 32)
        seen = np.asarray(picture.convert("L"), dtype=float)
    values = kept.maps("grad_cam", "0003").sum(0)
    assert seen.flat[values.argmax()] < seen.flat[values.argmin()], (
        "the strongest place is the darkest"
    )
    stored = heatproof.explainers.EXPLAINERS["precomputed"](str(tmp_path / "maps" / "grad_cam.npz"))
    again = heatproof.explain(model(), X, stored)
    assert np.array_equal(again, every(kept)["grad_cam"])


def test_the_run_keeps_its_study_file_and_how_data_were_prepared(main: Any, tmp_path: Path) -> None:
    photos = tmp_path / "photos"
    photos.mkdir()
    for i, x in enumerate(X[:3]):
        Image.fromarray((x.permute(1, 2, 0).numpy() * 255).astype("uint8")).save(
            photos / f"{i}.png"
        )
    text = f"""# why this study was made
model: python:{SMALL}:model
data: {{source: photos, size: 32}}
explainers: [saliency]
evaluations: [{{stability: {{perturbations: jpeg, k: 50}}}}]
keep_maps: true
"""
    study = tmp_path / "study.yaml"

    def run(content: str) -> tuple[int, str, str]:
        study.write_text(content)
        return main("run", study, "--out", tmp_path / "run", "--allow-code")

    code, said, error = run(text)
    assert code == 0, error
    assert re.search(r"maps.*0\.0 MB", said)  # 3 · 3 · 32² · 4 bytes
    found = heatproof.read(tmp_path / "run")
    assert found.manifest.study_file == text
    assert found.manifest.prepared["photos"] == {
        "source": str(photos),
        "size": 32,
        "resize": "squash",
    }
    code, _, error = run(text.replace("size: 32", "size: 24"))
    assert code == 2
    assert re.search(r"data\.photos\.size.*32.*24", error)
    assert "datasets.photos: " in error


def test_the_plan_counts_the_bytes_of_maps() -> None:
    plan = make_plan(model(), X, ["saliency", "random"], [], keep_maps=True)
    maps = [heatproof.explain(model(), X, name) for name in ("saliency", "random")]
    assert plan.megabytes() == pytest.approx(sum(m.nbytes for m in maps) / 1e6)


def test_maps_of_several_models_are_asked_for_by_name_and_unreadable_shards_have_none(
    tmp_path: Path,
) -> None:
    for i in range(4):
        (tmp_path / f"{i}.png").write_bytes(b"no picture")
    for i in range(2):
        Image.fromarray(np.full((8, 8, 3), 90 * i, "uint8")).save(tmp_path / f"{i}.png")
    nets = {
        name: torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(3 * 8 * 8, 2))
        for name in ("a", "b")
    }
    data = heatproof.open_data(tmp_path, size=8)
    run = heatproof.evaluate(
        nets, data, "saliency", [], tmp_path / "run", keep_maps=True, shard_size=2
    )
    with pytest.raises(UserError, match="a, b"):
        run.maps("saliency", "0.png")
    assert sorted(run.maps("saliency", model="b")) == ["0.png", "1.png"]
    assert missing(run.path) == [], "the part of a shard without maps is there and is empty"


def test_explain_refuses_what_cannot_be_read(tmp_path: Path) -> None:
    Image.fromarray(np.zeros((8, 8, 3), "uint8")).save(tmp_path / "good.png")
    (tmp_path / "bad.png").write_bytes(b"no picture")
    net = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(3 * 8 * 8, 2))
    with pytest.raises(UserError, match=r"'bad\.png'"):
        heatproof.explain(net, heatproof.open_data(str(tmp_path), size=8), "saliency")

"""What happens beside the passes: the next shard is read, finished parts are written, and sizes of passes."""

from __future__ import annotations

import threading
from dataclasses import replace
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
import torch
from torch import Tensor, nn

import heatproof
from heatproof import Batch, Model, Saliency, Stability, UserError
from heatproof.batching import default_batch_size
from heatproof.data import Data, open_data
from heatproof.data.dataset import Sample
from heatproof.models.randomised import with_weights
from heatproof.runs import storage
from heatproof.runs.directory import PartKey
from heatproof.runs.evaluate import execute
from heatproof.runs.plan import make_plan
from heatproof.types import wrap_explainer
from support.small import model, pictures

JPEG = {"stability": Stability(perturbations="jpeg", k=50)}


LONG = 60.0


class Noted:
    """Saliency that first calls back with the ids it is asked for; no parameter of it is in the manifest."""

    stochastic = False

    def __init__(self, before: Any) -> None:
        self.before = before

    def __call__(self, model: Model, batch: Batch, target: Tensor, seed: int) -> Tensor:
        self.before(batch.ids)
        return Saliency()(model, batch, target, seed)


def nothing(ids: tuple[str, ...]) -> None:
    pass


def run(data: Data, out: Path, shard_size: int = 10, **before: Any) -> heatproof.Run:
    explainers = {
        name: wrap_explainer(Noted(call)) for name, call in (before or {"e": nothing}).items()
    }
    plan = make_plan({"shapes": model()}, {"noise": data}, explainers, JPEG, shard_size=shard_size)
    return execute(plan, out, "test", show_progress=False)


def drawn(n: int = 20, threads: int = 2) -> Data:
    """More samples than there are references, whose shards of ten are read by a reader of their own."""
    return replace(open_data(pictures(n)[0]), threads=threads)


def scores(found: heatproof.Run) -> pd.DataFrame:
    return found.table().sort_values(
        ["explainer", "measure", "condition", "sample"], ignore_index=True
    )


def part(root: Path, explainer: str, shard: int) -> Path:
    found = PartKey.scores(("noise", "shapes", shard), "stability", explainer).path(root)
    assert isinstance(found, Path)
    return found


def is_done(root: Path, explainer: str, shard: int) -> bool:
    storage.forget_listings()
    return storage.present(part(root, explainer, shard))


# --- reading ahead --------------------------------------------------------------------------------------------------


def test_the_next_shard_is_read_while_one_is_worked_on(tmp_path):
    data, read = drawn(), threading.Event()

    def readers(positions):
        if tuple(positions) == tuple(range(10, 20)):
            assert threading.current_thread().name.startswith("heatproof-reader")
            read.set()
        return data.readers(positions)

    def wait(ids):
        assert read.wait(LONG), "the second shard is not read before the first is explained"

    found = run(replace(data, readers=readers), tmp_path / "ahead", e=wait)
    pd.testing.assert_frame_equal(scores(found), scores(run(drawn(threads=1), tmp_path / "plain")))


def test_a_dataset_of_the_users_own_is_read_by_one_thread_only(tmp_path):
    images, seen = pictures(20)[0], set()

    class Mine:
        def __len__(self):
            return len(images)

        def __getitem__(self, i):
            seen.add(threading.current_thread())
            return images[i]

    data = open_data(Mine())
    assert data.threads == 1
    run(data, tmp_path)
    assert seen == {threading.main_thread()}


@pytest.mark.parametrize("threads", [1, 2])
def test_an_error_of_the_reader_comes_up_and_what_was_done_before_it_is_kept(tmp_path, threads):
    whole = drawn(threads=threads)

    def readers(positions):
        short = Sample(torch.zeros(3, 8, 8))
        own = whole.readers(positions)
        return [
            (lambda: short) if i == 15 and list(positions) == list(range(10, 20)) else r
            for i, r in zip(positions, own, strict=True)
        ]

    with pytest.raises(UserError, match=r"'0015'.*\(3, 8, 8\)"):
        run(replace(whole, readers=readers), tmp_path)
    assert is_done(tmp_path, "e", 0) and not is_done(tmp_path, "e", 1)
    asked: list[str] = []
    found = run(whole, tmp_path, e=asked.extend)
    assert not {"0000", "0009"} & set(asked) - set(reference_ids(whole)) and "0015" in asked
    assert len(found.samples()) == 20 and not found.samples().error.any()


def reference_ids(data: Data) -> tuple[str, ...]:
    return heatproof.runs.references.load_references(data, 0).ids


# --- writing --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("lost", ["b", "c"], ids=["in the middle", "the last"])
def test_a_part_that_cannot_be_written_raises_and_the_run_resumes(tmp_path, lost):
    names = dict.fromkeys("abc", nothing)
    obstacle = part(tmp_path / "run", lost, 0).parent

    def obstruct(ids):
        obstacle.parent.mkdir(parents=True, exist_ok=True)
        obstacle.write_text("a file where a folder is needed: what root cannot write to either")

    with pytest.raises(UserError, match=str(obstacle)):
        run(drawn(), tmp_path / "run", **names | {"a": obstruct})
    assert is_done(tmp_path / "run", "a", 0) and not is_done(tmp_path / "run", "a", 1)
    obstacle.unlink()
    found = run(drawn(), tmp_path / "run", **names)
    pd.testing.assert_frame_equal(scores(found), scores(run(drawn(), tmp_path / "plain", **names)))


def test_what_was_handed_to_the_writer_before_an_interruption_is_written(tmp_path):
    def stop(ids):
        raise KeyboardInterrupt

    names = dict.fromkeys("abc", nothing)
    with pytest.raises(KeyboardInterrupt):
        run(drawn(), tmp_path / "run", **names | {"c": stop})
    assert is_done(tmp_path / "run", "a", 0) and not is_done(tmp_path / "run", "c", 0)
    assert not [thread for thread in threading.enumerate() if thread.name.startswith("heatproof-")]
    found = run(drawn(), tmp_path / "run", **names)
    pd.testing.assert_frame_equal(scores(found), scores(run(drawn(), tmp_path / "plain", **names)))


# --- batch sizes ----------------------------------------------------------------------------------------------------


class Small(nn.Module):
    """The trained net on a device that holds `most` inputs; `asked` are the sizes of all passes."""

    def __init__(self, most: int, error: Exception | None = None):
        super().__init__()
        self.net, self.most, self.asked = model().module, most, []
        self.error = error or torch.OutOfMemoryError(
            "CUDA out of memory. Tried to allocate 2.00 GiB"
        )

    def forward(self, x):
        self.asked.append(len(x))
        if len(x) > self.most:
            raise self.error
        return self.net(x)


def test_a_device_too_small_for_the_usual_size_still_finishes(tmp_path):
    images = pictures(5)[0]
    found = heatproof.evaluate(
        Model(Small(2), name="m"), images, Saliency(), JPEG, tmp_path / "run"
    )
    assert found.manifest.sessions[-1].batch_sizes == {"m": 2}
    plain = Model(Small(99), name="m")
    pd.testing.assert_frame_equal(
        scores(found),
        scores(heatproof.evaluate(plain, images, Saliency(), JPEG, batch_size=2)),
        rtol=1e-5,
    )


class OnGpu(Model):
    """Says that it is on a GPU, so that its passes have one of a few sizes."""

    device = torch.device("cuda")

    def inputs(self, batch: Batch) -> Tensor:
        return batch.x


def test_passes_on_a_gpu_have_one_of_a_few_sizes_and_filling_up_changes_nothing():
    wrapped, x = OnGpu(Small(64), rows=64), pictures(64)[0]
    plain = Model(Small(64), rows=64)
    for rows in (1, 4, 5, 16, 17, 40, 64):
        assert torch.allclose(wrapped.logits(x[:rows]), plain.logits(x[:rows]), atol=1e-5)
    assert wrapped.module.asked == [16, 16, 16, 16, 64, 64, 64]
    assert (
        wrapped.passes == plain.passes == 1 + 4 + 5 + 16 + 17 + 40 + 64
    )  # those that fill up are not counted
    leaf = x[:5].clone().requires_grad_()
    (gradient,) = torch.autograd.grad(wrapped.logits(leaf)[:, 1].sum(), leaf)
    own = x[:5].clone().requires_grad_()
    assert torch.allclose(
        gradient, torch.autograd.grad(plain.logits(own)[:, 1].sum(), own)[0], atol=1e-5
    )


def test_a_layer_that_is_hooked_meets_the_samples_alone():
    wrapped, met = OnGpu(Small(64), rows=64), []
    with wrapped.module.register_forward_hook(lambda layer, given, out: met.append(len(out))):
        assert len(wrapped.logits(pictures(5)[0])) == 5
    assert met == [5]


def test_the_usual_size_depends_on_the_data_and_the_kind_of_device_alone():
    assert [
        default_batch_size(values, "cuda") for values in (30, 3 * 224**2, 3 * 512**2, 10**9)
    ] == [1024, 256, 49, 8]
    assert default_batch_size(10**9) == 8


class Here(Batch):
    """Stays where it is."""

    def to(self, device: object) -> Batch:
        return self


def test_batch_norms_are_refitted_on_the_samples_alone():
    def refitted(kind: type[Model]) -> Tensor:
        torch.manual_seed(0)
        net = nn.Sequential(
            nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.Flatten(), nn.Linear(4 * 30 * 30, 2)
        )
        twin = with_weights(kind(net, rows=64), {}, Here(tuple("abcde"), pictures(5)[0]))
        return twin.module[1].running_mean

    torch.testing.assert_close(refitted(OnGpu), refitted(Model))

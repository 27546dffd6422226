"""ROAR and KAR: real trainings on small pictures, resumed, and the leak of a mask that gives its class away."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pandas as pd
import pytest
import torch
from torch import Tensor, nn
from torch.utils.data import TensorDataset

import holdfast
from holdfast import Batch
from holdfast.axes.faithfulness.retraining.leakage import Removed, leakage_summary, probe_classes, probe_pixels
from holdfast.axes.faithfulness.retraining.trainer import ImageTrainer, accuracy, small_net
from holdfast.errors import UserError
from holdfast.removal import IMPUTERS
from holdfast.runs.retrain import retrain
from support.small import model, pictures

TRAIN, TEST = pictures(96, seed=5), pictures(40, seed=6)
TRAIN = (TRAIN[0].clamp(min=0.02), TRAIN[1])  # so that a black pixel is a removed one
CALLS: list[int] = []


def quick(dataset: TensorDataset, seed: int) -> nn.Module:
    CALLS.append(seed)
    trained: nn.Module = ImageTrainer(lambda: small_net(3, 4, width=8), epochs=4, rate=0.1, augment=False)(
        dataset, seed
    )
    return trained


def roar(out: Path, **options: Any) -> holdfast.Run:
    given: dict[str, Any] = {"imputers": ["zero"], "orders": ["morf"], "fractions": [0.3, 0.9]} | options
    return retrain(
        model(), TRAIN, TEST, given.pop("explainers", ["saliency"]), given.pop("trainer", quick), out, **given
    )


def test_every_training_is_a_part_and_none_is_repeated(tmp_path: Path) -> None:
    CALLS.clear()
    run = roar(tmp_path / "run", repeats=2)
    assert len(CALLS) == 4 and len(set(CALLS)) == 2, "one seed per repeat"
    table = run.table()
    assert set(table.evaluation) == {"retraining"} and set(table.measure) == {"accuracy"}
    assert set(table.condition) == {"zero morf"} and set(table.level) == {0.3, 0.9}
    assert set(table.model) == {"shapes"} and set(table.repeat) == {0, 1} and len(table) == 4 * 40
    assert set(table.imputer) == {"zero"} and set(table.order) == {"morf"}
    assert set(table.value) <= {0.0, 1.0}
    part = sorted((tmp_path / "run" / "parts").glob("**/*.parquet"))[0]
    part.unlink()
    again = roar(tmp_path / "run", repeats=2)
    assert len(CALLS) == 5, "only what was missing is trained"
    pd.testing.assert_frame_equal(again.table(), table)


def test_another_explainer_may_come_first_in_a_later_call(tmp_path: Path) -> None:
    CALLS.clear()
    before = roar(tmp_path / "run").table()
    both = roar(tmp_path / "run", explainers=["input_x_gradient", "saliency"]).table()
    assert len(CALLS) == 4, "two trainings for each explainer"
    pd.testing.assert_frame_equal(both[both.explainer == "saliency"].reset_index(drop=True), before)


def test_leakage_may_be_measured_at_some_fractions_only(tmp_path: Path) -> None:
    run = roar(tmp_path / "run", leakage=[0.9])
    found = leakage_summary(run.table())
    assert found.level.tolist() == [0.9] and 0 <= found.pixels.iloc[0] <= 1
    with pytest.raises(UserError, match="must be among"):
        roar(tmp_path / "other", leakage=[0.5])


def test_a_trainer_that_fails_midway_loses_nothing(tmp_path: Path) -> None:
    def fails_late(dataset: TensorDataset, seed: int) -> nn.Module:
        if len(CALLS) == 1:
            raise RuntimeError("the disk is full")
        return quick(dataset, seed)

    fails_late.__name__ = quick.__name__  # a run with another trainer would be another study
    CALLS.clear()
    with pytest.raises(UserError, match=r"saliency, zero morf, fraction 0.9, repeat 0: RuntimeError: the disk is full"):
        roar(tmp_path / "run", trainer=fails_late)
    assert set(holdfast.read(tmp_path / "run").table().level) == {0.3}
    CALLS.clear()
    assert set(roar(tmp_path / "run").table().level) == {0.3, 0.9} and len(CALLS) == 1


def test_it_joins_a_run_without_retraining(tmp_path: Path) -> None:
    axis = {"faithfulness": {"imputers": ["zero"], "fractions": [0.3, 0.9], "orders": ["morf"], "metrics": ["aopc"]}}
    holdfast.evaluate(model(), TEST, "saliency", [axis], tmp_path / "run")
    joined = roar(tmp_path / "run")
    assert set(joined.table().evaluation) == {"faithfulness", "retraining"}
    assert {"faithfulness", "retraining"} <= set(joined.manifest["study"]["evaluations"])
    assert joined.manifest["sessions"][-1]["durations"]["retraining"] > 0
    with pytest.raises(UserError, match="holds another study"):
        retrain(model(), TRAIN, pictures(8, seed=9), ["saliency"], quick, tmp_path / "run", imputers=["zero"])


def test_removing_nothing_of_a_random_order_leaves_the_training_images(tmp_path: Path) -> None:
    seen: list[Tensor] = []

    def looks(dataset: TensorDataset, seed: int) -> nn.Module:
        seen.append(dataset.tensors[0])
        return nn.Sequential(nn.Flatten(), nn.Linear(3 * 32 * 32, 4))

    roar(tmp_path / "run", trainer=looks, orders=["morf", "lerf", "random"], fractions=[0.0, 0.5])
    assert all(torch.equal(seen[i], TRAIN[0]) for i in (0, 2, 4))
    for images in (seen[1], seen[3], seen[5]):
        gone = (images == 0).all(1) & (TRAIN[0] != 0).any(1)
        assert gone.flatten(1).sum(1).tolist() == [512] * len(images), "exactly half of the pixels"
    morf, lerf = ((s == 0).all(1) for s in (seen[1], seen[3]))
    assert not bool((morf & lerf & (TRAIN[0] != 0).all(1)).any()), "the two orders share no removed pixel"


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"fractions": [0.5, 1.5]}, "lie in"),
        ({"imputers": ["zreo"]}, "zero"),
        ({"orders": ["most"]}, "morf"),
        ({"repeats": 0}, "at least 1"),
        ({"trainer": 3}, "train"),
        ({"trainer": lambda dataset, seed: "net"}, "torch.nn.Module was expected"),
    ],
)
def test_mistakes_are_named(tmp_path: Path, change: dict[str, Any], says: str) -> None:
    with pytest.raises(UserError, match=says):
        roar(tmp_path / "run", **change)


def test_unlabelled_images_are_refused(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="label for every image"):
        retrain(model(), TRAIN[0], TEST, ["saliency"], quick, tmp_path / "run")


def telling(n: int, seed: int) -> tuple[Batch, Tensor]:
    """Grey noise with two classes, and masks that lie left or right: the class is in the mask alone."""
    g = torch.Generator().manual_seed(seed)
    label = torch.randint(2, (n,), generator=g)
    x = 0.3 + 0.4 * torch.rand(n, 3, 16, 16, generator=g)
    keep = torch.ones(n, 16, 16, dtype=torch.bool)
    for i, side in enumerate(label.tolist()):
        keep[i, 4:12, 8 * side : 8 * side + 8] = False
    return Batch(tuple(f"{seed}-{i}" for i in range(n)), x, label=label), keep


def leak_of(imputer: Any, n: int = 160) -> pd.Series:
    parts = []
    for seed, count in ((1, n), (2, 80)):
        batch, keep = telling(count, seed)
        parts.append(Removed(imputer(batch.x, keep, batch.ids, 0), keep, batch.label))
    columns = {"prior": parts[1].label.double(), "pixels": probe_pixels(*parts, seed=0, steps=120)}
    for probe, found in probe_classes(*parts, classes=2, seed=0):
        columns[f"{probe}_log2"], columns[f"{probe}_hit"] = found.unbind(1)
    rows = [
        {"measure": m, "value": v, "sample": i, "status": "ok", "condition": "x morf", "level": 0.25}
        | {"imputer": "x", "order": "morf"}
        | dict.fromkeys(("dataset", "model", "evaluation", "explainer"), "e")
        for m, values in columns.items()
        for i, v in enumerate(values.tolist())
    ]
    return leakage_summary(pd.DataFrame(rows)).iloc[0]


def test_a_black_patch_leaks_its_place_and_noise_like_the_rest_does_not() -> None:
    def unseen(x: Tensor, keep: Tensor, ids: Any, seed: int) -> Tensor:
        g = torch.Generator().manual_seed(len(x))
        return torch.where(keep[:, None], x, 0.3 + 0.4 * torch.rand(x.shape, generator=g))

    open_, hidden = leak_of(IMPUTERS["zero"]()), leak_of(unseen)
    assert open_.mask_accuracy == 1.0 and open_.mask_bits > 0.6 and hidden.mask_bits > 0.6
    assert open_.imputed_bits > 0.6 and open_.pixels > 0.95 and open_.leaks
    assert hidden.imputed_bits < 0.1 and hidden.pixels < 0.85 and not hidden.leaks  # places can be guessed
    assert open_.leak > 0.7 > hidden.leak + 0.3, "only where the mask is visible does it reach the outcome"


def test_the_trainer_is_deterministic_and_leaves_the_global_state_alone() -> None:
    dataset = TensorDataset(*TRAIN)
    before = torch.random.get_rng_state()
    a, b = (quick(dataset, 3) for _ in range(2))
    assert torch.equal(torch.random.get_rng_state(), before)
    torch.testing.assert_close(a.state_dict(), b.state_dict())
    better = ImageTrainer(lambda: small_net(3, 4, width=16), epochs=30, batch_size=16, rate=0.1)(dataset, 0)
    assert accuracy(better, *TEST, batch_size=40) > 0.5
    with pytest.raises(UserError, match="too few"):
        quick(TensorDataset(TRAIN[0][:1], TRAIN[1][:1]), 0)

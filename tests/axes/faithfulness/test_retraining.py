"""ROAR and KAR: real trainings on small pictures, resumed, and the leak of a mask that gives its class away."""

from __future__ import annotations

import time
from collections import Counter
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from scipy import ndimage, stats
from torch import Tensor, nn
from torch.utils.data import TensorDataset

import heatproof
from heatproof import Batch
from heatproof.axes.faithfulness.retraining.leakage import (
    Removed,
    leakage_summary,
    probe_classes,
    probe_pixels,
)
from heatproof.axes.faithfulness.retraining.trainer import (
    ImageTrainer,
    accuracy,
    described,
    drawn_moves,
    one_cycle,
    shifted,
    small_net,
)
from heatproof.errors import UserError
from heatproof.removal import IMPUTERS
from heatproof.runs import progress as progressing
from heatproof.runs.plan import make_plan
from heatproof.runs.retrain import retrain
from support.small import model, pictures

TRAIN, TEST = pictures(96, seed=5), pictures(40, seed=6)
TRAIN = (TRAIN[0].clamp(min=0.02), TRAIN[1])  # so that a black pixel is a removed one
CALLS: list[int] = []
BROKEN: list[int] = []


def quick(dataset: TensorDataset, seed: int) -> nn.Module:
    if len(CALLS) in BROKEN:
        raise RuntimeError("the disk is full")
    CALLS.append(seed)
    trained: nn.Module = ImageTrainer(
        lambda: small_net(3, 4, width=8), epochs=4, rate=0.1, augment=False
    )(dataset, seed)
    return trained


def roar(out: Path, **options: Any) -> heatproof.Run:
    given: dict[str, Any] = {
        "imputers": ["zero"],
        "orders": ["morf"],
        "fractions": [0.3, 0.9],
    } | options
    return retrain(
        model(),
        TRAIN,
        TEST,
        given.pop("explainers", ["saliency"]),
        given.pop("trainer", quick),
        out,
        **given,
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
    with pytest.raises(UserError, match=r"leakage.*0\.5"):
        roar(tmp_path / "other", leakage=[0.5])


def test_a_trainer_that_fails_midway_loses_nothing(tmp_path: Path) -> None:
    CALLS.clear()
    BROKEN.append(1)
    with pytest.raises(
        UserError,
        match=r"saliency, zero morf.*0\.9.*the disk is full",
    ):
        roar(tmp_path / "run")
    BROKEN.clear()
    assert set(heatproof.read(tmp_path / "run").table().level) == {0.3}
    CALLS.clear()
    assert set(roar(tmp_path / "run").table().level) == {0.3, 0.9} and len(CALLS) == 1


def test_it_joins_a_run_without_retraining(tmp_path: Path) -> None:
    axis = {
        "faithfulness": {
            "imputers": ["zero"],
            "fractions": [0.3, 0.9],
            "orders": ["morf"],
            "metrics": ["aopc"],
        }
    }
    heatproof.evaluate(model(), TEST, "saliency", [axis], tmp_path / "run")
    begun = time.perf_counter()
    joined = roar(tmp_path / "run")
    elapsed = time.perf_counter() - begun + 0.01  # as it is rounded
    assert set(joined.table().evaluation) == {"faithfulness", "retraining"}
    assert {"faithfulness", "retraining"} <= set(joined.manifest.study.evaluations)
    session = joined.manifest.sessions[-1]
    assert (
        0
        < session.durations["retraining"]
        <= sum(session.durations.values())
        <= session.seconds + 0.05
    )
    assert session.seconds <= elapsed
    with pytest.raises(UserError, match="study"):
        retrain(
            model(),
            TRAIN,
            pictures(8, seed=9),
            ["saliency"],
            quick,
            tmp_path / "run",
            imputers=["zero"],
        )


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
    assert not bool((morf & lerf & (TRAIN[0] != 0).all(1)).any()), (
        "the two orders share no removed pixel"
    )


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"fractions": [0.5, 1.5]}, r"1\.5"),
        ({"imputers": ["zreo"]}, "zero"),
        ({"orders": ["most"]}, "morf"),
        ({"repeats": 0}, r"repeats.*0"),
        ({"trainer": 3}, "train"),
        ({"trainer": lambda dataset, seed: "net"}, r"torch\.nn\.Module"),
    ],
)
def test_mistakes_are_named(tmp_path: Path, change: dict[str, Any], says: str) -> None:
    with pytest.raises(UserError, match=says):
        roar(tmp_path / "run", **change)


class Rule(nn.Module):
    """Class 1 where the first pixel was painted white; `sure` turns the answer round or spoils it."""

    def __init__(self, sure: float = 1.0) -> None:
        super().__init__()
        self.sure = sure

    def forward(self, x: Tensor) -> Tensor:
        white = (x[:, 0, 0, 0] > 0.5).float() * 2 - 1
        return torch.stack([-white, white], 1) * self.sure


def painted(n: int, seed: int) -> tuple[Tensor, Tensor]:
    """Two classes that the first pixel tells."""
    label = torch.arange(n) % 2
    x = 0.4 * torch.rand(n, 3, 8, 8, generator=torch.Generator().manual_seed(seed))
    x[:, :, 0, 0] = label[:, None].float()
    return x, label


def ruled(out: Path, sure: float, **options: Any) -> pd.DataFrame:
    given: dict[str, Any] = {"imputers": ["zero"], "orders": ["lerf"], "fractions": [0.5]} | options
    sets = painted(12, 0), painted(20, 1)

    def corner(model: heatproof.Model, batch: Batch, target: Tensor, seed: int) -> Tensor:
        return torch.zeros_like(batch.x).index_put(
            (torch.arange(len(batch.x)),) + (torch.tensor(0),) * 3, torch.ones(())
        )

    return retrain(
        heatproof.Model(Rule()), *sets, {"corner": corner}, lambda d, s: Rule(sure), out, **given
    ).table()


def test_the_accuracy_is_that_of_the_retrained_network(tmp_path: Path) -> None:
    assert (ruled(tmp_path / "right", 1.0).value == 1).all()
    assert (ruled(tmp_path / "wrong", -1.0).value == 0).all()
    other = ruled(tmp_path / "prediction", -1.0, against="prediction")
    assert (other.value == 0).all() and (
        ruled(tmp_path / "own", 1.0, against="prediction").value == 1
    ).all()


def test_a_training_that_diverged_is_undefined(tmp_path: Path) -> None:
    table = ruled(tmp_path / "run", float("nan"))
    assert set(table.status) == {"undefined"} and table.value.isna().all()
    assert table.reason.str.contains("not finite").all()


def test_the_epoch_that_diverged_is_not_chosen() -> None:
    spoilt = nn.Sequential(nn.Flatten(), nn.Linear(3 * 32 * 32, 4))
    nn.init.constant_(spoilt[1].weight, float("nan"))
    assert accuracy(spoilt, TEST[0], torch.zeros(40, dtype=torch.int64), 40) == 0.0


def test_training_and_test_images_must_differ_whatever_they_are_called(tmp_path: Path) -> None:
    mixed = Batch(
        tuple(f"other-{i}" for i in range(40)),
        torch.cat([TEST[0][:39], TRAIN[0][7:8]]),
        label=TEST[1],
    )
    with pytest.raises(UserError, match=r"1 .*40 .*'other-39'"):
        retrain(model(), TRAIN, mixed, ["saliency"], quick, tmp_path / "run", imputers=["zero"])
    assert not (tmp_path / "run").exists()


def test_training_and_test_share_no_noise_and_no_random_mask(tmp_path: Path) -> None:
    """Their ids are equal; draws that were too would let a network recognise a test image by its noise."""
    images: list[Tensor] = []

    def looks(dataset: TensorDataset, seed: int) -> nn.Module:
        images.append(dataset.tensors[0])
        return Remembers(images)

    roar(tmp_path / "run", trainer=looks, imputers=["noise"], orders=["random"], fractions=[0.5])
    train, test = images
    same = (train[: len(test)] == test).all(1)
    assert float(same.float().mean()) < 0.01
    gone = [
        (part != whole).any(1).float()
        for part, whole in ((train[:40], TRAIN[0][:40]), (test, TEST[0]))
    ]
    both = float((gone[0] * gone[1]).mean())
    assert both == pytest.approx(0.25, abs=0.02), "independent halves"


class Remembers(nn.Module):
    def __init__(self, images: list[Tensor]) -> None:
        super().__init__()
        self.images, self.of = images, nn.Linear(1, 1)

    def forward(self, x: Tensor) -> Tensor:
        self.images.append(x)
        return torch.zeros(len(x), 4)


@pytest.mark.parametrize("name", sorted(IMPUTERS))
def test_random_masks_hold_no_bits_about_the_class(tmp_path: Path, name: str) -> None:
    if name == "telea":
        pytest.importorskip("cv2")
    imputer = {name: {"mean": [0.5, 0.5, 0.5]}} if name == "dataset_mean" else name
    run = retrain(
        heatproof.Model(nn.Sequential(nn.Flatten(), nn.Linear(3 * 64, 2))),
        *(
            (
                torch.rand(n, 3, 8, 8, generator=torch.Generator().manual_seed(n)),
                torch.arange(n) % 2,
            )
            for n in (64, 60)
        ),
        ["random"],
        lambda dataset, seed: nn.Sequential(nn.Flatten(), nn.Linear(3 * 64, 2)),
        tmp_path / "run",
        imputers=[imputer],
        orders=["random"],
        fractions=[0.5],
        leakage=True,
    )
    assert leakage_summary(run.table()).mask_bits.item() == 0


def test_more_fractions_and_repeats_may_be_asked_for_later(tmp_path: Path) -> None:
    CALLS.clear()
    before = roar(tmp_path / "run", fractions=[0.9]).table()
    after = roar(tmp_path / "run", fractions=[0.3, 0.9], repeats=2).table()
    assert len(CALLS) == 4 and len(after) == 4 * 40
    kept = after[(after.level == 0.9) & (after.repeat == 0)].reset_index(drop=True)
    pd.testing.assert_frame_equal(kept, before)
    study = heatproof.read(tmp_path / "run").manifest.study
    settings = study.evaluation("retraining").parameters
    assert set(settings["fractions"]) == {"0.3", "0.9"} and set(settings["repeats"]) == {"0", "1"}


def test_a_changed_lambda_is_another_trainer(tmp_path: Path) -> None:
    def trainer(width: int) -> ImageTrainer:
        return ImageTrainer(lambda: small_net(3, 4, width=width), epochs=1, augment=False)

    roar(tmp_path / "run", trainer=trainer(4), fractions=[0.9])
    roar(tmp_path / "run", trainer=trainer(4), fractions=[0.9])
    with pytest.raises(UserError, match="trainer"):
        roar(tmp_path / "run", trainer=trainer(8), fractions=[0.9])
    with pytest.raises(UserError, match="trainer"):
        roar(tmp_path / "run", trainer=lambda d, s: quick(d, s + 1), fractions=[0.9])


def test_f_fidelity_tunes_one_network_to_random_removals_and_asks_it_of_every_cell(
    tmp_path: Path,
) -> None:
    seen: list[Tensor] = []

    def tune(dataset: TensorDataset, seed: int) -> nn.Module:
        seen.append(dataset.tensors[0])
        return quick(dataset, seed)

    CALLS.clear()
    options = {
        "explainers": ["saliency", "input_x_gradient"],
        "orders": ["morf", "lerf"],
        "tuner": tune,
    }
    alone = roar(tmp_path / "alone", trainer=None, **options).table()
    assert len(seen) == 1 and len(CALLS) == 1 and set(alone.evaluation) == {"f_fidelity"}
    assert len(alone) == 2 * 2 * 2 * 40 and set(alone.status) == {"ok"}
    shares = (seen[0] == 0).all(1).float().mean((1, 2))
    assert shares.min() < 0.1 and shares.max() > 0.9 and 0.4 < shares.mean() < 0.6, (
        "uniform on [0, 1)"
    )
    both = roar(tmp_path / "both", **options).table()
    assert len(seen) == 2 and set(both.evaluation) == {"f_fidelity", "retraining"}
    again = both[both.evaluation == "f_fidelity"].reset_index(drop=True)
    assert again.value.tolist() == alone.value.tolist()
    with pytest.raises(UserError, match="tuner"):
        roar(tmp_path / "none", trainer=None)


def test_road_and_roar_have_one_accuracy(tmp_path: Path) -> None:
    """The same network "retrained" says the same, whatever the labels are."""
    images, labels = TEST[0], (TEST[1] + torch.arange(40) % 2) % 4
    same = {"imputers": ["zero"], "orders": ["morf"], "fractions": [0.3, 0.9]}
    heatproof.evaluate(
        model(),
        (images, labels),
        "saliency",
        [{"faithfulness": same | {"metrics": []}}],
        tmp_path / "run",
    )
    again = retrain(
        model(), TRAIN, (images, labels), "saliency", lambda d, s: model(), tmp_path / "run", **same
    )
    table = again.table().query("measure == 'accuracy'")
    wide = table.pivot_table("value", ["sample", "level"], "evaluation", observed=True)
    assert (wide["faithfulness"] == wide["retraining"]).all() and 0 < wide["retraining"].mean() < 1


def test_only_what_is_missing_is_work(tmp_path: Path) -> None:
    works: list[dict[str, int]] = []
    done: Counter[str] = Counter()

    class Watched(progressing.Clock):
        def __post_init__(self) -> None:
            super().__post_init__()
            works.append(dict(self.work))

        def tick(self, what: str, amount: int) -> None:
            done[what] += amount
            super().tick(what, amount)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(progressing, "Clock", Watched)
        roar(tmp_path / "run", show_progress=True)
        assert works == [{"retraining of saliency": 2}] and +done == Counter(works[0])
        done.clear()
        roar(tmp_path / "run", fractions=[0.3, 0.6, 0.9], show_progress=True)
        assert works[1] == {"retraining of saliency": 1} and +done == Counter(works[1])


def test_what_a_trainer_refuses_and_maps_without_an_order_are_told_as_they_are(
    tmp_path: Path,
) -> None:
    def refuses(dataset: TensorDataset, seed: int) -> nn.Module:
        raise UserError("use the licence")

    def nowhere(model: Any, batch: Any, target: Any, seed: int) -> torch.Tensor:
        return torch.full_like(batch.x, torch.nan)

    with pytest.raises(UserError, match=r"^use the licence$"):
        roar(tmp_path / "run", trainer=refuses)
    with pytest.raises(UserError, match=r"nowhere.*'train: 0000'.*finite"):
        roar(tmp_path / "other", explainers={"nowhere": nowhere})


def test_unreadable_images_are_refused(tmp_path: Path) -> None:
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "1.png").write_bytes(b"no picture")
    with pytest.raises(UserError, match=r"2 images.*a/1\.png"):
        retrain(
            model(),
            heatproof.open_data(tmp_path, size=32),
            TEST,
            ["saliency"],
            quick,
            tmp_path / "run",
        )


def test_unlabelled_images_are_refused(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="label"):
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
        {
            "measure": m,
            "value": v,
            "sample": i,
            "status": "ok",
            "condition": "x morf",
            "level": 0.25,
        }
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
    assert (
        hidden.imputed_bits < 0.1 and hidden.pixels < 0.85 and not hidden.leaks
    )  # places can be guessed
    assert open_.leak > 0.7 > hidden.leak + 0.3, (
        "only where the mask is visible does it reach the outcome"
    )


def test_the_trainer_is_deterministic_and_leaves_the_global_state_alone() -> None:
    dataset = TensorDataset(*TRAIN)
    before = torch.random.get_rng_state()
    a, b = (quick(dataset, 3) for _ in range(2))
    assert torch.equal(torch.random.get_rng_state(), before)
    torch.testing.assert_close(a.state_dict(), b.state_dict())
    better = ImageTrainer(lambda: small_net(3, 4, width=16), epochs=30, batch_size=16, rate=0.1)(
        dataset, 0
    )
    assert accuracy(better, *TEST, batch_size=40) > 0.5
    with pytest.raises(UserError, match=r"1 images"):
        quick(TensorDataset(TRAIN[0][:1], TRAIN[1][:1]), 0)


def test_the_rate_rises_for_a_quarter_of_the_training_and_falls_to_zero() -> None:
    rates = [one_cycle(share) for share in np.linspace(0, 1, 101)]
    assert max(rates) == rates[25] == 1.0
    assert rates[-1] == 0.0
    assert rates[0] > 0, "the first step moves the weights"
    assert np.all(np.diff(rates[:26]) >= 0)
    assert np.allclose(np.diff(rates[25:]), -1 / 75)


def test_augmentation_shifts_by_up_to_four_pixels_and_mirrors() -> None:
    images = torch.rand(3, 2, 5, 6, generator=torch.Generator().manual_seed(0)).numpy()
    moves = torch.tensor([[0, 8, 4], [3, 0, 8], [0, 1, 1]])
    found = shifted(torch.from_numpy(images), moves).numpy()
    for i, (down, right, mirror) in enumerate(moves.T.tolist()):
        expected = ndimage.shift(images[i], (0, 4 - down, 4 - right), order=0)
        expected = expected[:, :, ::-1] if mirror else expected
        np.testing.assert_array_equal(found[i], expected)
    drawn = drawn_moves(400, torch.Generator().manual_seed(1))
    assert drawn.amin(1).tolist() == [0, 0, 0] and drawn.amax(1).tolist() == [8, 8, 1]


@pytest.mark.parametrize(
    ("given", "value"),
    [({"epochs": 0}, "0"), ({"batch_size": 0}, "0"), ({"validation": 1.0}, "1.0")],
)
def test_a_trainer_that_cannot_train_is_refused(given: dict[str, Any], value: str) -> None:
    with pytest.raises(UserError, match=rf"{next(iter(given))}.*{value}"):
        ImageTrainer(lambda: small_net(1, 2), **given)


def test_another_network_is_another_trainer() -> None:
    same = [described(partial(small_net, 1, classes)) for classes in (2, 2, 3)]
    assert same[0] == same[1] != same[2]


def leakage_rows(hits: dict[str, list[bool]], n: int = 40) -> pd.DataFrame:
    """What probes say of n samples of two classes, with a cross-entropy of half a bit."""
    columns: dict[str, Any] = {"prior": np.arange(n) % 2, "pixels": np.full(n, 0.95)}
    for probe, right in hits.items():
        columns[f"{probe}_hit"] = np.array(right, dtype=float)
        columns[f"{probe}_log2"] = np.full(n, -0.5)
    rows = pd.DataFrame(
        [
            {"measure": measure, "value": float(value), "sample": f"s{i}"}
            for measure, values in columns.items()
            for i, value in enumerate(values)
        ]
    )
    place = {"dataset": "d", "model": "m", "evaluation": "leakage", "explainer": "e"}
    where = {"condition": "zero morf", "imputer": "zero", "order": "morf", "level": 0.5}
    return rows.assign(**place, **where, status="ok")


def test_bits_are_those_of_the_lower_confidence_limit_of_the_accuracy() -> None:
    hits = {probe: [i >= 4 for i in range(40)] for probe in ("mask", "imputed", "both")}
    summary = leakage_summary(leakage_rows(hits)).iloc[0]
    # Each of two bounds fails with probability δ / 2 = 2.5 %, and has two sides.
    low = stats.binomtest(36, 40).proportion_ci(0.975).low
    bits = 1 - stats.entropy([low, 1 - low], base=2)
    for probe in hits:
        assert summary[f"{probe}_accuracy"] == pytest.approx(0.9)
        assert summary[f"{probe}_bits"] == pytest.approx(bits, abs=1e-4)
        assert summary[f"{probe}_indicated"] == pytest.approx(1 - 2 * 0.1)
    assert summary["leak"] == pytest.approx(0.5), "1 bit of the class less a cross-entropy of ½"
    assert summary["leaks"]
    loose = leakage_summary(leakage_rows({"mask": hits["mask"]}), delta=0.5).iloc[0]
    assert loose["mask_bits"] > summary["mask_bits"]
    assert "leak" not in loose, "the leak needs all three probes"


def test_a_task_without_classes_is_refused_before_any_pass(tmp_path: Path) -> None:
    def net() -> torch.nn.Module:
        return torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(16, 1))

    numbers = heatproof.Model(net(), task="regression")
    x, y = torch.rand(8, 1, 4, 4), torch.arange(8) % 2
    with pytest.raises(UserError, match=r"retrain.*classes.*regression"):
        retrain(
            numbers,
            (x[:4], y[:4]),
            (x[4:], y[4:]),
            "saliency",
            lambda data, seed: net(),
            tmp_path / "run",
        )
    assert numbers.passes == 0 and not (tmp_path / "run").exists()


def test_the_plan_says_what_a_task_leaves_out() -> None:
    numbers = heatproof.Model(nn.Sequential(nn.Flatten(), nn.Linear(3072, 1)), task="regression")
    notes, none = (
        make_plan(judged, pictures(4)[0], "saliency", ["faithfulness", "certificate"]).notes()
        for judged in (numbers, model())
    )
    assert any(
        "deletion_auc, insertion_auc, irof" in note and "regression" in note for note in notes
    )
    assert any("sufficient" in note and "regression" in note for note in notes)
    assert none == []

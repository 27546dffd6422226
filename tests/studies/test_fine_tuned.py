"""The study of fit against stability: what training leaves alone, and scores on pairs that all states retain."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch

from heatproof.types import Batch

STUDIES = Path(__file__).parents[2] / "studies"


@pytest.fixture
def study(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.syspath_prepend(str(STUDIES))
    yield __import__("fine_tuned")
    for name in ("fine_tuned", "common", "nets"):
        sys.modules.pop(name, None)


def test_training_the_head_changes_nothing_else(study) -> None:
    generator = torch.Generator().manual_seed(0)
    x = torch.rand(128, 3, 32, 32, generator=generator)
    train = Batch(tuple(map(str, range(128))), x, label=torch.arange(128) % 10)
    before = study.ResNet20()
    for head_only in (True, False):
        after = study.tuned(before, train, 1, head_only=head_only, rate=0.05)
        changed = {
            name.split(".")[0]
            for name, value in after.state_dict().items()
            if not torch.equal(value, before.state_dict()[name])
        }
        assert (changed == {"linear"}) is head_only, changed
        assert not after.training


def test_common_pairs_are_those_that_every_state_retains(study) -> None:
    rows = []
    generator = np.random.default_rng(0)
    for model in "ab":
        for explainer in ("cam", "ig"):
            for sample in "stu":
                lost = (model, sample) == ("a", "u")
                value = np.nan if lost else generator.random()
                chance = np.nan if lost else 0.2
                rows.append((model, explainer, sample, "jpeg", 40.0, "fass", value, chance))
    columns = ["model", "explainer", "sample", "condition", "level", "measure", "value", "chance"]
    table = pd.DataFrame(rows, columns=columns)
    common = study.on_common_pairs(table)
    assert set(common.pairs) == {2}
    kept = table[table["sample"] != "u"].groupby(["model", "explainer"]).value.mean()
    expected = (kept - 0.2) / 0.8
    got = common.set_index(["model", "explainer"]).score
    np.testing.assert_allclose(got.sort_index(), expected.sort_index())

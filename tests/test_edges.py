"""Edges of small functions all over the package."""

from __future__ import annotations

import io
import re
import sys
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

import heatproof
from heatproof import Batch, UserError
from heatproof.axes import BY_NAME
from heatproof.axes.certificate.sequential import _betting_rule
from heatproof.axes.faithfulness.curves import readouts
from heatproof.axes.symmetry.groups import Dihedral
from heatproof.axes.symmetry.orbit import Orbit, _can_move
from heatproof.cli.read import paint, print_summary
from heatproof.data.cifar import _pixel_content
from heatproof.data.dataset import how_to
from heatproof.data.images import _unit
from heatproof.evaluation import Measure
from heatproof.models.tasks import Regression
from heatproof.report.comparison.match import Matched, add_versions
from heatproof.runs.results import arrays_of_run
from heatproof.statistics.bounds import sample_size
from heatproof.testing.check import Case, _strict_bet
from heatproof.testing.requirement import parse
from support import synthetic
from support.manifests import manifest_of
from support.whole import BASE


def test_a_fingerprint_covers_every_picture() -> None:
    pixels = np.random.default_rng(0).integers(0, 256, (2050, 1, 2, 2), dtype=np.uint8)
    assert b"".join(_pixel_content(pixels, how_to("auto", "crop"), range(2049))).endswith(
        pixels[:2049].tobytes()
    )


def test_values_may_reach_both_ends() -> None:
    ends = np.array([[0.0, 1.0]], np.float32)
    assert np.asarray(_unit(ends, "grey")).tolist() == [[0.0, 1.0]]
    for outside in (-0.01, 1.01, np.nan):
        with pytest.raises(ValueError, match="grey"):
            _unit(np.array([[outside]], np.float32), "grey")


def test_without_a_clean_table_the_first_step_is_it() -> None:
    table, target = torch.tensor([[[0.0, 1.0], [3.0, -1.0], [0.0, 1.0]]]), torch.tensor([0])
    task = Regression(tolerance=0.5)
    own, given = (
        readouts(table, target, task=task),
        readouts(table, target, task=task, clean=table[:, 0]),
    )
    other = readouts(table, target, task=task, clean=table[:, 1])
    assert torch.equal(own["accuracy"], given["accuracy"]) and not torch.equal(
        own["accuracy"], other["accuracy"]
    )


def test_a_layer_of_another_shape_does_not_move_with_the_group() -> None:
    batch = Batch(("a",), torch.zeros(1, 3, 4, 4))
    around = Orbit(
        Dihedral(4), batch, torch.arange(8)[None], torch.tensor([8]), torch.tensor([True])
    )
    assert _can_move(around, torch.zeros(1, 7, 4, 4)) and not _can_move(
        around, torch.zeros(1, 7, 4, 3)
    )


@pytest.mark.parametrize("span", [None, (None, 1.0), (0.0, None)])
def test_no_strict_bound_without_ends(span: Any) -> None:
    rows = synthetic.rows_of([("a", "depth", "jpeg", 40.0, [0.1, 0.5, 0.9])], "stability")
    (arrays,) = arrays_of_run(rows)
    depth = Measure("depth", "Depth", "", "higher", "headline", span)
    arrays = replace(arrays, declared={"depth": depth})
    case = Case(parse("stability.depth >= 0.5"), BY_NAME["stability"], arrays, "depth")
    with pytest.raises(UserError, match="strict"):
        _strict_bet(case)


def test_a_betting_rule_ends_about_where_hoeffding_does() -> None:
    most, needed = _betting_rule(0.3, 0.05).looks[-1], sample_size(0.3, 0.05, "hoeffding")
    assert needed <= most < 2 * needed


def test_versions_and_devices_are_told() -> None:
    def side(torch_version: str, device: str) -> Any:
        sessions = [{"devices": [device]}]
        return SimpleNamespace(
            manifest=manifest_of(versions={"torch": torch_version}, sessions=sessions)
        )

    matched = Matched(["A", "B"])
    add_versions(matched, [side("2.1", "cpu"), side("2.2", "cuda")])
    told = "\n".join(matched.subject)
    assert all(part in told for part in ("versions", "2.1", "2.2", "devices", "cpu", "cuda"))


def test_samples_that_wait_for_their_storage_are_told(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    run = heatproof.read(BASE)
    lost = run.samples().assign(error="", transient=False)
    first = lost["sample"] == lost["sample"].iloc[0]
    monkeypatch.setattr(
        type(run), "samples", lambda self: lost.assign(error=first.map({True: "gone", False: ""}))
    )
    print_summary(run)
    told = capsys.readouterr().out
    assert re.search(r"\b1\b", told)
    assert "--retry-errors" not in told
    lost["transient"] = first
    print_summary(run)
    assert "--retry-errors" in capsys.readouterr().out


def test_a_long_line_stays_one_on_a_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    sink = io.StringIO()
    monkeypatch.setattr(sink, "isatty", lambda: True, raising=False)
    monkeypatch.setattr(sys, "stdout", sink)
    paint([("word " * 60, "")])
    assert len(sink.getvalue().splitlines()) == 1

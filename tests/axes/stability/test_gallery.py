"""The pictures that a stability run keeps."""

from __future__ import annotations

from pathlib import Path

import heatproof
from heatproof.runs.gallery import read_gallery
from support.small import model, pictures


def test_a_pair_has_a_picture_of_its_map_exactly_where_it_has_a_score(tmp_path: Path) -> None:
    asked = {"perturbations": [{"gaussian_noise": {"sigma": 0.6}}, "jpeg"], "k": 50}
    run = heatproof.evaluate(
        model(), pictures(6)[0], "saliency", {"s": {"stability": asked}}, tmp_path
    )
    status = run.table().query("measure == 'fass'").set_index(["condition", "sample"])["status"]
    shown = [e for e in read_gallery(run.path) if (e.condition, e.sample) in status.index]
    assert {e.map is not None for e in shown} == {True, False}, "some flip"
    assert all((e.map is not None) == (status[e.condition, e.sample] == "ok") for e in shown)

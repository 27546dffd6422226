"""Fuzzing with a fixed budget and fixed draws; `python benchmarks/fuzz.py` draws thousands of others."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, Phase, given, settings

from heatproof.errors import UserError
from support.fuzzing import Desk

SUBJECTS = (
    "study",
    "study text",
    "picture",
    "npz",
    "npz bytes",
    "part",
    "part bytes",
    "manifest",
    "zip",
    "zip bytes",
    "model",
)
EXAMPLES = {"part": 12, "part bytes": 8, "manifest": 20, "zip": 8, "zip bytes": 8, "model": 12}


@pytest.fixture(scope="module")
def desk(tmp_path_factory: pytest.TempPathFactory) -> Desk:
    return Desk(tmp_path_factory.mktemp("fuzz"))


def test_every_subject_is_tried(desk: Desk) -> None:
    assert tuple(subject.name for subject in desk.subjects()) == SUBJECTS


@pytest.mark.filterwarnings("ignore")  # strange pictures and outputs are warned of
@pytest.mark.parametrize("name", SUBJECTS)
def test_strange_input_ends_with_a_result_or_a_message(desk: Desk, name: str) -> None:
    subject = desk.subjects()[SUBJECTS.index(name)]

    @settings(
        max_examples=EXAMPLES.get(name, 40),
        derandomize=True,
        database=None,
        deadline=None,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    @given(subject.drawn)
    def every(drawn: Any) -> None:
        with suppress(UserError):
            subject.act(drawn)

    every()


FOUND = [
    ("npz", {"ids": np.float32("nan"), "x": np.zeros((2, 3, 8, 8))}, "2 samples.*1.*ids"),
    ("npz", {"label": np.float32(1), "x": np.zeros((2, 3, 8, 8))}, "2 samples"),
    ("model", lambda y: y[:, :0], r"\(\d, 0\)"),
    ("model", lambda y: y.to_sparse(), "dense"),
    ("model", lambda y: y.to(torch.complex64), "real"),
]
"""What fuzzing found, once mended."""


@pytest.mark.parametrize(("name", "drawn", "words"), FOUND)
def test_what_was_found_stays_mended(desk: Desk, name: str, drawn: Any, words: str) -> None:
    with pytest.raises(UserError, match=words):
        desk.subjects()[SUBJECTS.index(name)].act(drawn)

"""The benchmark behind the page of measured coverage runs, and tests as the product does."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest

from heatproof.statistics.above_chance import bet_above_chance, order_of_bets
from heatproof.statistics.estimates import of_means
from heatproof.statistics.sign_flips import sign_flips, simultaneous_tests


@pytest.fixture(scope="module")
def bench() -> ModuleType:
    path = Path(__file__).parents[2] / "benchmarks" / "coverage.py"
    spec = importlib.util.spec_from_file_location("coverage_benchmark", path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # its dataclasses look themselves up
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize("n", [8, 12, 30])
def test_many_studies_at_once_are_decided_as_one_by_one(bench: ModuleType, n: int) -> None:
    generator = np.random.default_rng(n)
    flips = np.concatenate(list(sign_flips(n))).astype(np.float32)
    for scale, kind in ((0.0, "binary"), (0.4, "uniform"), (0.8, "uniform")):
        differences = generator.normal(0.1 * scale, 0.2, (10, 6, n))
        if kind == "binary":
            differences = generator.integers(-1, 2, (10, 6, n)).astype(float)
        together, _ = bench.significant_pairs(differences, flips)
        one_by_one = [simultaneous_tests(rows).significant for rows in differences]
        np.testing.assert_array_equal(together, one_by_one)


@pytest.mark.parametrize("n", [9, 20, 60])
def test_claims_of_many_studies_at_once_are_those_of_above_chance(
    bench: ModuleType, n: int
) -> None:
    generator = np.random.default_rng(n)
    score, chance = generator.beta(5, 4, (8, 6, n)), generator.beta(8, 12, (8, 6, n))
    by_bets, by_hall = bench.claims_of(score, chance, bounded=True)
    samples = [f"image {i}" for i in range(n)]
    order = order_of_bets(samples)
    confidence = 1 - bench.ALPHA / bench.METHODS
    for study in range(8):
        for method in range(6):
            own_score, own_chance = np.empty((1, n)), np.empty((1, n))
            own_score[0, order] = score[study, method]
            own_chance[0, order] = chance[study, method]
            is_shown = bet_above_chance(
                own_score, own_chance, (0.0, 1.0), ["c"], samples, confidence
            )
            assert is_shown == by_bets[study, method]
            bound = of_means(score[study, method] - chance[study, method]).bound(confidence, True)
            assert (bound[0] > 0) == by_hall[study, method]


def test_a_quick_run_writes_every_part_and_finds_no_contradiction(
    bench: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bench, "FLIPS", 500)
    page = tmp_path / "coverage.md"
    bench.main(["--quick", "--out", str(page)])
    text = page.read_text(encoding="utf-8")
    for part in (*bench.PARTS, *bench.SENTENCES):
        assert f"<!-- {part} -->" in text and f"<!-- end of {part} -->" in text
    assert " 0 contradictions" in text

    bench.put(page, "gate", "new")
    assert page.read_text(encoding="utf-8").count("<!-- gate -->") == 1

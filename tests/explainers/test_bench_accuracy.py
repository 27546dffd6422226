"""The schemes of other packages that `benchmarks/bench_accuracy.py` writes anew are theirs, and its truth is exact."""

from __future__ import annotations

import importlib.util
import itertools
import math
from types import ModuleType

import numpy as np
import pytest
import torch

from support.paths import ROOT

pytestmark = pytest.mark.filterwarnings("ignore")  # libraries warn of their own ways


@pytest.fixture(scope="module")
def bench() -> ModuleType:
    spec = importlib.util.spec_from_file_location(
        "bench_accuracy", ROOT / "benchmarks" / "bench_accuracy.py"
    )
    made = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(made)
    return made


def game(n: int):
    """A function of coalitions with interactions."""
    draw = np.random.default_rng(0)
    line, pairs = torch.tensor(draw.normal(size=n)), torch.tensor(draw.normal(size=(n, n)))

    def play(kept: torch.Tensor) -> torch.Tensor:
        z = kept.double()
        return z @ line + (z @ pairs * z).sum(1) / 2 + torch.sin(3 * z @ line)

    return play


def test_exact_values_are_means_over_all_orders(bench):
    n, play = 5, game(5)
    expected = torch.zeros(n, dtype=torch.float64)
    for order in itertools.permutations(range(n)):
        kept = torch.zeros(1, n, dtype=torch.bool)
        for i in order:
            before = play(kept)
            kept[0, i] = True
            expected[i] += (play(kept) - before)[0] / math.factorial(n)
    torch.testing.assert_close(bench.exact_shapley(n, play), expected)


@pytest.mark.parametrize(("n", "passes"), [(8, 60), (9, 100), (12, 300), (20, 150)])
def test_the_scheme_of_shap_is_that_of_the_package(bench, n, passes):
    shap = pytest.importorskip("shap", reason="shap is not installed")
    play = game(n)
    explainer = shap.KernelExplainer(
        lambda rows: play(torch.tensor(rows > 0)).numpy(), np.zeros((1, n))
    )
    np.random.seed(3)  # noqa: NPY002 (the package draws from it)
    theirs = explainer.shap_values(np.ones((1, n)), nsamples=passes - 2, l1_reg=0, silent=True)[0]
    kept, weight = bench.as_shap(n, passes, 3)
    ours = bench.fitted(bench.as_shap, kept, play(kept), weight)
    np.testing.assert_allclose(ours.numpy(), theirs, rtol=1e-5, atol=1e-7)


def test_the_scheme_of_captum_has_its_errors(bench):
    captum = pytest.importorskip("captum.attr", reason="captum is not installed")
    n, passes, seeds, play = 8, 80, 60, game(8)
    truth = bench.exact_shapley(n, play)
    method = captum.KernelShap(lambda rows: play(rows > 0))
    with torch.random.fork_rng():
        torch.manual_seed(0)
        maps = [
            method.attribute(torch.ones(1, n), n_samples=passes, perturbations_per_eval=100)[0]
            for _ in range(seeds)
        ]
    theirs = np.array(
        [float((m.double() - truth).square().sum() / truth.square().sum()) for m in maps]
    )
    ours = [bench.errors(bench.as_captum, play, truth, (passes,), 1)[0]]
    for seed in range(1, seeds):
        kept, weight = bench.as_captum(n, passes, seed)
        off = bench.fitted(bench.as_captum, kept, play(kept), weight) - truth
        ours.append(float(off.square().sum() / truth.square().sum()))
    spread = math.hypot(theirs.std(), np.std(ours)) / math.sqrt(seeds)
    assert abs(np.mean(ours) - theirs.mean()) < 4 * spread


def test_our_values_are_nearer_than_theirs_at_equal_passes(bench):
    n, play = 10, game(10)
    truth = bench.exact_shapley(n, play)
    ours, theirs, captums = (
        bench.errors(scheme, play, truth, (150,), 12)[0]
        for scheme in (bench.ours, bench.as_shap, bench.as_captum)
    )
    assert ours < theirs < captums


def test_passes_for_an_error_are_read_off_the_line(bench):
    curve = [1 / count for count in (100, 200, 400, 800)]
    assert bench.passes_for(1 / 300, (100, 200, 400, 800), curve) == pytest.approx(300)
    assert bench.passes_for(1 / 1600, (100, 200, 400, 800), curve) == pytest.approx(1600)


@pytest.mark.parametrize("part", ["shapley", "ig", "expected", "stability"])
def test_the_benchmark_runs(bench, part, capsys):
    pytest.importorskip("efficientnet_lite_pytorch", reason="the extra `demo` is not installed")
    bench.main(["--only", part, "--photographs", "2"])
    assert "passes" in capsys.readouterr().out or part == "ig"

"""Explanations in pytest: the fixture `heatproof_run`, which keeps what it computed, and the marker `explanations`.

    @pytest.mark.explanations("stability.fass >= 0.6 @ 0.95")
    def test_explanations(heatproof_run):
        heatproof_run(model, images, ["grad_cam"])

Nothing heavy is imported before a test asks for the fixture.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from heatproof.errors import UserError
from heatproof.testing.requirement import parse_all

if TYPE_CHECKING:
    from heatproof.runs.run import Run

MARKER = "explanations"
RUNS: pytest.StashKey[list[Run]] = pytest.StashKey()
KEPT: pytest.StashKey[list[Path]] = pytest.StashKey()


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the option --heatproof-out to pytest (a hook that pytest calls)."""
    group = parser.getgroup("heatproof", "explanations")
    group.addoption(
        "--heatproof-out",
        metavar="DIR",
        default=None,
        help="keep the runs of the fixture heatproof_run here, with reports",
    )


def pytest_configure(config: pytest.Config) -> None:
    """Makes the marker known."""
    config.addinivalue_line(
        "markers",
        f"{MARKER}(*requirements): what the runs that a test makes with heatproof_run must keep",
    )
    config.stash[KEPT] = []


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """A requirement that cannot be read stops pytest before any test runs."""
    if not any(item.get_closest_marker(MARKER) for item in items):
        return
    for item in items:
        for mark in item.iter_markers(MARKER):
            try:
                parse_all(mark.args)
            except UserError as error:
                raise pytest.UsageError(f"{item.nodeid}: {error}") from error
            fixtures = getattr(item, "fixturenames", ())
            if "heatproof_run" not in fixtures:
                raise pytest.UsageError(
                    f"{item.nodeid}: the marker {MARKER} needs the fixture heatproof_run"
                )


@pytest.fixture
def heatproof_run(request: pytest.FixtureRequest, tmp_path: Path) -> Callable[..., Run]:
    """Return the fixture `heatproof_run(model, data, explainers, …)`, a function that returns a finished run.

    A run with the same weights, data, parameters, code and versions is taken from pytest's cache. The requirements of
    the marker `explanations` are checked on every run of a test after the test has passed.
    """
    from heatproof.axes import DEFAULT_EVALUATION

    config = request.config
    runs_of_test = request.node.stash.setdefault(RUNS, [])
    out = config.getoption("--heatproof-out")
    cache = getattr(config, "cache", None)  # absent with -p no:cacheprovider
    if out:
        folder = Path(out)
    elif cache:
        folder = cache.mkdir("heatproof")
    else:
        folder = tmp_path

    def evaluate(
        model: Any,
        data: Any,
        explainers: Any,
        evaluations: Any = DEFAULT_EVALUATION,
        *,
        seed: int = 0,
        limit: int | None = None,
        batch_size: int | None = None,
        device: str | None = None,
    ) -> Run:
        """Return the finished run of a study, from the cache if there is one; the marker checks it after the test."""
        from heatproof.runs.directory import slug
        from heatproof.runs.evaluate import execute
        from heatproof.runs.plan import make_plan
        from heatproof.testing.cache import fingerprint

        plan = make_plan(
            model,
            data,
            explainers,
            evaluations,
            seed=seed,
            limit=limit,
            batch_size=batch_size,
            device=device,
        )
        name = fingerprint(plan)[:16]
        if out:
            # Stored runs are named after their test; in the cache tests with the same study share one.
            name = f"{slug(request.node.name)}-{name}"
        run = execute(plan, folder / name, f"pytest {request.node.nodeid}", False)
        runs_of_test.append(run)
        if out:
            config.stash[KEPT].append(Path(str(run.report())))
        return run

    return evaluate


@pytest.hookimpl(wrapper=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> Generator[None, object, object]:
    """Run a test; if it passed, check its runs against the requirements of its markers (a hook that pytest calls)."""
    result = yield
    marks = list(pyfuncitem.iter_markers(MARKER))
    if marks:
        requirements: list[str] = []
        for mark in reversed(marks):  # those of the module or class first
            requirements += mark.args
        problems = _problems(pyfuncitem, requirements)
        if problems:
            pytest.fail("\n".join(problems), pytrace=False)
    return result


def pytest_terminal_summary(terminalreporter: Any, config: pytest.Config) -> None:
    """Says where the reports are that were asked for."""
    for path in config.stash[KEPT]:
        terminalreporter.write_line(f"heatproof: {path}")


def _problems(item: pytest.Function, requirements: Iterable[str]) -> list[str]:
    """Return lines on the requirements that the runs of a test do not meet; empty if they meet all.

    Every outcome is also recorded as a property of the test, for pytest's JUnit report.
    """
    from heatproof.testing.check import check
    from heatproof.testing.output import lines, sentence, who

    runs = item.stash.get(RUNS, [])
    if not runs:
        return [
            f"the marker {MARKER} has requirements, but the test made no run with heatproof_run"
        ]
    problems: list[str] = []
    for run in runs:
        try:
            outcomes = check(run, requirements)
        except UserError as error:
            problems.append(f"heatproof: {error}")
            continue
        for outcome in outcomes:
            name = f"heatproof {outcome.requirement} [{who(outcome)}]"
            state = "pass" if outcome.passed else "fail"
            item.user_properties.append((name, f"{state}: {sentence(outcome)}"))
        if not all(outcome.passed for outcome in outcomes):
            problems += ["explanations do not hold", "", *lines(outcomes), f"run: {run.path}"]
    return problems

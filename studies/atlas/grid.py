"""The atlas's grid: studies of every network, most important first, resumed from call to call; and what is kept of it.

    python studies/atlas/grid.py run --data DIR --seconds 540 --jobs 12       # again, until nothing is missing
    python studies/atlas/grid.py export studies/atlas/runs                    # the committed tables
    python studies/atlas/grid.py list                                         # what there is to do, in its order
    python studies/atlas/grid.py study cifar10-vit-s0.paper                   # one study, as YAML
    python studies/atlas/grid.py cards                                        # the model cards, as a table of markdown

A study is of 1,024 test pictures (or the 500 photographs) in 8 shards, or `--samples` (and half as many photographs);
it is done in 8 rounds of a shard each, all networks in the first round before any in the second, those first that the
claims need most. A call that is cut short, or whose `--seconds` are over, loses no more than the shards under way;
`--beside TABLES` leaves out what these have already. Studies are `paper` (every explainer asked again, of photographs
those of few passes and LIME: stability under the FASS paper's perturbations and its code's mild ones, symmetry,
dependence), `maps` (every explainer asked once: faithfulness, certificates, agreement, localisation by mosaics),
`sweeps` (explainers of few passes, of photographs of one, under growing perturbations) and, for a network of each
architecture on CIFAR-10, one round of `smoothing` (certificates of smoothed networks). `other` are the studies of
series, graphs, sets and words beside this folder with more axes; studies/train_*.py come first.

The precision is `auto` for the first network of each data set and architecture, on the study `paper` and 16 of its
pictures; the other studies and seeds take the one found there. What a shard took is noted in `costs.jsonl`: seconds of
its process, and these divided by the number of processes that shared the device.
"""

from __future__ import annotations

import argparse
import gc
import json
import os
import queue
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from importlib import metadata
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch
import yaml
from networks import NETWORKS
from photographs import SIZES as KNOWN
from photographs import packed
from pictures import MEAN, NAMES, STD, pictures

HERE = Path(__file__).resolve().parent
sys.path.append(str(HERE.parent))

from common import place  # noqa: E402

SAMPLES, SHARDS = 1024, 8
PHOTOGRAPHS, OTHER_SAMPLES = 500, 400
WORDS = {"tokens": {"mask_token": 1}}
BESIDE: list[Any] = [{"dependence": {"draws": 2}}, "agreement"]
ATOMS: list[Any] = [*BESIDE, {"certificate": {"features": "elements", "radii": [1, 4]}}]
BEATS: list[Any] = [{"certificate": {"features": {"windows": {"size": 10}}, "radii": [1, 4]}}]
OTHERS: dict[str, tuple[str, list[Any]]] = {
    "ecg": ("ecg-circular", [*BESIDE, "stability", "faithfulness", *BEATS]),
    "graphs": ("graphs-gnn", ATOMS),
    "points": ("points-deepset", ATOMS),
    "text": ("text-bag", [*BESIDE, {"faithfulness": {"features": WORDS}}]),
    "transformer": ("", []),
    "ecg_relaxed": ("", []),
    "ecg_concepts": ("", []),
    "ecg_features": ("", []),
}
"""The studies of other data: a name for their network where they give none, and what is asked beside their axes."""
PART_OF = {
    "ecg_concepts": ("ecg_relaxed", ("gradient_shap", "occlusion", "cav", "car", "random")),
    "ecg_features": (
        "ecg_relaxed",
        ("integrated_gradients", "feature_ablation", "feature_permutation"),
    ),
}
"""Studies of the quicker explainers of another one, for more samples."""
STUDIES = ("paper", "maps", "sweeps", "smoothing", "other")


@dataclass(frozen=True)
class Task:
    """One study of one network."""

    network: str
    study: str

    @property
    def key(self) -> str:
        return f"{self.network}.{self.study}"

    @property
    def data(self) -> str:
        if self.network in OTHERS:
            return self.network
        return NETWORKS[self.network].data if self.network in NETWORKS else "photographs"

    @property
    def kind(self) -> tuple[str, str]:
        """The data and the architecture."""
        return self.data, NETWORKS[
            self.network
        ].architecture if self.network in NETWORKS else self.network


# What is asked


def explainers(task: Task, few_passes: bool) -> list[Any]:
    """Every explainer that is defined, in few passes; of pictures of 32 pixels in patches of 8, else superpixels."""
    data, architecture = task.kind
    small = data != "photographs"
    steps, draws = 16, 8
    if task.study == "smoothing":
        return [
            {"lime": {"samples": 50, "features": {"patches": {"size": 8}}}},
            {"integrated_gradients": {"steps": steps}},
            "random",
        ]
    if (
        task.study == "sweeps" and not small
    ):  # of one pass each, so that all photographs are asked all severities
        return ["saliency", "grad_cam"]
    quick: list[Any] = ["saliency", "input_x_gradient", {"integrated_gradients": {"steps": steps}}]
    quick += [
        {"gradient_shap": {"samples": 5}},
        {"expected_gradients": {"samples": steps}},
        "deep_lift",
    ]
    quick += [] if architecture == "convnext" else ["guided_backprop"]
    quick += ["lrp", "grad_cam", "layer_cam", "hires_cam", {"smoothgrad": {"samples": draws}}]
    if small:  # a pass of a photograph costs twenty times as much
        quick += [
            "grad_cam_plus_plus",
            {"smoothgrad_squared": {"samples": draws}},
            {"vargrad": {"samples": draws}},
        ]
        quick += [{"mfaba": {"steps": draws}}]
    quick += ["attention_rollout", "chefer"] if architecture == "vit" else []
    controls: list[Any] = ["random", "sobel"]
    coarse = {"patches": {"size": (8 if data == "cifar10" else 7) if small else seventh(task)}}
    asking: list[Any] = [
        {"lime": {"samples": 50, "features": coarse} if small else {"samples": 50}}
    ]
    if few_passes or (task.study == "paper" and not small):
        return [*quick, *([] if few_passes else asking), *controls]
    asking += [{"kernel_shap": {"samples": 64 if small else 128, "features": coarse}}]
    side = 0 if small else seventh(task)
    asking += [
        {"occlusion": {"window": 8, "stride": 4} if small else {"window": side, "stride": side}}
    ]
    asking += [{"rise": {"samples": 100}}]
    if small:
        asking += [
            {name: {"features": coarse}} for name in ("feature_ablation", "feature_permutation")
        ]
    return [*quick, *asking, *controls]


def seventh(task: Task) -> int:
    """The side of patches of which 7 × 7 cover a photograph: 32 pixels of 224."""
    return -(-KNOWN[task.network] // 7)


def evaluations(task: Task) -> list[Any]:
    """The axes of a study. Shifts are in pixels: the paper's 20 and 10 of 224 are 3 and 1 of 32."""
    small = task.data != "photographs"
    paper, mild, swept = (3, 1, [1, 2, 3, 5]) if small else (20, 10, [5, 10, 20, 35])
    if task.study == "paper":
        perturbations: list[Any] = []
        for degrees, pixels, factor, sigma, quality in (
            (15, paper, 1.5, 0.15, 40),
            (5, mild, 1.1, 0.01, 85),
        ):
            perturbations += [
                {"rotation": {"degrees": degrees}},
                {"translation": {"pixels": pixels}},
            ]
            perturbations += [
                {"brightness": {"factor": factor}},
                {"gaussian_noise": {"sigma": sigma}},
            ]
            perturbations += [{"jpeg": {"quality": quality}}]
        symmetry = {"group": {"dihedral": {"n": 4}}, "elements": 8 if small else 3}
        dependence = {"draws": 2 if small else 1, "classes": 1}
        return [
            {"stability": {"perturbations": perturbations}},
            {"symmetry": symmetry},
            {"dependence": dependence},
        ]
    if task.study == "sweeps":
        growing: list[Any] = [
            {"rotation": {"degrees": [2, 5, 10, 15, 30]}},
            {"translation": {"pixels": swept}},
        ]
        growing += [
            {"brightness": {"factor": [0.7, 1.1, 1.25, 1.5]}},
            {"jpeg": {"quality": [95, 85, 70, 40]}},
        ]
        growing += [{"gaussian_noise": {"sigma": [0.01, 0.03, 0.07, 0.15]}}]
        return [{"stability": {"perturbations": [*growing, *(["beyond-paper"] if small else [])]}}]
    grid = {"patches": {"size": 4 if small else seventh(task)}}
    if task.study == "smoothing":
        kept = {"keeps": [0.25, 0.5, 1.0], "samples": 16, "radii": [1, 4]}
        return [{"smoothing": {**kept, "features": grid, "epsilon": 0.2}}]
    mean = {"dataset_mean": {"mean": list(MEAN.get(task.data, (0.485, 0.456, 0.406)))}}
    removal = {
        "imputers": ["noisy_linear", "noisy_linear_published", mean],
        "fractions": [0.1, 0.3, 0.5, 0.7, 0.9],
    }
    removal |= {"segments": grid, "masks": 32}
    certificate = {
        "radii": [1, 4, 16],
        "features": grid,
        "fraction": 0.25,
        "epsilon": 0.15 if small else 0.2,
    }
    mosaics: list[Any] = [{"localisation": {"by": "mosaics"}}]
    return [{"faithfulness": removal}, {"certificate": certificate}, "agreement", *mosaics]


def content(task: Task, weights: Path, data: Path, runs: Path, samples: int) -> dict[str, Any]:
    """A study as its file has it."""
    if task.network in OTHERS:
        return other(task.network, samples)
    if task.network in NETWORKS:
        net = NETWORKS[task.network]
        model: dict[str, Any] = {
            "source": f"file:{(weights / f'{net.key}.safetensors').resolve()}",
            "architecture": net.source.replace("networks.py", str(HERE / "networks.py")),
            "name": net.key,
            "mean": list(MEAN[net.data]),
            "std": list(STD[net.data]),
            "classes": list(NAMES[net.data]),
        }
        source: dict[str, Any] = {
            "source": str((runs / f"{net.data}.npz").resolve()),
            "name": net.data,
        }
        rows = 512
    else:
        model = {"source": f"python:{HERE / 'photographs.py'}:{task.network}", "name": task.network}
        source = {"source": str((runs / "photographs.npz").resolve()), "name": "photographs"}
        source |= {"size": KNOWN[task.network], "resize": "crop"}
        samples, rows = min(samples // 2, PHOTOGRAPHS), 48
    return {
        "model": model,
        "data": source,
        "limit": samples,
        "explainers": explainers(task, few_passes=task.study == "sweeps"),
        "evaluations": evaluations(task),
        "batch_size": rows,
        "shard_size": -(-samples // SHARDS),
    }


def other(name: str, samples: int) -> dict[str, Any]:
    """The study of series, graphs, sets or words beside this folder, with more axes and samples."""
    file, kept = PART_OF.get(name, (name, ()))
    text = (HERE.parent / f"{file}.yaml").read_text(encoding="utf-8")
    text = text.replace("../runs/studies/", f"{place('').resolve()}/").replace(
        "python:train", f"python:{HERE.parent}/train"
    )
    study: dict[str, Any] = yaml.safe_load(text)
    network, more = OTHERS[name]
    if network:
        study["model"] = {"source": study["model"], "name": network}
    study["evaluations"] += more
    if kept:
        labelled = [
            (one if isinstance(one, str) else next(iter(one)), one) for one in study["explainers"]
        ]
        study["explainers"] = [one for name, one in labelled if name in kept]
    samples = min(samples, OTHER_SAMPLES)
    return {**study, "limit": samples, "shard_size": -(-samples // SHARDS)}


def picked(name: str, data: Path, runs: Path) -> None:
    """The test pictures of the grid, drawn once for all, as a file that heatproof opens."""
    target = runs / f"{name}.npz"
    if target.is_file():
        return
    if name == "photographs":
        return packed(target, PHOTOGRAPHS)
    x, y = pictures(name, "test", data, runs / "cache")
    rows = np.sort(np.random.default_rng(0).permutation(len(x))[:SAMPLES])
    rows = rows[
        np.random.default_rng(1).permutation(len(rows))
    ]  # so that every shard is like the whole
    ids = np.array([f"{name}-{i:05d}" for i in rows])
    part = target.with_suffix(".part.npz")
    np.savez(
        part,
        x=x[rows].astype(np.float32) / 255,
        label=y[rows],
        ids=ids,
        classes=np.array(NAMES[name]),
    )
    os.replace(part, target)


def tasks(networks: list[str], studies: list[str]) -> list[Task]:
    """Every study of every network that it is for, most important first."""
    made = [
        Task(network, study) for network in networks for study in studies if _is_for(study, network)
    ]
    return sorted(made, key=_place)


def _place(task: Task) -> tuple[int, int]:
    """What the claims need first: stability of first seeds and photographs, smoothing, the rest by seed, and sweeps."""
    seed = NETWORKS[task.network].seed if task.network in NETWORKS else 0
    place = ("other", "paper", "smoothing", "maps", "sweeps").index(task.study)
    return (3 if task.study == "sweeps" else min(seed, 2)), place


def lacking(wanted: list[Task], beside: Path, weights: Path, samples: int) -> list[Task]:
    """Those whose run is not in these tables, or with fewer samples than a round has, or of other weights."""
    from tables import cards, retrained

    runs = pd.read_csv(beside / "runs.csv").set_index("run")["samples"]
    anew = retrained(beside / "networks.csv", cards(weights, weights))
    least = {task: -(-samples // SHARDS) // (2 if task.network in KNOWN else 1) for task in wanted}
    return [task for task in wanted if runs.get(task.key, 0) < least[task] or task.network in anew]


def _is_for(study: str, network: str) -> bool:
    if study == "smoothing":
        return network in NETWORKS and (NETWORKS[network].data, NETWORKS[network].seed) == (
            "cifar10",
            0,
        )
    return (study == "other") == (network in OTHERS)


# Doing it


@dataclass(frozen=True)
class Settings:
    """What every process is told."""

    weights: Path
    data: Path
    runs: Path
    samples: int
    jobs: int
    precision: str
    command: str


def begin(task: Task, settings: Settings) -> Any:
    """The plan of a study, in the precision of the settings."""
    from heatproof.runs.study.file import read_study

    file = settings.runs / f"{task.key}.yaml"
    wanted = content(task, settings.weights, settings.data, settings.runs, settings.samples)
    text = yaml.safe_dump(wanted, sort_keys=False, width=120)
    if not file.is_file() or file.read_text(encoding="utf-8") != text:
        file.write_text(text, encoding="utf-8")
    study = read_study(file, allow_code=True)
    # So small that nothing is gained by a lower precision.
    precision = "float32" if task.network in OTHERS else settings.precision
    return replace(study, precision=precision).plan(allow_code=True)


def work(settings: Settings, todo: Any, news: Any) -> None:
    """Do rounds of studies until there are none."""
    from heatproof.batching import keep_freed_memory
    from heatproof.runs.evaluate import execute

    torch.set_num_threads(1)
    keep_freed_memory()
    if torch.cuda.is_available():  # else the first to come takes it all
        torch.cuda.set_per_process_memory_fraction(0.9 / settings.jobs)
    while True:
        try:
            task, number = todo.get_nowait()
        except queue.Empty:
            return
        begun = time.monotonic()
        news.put(("begun", os.getpid(), task, number, 0.0, ""))
        try:
            plan = begin(task, settings)
            execute(
                plan,
                settings.runs / task.key,
                settings.command,
                False,
                share=(number, SHARDS),
            )
            fate = "done"
        except Exception as error:
            fate = f"FAILED: {type(error).__name__}: {error}"
        plan = None
        gc.collect()  # models and what hooks hold of them, before the next study asks for memory
        torch.cuda.empty_cache()
        news.put((fate, os.getpid(), task, number, time.monotonic() - begun, ""))


def costs(runs: Path) -> list[dict[str, Any]]:
    """What every round took, from `costs.jsonl`."""
    file = runs / "costs.jsonl"
    return (
        [json.loads(line) for line in file.read_text(encoding="utf-8").splitlines()]
        if file.is_file()
        else []
    )


def run(args: argparse.Namespace) -> None:
    """Do as much as the time allows."""
    begun = time.monotonic()
    args.runs.mkdir(parents=True, exist_ok=True)
    os.environ["HEATPROOF_DATA"] = str(args.data.resolve())  # for photographs.py
    here = [
        key
        for key in chosen(args.networks)
        if key in (*KNOWN, *OTHERS) or (args.weights / f"{key}.safetensors").is_file()
    ]
    asked = tasks(here, args.studies)
    if args.beside is not None:
        asked = lacking(asked, args.beside, args.weights, args.samples)
    for name in dict.fromkeys(task.data for task in asked if task.network not in OTHERS):
        picked(name, args.data, args.runs)
    done = {(c["run"], c["round"]) for c in costs(args.runs) if c["done"]}
    rounds = range(1, SHARDS + 1)[: args.rounds]
    wanted = [(task, n) for n in rounds for task in asked if n == 1 or task.study != "smoothing"]
    wanted = [(task, number) for task, number in wanted if (task.key, number) not in done]
    print(
        f"{len(wanted)} rounds of {len(here)} networks are missing, {len(done)} are there",
        flush=True,
    )
    context = torch.multiprocessing.get_context("spawn")
    todo, news = context.Queue(), context.Queue()
    for item in wanted:
        todo.put(item)
    command = "python studies/atlas/grid.py run"
    settings = Settings(
        args.weights, args.data, args.runs, args.samples, args.jobs, args.precision, command
    )
    team = [
        context.Process(target=work, args=(settings, todo, news))
        for _ in range(min(args.jobs, len(wanted)))
    ]
    for process in team:
        process.start()
    at_work: dict[int, tuple[Task, int, float]] = {}
    counted = failed = 0
    while time.monotonic() - begun < args.seconds:
        try:
            fate, pid, task, number, seconds, _ = news.get(timeout=0.5)
        except queue.Empty:
            if any(process.is_alive() for process in team):
                continue
            break
        if fate == "begun":
            at_work[pid] = (task, number, time.monotonic())
            continue
        at_work.pop(pid, None)
        counted, failed = counted + 1, failed + (fate != "done")
        note(args.runs, task, number, seconds, args.jobs, fate == "done")
        print(
            f"[{time.monotonic() - begun:5.0f} s] {task.key} {number}/{SHARDS}: {seconds:.1f} s, {fate}",
            flush=True,
        )
    for process in team:  # what they were at is whole or absent, and done again by the next call
        process.kill()
        process.join()
    for task, number, since in at_work.values():
        note(args.runs, task, number, time.monotonic() - since, args.jobs, False)
    about = f"{counted - failed} rounds done, {failed} failed, {len(wanted) - counted} left"
    print(f"[{time.monotonic() - begun:5.0f} s] {about}", flush=True)


def note(runs: Path, task: Task, number: int, seconds: float, jobs: int, done: bool) -> None:
    """A line of `costs.jsonl`."""
    line = {
        "run": task.key,
        "round": number,
        "done": done,
        "seconds": round(seconds, 2),
        "jobs": jobs,
    }
    with (runs / "costs.jsonl").open("a", encoding="utf-8") as stream:
        stream.write(
            json.dumps({**line, "device": "cuda" if torch.cuda.is_available() else "cpu"}) + "\n"
        )


def chosen(names: list[str]) -> list[str]:
    """Networks by name, or `all` of CIFAR size, `photographs`, `others` (series, graphs, sets, words), `everything`."""
    groups = {"all": list(NETWORKS), "photographs": list(KNOWN), "others": list(OTHERS)}
    groups["everything"] = [*NETWORKS, *KNOWN, *OTHERS]
    found = [key for name in names for key in groups.get(name, [name])]
    strangers = [key for key in found if key not in groups["everything"]]
    if strangers:
        raise SystemExit(
            f"no such network: {', '.join(strangers)}; there are {', '.join(groups['everything'])}"
        )
    return list(dict.fromkeys(found))


def listed(args: argparse.Namespace) -> Iterator[str]:
    for task in tasks(chosen(args.networks), args.studies):
        done = sum(c["done"] for c in costs(args.runs) if c["run"] == task.key)
        yield f"{task.key}: {done} of {SHARDS} rounds"


def version(commit: str) -> str:
    """The version of heatproof and a commit, by default that of this checkout."""
    asked = ["git", "rev-parse", "--short", "HEAD"]
    found = (
        commit
        or subprocess.run(
            asked, cwd=HERE, capture_output=True, text=True, check=False
        ).stdout.strip()
    )
    return f"{metadata.version('heatproof')} {found}".strip()


def main() -> None:
    ask = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    which = ask.add_subparsers(dest="stage", required=True)
    for stage in ("run", "list", "study", "export", "cards"):
        how = which.add_parser(stage)
        if stage == "study":
            how.add_argument("name", help="network.study")
        if stage in ("export", "cards"):
            how.add_argument("--tables", type=Path, default=HERE / "tables")
        if stage == "export":
            how.add_argument("runs", type=Path, help="folder of run directories")
            how.add_argument(
                "--commit", default="", help="of heatproof, where the checkout does not say"
            )
            how.add_argument("--jobs", type=int, default=1)
        else:
            how.add_argument("--runs", type=Path, default=HERE / "runs")
            how.add_argument(
                "--samples", type=int, default=SAMPLES, help="of each network: a trial"
            )
        how.add_argument("--weights", type=Path, default=HERE / "weights")
        how.add_argument("--data", type=Path, default=HERE.parents[2] / "shared" / "data")
        how.add_argument("--networks", nargs="+", default=["everything"])
        how.add_argument("--studies", nargs="+", choices=STUDIES, default=list(STUDIES))
        if stage == "run":
            how.add_argument("--seconds", type=float, default=540)
            how.add_argument(
                "--jobs", type=int, default=12, help="processes; one alone leaves a large GPU idle"
            )
            how.add_argument(
                "--beside",
                type=Path,
                metavar="TABLES",
                help="leave out runs that these tables have",
            )
            how.add_argument(
                "--rounds", type=int, default=SHARDS, help="how many shards of each study at most"
            )
            how.add_argument("--precision", default="float32")
    args = ask.parse_args()
    if args.stage == "run":
        run(args)
    elif args.stage == "list":
        print("\n".join(listed(args)))
    elif args.stage == "study":
        network, _, study = args.name.rpartition(".")
        made = content(
            Task(chosen([network])[0], study), args.weights, args.data, args.runs, args.samples
        )
        yaml.safe_dump(made, sys.stdout, sort_keys=False, width=120)
    elif args.stage == "cards":
        from tables import markdown

        print(markdown(pd.read_csv(args.tables / "networks.csv")))
    else:
        from tables import export

        export(args.runs, args.weights, args.tables, version(args.commit), args.jobs)


if __name__ == "__main__":
    main()

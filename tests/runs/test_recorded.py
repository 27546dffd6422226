"""A small study from its file to its directory: plans, refusals, manifest, rows, ticks and retraining, as looked at."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from torch import Tensor, nn

import heatproof
from heatproof import Batch, Model, rand
from heatproof.explainers import EXPLAINERS
from heatproof.results import Exhibit
from heatproof.runs import differences, engine, precision_audit
from heatproof.runs.cost import trial
from heatproof.runs.evaluate import execute
from heatproof.runs.merge import merge
from heatproof.runs.pictures import _shown, exhibit_rows
from heatproof.runs.plan import describe, make_plan
from heatproof.runs.precision_audit import Audit, Trial, compare
from heatproof.runs.progress import Clock, duration
from heatproof.runs.retrain import Cell, retrain
from heatproof.runs.shard import load_references, usual_references
from heatproof.runs.study.file import read_study
from heatproof.runs.verify import missing
from support.fixed import fixed, tried
from support.recorded import recorded
from support.whole import BASE, MOVED

DIGEST = re.compile(r"\b[0-9a-f]{12}\b")
AXES = [
    {"stability": {"perturbations": ["brightness", {"rotation": {"degrees": [5, 10]}}], "k": 5}}
]
AXES += [
    {"faithfulness": {"imputers": "zero", "fractions": [0.5], "masks": 4}},
    {"agreement": {"k": 5}},
]


def drawn(*shape: int, classes: int = 3) -> Model:
    """A linear model whose weights are the same everywhere."""
    net = nn.Sequential(nn.Flatten(), nn.Linear(int(np.prod(shape)), classes))
    for name, weights in net.named_parameters():
        weights.data = rand.normal(rand.keys(0, (name,), "weights"), weights.shape)[0].float()
    return Model(net, classes=[f"c{i}" for i in range(classes)], name="net")


class Pictures:
    """Seven pictures of three people, one of which cannot be read."""

    ids = tuple(
        f"{who}/{i}" for i, who in enumerate(("ann", "ann", "bob", "bob", "eve", "eve", "eve"))
    )
    groups = tuple(sample[:3] for sample in ids)

    def __len__(self) -> int:
        return len(self.ids)

    def __getitem__(self, i: int) -> Any:
        if i == 5:
            raise ValueError("no picture")
        return fixed(3, 16, 16, seed=i), i % 3


# What a run leaves


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> heatproof.Run:
    out = tmp_path_factory.mktemp("recorded") / "run"
    explainers = ["input_x_gradient", {"gradient_shap": {"samples": 2}}, "random"]
    given: dict[str, Any] = {
        "keep_maps": ["ann/0", "eve/4"],
        "shard_size": 3,
        "references": 4,
        "show_progress": False,
    }
    return heatproof.evaluate(
        drawn(3, 16, 16), {"people": Pictures()}, explainers, AXES, out, **given
    )


def test_the_rows_of_a_small_run(run: heatproof.Run) -> None:
    table = run.table()
    keys = [
        "evaluation",
        "explainer",
        "measure",
        "condition",
        "level",
        "imputer",
        "order",
        "status",
    ]
    found = (
        table.groupby(keys, dropna=False, sort=True, observed=True)["value"]
        .agg(["size", "mean"])
        .reset_index()
    )
    lines = [
        " | ".join(map(str, row[:-1])) + f" | {row[-1]:.4f}"
        for row in found.itertuples(index=False)
    ]
    recorded(
        "runs/rows",
        [*sorted(set(table.columns)), *(line for line in lines if "gradient_shap" not in line)][
            ::2
        ],
    )
    assert set(table["role"][table["explainer"] == "random"]) == {"control"}


def test_the_samples_and_files_of_a_small_run(run: heatproof.Run) -> None:
    samples = run.samples().drop(columns="digest").to_dict("records")
    recorded(
        "runs/samples",
        [
            " | ".join(f"{k} {v:.4f}" if isinstance(v, float) else f"{k} {v}" for k, v in s.items())
            for s in samples
        ],
    )
    names = [
        path.relative_to(run.path).as_posix()
        for path in sorted(run.path.rglob("*"))
        if path.is_file()
    ]
    recorded(
        "runs/files", sorted(re.sub(r"[0-9a-f]{16}|\d{8}T.*", "DIGEST", name) for name in names)
    )
    assert not missing(run.path) and repr(run).startswith("Run(")


def test_the_manifest_of_a_small_run(run: heatproof.Run) -> None:
    manifest = run.manifest
    assert [session["passes"]["net"] > 50 for session in manifest["sessions"]] == [True]
    recorded(
        "runs/manifest",
        [
            sorted(manifest),
            sorted(manifest["sessions"][0]),
            manifest["shard_size"],
            manifest["prepared"],
        ],
    )
    study = json.loads(json.dumps(manifest["study"]))
    study["models"]["net"]["fingerprint"] = study["datasets"]["people"]["fingerprint"] = "…"
    recorded("runs/study", study)


def test_summaries_rankings_tests_and_maps_of_a_run(run: heatproof.Run) -> None:
    found: dict[str, Any] = {
        "html": re.sub(
            r"\s+", " ", re.sub("<[^>]*>", " ", run._repr_html_()).replace(str(run.path), "RUN")
        )[:300]
    }
    for name, frame in (
        ("summary", run.summary()[::9]),
        ("ranking", run.ranking()),
        ("tests", run.tests()),
    ):
        rows = frame.drop(columns=[c for c in frame if frame[c].isna().all()]).to_dict("records")
        found[name] = [
            " | ".join(
                f"{k} {v:.3f}" if isinstance(v, float) else f"{k} {v}" for k, v in row.items()
            )
            for row in rows
        ]
    recorded("runs/summary", found, rtol=1e-3)
    maps = run.maps("input_x_gradient")
    model, data = drawn(3, 16, 16), Pictures()
    for sample, values in maps.items():
        x = data[data.ids.index(sample)][0]
        weights = model.module[1].weight[int(model.logits(x[None]).argmax())].reshape(x.shape)
        np.testing.assert_allclose(values, (x * weights).numpy(), rtol=1e-4, atol=1e-6)
    assert [*maps] == ["ann/0", "eve/4"]
    wrong = [
        lambda: run.maps("saliency"),
        lambda: run.ranking("stabilty"),
        lambda: run.tests("stability", "fas"),
    ]
    wrong += [lambda: run.maps("random", dataset="x"), lambda: run.proof_sheet("nobody")]
    recorded("runs/refused", [str(tried(call)).replace(str(run.path), "RUN") for call in wrong])


def test_shares_are_joined_and_ticks_count_everything(run: heatproof.Run, tmp_path: Path) -> None:
    plan = make_plan(
        drawn(3, 16, 16),
        {"people": Pictures()},
        ["input_x_gradient", "random"],
        AXES,
        shard_size=3,
        references=4,
    )
    ticks: dict[str, int] = {}

    def tick(what: str, amount: int) -> None:
        ticks[what] = ticks.get(what, 0) + amount

    for i in (1, 2):
        execute(plan, tmp_path / str(i), "test", False, share=(i, 2))
    gaps = [missing(tmp_path / str(i)) for i in (1, 2)]
    recorded("runs/gaps", gaps)
    joined = merge(tmp_path / "both", [tmp_path / "1", tmp_path / "2"])
    alone = run.table()
    both = joined.table().set_index(
        ["explainer", "evaluation", "sample", "measure", "condition", "level", "repeat"]
    )
    same = alone.set_index(both.index.names)["value"].reindex(both.index)
    kept = (both.index.get_level_values("evaluation") != "agreement") & both["value"].notna()
    np.testing.assert_allclose(
        both["value"][kept].astype(float), same[kept].astype(float), rtol=1e-3, atol=1e-6
    )
    fresh = make_plan(
        drawn(3, 16, 16),
        {"people": Pictures()},
        ["input_x_gradient", "random"],
        AXES,
        shard_size=3,
        references=4,
    )
    work = fresh.work(tmp_path / "none")
    heatproof.runs.manifest.begin(tmp_path / "again", describe(fresh), 3, "test")
    facts = engine.run_shards(fresh, tmp_path / "again", tick)
    assert {what: n for what, n in ticks.items() if n} == dict(work)
    recorded("runs/work", [dict(work), sorted(facts["durations"]), facts["batch_sizes"]])


# Plans


KINDS: dict[str, tuple[tuple[int, ...], dict[str, tuple[int, ...]]]] = {
    "image": ((3, 16, 16), {}),
    "volume": ((1, 8, 8, 8), {}),
    "series": ((2, 40), {}),
    "table": ((6,), {}),
    "set": ((4, 3), {"mask": (4,)}),
}


@pytest.mark.parametrize("kind", KINDS)
def test_a_plan_of_every_kind_of_data(kind: str) -> None:
    shape, aux = KINDS[kind]

    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.net = drawn(*shape).module

        def forward(self, x: Tensor, mask: Tensor | None = None) -> Any:
            return self.net(x)

    x = fixed(9, *shape)
    data = Batch(
        tuple(f"s{i}" for i in range(9)),
        x,
        {k: torch.ones(9, *v, dtype=torch.bool) for k, v in aux.items()},
    )
    found: dict[str, Any] = {}
    for name in ("recommended", *EXPLAINERS):
        made = tried(
            lambda n=name: make_plan(Model(Net(), name="net"), data, n, [], keep_maps=True)
        )
        found[name] = (
            made
            if isinstance(made, str)
            else [f"{k}: {v}"[:160] for k, v in made.explainers.items()]
        )
    for axis in (
        "stability",
        "certificate",
        "faithfulness",
        "dependence",
        "agreement",
        "localisation",
        "smoothing",
    ):
        made = tried(
            lambda n=axis: make_plan(
                Model(Net(), name="net"), data, ["lime", "random"], n, shard_size=4
            )
        )
        found[axis] = (
            made
            if isinstance(made, str)
            else [f"{k}: {v}"[:600] for k, v in made.evaluations.items()]
        )
        if not isinstance(made, str):
            found[axis] += [
                made.conditions(axis),
                made.shards("data"),
                made.judged(axis),
                made.notes(),
            ]
    recorded(
        f"runs/plan-{kind}",
        json.loads(re.sub(r"0x[0-9a-f]+", "0x", json.dumps(found, default=str))),
    )


def test_what_a_plan_refuses() -> None:
    x = fixed(5, 3, 16, 16)
    model = drawn(3, 16, 16)
    asked: dict[str, dict[str, Any]] = {
        "seed": {"seed": 1.5}, "shard": {"shard_size": 0}, "references": {"references": 1}, "batch": {"batch_size": 0},
        "device": {"device": "gpu"}, "precision": {"precision": "float8"}, "compile": {"compile": "yes"},
        "maps": {"keep_maps": ["0001", "9999"]},
        "explainer": {"explainers": "salency"}, "none": {"explainers": []},
        "evaluation": {"evaluations": "stabilty"}, "twice": {"explainers": ["random", "random"]},
        "role": {"explainers": "stability"}, "pair": {"evaluations": "agreement"},
        "model": {"model": {}},
        "data": {"data": {}}, "limit": {"limit": 0},
        "kind": {"explainers": ["cav"]}, "parameter": {"explainers": {"lime": {"sample": 3}}},
        "labelled": {"explainers": [{"random": {}, "as": "a"}, {"sobel": {}, "as": "a"}]},
        "value": {"explainers": {"lime": {"samples": 0}}},
    }  # fmt: skip
    found = {}
    for key, own in asked.items():
        given: dict[str, Any] = {
            "model": model,
            "data": x,
            "explainers": "random",
            "evaluations": AXES[:1],
            **own,
        }
        made = tried(lambda g=given: make_plan(**g))
        found[key] = made if isinstance(made, str) else "a plan"
    recorded("runs/plan-refused", found)
    plan = make_plan(
        model, x, ["saliency", "random"], AXES[:1], keep_maps=["0001", "0003"], shard_size=2
    )
    facts = [
        plan.megabytes(),
        plan.keeps("0001"),
        plan.keeps("0002"),
        plan.jobs(),
        [list(s) for s in plan.shards("data")],
    ]
    names = [path.as_posix() for path in plan.paths(Path("r"), ("data", "net", 1))]
    recorded(
        "runs/plan",
        [
            facts,
            names,
            plan.is_pending(Path("r"), ("data", "net", 1)),
            plan.unkept(Path("r"), "data", "net", 0),
        ],
    )


def test_explainers_that_an_evaluation_does_not_judge_are_left_out_and_not_counted() -> None:
    def of_examples(model: Any, batch: Batch, target: Tensor, seed: int) -> Tensor:
        return torch.ones(len(batch), 4)

    of_examples.kind = "example"  # type: ignore[attr-defined]
    methods = {"a": "random", "b": "saliency", "c": of_examples}
    plan = make_plan(drawn(3, 16, 16), fixed(5, 3, 16, 16), methods, ["agreement", AXES[0]])
    assert plan.conditions("agreement") == 1 and plan.conditions("stability") == 3
    assert plan.judged("agreement") == ["a", "b"] == [*plan.explainers][:2]
    assert plan.left_out("agreement") == {
        "c": "agreement judges feature explanations, and c gives example explanations"
    }


MODEL, DATA = "model: bundled:efficientnet-lite0\n", "data: bundled:photographs\n"
REST = "explainers: random\n"
USUAL = MODEL + DATA + REST
STUDIES = {
    "no model": DATA + REST,
    "both": USUAL + "models: [bundled:efficientnet-lite0]\n",
    "key": MODEL + DATA + "explainer: random\n",
    "twice": "model: a\nseed: 1\nseed: 2\n",
    "list": "- a\n- b\n",
    "nothing": "",
    "no yaml": "model: [a\n",
    "model kind": "model: bundle:efficientnet-lite0\n" + DATA + REST,
    "model key": "model: {source: bundled:efficientnet-lite0, means: 1}\n" + DATA + REST,
    "data kind": MODEL + "data: bundled:photos\n" + REST,
    "data key": MODEL + "data:\n- source: bundled:photographs\n  sise: 3\n" + REST,
    "two data": MODEL + "data: [bundled:photographs, bundled:photographs]\n" + REST,
    "explainer": MODEL + DATA + "explainers:\n- random\n- lime: {samples: many}\n",
    "evaluation": USUAL + "evaluations:\n  stability: {k: -1}\n",
    "seed": USUAL + "seed: -1\n",
    "limit": USUAL + "limit: 0\n",
    "references": USUAL + "references: 1\n",
    "batches": USUAL + "batch_size: true\n",
    "precision": USUAL + "precision: float3\n",
    "compile": USUAL + "compile: 1\n",
    "device": USUAL + "device: gpu\n",
    "task": "model: {source: bundled:efficientnet-lite0, task: regresion}\n" + DATA + REST,
    "vocabulary": MODEL + "data: {source: bundled:photographs, vocabulary: a.json}\n" + REST,
    "empty": MODEL + "data: []\n" + REST,
    "number": MODEL + "data: 3\n" + REST,
    "code": "model: python:a.py:net\n" + DATA + REST,
    "anchors": "a: &a [1, 2]\nb: &b [*a, *a]\nmodel: *b\n",
    "good": "model: {source: bundled:efficientnet-lite0, name: lite, mean: 0.5, std: [1, 2, 3]}\n"
    "data: {source: bundled:photographs, limit: 3, size: 96}\nexplainers: {lime: {samples: 9}, mine: random}\n"
    "evaluations: [stability, {stability: {k: 7}, as: more}]\nseed: 4\nshard_size: 5\nkeep_maps: [a]\ncompile: auto\n",
}


def test_study_files_and_what_is_wrong_with_them(tmp_path: Path) -> None:
    found = {}
    for name, text in STUDIES.items():
        path = tmp_path / "study.yaml"
        path.write_text(text)
        made = tried(lambda p=path: read_study(p))
        told = made if isinstance(made, str) else repr(made)
        found[name] = told.replace(str(tmp_path), "TMP")
    found["absent"] = str(tried(lambda: read_study(tmp_path / "studdy.yaml"))).replace(
        str(tmp_path), "TMP"
    )
    recorded("runs/studies", found)


# Small rules


def test_where_studies_differ() -> None:
    lime = {"name": "lime", "samples": 3, "of": {"name": "x", "k": 1}}
    pairs: dict[str, tuple[Any, Any]] = {
        "numbers": ({"seed": 0, "k": 1}, {"seed": 1, "k": 1.0}),
        "weights": (
            {"models": {"a": {"fingerprint": "x"}}},
            {"models": {"a": {"fingerprint": "y"}}},
        ),
        "samples": (
            {"datasets": {"a": {"fingerprint": "x"}}},
            {"datasets": {"a": {"fingerprint": "y"}}},
        ),
        "lists": (
            {"a": [lime, {"name": "b"}]},
            {"a": [{"name": "b"}, {"name": "c", "t": "long" * 40}]},
        ),
        "gone": ({"a": ["x", "y"]}, {"a": ["x"]}),
        "come": ({"a": ["x"]}, {"a": [*"xabcdefgh"]}),
        "order": ({"a": ["x", "y"]}, {"a": ["y", "x"]}),
        "kinds": ({"a": [1, 2]}, {"a": {"b": 1}}),
        "new": ({"a": 1}, {"b": 2}),
    }
    found: dict[str, Any] = {key: differences.differences(*pair) for key, pair in pairs.items()}
    found["apart"] = differences.disagreements(
        "p", [[lime, {"name": "b"}], [{"name": "b"}], [{"name": "b"}]], "ABC"
    )
    found["turned"] = differences.disagreements(
        "p", [[lime, {"name": "b"}], [{"name": "b"}, lime]], "AB"
    )
    found["absent"] = differences.disagreements("p", [{"a": 1}, {}], "AB")
    found["cut"] = [differences.brief("x" * n)[-6:] for n in (10, 60, 80, 100, 120, 200)]
    found["lengths"] = [len(differences.brief("x" * n)) for n in range(10, 300, 13)]
    found["listed"] = [differences.listed([*"abcdefghijk"][:n]) for n in range(1, 9)]
    found["joined"] = differences.joined(
        {"a": {"b": 1}, "c": 2}, {"a": {"b": 3, "d": 4}, "c": {"e": 1}, "f": 5}
    )
    recorded("runs/differences", found)


def test_times_sizes_and_references_in_numbers() -> None:
    found: dict[str, Any] = {
        "said": [duration(s) for s in (0, 0.4, 1, 59, 60, 61, 119, 3599, 3600, 7300, 86400, 200000)]
    }
    found["rows"] = [
        engine.usual_rows(v, d)
        for v in (1, 100, 5000, 150528, 10**6, 10**8)
        for d in ("cpu", "cuda", "mps")
    ]
    found["references"] = [usual_references(n) for n in (1, 7, 8, 9, 63, 64, 191, 192, 200, 10**4)]
    found["shown"] = [
        sorted(engine.on_show(tuple("abcdefghijklmnop"), seed, most))
        for seed, most in ((0, 3), (1, 3), (0, 6))
    ]
    data = heatproof.open_data(Pictures())
    found["loaded"] = [
        load_references(data, seed, count).ids
        for seed, count in ((0, None), (0, 3), (1, 3), (0, 6))
    ]
    found["named"] = [
        load_references(data, 0, 2, ("eve/6", "ann/1")).ids,
        tried(lambda: load_references(data, 0, 2, ("eve/5",))),
    ]
    cell = Cell("lime", "morf", heatproof.removal.IMPUTERS["zero"](), 0.25, 1)
    found["cell"] = [cell.condition, cell.number]
    recorded("runs/numbers", found)


def test_a_clock_learns_the_pace_of_each_kind_of_work() -> None:
    now = [100.0]
    clock = Clock(
        {"stability of quick": 10, "stability of slow": 4, "faithfulness of quick": 6},
        lambda: now[0],
    )
    told: list[Any] = [[clock.left(), *clock.words()]]
    first, second = "stability of quick", "stability of slow"
    for seconds, what, amount in (
        (0, first, 0),
        (2, first, 4),
        (1, first, 2),
        (1, second, 0),
        (9, second, 1),
    ):
        now[0] += seconds
        clock.tick(what, amount)
        told.append([clock.left(), *clock.words()])
    now[0] += 3
    told.append([clock.left(), *clock.words()])
    recorded("runs/clock", told)


def test_an_audit_finds_the_worst_shift_and_what_is_lost() -> None:
    g = np.random.default_rng(0)
    rows = [
        {**dict.fromkeys(precision_audit.KEY, "x"), "evaluation": e, "explainer": x, "level": 0.0, "sample": f"{i}"}
        for e in ("stability", "faithfulness") for x in ("a", "b") for i in range(20)
    ]  # fmt: skip
    truth = pd.DataFrame(rows).assign(value=g.random(80), status="ok")
    truth.loc[truth["evaluation"] == "faithfulness", "value"] *= 40
    lower = truth.assign(value=truth["value"] * 1.003 + g.normal(0, 1e-3, 80))
    lower.loc[[3, 30], "status"] = "flipped"
    shifts = compare(truth, lower)
    made = precision_audit._trial("float16", 2.5, shifts)
    lost = precision_audit._trial("tf32", 1.5, shifts.assign(changed=0.0, shift=-0.004))
    none = precision_audit._trial("bfloat16", 1.0, shifts.assign(pairs=0))
    told = Audit("tf32", (Trial("float32", 1.0, 0.0, 0.0, "", 0.0, True), made, lost, none), shifts)
    recorded(
        "runs/audit",
        [
            shifts.to_dict("records"),
            told.text().splitlines(),
            told.record()["tolerance"],
            made,
            lost,
        ],
    )
    edge = shifts.assign(changed=precision_audit.MOST_LOST, shift=-precision_audit.TOLERANCE)
    assert precision_audit._trial("tf32", 1.0, edge).passes, "the limits themselves are allowed"


def test_the_passes_of_a_study_are_reckoned() -> None:
    plan = make_plan(
        drawn(3, 16, 16),
        fixed(6, 3, 16, 16),
        ["saliency", {"lime": {"samples": 9}}, "random"],
        AXES[:2],
    )
    passes, seconds = trial(plan)
    assert seconds > 0
    recorded("runs/passes", passes)


def exhibits() -> dict[str, Exhibit]:
    """An input of every kind with its map."""
    graph = {
        "adjacency": torch.diag(torch.ones(3), 1),
        "mask": torch.tensor([True, True, True, False]),
    }
    moved = {"adjacency": graph["adjacency"].flip(0, 1), "_nodes": torch.tensor([3, 2, 1, 0])}
    tokens = {"attention_mask": torch.tensor([1, 1, 0])}
    given: dict[str, tuple[Tensor, Tensor | None, dict[str, Tensor]]] = {
        "picture": (fixed(3, 20, 30), fixed(3, 20, 30, seed=1) - 0.5, {}),
        "large picture": (fixed(1, 300, 150), fixed(1, 300, 150, seed=1), {}),
        "four channels": (fixed(4, 9, 9), None, {}),
        "flat map": (fixed(3, 8, 8), torch.zeros(3, 8, 8), {}),
        "volume": (fixed(1, 6, 7, 8), fixed(1, 6, 7, 8, seed=1) - 0.2, {}),
        "series": (fixed(2, 12), fixed(2, 12, seed=1) - 0.5, {}),
        "long series": (fixed(1, 1001), fixed(1, 1001, seed=1), {}),
        "row": (fixed(5), fixed(5, seed=1) - 0.5, {}),
        "text": (torch.tensor([2, 3, 0]), fixed(3, 4, seed=1) - 0.5, tokens),
        "set": (fixed(4, 3), fixed(4, 3, seed=1), {"mask": graph["mask"]}),
        "graph": (fixed(4, 2), fixed(4, 2, seed=1), graph),
        "moved graph": (fixed(4, 2), None, moved),
    }
    return {
        name: Exhibit("e", "c", 2.0, name, x, own, "n", aux)
        for name, (x, own, aux) in given.items()
    }


@pytest.mark.parametrize("large", [False, True])
def test_what_is_kept_of_inputs_and_maps_for_the_page(large: bool) -> None:
    class Known:
        columns = ("age", "height", "b", "c", "d")
        tokenizer = heatproof.data.Vocabulary(("a", "film"))

    found = {}
    for name, item in exhibits().items():
        rows = exhibit_rows("d", "m", "stability", [item], Known(), {name} if large else ())  # type: ignore[arg-type]
        shown = _shown(rows.to_pylist()[0])
        values = shown.image.astype(float)
        told: list[Any] = [
            shown.kind,
            values.shape,
            round(values.mean(), 1),
            shown.words,
            shown.evaluation,
            shown.note,
        ]
        if shown.kind not in ("graph", "image", "volume"):
            told.append(values.ravel()[:6].round(4))
        if shown.map is not None:
            weights = np.arange(1, shown.map.size + 1) / shown.map.size
            told += [
                shown.map.shape,
                shown.map.min(),
                shown.map.max(),
                (shown.map.ravel() * weights).mean(),
            ]
        if shown.kind == "graph":
            told.append(values[:, 2:])
        found[name] = told
    recorded(f"runs/exhibits{'-large' * large}", found, rtol=5e-3, atol=0.02)


# Retraining without chance: a network that is fitted in closed form


def fitted(dataset: Any, seed: int) -> nn.Module:
    """The least-squares network of the images that are left: the same on every machine."""
    x, y = (torch.stack([torch.as_tensor(item[k]) for item in dataset]) for k in (0, 1))
    flat = torch.cat([x.flatten(1).double(), torch.ones(len(x), 1)], 1)
    solved = torch.linalg.solve(
        flat.T @ flat + torch.eye(flat.shape[1]), flat.T @ nn.functional.one_hot(y, 3).double()
    )
    net = nn.Sequential(nn.Flatten(), nn.Linear(flat.shape[1] - 1, 3))
    net[1].weight.data, net[1].bias.data = (
        solved[:-1].T.float().contiguous(),
        solved[-1].float() + 0.001 * seed,
    )
    return net


def test_a_retraining_in_closed_form(tmp_path: Path) -> None:
    labels = torch.arange(30) % 3
    x = (
        0.4 * fixed(30, 1, 6, 6)
        + 0.6 * (torch.arange(36).reshape(1, 6, 6) % 3 == labels[:, None, None])[:, None]
    )
    model = drawn(1, 6, 6)
    asked: dict[str, Any] = {
        "imputers": ["zero"],
        "fractions": [0.2, 0.8],
        "repeats": 2,
    }
    sets = (x[:20], labels[:20]), (x[20:], labels[20:])
    run = retrain(
        model, *sets, ["input_x_gradient"], fitted, tmp_path / "run", tuner=fitted, **asked
    )
    table = run.table()
    keys = ["evaluation", "measure", "condition", "level", "repeat"]
    found = (
        table[~table["measure"].str.contains("log2|pixels")]
        .groupby(keys, observed=True)["value"]
        .agg(["size", "mean"])
    )
    rows = [" | ".join(map(str, (*row[0], row[1], round(row[2], 3)))) for row in found.itertuples()]
    recorded(
        "runs/retrained",
        [
            rows,
            {
                k: DIGEST.sub("…", str(v))[:400]
                for k, v in run.manifest["study"]["evaluations"]["retraining"].items()
                if k != "train"
            },
        ],
    )
    wrong: dict[str, dict[str, Any]] = {
        "orders": {"orders": ["first"]},
        "repeats": {"repeats": 0},
        "leakage": {"leakage": [0.55]},
    }
    wrong |= {
        "fractions": {"fractions": [0.0]},
        "trainer": {"trainer": 3},
        "none": {"trainer": None},
        "imputer": {"imputers": "zeros"},
    }
    told = {}
    for key, own in wrong.items():
        given: dict[str, Any] = {
            "trainer": fitted,
            "out": tmp_path / "no",
            "explainers": "random",
            **own,
        }
        told[key] = tried(lambda g=given: retrain(model, *sets, **g))
    told["same"] = tried(
        lambda: retrain(model, sets[0], sets[0], "random", fitted, tmp_path / "no")
    )
    told["labels"] = tried(
        lambda: retrain(model, x[:20], sets[1], "random", fitted, tmp_path / "no")
    )
    recorded("runs/retrain-refused", told)


def test_runs_in_zips_are_the_runs(tmp_path: Path) -> None:
    base, moved = heatproof.read(BASE), heatproof.read(MOVED)
    found = {}
    for name, run in (("base", base), ("moved", moved)):
        ranking = run.ranking()
        rows = ranking[
            [
                "evaluation",
                "measure",
                "explainer",
                "score",
                "low",
                "high",
                "rank",
                "rank_low",
                "rank_high",
                "control",
            ]
        ]
        found[name] = [
            " | ".join(f"{v:.3f}" if isinstance(v, float) else str(v) for v in row)
            for row in rows.itertuples(index=False)
        ]
    recorded("runs/rankings", found)
    both = merge(tmp_path / "both", [base.path, moved.path])
    assert [*both.manifest["study"]["models"]] == ["shapes", "moved"]
    assert len(both.table()) == len(base.table()) + len(moved.table())
    recorded("runs/joined", missing(both.path))

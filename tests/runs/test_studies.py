"""The five study files with networks trained for a moment on made-up data, and the tables made from their runs."""

from __future__ import annotations

import dataclasses
import importlib
import json
import shutil
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pandas as pd
import pytest
import torch
from nets import GNN, BagOfWords, CircularCNN1d, CircularCNN2d, DeepSet, StandardCNN
from torch import Tensor

from heatproof.data import Vocabulary, open_data
from heatproof.runs.evaluate import execute
from heatproof.runs.run import Run
from heatproof.runs.study.file import Study, read_study
from heatproof.types import Batch
from support.paths import ROOT, SHARED_DATA

FOLDER = ROOT / "studies"
NAMES = ("ecg", "fashion", "graphs", "points", "text")
N = 240
SAMPLES = 2


@pytest.fixture(scope="module")
def scripts() -> Iterator[Callable[[str], ModuleType]]:
    """Modules of the folder studies by name."""
    before = set(sys.modules)
    sys.path.insert(0, str(FOLDER))
    yield importlib.import_module
    sys.path.remove(str(FOLDER))
    for name in set(sys.modules) - before:
        if str(getattr(sys.modules[name], "__file__", None) or "").startswith(str(FOLDER)):
            del sys.modules[name]


@pytest.fixture(scope="module")
def studies(
    scripts: Callable[[str], ModuleType], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Path]:
    """A copy of the study files beside everything that they read."""
    root = tmp_path_factory.mktemp("checkout")
    shutil.copytree(FOLDER, root / "studies", ignore=shutil.ignore_patterns("__pycache__", "atlas"))
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("HEATPROOF_STUDIES", str(root / "runs" / "studies"))
        patch.setattr(scripts("common"), "CONCEPT_EXAMPLES", 30)
        for name in NAMES:
            _train(name, root / "runs" / "studies" / name, scripts)
        yield root / "studies"


def _batch(x: Tensor, classes: int, **aux: Tensor) -> Batch:
    return Batch(tuple(f"s{i:03d}" for i in range(len(x))), x, aux, torch.arange(len(x)) % classes)


def _made_up(
    name: str, generator: torch.Generator
) -> tuple[Batch, list[tuple[str, Any, dict[str, Any]]]]:
    """Samples of a study's kind, and its networks: folder, class, options."""

    def uniform(*shape: int) -> Tensor:
        return torch.rand(*shape, generator=generator)

    if name == "ecg":
        return _batch(uniform(N, 1, 140), 5), [
            ("circular", CircularCNN1d, {"channels": 1, "classes": 5, "width": 4})
        ]
    if name == "fashion":
        options = {"channels": 1, "classes": 10, "width": 4}
        nets = [
            (net, StandardCNN, {"size": (28, 28), **options}) for net in ("standard", "augmented")
        ]
        return _batch(uniform(N, 1, 28, 28) * uniform(N, 1, 1, 1), 10), [
            ("circular", CircularCNN2d, options),
            *nets,
        ]
    sizes = torch.arange(N) % 4 + 8
    mask = torch.arange(12) < sizes[:, None]
    if name == "points":
        return _batch(uniform(N, 12, 3) * mask[..., None], 5, mask=mask), [
            ("deepset", DeepSet, {"features": 3, "classes": 5, "width": 8})
        ]
    if name == "graphs":
        common_atoms = torch.tensor(
            [0, 0, 0, 0, 1, 1, 1, 2, 4, 4]
        )  # carbon, oxygen, chlorine, nitrogen
        atoms = (
            torch.nn.functional.one_hot(common_atoms[(uniform(N, 12) * 10).long()], 14).float()
            * mask[..., None]
        )
        bonds = (uniform(N, 12, 12) < 0.25).float().triu(1)
        adjacency = (bonds + bonds.mT) * mask[:, None] * mask[..., None]
        return _batch(atoms, 2, mask=mask, adjacency=adjacency), [
            ("gnn", GNN, {"features": 14, "width": 8})
        ]
    ids = ((uniform(N, 12) * 200).long() + 2) * mask
    return _batch(ids, 2, attention_mask=mask.long()), [
        ("bag", BagOfWords, {"size": 202, "width": 8})
    ]


def _train(name: str, out: Path, scripts: Callable[[str], ModuleType]) -> None:
    common, script = scripts("common"), scripts(f"train_{name}")
    batch, nets = _made_up(name, torch.Generator().manual_seed(0))
    assert batch.label is not None
    classes = [str(i) for i in range(int(batch.label.max()) + 1)]
    known = Vocabulary(tuple(f"{w}{i}" if i >= 12 else w for i, w in enumerate(_words(script))))
    found = script.concepts(batch, known) if name == "text" else script.concepts(batch)
    common.save_sets(out, batch, batch, classes)
    for concept, present in found.items():
        common.save_concept(out, concept, batch, present, classes)
    for net, kind, options in nets:
        lr = 0.01 if name == "fashion" else _rate(name)
        common.train_network(
            out / net, kind, options, batch, batch, classes, epochs=2, lr=lr, seed=0
        )


def _words(script: ModuleType) -> list[str]:
    """200 words, the first of which belong to the concepts."""
    own = [
        words.split()[:4]
        for words in getattr(script, "CONCEPTS", {}).values()
        if isinstance(words, str)
    ]
    listed = [word for words in own for word in words]
    return listed + ["word"] * (200 - len(listed))


def _rate(name: str) -> float:
    study = read_yaml(FOLDER / f"{name}.yaml")
    tracin = next(
        entry["tracin"]
        for entry in study["explainers"]
        if isinstance(entry, dict) and "tracin" in entry
    )
    return float(tracin["learning_rates"])


def read_yaml(path: Path) -> dict[str, Any]:
    import yaml

    content: dict[str, Any] = yaml.safe_load(path.read_text(encoding="utf-8"))
    return content


def _study(studies: Path, name: str, elements: int) -> Study:
    study = read_study(studies / f"{name}.yaml", limit=SAMPLES, allow_code=True)
    axes = {
        key: dataclasses.replace(item, elements=elements) for key, item in study.evaluations.items()
    }
    return dataclasses.replace(study, evaluations=axes, device="cpu")


def _quick(study: Study) -> Study:
    """The study without explainers that take many passes."""
    quick = {
        k: v
        for k, v in study.explainers.items()
        if not k.startswith(("kernel_shap", "occlusion", "smoothgrad"))
    }
    return dataclasses.replace(study, explainers=quick)


@pytest.fixture(scope="module")
def fashion(studies: Path) -> Run:
    return execute(
        _quick(_study(studies, "fashion", 2)).plan(allow_code=True), studies / "run-fashion", "test"
    )


@pytest.fixture(scope="module")
def rows(fashion: Run, scripts: Callable[[str], ModuleType]) -> pd.DataFrame:
    found: pd.DataFrame = scripts("table").scored(
        fashion.table(), fashion.samples(), fashion.manifest.study.as_mapping()
    )
    return found


@pytest.mark.parametrize("name", NAMES)
def test_a_study_file_plans_explainers_of_every_kind(studies: Path, name: str) -> None:
    plan = _study(studies, name, 2).plan(allow_code=True)
    kinds = {getattr(explainer, "kind", "feature") for explainer in plan.explainers.values()}
    assert kinds == {"feature", "example", "concept"}
    assert all(len(data.ids) == SAMPLES for data in plan.data.values())
    for label in ("influence", "tracin"):
        assert label in plan.explainers
    for method in (
        "simplex",
        "similarity",
        "cav",
        "car",
    ):  # on an equivariant and on an invariant layer
        assert sum(label.startswith(f"{method}, ") for label in plan.explainers) == 2
    tested = set(next(iter(plan.evaluations.values())).layers)  # type: ignore[attr-defined]
    used = {
        vars(explainer)["layer"]
        for label, explainer in plan.explainers.items()
        if ", " in label and "(" not in label
    }
    assert used <= tested, "the table says of each of these layers whether it is invariant"


@pytest.mark.parametrize("name", [n for n in NAMES if n != "fashion"])
def test_checkpoints_and_rates_of_a_study_are_those_of_its_training(
    studies: Path, name: str
) -> None:
    tracin = read_study(studies / f"{name}.yaml", allow_code=True).explainers["tracin"]
    folder = next((studies.parent / "runs" / "studies" / name).glob("*/summary.json")).parent
    summary = json.loads((folder / "summary.json").read_text())
    assert len(tracin.checkpoints) == len(summary["checkpoints"])
    rates = tracin.learning_rates * (
        len(summary["rates"]) if len(tracin.learning_rates) == 1 else 1
    )
    assert list(rates) == pytest.approx(summary["rates"])
    last = torch.load(folder / summary["checkpoints"][-1], weights_only=True)
    final = torch.load(folder / "weights.pt", weights_only=True)
    assert last.keys() == final.keys() and all(torch.equal(last[key], final[key]) for key in final)


@pytest.mark.parametrize("name", ["points", "graphs", "text"])
def test_what_the_paper_guarantees_holds(
    studies: Path, scripts: Callable[[str], ModuleType], name: str
) -> None:
    plan = _quick(_study(studies, name, 2)).plan(allow_code=True)
    run = execute(plan, studies / f"run-{name}", "test")
    rows = scripts("table").scored(run.table(), run.samples(), run.manifest.study.as_mapping())
    assert sorted(rows["explainer"]) == sorted(plan.explainers)
    sure = rows[rows["claim"].str.startswith("guaranteed")]
    assert {"saliency", "influence", "tracin", "simplex, hidden", "cav, hidden"} <= set(
        sure["explainer"]
    )
    sure = sure[
        sure["mean"].notna()
    ]  # a map that is alike everywhere, as of a hardly trained network, has no score
    assert (sure["verdict"] == "holds").all(), sure[["explainer", "mean", "verdict"]]
    loose = rows[rows["claim"].str.contains("is not an invariant layer")]
    assert len(loose) == 4


def test_scores_are_those_of_the_summary_and_controls_claim_nothing(
    fashion: Run, rows: pd.DataFrame
) -> None:
    assert len(rows) == 3 * len(fashion.manifest.study.explainers)
    summary = fashion.summary()
    summary = summary[summary["measure"].isin(["equivariance", "invariance"])]
    key = ["model", "explainer"]
    both = rows.merge(summary, on=key, suffixes=("", "_summary"), validate="one_to_one")
    for column in ("mean", "low", "high", "chance", "undefined"):
        pd.testing.assert_series_equal(
            both[column], both[f"{column}_summary"], check_names=False, check_dtype=False
        )
    table = fashion.table()
    redrawn = table[(table["condition"] == "redraw") & (table["model"] == "fashion-circular")]
    floors = redrawn.groupby("explainer")["value"].mean()
    own = rows[rows["model"] == "fashion-circular"].set_index("explainer")
    assert own["floor"].dropna().index.sort_values().tolist() == sorted(floors.index)
    assert own.loc["gradient_shap", "floor"] == pytest.approx(floors["gradient_shap"])
    assert not rows["exact"].any() and (rows["half_width"].dropna() > 0).all()
    assert set(rows.loc[rows["kind"] == "control", "claim"]) == {"no claim"}
    assert (rows["labelled"] == SAMPLES).all()


def test_claims_need_an_invariant_model_and_may_fail(
    fashion: Run, scripts: Callable[[str], ModuleType]
) -> None:
    table = fashion.table()
    few = table["explainer"].isin(["saliency", "influence"])
    table = table[few].reset_index(drop=True)
    moved = (table["measure"] == "model_invariance") & (table["model"] == "fashion-standard")
    table.loc[moved, "value"] = 0.5
    broken = (table["measure"] == "equivariance") & (table["model"] == "fashion-circular")
    broken &= (table["explainer"] == "saliency") & (table["sample"] == table["sample"].iloc[0])
    table.loc[broken, "value"] = 0.9
    found = scripts("table").scored(table, fashion.samples(), fashion.manifest.study.as_mapping())
    standard = found[found["model"] == "fashion-standard"]
    assert (
        standard["claim"].str.contains("not invariant").all() and (standard["verdict"] == "").all()
    )
    circular = found[found["model"] == "fashion-circular"].set_index("explainer")
    assert circular["verdict"].to_dict() == {
        "saliency": "FAILS: as low as 0.9000",
        "influence": "holds",
    }


def test_markdown_has_a_line_per_method_and_network(
    rows: pd.DataFrame, scripts: Callable[[str], ModuleType]
) -> None:
    tables, relaxed = scripts("table"), scripts("relaxed")
    lines = tables.markdown(rows).splitlines()
    assert len(lines) == 2 + len(rows) and len({line.count("|") for line in lines}) == 1
    lines = relaxed.markdown(rows).splitlines()
    assert (
        len(lines) == 2 + rows["explainer"].nunique()
        and len({line.count("|") for line in lines}) == 1
    )
    order = list(relaxed.ordered(rows))
    assert order[0] == "fashion-circular"
    assert [name for name in order if name in lines[0]] == order


def test_the_relaxed_plot_is_a_picture(
    rows: pd.DataFrame, scripts: Callable[[str], ModuleType], tmp_path: Path
) -> None:
    pytest.importorskip("matplotlib", reason="the picture needs matplotlib")
    from PIL import Image

    scripts("relaxed").draw(rows, tmp_path / "relaxed.png")
    with Image.open(tmp_path / "relaxed.png") as picture:
        assert picture.width > picture.height


@pytest.mark.skipif(not (SHARED_DATA / "ecg").is_dir(), reason=f"no real data in {SHARED_DATA}")
def test_concepts_of_real_heartbeats(scripts: Callable[[str], ModuleType]) -> None:
    train = scripts("common").whole(open_data(SHARED_DATA / "ecg" / "ECG5000_TRAIN.tsv.gz"))
    found = scripts("train_ecg").concepts(train)
    assert {name: int(present.sum()) for name, present in found.items()} == {
        "abnormal": 208,
        "r_on_t": 177,
        "deep_dip": 249,
    }


def test_a_nitro_group_is_a_nitrogen_with_two_oxygens(scripts: Callable[[str], ModuleType]) -> None:
    """Nitromethane, methylamine with chlorine, and azomethane, all without hydrogen."""
    molecules = (
        ([0, 4, 1, 1], [(0, 1), (1, 2), (1, 3)]),
        ([0, 4, 2, 2], [(0, 1), (0, 2)]),
        ([0, 4, 4, 0], [(0, 1), (1, 2)]),
    )
    x = torch.nn.functional.one_hot(torch.tensor([atoms for atoms, _ in molecules]), 14).float()
    adjacency = torch.zeros(3, 4, 4)
    for i, (_, bonds) in enumerate(molecules):
        for a, b in bonds:
            adjacency[i, a, b] = adjacency[i, b, a] = 1
    batch = Batch(
        ("a", "b", "c"), x, {"adjacency": adjacency, "mask": torch.ones(3, 4, dtype=torch.bool)}
    )
    found = {
        name: present.tolist() for name, present in scripts("train_graphs").concepts(batch).items()
    }
    assert found == {
        "nitro": [True, False, False],
        "azo": [False, False, True],
        "halide": [False, True, False],
    }

"""Items as they are written: every file is read, its studies are valid, and the published numbers agree with each other."""

from __future__ import annotations

import itertools
import math

import pytest

from heatproof.errors import UserError
from heatproof.reproduce.experiment import beside, function_of
from heatproof.reproduce.items import PAPERS, Published, item_files, read_item
from heatproof.runs.study.file import read_study
from support.paths import ROOT

NAMES = list(item_files())
STUDIES = sorted({read_item(n).folder / study for n in NAMES for study in read_item(n).studies})


def test_all_four_papers_have_items():
    assert {read_item(name).paper for name in NAMES} == set(PAPERS)


@pytest.mark.parametrize("name", NAMES)
def test_an_item_is_complete(name):
    item = read_item(name)
    assert item.place.startswith(("Table", "Figure", "Append"))
    assert item.setup and all(len(texts) == 2 for texts in item.setup.values())
    assert item.published is not None or item.says, "neither numbers nor a statement of the paper"
    if item.published is not None:
        printed = item.published.frame()
        assert len(printed) and printed["score"].map(math.isfinite).all()
        assert not printed.duplicated(["row_group", "row", "column"]).any()
    for function in filter(None, (item.table, item.charts, item.then)):
        assert function_of(item, function).__doc__


@pytest.mark.parametrize("study", STUDIES, ids=lambda path: f"{path.parent.name}-{path.stem}")
def test_a_study_can_be_planned(study):
    plan = read_study(study, limit=2, allow_code=True).plan(allow_code=True)
    assert plan.explainers and plan.configured


def test_every_study_belongs_to_an_item():
    kinds = ("table_", "figure_", "appendix_")
    folders = {path.parent for path in STUDIES}
    files = {path for folder in folders for path in folder.glob("*.yaml")}
    assert {path for path in files if not path.stem.startswith(kinds)} == set(STUDIES)


def test_an_unknown_name_is_answered_by_the_nearest():
    with pytest.raises(UserError, match="'fass-table-4'"):
        read_item("fass-tabel-4")


def test_every_item_is_in_the_docs():
    page = (ROOT / "docs" / "reproduce.md").read_text("utf-8")
    assert [name for name in NAMES if f"`{name}`" not in page] == []


def test_a_row_with_too_few_numbers_is_refused():
    with pytest.raises(UserError, match="'a' has 1 numbers for 2 columns"):
        Published(columns=["x", "y"], rows={"a": [1.0]}).frame()


# ---- the papers' numbers say the same thing in several places; a slip of the pen would break that ----------------------


def number(name: str, row: str, column: str, group: str = "") -> float:
    published = read_item(name).published
    assert published is not None
    printed = published.frame().set_index(["row_group", "row", "column"])["score"]
    return float(printed[group, row, column])


@pytest.mark.parametrize("dataset", ["ImageNet", "CIFAR-10", "COCO"])
@pytest.mark.parametrize("method", ["IG", "GradSHAP", "Grad-CAM", "LIME"])
def test_fass_is_the_mean_of_its_three_components(dataset, method):
    parts = [number("fass-table-4", method, part, dataset) for part in ("SSIM", "Spn.", "Jac.")]
    fass = number("fass-table-4", method, "FASS", dataset)
    assert fass == pytest.approx(sum(parts) / 3, abs=0.006)
    assert fass == number("fass-figure-2", method, dataset)


def test_the_retention_of_table_3_is_the_mean_of_two_perturbations_on_imagenet():
    models = ("ResNet-50", "DenseNet-121", "ConvNeXt-T", "ViT-B/16")
    cells = itertools.product(models, ("Rot.", "Noise"))
    shares = [
        number("fass-appendix-retention", model, column, "ImageNet") for model, column in cells
    ]
    mean = sum(shares) / len(shares)
    assert mean == pytest.approx(number("fass-table-3", "ImageNet", "Mean"), abs=0.0005)


@pytest.mark.parametrize("imputer", ["fixed", "lin"])
@pytest.mark.parametrize("order", ["MoRF", "LeRF"])
def test_roads_table_3_is_part_of_its_table_7(order, imputer):
    strategies = [f"{kind} {order} {imputer}" for kind in ("Retrain", "No-Retrain")]
    published = read_item("road-table-7").published
    assert published is not None
    first, second = sorted(strategies, key=published.columns.index)
    of_table_3 = number("road-table-3", "Retrain vs. No-Retrain", f"{order} {imputer}")
    assert of_table_3 == number("road-table-7", second, first)


def test_our_rows_stand_beside_the_papers_and_below_them():
    import pandas as pd

    item = read_item("road-table-2")
    ours = pd.DataFrame(
        {
            "row": ["MoRF vs. LeRF", "mine"],
            "column": ["Retrain lin", "Retrain lin"],
            "score": [0.5, 0.25],
        }
    )
    table = beside(item, ours).set_index(["row", "column"])
    assert table.loc[("MoRF vs. LeRF", "Retrain lin"), ["paper", "ours"]].tolist() == [0.59, 0.5]
    assert table.index[-1] == ("mine", "Retrain lin")
    assert math.isnan(table["paper"].iloc[-1]) and table["ours"].iloc[-1] == 0.25

"""Models of tables: pipelines that read a DataFrame with words, boosted trees, and plain functions."""

from __future__ import annotations

import pickle
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch

import heatproof
from heatproof import UserError, open_data
from heatproof.models.loaders import load_model
from heatproof.models.loaders.sklearn import with_frames
from heatproof.report.findings import findings

pytest.importorskip("sklearn", reason="scikit-learn is not installed")

from sklearn.compose import ColumnTransformer
from sklearn.ensemble import GradientBoostingClassifier, RandomForestClassifier
from sklearn.linear_model import LinearRegression, LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder, StandardScaler


def people(n: int = 80, seed: int = 0) -> pd.DataFrame:
    """Numbers that float32 rounds, whole numbers, truth values, words and a category with an unused value."""
    rng = np.random.default_rng(seed)
    jobs = pd.Categorical(rng.choice(["cook", "pilot"], n), categories=["clerk", "cook", "pilot"])
    return pd.DataFrame(
        {
            "income": rng.normal(1e5, 3e4, n),
            "city": rng.choice(["oslo", "rome", "bonn"], n),
            "visits": rng.integers(0, 2**40, n),
            "member": rng.random(n) > 0.5,
            "job": jobs,
        }
    )


def default_of(frame: pd.DataFrame) -> np.ndarray:
    is_roman = (frame["city"] == "rome").to_numpy()
    return np.where(frame["income"].to_numpy() > 9e4 + 2e4 * is_roman, "pays", "fails")


def pipeline(last: Any, frame: pd.DataFrame) -> Any:
    numbers, words = ["income", "visits", "member"], ["job", "city"]
    columns = ColumnTransformer([("n", StandardScaler(), numbers), ("w", OneHotEncoder(), words)])
    return make_pipeline(columns, last).fit(frame, default_of(frame))


@pytest.mark.parametrize(
    "last", [LogisticRegression(), GradientBoostingClassifier(n_estimators=8, random_state=0)]
)
def test_a_pipeline_reads_the_rows_of_a_frame_exactly(last: Any) -> None:
    frame = people()
    fitted = pipeline(last, frame)
    data = open_data(frame)
    model = with_frames(load_model(fitted), {"people": data})
    batch = data.load(range(len(data))).batch
    probabilities = model.logits(model.inputs(batch)).double().softmax(1)
    np.testing.assert_allclose(probabilities, fitted.predict_proba(frame), atol=1e-6)
    assert model.classes == ("fails", "pays")
    rows = model.module.rows(batch.x)  # type: ignore[operator]
    pd.testing.assert_frame_equal(rows, frame[list(fitted.feature_names_in_)])
    assert pickle.loads(pickle.dumps(model)).fingerprint == model.fingerprint
    assert model.fingerprint != load_model(fitted).fingerprint  # it depends on the order of columns


def test_a_study_of_a_pipeline_keeps_categories_whole() -> None:
    frame = people(24)
    fitted = pipeline(RandomForestClassifier(8, random_state=0), people())
    run = heatproof.evaluate(
        fitted,
        frame,
        ["kernel_shap", "feature_ablation", "random"],
        ["faithfulness", "stability"],
        keep_maps=True,
    )
    assert set(run.table().status) <= {"ok", "flipped", "undefined"}
    samples = run.samples().sort_values("sample")
    expected = fitted.predict_proba(frame).max(1)
    np.testing.assert_allclose(samples["probability"], expected, atol=1e-5)
    maps = np.stack(list(run.maps("feature_ablation").values()))
    titles = open_data(frame).columns
    assert titles is not None
    of_city = [i for i, title in enumerate(titles) if title.startswith("city=")]
    assert len(of_city) == 3 and np.ptp(maps[:, of_city], axis=1).max() == 0


def test_columns_may_stand_in_another_order_and_a_missing_category_is_the_usual_one() -> None:
    frame = people()
    fitted = pipeline(LogisticRegression(), frame)
    reversed_frame = frame[frame.columns[::-1]]
    data = open_data(reversed_frame)
    model = heatproof.from_sklearn(fitted, data=reversed_frame)
    x = data.load(range(6)).batch.x
    np.testing.assert_allclose(
        model.logits(x).softmax(1), fitted.predict_proba(frame[:6]), atol=1e-6
    )
    titles = data.columns
    assert titles is not None
    removed = x.clone()
    removed[:, [i for i, title in enumerate(titles) if title.startswith("city=")]] = 0
    usual = frame[:6].assign(city=frame["city"].mode()[0])
    np.testing.assert_allclose(
        model.logits(removed).softmax(1), fitted.predict_proba(usual), atol=1e-6
    )


def test_wrong_frames_are_refused_before_any_pass() -> None:
    frame = people()
    fitted = pipeline(LogisticRegression(), frame)
    calls = 0

    def counting(rows: Any) -> Any:
        nonlocal calls
        calls += 1
        return fitted.predict_proba(rows)

    for data, message in (
        (frame.drop(columns="city"), "'city'.*lack"),
        (frame.rename(columns={"city": "cit"}), "'city'.*'cit'"),
        (frame.assign(paid=1), r"'paid'.*label"),
        ({"a": frame, "b": frame[frame["city"] != "rome"]}, "a and b"),
    ):
        with pytest.raises(UserError, match=message):
            heatproof.evaluate(fitted, data, ["feature_ablation"], ["faithfulness"])
    with pytest.raises(UserError, match=r"DataFrame"):
        heatproof.evaluate(fitted, torch.rand(9, 4), ["feature_ablation"], ["faithfulness"])
    assert calls == 0


def test_the_first_rows_of_sorted_data_have_references_of_one_class() -> None:
    frame = people()
    fitted = pipeline(LogisticRegression(), frame)
    by_class = frame.iloc[np.argsort(fitted.predict(frame), kind="stable")]
    for rows, is_found in ((by_class[:20], True), (frame[:20], False)):
        run = heatproof.evaluate(fitted, rows, ["feature_ablation"], ["faithfulness"])
        rules = [f.rule for f in findings(run.results(), run.samples(), run.manifest)]
        assert ("single-class-references" in rules) is is_found


def test_functions_are_models() -> None:
    frame = people(30)
    fitted = pipeline(LogisticRegression(), frame)
    by_estimator = heatproof.explain(fitted, frame, "feature_ablation")
    for function in (fitted.predict_proba, lambda rows: fitted.predict_proba(rows) * 1.0):
        maps = heatproof.explain(function, frame, "feature_ablation")
        np.testing.assert_allclose(maps, by_estimator, atol=1e-5)
    x = np.random.default_rng(0).normal(size=(40, 3)).astype(np.float32)
    line = LinearRegression().fit(x, x[:, 0] - 2 * x[:, 2])
    model = load_model(line.predict)
    assert model.task.name == "regression"
    np.testing.assert_allclose(model.logits(torch.from_numpy(x))[:, 0], line.predict(x), atol=1e-4)
    words = load_model(lambda rows: fitted.predict(rows)[:, None])
    with pytest.raises(UserError, match=r"predict_proba in place of predict"):
        heatproof.explain(words, frame, "feature_ablation")


def test_functions_with_other_constants_are_other_models() -> None:
    prints = {load_model(lambda rows, c=c: rows * c).fingerprint for c in (1.0, 2.0, 1.0)}
    assert len(prints) == 2


def boosted(library: str) -> dict[str, tuple[Any, Any]]:
    """Models of a library, each with what says the expected probabilities, or numbers, of a frame."""
    frame = people()
    label, number = (default_of(frame) == "pays").astype(int), frame["income"] / 1e5
    with_categories = frame.assign(city=frame["city"].astype("category"))
    if library == "xgboost":
        xgb = pytest.importorskip("xgboost", reason="xgboost is not installed")
        options = {"n_estimators": 5, "max_depth": 3, "enable_categorical": True}
        classifier = xgb.XGBClassifier(**options).fit(with_categories, label)
        regressor = xgb.XGBRegressor(**options).fit(with_categories, number)
        boosters = (classifier.get_booster(), regressor.get_booster())
    elif library == "lightgbm":
        lgb = pytest.importorskip("lightgbm", reason="lightgbm is not installed")
        options = {"n_estimators": 5, "min_child_samples": 5, "verbose": -1}
        classifier = lgb.LGBMClassifier(**options).fit(with_categories, label)
        regressor = lgb.LGBMRegressor(**options).fit(with_categories, number)
        boosters = (classifier.booster_, regressor.booster_)
    else:
        catboost = pytest.importorskip("catboost", reason="catboost is not installed")
        options = {"iterations": 5, "verbose": 0, "cat_features": ["city", "job"]}
        options["allow_writing_files"] = False
        classifier = catboost.CatBoostClassifier(**options).fit(with_categories, label)
        regressor = catboost.CatBoostRegressor(**options).fit(with_categories, number)
        boosters = ()
    models = {"classifier": (classifier, classifier), "regressor": (regressor, regressor)}
    models |= {
        f"booster {i}": (booster, expected)
        for i, (booster, expected) in enumerate(
            zip(boosters, (classifier, regressor), strict=False)
        )
    }
    return models


@pytest.mark.parametrize("library", ["xgboost", "lightgbm", "catboost"])
def test_boosted_trees_with_categories_predict_what_they_predict(library: str) -> None:
    frame = people()
    frame["city"] = frame["city"].astype("category")
    data = open_data(frame)
    batch = data.load(range(len(data))).batch
    for model, expected in boosted(library).values():
        wrapped = with_frames(load_model(model), {"people": data})
        table = wrapped.logits(batch.x).double()
        if hasattr(expected, "predict_proba"):
            probabilities = wrapped.task.probability(table)
            assert probabilities is not None
            np.testing.assert_allclose(probabilities, expected.predict_proba(frame), atol=1e-5)
        else:
            assert wrapped.task.name == "regression"
            np.testing.assert_allclose(table[:, 0], expected.predict(frame), rtol=1e-5)
    model, _ = boosted(library)["classifier"]
    run = heatproof.evaluate(model, frame[:12], ["kernel_shap", "random"], ["faithfulness"])
    assert (run.table().status == "ok").any()

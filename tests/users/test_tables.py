"""What users of scikit-learn, SHAP, XGBoost, LightGBM, CatBoost and pandas do first, and what they rely on."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import pytest

import heatproof

pytestmark = pytest.mark.filterwarnings("ignore")  # libraries warn of their own ways


def breast_cancer(columns: int = 30) -> tuple[pd.DataFrame, pd.Series]:
    from sklearn.datasets import load_breast_cancer

    frame, target = load_breast_cancer(return_X_y=True, as_frame=True)
    return frame.iloc[:, :columns], target


def diabetes() -> tuple[pd.DataFrame, pd.Series]:
    from sklearn.datasets import load_diabetes

    return load_diabetes(return_X_y=True, as_frame=True, scaled=False)


def adult(n: int = 400) -> tuple[pd.DataFrame, pd.Series]:
    """Rows like those of the Adult data set: numbers beside words, and an income above 50K or not."""
    rng = np.random.default_rng(0)
    frame = pd.DataFrame(
        {
            "age": rng.integers(17, 80, n),
            "workclass": rng.choice(["Private", "Self-emp", "Government"], n, p=[0.7, 0.2, 0.1]),
            "education": rng.choice(["HS-grad", "Bachelors", "Masters", "Doctorate"], n),
            "hours": rng.normal(40, 10, n).round(),
        }
    )
    gain = frame.age / 20 + frame.hours / 10 + 2 * (frame.education == "Doctorate")
    gain += frame.workclass == "Self-emp"
    return frame, pd.Series(np.where(gain > gain.median(), ">50K", "<=50K"), name="income")


def adult_pipeline(frame: pd.DataFrame, income: pd.Series, model: Any = None) -> Any:
    from sklearn.compose import make_column_transformer
    from sklearn.linear_model import LogisticRegression
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import OneHotEncoder, OrdinalEncoder, StandardScaler

    ranks = OrdinalEncoder(categories=[["HS-grad", "Bachelors", "Masters", "Doctorate"]])
    columns = make_column_transformer(
        (StandardScaler(), ["age", "hours"]),
        (OneHotEncoder(), ["workclass"]),
        (ranks, ["education"]),
    )
    return make_pipeline(columns, model or LogisticRegression()).fit(frame, income)


# scikit-learn and SHAP


def test_kernel_shap_equals_shap_on_breast_cancer() -> None:
    shap = pytest.importorskip("shap")
    from sklearn.ensemble import RandomForestClassifier

    X, y = breast_cancer(columns=9)
    forest = RandomForestClassifier(20, random_state=0).fit(X, y)
    background = X.sample(20, random_state=0)
    rows = X[forest.predict(X) == 1].head(3)

    explainer = shap.KernelExplainer(forest.predict_proba, background)
    expected = explainer.shap_values(rows, nsamples=1000, silent=True)[..., 1]

    kernel = heatproof.KernelShap(background=background, readout="probability")
    assert np.allclose(heatproof.explain(forest, rows, kernel), expected, atol=1e-4)


def test_kernel_shap_equals_shap_on_all_thirty_columns_to_sampling_error() -> None:
    shap = pytest.importorskip("shap")
    from sklearn.linear_model import LogisticRegression
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    X, y = breast_cancer()
    model = make_pipeline(StandardScaler(), LogisticRegression()).fit(X, y)
    background = X.sample(25, random_state=0)
    rows = X[model.predict(X) == 1].head(3)

    def benign(values: Any) -> Any:  # SHAP cannot set the names of columns on a pipeline
        return model.predict_proba(values)[:, 1]

    explainer = shap.KernelExplainer(benign, background)
    settings = {"nsamples": 4000, "l1_reg": False, "silent": True}
    expected = explainer.shap_values(rows, **settings)

    kernel = heatproof.KernelShap(samples=4000, background=background, readout="probability")
    maps = heatproof.explain(model, rows, kernel)
    assert np.abs(maps - expected).max() < 0.03
    mean = model.predict_proba(background)[:, 1].mean()
    assert np.allclose(maps.sum(1), model.predict_proba(rows)[:, 1] - mean, atol=1e-4)


def test_kernel_shap_equals_shap_on_words_and_numbers() -> None:
    shap = pytest.importorskip("shap")
    X, y = adult()
    pipeline = adult_pipeline(X, y)
    background = X.sample(15, random_state=1)
    rows = X[pipeline.predict(X) == ">50K"].head(4)

    def rich(values: np.ndarray) -> np.ndarray:
        return pipeline.predict_proba(pd.DataFrame(values, columns=X.columns))[:, 1]

    explainer = shap.KernelExplainer(rich, background.to_numpy(object))
    expected = explainer.shap_values(rows.to_numpy(object), silent=True)

    kernel = heatproof.KernelShap(background=background, readout="probability")
    maps = heatproof.explain(pipeline, rows, kernel)
    assert maps.shape == rows.shape  # a value for each column of the frame
    assert np.allclose(maps, expected, atol=1e-4)


def test_kernel_shap_equals_shap_for_a_regression() -> None:
    shap = pytest.importorskip("shap")
    from sklearn.ensemble import GradientBoostingRegressor

    X, y = diabetes()
    model = GradientBoostingRegressor(n_estimators=30, random_state=0).fit(X, y)
    background = shap.sample(X, 20)

    explainer = shap.KernelExplainer(model.predict, background)
    expected = explainer.shap_values(X.head(3), nsamples=2000, silent=True)

    kernel = heatproof.KernelShap(samples=2000, background=background)
    assert np.allclose(heatproof.explain(model, X.head(3), kernel), expected, atol=1e-2)


def test_kernel_shap_with_kmeans_centres_equals_shap() -> None:
    shap = pytest.importorskip("shap")
    from sklearn.linear_model import LinearRegression

    X, y = diabetes()
    model = LinearRegression().fit(X, y)

    explainer = shap.KernelExplainer(model.predict, shap.kmeans(X, 5))
    expected = explainer.shap_values(X.head(3), nsamples=2000, silent=True)

    kernel = heatproof.KernelShap(samples=2000, background={"kmeans": 5, "rows": X})
    assert np.allclose(heatproof.explain(model, X.head(3), kernel), expected, atol=1e-2)


def test_a_background_for_the_whole_study_is_the_one_on_the_page(tmp_path: Any) -> None:
    from sklearn.model_selection import train_test_split

    X, y = adult()
    X_train, X_test, y_train, _ = train_test_split(X, y, random_state=0)
    pipeline = adult_pipeline(X_train, y_train)

    run = heatproof.evaluate(
        pipeline,
        X_test.head(20),
        ["kernel_shap", "lime", "occlusion", "feature_ablation", "random"],
        ["faithfulness"],
        background=X_train.sample(30, random_state=0),
    )

    page = run.report(tmp_path / "report.html").read_text()
    assert "30 rows of " in page
    explainers = run.manifest.study.explainers
    for name in ("kernel_shap", "lime", "occlusion", "feature_ablation"):
        assert "30 rows" in explainers[name].background


def test_a_grid_search_is_explained_as_the_model_it_found() -> None:
    from sklearn.linear_model import LogisticRegression
    from sklearn.model_selection import GridSearchCV
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    X, y = breast_cancer()
    pipeline = make_pipeline(StandardScaler(), LogisticRegression())
    search = GridSearchCV(pipeline, {"logisticregression__C": [0.1, 1]}).fit(X, y)

    run = heatproof.evaluate(search, X.head(12), ["kernel_shap", "random"], ["faithfulness"])
    assert (run.samples().predicted == search.predict(X.head(12))).all()
    scores = run.ranking().set_index("explainer").score
    assert scores["kernel_shap"] > scores["random"]


def test_classes_have_the_names_that_the_model_was_fitted_with() -> None:
    from sklearn.datasets import load_iris
    from sklearn.ensemble import RandomForestClassifier

    iris = load_iris(as_frame=True)
    species = iris.target.map(dict(enumerate(iris.target_names)))
    forest = RandomForestClassifier(20, random_state=0).fit(iris.data, species)

    run = heatproof.evaluate(forest, iris.data.sample(15, random_state=0), ["lime"])
    rows = iris.data.sample(15, random_state=0)
    assert run.samples().predicted_name.tolist() == forest.predict(rows).tolist()


def test_categories_are_removed_as_one() -> None:
    X, y = adult()
    pipeline = adult_pipeline(X, y)
    rows = X[pipeline.predict(X) == ">50K"].head(3)
    background = X.sample(10, random_state=0)

    for method in (heatproof.FeatureAblation, heatproof.Occlusion):
        maps = heatproof.explain(
            pipeline, rows, method(readout="probability"), background=background
        )
        rich = pipeline.predict_proba(rows)[:, 1]
        for column, name in enumerate(X.columns):
            without = []
            for value in background[name]:
                without.append(pipeline.predict_proba(rows.assign(**{name: value}))[:, 1])
            assert np.allclose(maps[:, column], rich - np.mean(without, 0), atol=1e-5)


def test_a_model_of_histograms_reads_categories_of_pandas() -> None:
    from sklearn.ensemble import HistGradientBoostingClassifier

    X, y = adult()
    X = X.astype({"workclass": "category", "education": "category"})
    model = HistGradientBoostingClassifier(max_iter=20, random_state=0).fit(X, y)

    run = heatproof.evaluate(model, X.head(15), ["kernel_shap", "random"], ["faithfulness"])
    assert run.samples().predicted_name.tolist() == model.predict(X.head(15)).tolist()


def test_a_bare_predict_proba_is_a_model() -> None:
    from sklearn.calibration import CalibratedClassifierCV
    from sklearn.svm import SVC

    X, y = breast_cancer(columns=6)
    model = CalibratedClassifierCV(SVC()).fit(X.to_numpy(), y)

    run = heatproof.evaluate(model.predict_proba, X.to_numpy()[:12], ["kernel_shap", "lime"])
    assert (run.samples().predicted == model.predict(X.to_numpy()[:12])).all()


def test_a_function_of_frames_is_a_model() -> None:
    X, y = adult()
    pipeline = adult_pipeline(X, y)

    def score(frame: pd.DataFrame) -> np.ndarray:
        return pipeline.predict_proba(frame[["age", "workclass", "education", "hours"]])

    maps = heatproof.explain(score, X.head(4), "kernel_shap")
    assert maps.shape == (4, 4)


def test_sorted_rows_of_one_class_are_mentioned() -> None:
    from sklearn.linear_model import LogisticRegression
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    X, y = breast_cancer()
    model = make_pipeline(StandardScaler(), LogisticRegression()).fit(X, y)
    one_class = X[model.predict(X) == 0].head(30)

    run = heatproof.evaluate(model, one_class, ["kernel_shap", "random"], ["faithfulness"])
    assert "single-class-references" in run.text()


def test_a_fill_of_zero_is_zero() -> None:
    X, y = diabetes()
    from sklearn.linear_model import LinearRegression

    model = LinearRegression().fit(X, y)
    ablation = heatproof.FeatureAblation(fill="zero")
    maps = heatproof.explain(model, X.head(3), ablation)
    assert np.allclose(maps, X.head(3) * model.coef_, rtol=1e-4, atol=1e-2)


# Boosted trees


def test_tree_shap_and_kernel_shap_of_xgboost_agree() -> None:
    shap, xgboost = pytest.importorskip("shap"), pytest.importorskip("xgboost")
    X, y = breast_cancer(columns=9)
    model = xgboost.XGBClassifier(n_estimators=15, max_depth=3).fit(X, y)
    background, rows = X.sample(20, random_state=0), X.head(12)
    tree = shap.TreeExplainer(model, background)

    run = heatproof.evaluate(
        model,
        rows,
        {"tree_shap": tree(rows), "kernel_shap": "kernel_shap", "random": "random"},
        ["faithfulness", "agreement"],
        background=background,
    )

    road = run.ranking().query("evaluation == 'faithfulness'").set_index("explainer").score
    assert abs(road["tree_shap"] - road["kernel_shap"]) < 0.1
    assert road["kernel_shap"] > road["random"]


def test_a_booster_of_xgboost_predicts_what_it_predicts() -> None:
    xgboost = pytest.importorskip("xgboost")
    X, y = diabetes()
    booster = xgboost.train({"max_depth": 3}, xgboost.DMatrix(X, y), num_boost_round=20)

    maps = heatproof.explain(
        booster, X.head(5), heatproof.KernelShap(samples=2000, background=X.iloc[5:15])
    )
    expected = (
        booster.predict(xgboost.DMatrix(X.head(5)))
        - booster.predict(xgboost.DMatrix(X.iloc[5:15])).mean()
    )
    assert np.allclose(maps.sum(1), expected, rtol=1e-3, atol=1e-2)


def test_rows_and_labels_are_a_pair_of_frame_and_series() -> None:
    xgboost = pytest.importorskip("xgboost")
    from sklearn.datasets import load_wine

    X, y = load_wine(return_X_y=True, as_frame=True)
    model = xgboost.XGBClassifier(n_estimators=10).fit(X, y)

    run = heatproof.evaluate(
        model, (X, y), ["kernel_shap", "lime", "random"], ["faithfulness"], limit=20
    )
    assert (run.samples().predicted == model.predict(X)[:20]).all()
    assert (run.samples().label == y[:20]).all()


def test_lightgbm_reads_categories_of_pandas() -> None:
    lightgbm = pytest.importorskip("lightgbm")
    X, y = adult()
    X = X.astype({"workclass": "category", "education": "category"})
    model = lightgbm.LGBMClassifier(n_estimators=20, verbose=-1).fit(X, y)

    run = heatproof.evaluate(model, X.head(15), ["kernel_shap", "lime", "random"], ["faithfulness"])
    assert run.samples().predicted_name.tolist() == model.predict(X.head(15)).tolist()


def test_a_booster_of_lightgbm_from_a_file(tmp_path: Any) -> None:
    lightgbm = pytest.importorskip("lightgbm")
    X, y = breast_cancer()
    trained = lightgbm.train({"objective": "binary", "verbose": -1}, lightgbm.Dataset(X, y), 20)
    trained.save_model(tmp_path / "model.txt")
    booster = lightgbm.Booster(model_file=tmp_path / "model.txt")

    run = heatproof.evaluate(booster, X.head(15), ["kernel_shap", "random"], ["faithfulness"])
    assert (run.samples().predicted == (trained.predict(X.head(15)) > 0.5)).all()


def test_catboost_reads_words() -> None:
    catboost = pytest.importorskip("catboost")
    X, y = adult()
    words = ["workclass", "education"]
    model = catboost.CatBoostClassifier(iterations=20, verbose=False, allow_writing_files=False)
    model.fit(X, y, cat_features=words)

    run = heatproof.evaluate(model, X.head(15), ["kernel_shap", "lime", "random"], ["faithfulness"])
    assert run.samples().predicted_name.tolist() == model.predict(X.head(15)).tolist()


# pandas


def test_maps_go_back_into_a_frame_and_into_the_plots_of_shap() -> None:
    shap = pytest.importorskip("shap")
    pytest.importorskip("matplotlib").use("Agg")
    X, y = adult()
    pipeline = adult_pipeline(X, y)

    maps = heatproof.explain(pipeline, X.head(10), "kernel_shap")

    table = pd.DataFrame(maps, columns=X.columns, index=X.index[:10])
    assert table.abs().mean().idxmin() in X.columns
    shap.plots.beeswarm(
        shap.Explanation(
            maps[:, [0, 3]],
            data=X[["age", "hours"]].head(10).to_numpy(),
            feature_names=["age", "hours"],
        ),
        show=False,
    )


def test_a_frame_with_the_label_inside() -> None:
    from sklearn.ensemble import RandomForestClassifier

    X, y = breast_cancer()
    patients = X.assign(benign=y)
    forest = RandomForestClassifier(20, random_state=0).fit(X, y)

    data = heatproof.open_data(patients.head(20), label="benign")
    run = heatproof.evaluate(forest, data, ["kernel_shap", "random"], ["faithfulness"])
    assert (run.samples().label == y.head(20)).all()


def test_the_table_of_scores_is_tidy() -> None:
    from sklearn.linear_model import LinearRegression

    X, y = diabetes()
    run = heatproof.evaluate(
        LinearRegression().fit(X, y), X.head(20), ["kernel_shap", "random"], ["faithfulness"]
    )
    means = run.table().groupby(["measure", "explainer"]).value.mean().unstack()
    assert means.loc["road", "kernel_shap"] > means.loc["road", "random"]

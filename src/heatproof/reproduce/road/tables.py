"""Tables of the ROAD paper: accuracies and rank correlations, with and without retraining."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pandas as pd

from heatproof.axes.faithfulness import RETRAINING
from heatproof.axes.faithfulness.consistency import consistency
from heatproof.axes.faithfulness.sweeps import Order
from heatproof.errors import UserError
from heatproof.reproduce import pictures
from heatproof.reproduce.experiment import Experiment
from heatproof.runs.evaluate import evaluate
from heatproof.runs.plan import Plan
from heatproof.runs.retrain import retrain
from heatproof.runs.run import Run
from heatproof.runs.storage import Place
from heatproof.text import records

STUDY = "study.yaml"
IMPUTERS = {"fixed": "value", "lin": "noisy_linear_published"}
"""The imputers as the paper calls them: a fixed grey, and noisy linear imputation with σ = 0.1."""
RETRAINED_FRACTIONS: tuple[float, ...] = (0.1, 0.5)
MASKED_METHODS: tuple[str, ...] = ("IG-SG", "IG", "GB")
"""The methods whose masks are classified; the first is that of the imputation predictor as well."""
PER_CLASS = 60
"""Training pictures of each class for a retrained network."""
STRATEGIES = (
    "Retrain MoRF fixed",
    "Retrain MoRF lin",
    "No-Retrain MoRF lin",
    "No-Retrain MoRF fixed",
    "Retrain LeRF fixed",
    "Retrain LeRF lin",
    "No-Retrain LeRF lin",
    "No-Retrain LeRF fixed",
)
"""The rows and columns of Table 7, in its order."""


def retrained(experiment: Experiment, runs: list[Run]) -> list[Run]:
    """Return the run with networks retrained on pictures from which pixels were removed (ROAR and KAR)."""
    plan = _own_plan(experiment)
    return [_retrain(plan, plan.explainers, runs[0].path, IMPUTERS, RETRAINED_FRACTIONS)]


def with_mask_classifiers(experiment: Experiment, runs: list[Run]) -> list[Run]:
    """Return the run with networks that see masks alone, of a few methods."""
    plan = _own_plan(experiment)
    methods = {name: plan.explainers[name] for name in MASKED_METHODS}
    return [
        _retrain(plan, methods, runs[0].path, {"fixed": IMPUTERS["fixed"]}, (0.5,), ("morf",), True)
    ]


def with_mask_predictors(experiment: Experiment, runs: list[Run]) -> list[Run]:
    """Return the run with networks that guess which pixels were removed, of one method with every imputer."""
    plan = _own_plan(experiment)
    methods = {name: plan.explainers[name] for name in MASKED_METHODS[:1]}
    return [_retrain(plan, methods, runs[0].path, IMPUTERS, (0.5,), ("morf",), True)]


def _own_plan(experiment: Experiment) -> Plan:
    """Return the plan of the study; raise for the data or models of a user, whose training pictures are not known."""
    if experiment.data or experiment.models:
        raise UserError(
            f"{experiment.item.name} trains networks, and knows the training pictures of its own data only; "
            "call heatproof.retrain(...) with yours"
        )
    return experiment.study(STUDY).plan(allow_code=True)


def _retrain(
    plan: Plan,
    explainers: Mapping[str, Any],
    out: Place,
    imputers: Mapping[str, str],
    fractions: tuple[float, ...],
    orders: tuple[Order, ...] = ("morf", "lerf"),
    leakage: bool = False,
) -> Run:
    """Return the run at `out` with retrained networks added: trained on digits from which pixels were removed.

    The pixels are removed in the `orders` of the explainers' maps, at the `fractions`, and filled in by the `imputers`.
    With `leakage`, networks that guess which pixels were removed are trained too. The plan has one model and data set.
    """
    (model,), (test,) = plan.models.values(), plan.data.values()
    return retrain(
        model,
        pictures.digits(PER_CLASS, test=False, seed=0),
        test,
        explainers,
        pictures.retrained,
        out,
        imputers=list(imputers.values()),
        orders=orders,
        fractions=fractions,
        leakage=leakage,
    )


# ---- correlations ------------------------------------------------------------------------------------------------------


def orders(experiment: Experiment) -> pd.DataFrame:
    """Return Table 2: the correlation of the rankings by MoRF and LeRF, for each imputer, with and without retraining."""
    rows = _correlations(experiment)
    rows = rows[rows["kind"] == "order"]
    columns = [_words(row.a_retrained, _short(row.a_imputer)) for row in records(rows)]
    return rows.assign(row="MoRF vs. LeRF", column=columns, score=rows["spearman"])


def with_and_without(experiment: Experiment) -> pd.DataFrame:
    """Return Table 3: the correlation of the rankings with and without retraining, for each order and imputer."""
    rows = _correlations(experiment)
    rows = rows[rows["kind"] == "retraining"]
    columns = [f"{_order(row.a_order)} {_short(row.a_imputer)}" for row in records(rows)]
    return rows.assign(row="Retrain vs. No-Retrain", column=columns, score=rows["spearman"])


def strategies(experiment: Experiment) -> pd.DataFrame:
    """Return Table 7: the correlations of all eight strategies, the lower triangle."""
    table = experiment.runs[0].table()
    rows = consistency(table, every_pair=True)
    rows = rows[rows["level"].isna()]
    cells = [(name, name, 1.0, float("nan"), float("nan")) for name in STRATEGIES]
    for row in records(rows):
        a = _words(row.a_retrained, f"{_order(row.a_order)} {_short(row.a_imputer)}")
        b = _words(row.b_retrained, f"{_order(row.b_order)} {_short(row.b_imputer)}")
        first, second = sorted((a, b), key=STRATEGIES.index)
        cells.append((second, first, row.spearman, row.low, row.high))
    frame = pd.DataFrame(cells, columns=["row", "column", "score", "low", "high"])
    return frame.drop_duplicates(["row", "column"])


def _correlations(experiment: Experiment) -> pd.DataFrame:
    """Return the mean correlations over all fractions."""
    rows = consistency(experiment.runs[0].table())
    return rows[rows["level"].isna()]


def _order(order: str) -> str:
    return {"morf": "MoRF", "lerf": "LeRF"}[order]


def _short(imputer: str) -> str:
    return "lin" if imputer.startswith("noisy_linear") else "fixed"


def _words(is_retrained: bool, rest: str) -> str:
    return f"{'Retrain' if is_retrained else 'No-Retrain'} {rest}"


# ---- accuracies --------------------------------------------------------------------------------------------------------


def accuracies(experiment: Experiment) -> pd.DataFrame:
    """Return the accuracy of every method at every share of pixels, a group per strategy (Figures 7, 8, 11 to 14).

    In MoRF the share is removed, in LeRF it is kept, as in the paper.
    """
    table = experiment.runs[0].table()
    is_used = (table["measure"] == "accuracy") & table["order"].isin(["morf", "lerf"])
    rows = table[is_used & (table["status"] == "ok")]
    keys = ["explainer", "evaluation", "order", "imputer", "level"]
    means = rows.groupby(keys, observed=True, sort=False)["value"].mean().reset_index()
    groups, columns = [], []
    for row in records(means):
        name = f"{_order(str(row.order))} {_short(str(row.imputer))}"
        groups.append(_words(row.evaluation == RETRAINING.name, name))
        share = row.level if row.order == "morf" else 1 - row.level
        columns.append(f"{100 * share:.0f} %")
    frame = means.assign(row_group=groups, row=means["explainer"], column=columns)
    frame = frame.rename(columns={"value": "score"})
    frame = frame.sort_values("column", kind="stable")
    order = {name: i for i, name in enumerate(STRATEGIES)}
    return frame.sort_values("row_group", key=lambda names: names.map(order), kind="stable")


def accuracies_of_ig_sg(experiment: Experiment) -> pd.DataFrame:
    """Return Table 5: the accuracies of IG-SG, a row per strategy."""
    return _of_method(experiment, "IG-SG")


def accuracies_of_gb_sg(experiment: Experiment) -> pd.DataFrame:
    """Return Table 6: the accuracies of GB-SG, a row per strategy."""
    return _of_method(experiment, "GB-SG")


def _of_method(experiment: Experiment, method: str) -> pd.DataFrame:
    rows = accuracies(experiment)
    rows = rows[(rows["row"] == method) & ~rows["column"].isin(["60 %", "80 %"])]
    return rows.assign(row=rows["row_group"], row_group="")


def without_retraining(experiment: Experiment) -> pd.DataFrame:
    """Return the accuracies of all methods without retraining, for both imputers (Figures 13 and 14)."""
    rows = accuracies(experiment)
    return rows[rows["row_group"].str.startswith("No-Retrain")]


def road(experiment: Experiment) -> pd.DataFrame:
    """Return the accuracies of all methods by ROAD: noisy linear imputation without retraining (Figure 8)."""
    rows = accuracies(experiment)
    is_road = rows["row_group"].str.startswith("No-Retrain") & rows["row_group"].str.endswith("lin")
    return rows[is_road]


def retrained_accuracies(experiment: Experiment) -> pd.DataFrame:
    """Return the accuracies of all methods after retraining (Figures 7, 11 and 12)."""
    rows = accuracies(experiment)
    return rows[rows["row_group"].str.startswith("Retrain")]


# ---- leakage -----------------------------------------------------------------------------------------------------------


def mask_only(experiment: Experiment) -> pd.DataFrame:
    """Return the accuracy of networks that see masks alone (Figure 5), a row per method; what fills them does not matter."""
    rows = _leakage(experiment, "mask_hit")
    rows = rows.drop_duplicates(["row", "column", "order"])
    return rows.assign(row_group=rows["order"].map(_order))


def imputed_pixels(experiment: Experiment) -> pd.DataFrame:
    """Return the share of pixels wrongly taken for removed or original (Figure 6e), a row per imputer; 0.5 is a guess."""
    rows = _leakage(experiment, "pixels").assign(score=lambda frame: 1 - frame["score"])
    means = rows.groupby(["row_group", "column"], sort=False)["score"].mean().reset_index()
    return means.rename(columns={"row_group": "row"})


def _leakage(experiment: Experiment, measure: str) -> pd.DataFrame:
    table = experiment.runs[0].table()
    rows = table[(table["measure"] == measure) & (table["status"] == "ok")]
    if rows.empty:
        raise UserError(f"the run has no rows of {measure}: {sorted(set(table['measure']))}")
    keys = ["imputer", "explainer", "order", "level"]
    means = rows.groupby(keys, observed=True, sort=False)["value"].mean().reset_index()
    return pd.DataFrame(
        {
            "row_group": means["imputer"].astype(str).map(_short),
            "row": means["explainer"].astype(str),
            "column": [f"{100 * row.level:.0f} %" for row in records(means)],
            "order": means["order"].astype(str),
            "score": means["value"],
        }
    )


# ---- cost --------------------------------------------------------------------------------------------------------------


def runtime(experiment: Experiment) -> pd.DataFrame:
    """Return Table 4: seconds to evaluate IG, both orders and two fractions, with and without retraining."""
    study = experiment.study(STUDY)
    seconds: dict[str, float] = {}
    for name, imputer in IMPUTERS.items():
        plan = study.plan(allow_code=True)
        explainers = {"IG": plan.explainers["IG"]}
        with tempfile.TemporaryDirectory() as folder:
            started = time.perf_counter()
            _retrain(plan, explainers, Path(folder), {name: imputer}, RETRAINED_FRACTIONS)
            seconds[_words(True, name)] = time.perf_counter() - started
        with tempfile.TemporaryDirectory() as folder:
            started = time.perf_counter()
            evaluate(
                plan.models,
                plan.data,
                explainers,
                {
                    "faithfulness": {
                        "imputers": [imputer],
                        "fractions": list(RETRAINED_FRACTIONS),
                        "metrics": ["road"],
                    }
                },
                folder,
            )
            seconds[_words(False, name)] = time.perf_counter() - started
    whole = seconds["Retrain fixed"]
    cells = [("time (s)", name, spent) for name, spent in seconds.items()]
    cells += [("of Retrain fixed", name, spent / whole) for name, spent in seconds.items()]
    return pd.DataFrame(cells, columns=["row", "column", "score"])

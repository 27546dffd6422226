"""Tables of the paper on explanation invariance, from studies of networks whose symmetries are known."""

from __future__ import annotations

import pandas as pd

from heatproof.axes.symmetry.summaries import SymmetrySummary, summarise
from heatproof.reproduce.experiment import Experiment
from heatproof.statistics.estimates import interval

SYMMETRY = "symmetry"
TYPES = {
    "feature": "feature importance: equivariance",
    "example": "example importance: invariance",
    "concept": "concept-based: invariance",
}


def scores_by_type(experiment: Experiment) -> pd.DataFrame:
    """Return the mean score of every method, a group per type of explanation, a column per data set (Figure 3)."""
    frames = []
    for summary in _summaries(experiment):
        dataset = experiment.our_name(summary.result.dataset)
        frames.append(_methods(summary).assign(column=dataset))
    return _by_type(pd.concat(frames, ignore_index=True))


def scores_by_model(experiment: Experiment) -> pd.DataFrame:
    """Return the mean score of every method by type of explanation, a column per model, the most invariant first (Figure 5)."""
    summaries = sorted(_summaries(experiment), key=lambda summary: -summary.model_invariance.score)
    frames = []
    for summary in summaries:
        invariance = f"invariance {summary.model_invariance.score:.3f}"
        column = f"{summary.result.model} ({invariance})"
        frames.append(_methods(summary).assign(column=column))
    return _by_type(pd.concat(frames, ignore_index=True))


def equivariance_of_features(experiment: Experiment) -> pd.DataFrame:
    """Return the mean equivariance of feature importance methods (Table 14)."""
    return _of_kind(experiment, "feature", "Equivariance")


def invariance_of_examples(experiment: Experiment) -> pd.DataFrame:
    """Return the mean invariance of example importance methods (Table 15)."""
    return _of_kind(experiment, "example", "Invariance")


def guarantees(experiment: Experiment) -> pd.DataFrame:
    """Return Table 1, tested: the lowest score of any sample for one method per row, with its condition met and violated.

    The paper proves that a method of a row is invariant or equivariant, with score 1, if the condition of the row holds.
    """
    # Row of the table -> a method that meets its condition, and one that violates it, if there is one.
    methods = {
        "Feature, gradient": ("Integrated Gradients", None),
        "Feature, perturbation": ("Feature Ablation", None),
        "Example, loss": ("Influence Functions", None),
        "Example, representation": ("SimplEx Inv", "SimplEx Equiv"),
        "Concept, representation": ("CAR Inv", "CAR Equiv"),
    }
    records = []
    for summary in _summaries(experiment):
        lowest = summary.samples.groupby("explainer")["value"].min()
        for row, (holds, fails) in methods.items():
            records.append((row, "condition holds: lowest score", lowest.get(holds)))
            if fails is not None:
                records.append((row, "it does not", lowest.get(fails)))
    return pd.DataFrame(records, columns=["row", "column", "score"])


def symmetrised(experiment: Experiment) -> pd.DataFrame:
    """Return the score of explanations averaged over n elements of the group (Figure 4)."""
    return _curve(experiment, "symmetrised", "n")


def convergence(experiment: Experiment) -> pd.DataFrame:
    """Return the Monte Carlo estimate over the first n draws (Figure 7)."""
    return _curve(experiment, "convergence", "N")


def sensitivity(experiment: Experiment) -> pd.DataFrame:
    """Return Pearson's correlation of max-sensitivity and equivariance over samples (Figure 8)."""
    records = []
    for summary in _summaries(experiment):
        of_features = summary.samples[summary.samples["measure"] == "equivariance"]
        for name, rows in of_features.groupby("explainer", sort=False):
            pairs = rows[["value", "max_sensitivity"]].dropna()
            varies = len(pairs) > 2 and bool((pairs.std() > 0).all())
            r = pairs["value"].corr(pairs["max_sensitivity"]) if varies else float("nan")
            records.append((str(name), "r", r))
    return pd.DataFrame(records, columns=["row", "column", "score"])


def redrawn(experiment: Experiment) -> pd.DataFrame:
    """Return scores with common random draws, and the similarity of two draws on the same input (Figures 2 and 9)."""
    frames = []
    for summary in _summaries(experiment):
        methods = summary.explainers[summary.explainers["noise_floor"].notna()]
        rows = methods.assign(row=methods["explainer"])
        frames.append(rows.assign(column="moved with the input: e(g·x) and g·e(x)"))
        floor = rows.assign(score=rows["noise_floor"], low=float("nan"), high=float("nan"))
        frames.append(floor.assign(column="two draws on the same input"))
    return pd.concat(frames, ignore_index=True)


def _summaries(experiment: Experiment) -> list[SymmetrySummary]:
    summaries = [summarise(result) for result in experiment.results_of(SYMMETRY)]
    return [summary for summary in summaries if summary is not None]


def _methods(summary: SymmetrySummary) -> pd.DataFrame:
    """Return the explainers with a score, in the order of the study."""
    rows = summary.explainers[~summary.explainers["is_control"]].dropna(subset="score")
    order = {name: i for i, name in enumerate(summary.result.manifest.study.explainers)}
    rows = rows.sort_values("explainer", key=lambda names: names.map(order), kind="stable")
    return rows.assign(row=rows["explainer"])


def _by_type(rows: pd.DataFrame) -> pd.DataFrame:
    order = {kind: i for i, kind in enumerate(TYPES)}
    rows = rows.sort_values("kind", key=lambda kinds: kinds.map(order), kind="stable")
    return rows.assign(row_group=rows["kind"].map(TYPES))


def _of_kind(experiment: Experiment, kind: str, column: str) -> pd.DataFrame:
    frames = []
    for summary in _summaries(experiment):
        methods = _methods(summary)
        frames.append(methods[methods["kind"] == kind].assign(column=column))
    return pd.concat(frames, ignore_index=True)


def _curve(experiment: Experiment, measure: str, letter: str) -> pd.DataFrame:
    """Return the mean of a measure over samples, with its interval, for every method and number of group elements.

    `letter` names the number of elements in the headings of columns, such as "n = 5".
    """
    records = []
    for summary in _summaries(experiment):
        rows = summary.result.rows
        chosen = rows[(rows["measure"] == measure) & (rows["status"] == "ok")]
        for (name, level), of_level in chosen.groupby(["explainer", "level"], observed=True):
            values = of_level["value"].to_numpy(dtype=float)
            low, high = interval(values[None])
            column = f"{letter} = {level:g}"
            records.append((str(name), level, column, values.mean(), low[0], high[0]))
    columns = ["row", "level", "column", "score", "low", "high"]
    table = pd.DataFrame(records, columns=columns)
    return table.sort_values(["level", "row"], kind="stable")

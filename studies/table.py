"""One table of scores per run of a symmetry study, beside what the paper on explanation invariance claims.

    python studies/table.py runs/ecg runs/graphs

Everything follows from the run directory: its table, its samples and its manifest.
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import pandas as pd

import heatproof
from heatproof import axes
from heatproof.explainers import EXPLAINERS
from heatproof.results.summary import summary
from heatproof.runs.results import arrays_of_run

SCORES = ("equivariance", "invariance")
NOISE_FLOORS = [m.noise_floor for m in axes.BY_NAME["symmetry"].measures if m.name in SCORES]
EXACTLY = 1e-4
"""How far below 1 a single-precision score may be by rounding."""
INVARIANT_LAYER = 1e-4
"""The largest relative change of a layer that is called invariant."""
INVARIANT_MODEL = 0.999
SINGLE_FEATURES = ("pixels", "elements", "tokens")
KINDS = ("feature", "example", "concept", "control")


class Claim(NamedTuple):
    """What the paper says of a method on an invariant model: `sure` that it is 1, not sure, or None for no claim."""

    sure: bool | None
    text: str


NO_CLAIM = Claim(None, "no claim")
NO_BASIS = Claim(None, "no claim: the model is not invariant")


def kind_of(parameters: Mapping[str, Any]) -> str:
    """feature, example, concept or control, from an explainer's entry in the manifest."""
    if parameters.get("role") == "control":
        return "control"
    return str(getattr(EXPLAINERS.get(str(parameters.get("name", ""))), "kind", "feature"))


def claim(parameters: Mapping[str, Any], layers: Mapping[str, float]) -> Claim:
    """The claim of the paper's Table 1 and its propositions for one explainer, when the model is invariant.

    All groups of the studies permute the input, and all baselines are 0, so what Table 1 makes conditional on these
    two is guaranteed. `layers` maps the layers that the run tested to their relative error of invariance.

    >>> claim({"name": "integrated_gradients"}, {}).text
    'guaranteed 1 (Prop. D.6)'
    >>> claim({"name": "cav", "layer": "features"}, {"features": 0.4})
    Claim(sure=False, text='not guaranteed: features is not an invariant layer (Prop. D.14)')
    """
    name = str(parameters.get("name", ""))
    if name in _LAYER_PROPOSITIONS:
        return _of_layer(parameters, layers, _LAYER_PROPOSITIONS[name])
    if name == "feature_ablation" and _grouping(parameters) not in SINGLE_FEATURES:
        return Claim(False, "not guaranteed: features of several places do not move (Prop. D.8)")
    if name == "occlusion" and not (parameters.get("circular") and parameters.get("stride") == 1):
        why = "the stride" if parameters.get("circular") else "windows do not wrap"
        return Claim(False, f"not guaranteed: {why} (Prop. D.8)")
    return _CLAIMS.get(name, NO_CLAIM)


_CLAIMS = {
    "saliency": Claim(True, "guaranteed 1 (Cor. D.5)"),
    **dict.fromkeys(
        ("input_x_gradient", "integrated_gradients", "deep_lift"),
        Claim(True, "guaranteed 1 (Prop. D.6)"),
    ),
    **dict.fromkeys(
        ("gradient_shap", "feature_permutation"), Claim(False, "not guaranteed: random baseline")
    ),
    **dict.fromkeys(("feature_ablation", "occlusion"), Claim(True, "guaranteed 1 (Prop. D.8)")),
    **dict.fromkeys(("influence", "tracin"), Claim(True, "guaranteed 1 (Prop. D.9)")),
}
_LAYER_PROPOSITIONS = {
    **dict.fromkeys(("simplex", "representation_similarity"), "Prop. D.12"),
    **dict.fromkeys(("cav", "car"), "Prop. D.14"),
}


def _of_layer(parameters: Mapping[str, Any], layers: Mapping[str, float], source: str) -> Claim:
    layer = str(parameters.get("layer") or "the last layer's input")
    error = layers.get(layer, math.nan)
    if math.isnan(error):
        return Claim(None, f"1 if {layer} is invariant, which was not tested ({source})")
    if error <= INVARIANT_LAYER:
        return Claim(True, f"guaranteed 1: {layer} is invariant ({source})")
    return Claim(False, f"not guaranteed: {layer} is not an invariant layer ({source})")


def _grouping(parameters: Mapping[str, Any]) -> str:
    features = parameters.get("features")
    return str(features.get("name", "")) if isinstance(features, Mapping) else "pixels"


def verdict(said: Claim, lowest: float, high: float) -> str:
    """Whether a claim agrees with the lowest score of a sample and the upper end of the mean's interval.

    >>> verdict(Claim(True, ""), 0.999999, 1.0), verdict(Claim(True, ""), 0.7, 0.9), verdict(NO_CLAIM, 0.5, 0.6)
    ('holds', 'FAILS: as low as 0.7000', '')
    """
    if said.sure is None or math.isnan(lowest):
        return ""
    exact = lowest >= 1 - EXACTLY
    if said.sure:
        return "holds" if exact else f"FAILS: as low as {lowest:.4f}"
    if exact:
        return "1 all the same"
    return (
        "below 1, as it may be"
        if not high >= 1 - EXACTLY
        else "below 1 for some samples, as it may be"
    )


def _summary(rows: pd.DataFrame) -> pd.DataFrame:
    """Return the mean scores of all tests in a table."""
    return pd.concat([summary(arrays) for arrays in arrays_of_run(rows)], ignore_index=True)


def scored(table: pd.DataFrame, samples: pd.DataFrame, study: Mapping[str, Any]) -> pd.DataFrame:
    """One row per dataset, network and explainer: scores with intervals, how they were estimated, and the claim.

    `table` and `samples` are those of a run, `study` the manifest's description of it.
    """
    of_models = table[table["measure"] == "model_invariance"]
    if of_models.empty:
        return pd.DataFrame()
    group = str(of_models["condition"].iloc[0])
    is_score = table["measure"].isin([*SCORES, "model_invariance"]) & (table["condition"] == group)
    kept = table[is_score | table["measure"].isin(NOISE_FLOORS)]
    of_model = (
        kept["measure"] == "model_invariance"
    )  # apart, for where a map is undefined the model is not
    own, model_means = _summary(kept[~of_model]), _summary(kept[of_model])
    own = own[own["measure"].isin(SCORES) & (own["condition"] == group)]
    model_rows = model_means.to_dict("records")
    invariance = {(row["dataset"], row["model"], row["explainer"]): row for row in model_rows}
    layer_error = _layer_errors(table)
    records = []
    for row in own.to_dict("records"):
        place = (row["dataset"], row["model"], row["explainer"])
        parameters = study["explainers"][row["explainer"]]
        each = kept[
            (kept["measure"] == row["measure"])
            & (kept["condition"] == group)
            & (kept["dataset"] == place[0])
            & (kept["model"] == place[1])
            & (kept["explainer"] == place[2])
            & (kept["status"] == "ok")
        ]
        half = float(((each["high"] - each["low"]) / 2).mean())
        model = invariance[place]
        said = claim(parameters, layer_error.get(place[:2], {}))
        if kind_of(parameters) == "control":
            said = NO_CLAIM
        elif not model["mean"] >= INVARIANT_MODEL:
            said = NO_BASIS
        right, known = _accuracy(samples, *place[:2])
        records.append(
            {
                "dataset": place[0],
                "model": place[1],
                "accuracy": right / known if known else math.nan,
                "labelled": known,
                "model_invariance": model["mean"],
                "model_low": model["low"],
                "model_high": model["high"],
                "explainer": place[2],
                "kind": kind_of(parameters),
                **{key: row[key] for key in ("measure", "mean", "low", "high", "chance")},
                "floor": row["noise_floor"],
                "elements": int(row["level"]),
                "half_width": half,
                "exact": bool(half <= 1e-12),
                "samples": int(row["attempted"]),
                "undefined": int(row["undefined"]),
                "claim": said.text,
                "verdict": verdict(
                    said, float(each["value"].min()) if len(each) else math.nan, row["high"]
                ),
            }
        )
    order = {name: i for i, name in enumerate(study["explainers"])}
    frame = pd.DataFrame(records)
    keys = frame.assign(
        kind=frame["kind"].map(KINDS.index), explainer=frame["explainer"].map(order)
    )
    return frame.loc[
        keys.sort_values(["dataset", "model", "kind", "explainer"], kind="stable").index
    ]


def _layer_errors(table: pd.DataFrame) -> dict[tuple[str, str], dict[str, float]]:
    """(dataset, model) -> layer -> the largest relative error of its invariance."""
    rows = table[table["measure"] == "layer_invariance_error"]
    worst = rows.groupby(["dataset", "model", "condition"])["value"].max().reset_index()
    found: dict[tuple[str, str], dict[str, float]] = {}
    for row in worst.to_dict("records"):
        found.setdefault((row["dataset"], row["model"]), {})[row["condition"]] = float(row["value"])
    return found


def _accuracy(samples: pd.DataFrame, dataset: str, model: str) -> tuple[int, int]:
    rows = samples[(samples["dataset"] == dataset) & (samples["model"] == model)]
    rows = rows[rows["label"].notna() & rows["predicted"].notna()]
    return int((rows["label"] == rows["predicted"]).sum()), len(rows)


HEAD = (
    "method",
    "kind",
    "network",
    "accuracy",
    "model invariance",
    "score",
    "identity floor",
    "chance",
    "elements",
    "Monte-Carlo error",
    "undefined",
    "the paper",
    "agrees",
)


def markdown(rows: pd.DataFrame) -> str:
    """The rows of `scored` as a table; the score is the equivariance of features, the invariance of the others."""
    lines = [f"| {' | '.join(HEAD)} |", f"|{'---|' * len(HEAD)}"]
    for row in rows.to_dict("records"):
        cells = (
            row["explainer"],
            row["kind"],
            row["model"],
            f"{row['accuracy']:.1%} of {row['labelled']}",
            number(row["model_invariance"]),
            interval(row["mean"], row["low"], row["high"]),
            number(row["floor"]),
            number(row["chance"]),
            str(row["elements"]),
            "exact"
            if row["exact"]
            else "–"
            if math.isnan(row["half_width"])
            else f"± {number(row['half_width'])}",
            f"{row['undefined']} of {row['samples']}",
            row["claim"],
            row["verdict"] or "–",
        )
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def number(value: float) -> str:
    """Three decimals, and five where three would round up to 1.

    >>> number(0.5), number(0.99996), number(1.0), number(float("nan"))
    ('0.500', '0.99996', '1.000', '–')
    """
    if math.isnan(value):
        return "–"
    return f"{value:.5f}" if 0.9995 <= value < 1 - 1e-5 else f"{value:.3f}"


def interval(mean: float, low: float, high: float) -> str:
    """A mean with the interval of its bootstrap over samples."""
    return number(mean) if math.isnan(low) else f"{number(mean)} [{number(low)}, {number(high)}]"


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", maxsplit=1)[0])
    parser.add_argument("runs", nargs="+", type=Path, help="run directories of symmetry studies")
    for path in parser.parse_args().runs:
        run = heatproof.read(path)
        rows = scored(run.table(), run.samples(), run.manifest.study.as_mapping())
        print(
            f"## {path.name}\n\n{markdown(rows) if len(rows) else 'This run judges no symmetry.'}\n"
        )


if __name__ == "__main__":
    main()

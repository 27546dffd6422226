"""Model invariance against that of explanations, for networks that are invariant, nearly so, and not at all.

    python studies/relaxed.py runs/fashion relaxed.png

This is the relaxed-invariance plot (the paper's Figure 5), from the table of a run with several networks. The numbers
are printed as a table; the picture needs matplotlib.
"""

from __future__ import annotations

import argparse
import importlib.util
from pathlib import Path
from typing import Any

import pandas as pd
from table import interval, scored

import heatproof

SHOWN = ("feature", "example", "concept")
TITLES = {
    "feature": "feature explanations: equivariance",
    "example": "example explanations: invariance",
    "concept": "concept explanations: invariance",
}
MARKERS = "osD^vP*Xd<>ph"


def markdown(rows: pd.DataFrame) -> str:
    """One line per method, one column per network, the most invariant network first; `rows` are those of `scored`."""
    networks = ordered(rows)
    heads = [f"{name} (model invariance {interval(*values)})" for name, values in networks.items()]
    lines = [f"| method | kind | {' | '.join(heads)} |", f"|---|---|{'---|' * len(heads)}"]
    for (kind, method), own in rows.groupby(["kind", "explainer"], sort=False):
        by_model = {row["model"]: row for row in own.to_dict("records")}
        cells = [
            interval(*(by_model[name][key] for key in ("mean", "low", "high")))
            if name in by_model
            else "–"
            for name in networks
        ]
        lines.append(f"| {method} | {kind} | {' | '.join(cells)} |")
    return "\n".join(lines)


def ordered(rows: pd.DataFrame) -> dict[str, tuple[float, float, float]]:
    """network -> model invariance with its interval, the most invariant first."""
    first = rows.groupby("model")[["model_invariance", "model_low", "model_high"]].first()
    first = first.sort_values("model_invariance", ascending=False)
    return {str(name): (float(a), float(b), float(c)) for name, a, b, c in first.itertuples()}


def draw(rows: pd.DataFrame, path: Path) -> None:
    """One panel per kind: model invariance across, the explanation's up, with intervals over samples."""
    from matplotlib.figure import Figure

    kinds = [kind for kind in SHOWN if (rows["kind"] == kind).any()]
    figure = Figure(figsize=(5.2 * len(kinds), 5.6), layout="constrained")
    for place, kind in enumerate(kinds, 1):
        axes = figure.add_subplot(1, len(kinds), place)
        methods = list(rows.loc[rows["kind"] == kind, "explainer"].unique())
        for i, method in enumerate(methods):
            own = rows[(rows["explainer"] == method) & rows["mean"].notna()].sort_values(
                "model_invariance"
            )
            x, y = own["model_invariance"].to_numpy(), own["mean"].to_numpy()
            up = [
                (y - own["low"].fillna(own["mean"])).clip(lower=0),
                (own["high"].fillna(own["mean"]) - y).clip(lower=0),
            ]
            across = [x - own["model_low"].fillna(own["model_invariance"])]
            across.append(own["model_high"].fillna(own["model_invariance"]) - x)
            marks: dict[str, Any] = dict(
                marker=MARKERS[i % len(MARKERS)],
                markersize=5,
                linewidth=1,
                elinewidth=0.8,
                capsize=2,
            )
            error = [side.clip(lower=0) for side in across]
            axes.errorbar(x, y, yerr=up, xerr=error, label=method, alpha=0.85, **marks)
        axes.set_title(TITLES[kind], fontsize=10)
        axes.set_xlabel("model invariance (cosine of the class probabilities)")
        axes.set_ylim(min(-0.2, float(rows["low"].min())), 1.05)
        axes.axhline(1, color="grey", linewidth=0.5)
        axes.legend(
            fontsize=7, loc="upper center", bbox_to_anchor=(0.5, -0.14), ncols=2, frameon=False
        )
    figure.savefig(path, dpi=130)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", maxsplit=1)[0])
    parser.add_argument(
        "run", type=Path, help="run directory of a symmetry study with several networks"
    )
    parser.add_argument(
        "picture", type=Path, nargs="?", help="where to write the picture, such as relaxed.png"
    )
    args = parser.parse_args()
    run = heatproof.read(args.run)
    rows = scored(run.table(), run.samples(), run.manifest.study.as_mapping())
    print(markdown(rows))
    if args.picture is None:
        return
    if importlib.util.find_spec("matplotlib") is None:
        print("\nno picture: matplotlib is not installed")
        return
    draw(rows, args.picture)
    print(f"\nwrote {args.picture}")


if __name__ == "__main__":
    main()

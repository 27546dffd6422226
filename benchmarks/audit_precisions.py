"""What lower precisions do to a study's scores, and how long they take: an audit before a long study.

    python benchmarks/audit_precisions.py python:FILE.py:FACTORY --images DIR [--samples 32] [--precisions float16]

The study, four methods under five perturbations, runs in float32 and in each precision. Random numbers depend on the
seed and the ids alone, so the tables are compared pair by pair. Printed for each precision, explainer and measure is
the shift of the mean score over the pairs that both retain. A precision changes the answer if a shift exceeds 0.005,
or if more than 2 % of the pairs are retained in one of the two only. Runs code from FILE.py.
"""

from __future__ import annotations

import argparse
from typing import Any

import pandas as pd
import torch

from heatproof import Stability, evaluate, load_model, open_data

METHODS = ["integrated_gradients", "gradient_shap", "grad_cam", {"lime": {"samples": 50}}]
LARGEST_SHIFT = 0.005
LARGEST_SHARE_OF_CHANGED_PAIRS = 0.02
PAIR = ["explainer", "measure", "condition", "level", "sample"]


def shifts(reference: pd.DataFrame, lower: pd.DataFrame) -> pd.DataFrame:
    """Return, per explainer and measure, the shift of the mean score and the share of changed pairs."""
    pairs = reference.merge(lower, on=PAIR, suffixes=("", "_lower"), validate="one_to_one")
    retained, retained_lower = pairs["status"] == "ok", pairs["status_lower"] == "ok"
    pairs["changed"] = (retained != retained_lower).astype(float)
    pairs["shift"] = (pairs["value_lower"] - pairs["value"]).where(retained & retained_lower)
    return pairs.groupby(PAIR[:2], observed=True)[["shift", "changed"]].mean()


def main() -> None:
    ask = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    ask.add_argument("model")
    ask.add_argument("--images", required=True)
    ask.add_argument("--samples", type=int, default=32)
    ask.add_argument("--mean", type=float, default=0.5)
    ask.add_argument("--std", type=float, default=0.5)
    ask.add_argument("--precisions", nargs="+", default=["tf32", "float16", "bfloat16"])
    options = ask.parse_args()
    device = "cuda" if torch.cuda.is_available() else "cpu"
    data = open_data(options.images, name="photographs", size=224).limit(options.samples)

    def study(precision: Any) -> Any:
        # Rounded weights cannot be made exact again, so each precision loads the model anew.
        model = load_model(
            options.model, device=device, allow_code=True, mean=options.mean, std=options.std
        )
        model.use(precision)
        return evaluate({"model": model}, data, METHODS, Stability())

    study("float32")  # the first run builds kernels
    reference = study("float32")
    seconds = reference.manifest.sessions[-1].seconds
    print(f"float32: {seconds:.1f} s", flush=True)
    for precision in options.precisions:
        lower = study(precision)
        table = shifts(reference.table(), lower.table())
        shift, changed = table["shift"].abs().max(), table["changed"].max()
        passes = shift <= LARGEST_SHIFT and changed <= LARGEST_SHARE_OF_CHANGED_PAIRS
        print(
            f"{precision}: {lower.manifest.sessions[-1].seconds:.1f} s; largest shift {shift:.4f}; "
            f"{100 * changed:.1f} % of pairs retained in one only: "
            f"{'passes' if passes else 'changes the answer'}\n{table.round(4).to_string()}",
            flush=True,
        )


if __name__ == "__main__":
    main()

"""What lower precisions do to a study's scores: the audit on a model and photographs of your own.

    python benchmarks/audit_precisions.py python:FILE.py:FACTORY --images DIR [--samples 32] [--precisions float16]

The study is the FASS paper's: four methods, five perturbations. With `--retention 200` it says first which share of the
pairs of so many photographs keep their prediction, on which the hours of `fass_grid.py` depend. Runs code from FILE.py.
"""

from __future__ import annotations

import argparse

import torch

from heatproof import Stability, evaluate, load_model, open_data
from heatproof.runs.plan import make_plan
from heatproof.runs.precision_audit import audit

METHODS = ["integrated_gradients", "gradient_shap", "grad_cam", {"lime": {"samples": 50}}]


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
    ask.add_argument(
        "--retention", type=int, default=0, help="on how many photographs to measure it"
    )
    given = ask.parse_args()
    device = "cuda" if torch.cuda.is_available() else "cpu"
    model = load_model(given.model, device=device, allow_code=True, mean=given.mean, std=given.std)
    data = open_data(given.images, name="photographs", size=224)
    if given.retention:
        run = evaluate(model, data.limit(given.retention), "saliency", Stability(noise_floor=False))
        pairs = run.table().query("measure == 'fass'")
        kept = (pairs["status"] != "flipped").groupby(pairs["condition"], observed=True).mean()
        print(
            f"retention on {given.retention} photographs: {kept.mean():.3f}\n{kept.round(3).to_string()}",
            flush=True,
        )
    plan = make_plan({"model": model}, {"photographs": data}, METHODS, {"stability": Stability()})
    found = audit(plan, given.precisions, given.samples)
    print(found.text())
    if found.shifts.empty:
        return
    raw = found.shifts[found.shifts["measure"].isin(["ssim", "spearman", "jaccard", "fass"])]
    print(
        raw.pivot_table(index=["explainer", "measure"], columns="precision", values="shift")
        .round(4)
        .to_string()
    )


if __name__ == "__main__":
    main()

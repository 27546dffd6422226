"""The FASS paper's grid on one device, extrapolated from a slice: how many hours for 70,000 images.

    python benchmarks/fass_grid.py --images DIR [--architectures resnet50 …] [--samples 200] [--out DIR]

The grid is 4 architectures × 4 methods (IG-50, GradientSHAP-5, Grad-CAM, LIME with 50 samples on superpixels) × 5
perturbations, on photographs decoded from files, through the whole of holdfast: reading, perturbing, predicting,
explaining, scores with their chance levels and aligned scores, writing. Per architecture the audit says first whether
the precision keeps the answer; then a small run compiles the network, which is not extrapolated; then the slice is
timed. Weights are random (torchvision's cannot be had without a network), so retention is not that of the paper: the
hours are given as measured, and for a study in which no pair is dropped. Needs torchvision.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from pathlib import Path

import torch
import torchvision

from holdfast import Model, Stability
from holdfast.audit import audit
from holdfast.building import explainers
from holdfast.data import Data
from holdfast.plan import Plan
from holdfast.run import execute, make_plan
from holdfast.zoo import open_source

METHODS = ["integrated_gradients", "gradient_shap", "grad_cam", {"lime": {"samples": 50}}]
MEAN, STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
GRID = 70_000
PUBLISHED_HOURS = 200


def plan(name: str, model: Model, data: Data, shard_size: int, batch_size: int | None = None) -> Plan:
    """One architecture's share of the grid."""
    axes = {"stability": Stability(noise_floor=False)}
    return make_plan({name: model}, {data.name: data}, explainers(METHODS), axes, 0, shard_size, batch_size)


def main() -> None:
    ask = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    ask.add_argument("--images", type=Path, required=True, help="a folder of photographs")
    ask.add_argument("--architectures", nargs="+", default=["resnet50", "densenet121", "convnext_tiny", "vit_b_16"])
    ask.add_argument("--samples", type=int, default=200)
    ask.add_argument("--shard-size", type=int, default=100)
    ask.add_argument("--batch-size", type=int, help="instead of the measured one")
    ask.add_argument("--precision", default="float16")
    ask.add_argument("--no-compile", action="store_true")
    ask.add_argument("--no-audit", action="store_true")
    given = ask.parse_args()
    device = "cuda" if torch.cuda.is_available() else "cpu"
    data = open_source(str(given.images), name="photographs", size=224)
    measured, undropped = 0.0, 0.0
    for name in given.architectures:
        torch.manual_seed(0)
        module = getattr(torchvision.models, name)().eval().to(device)
        if not given.no_audit:
            begun = time.perf_counter()
            found = audit(plan(name, Model(module, MEAN, STD), data.limit(32), given.shard_size))
            print(f"\n{name}, audit in {time.perf_counter() - begun:.0f} s\n{found.text()}", flush=True)
        model = Model(module, MEAN, STD).use(given.precision, not given.no_compile)
        with tempfile.TemporaryDirectory() as folder:
            begun = time.perf_counter()
            sizes = (given.shard_size, given.batch_size)
            execute(plan(name, model, data.limit(given.shard_size), *sizes), Path(folder) / "warm", "warm up")
            warm = time.perf_counter() - begun
            run = execute(plan(name, model, data.limit(given.samples), *sizes), Path(folder) / "slice", "slice")
            session = run.manifest["sessions"][-1]
            rows = run.table()
        pairs = rows[(rows["measure"] == "fass") & (rows["condition"] != "redraw")]
        kept = float((pairs["status"] == "ok").mean())
        each = session["seconds"] / given.samples
        whole = each * (1 + 5) / (1 + 5 * kept)
        measured += each
        undropped += whole
        about = f"{session['seconds']:.1f} s for {given.samples} images after {warm:.0f} s of compiling and warming up"
        print(f"{name}: {about}, batches of {session['batch_sizes'][name]}, {session['passes'][name]} passes")
        print(
            f"  {1000 * each:.1f} ms per image, retention {kept:.2f}; {1000 * whole:.1f} if all were kept", flush=True
        )
    hours, most = (GRID * per_image / 3600 for per_image in (measured, undropped))
    print(
        f"\n{GRID} images × {len(given.architectures)} architectures: {hours:.2f} hours as measured, {most:.2f} if no"
    )
    print(f"pair were dropped, against about {PUBLISHED_HOURS} A100-hours reported", flush=True)


if __name__ == "__main__":
    main()

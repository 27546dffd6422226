"""Sanity checks of attribution methods on real classifiers, and which published claims hold with chance in place.

    python benchmarks/dependence_claims.py --data DIR [--photographs 50] [--json FILE] [--models mobilenet_v2 ...]

DIR holds `val500/` with photographs and `mnv2.py` with `mnv2_imagenet_fp16.pt`; EfficientNet-Lite0 comes from the
package `efficientnet_lite_pytorch`. Every explainer of features is tested by `dependence` (three random networks, one
other class) and `agreement`; the methods that take few passes also by cascades from the output. Runs code from DIR.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import time
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch

import heatproof
from heatproof import Model
from heatproof.axes.agreement.clusters import matrix
from heatproof.axes.dependence.overview import overview
from heatproof.runs.results import axis_results
from heatproof.statistics.arrays import mean_of_finite
from heatproof.statistics.estimates import interval
from heatproof.text import with_interval

NETWORKS = 3  # with which the tables of docs/measured.md were made
GRID = {"patches": {"size": 32}}
QUICK: list[Any] = [
    "saliency",
    "input_x_gradient",
    {"integrated_gradients": {"steps": 16}},
    "deep_lift",
]
QUICK += [
    "guided_backprop",
    "grad_cam",
    {"smoothgrad": {"samples": 10}},
    "random",
    "sobel",
    "weight_noise",
]
METHODS: list[Any] = [
    *QUICK,
    "lrp",
    {"gradient_shap": {"samples": 10}},
    {"smoothgrad_squared": {"samples": 10}},
]
METHODS += [{"vargrad": {"samples": 10}}, {"mfaba": {"steps": 10}}, {"lime": {"samples": 150}}]
METHODS += [
    {"kernel_shap": {"samples": 200, "features": GRID}},
    {"occlusion": {"window": 32, "stride": 32}},
]
METHODS += [{"rise": {"samples": 300}}, {"feature_ablation": {"features": GRID}}]
METHODS += [{"feature_permutation": {"features": GRID}}]


def mobilenet(folder: Path) -> Model:
    spec = importlib.util.spec_from_file_location("mnv2", folder / "mnv2.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return Model(
        module.load(folder / "mnv2_imagenet_fp16.pt"), mean=0.5, std=0.5, name="mobilenet_v2"
    )


def columns(
    run: heatproof.Run, measure: str, condition: str, level: float = 0.0, column: str = "value"
) -> dict[str, np.ndarray]:
    """Return the values (or `column`) of the samples by explainer, in their order, the mean over the networks."""
    table = run.table()
    rows = table[
        (table.measure == measure) & (table.condition == condition) & (table.level == level)
    ]
    means = rows.groupby(["explainer", "sample"], observed=True)[column].mean().unstack()
    return {str(name): values.to_numpy() for name, values in means.iterrows()}


def claim(text: str, source: str, values: np.ndarray, above: float = 0.0) -> dict[str, Any]:
    """Whether the mean of something over samples is shown to be above a number."""
    low, high = (float(end[0]) for end in interval(values[None]))
    held = "holds" if low > above else "contradicted" if high < above else "not shown"
    mean = float(mean_of_finite(values))
    return {
        "claim": text,
        "source": source,
        "mean": mean,
        "low": low,
        "high": high,
        "against": above,
        "verdict": held,
    }


def claims(run: heatproof.Run, cascade: heatproof.Run) -> list[dict[str, Any]]:
    whole, other = columns(run, "dependence", "weights"), columns(run, "class_dependence", "class")
    rise = columns(run, "entropy_rise", "weights")
    rho = columns(run, "spearman", "weights")
    chance = columns(run, "spearman", "weights", column="chance")
    top = columns(cascade, "cascade_dependence", "top_down", 0.25)
    label = {name.split("(")[0]: name for name in whole}
    smooth, ig, gbp = label["smoothgrad"], label["integrated_gradients"], "guided_backprop"
    adebayo, sixt = "Adebayo 2018", "Sixt 2020"
    binder, hedstroem = "Binder 2023", "Hedström 2023"
    said = [
        claim("gradients depend on the weights", adebayo, whole["saliency"], 0.1),
        claim("Grad-CAM depends on the weights", adebayo, whole["grad_cam"], 0.1),
        claim(
            "guided backprop depends less than gradients", adebayo, whole["saliency"] - whole[gbp]
        ),
        claim("guided backprop is blind to the upper quarter of layers", adebayo, 0.1 - top[gbp]),
        claim(
            "an edge detector is as unchanged as guided backprop",
            adebayo,
            whole["sobel"] - whole[gbp] + 0.1,
        ),
        claim("IG keeps more of its order than other samples share", adebayo, rho[ig] - chance[ig]),
        claim(
            "input times gradient: the same",
            adebayo,
            rho["input_x_gradient"] - chance["input_x_gradient"],
        ),
        claim("guided backprop: another class, the same map", sixt, 0.1 - other[gbp]),
        claim(
            "guided backprop changes less with the class than gradients",
            sixt,
            other["saliency"] - other[gbp],
        ),
        claim("DeepLIFT depends on the upper quarter of layers", sixt, top["deep_lift"], 0.1),
        claim(
            "DeepLIFT depends no less than gradients (to 0.1)",
            sixt,
            whole["deep_lift"] - whole["saliency"] + 0.1,
        ),
    ]
    controls = ("weight_noise", "random", "sobel")
    of_methods = [values for name, values in whole.items() if name not in controls]
    usual = np.nanmean(of_methods, axis=0)
    said += [
        claim(
            "noise scores no lower than methods in the mean (to 0.1)",
            binder,
            whole["weight_noise"] - usual + 0.1,
        ),
        claim(
            "smoothing lowers the score of gradients", hedstroem, whole["saliency"] - whole[smooth]
        ),
        claim("gradients are more complex under random weights", hedstroem, rise["saliency"]),
        claim("so is IG", hedstroem, rise[ig]),
        claim("so is Grad-CAM", hedstroem, rise["grad_cam"]),
        claim("guided backprop is not", hedstroem, -rise[gbp]),
    ]
    return said


def described(run: heatproof.Run) -> dict[str, Any]:
    results = axis_results(run.in_study_order(), run.samples(), (), run.manifest, run.references())
    result_of = {result.axis.name: result for result in results}
    table = overview(result_of["dependence"])
    print(
        f"{'explainer':32} {'dependence':20} networks   sim  chance  floor  class                rise  verdict"
    )
    for r in table.itertuples():
        score, other = (
            with_interval(r.score, r.low, r.high),
            with_interval(r.class_score, r.class_low, r.class_high),
        )
        print(
            f"{r.explainer:32} {score:20} {r.least:.2f}-{r.most:.2f} {r.similarity:6.2f} {r.similarity_chance:6.2f} "
            f"{r.floor:6.2f}  {other:20} {r.entropy_rise:5.2f}  {r.verdict}"
        )
    found = matrix(result_of["agreement"])
    clusters = [
        [name for name, number in zip(found.explainers, found.clusters, strict=True) if number == c]
        for c in dict.fromkeys(found.clusters)
    ]
    print("clusters:", "; ".join(", ".join(names) for names in clusters if len(names) > 1))
    lost = run.table().query("status == 'undefined' and measure == 'dependence'")
    print("undefined:", lost.groupby(["explainer", "reason"], observed=True).size().to_dict())
    agreement = pd.DataFrame(found.mean, found.explainers, found.explainers)
    return {
        "table": table.to_dict("records"),
        "clusters": clusters,
        "agreement": agreement.round(4).to_dict(),
    }


def main() -> None:
    ask = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    ask.add_argument("--data", required=True, type=Path)
    ask.add_argument("--photographs", type=int, default=50)
    ask.add_argument("--models", nargs="+", default=["mobilenet_v2", "efficientnet_lite0"])
    ask.add_argument("--quick", action="store_true", help="only the methods that take few passes")
    ask.add_argument("--json", type=Path, default=Path("dependence_claims.json"))
    given = ask.parse_args()
    device = "cuda" if torch.cuda.is_available() else "cpu"
    results: dict[str, Any] = {
        "photographs": given.photographs,
        "device": device,
        "torch": torch.__version__,
    }
    photographs = heatproof.open_data(given.data / "val500", name="photographs", size=224)
    places = torch.linspace(0, len(photographs) - 1, given.photographs).long().tolist()
    chosen = photographs.load(places).batch
    for name in given.models:
        model = (
            mobilenet(given.data)
            if name == "mobilenet_v2"
            else heatproof.load_model("bundled:efficientnet-lite0")
        )
        begun = time.perf_counter()
        methods = QUICK if given.quick else METHODS
        run = heatproof.evaluate(
            {name: model},
            chosen,
            methods,
            [{"dependence": {"draws": NETWORKS}}, "agreement"],
            device=device,
        )
        steps = {"draws": 1, "classes": 0, "cascades": "top_down", "steps": 4, "noise_floor": False}
        cascade = heatproof.evaluate(
            {name: model}, chosen, QUICK, [{"dependence": steps}], device=device
        )
        seconds = time.perf_counter() - begun
        print(f"\n{name} on {given.photographs} photographs, {seconds:.0f} s on {device}")
        results[name] = {
            "seconds": round(seconds, 1),
            **described(run),
            "claims": claims(run, cascade),
        }
        for c in results[name]["claims"]:
            values = f"{with_interval(c['mean'], c['low'], c['high'])} against {c['against']:g}"
            print(f"{c['verdict']:13} {c['source']:14} {c['claim']:66} {values}")
    given.json.write_text(json.dumps(results, indent=1, default=float), encoding="utf-8")


if __name__ == "__main__":
    main()

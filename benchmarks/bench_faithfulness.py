"""What sharing saves: model passes for 8 explainers with every removal metric at 20 steps, against one run per metric.

    python benchmarks/bench_faithfulness.py        (or `make bench`, which runs all benchmarks)

*Separately* is how metrics are usually run: for each explainer and each metric anew, remove, predict, score. ROAD needs
both orders; deletion, insertion, pixel flipping, AOPC and IROF one sweep each; infidelity, sensitivity-n and
faithfulness correlation 64 random masks each. *Together*, one sweep per explainer, imputer and order serves all its
readouts, the masks are one bank for all explainers and metrics, and the sweeps of a random order, which the separate
runs do not have, are paid once. The maps are fixed, so that explaining costs nothing on either side, and both sides'
scores are compared at the end. Counted is every input that goes through the network for the evaluation, its clean
prediction included; not counted are the engine's own prediction of each image and of the reference samples.
"""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pandas as pd
import torch

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

import heatproof
from heatproof import rand
from heatproof.axes.faithfulness.evaluation import Faithfulness
from heatproof.features import Patches
from heatproof.runs.references import default_reference_count
from support.small import model, pictures

PICTURES, EXPLAINERS, STEPS, MASKS = 4, 8, 20, 64
LIMIT = 1000
"""The most passes per image that are allowed, and what the plan of this library counted for separate metrics."""
FRACTIONS = tuple(step / (STEPS + 1) for step in range(1, STEPS + 1))
COMMON = {"fractions": FRACTIONS, "segments": Patches(size=4), "masks": MASKS}
LINEAR, BLACK = "noisy_linear", "zero"
ALONE: dict[str, dict[str, Any]] = {
    "road": {"imputers": LINEAR, "orders": ("morf", "lerf")},
    "deletion_auc": {"imputers": BLACK, "orders": ("morf",)},
    "insertion_auc": {"imputers": BLACK, "orders": ("lerf",)},
    "pixel_flipping": {"imputers": BLACK, "orders": ("morf",)},
    "aopc": {"imputers": BLACK, "orders": ("morf",)},
    "irof": {"imputers": BLACK, "orders": ()},
    "infidelity": {"imputers": BLACK, "orders": ()},
    "sensitivity_n": {"imputers": BLACK, "orders": ()},
    "faithfulness_correlation": {"imputers": BLACK, "orders": ()},
}


def fixed_map(name: str) -> Callable[..., torch.Tensor]:
    """An explainer that looks at nothing and costs no pass."""

    def explain(model: Any, batch: Any, target: torch.Tensor, seed: int) -> torch.Tensor:
        return rand.normal(rand.keys(seed, batch.ids, name).to(batch.x.device), batch.x.shape[1:])

    return explain


def passes_of(methods: dict[str, Any], axis: Faithfulness) -> tuple[float, pd.DataFrame]:
    """Passes per image, and the table."""
    net, images = model(), pictures(PICTURES)
    with tempfile.TemporaryDirectory() as folder:
        table = heatproof.evaluate(net, images, methods, axis, folder, batch_size=64).table()
    engine = PICTURES + default_reference_count(PICTURES)
    return (net.passes - engine) / PICTURES, table


def main() -> None:
    torch.set_num_threads(1)
    methods = {f"map {i}": fixed_map(f"map {i}") for i in range(EXPLAINERS)}
    together, table = passes_of(methods, Faithfulness(imputers=(LINEAR, BLACK), **COMMON))
    separate, rows, worst = 0.0, [], 0.0
    for metric, how in ALONE.items():
        paid = 0.0
        for name, method in methods.items():
            cost, alone = passes_of(
                {name: method}, Faithfulness(metrics=(metric,), **how, **COMMON)
            )
            keys = ["explainer", "sample", "measure", "condition", "level"]
            both = alone[alone.measure == metric].merge(table, on=keys, validate="one_to_one")
            if both.empty:
                raise SystemExit(f"{metric} has no rows on one side: the comparison is void")
            worst = max(worst, float((both.value_x - both.value_y).abs().max()))
            paid += cost
        rows.append((metric, paid))
        separate += paid
    print(f"{EXPLAINERS} explainers, {STEPS} steps, {MASKS} masks: model passes per image")
    print(
        pd.DataFrame([*rows, ("separately, all", separate), ("together", together)]).to_string(
            index=False, header=False
        )
    )
    print(f"ratio {separate / together:.2f}; at most {LIMIT} passes per image are wanted")
    print(f"largest difference of a score between the two sides: {worst:.1e}")
    if together > LIMIT:
        raise SystemExit(f"{together:g} passes per image are more than {LIMIT}")


if __name__ == "__main__":
    main()

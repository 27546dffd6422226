"""Two whole small runs as zips, every axis in them: for tests of what is read, drawn, compared and written.

They are files, because such a run takes minutes. `python tests/support/whole.py` runs them anew.
"""

from __future__ import annotations

import copy
import sys
import tempfile
import zipfile
from pathlib import Path
from typing import Any

import torch

HERE = Path(__file__).parent
BASE, MOVED = HERE / "whole.zip", HERE / "whole_moved.zip"
PATCHES = {"patches": {"size": 8}}
LIME = {"lime": {"samples": 30, "features": PATCHES}}
METHODS = ["grad_cam", {"integrated_gradients": {"steps": 4}}, LIME, "random", "sobel"]
AXES: list[dict[str, Any]] = [
    {
        "stability": {
            "perturbations": ["jpeg", {"rotation": {"degrees": [5, 15]}}, "gaussian_noise"],
            "k": 50,
        }
    },
    {"certificate": {"radii": [1, 3], "features": PATCHES, "epsilon": 0.3}},
    {
        "smoothing": {
            "keeps": [0.5, 1.0],
            "radii": [1, 2],
            "features": PATCHES,
            "samples": 8,
            "epsilon": 0.4,
        }
    },
    {
        "symmetry": {
            "group": {"dihedral": {"n": 4}},
            "elements": 3,
            "repair": [2],
            "layers": ["9"],
            "sensitivity": 0.02,
        }
    },
    {"faithfulness": {"imputers": ["zero", "noisy_linear"], "fractions": [0.2, 0.6], "masks": 8}},
    {
        "dependence": {
            "draws": 2,
            "classes": 2,
            "cascades": ["top_down", "bottom_up"],
            "steps": 3,
            "k": 50,
        }
    },
    {"localisation": {"any_class": True}},
    {"agreement": {"k": 50}},
]
SAMPLES = 12


def _runs() -> None:
    import heatproof
    from heatproof.runs import engine
    from heatproof.runs.export import export
    from support import small

    chosen = engine.gallery_ids
    engine.gallery_ids = lambda ids, seed, count=2: chosen(ids, seed, min(count, 2))  # type: ignore[assignment]
    images, labels = small.pictures(SAMPLES)
    regions = {f"set/{i:02d}.png": (image.mean(0) > 0.5).float() for i, image in enumerate(images)}
    batch = heatproof.Batch(tuple(regions), images, {}, labels)
    moved = copy.deepcopy(small.network())
    noise = torch.Generator().manual_seed(3)
    with torch.no_grad():
        for weights in moved.parameters():
            weights.add_(
                0.1 * weights.std(unbiased=False) * torch.randn(weights.shape, generator=noise)
            )
    other = heatproof.Model(
        moved, mean=(0.5,) * 3, std=(0.5,) * 3, classes=small.CLASSES, name="moved"
    )
    for model, target, axes in ((small.model(), BASE, AXES), (other, MOVED, AXES[:1] + AXES[4:5])):
        with tempfile.TemporaryDirectory() as folder:
            data = {"shapes": heatproof.open_data(batch, regions=regions)}
            run = heatproof.evaluate(
                model, data, METHODS, axes, Path(folder) / "run", show_progress=False
            )
            whole = export(run, "zip", Path(folder) / "whole.zip").path
            with zipfile.ZipFile(whole) as given, zipfile.ZipFile(target, "w") as kept:
                for entry in given.infolist():
                    if entry.filename != "report.html":  # drawn from the rest
                        kept.writestr(entry, given.read(entry), zipfile.ZIP_DEFLATED)


if __name__ == "__main__":
    sys.path.insert(0, str(HERE.parent))
    _runs()

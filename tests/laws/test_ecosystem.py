"""What needs a library beside heatproof is run by `make test-ecosystem`: its list has every such test file."""

from __future__ import annotations

import re

from support.paths import ROOT

LIBRARIES = (
    "torchvision",
    "timm",
    "transformers",
    "datasets",
    "mlflow",
    "wandb",
    "onnx",
    "s3fs",
    "moto",
)
LIBRARIES += ("quantus", "zennit", "shap", "pytorch_grad_cam", "torch_geometric", "lightning")
LIBRARIES += ("xgboost", "lightgbm", "catboost")
ASKED_FOR = re.compile(
    rf'(?:importorskip|find_spec|needs|needed|library|imported)\(\s*"(?:{"|".join(LIBRARIES)})\b'
    "|from support.(?:loopback|model_cases) import"
)


def test_every_file_that_may_skip_for_want_of_a_library_is_in_the_list() -> None:
    listed = (ROOT / "tests" / "ecosystem.txt").read_text().split()
    assert all((ROOT / name.partition("::")[0]).exists() for name in listed)
    asking = {
        path.relative_to(ROOT).as_posix()
        for path in (ROOT / "tests").glob("**/test_*.py")
        if ASKED_FOR.search(path.read_text(encoding="utf-8"))
    }
    assert len(asking) >= 8
    listed_paths = {name.partition("::")[0] for name in listed}
    missing = {name for name in asking if not {name, name.rpartition("/")[0]} & listed_paths}
    assert not missing

"""Where the tests, the checkout and the real data are."""

from __future__ import annotations

import os
from pathlib import Path

TESTS = Path(__file__).resolve().parents[1]
ROOT = TESTS.parent
SMALL = TESTS / "support" / "small.py"
"""The small model and its pictures, as a study file names them: `python:{SMALL}:model`."""
SHARED_DATA = Path(os.environ.get("HEATPROOF_DATA", ROOT.parent / "shared" / "data"))
"""Real data sets, which are not in the repository."""

"""heatproof: does the explanation hold?

Public names are loaded when they are first used, so that `import heatproof` and `heatproof --help` are instant. They are
listed once, in `__init__.pyi`, where type checkers read them too.
"""

import importlib
import re
from pathlib import Path
from typing import Any

_PUBLIC = {
    public: (home, name)
    for home, name, public in re.findall(
        r"^from (\S+) import (\w+) as (\w+)$",
        Path(__file__).with_suffix(".pyi").read_text("utf-8"),
        re.MULTILINE,
    )
}
__all__ = sorted(_PUBLIC)  # noqa: PLE0605


def __getattr__(name: str) -> Any:
    if name not in _PUBLIC:
        raise AttributeError(f"module 'heatproof' has no attribute {name!r}")
    home, original = _PUBLIC[name]
    if home != __name__ and hasattr(room := importlib.import_module(home), original):
        return getattr(room, original)
    return importlib.import_module(f"{home}.{original}")


def __dir__() -> list[str]:
    return __all__

"""Values that were found once, looked at, and must not change unnoticed: `recorded("statistics/intervals", found)`.

They lie in tests/recorded/ as JSON that a person can read. `HEATPROOF_RENEW=1 pytest …` writes them anew; look at the
difference before it is committed. Numbers are compared with a tolerance, also those inside of texts, so that how a
processor rounds does not matter; give it inputs without ties.
"""

from __future__ import annotations

import dataclasses
import json
import math
import os
import re
from pathlib import Path
from typing import Any

import numpy as np
import torch

FOLDER = Path(__file__).parents[1] / "recorded"
NUMBER = re.compile(r"(?<![\w.])[-+−]?\d+(?:,\d{3})*(?:\.\d+)?(?:e[-+]?\d+)?|(?<![\w.])\.\d+")
DIGITS = 6


def recorded(name: str, found: Any, rtol: float = 1e-4, atol: float = 1e-6) -> None:
    """Compare with what was found before; in a text, numbers may differ by one in their last digit."""
    path = FOLDER / f"{name}.json"
    plain = _plain(found)
    if os.environ.get("HEATPROOF_RENEW"):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(
            _in_lines(json.dumps(plain, indent=1, ensure_ascii=False)) + "\n", encoding="utf-8"
        )
    assert path.is_file(), f"{path} is not there; HEATPROOF_RENEW=1 writes it"
    _compare(plain, json.loads(path.read_text(encoding="utf-8")), name, rtol, atol)


def _in_lines(text: str) -> str:
    """Lists of plain values on one line each; in JSON no text has a line break of its own."""
    return re.sub(
        r"\[\n\s*([^\[\]{}]*?)\n\s*\]",
        lambda found: "[" + re.sub(r"\s*\n\s*", " ", found[1]) + "]",
        text,
    )


def _plain(value: Any) -> Any:
    if isinstance(value, torch.Tensor):
        value = value.detach().cpu().numpy()
    if isinstance(value, np.ndarray | np.generic):
        value = value.tolist()
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        value = {field.name: getattr(value, field.name) for field in dataclasses.fields(value)}
    if isinstance(value, dict):
        return {str(key): _plain(each) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(each) for each in value]
    if isinstance(value, float):
        return str(value) if not math.isfinite(value) else float(f"{value:.{DIGITS}g}")
    return value if value is None or isinstance(value, bool | int | str) else str(value)


def _compare(found: Any, kept: Any, where: str, rtol: float, atol: float) -> None:
    if isinstance(kept, dict) and isinstance(found, dict):
        assert list(found) == list(kept), f"{where}: {list(found)}, was {list(kept)}"
        for key in kept:
            _compare(found[key], kept[key], f"{where}.{key}", rtol, atol)
    elif isinstance(kept, list) and isinstance(found, list):
        assert len(found) == len(kept), f"{where}: {len(found)} entries, were {len(kept)}"
        for i, pair in enumerate(zip(found, kept, strict=True)):
            _compare(*pair, f"{where}[{i}]", rtol, atol)
    elif (
        isinstance(kept, float | int)
        and not isinstance(kept, bool)
        and isinstance(found, float | int)
    ):
        assert math.isclose(found, kept, rel_tol=rtol, abs_tol=atol), (
            f"{where}: {found}, was {kept}"
        )
    elif isinstance(kept, str) and isinstance(found, str):
        assert NUMBER.sub("#", found) == NUMBER.sub("#", kept), f"{where}: {found!r}, was {kept!r}"
        for new, old in zip(NUMBER.findall(found), NUMBER.findall(kept), strict=True):
            assert _near(new, old), f"{where}: {new} in {found!r}, was {old}"
    else:
        assert found == kept and type(found) is type(kept), f"{where}: {found!r}, was {kept!r}"


def _near(new: str, old: str) -> bool:
    """Equal, or printed numbers one apart in the last digit of a fraction."""
    if new == old or "." not in old:
        return new == old
    values = [float(text.replace(",", "").replace("−", "-")) for text in (new, old)]
    step = 10.0 ** -len(old.partition(".")[2].partition("e")[0])
    return math.isclose(*values, rel_tol=0, abs_tol=1.01 * step) or math.isclose(
        *values, rel_tol=1e-3
    )


def constants(module: Any) -> dict[str, Any]:
    """The numbers of a module that were chosen or measured, by name."""

    def is_number(value: Any) -> bool:
        if isinstance(value, tuple | list):
            return all(map(is_number, value))
        if isinstance(value, dict):
            return all(map(is_number, value.values()))
        return isinstance(value, int | float) and not isinstance(value, bool)

    named = {
        name: value
        for name, value in vars(module).items()
        if name.isupper() and not name.startswith("__")
    }
    return {name: value for name, value in sorted(named.items()) if is_number(value)}

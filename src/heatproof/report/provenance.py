"""How a run was made, from its manifest: versions, durations, passes, devices, precision, and the audit behind it."""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import Mapping
from typing import Any

Entries = dict[str, str]


def made(manifest: Mapping[str, Any]) -> list[tuple[str, Entries]]:
    """Titled lists of facts, those that there are; what several sessions did is added up.

    >>> made({"sessions": [{"durations": {"stability": 2.5}}, {"durations": {"stability": 1.0}}]})
    [('Durations', {'stability': '3.5 s'})]
    """
    sessions = [
        session for session in manifest.get("sessions") or () if isinstance(session, Mapping)
    ]
    models = (manifest.get("study") or {}).get("models") or {}
    seconds, passes = Counter[str](), Counter[str]()
    sizes: dict[str, str] = {}
    for session in sessions:
        seconds.update(_numbers(session.get("durations")))
        passes.update(_numbers(session.get("passes")))
        sizes |= {name: str(size) for name, size in (session.get("batch_sizes") or {}).items()}
    precision = {
        name: str(about["precision"]) for name, about in models.items() if about.get("precision")
    }
    devices = sorted(
        {str(device) for session in sessions for device in session.get("devices") or ()}
    )
    workers = [session["workers"] for session in sessions if session.get("workers")]
    lost = sum(len(each.get("lost") or ()) for each in workers)
    work = {"sessions": str(len(sessions)), "devices": ", ".join(devices)}
    work |= (
        {"workers": ", ".join(f"{each['count']} ({each['kind']})" for each in workers)}
        if workers
        else {}
    )
    work |= {"workers lost": str(lost)} if lost else {}
    found = [
        (
            "Versions",
            {name: str(version) for name, version in (manifest.get("versions") or {}).items()},
        ),
        ("Durations", {name: _duration(spent) for name, spent in seconds.items()}),
        (
            "Model passes",
            {name: f"{count:,.0f}".replace(",", "\u202f") for name, count in passes.items()},
        ),
        ("Precision", precision),
        ("Batch size", sizes),
        ("Work", {name: text for name, text in work.items() if text} if devices else {}),
    ]
    return [(title, entries) for title, entries in found if entries]


def audit_text(manifest: Mapping[str, Any]) -> str:
    """Why a run that left its precision open computed in the one that it did; empty where it did not."""
    for session in manifest.get("sessions") or ():
        audit = session.get("audit")
        if audit:
            return str(audit.get("text", ""))
    return ""


def cited(manifest: Mapping[str, Any]) -> str:
    """How to cite the run: the version that made it, and what stands for its study.

    >>> print(cited({"heatproof": "1.0", "created": "2026-11-16"}).splitlines()[0])
    @software{heatproof,
    """
    study = hashlib.sha256(
        json.dumps(manifest.get("study"), sort_keys=True, default=str).encode()
    ).hexdigest()[:12]
    text = f"  title = {{heatproof: a test bench for explanations}},\n  version = {{{manifest.get('heatproof', '')}}},\n"
    text += f"  year = {{{str(manifest.get('created', ''))[:4]}}},\n  note = {{study {study}}}\n"
    return f"@software{{heatproof,\n{text}}}"


def _numbers(given: Any) -> dict[str, float]:
    return dict(given) if isinstance(given, Mapping) else {}


def _duration(seconds: float) -> str:
    """Seconds as people say them.

    >>> _duration(3.46), _duration(125), _duration(7384)
    ('3.5 s', '2 min 5 s', '2 h 3 min')
    """
    if seconds < 60:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes} min {rest} s" if minutes < 60 else f"{minutes // 60} h {minutes % 60} min"

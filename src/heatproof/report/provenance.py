"""How a run was made, from its manifest: versions, durations, passes, devices, and precision."""

from __future__ import annotations

import hashlib
import json
from collections import Counter

from heatproof.runs.manifest import Manifest

Entries = dict[str, str]


def made(manifest: Manifest) -> list[tuple[str, Entries]]:
    """Return titled lists of facts, those that there are; what several sessions did is added up."""
    seconds, passes = Counter[str](), Counter[str]()
    batch_sizes: dict[str, str] = {}
    devices: set[str] = set()
    for session in manifest.sessions:
        seconds.update(session.durations)
        passes.update(session.passes)
        batch_sizes |= {name: str(size) for name, size in session.batch_sizes.items()}
        devices |= set(session.devices)

    models = manifest.study.models.items()
    precision = {name: entry.precision for name, entry in models if entry.precision}

    workers = [session.workers for session in manifest.sessions if session.workers]
    lost = sum(len(entry.lost) for entry in workers)
    work = {
        "sessions": str(len(manifest.sessions)),
        "devices": ", ".join(sorted(devices)),
        "workers": ", ".join(f"{entry.count} ({entry.kind})" for entry in workers),
        "workers lost": str(lost) if lost else "",
    }

    facts: list[tuple[str, Entries]] = [
        ("Versions", dict(manifest.versions)),
        ("Durations", {name: _duration(spent) for name, spent in seconds.items()}),
        ("Model passes", {name: _thousands(count) for name, count in passes.items()}),
        ("Precision", precision),
        ("Batch size", batch_sizes),
        ("Work", {name: text for name, text in work.items() if text} if devices else {}),
    ]
    return [(title, entries) for title, entries in facts if entries]


def cited(manifest: Manifest) -> str:
    """Return how to cite the run as BibTeX: the version that made it, and a digest of its study."""
    study = json.dumps(manifest.study.as_mapping(), sort_keys=True, default=str)
    digest = hashlib.sha256(study.encode()).hexdigest()[:12]
    lines = [
        "@software{heatproof,",
        "  title = {heatproof: a test bench for explanations},",
        f"  version = {{{manifest.heatproof}}},",
        f"  year = {{{manifest.created[:4]}}},",
        f"  note = {{study {digest}}}",
        "}",
    ]
    return "\n".join(lines)


def _thousands(count: float) -> str:
    """Return a count with narrow spaces between its thousands."""
    return f"{count:,.0f}".replace(",", "\u202f")


def _duration(seconds: float) -> str:
    """Seconds as people say them.

    >>> _duration(3.46), _duration(125), _duration(7384)
    ('3.5 s', '2 min 5 s', '2 h 3 min')
    """
    if seconds < 60:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes} min {rest} s" if minutes < 60 else f"{minutes // 60} h {minutes % 60} min"

"""The card of a Hugging Face data set folder: YAML that `datasets` reads, and a page for people."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import yaml

from heatproof.errors import counted

ABOUT = {
    "scores": "one row per attempted pair and measure; `status` is ok, flipped or undefined, never a gap",
    "samples": "one row per sample: label, prediction and probability, or why it could not be read",
    "summary": "mean scores with 95 % intervals, chance, calibrated scores, noise floor and retention",
}
KINDS = {
    pa.string(): "string",
    pa.float64(): "float64",
    pa.int64(): "int64",
    pa.int32(): "int32",
    pa.bool_(): "bool",
}


def dataset_card(facts: Mapping[str, Any], folder: Path) -> str:
    """The README.md of a data set folder whose `data` holds one Parquet file per table.

    Each table is a configuration with the split "train", as `datasets` calls what is not divided; the scores are the
    one that is loaded by default.
    """
    names = [name for name in ABOUT if (folder / f"{name}.parquet").is_file()]
    head = {
        "pretty_name": "heatproof run",
        "tags": ["heatproof", "explainability", "feature-attribution"],
        "configs": [
            {
                "config_name": name,
                "data_files": [{"split": "train", "path": f"data/{name}.parquet"}],
            }
            | ({"default": True} if name == "scores" else {})
            for name in names
        ],
        "dataset_info": [_info(name, folder / f"{name}.parquet") for name in names],
    }
    return f"---\n{yaml.safe_dump(head, sort_keys=False, allow_unicode=True)}---\n\n{_page(facts)}"


def _info(name: str, path: Path) -> dict[str, Any]:
    rows = pq.read_table(path)
    features = [{"name": field.name, "dtype": KINDS[field.type]} for field in rows.schema]
    split = {"name": "train", "num_bytes": rows.nbytes, "num_examples": len(rows)}
    sizes = {"download_size": path.stat().st_size, "dataset_size": rows.nbytes}
    return {"config_name": name, "features": features, "splits": [split], **sizes}


def _page(facts: Mapping[str, Any]) -> str:
    """Return the text of a dataset card in Markdown, without its header."""
    study, gaps = facts["study"], facts["missing"]
    lines = ["# How well explanations hold", "", f"Measured by heatproof {facts['heatproof']}.", ""]
    if gaps:
        verb = "is" if len(gaps) == 1 else "are"
        parts = counted(len(gaps), "part")
        lines += [f"**Unfinished**: {parts} {verb} missing, the first is {_code(gaps[0])}.", ""]
    lines += ["| | |", "|---|---|"]
    for title, section in (
        ("models", "models"),
        ("data", "datasets"),
        ("explainers", "explainers"),
    ):
        lines.append(f"| {title} | {', '.join(_code(name) for name in study[section])} |")
    lines.append(f"| evaluations | {', '.join(_code(name) for name in study['evaluations'])} |")
    lines += [f"| command | {_code(facts['command'])} |", f"| run | {_code(facts['run'])} |", ""]
    lines += [f"- `{name}`: {text}" for name, text in ABOUT.items()]
    lines += [
        "",
        "```python",
        'scores = datasets.load_dataset(FOLDER, "scores", split="train")',
        "```",
        "",
    ]
    return "\n".join(lines)


def _code(text: Any) -> str:
    """A name from a study as code that neither ends its cell nor its span; the page is read where HTML is run.

    >>> _code("a|b`<c>\\nd")
    '<code>a&#124;b&#96;&lt;c&gt; d</code>'
    """
    plain = " ".join(str(text).split())
    swaps = {
        "&": "&amp;",
        "<": "&lt;",
        ">": "&gt;",
        "|": "&#124;",
        "`": "&#96;",
        "*": "&#42;",
        "[": "&#91;",
    }
    return f"<code>{''.join(swaps.get(letter, letter) for letter in plain)}</code>"

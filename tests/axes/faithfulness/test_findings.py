"""Findings of removal: each speaks of the data it was made from, and retraining alone still tells of a leak."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from heatproof.axes.faithfulness.findings import findings
from heatproof.axes.faithfulness.report import lead
from heatproof.results.findings import Finding
from heatproof.results.reports import findings_of
from heatproof.runs.results import axis_results
from support.faithfulness import axis_of, made_up
from support.manifests import manifest_of
from support.synthetic import Entry, rows_of, samples

N = 40


def leaking(imputer: str = "zero") -> pd.DataFrame:
    """Probes that read the class from the mask and see which pixels were removed."""
    where = (f"{imputer} morf", 0.5)
    entries: list[Entry] = [
        ("a", "prior", *where, np.arange(N) % 2),
        ("a", "pixels", *where, np.full(N, 0.99)),
    ]
    for probe in ("mask", "imputed", "both"):
        entries += [
            ("a", f"{probe}_hit", *where, np.ones(N)),
            ("a", f"{probe}_log2", *where, np.full(N, -0.2)),
        ]
    return rows_of(entries, "leakage")


def by_title(table: pd.DataFrame, **task: str) -> dict[str, Finding]:
    manifest = manifest_of({"tasks": {"photos": {"net": task}}})
    return {finding.title: finding for finding in findings(axis_of(table, manifest=manifest))}


@pytest.mark.parametrize(
    ("modality", "parts"),
    [("image", "pixels"), ("series", "time steps"), ("table", "columns"), ("text", "tokens")],
)
def test_words_are_those_of_the_data(modality: str, parts: str) -> None:
    listed = by_title(made_up({"good": 0.5, "flat": 0.0, "bad": -0.4}, n=N), modality=modality)
    at_random = {
        one.explainers: one for title, one in listed.items() if "random" in title and parts in title
    }
    assert set(at_random) == {("bad",), ("flat",)}
    assert parts in at_random["bad",].means
    assert not any("leak" in title for title in listed), "no network learned from the masks"


def test_fills_that_the_model_tells_from_real_inputs_are_named() -> None:
    g = np.random.default_rng(0)
    seen: list[Entry] = [("good", "detectability", "zero random", 0.5, np.ones(60))]
    unseen: list[Entry] = [("good", "detectability", "noisy_linear random", 0.5, g.random(60))]
    table = pd.concat([made_up({"good": 0.5, "flat": 0.3}, n=60), rows_of([*seen, *unseen])])
    listed = by_title(table, modality="image")
    (unreal,) = [one for one in listed.values() if "ROC" in one.seen]
    assert "zero" in unreal.seen and "1.00" in unreal.seen
    assert "noisy_linear" not in unreal.seen


def test_without_a_random_order_nothing_is_said_of_one() -> None:
    table = made_up({"good": 0.5, "flat": 0.0, "bad": -0.4}, n=N)
    unknown = table[table["measure"].isin(["deletion_auc", "probability"])].assign(chance=np.nan)
    assert not [title for title in by_title(unknown) if "random" in title]
    assert "random" in " ".join(by_title(table))
    assert "random" not in " ".join(lead(axis_of(unknown)))
    curves = axis_of(table[table["measure"].isin(["accuracy", "probability"])])
    assert "road" in lead(curves)[0]


def test_retraining_alone_tells_of_the_leak_once() -> None:
    accuracy: list[Entry] = [("a", "accuracy", "zero morf", 0.5, np.arange(N) % 2)]
    retrained = rows_of(accuracy, "retraining")
    for table, title in (
        (retrained, "may leak"),
        (pd.concat([retrained, leaking()]), "leaks"),
    ):
        judged = axis_results(table, samples(0, unreadable=0), (), manifest_of())
        (finding,) = (finding for one in judged for finding in findings_of(one))
        assert finding.axis == "retraining" and "zero" in finding.title and title in finding.title

"""Scores of several runs as arrays with the same conditions and samples, so that they can be paired."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from heatproof.evaluation import Condition
from heatproof.results.arrays import NOT_ATTEMPTED, ScoreArrays


def aligned(
    arrays: ScoreArrays,
    new_names: Mapping[str, str],
    conditions: Sequence[Condition],
    samples: Sequence[str],
) -> ScoreArrays:
    """Return the arrays with these conditions and samples, and with some explainers under new names.

    `new_names` maps the explainers to keep to their new names. What the arrays do not have was not attempted.
    """
    explainers = [arrays.explainers.index(name) for name in new_names]
    old_conditions, new_conditions = _common_indices(arrays.conditions, conditions)
    old_samples, new_samples = _common_indices(arrays.samples, samples)
    shape = (len(explainers), len(conditions), len(samples))

    def of_samples(scores: Any, missing: float) -> Any:
        """Return scores (E, C, N, …) at their new indices."""
        spread = np.full((*shape, *scores.shape[3:]), missing, dtype=scores.dtype)
        old = np.ix_(explainers, old_conditions, old_samples)
        new = np.ix_(range(len(explainers)), new_conditions, new_samples)
        spread[new] = scores[old]
        return spread

    def of_conditions(values: Any) -> Any:
        """Return values (E, C, …) at their new indices."""
        spread = np.zeros((*shape[:2], *values.shape[2:]), dtype=values.dtype)
        spread[:, new_conditions] = values[np.ix_(explainers, old_conditions)]
        return spread

    return replace(
        arrays,
        explainers=list(new_names.values()),
        controls=frozenset(new_names[name] for name in arrays.controls if name in new_names),
        conditions=list(conditions),
        samples=list(samples),
        values={name: of_samples(scores, np.nan) for name, scores in arrays.values.items()},
        repeats={name: of_samples(scores, np.nan) for name, scores in arrays.repeats.items()},
        chance={name: of_samples(scores, np.nan) for name, scores in arrays.chance.items()},
        status=of_samples(arrays.status, NOT_ATTEMPTED),
        has_rows={name: of_conditions(rows) for name, rows in arrays.has_rows.items()},
        by_reference={name: of_conditions(means) for name, means in arrays.by_reference.items()},
        groups=None,  # belongs to the old samples; see `groups_of`
    )


def _common_indices(old: Sequence[Any], new: Sequence[Any]) -> tuple[list[int], list[int]]:
    """Return the indices, in the old and in the new list, of the entries that both have."""
    index_in_new = {entry: i for i, entry in enumerate(new)}
    old_indices = [i for i, entry in enumerate(old) if entry in index_in_new]
    return old_indices, [index_in_new[old[i]] for i in old_indices]


def stacked_scores(blocks: Sequence[ScoreArrays], measure: str) -> ScoreArrays:
    """Return the scores by one measure of several blocks as one, explainer after explainer.

    The blocks have the same conditions, samples and references, and different explainers.
    """
    explainers: list[str] = []
    chance_blocks, repeat_blocks, reference_blocks = [], [], []
    for block in blocks:
        explainers += block.explainers
        scores = block.values[measure]
        # A block without a chance level has NaN, one without repeats a single one, one without references none.
        no_chance = np.full(scores.shape, np.nan)
        no_references = np.zeros((*scores.shape[:2], 0))
        chance_blocks.append(block.chance.get(measure, no_chance))
        repeat_blocks.append(block.repeats.get(measure, scores[..., None]))
        reference_blocks.append(block.by_reference.get(measure, no_references))

    chance, repeats, by_reference = {}, {}, {}
    if any(measure in block.chance for block in blocks):
        chance[measure] = np.concatenate(chance_blocks)
    if any(measure in block.repeats for block in blocks):
        repeats[measure] = _concatenated(repeat_blocks, np.nan)
    if any(measure in block.by_reference for block in blocks):
        by_reference[measure] = _concatenated(reference_blocks, 0.0)
    return replace(
        blocks[0],
        explainers=explainers,
        controls=frozenset().union(*(block.controls for block in blocks)),
        values={measure: np.concatenate([block.values[measure] for block in blocks])},
        chance=chance,
        repeats=repeats,
        by_reference=by_reference,
        references=next((block.references for block in blocks if block.references), ()),
        status=np.concatenate([block.status for block in blocks]),
        has_rows={measure: np.concatenate([block.has_rows[measure] for block in blocks])},
    )


def _concatenated(blocks: Sequence[Any], missing: float) -> Any:
    """Concatenate blocks along the first axis; the last axis of shorter blocks is filled up."""
    longest = max(block.shape[-1] for block in blocks)
    padded = []
    for block in blocks:
        padding = [(0, 0)] * (block.ndim - 1) + [(0, longest - block.shape[-1])]
        padded.append(np.pad(block, padding, constant_values=missing))
    return np.concatenate(padded)

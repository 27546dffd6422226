"""Judge again who is ahead on each network, by sign flips: `tables/ahead.csv` from the committed `tables/values.parquet`.

    python studies/atlas/retest.py

The tests are those of `run.tests()` today (`heatproof.statistics.sign_flips`): all pairs of methods of a run at once,
corrected by max-T. `values.parquet` has the raw score of every sample, so this is possible where chance is the same for
all methods: faithfulness and certificates have none, and in a mosaic of four it is 1/4. The chance of stability and
symmetry differs from method to method and was not kept per sample, so their pairs stay as they were judged.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator

import numpy as np
import pandas as pd
from reading import CONTROLS, TABLES, base, load

from heatproof.statistics.estimates import of_means, sample_totals
from heatproof.statistics.sign_flips import simultaneous_tests

RETESTED = ("faithfulness", "certificate", "localisation")


def ahead(scores: pd.DataFrame) -> Iterator[tuple[str, str]]:
    """Yield the significant pairs (winner, loser) of the scores of one run on one axis; a higher score is better."""
    wide = scores.pivot_table(
        index="explainer",
        columns=["condition", "severity", "sample"],
        values="value",
        observed=True,
    )
    names, levels = list(wide.index), wide.columns.droplevel("sample").unique()
    samples = scores["sample"].unique()
    cube = np.stack(
        [wide[level].reindex(columns=samples).to_numpy(dtype=np.float64) for level in levels], 1
    )  # (methods, levels, samples)
    is_control = [base(name) in CONTROLS for name in names]
    pairs = [
        (a, b)
        for a, b in itertools.combinations(range(len(names)), 2)
        if not (is_control[a] and is_control[b])
    ]
    if not pairs:
        return
    first, second = (np.array(side) for side in zip(*pairs, strict=True))
    totals, shares = sample_totals(
        of_means(cube[first] - cube[second]), [condition for condition, _ in levels]
    )
    is_compared = (shares > 0).any(1)
    tests = simultaneous_tests(totals[is_compared], shares[is_compared])
    difference = totals.sum(1)[is_compared]
    for index, gain, significant in zip(
        np.flatnonzero(is_compared), difference, tests.significant, strict=True
    ):
        a, b = pairs[index]
        if significant:
            yield (names[a], names[b]) if gain > 0 else (names[b], names[a])


def main() -> None:
    tables = load()
    values, rows = tables.values, []
    images = set(tables.networks.loc[tables.networks["modality"] == "image", "network"])
    values = values[~values["sweep"] & values["network"].isin(images)]
    for axis in RETESTED:
        headline = values[(values["axis"] == axis) & (values["measure"] == tables.headline(axis))]
        for (run, network), scores in headline.groupby(["run", "network"], observed=True):
            for winner, loser in ahead(scores.astype({"explainer": str, "sample": str})):
                rows.append((network, axis, winner, loser))
            print(run, axis, len(rows), flush=True)
    found = pd.DataFrame(rows, columns=["network", "axis", "winner", "loser"])
    found.drop_duplicates().to_csv(TABLES / "ahead.csv", index=False)


if __name__ == "__main__":
    main()

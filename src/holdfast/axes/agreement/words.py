"""What the agreement of methods allows to say; nobody is right by agreeing."""

from __future__ import annotations

from itertools import groupby

from holdfast.axes.agreement.frames import ALIKE, Matrix, matrix
from holdfast.axes.contract import Judged
from holdfast.drawing.prose import listing, with_interval

NOTHING = "Nothing can be concluded: no two methods have a map of the same sample."


def lead(judged: Judged) -> list[str]:
    """Which methods agree most and least, and which stand together."""
    found = matrix(judged)
    pairs = [p for p in found.pairs if not {p[0], p[1]} & judged.cube.controls] or found.pairs
    if not pairs:
        return [NOTHING]
    said = f"The only methods to compare are {_pair(pairs[0])}"
    if len(pairs) > 1:
        shown = sum(low > ALIKE for *_, low, _ in pairs)
        said = (
            f"Of {len(pairs)} pairs of methods, {shown} {'is' if shown == 1 else 'are'} shown to agree more than half "
        )
        said += (
            f"of the way from chance to equality; the closest are {_pair(pairs[0])}, the farthest {_pair(pairs[-1])}"
        )
    return [f"{said}.", *groups(found), "By calibrated Spearman; methods that agree may be wrong together."]


def groups(found: Matrix) -> list[str]:
    """The clusters of more than one explainer."""
    by_number = groupby(zip(found.clusters, found.explainers, strict=True), key=lambda pair: pair[0])
    several = [names for _, pairs in by_number if len(names := [name for _, name in pairs]) > 1]
    return [f"In one cluster: {'; '.join(listing(names) for names in several)}."] if several else []


def _pair(pair: tuple[str, str, float, float, float]) -> str:
    return f"{pair[0]} and {pair[1]} with {with_interval(*pair[2:])}"

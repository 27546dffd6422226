"""One image as its most relevant pixels go, a row of small pictures for every explainer."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
from markupsafe import Markup

from heatproof.axes.contract import AxisResult
from heatproof.drawing.charts import Panel
from heatproof.drawing.methods import removal_words
from heatproof.drawing.pictures import photo, strip_row
from heatproof.evaluation import GalleryItem

SIDE, MOST = 96, 12


def strip(result: AxisResult, order: Iterable[str]) -> Panel | None:
    """The first showcase sample as its most relevant pixels go, a row for every explainer."""
    going = [item for item in result.gallery if result.cube.made_of(item.condition).order == "morf"]
    if not going:
        return None
    sample = going[0].sample
    rows = {
        e: sorted(
            (i for i in going if (i.sample, i.explainer) == (sample, e)), key=lambda i: i.level
        )
        for e in order
    }
    rows = {e: items for e, items in rows.items() if any(item.level for item in items)}
    if not rows:
        return None
    kept = [*rows][:MOST]
    names = {e: result.looks[e].name for e in kept}
    body = Markup("").join(
        strip_row(names[e], [_tile(sample, names[e], i) for i in rows[e]]) for e in kept
    )
    imputer = removal_words(result.cube.made_of(rows[kept[0]][0].condition).imputer)
    caption = f"One image ({sample}), filled in by {imputer}, beside what is kept of it in white: what is left when a "
    caption += "given share of its most relevant pixels is gone, and the probability of the class predicted for the "
    caption += "whole image. One image is no evidence; the curves are."
    if len(kept) < len(rows):
        caption += f" {len(rows) - len(kept)} methods are left out to keep this file small."
    return Panel("going", "One image as its pixels go", caption, body, strip=True)


def _mask(item: GalleryItem) -> list[str]:
    """Which pixels are kept, where that was stored."""
    if item.map is None:
        return []
    return [photo(np.repeat((255 * (item.map > 0.5)).astype(np.uint8)[..., None], 3, -1), SIDE)]


def _tile(sample: str, explainer: str, item: GalleryItem) -> tuple[list[str], str, str, str]:
    title = f"{100 * item.level:g} % gone" if item.level else "whole image"
    return (
        [photo(item.image, SIDE), *_mask(item)],
        f"{sample}, {title} by {explainer}: {item.note}",
        title,
        item.note,
    )

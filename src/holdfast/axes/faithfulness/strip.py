"""One image as its most relevant pixels go, a row of small pictures for every explainer."""

from __future__ import annotations

from collections.abc import Iterable

from markupsafe import Markup

from holdfast.axes.contract import Judged
from holdfast.drawing.charts import Panel
from holdfast.drawing.pictures import photo
from holdfast.types import Shown

SIDES = (160, 128, 96, 64)
BUDGET = 900_000
PIXELATED = 64
"""Pictures with fewer pixels on a side are drawn with sharp pixels, as a smooth enlargement would hide what went."""


def strip(judged: Judged, order: Iterable[str]) -> Panel | None:
    """The first showcase sample as its most relevant pixels go, a row for every explainer."""
    going = [item for item in judged.exhibits if judged.cube.made_of(item.condition).order == "morf"]
    if not going:
        return None
    sample = going[0].sample
    rows = {e: sorted((i for i in going if (i.sample, i.explainer) == (sample, e)), key=_level) for e in order}
    rows = {e: items for e, items in rows.items() if any(item.level for item in items)}
    if not rows:
        return None
    pictures: dict[tuple[str, float], str] = {}
    for side in SIDES:
        pictures = {(e, item.level): photo(item.image, side) for e, items in rows.items() for item in items}
        if sum(map(len, pictures.values())) <= BUDGET:
            break
    spent, kept = 0, list[str]()
    for e, items in rows.items():
        spent += sum(len(pictures[e, item.level]) for item in items)
        if kept and spent > BUDGET:
            break
        kept.append(e)
    body = Markup("").join(_strip_row(sample, e, rows[e], pictures) for e in kept)
    imputer = judged.cube.made_of(rows[kept[0]][0].condition).imputer
    caption = f"One image ({sample}), filled in by {imputer}: what is left when the given share of its most relevant "
    caption += "pixels is gone, and the probability of the class predicted for the whole image. One image is no "
    caption += "evidence; the curves are."
    if len(kept) < len(rows):
        caption += f" {len(rows) - len(kept)} methods are left out to keep this file small."
    return Panel("going", "One image as its pixels go", caption, body)


def _level(item: Shown) -> float:
    return item.level


def _strip_row(sample: str, explainer: str, items: list[Shown], pictures: dict[tuple[str, float], str]) -> Markup:
    tiles = []
    for item in items:
        title = f"{100 * item.level:g} % gone" if item.level else "whole image"
        sharp = Markup(' class="sharp"') if max(item.image.shape[:2]) < PIXELATED else Markup("")
        tile = Markup('<figure><img src="{}" alt="{}"{} loading="lazy"><figcaption><b>{}</b>{}</figcaption></figure>')
        alt = f"{sample}, {title} by {explainer}: {item.note}"
        note = Markup("<span>{}</span>").format(item.note) if item.note else Markup("")
        tiles.append(tile.format(pictures[explainer, item.level], alt, sharp, title, note))
    body = Markup("").join(tiles)
    return Markup('<article class="card"><h4>{}</h4><div class="strip going" style="--n:{}">{}</div></article>').format(
        explainer, len(items), body
    )

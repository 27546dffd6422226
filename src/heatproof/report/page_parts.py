"""Components as parts of a page: charts as plots with words, tables and galleries as HTML."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from markupsafe import Markup

from heatproof.evaluation import GalleryItem
from heatproof.report import images, map_drawings
from heatproof.report.canvas import Plot
from heatproof.report.components import Component, CurveChart, Gallery, Matrix, Scatter, Table, Tile
from heatproof.report.draw import (
    Looks,
    MatrixGrid,
    curve_plots_by_panel,
    gallery_rows,
    is_true,
    items_shown,
    plots_of,
    shown_name,
)
from heatproof.report.html import grid
from heatproof.report.table_rows import Row, cell_text, prose_columns, table_rows
from heatproof.text import listing, number, records, some

AT_ONCE = 12
"""How many plots of a chart are shown before the rest is folded."""
MOST_OPEN, MOST_FOLDED = 12, 24
"""How many rows of a gallery are seen at once, and how many more can be opened; the rest is left out."""
PAIR, STRIP = 112, 96
"""Pixels of a picture in a gallery of pairs, and in one of strips."""


@dataclass(frozen=True)
class Chart:
    """Plots with a title, a caption and a sentence for those who cannot see them.

    `folded` are further plots under the words that open them.
    """

    key: str
    title: str
    caption: str
    alt: str
    plots: Sequence[Plot]
    folded: Mapping[str, Sequence[Plot]] = field(default_factory=dict)

    @property
    def shown(self) -> Sequence[Plot]:
        """The plots that are seen at once."""
        return self.plots[:AT_ONCE]

    @property
    def hidden(self) -> dict[str, Sequence[Plot]]:
        """The plots that a reader can open, by the words that open them."""
        rest = self.plots[AT_ONCE:]
        if not rest:
            return dict(self.folded)
        return {f"{len(rest)} more": rest, **self.folded}

    @property
    def every(self) -> list[Plot]:
        """All plots."""
        plots = list(self.plots)
        for folded in self.folded.values():
            plots += folded
        return plots


@dataclass(frozen=True)
class Panel:
    """A table or pictures, as HTML that is safe to embed.

    A `strip` of pictures is open under the first chart of its axis; other panels are folded.
    """

    key: str
    title: str
    caption: str
    html: Markup
    strip: bool = False


def part_of(component: Component, looks: Looks) -> Chart | Panel | None:
    """Return what a page shows of a component; None of an empty one."""
    if isinstance(component, Table):
        rows = table_rows(component, looks)
        if not rows:
            return None
        heads = list(component.columns.values())
        table = grid(heads, rows, component.title, prose=prose_columns(rows))
        return Panel(component.key, component.title, component.caption, table)
    if isinstance(component, Matrix) and not component.shaded:
        return _matrix_panel(component, looks)
    if isinstance(component, Gallery):
        return _gallery_panel(component, looks)
    if isinstance(component, CurveChart) and component.plot_per_line:
        return _curve_chart(component, looks)
    plots = plots_of(component, looks)
    if not plots:
        return None
    alt = alternative_text(component, looks)
    return Chart(component.key, component.title, component.caption, alt, plots)


def _curve_chart(component: CurveChart, looks: Looks) -> Chart | None:
    """Return the plots of the first panel, and those of the others folded away."""
    by_panel = curve_plots_by_panel(component, looks)
    if not by_panel:
        return None
    (_, plots), *others = by_panel
    alt = alternative_text(component, looks)
    folded = dict(others)
    return Chart(component.key, component.title, component.caption, alt, plots, folded)


def alternative_text(component: Component, looks: Looks) -> str:
    """Return a sentence for those who cannot see a chart."""
    if isinstance(component, CurveChart):
        lines = [shown_name(line, looks) for line in component.points[component.line].unique()]
        return f"{component.title}. Curves over {component.x_label}: {some(lines)}."
    if isinstance(component, Scatter):
        about = f"{component.title}. {component.y_label} against {component.x_label}"
        if component.is_sample or "explainer" not in component.points:
            return f"{about}."
        points = [
            f"{shown_name(row.explainer, looks)} ({number(row.x)}, {number(row.y)})"
            for row in records(component.points.drop_duplicates("explainer"))
        ]
        return f"{about}: {some(points)}."
    if isinstance(component, Matrix):
        cells = MatrixGrid(component)
        return f"{component.title}. {len(cells.rows)} rows by {len(cells.columns)} columns."
    scores = []
    for plot in plots_of(component, looks)[:1]:
        for data in plot.sheet.marks:
            # Marks without a height are guides, which belong to no method.
            if "y" in data and "value" in data:
                scores.append(f"{data['name']} {number(float(data['value']))}")
    return f"{component.title}. {some(scores)}." if scores else f"{component.title}."


def _matrix_panel(matrix: Matrix, looks: Looks) -> Panel | None:
    """Return a matrix whose columns have different units as a table."""
    cells = MatrixGrid(matrix)
    if not cells.rows:
        return None
    heads = [matrix.row_title, *(shown_name(column, looks) for _, column in cells.columns)]
    spans = [(shown_name(group, looks), count) for group, count in cells.spans]
    rows = []
    for i, row in enumerate(cells.rows):
        if i in cells.row_heads:
            rows.append(Row([shown_name(cells.row_heads[i], looks)], heading=True))
        texts = [shown_name(row[1], looks)]
        for column in cells.columns:
            cell = cells.cells.get((row, column))
            text = cell_text(cell, matrix.percent)
            is_best = cell is not None and is_true(cell.best)
            texts.append(Markup("<b>{}</b>").format(text) if is_best else text)
        rows.append(Row(texts, row in cells.controls or _is_control(row[1], looks)))
    table = grid(heads, rows, matrix.title, [("", 1), *spans] if spans else [])
    return Panel(matrix.key, matrix.title, matrix.caption, table)


def _is_control(name: object, looks: Looks) -> bool:
    return isinstance(name, str) and name in looks and looks[name].control


# ---- galleries -------------------------------------------------------------------------------------------------------


def _gallery_panel(gallery: Gallery, looks: Looks) -> Panel | None:
    """Return the rows of a gallery: pairs of maps beside each other, or a strip of pictures for each row."""
    rows = gallery_rows(gallery)
    if not rows:
        return None
    are_pairs = all(_is_pair(row) for row in rows)
    shown = rows[:MOST_OPEN]
    folded = rows[MOST_OPEN : MOST_OPEN + MOST_FOLDED]
    left_out = len(rows) - len(shown) - len(folded)

    html = _rows_html(shown, are_pairs, looks)
    if folded:
        more = _rows_html(folded, are_pairs, looks)
        html += Markup("<details><summary>{} more</summary>{}</details>").format(len(folded), more)
    caption = gallery.caption
    if left_out:
        caption += f" {left_out} more are left out to keep this file small."
    return Panel(gallery.key, gallery.title, caption, html, strip=True)


def _is_pair(row: Sequence[Tile]) -> bool:
    """Whether a row is one map or two."""
    return len(row) <= 2 and all(tile.view == "map" for tile in row)


def _rows_html(rows: Sequence[Sequence[Tile]], are_pairs: bool, looks: Looks) -> Markup:
    if are_pairs:
        cards = Markup("").join(_pair(row, looks) for row in rows)
        return Markup('<div class="pairs">{}</div>').format(cards)
    return Markup("").join(_strip(row, looks) for row in rows)


def _pair(row: Sequence[Tile], looks: Looks) -> Markup:
    """Return the maps of a row over what the model saw, with their scores in the corner."""
    name, colour = _name_and_colour(row[0].item, looks)
    is_signed = _is_signed(row)
    wide = 2 * PAIR if map_drawings.is_wide(row[0].item) else PAIR
    tiles = Markup("").join(_map_tile(tile, name, is_signed, wide) for tile in row)
    words = [tile.title for tile in row[1:]] or [row[0].title]
    notes = [tile.note for tile in row]
    text = ", ".join(dict.fromkeys(filter(None, (*words, *notes, row[0].item.sample))))
    html = '<figure data-method="{0}"><b class="who"><i style="background:var(--{1})"></i>{0}</b>'
    html += '<div class="two">{2}</div><figcaption title="{3}">{3}</figcaption></figure>'
    return Markup(html).format(name, colour, tiles, text)


def _map_tile(tile: Tile, name: str, is_signed: bool, wide: int, tall: int = PAIR) -> Markup:
    """Return one map over its input."""
    item = tile.item
    is_photograph = item.image.ndim == 3
    if map_drawings.is_drawn(item):
        style = "drawn"
    else:
        style = "signed" if is_signed else "unsigned"
    ground = images.draw_ground(item, wide - 8, tall - 8, tall)
    over = images.draw_over(item, is_signed, wide - 8, tall - 8, tall)
    badge = Markup("")
    if tile.score is not None:
        badge = Markup('<span class="badge">{}</span>').format(number(tile.score))
    html = '<div class="tile" style="width:{}px"><img class="photo{}" src="{}" alt="">'
    html += '<img class="map {}" src="{}" alt="{}">{}</div>'
    alt = f"{name}, {tile.title}"
    ground_style = "" if is_photograph else " line"
    return Markup(html).format(wide - 8, ground_style, ground, style, over, alt, badge)


def _strip(row: Sequence[Tile], looks: Looks) -> Markup:
    """Return the pictures of a row with a title and a note below each, under the name of the method and the sample."""
    first = row[0].item
    name, _ = _name_and_colour(first, looks)
    heading = Markup("{} <span>{}</span>").format(name, first.sample) if name else first.sample
    is_signed = _is_signed(row)
    figures = []
    for tile in row:
        pictured = Markup("").join(_picture(tile, item, is_signed) for item in items_shown(tile))
        # A map has its score in the corner.
        score = "" if tile.score is None or tile.view == "map" else number(tile.score)
        html = '<figure><div class="beside">{}</div><figcaption><b>{}</b><span>{}</span></figcaption></figure>'
        figures.append(
            Markup(html).format(pictured, tile.title, listing(filter(None, (score, tile.note))))
        )
    widest = max(len(items_shown(tile)) for tile in row)
    html = '<article class="card"><h4>{}</h4><div class="strip" style="--w:{}px;--tile:{}px">{}</div></article>'
    width = 2 * STRIP + 2 if widest > 1 else STRIP + 28
    return Markup(html).format(heading, width, STRIP, Markup("").join(figures))


def _picture(tile: Tile, item: GalleryItem, is_signed: bool) -> Markup:
    """Return one picture of a strip: an input alone, or a map over its input."""
    if item.map is not None:
        return _map_tile(tile, item.explainer, is_signed, STRIP + 8, STRIP + 8)
    uri = images.draw_ground(item, STRIP, STRIP, 160)
    alt = ", ".join(filter(None, (tile.title, item.explainer, tile.note)))
    return Markup('<img src="{}" alt="{}" loading="lazy">').format(uri, alt)


def _name_and_colour(item: GalleryItem, looks: Looks) -> tuple[str, str]:
    look = looks.get(item.explainer)
    return (item.explainer, "soft") if look is None else (look.name, look.colour)


def _is_signed(row: Sequence[Tile]) -> bool:
    """Whether some map of a row has a sign; then all of them are drawn with one."""
    return any(images.is_signed(tile.item.map) for tile in row if tile.item.map is not None)

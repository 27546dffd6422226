"""The verdict in a notebook: plain HTML with inline styles, and a few maps as one drawing."""

from __future__ import annotations

from collections.abc import Sequence

from markupsafe import Markup

from heatproof.report.canvas import Sheet, Words
from heatproof.report.example_maps import ExampleMaps, example_maps
from heatproof.report.overview import Overview
from heatproof.report.proof_sheet import ProofSheet
from heatproof.report.proof_sheet_drawing import draw_tile
from heatproof.report.verdict_screen import ScreenCell, verdict_columns, verdict_note, verdict_rows

TILE = 92.0
GAP = 8.0
NAME_WIDTH = 118.0
HEAD_HEIGHT = 24.0
# Notebooks have light and dark themes: only the cells that have a ground of their own set a colour.
STYLES = {
    "best": "background:#e3f0f9;color:#0067a8",
    "random": "background:#fbeade;color:#a8431a",
    "yes": "color:#2f8f6b",
    "no": "color:#c25a2a",
}
CELL = "text-align:left;vertical-align:top;padding:5px 9px;white-space:nowrap;"
HEAD = "text-align:left;vertical-align:bottom;padding:5px 9px;white-space:normal;max-width:9em;"


def overview_html(overview: Overview) -> Markup:
    """Return the conclusion, a few maps, the table of all tests and the main caveat."""
    proof = ProofSheet(overview.results, overview.samples)
    example = example_maps(overview, proof) if proof.tiles is not None else None
    parts = [Markup('<h3 style="margin:8px 0 2px">{}</h3>').format(overview.headline)]
    if overview.pilot:
        parts.append(Markup('<p style="margin:0 0 8px;opacity:.75">{}</p>').format(overview.pilot))
    if overview.sampling:
        line = Markup('<p style="margin:0 0 8px;opacity:.75">{}</p>')
        parts.append(line.format(overview.sampling))
    if overview.columns:
        beside = [] if example is None else [_maps(overview, proof, example)]
        parts.append(
            Markup(
                '<div style="display:flex;flex-wrap:wrap;gap:24px;align-items:flex-start">{}</div>'
            ).format(Markup("").join([*beside, _table(overview)]))
        )
    caveat = overview.caveat
    if caveat is not None:
        text = '<p style="background:#fbeade;color:#16191d;padding:8px 12px;border-radius:8px;max-width:72em">'
        parts.append(
            Markup(text + '<b style="color:#a8431a">{}</b> {}</p>').format(
                caveat.claim, caveat.reason
            )
        )
    return Markup("").join(parts)


def _table(overview: Overview) -> Markup:
    """Return the table; every score stands above its label and its interval."""
    heads = [Markup("<th></th>")]
    for column in verdict_columns(overview, {}):
        note = f": {column.note}" if column.note else ""
        head = '<th style="{}">{}<br><span style="font-weight:400;opacity:.7">{}</span></th>'
        heads.append(Markup(head).format(HEAD, column.question, column.title + note))
    rows = []
    for row in verdict_rows(overview):
        faded = ";opacity:.7" if row.look.control else ""
        settings = Markup("<br>") + row.settings if row.settings else ""
        name = Markup('<th style="{}{}">{}<span style="font-weight:400;opacity:.7">{}</span></th>')
        cells = [name.format(CELL, faded, row.look.name, settings)]
        cells += [_cell(cell, bool(row.look.control)) for cell in row.cells]
        rows.append(Markup("<tr>{}</tr>").format(Markup("").join(cells)))
    table = (
        '<div><p style="margin:0 0 4px;opacity:.75">{}</p>'
        "<table><thead><tr>{}</tr></thead><tbody>{}</tbody></table></div>"
    )
    return Markup(table).format(
        verdict_note(overview), Markup("").join(heads), Markup("").join(rows)
    )


def _cell(cell: ScreenCell, is_control: bool) -> Markup:
    style = ";opacity:.7" if is_control else STYLES.get(cell.style, "")
    lines = [Markup("<b>{}</b>").format(cell.text)]
    lines += [
        Markup("<small>{}</small>").format(text) for text in (cell.words, cell.interval) if text
    ]
    return Markup('<td style="{}{}">{}</td>').format(CELL, style, Markup("<br>").join(lines))


def _maps(overview: Overview, proof: ProofSheet, example: ExampleMaps) -> Markup:
    sheet = example_sheet(overview, proof, example)
    text = (
        '<div style="max-width:{}px"><b>{}</b><p style="margin:0 0 4px;opacity:.75">{}</p>{}</div>'
    )
    drawing = Markup('<div style="background:#fff;padding:6px;border-radius:8px">{}</div>').format(
        sheet.svg(example.title, alone=True)
    )
    return Markup(text).format(round(sheet.width) + 12, example.title, example.text, drawing)


def example_sheet(overview: Overview, proof: ProofSheet, example: ExampleMaps) -> Sheet:
    """Return the maps beside the verdict as a drawing: the input, then a row for each explainer."""
    assert proof.tiles is not None, "there are no example maps without tiles"
    tiles = proof.tiles
    sample = tiles.samples[0]
    wide = TILE * proof.wide / proof.size
    width = NAME_WIDTH + len(example.columns) * (wide + GAP)
    sheet = Sheet(width, HEAD_HEIGHT + (1 + len(example.rows)) * (TILE + GAP))
    sheet.add(Words(0, HEAD_HEIGHT + TILE / 2, "what the model saw", "third", size=11))
    tops = [HEAD_HEIGHT + (i + 1) * (TILE + GAP) for i in range(len(example.rows))]

    x: float = NAME_WIDTH
    for number, title in example.columns:
        sheet.add(Words(x + wide / 2, HEAD_HEIGHT - 8, title, "soft", "middle", 11))
        condition = tiles.columns[number][0]
        changed_input = proof.seen(tiles, condition, sample)
        if changed_input is not None:
            key = ("", condition, sample)
            draw_tile(sheet, proof, tiles, key, x, HEAD_HEIGHT, wide, TILE, changed_input)
        for row, top in zip(example.rows, tops, strict=True):
            key = (row.explainer, condition, sample)
            draw_tile(sheet, proof, tiles, key, x, top, wide, TILE)
        x += wide + GAP
    for row, top in zip(example.rows, tops, strict=True):
        middle = top + TILE / 2
        look = overview.looks[row.explainer]
        sheet.add(Words(0, middle, look.name[:20], "ink", bold=not look.control))
        sheet.add(Words(0, middle + 15, row.note, "third", size=11))
    return sheet


def overviews_html(overviews: Sequence[Overview], state: str) -> str:
    """Return the verdicts of a run, and whether it is complete."""
    bodies = []
    for overview in overviews:
        title = f"{overview.model} on {overview.dataset}, {overview.counted_samples}"
        bodies.append(overview_html(overview))
        bodies.append(
            Markup('<p style="opacity:.75"><small>{}. {}</small></p>').format(title, state)
        )
    return str(Markup("").join(bodies) or Markup("<p>{}</p>").format(state))

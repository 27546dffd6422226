"""A run and its components in a notebook: drawn as on the page, or as text."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from markupsafe import Markup

from heatproof.report.canvas import Plot
from heatproof.report.components import Component
from heatproof.report.draw import Looks
from heatproof.report.images import filters
from heatproof.report.overview import overviews
from heatproof.report.overview_html import overviews_html
from heatproof.report.page_parts import Panel, part_of
from heatproof.report.styles import css
from heatproof.report.terminal import component_text
from heatproof.results.axis_result import AxisResult
from heatproof.results.reports import components_of
from heatproof.runs.run import Run
from heatproof.runs.verify import missing, missing_in_words


@dataclass(frozen=True, eq=False)
class ShownComponent:
    """A component that a notebook shows as the page does; `print` writes it as text."""

    component: Component
    looks: Looks

    def __str__(self) -> str:
        return component_text(self.component, self.looks)

    def _repr_html_(self) -> str:
        """Return what a notebook shows: title, plots or table, and caption."""
        shown = part_of(self.component, self.looks)
        if shown is None:
            return str(Markup("<p>{}: nothing to show.</p>").format(self.component.title))
        if isinstance(shown, Panel):
            # The colours of maps come from style sheet and filters, which a notebook does not have.
            body = Markup("<style>{}</style>{}{}").format(css(), filters(), shown.html)
        else:
            body = Markup("").join(_plot_html(plot) for plot in shown.every)
        html = Markup("<h4>{}</h4>{}<p>{}</p>").format(shown.title, body, shown.caption)
        return str(html)


def _plot_html(plot: Plot) -> Markup:
    """Return a plot with its title, beside which the next one may stand."""
    title = ", ".join(filter(None, (plot.title, plot.note)))
    html = '<div style="display:inline-block;vertical-align:top;margin-right:18px"><b>{}</b><br>{}</div>'
    return Markup(html).format(title, plot.sheet.svg(title, alone=True))


def shown_components(results: Sequence[AxisResult]) -> list[ShownComponent]:
    """Return the components of some results, in reading order, without the empty ones."""
    shown = []
    for result in results:
        for component in components_of(result):
            if part_of(component, result.looks) is not None:
                shown.append(ShownComponent(component, result.looks))
    return shown


def run_html(run: Run) -> str:
    """Return the verdict of a run with a few maps, and whether the run is complete, as HTML."""
    gaps = missing(run.path)
    state = f"Unfinished: {missing_in_words(gaps)}." if gaps else "Complete."
    verdicts = overviews(run.results(gallery=True), run.samples(), run.manifest)
    return overviews_html(verdicts, state)

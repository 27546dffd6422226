"""What a page and a paper are made of: charts, which are plots with words, and panels of HTML."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from markupsafe import Markup

from heatproof.drawing.sheet import Plot
from heatproof.evaluation import Condition, GalleryItem

AT_ONCE = 12
"""How many plots of a chart are shown before the rest is folded."""


@dataclass(frozen=True)
class Chart:
    """Plots with a title, a caption and a sentence for those who cannot see them.

    `folded` are further plots under the words that open them, `more` HTML to show under the chart.
    """

    key: str
    title: str
    caption: str
    alt: str
    plots: Sequence[Plot]
    folded: Mapping[str, Sequence[Plot]] = field(default_factory=dict)
    more: Markup = field(default_factory=Markup)

    @property
    def shown(self) -> Sequence[Plot]:
        """The plots that are seen at once."""
        return self.plots[:AT_ONCE]

    @property
    def hidden(self) -> dict[str, Sequence[Plot]]:
        """The plots that are drawn when they are asked for, by the words that open them."""
        rest = self.plots[AT_ONCE:]
        return {**({f"{len(rest)} more": rest} if rest else {}), **self.folded}

    @property
    def every(self) -> list[Plot]:
        """All plots."""
        return [*self.plots, *(plot for plots in self.folded.values() for plot in plots)]


@dataclass(frozen=True)
class Panel:
    """A part of the page that is not a chart: a table, pictures or a drawing, as HTML that is safe to embed.

    A `strip` of pictures is shown under the first chart of its axis; other panels are opened by whoever wants them.
    """

    key: str
    title: str
    caption: str
    html: Markup
    strip: bool = False


@dataclass(frozen=True)
class Tiles:
    """The maps of some samples under some conditions, for the proof sheet.

    `columns` are conditions in words, the input as it is first, `samples` in the order in which they are offered.
    `scores` has for each explainer, condition and sample the calibrated score, or NaN and why there is none.
    """

    columns: Sequence[tuple[Condition, str]]
    samples: Sequence[str]
    shown: Mapping[tuple[str, Condition, str], GalleryItem]
    scores: Mapping[tuple[str, Condition, str], tuple[float, str]]

"""One look for every figure: fonts, colours, markers and sizes, without pyplot and its global figures."""

from __future__ import annotations

import textwrap
from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from holdfast.drawing.charts import CONTROL, PALETTE, curve_styles
from holdfast.errors import UserError

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure, SubFigure

COLUMN, TEXT = 3.25, 6.75
"""Inches: one column of a two-column paper, and both."""
WIDTHS = {"column": COLUMN, "text": TEXT}
NARROWEST, WIDEST, TALLEST = 2.0, 20.0, 9.0
DPI = 300
FORMATS = ("pdf", "png", "svg")
MOST_CURVES = 8
"""More curves in one panel cannot be told apart, so they go to further panels."""
LINE = 0.145
"""Inches that a line of small print takes."""
MARKERS = {"circle": "o", "square": "s", "diamond": "D", "triangle-up": "^", "cross": "P", "x": "X", "star": "*"}
LOOK: dict[str, Any] = {
    "font.family": "DejaVu Sans",  # which matplotlib brings along, so that every machine draws alike
    "font.size": 7,
    "axes.titlesize": 7,
    "axes.labelsize": 7,
    "xtick.labelsize": 6.5,
    "ytick.labelsize": 6.5,
    "legend.fontsize": 6.5,
    "legend.frameon": False,
    "legend.handlelength": 1.8,
    "legend.columnspacing": 1.2,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.linewidth": 0.6,
    "axes.grid": True,
    "axes.axisbelow": True,
    "grid.color": "#E3E3E3",
    "grid.linewidth": 0.5,
    "xtick.major.width": 0.6,
    "ytick.major.width": 0.6,
    "xtick.major.size": 2,
    "ytick.major.size": 2,
    "lines.linewidth": 1.1,
    "lines.markersize": 3.4,
    "hatch.linewidth": 0.5,
    "text.parse_math": False,  # a dollar in a name is a dollar
    "text.usetex": False,
    "pdf.fonttype": 42,  # TrueType, which publishers ask for
    "svg.fonttype": "none",
    "svg.hashsalt": "holdfast",
    "savefig.facecolor": "white",
    "figure.facecolor": "white",
}
"""What differs from matplotlib's own defaults, which are restored first whatever a user's matplotlibrc says."""


def need_matplotlib() -> None:
    """Say what to install where matplotlib is missing."""
    try:
        import matplotlib  # noqa: F401
    except ImportError as error:
        raise UserError("figures need matplotlib: pip install 'holdfast[figures]'") from error


@contextmanager
def look() -> Iterator[None]:
    """A context in which figures are made and saved in this style; outside of it nothing changes."""
    need_matplotlib()
    import matplotlib

    with matplotlib.rc_context():
        matplotlib.rcdefaults()
        current: Any = matplotlib.rcParams  # whose keys newer releases list one by one
        current.update(LOOK)
        yield


def blank(width: float, height: float) -> Figure:
    """An empty figure of this size in inches, laid out so that nothing overlaps."""
    need_matplotlib()
    from matplotlib.figure import Figure

    figure = Figure(figsize=(width, height), layout="constrained")
    figure.get_layout_engine().set(w_pad=0.03, h_pad=0.03)  # type: ignore[union-attr, call-arg]
    return figure


def encoded(figure: Figure, kind: str, title: str) -> bytes:
    """A figure in one of `FORMATS`; the same figure always gives the same bytes."""
    from io import BytesIO

    about = {"pdf": {"Title": title, "CreationDate": None}, "png": {"Title": title, "Software": None}}
    sink = BytesIO()
    metadata = about.get(kind, {"Title": title, "Date": None})
    figure.savefig(sink, format=kind, dpi=DPI, metadata=metadata)
    return sink.getvalue()


def as_width(width: float | str) -> float:
    """A width in inches from "column", "text" or a number.

    >>> as_width("column"), as_width("5.5")
    (3.25, 5.5)
    >>> as_width("colum")
    Traceback (most recent call last):
    holdfast.errors.UserError: width must be column, text or inches from 2 to 20, got 'colum'
    """
    if isinstance(width, str) and width in WIDTHS:
        return WIDTHS[width]
    try:
        inches = float(width)
    except ValueError:
        inches = -1.0
    if not NARROWEST <= inches <= WIDEST:
        limits = f"inches from {NARROWEST:g} to {WIDEST:g}"
        raise UserError(f"width must be column, text or {limits}, got {width!r}")
    return inches


def wrapped(text: str, width: int = 22) -> str:
    """A name over several lines, broken after underscores, commas and spaces and before brackets.

    >>> print(wrapped("integrated_gradients(steps=16)"))
    integrated_gradients
    (steps=16)
    """
    spaced = text.replace("(", "\u200b(").replace("_", "_\u200b").replace(",", ",\u200b")
    pieces, lines = [p for word in spaced.split("\u200b") for p in _words(word)], [""]
    for piece in pieces:
        if lines[-1] and len(lines[-1]) + len(piece.rstrip()) > width:
            lines.append("")
        lines[-1] += piece
    broken = [part for line in lines for part in textwrap.wrap(line, 2 * width) or [""]]
    return "\n".join(line.strip() for line in broken if line.strip())


def _words(text: str) -> list[str]:
    """Words with the spaces after them."""
    parts = text.split(" ")
    return [part + " " for part in parts[:-1]] + parts[-1:]


Looks = Mapping[str, dict[str, Any]]
"""How the curve of each explainer is drawn, in the order in which they are."""


def style_of(explainers: Iterable[str], controls: Collection[str]) -> dict[str, dict[str, Any]]:
    """How the curve of each explainer is drawn, in the colours and markers of the report; controls grey and hollow.

    >>> style_of(["lime", "random"], {"random"})["random"]["linestyle"]
    ':'
    """
    found: dict[str, dict[str, Any]] = {}
    hollows = 0
    for explainer, (colour, symbol) in curve_styles(explainers, controls).items():
        hollow = symbol.endswith("-open")
        style = {"color": colour, "marker": MARKERS[symbol.removesuffix("-open")]}
        if hollow:  # the report tells controls apart when the pointer is on them; paper cannot
            style["marker"] = list(MARKERS.values())[hollows % len(MARKERS)]
            hollows += 1
        style |= {"markerfacecolor": "white" if hollow else colour, "linestyle": ":" if colour == CONTROL else "-"}
        found[explainer] = style
    return found


def numbered_style(number: int) -> dict[str, Any]:
    """The colour and marker of the n-th of several curves that are not explainers."""
    return {"color": PALETTE[number % len(PALETTE)], "marker": list(MARKERS.values())[number % len(MARKERS)]}


def legend_below(panel: Figure | SubFigure, axes: Iterable[Axes], width: float) -> None:
    """The legend of some axes under a figure, in as many columns as its names leave room for."""
    pairs = [pair for one in axes for pair in zip(*one.get_legend_handles_labels(), strict=True)]
    unique = {str(label): handle for handle, label in reversed(pairs)}
    unique = dict(reversed(unique.items()))
    if not unique:
        return
    names = [wrapped(name, 34) for name in unique]
    longest = max(len(line) for name in names for line in name.split("\n"))
    columns = max(1, min(len(names), int(width / (0.062 * longest + 0.36))))
    panel.legend(list(unique.values()), names, loc="outside lower center", ncols=columns)


def legend_height(names: Iterable[str], width: float) -> float:
    """Inches that `legend_below` will take."""
    texts = [wrapped(name, 34) for name in names]
    if not texts:
        return 0.0
    longest = max(len(line) for text in texts for line in text.split("\n"))
    columns = max(1, min(len(texts), int(width / (0.062 * longest + 0.36))))
    lines = max(text.count("\n") + 1 for text in texts)
    return LINE * lines * -(-len(texts) // columns) + 0.1


def chunks(names: list[str], most: int = MOST_CURVES) -> list[list[str]]:
    """Names in groups of nearly equal size, none larger than `most`.

    >>> [len(part) for part in chunks([str(i) for i in range(9)])]
    [5, 4]
    """
    if not names:
        return []
    parts = -(-len(names) // most)
    size = -(-len(names) // parts)
    return [names[i : i + size] for i in range(0, len(names), size)]


def parts(names: list[str], most: int) -> list[tuple[str, list[str]]]:
    """Names in groups that fit on a page, each with the words that tell it from the others.

    >>> parts(["a", "b", "c"], 2), parts(["a"], 2)
    ([('part 1', ['a', 'b']), ('part 2', ['c'])], [('', ['a'])])
    """
    groups = chunks(names, max(most, 1))
    return [(f"part {i + 1}" if len(groups) > 1 else "", group) for i, group in enumerate(groups)]

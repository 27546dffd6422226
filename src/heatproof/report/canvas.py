"""A drawing as a list of strokes, boxes, dots and words, in pixels from its upper left corner.

It is laid out once. As SVG it goes into a page, where every mark carries its numbers and colours are CSS variables; for
paper matplotlib writes the same list as PDF or PNG. Neither uses pyplot, and the same list gives the same bytes.
"""

from __future__ import annotations

import base64
import math
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from io import BytesIO
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from markupsafe import Markup, escape
from numpy.typing import NDArray

from heatproof.errors import UserError
from heatproof.report.styles import COLOURS, css

if TYPE_CHECKING:
    from matplotlib.artist import Artist

PIXELS = 12 / 7 * 72
TYPEFACES = ("Helvetica", "Arial", "Liberation Sans", "Nimbus Sans")
"""Per inch on paper, where text of 12 pixels has 7 points."""
LETTER = 0.56
"""How wide a letter is on average, as a share of the size of the text."""
Anchor = Literal["start", "middle", "end"]


def plain(value: float) -> str:
    """A coordinate with one decimal.

    >>> plain(3.0), plain(2.25)
    ('3', '2.2')
    """
    return f"{value:.1f}".removesuffix(".0")


def digits(value: Any) -> str:
    """A number with six digits, as a mark carries it; empty where there is none.

    >>> digits(0.123456789), digits(float("nan")), digits("a")
    ('0.123457', '', 'a')
    """
    if isinstance(value, str):
        return value
    return f"{value:.6g}" if value is not None and math.isfinite(value) else ""


def width_of(text: str, size: float = 12) -> float:
    """How wide a text is, about."""
    return LETTER * size * len(text)


@dataclass(frozen=True)
class Stroke:
    """A line through points, or a closed area."""

    points: Sequence[tuple[float, float]]
    colour: str = "strong"
    width: float = 1.0
    dash: tuple[float, ...] = ()
    opacity: float = 1.0

    def svg(self) -> str:
        """The element."""
        path = "M" + "L".join(f"{plain(x)} {plain(y)}" for x, y in self.points)
        more = f' stroke-dasharray="{" ".join(map(plain, self.dash))}"' if self.dash else ""
        more += f' opacity="{self.opacity:g}"' if self.opacity < 1 else ""
        return f'<path d="{path}" fill="none" stroke="var(--{self.colour})" stroke-width="{self.width:g}"{more}/>'

    def artist(self, unit: float) -> Artist:
        """The same for matplotlib; `unit` is a pixel in points."""
        from matplotlib.lines import Line2D

        x, y = zip(*self.points, strict=True)
        style = (0, tuple(d / self.width for d in self.dash)) if self.dash else "-"
        about: dict[str, Any] = {
            "color": COLOURS[self.colour][0],
            "linewidth": self.width * unit,
            "linestyle": style,
        }
        return Line2D(
            x, y, **about, alpha=self.opacity, solid_capstyle="butt", solid_joinstyle="round"
        )


@dataclass(frozen=True)
class Box:
    """A filled rectangle."""

    x: float
    y: float
    width: float
    height: float
    colour: str
    opacity: float = 1.0

    def svg(self) -> str:
        """The element."""
        where = f'x="{plain(self.x)}" y="{plain(self.y)}"'
        size = f'width="{plain(self.width)}" height="{plain(self.height)}"'
        return f'<rect {where} {size} rx="2" fill="var(--{self.colour})" fill-opacity="{self.opacity:.2g}"/>'

    def artist(self, unit: float) -> Artist:
        """The same for matplotlib."""
        from matplotlib.patches import Rectangle

        colour = COLOURS[self.colour][0]
        return Rectangle(
            (self.x, self.y),
            self.width,
            self.height,
            facecolor=colour,
            alpha=self.opacity,
            linewidth=0,
        )


@dataclass(frozen=True)
class Dot:
    """A dot of a `kind`: filled, hollow, or open, which is a ring about a point."""

    x: float
    y: float
    radius: float
    colour: str
    kind: str = "filled"
    opacity: float = 1.0

    def svg(self) -> str:
        """The element."""
        centre = f'cx="{plain(self.x)}" cy="{plain(self.y)}"'
        if self.kind == "filled":
            faint = f' opacity="{self.opacity:g}"' if self.opacity < 1 else ""
            return f'<circle {centre} r="{plain(self.radius)}" fill="var(--{self.colour})"{faint}/>'
        ring = f'<circle {centre} r="{plain(self.radius - 0.8)}" fill="var(--card)" stroke="var(--{self.colour})"'
        inner = (
            f'<circle {centre} r="1.4" fill="var(--{self.colour})"/>' if self.kind == "open" else ""
        )
        return f'{ring} stroke-width="1.6"/>{inner}'

    def artist(self, unit: float) -> Artist:
        """The same for matplotlib."""
        from matplotlib.lines import Line2D

        colour, filled = COLOURS[self.colour][0], self.kind == "filled"
        edge = 0 if filled else 1.6 * unit
        about: dict[str, Any] = {
            "markersize": 2 * self.radius * unit - edge,
            "markeredgewidth": edge,
            "markeredgecolor": colour,
        }
        face = colour if filled else "#ffffff"
        return Line2D(
            [self.x],
            [self.y],
            marker="o",
            linestyle="",
            markerfacecolor=face,
            alpha=self.opacity,
            **about,
        )


@dataclass(frozen=True)
class Words:
    """A line of text on its baseline."""

    x: float
    y: float
    text: str
    colour: str = "soft"
    anchor: Anchor = "start"
    size: float = 12
    bold: bool = False
    turned: bool = False

    def svg(self) -> str:
        """The element."""
        x, y = plain(self.x), plain(self.y)
        attributes = f'x="{x}" y="{y}" fill="var(--{self.colour})"'
        # Defaults are left out, which keeps pages small.
        if self.anchor != "start":
            attributes += f' text-anchor="{self.anchor}"'
        if self.size != 12:
            attributes += f' font-size="{self.size:g}"'
        if self.bold:
            attributes += ' font-weight="650"'
        if self.turned:
            attributes += f' transform="rotate(-90 {x} {y})"'
        return f"<text {attributes}>{escape(self.text)}</text>"

    def artist(self, unit: float) -> Artist:
        """The same for matplotlib."""
        from matplotlib.text import Text

        side = {"start": "left", "middle": "center", "end": "right"}[self.anchor]
        about: dict[str, Any] = {
            "rotation": 90 if self.turned else 0,
            "rotation_mode": "anchor",
            "parse_math": False,
        }
        weight = "bold" if self.bold else "normal"
        about |= {
            "horizontalalignment": side,
            "verticalalignment": "baseline",
            "fontsize": self.size * unit,
        }
        return Text(
            self.x, self.y, self.text, color=COLOURS[self.colour][0], fontweight=weight, **about
        )


@dataclass(frozen=True)
class Picture:
    """A picture (H, W, 3) of eight bits."""

    x: float
    y: float
    width: float
    height: float
    pixels: NDArray[np.uint8]

    def svg(self) -> str:
        """The element."""
        from PIL import Image

        sink = BytesIO()
        Image.fromarray(self.pixels).save(sink, "PNG")
        where = f'x="{plain(self.x)}" y="{plain(self.y)}" width="{plain(self.width)}" height="{plain(self.height)}"'
        uri = base64.b64encode(sink.getvalue()).decode()
        return f'<image {where} preserveAspectRatio="none" href="data:image/png;base64,{uri}"/>'

    def artist(self, unit: float) -> Artist:
        """The same for matplotlib, which lays it out by its box and not by its own transform."""
        from matplotlib.image import BboxImage
        from matplotlib.transforms import Bbox

        # A TransformedBbox keeps its edges in order when the sheet's downward y is flipped, so the pixels must not be
        # flipped as well: row 0 is the top here and there.
        box = Bbox.from_bounds(self.x, self.y, self.width, self.height)
        return BboxImage(box, origin="upper", data=self.pixels)


Piece = Stroke | Box | Dot | Words | Picture


@dataclass
class Sheet:
    """Pieces in the order in which they are drawn; those of a mark stand together and carry its numbers."""

    width: float
    height: float
    groups: list[tuple[dict[str, str], list[Piece]]] = field(default_factory=lambda: [({}, [])])

    def add(self, *pieces: Piece) -> None:
        """Draw these next."""
        self.groups[-1][1].extend(pieces)

    @contextmanager
    def mark(self, **data: Any) -> Iterator[None]:
        """What is added inside stands for these numbers: `method`, `value`, `low`, `high` and more."""
        self.groups.append(
            ({name: text for name, value in data.items() if (text := digits(value))}, [])
        )
        yield
        self.groups.append(({}, []))

    def place(self, other: Sheet, x: float, y: float) -> None:
        """Draw another sheet here, its marks with their numbers."""
        for data, pieces in other.groups:
            self.groups.append((data, [_moved(piece, x, y) for piece in pieces]))
        self.groups.append(({}, []))

    def _repr_svg_(self) -> str:
        """What a notebook shows."""
        return self.svg("", alone=True)

    @property
    def marks(self) -> list[dict[str, str]]:
        """What the marks carry, in order."""
        return [data for data, _ in self.groups if data]

    @property
    def pieces(self) -> list[Piece]:
        """All pieces."""
        pieces: list[Piece] = []
        for _, of_group in self.groups:
            pieces += of_group
        return pieces

    def svg(self, alt: str = "", alone: bool = False) -> Markup:
        """The drawing as SVG for a page, or `alone` for a file, which then brings its colours along."""
        size = f'width="{plain(self.width)}" height="{plain(self.height)}"'
        about = f'viewBox="0 0 {plain(self.width)} {plain(self.height)}" {size} role="img" aria-label="{escape(alt)}"'
        groups = []
        for data, pieces in self.groups:
            body = "".join(piece.svg() for piece in pieces)
            if not data:
                groups.append(body)
                continue
            attributes = []
            for name, value in data.items():
                attributes.append(f'data-{name.replace("_", "-")}="{escape(value)}"')
            groups.append(f'<g class="mark" {" ".join(attributes)}>{body}</g>')
        root = style = ""
        if alone:
            # The font is an attribute of the root, for a rule for `text` would override the size and weight of each
            # text. A file and a notebook do not know which colours surround the drawing, so it brings paper along.
            root = ' xmlns="http://www.w3.org/2000/svg" font-family="sans-serif" font-size="12"'
            root += ' style="background:#fff;max-width:100%;height:auto"'
            style = f"<style>{css(dark=False)}</style>"
        # All text in it was escaped.
        return Markup(f"<svg{root} {about}>{style}{''.join(groups)}</svg>")

    def encoded(self, kind: str, title: str, inches: float) -> bytes:
        """The drawing as a file of this width: svg, or pdf or png by matplotlib."""
        if kind == "svg":
            return self.svg(title, alone=True).encode()
        need_matplotlib()
        import matplotlib
        from matplotlib.figure import Figure
        from matplotlib.transforms import Affine2D, TransformedBbox

        about: Mapping[str, Any] = {"pdf": {"CreationDate": None}, "png": {"Software": None}}[kind]
        sink = BytesIO()
        with matplotlib.rc_context():
            matplotlib.rcdefaults()  # whatever a user's matplotlibrc says
            current: Any = matplotlib.rcParams
            current["font.sans-serif"] = [*TYPEFACES, *current["font.sans-serif"]]
            current["pdf.fonttype"] = 42  # TrueType, which publishers ask for
            unit = inches / self.width
            figure = Figure(figsize=(inches, self.height * unit), facecolor="white")
            where = (
                Affine2D().scale(1, -1).translate(0, self.height).scale(unit)
                + figure.dpi_scale_trans
            )
            for order, piece in enumerate(self.pieces):
                artist = piece.artist(72 * unit)
                artist.set_zorder(order)  # else lines lie on boxes, whichever came first
                if isinstance(piece, Picture):
                    artist.bbox = TransformedBbox(artist.bbox, where)  # type: ignore[attr-defined]
                else:
                    artist.set_transform(where)
                figure.add_artist(artist)
            figure.savefig(sink, format=kind, dpi=300, metadata={"Title": title, **about})
        return sink.getvalue()


def need_matplotlib() -> None:
    """Say what to install where matplotlib is missing."""
    try:
        import matplotlib  # noqa: F401
    except ImportError as error:
        raise UserError(
            'figures as PDF or PNG need matplotlib: pip install "heatproof[figures]"'
        ) from error


@dataclass(frozen=True)
class Plot:
    """One small drawing with a title and what stands beside it in small print; a chart has one or several."""

    title: str
    sheet: Sheet
    note: str = ""

    @property
    def sortable(self) -> bool:
        """Whether it has rows that can be put into another order."""
        return any("y" in data for data in self.sheet.marks)


HEAD, GAP = 22.0, 18.0
TALLEST = 9 * PIXELS
SMALLEST_TYPE = 6
"""Points of the smallest type that is readable in print."""


def _moved(piece: Piece, dx: float, dy: float) -> Piece:
    """Return a piece moved to the right by dx and down by dy."""
    if isinstance(piece, Stroke):
        return Stroke(
            [(x + dx, y + dy) for x, y in piece.points],
            piece.colour,
            piece.width,
            piece.dash,
            piece.opacity,
        )
    return type(piece)(**{**piece.__dict__, "x": piece.x + dx, "y": piece.y + dy})


def flowed(plots: Sequence[Plot], inches: float) -> list[Sheet]:
    """Return plots beside and under each other on sheets of at most this width; many fill several sheets.

    A sheet is no larger than what is on it, and wider than asked for only where a single plot is.
    """
    rows: list[list[Plot]] = []
    most = max([inches * PIXELS, *(plot.sheet.width for plot in plots)])
    for plot in plots:
        used = math.inf  # before the first plot there is no row
        if rows:
            used = sum(earlier.sheet.width + GAP for earlier in rows[-1])
        if used + plot.sheet.width > most:
            rows.append([])
        rows[-1].append(plot)
    sheets: list[Sheet] = []
    for row in rows:
        head = HEAD if any(plot.title for plot in row) else 0.0
        row_height = head + max(plot.sheet.height for plot in row)
        if not sheets or sheets[-1].height + GAP + row_height > TALLEST:
            sheets.append(Sheet(0, 4))
        else:
            sheets[-1].height += GAP
        sheet = sheets[-1]
        top, x = sheet.height, 0.0
        for plot in row:
            right = x + plot.sheet.width
            if plot.title:
                sheet.add(Words(x, top + 13, plot.title, "ink", bold=True))
                # With some room, for titles are bold and `width_of` is an estimate.
                end_of_title = x + 1.2 * width_of(plot.title)
                right = max(right, end_of_title)
                if plot.note:
                    sheet.add(Words(end_of_title + 6, top + 13, plot.note, "third"))
                    right = max(right, end_of_title + 6 + 1.2 * width_of(plot.note))
            sheet.place(plot.sheet, x, top + head)
            sheet.width = max(sheet.width, right)
            x += plot.sheet.width + GAP
        sheet.height = top + row_height
    return sheets


def inches_of(sheet: Sheet, inches: float) -> float:
    """Return how wide a sheet is printed that should be at most so many inches wide.

    Type has 7 points, and at least 6: a sheet that would need smaller type is wider than asked for.
    """
    natural = sheet.width / PIXELS
    return max(min(natural, inches), natural * SMALLEST_TYPE / 7)

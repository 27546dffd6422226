"""The colours of pages and figures, in light and dark; paper takes the light ones."""

from __future__ import annotations

from heatproof.maps.overlay import AGAINST, FOR, STRENGTH
from heatproof.results.names import OWN_COLOURS, SHARED_COLOURS

INKS = {
    "ink": ("#16191d", "#eceef0"),
    "soft": ("#4e5761", "#b4bcc4"),
    "third": ("#6a737d", "#98a1ab"),
    "line": ("#e3e4df", "#2c3137"),
    "strong": ("#c9ccc6", "#444b53"),
    "grid": ("#eceded", "#272b31"),
    "card": ("#ffffff", "#1a1d21"),
    "page": ("#fbfbf9", "#121417"),
    "accent": ("#0a5ea8", "#7cc0f5"),
    "heat": ("#0f7a6c", "#3cbea8"),
    "cold": ("#a81322", "#f08f80"),
    "control": ("#6f7780", "#9aa3ad"),
    "against": (AGAINST, AGAINST),
    "for": (FOR, FOR),
    "strength": (STRENGTH, STRENGTH),
}
"""The colours of everything that is not a method, by CSS variable: light and dark."""
COLOURS = {**INKS, **{f"m{i}": pair for i, pair in enumerate(OWN_COLOURS + SHARED_COLOURS)}}
"""The colours of methods as well: m0, m1, …, as `results.names.colour_of` gives them."""


def css(dark: bool = True) -> str:
    """Return the style sheet of all colours, with those for dark pages unless told otherwise.

    >>> css()[:19], "dark" in css(dark=False)
    (':root{--ink:#16191d', False)
    """
    light = ";".join(f"--{name}:{colour}" for name, (colour, _) in COLOURS.items())
    if not dark:
        return f":root{{{light}}}"
    on_dark = ";".join(f"--{name}:{colour}" for name, (_, colour) in COLOURS.items())
    return f":root{{{light}}}@media screen and (prefers-color-scheme:dark){{:root{{{on_dark}}}}}"

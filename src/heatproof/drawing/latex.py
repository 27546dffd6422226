"""LaTeX tables in the style of booktabs: text made safe, numbers with their intervals, bold by significance."""

from __future__ import annotations

import math
import re
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field
from statistics import median_low

import pandas as pd

from heatproof.drawing import prose
from heatproof.drawing.prose import above, digits_of

MISSING = "--"
COLUMN_INCHES, ONE_COLUMN = 0.98, 4.5
"""What a number with its interval takes across, and from which width on a table spans both columns of a paper."""
SPECIAL = {
    "\\": r"\textbackslash{}",
    "{": r"\{",
    "}": r"\}",
    "$": r"\$",
    "&": r"\&",
    "%": r"\%",
    "#": r"\#",
    "_": r"\_",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "<": r"\textless{}",
    ">": r"\textgreater{}",
    "|": r"\textbar{}",
    '"': r"\textquotedbl{}",
    "°": r"\textdegree{}",
    "’": "'",
    "–": "--",
    "×": r"$\times$",
    "·": r"$\cdot$",
    "±": r"$\pm$",
    "−": "$-$",
    "≥": r"$\ge$",
    "≤": r"$\le$",
    "λ": r"$\lambda$",
    "σ": r"$\sigma$",
    "τ": r"$\tau$",
    "ρ": r"$\rho$",
    "δ": r"$\delta$",
    "ε": r"$\varepsilon$",
}


def escape(text: str) -> str:
    r"""Any text, inert to LaTeX: special characters are escaped, line breaks become spaces.

    >>> print(escape("lime_50% {a}\\b $x$ ~^#&"))
    lime\_50\% \{a\}\textbackslash{}b \$x\$ \textasciitilde{}\textasciicircum{}\#\&
    """
    return "".join(SPECIAL.get(char, char) for char in " ".join(text.split()))


def comment(text: str) -> str:
    r"""A comment line; no text can end it early.

    >>> comment("a\n\\input{b}")
    '% a \\input{b}'
    """
    return "% " + " ".join(text.split())


@dataclass(frozen=True)
class Cell:
    """A number, with its interval where there is one, and whether it is among the best."""

    value: float
    low: float = math.nan
    high: float = math.nan
    bold: bool = False
    percent: bool = False


Entry = Cell | str
"""A string is LaTeX already."""


@dataclass(frozen=True)
class Tabular:
    """A table: column heads, rows of LaTeX or numbers, and before which rows a rule or a heading stands.

    `rules` maps a row's number to a heading over the whole width, or to "" for a plain rule. `spans` is a first line of
    heads as (text, columns).
    """

    heads: Sequence[str]
    rows: Sequence[Sequence[Entry]]
    rules: dict[int, str] = field(default_factory=dict)
    spans: Sequence[tuple[str, int]] = ()
    words: int = 1
    """How many columns on the left hold words and stay in every part."""

    def blocks(self, most: int) -> list[Tabular]:
        """The table as one or more with at most so many columns of numbers, to be set under each other."""
        numbers = len(self.heads) - self.words
        if numbers <= most or self.spans:
            return [self]
        parts = -(-numbers // most)
        size = -(-numbers // parts)
        found = []
        for start in range(self.words, len(self.heads), size):
            here = slice(start, start + size)
            heads = [*self.heads[: self.words], *self.heads[here]]
            rows = [[*row[: self.words], *row[here]] for row in self.rows]
            found.append(Tabular(heads, rows, self.rules, (), self.words))
        return found


def number(value: float, digits: int) -> str:
    """A number with a true minus sign.

    >>> number(-0.5, 2), number(-0.0001, 2), number(float("nan"), 2)
    ('$-$0.50', '0.00', '--')
    """
    return escape(prose.number(value, digits))


def digits_for(cells: Iterable[Entry]) -> int:
    """Those that half of the numbers deserve by the width of their intervals."""
    known = [
        digits_of(c.value, c.low, c.high)
        for c in cells
        if isinstance(c, Cell) and not c.percent and c.low <= c.high
    ]
    return median_low(known or [2])


def entry(cell: Entry, digits: int) -> str:
    r"""A cell as LaTeX.

    >>> print(entry(Cell(0.614, 0.58, 0.64, bold=True), 2))
    \textbf{0.61} {\scriptsize [0.58, 0.64]}
    """
    if isinstance(cell, str):
        return cell
    scale, places = (100, 1) if cell.percent else (1, digits)
    text = number(scale * cell.value, places)
    if cell.bold and math.isfinite(cell.value):
        text = rf"\textbf{{{text}}}"
    if math.isfinite(cell.low) and math.isfinite(cell.high):
        text += rf" {{\scriptsize [{number(scale * cell.low, places)}, {number(scale * cell.high, places)}]}}"
    return text


def render(content: Tabular, caption: str, label: str, notes: Sequence[str], width: float) -> str:
    """The whole file: comments, then a table environment for a width in inches that needs only the package booktabs.

    >>> text = render(Tabular(["Method", "FASS"], [["lime", Cell(0.5)]]), "Scores.", "tab:x", ["by heatproof"], 6.75)
    >>> text.splitlines()[0], "lime & 0.50" in text
    ('% by heatproof', True)
    """
    lines = [*(comment(note) for note in notes), comment(r"needs \usepackage{booktabs}")]
    most = max(2, int((width - 1.7) / COLUMN_INCHES))
    kind = "table*" if width > ONE_COLUMN and len(content.heads) - content.words > 2 else "table"
    label = re.sub(r"[^A-Za-z0-9:.-]+", "-", label)
    lines += [
        rf"\begin{{{kind}}}[t]",
        r"\centering",
        rf"\caption{{{caption}}}",
        rf"\label{{{label}}}",
    ]
    lines += [r"\footnotesize", r"\setlength{\tabcolsep}{4pt}"]
    digits = digits_for(cell for row in content.rows for cell in row)
    for i, block in enumerate(content.blocks(most)):
        if i:
            lines.append(r"\\[1ex]")
        lines += _tabular(block, digits)
    return "\n".join([*lines, rf"\end{{{kind}}}", ""])


def _tabular(block: Tabular, digits: int) -> list[str]:
    columns = "l" * block.words + "r" * (len(block.heads) - block.words)
    lines = [rf"\begin{{tabular}}{{@{{}}{columns}@{{}}}}", r"\toprule"]
    if block.spans:
        lines.append(
            " & ".join(rf"\multicolumn{{{n}}}{{c}}{{{text}}}" for text, n in block.spans) + r" \\"
        )
        start = 1
        for text, n in block.spans:
            if text:
                lines.append(rf"\cmidrule(lr){{{start}-{start + n - 1}}}")
            start += n
    lines += [" & ".join(block.heads) + r" \\", r"\midrule"]
    for i, row in enumerate(block.rows):
        if i in block.rules:
            if i:
                lines.append(r"\midrule")
            if block.rules[i]:
                lines.append(
                    rf"\multicolumn{{{len(block.heads)}}}{{@{{}}l}}{{\textit{{{block.rules[i]}}}}} \\"
                )
        lines.append(" & ".join(entry(cell, digits) for cell in row) + r" \\")
    return [*lines, r"\bottomrule", r"\end{tabular}"]


def unbeaten(
    means: pd.Series, tests: pd.DataFrame, controls: Collection[str], sign: int = 1
) -> set[str]:
    """The best method and every one that the paired tests do not separate from it; controls never.

    `means` is indexed by explainer; `tests` are rows of `paired_tests` with differences turned so that more
    is better; `sign` is −1 where a smaller mean is better.

    >>> tests = pd.DataFrame([dict(a="x", b="y", difference=0.1, low=-0.1, high=0.2, significant=False)])
    >>> sorted(unbeaten(pd.Series({"x": 0.5, "y": 0.4, "random": 0.9}), tests, {"random"}))
    ['x', 'y']
    """
    judged = sign * means[[str(e) not in controls for e in means.index]].dropna()
    if len(judged) < 2:  # alone, a method is neither best nor worst
        return set()
    best = str(judged.idxmax())
    return {
        best,
        *(str(e) for e in judged.index if str(e) != best and not above(tests, best, str(e))),
    }

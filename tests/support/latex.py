"""What LaTeX would reject in a table, without LaTeX."""

from __future__ import annotations

import re


def assert_compiles(text: str) -> None:
    """Check braces, special characters, and that every line of a table has as many cells as the table has columns."""
    code = "\n".join(line for line in text.splitlines() if not line.startswith("%"))
    plain = re.sub(r"\\[\\{}$&%#_]", "", code)
    assert plain.count("{") == plain.count("}") and plain.count("$") % 2 == 0
    assert "#" not in plain and "%" not in plain
    without_files = re.sub(r"\\(includegraphics|label)\{.*\}", "", plain)
    assert "_" not in without_files and "^" not in without_files and "~" not in without_files
    assert without_files.isascii() or not re.search(r"[°×·±−≥≤λσρτδε–]", without_files)
    tables = re.findall(
        r"\\begin\{tabular\}\{@\{\}(.*?)@\{\}\}(.*?)\\end\{tabular\}", code, re.DOTALL
    )
    assert tables
    for layout, body in tables:
        columns = len(re.sub(r"p\{[^}]*\}", "p", layout))
        for line in body.splitlines():
            if not line.endswith(r"\\"):
                continue
            spans = [int(count) - 1 for count in re.findall(r"\\multicolumn\{(\d+)\}", line)]
            cells = len(re.findall(r"(?<!\\)&", line)) + 1
            assert cells + sum(spans) == columns, line

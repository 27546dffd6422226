"""What an axis may put on the page, and what it is given to make it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import pandas as pd
from markupsafe import Markup

from holdfast.statistics.cubes import Cube
from holdfast.types import Shown


@dataclass(frozen=True)
class Panel:
    """A part of the page that is not a chart: pictures or a drawing, as HTML that is safe to embed."""

    key: str
    title: str
    caption: str
    html: Markup


@dataclass(frozen=True)
class Axis:
    """One evaluation of one dataset and model: its cube and rows, all samples, its exhibits, and its parameters.

    `related` has the rows of every evaluation of the same dataset and model, and of networks retrained from it.
    """

    cube: Cube
    rows: pd.DataFrame
    samples: pd.DataFrame
    exhibits: list[Shown]
    settings: Mapping[str, Any]
    manifest: Mapping[str, Any]
    related: pd.DataFrame = field(default_factory=pd.DataFrame)

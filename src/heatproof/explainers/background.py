"""The background of an explainer: samples whose values take the place of removed features.

A removed feature has the values of the background, and the score of what remains is the mean score over its rows,
Σ_r w_r f(x with the removed features of row r). That is the value function of SHAP's KernelExplainer. Methods that follow a
path from a baseline have the mean of their maps over all rows as baselines, which sum to f(x) − Σ_r w_r f(row r).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, is_dataclass, replace
from pathlib import Path
from typing import Annotated, Any

import torch
from pydantic import BeforeValidator, Field
from torch import Tensor

from heatproof.data.frames import FrameColumns, columns_of, is_frame
from heatproof.errors import UserError
from heatproof.explainers.baselines import REFERENCES, TENSOR, in_shape_of, rows_of_tensor
from heatproof.explainers.examples.training_set import Examples, examples, open_examples
from heatproof.features import Hiding
from heatproof.features.fill import Fill, filled
from heatproof.features.segments import COLUMNS
from heatproof.kinds import TABLE, DataKind
from heatproof.models import Model
from heatproof.types import Batch, name_of

_ROWS_TO_CLUSTER = 1000
"""The most rows of a study's data that k-means clusters."""
_PADDED = ("mask", "attention_mask")
_FORMS = (
    "rows of data (a tensor, an array, a frame, a path), a number of rows of the study's data, 'references', or "
    "{'kmeans': 10} for the centres of the study's data"
)


class Background:
    """Samples in the data's own units, with weights that sum to 1.

    The text form names them in words and is stored in the manifest.

    >>> Background(Examples(Batch(("a", "b"), torch.zeros(2, 3)), name="X_train"))
    2 rows of X_train (...)
    """

    def __init__(
        self,
        rows: Examples,
        weights: Tensor | None = None,
        description: str = "",
        frame: Any = None,
        clusters: int | None = None,
    ) -> None:
        """`frame` has the rows as a DataFrame, which a study encodes as it does its data; `clusters` are of k-means."""
        n = len(rows)
        self.rows = rows
        self.frame = frame
        self.clusters = clusters
        self.weights = torch.full((n,), 1 / n) if weights is None else weights / weights.sum()
        self.weights = self.weights.double()
        self.description = description or f"{n} {'row' if n == 1 else 'rows'} of {rows.name}"

    def values(self, name: str, model: Model, batch: Batch) -> tuple[Tensor, Tensor]:
        """Return the rows as normalised inputs (n, …), and their weights (n,), on the model's device.

        Raise for rows that are not like the samples that explainer `name` explains.
        """
        padded = sorted(set(_PADDED) & set(batch.aux))
        if padded:
            raise UserError(
                f"{name} cannot take a background for samples of different sizes (aux has {padded[0]!r}), because "
                "their positions do not correspond; leave it out"
            )
        rows = in_shape_of(self.rows, batch.x.shape[1:])
        expected, got = tuple(batch.x.shape[1:]), tuple(rows.batch.x.shape[1:])
        if expected != got:
            raise UserError(
                f"the background of {name} ({self}) has samples of shape {got}, and those to explain have {expected}"
            )
        # A single sample without a batch axis, such as a picture (C, H, W), has been made one row here. Its first axis
        # was counted as rows before, so the weights do not fit.
        is_single_sample = len(rows) != len(self.rows)
        weights = torch.ones(1).double() if is_single_sample else self.weights
        values = model.inputs(rows.batch.to(model.device)).detach()
        return values, weights.to(values.device)

    def in_columns(self, columns: FrameColumns | None) -> Background:
        """Return the background with its rows encoded as the study's data are, by the same columns and categories.

        Only where the rows came as a DataFrame, and so did the data, whose `columns` these are.
        """
        if self.frame is None or columns is None:
            return self
        frame = columns_of(self.frame, columns.names)
        values = torch.from_numpy(columns.encoded(frame))
        for name, is_gap in zip(columns.titles, values.isnan().any(0).tolist(), strict=True):
            if is_gap:
                raise UserError(
                    f"the background has a gap or a category that the data lack in {name.partition('=')[0]!r}; make it "
                    "a category with all its values: frame[column].astype(pandas.CategoricalDtype([...]))"
                )
        aux = {COLUMNS: torch.tensor(columns.owners).expand(len(values), -1)}
        ids = tuple(map(str, range(len(values))))
        batch = Batch(ids, values, aux if columns.has_categories else {})
        rows = Examples(batch, name=self.rows.name)
        if self.clusters is not None:
            return kmeans(rows, self.clusters)
        return Background(rows, self.weights, self.description)

    def mean(self) -> Tensor:
        """Return the mean sample (…) in the data's own units."""
        x = self.rows.batch.x.double()
        weights = self.weights.reshape(-1, *[1] * (x.ndim - 1))
        return (x * weights).sum(0)

    def __len__(self) -> int:
        return len(self.rows)

    def __eq__(self, other: object) -> bool:
        return (
            isinstance(other, Background)
            and self.rows == other.rows
            and torch.equal(self.weights, other.weights)
        )

    def __hash__(self) -> int:
        return hash(self.rows)

    def __repr__(self) -> str:
        return f"{self} ({self.rows.name_digest[:8]})"

    def __str__(self) -> str:
        return self.description


@dataclass(frozen=True)
class StudyRows:
    """A background of rows of the study's data, which the plan loads: `count` rows, or the reference samples if None.

    With `kmeans` it is the centres of that many clusters of the rows.
    """

    count: int | None = None
    kmeans: int | None = None

    def __str__(self) -> str:
        if self.kmeans is not None:
            return f"{self.kmeans} k-means centres"
        return REFERENCES if self.count is None else f"{self.count} rows"


def background(value: Any, *, folder: str | Path | None = None, allow_code: bool = False) -> Any:
    """Return the background that a user's `value` stands for: the samples that explainers put in absent features' place.

    A number is that many rows of the study's data, "references" its reference samples, {"kmeans": k} k cluster centres;
    anything else is data: a frame, an array, a tensor or a path. Relative paths are relative to `folder`; names that
    run code need `allow_code`.

    >>> background(50), background({"kmeans": 10}), background(torch.zeros(2, 3))
    (StudyRows(count=50, kmeans=None), StudyRows(count=None, kmeans=10), a tensor of shape 2×3 (...))
    """
    if value is None or isinstance(value, Background | StudyRows):
        return value
    if isinstance(value, str) and value == REFERENCES:
        return StudyRows()
    if isinstance(value, int) and not isinstance(value, bool):
        return StudyRows(count=_positive("background", value))
    if isinstance(value, Mapping) and "kmeans" in value:
        clusters = _positive("kmeans", value["kmeans"])
        source = {key: item for key, item in value.items() if key != "kmeans"}
        if not source:
            return StudyRows(kmeans=clusters)
        given = source.get("rows", source)
        centres = kmeans(_rows(given, folder, allow_code), clusters)
        if is_frame(given):
            centres.frame, centres.clusters = given, clusters
        return centres
    rows = _rows(value, folder, allow_code)
    if not isinstance(rows, Examples):
        raise UserError(f"a background is {_FORMS}; got {value!r}")
    if rows.name == TENSOR:  # which may be a single sample without a batch axis
        shape = "×".join(map(str, rows.batch.x.shape))
        return Background(rows, description=f"a tensor of shape {shape}")
    return Background(rows, frame=value if is_frame(value) else None)


def _field(value: Any) -> Any:
    return background(value)


BackgroundField = Annotated[Background | StudyRows | None, BeforeValidator(_field)]
"""The type of the field `background`."""


def _positive(name: str, value: Any) -> int:
    """Return a number of rows; raise `UserError` unless it is a whole number from 1 on."""
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise UserError(f"{name} is a number of rows from 1 on, got {value!r}")
    return value


def _rows(value: Any, folder: str | Path | None, allow_code: bool) -> Any:
    """Return examples from a frame, an array, or anything that `examples` takes."""
    if isinstance(value, Examples):
        return value
    if is_frame(value):
        return open_examples(value)
    if type(value).__module__ == "numpy":
        value = torch.as_tensor(value).float()
    if isinstance(value, Tensor):
        return rows_of_tensor(value)
    return examples(value, folder=folder, allow_code=allow_code)


def kmeans(rows: Examples, clusters: int) -> Background:
    """Return the centres of k-means clusters, weighted by their sizes, as `shap.kmeans` does.

    Each value of a centre is rounded to the nearest one that its column has, so that whole numbers stay whole.
    """
    if clusters > len(rows):
        raise UserError(f"kmeans={clusters} needs at least as many rows, and there are {len(rows)}")
    from heatproof.explainers.adapters.foreign import library  # adapters import this module

    cluster = library("sklearn.cluster", "sklearn")
    values = rows.batch.x.flatten(1).double()
    fit = cluster.KMeans(n_clusters=clusters, random_state=0, n_init=10).fit(values.numpy())
    centres = torch.from_numpy(fit.cluster_centers_)
    distance = (values[:, None] - centres).abs()  # (rows, clusters, columns)
    nearest_row = distance.argmin(0)
    rounded = values.gather(0, nearest_row).to(rows.batch.x.dtype)
    sizes = torch.from_numpy(fit.labels_).long().bincount(minlength=clusters)
    ids = tuple(f"centre {number}" for number in range(clusters))
    batch = Batch(ids, rounded.reshape(clusters, *rows.batch.x.shape[1:]))
    description = f"{clusters} k-means centres of {len(rows)} rows of {rows.name}"
    return Background(Examples(batch, name=rows.name), sizes.double(), description)


def loaded(name: str, value: Background | StudyRows | None) -> Background | None:
    """Return the background of explainer `name`; raise for one that only a study can load."""
    if isinstance(value, StudyRows):
        raise UserError(
            f"{name} has {value} as its background, which a study loads; here give the rows: background=X"
        )
    return value


def with_default_background(
    explainer: Any, kind: DataKind, of_study: Background | StudyRows | None = None
) -> Any:
    """Return an explainer with the study's background where the user chose neither one nor a fill or baseline.

    On tables that is by default the study's references, because zero, the default elsewhere, is a value like any other
    in the column of a table.

    >>> from heatproof.explainers import KernelShap
    >>> with_default_background(KernelShap(), TABLE).background
    StudyRows(count=None, kmeans=None)
    """
    if kind is TABLE and of_study is None:
        of_study = StudyRows()
    if of_study is None or not is_dataclass(explainer) or isinstance(explainer, type):
        return explainer
    changes: dict[str, Any] = {}
    inner = getattr(explainer, "of", None)
    if is_dataclass(inner):
        changes["of"] = with_default_background(inner, kind, of_study)
    constant = getattr(explainer, "fill", getattr(explainer, "baseline", None))
    has_choice = constant is not None
    if isinstance(constant, str) and constant == REFERENCES:
        has_choice = of_study == StudyRows()  # which are the references already
    hides_tokens = isinstance(getattr(explainer, "features", None), Hiding)
    if getattr(explainer, "background", "none") is None and not has_choice and not hides_tokens:
        changes["background"] = of_study
    return replace(explainer, **changes) if changes else explainer


def backgrounds_in(item: Any) -> list[Background | StudyRows]:
    """Return every background among the parameters of an explainer, and of the explainer inside it."""
    if isinstance(item, Background | StudyRows):
        return [item]
    if not is_dataclass(item) or isinstance(item, type):
        return []
    names = ("of", "background", "fill", "baseline")
    return [
        background for name in names for background in backgrounds_in(getattr(item, name, None))
    ]


def with_rows(
    explainer: Any, load: Callable[[int | None], Examples], columns: FrameColumns | None
) -> Any:
    """Return an explainer with its backgrounds loaded: rows of the study's data, or given rows encoded like them.

    `load(count)` gives `count` rows of the data, or the reference samples if that is None; `columns` are those of the
    data if they are a frame.
    """
    if not is_dataclass(explainer) or isinstance(explainer, type):
        return explainer
    changes: dict[str, Any] = {}
    inner = getattr(explainer, "of", None)
    if is_dataclass(inner):
        changes["of"] = with_rows(inner, load, columns)
    for name in ("background", "fill", "baseline"):
        value = getattr(explainer, name, None)
        if isinstance(value, Background | StudyRows):
            changes[name] = loaded_rows(value, load, columns)
    return replace(explainer, **changes) if changes else explainer


def loaded_rows(
    value: Background | StudyRows,
    load: Callable[[int | None], Examples],
    columns: FrameColumns | None,
) -> Background:
    """Return a background with its rows loaded and encoded like the study's data.

    `load(count)` gives `count` rows of the data, or the reference samples if that is None; `columns` are those of the
    data if they are a frame.
    """
    if isinstance(value, Background):
        return value.in_columns(columns)
    if value.kmeans is not None:
        return kmeans(load(_ROWS_TO_CLUSTER), value.kmeans)
    return Background(load(value.count))


@dataclass(frozen=True)
class Fills:
    """What takes the place of removed features: one fill per sample, or the rows of a background for all of them.

    `values` are (B, …) without weights, else (n, …) with weights (n,).
    """

    values: Tensor
    weights: Tensor | None = None

    def __len__(self) -> int:
        return 1 if self.weights is None else len(self.weights)

    def at(self, owner: Tensor, row: Tensor) -> Tensor:
        """Return R fills (R, …): for each r, that of sample owner[r] or, with a background, its row number row[r]."""
        return self.values[owner] if self.weights is None else self.values[row]

    def of_sample(self, sample: int, row: Tensor) -> Tensor:
        """Return the fills of one sample: rows number `row` (R,) of the background, (R, …), or its single fill (…)."""
        return self.values[sample] if self.weights is None else self.values[row]

    def of(self, samples: slice) -> Fills:
        """Return the fills of some of the samples."""
        return self if self.weights is not None else Fills(self.values[samples])

    def weight_of(self, row: Tensor) -> Tensor:
        """Return the weights (R,) of rows, which sum to 1 over all rows of a sample."""
        if self.weights is None:
            return torch.ones(len(row), dtype=torch.float64, device=row.device)
        return self.weights[row]


def fills_of(explainer: Any, model: Model, batch: Batch, inputs: Tensor, segments: Tensor) -> Fills:
    """Return what an explainer puts in the place of absent features, for the samples of a batch.

    They are the rows of its background if it has one, the sample that its fill may be, or else what `filled` gives.
    """
    rows = background_of(explainer)
    if rows is not None and isinstance(explainer.features, Hiding):
        raise UserError(
            f"{explainer.name} with {name_of(explainer.features)} hides tokens and needs no background; leave it out"
        )
    if rows is not None:
        return background_fills(explainer.name, rows, model, batch)
    if isinstance(explainer.features, Hiding):
        return Fills(inputs)
    fill: Fill = "zero" if explainer.fill is None else explainer.fill
    return Fills(filled(fill, model, batch, inputs, segments))


def background_of(explainer: Any) -> Background | None:
    """Return the samples that an explainer puts in absent features' place; None where its fill is no sample.

    These are its background, or its fill where that is a sample.
    """
    rows = loaded(explainer.name, explainer.background)
    if not isinstance(explainer.fill, Background):
        return rows
    if rows is not None:
        raise UserError(f"{explainer.name} takes a sample as fill or a background, not both")
    return explainer.fill


def background_fills(name: str, rows: Background, model: Model, batch: Batch) -> Fills:
    """Return the rows of a background as the fills of explainer `name`."""
    return Fills(*rows.values(name, model, batch))


def _one_sample(value: Any) -> Any:
    """Return a tensor as a background of one sample, and any other fill as it is."""
    if isinstance(value, Tensor) and value.ndim == 0:
        return float(value)
    if isinstance(value, Tensor) or type(value).__module__ == "numpy":
        return background(value)
    if isinstance(value, Examples):
        return Background(value)
    return value


FillField = Annotated[Fill | Background, BeforeValidator(_one_sample)]
"""The type of the field `fill`: a word, a number, or a sample in the data's own units."""
NumberOrSample = Annotated[
    Annotated[float, Field(allow_inf_nan=False)] | Background, BeforeValidator(_one_sample)
]
"""The same without the words."""

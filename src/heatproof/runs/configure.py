"""A study configured for one data set and model: every default filled in, and what does not apply refused."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

from heatproof.data import Data
from heatproof.errors import UserError, unknown
from heatproof.evaluation import Evaluation
from heatproof.explainers.background import (
    Background,
    StudyRows,
    loaded_rows,
    with_default_background,
    with_rows,
)
from heatproof.explainers.baselines import REFERENCES, check_baseline
from heatproof.explainers.examples.training_set import Examples
from heatproof.kinds import TABLE, kind_of
from heatproof.models import Model
from heatproof.models.absent import WITHOUT_MODEL
from heatproof.models.guards import (
    check_arguments,
    has_one_output,
    refuse_byte_range,
    refuse_single_image,
)
from heatproof.models.model import ONE_OUTPUT
from heatproof.models.tasks import Binary
from heatproof.runs.references import load_references
from heatproof.types import Batch, Explainer, Stored

NAME_THE_DATA = "an evaluation for some of the data sets names them, as in data: [{}]"


@dataclass(frozen=True)
class ConfiguredStudy:
    """The explainers and evaluations of a study as they are for one data set and model.

    `evaluations` are those that are for this data set. Nothing is left at a default that depends on the data.
    """

    explainers: Mapping[str, Explainer]
    evaluations: Mapping[str, Evaluation]

    def left_out(self, evaluation: str) -> dict[str, str]:
        """Return explainer -> why this evaluation does not judge it."""
        reasons = {}
        for name, explainer in self.explainers.items():
            reason = why_left_out(evaluation, self.evaluations[evaluation], name, explainer)
            if reason:
                reasons[name] = reason
        return reasons

    def judged(self, evaluation: str) -> list[str]:
        """Return the explainers that an evaluation judges."""
        left_out = self.left_out(evaluation)
        return [name for name in self.explainers if name not in left_out]

    def condition_count(self, evaluation: str) -> int:
        """Return how many conditions an evaluation has for every explainer; a pairwise one has one per other explainer."""
        if self.evaluations[evaluation].pairwise:
            return len(self.judged(evaluation)) - 1
        return len(self.evaluations[evaluation].conditions())


def configure(
    dataset: str,
    source: Data,
    sample: Batch,
    model: Model,
    explainers: Mapping[str, Explainer],
    evaluations: Mapping[str, Evaluation],
    other_data: bool = False,
    background: Background | None = None,
) -> ConfiguredStudy:
    """Return the study configured for one data set, of which `sample` is any sample, and one model.

    Every explainer and evaluation that does not apply is named in one `UserError`; `other_data` says that the study has
    other data sets too. Evaluations that remove features take the study's `background`.
    """
    shape = tuple(sample.x.shape[1:])
    refuse_single_image(model, len(source), shape)
    refuse_byte_range(model, shape)
    _check_channels(model, source.name, shape)
    check_arguments(model, sample.aux)
    problems: list[UserError] = []
    configured_explainers: dict[str, Explainer] = {}
    for name, explainer in explainers.items():
        for_data = explainer
        try:
            if isinstance(explainer, Stored):
                explainer.check_ids(source.ids, source.name)
                for_data = explainer.for_ids(source.ids)
            check_baseline(explainer, name, shape)
            own_background = getattr(explainer, "background", None)
            if isinstance(own_background, Background):
                own_background.values(name, model, sample)  # refuses rows of another shape
            configured_explainers[name] = for_data.configured_for(model, sample)
        except UserError as error:
            problems.append(error)
    _raise_all(problems, f"{model.name} on {dataset}")

    configured_evaluations: dict[str, Evaluation] = {}
    asking_a_model = []
    for name, evaluation in evaluations.items():
        if evaluation.data is not None and dataset not in evaluation.data:
            continue
        if model.is_absent and evaluation.needs_model:
            asking_a_model.append(name)
            continue
        try:
            configured_evaluation = evaluation.configured_for(model, sample)
            if background is not None:
                mean = background.mean()
                configured_evaluation = configured_evaluation.with_background(mean, str(background))
            configured_evaluations[name] = configured_evaluation
        except UserError as error:
            problems.append(error)
    if asking_a_model:
        names = " and ".join(asking_a_model)
        needs = "needs" if len(asking_a_model) == 1 else "need"
        problems.append(
            UserError(f"{names} {needs} a model, and the study names none; {WITHOUT_MODEL}")
        )
    if problems and other_data:
        problems.append(UserError(NAME_THE_DATA.format(dataset)))
    _raise_all(problems, f"{model.name} on {dataset}")
    configured = ConfiguredStudy(configured_explainers, configured_evaluations)
    _check_something_to_judge(configured)
    return configured


def why_left_out(name: str, evaluation: Evaluation, label: str, explainer: Explainer) -> str:
    """Return why an evaluation does not judge an explainer; empty where it does.

    An evaluation that `reexplains` may ask for maps of changed inputs, which stored maps are not.
    """
    if explainer.kind not in evaluation.kinds:
        kinds = " and ".join(sorted(evaluation.kinds))
        return (
            f"{name} judges {kinds} explanations, and {label} gives {explainer.kind} explanations"
        )
    if isinstance(explainer, Stored) and evaluation.reexplains:
        return f"{name} explains changed inputs anew, and {label} only has maps of the data as they are"
    return ""


def check_data_names(evaluations: Mapping[str, Evaluation], datasets: Iterable[str]) -> None:
    """Raise `UserError` for an evaluation that is for a data set which the study does not have."""
    names = list(datasets)
    for label, evaluation in evaluations.items():
        for dataset in evaluation.data or ():
            if dataset not in names:
                raise unknown(f"data set of {label}", dataset, names)


def with_evident_task(model: Model, datasets: Mapping[str, Data]) -> Model:
    """Return the model, as a yes-or-no classifier where it has one output and the labels are 0 and 1.

    Any other network with one output and no task is refused. How many outputs a network has is looked up in its last
    layer; where that does not tell, the first pass does.
    """
    if model.declared is not None or not has_one_output(model.module):
        return model
    labels: set[int] = set()
    for data in datasets.values():
        labels.update(data.labels or ())
    if labels - {-1} == {0, 1}:  # −1 is a sample without a label
        return model.asked(Binary())
    raise UserError(f"{model.name} {ONE_OUTPUT}")


def with_references(
    explainers: Mapping[str, Explainer],
    dataset: str,
    source: Data,
    model: Model,
    sample: Batch,
    seed: int,
    count: int | None,
    background: Background | StudyRows | None = None,
) -> tuple[dict[str, Explainer], Background | None]:
    """Return the explainers with the rows of a data set, where their baseline or background is to be these.

    The `background` of the study is that of every explainer which removes or samples features and names none; it is
    returned too. On tables, the references are. `sample` is any sample.
    """

    @lru_cache
    def load_rows(rows: int | None) -> Examples:
        batch = load_references(source, seed, count if rows is None else rows)
        return Examples(batch, name=dataset)

    kind = kind_of(model, sample)
    if background is None and kind is TABLE:
        background = StudyRows()
    of_study = None if background is None else loaded_rows(background, load_rows, source.frame)
    configured: dict[str, Explainer] = {}
    for name, explainer in explainers.items():
        with_default: Any = with_default_background(explainer, kind, background)
        loaded: Any = with_rows(with_default, load_rows, source.frame)
        for field in ("baseline", "background"):
            # A text, not yet the rows of a `Background`: the form that adapters of libraries have.
            if getattr(loaded, field, None) == REFERENCES:
                pool = load_rows(None) if of_study is None else of_study.rows
                value = pool if field == "baseline" else pool.batch.x
                loaded = replace(loaded, **{field: value})
        configured[name] = loaded
    return configured, of_study


def _check_channels(model: Model, source: str, shape: tuple[int, ...]) -> None:
    for what, values in (("mean", model.mean), ("std", model.std)):
        if values is not None and len(values) > 1 and len(values) != shape[0]:
            channels = f"{len(values)} channels, but samples of {source} have shape {shape}"
            raise UserError(f"the {what} of model {model.name} has {channels}")


def _raise_all(problems: list[UserError], where: str) -> None:
    """Raise the problem if there is one, or a list of them."""
    if len(problems) == 1:
        raise problems[0]
    if problems:
        lines = "\n  ".join(map(str, problems))
        raise UserError(f"{where}:\n  {lines}")


def _check_something_to_judge(configured: ConfiguredStudy) -> None:
    """Raise `UserError` for an evaluation that judges none of the explainers, or too few."""
    for name, evaluation in configured.evaluations.items():
        if not any(
            explainer.kind in evaluation.kinds for explainer in configured.explainers.values()
        ):
            kinds = " and ".join(sorted(evaluation.kinds))
            raise UserError(f"{name} judges {kinds} explanations, and no explainer gives them")
        left_out = configured.left_out(name)
        judged = configured.judged(name)
        if not judged:
            raise UserError(f"{name} has nothing to judge: {next(iter(left_out.values()))}")
        if evaluation.pairwise and len(judged) < 2:
            raise UserError(
                f"{name} compares explainers with each other, and there is one; name another or leave it out"
            )

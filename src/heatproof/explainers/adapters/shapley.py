"""Adapter for SHAP's explainers: expected gradients, DeepLIFT, Owen values of a partition, and trees."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any, ClassVar, Literal

import numpy as np
import torch
from pydantic import BeforeValidator
from torch import Tensor, nn

from heatproof.errors import UserError
from heatproof.explainers.adapters.foreign import (
    Arguments,
    Foreign,
    has_two_classes,
    library,
    unwrapped,
)
from heatproof.explainers.adapters.isolation import (
    Adapter,
    Compute,
    foreign_errors,
    library_seed,
    seeded,
)
from heatproof.explainers.baselines import REFERENCES
from heatproof.explainers.gradient import slices
from heatproof.features.segments import COLUMNS
from heatproof.models import Model
from heatproof.models.loaders.sklearn import SklearnNetwork
from heatproof.types import Batch, Explainer, parameter_class


def _number_text_or_samples(value: Any) -> Any:
    return value if isinstance(value, str | int | float) else Foreign.of(value)


Background = Annotated[Any, BeforeValidator(_number_text_or_samples)]


class ClassScore(nn.Module):
    """A network that returns the scores (B, 1) of one class, so that SHAP does not explain all of them.

    >>> ClassScore(nn.Linear(3, 5), 2)(torch.rand(4, 3)).shape
    torch.Size([4, 1])
    """

    def __init__(self, network: nn.Module, target: int) -> None:
        super().__init__()
        self.network = network
        self.target = target

    def forward(self, inputs: Tensor) -> Tensor:
        """The scores of the class."""
        scores: Tensor = self.network(inputs)
        return scores[:, self.target : self.target + 1]


@parameter_class
class Shap(Adapter):
    """SHAP values of the target's logit, one sample at a time; (B, …) in the shape of the input.

    `method` is "gradient" (`shap.GradientExplainer`, expected gradients), "deep" (`shap.DeepExplainer`), "partition"
    (`shap.PartitionExplainer`), or "tree" (`shap.TreeExplainer`) for forests and boosted trees of scikit-learn, whose
    own output it explains: shares of classes of a forest, log-odds of boosted trees. `background` is what absent
    features become, in the data's own units: samples (n, …), or one number for all values. For the partition of an
    image it may also be the text of a masker such as "blur(16,16)", which needs OpenCV; of samples the first is taken.
    `arguments` go to the call, such as `nsamples` for "gradient" or `max_evals` for "partition".

    >>> Shap("gradient").stochastic, Shap("deep", background=0.5).stochastic
    (True, False)
    """

    name: ClassVar[str] = "shap"
    one_at_a_time: ClassVar[bool] = True

    method: Literal["gradient", "deep", "partition", "tree"]
    background: Background = 0.0
    arguments: Arguments = None

    @property
    def stochastic(self) -> bool:  # type: ignore[override]
        """Whether the seed matters; for a partition it decides between halves that are equally worth cutting."""
        return self.method in ("gradient", "partition")

    def check(self, model: Model, shape: Sequence[int]) -> None:
        """Raise for a model that is no plain network, and for a background or samples that the method cannot use."""
        super().check(model, shape)
        library("shap", "shap")
        if self.method == "tree" and not isinstance(model.module, SklearnNetwork):
            raise UserError(
                f"{self._label} explains trees of scikit-learn, and {model.name} is a network"
            )
        reads_numbers = getattr(model.module, "reads_numbers", True)
        if self.method == "tree" and not reads_numbers:
            raise UserError(
                f"{self._label} explains trees of columns of numbers in the order of the data, and {model.name} "
                "reads categories or another order; use kernel_shap"
            )
        if self.method in ("gradient", "deep") and not model.is_differentiable:
            raise UserError(
                f"{self._label} reads gradients, and {model.name} gives none; use partition or tree"
            )
        if self.background == REFERENCES:
            raise UserError(
                f"{self._label} has references as its background, which a study knows; give samples here"
            )
        if model.embedding is not None:
            raise UserError(
                f"{self._label} needs numbers that can be replaced, and tokens of {model.name} cannot"
            )
        if self.method == "partition" and len(shape) not in (1, 3):
            raise UserError(
                f"{self._label} takes images (C, H, W) or tables (n,), got samples of shape {tuple(shape)}"
            )
        if not isinstance(self.background, str):
            self._background_samples(shape)
        elif self.method != "partition" or len(shape) != 3:
            raise UserError(f"a masker such as {self.background!r} is for the partition of images")

    def library_call(self, model: Model, batch: Batch) -> Compute:
        """Return a function (network, inputs, classes) → values that calls SHAP's explainer for one sample."""
        shap = library("shap", "shap")
        arguments = unwrapped(self.arguments)
        background: Any = self.background
        if not isinstance(background, str):
            samples = self._background_samples(batch.x.shape[1:])
            ids = tuple(str(number) for number in range(len(samples)))
            background = model.inputs(Batch(ids, samples)).detach()

        def compute(network: nn.Module, inputs: Tensor, classes: Tensor) -> Any:
            """Return SHAP's values of one sample for the class in `classes` (1,)."""
            if self.method == "tree":
                return _tree(shap, model.module, inputs, int(classes[0]))
            score = ClassScore(network, int(classes[0])).eval()
            if self.method == "partition":
                return _partition(shap, score, background, inputs, arguments)
            if self.method == "gradient":
                explainer = shap.GradientExplainer(score, background)
            else:
                explainer = shap.DeepExplainer(score, background)
            return explainer.shap_values(inputs, **arguments)[..., 0]

        return compute

    def _background_samples(self, shape: Sequence[int]) -> Tensor:
        """Return the background (n, …) in the data's own units; raise if it is not like samples of `shape`."""
        if isinstance(self.background, int | float):
            return torch.full((1, *shape), float(self.background))
        try:
            samples = torch.as_tensor(self.background.value, dtype=torch.float32)
        except (TypeError, ValueError, RuntimeError) as error:
            raise UserError(
                f"the background of {self._label} must be numbers, got {self.background}"
            ) from error
        if samples.shape[1:] != torch.Size(shape) or not len(samples):
            expected = f"(n, {', '.join(map(str, shape))})"
            raise UserError(
                f"the background of {self._label} has shape {tuple(samples.shape)}, expected {expected}"
            )
        return samples


@parameter_class
class ShapObject(Explainer):
    """Values of an explainer of SHAP as it is, such as `shap.TreeExplainer(forest)`, for models of tables; (B, F).

    It is called as `explainer(rows)` with rows as the model reads them, and explains its own output: shares of classes
    of a forest, log-odds of boosted trees. Of several outputs the values are those of the explained class. Permutation
    and sampling explainers draw random numbers, and get one row at a time from a seed of its own.
    """

    name: ClassVar[str] = "shap_explainer"
    whole_features = True
    cost = "as the explainer of SHAP is set"

    explainer: Annotated[Any, BeforeValidator(Foreign.of)]

    @property
    def stochastic(self) -> bool:  # type: ignore[override]
        """Whether the seed matters: not for trees and linear models."""
        return type(self.explainer.value).__name__ not in _DETERMINISTIC

    def check(self, model: Model, shape: Sequence[int]) -> None:
        """Raise for a model that is no model of tables."""
        if not isinstance(model.module, SklearnNetwork):
            raise UserError(
                f"{self._label} explains a model of tables, and {model.name} is a network; use adapters.shap"
            )

    @property
    def _label(self) -> str:
        return f"{self.name}({type(self.explainer.value).__name__})"

    def __call__(self, model: Model, batch: Batch, target: Tensor, seed: int) -> Tensor:
        """Return the SHAP values (B, F) of the classes `target` (B,); a category's columns share its value."""
        network: Any = model.module
        is_binary = has_two_classes(model)
        maps = []
        # One row at a time where random numbers are drawn, so that they depend on the row alone.
        for part in slices(len(batch), 1 if self.stochastic else len(batch)):
            ids = batch.ids[part]
            with (
                foreign_errors(self._label, ids),
                seeded(library_seed(seed, ids[0]), model.device),
            ):
                values = np.asarray(self.explainer.value(network.rows(batch.x[part])).values)
            for row, explained in zip(values, target[part].tolist(), strict=True):
                maps.append(_of_target(row, explained, is_binary))
        rows = torch.from_numpy(np.stack(maps)).to(batch.x.device, torch.float32)
        owners = batch.aux.get(COLUMNS)
        return rows if owners is None else rows.gather(1, owners.to(rows.device))


_DETERMINISTIC = (
    "TreeExplainer",
    "GPUTreeExplainer",
    "LinearExplainer",
    "AdditiveExplainer",
    "ExactExplainer",
)


def _of_target(values: Any, target: int, is_binary: bool) -> Any:
    """Return SHAP's values (F,) of the class `target`, from `values` (F,) of one output or (F, classes) of several."""
    if values.ndim == 2:
        return values[:, min(target, values.shape[1] - 1)]
    # Boosted trees of two classes have one output, the log-odds of the second class.
    return -values if is_binary and target == 0 else values


def _tree(shap: Any, network: Any, inputs: Tensor, target: int) -> Any:
    """Return SHAP's values (1, F) of one sample (1, F) for the class `target` of a tree model, by `TreeExplainer`."""
    estimator = network.estimator
    values = np.asarray(shap.TreeExplainer(estimator).shap_values(inputs.cpu().numpy()))
    is_binary = len(getattr(estimator, "classes_", ())) == 2
    return np.stack([_of_target(row, target, is_binary) for row in values])


def _partition(
    shap: Any, score: nn.Module, background: Any, inputs: Tensor, arguments: dict[str, Any]
) -> Any:
    """Return the Owen values of one image (1, C, H, W) or row (1, n), by SHAP's `PartitionExplainer`.

    `score` is the network's score of the explained class. `background` are samples that replace hidden features, or for
    images the name of a masker of SHAP. SHAP takes images with the channels last.
    """
    is_image = inputs.ndim == 4

    def predict(rows: Any) -> Any:
        """Return the scores of samples in SHAP's layout, as arrays."""
        versions = torch.as_tensor(np.asarray(rows), dtype=torch.float32, device=inputs.device)
        if is_image:
            versions = versions.permute(0, 3, 1, 2)
        with torch.no_grad():
            return score(versions).cpu().numpy()

    if not is_image:
        masker = shap.maskers.Partition(background.cpu().numpy())
        explanation = shap.PartitionExplainer(predict, masker)(inputs.cpu().numpy(), **arguments)
        return explanation.values[..., 0]

    image = inputs.permute(0, 2, 3, 1).cpu().numpy()
    if isinstance(background, str):
        fill = background
    else:
        fill = background[0].permute(1, 2, 0).cpu().numpy()
    masker = shap.maskers.Image(fill, image.shape[1:])
    explanation = shap.PartitionExplainer(predict, masker)(image, **arguments)
    return explanation.values[..., 0].transpose(0, 3, 1, 2)

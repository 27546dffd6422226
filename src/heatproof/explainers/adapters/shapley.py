"""SHAP's explainers: expected gradients, DeepLIFT against a background, Owen values of a partition, and trees."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any, ClassVar, Literal

import numpy as np
import torch
from pydantic import BeforeValidator
from pydantic.dataclasses import dataclass
from torch import Tensor, nn

from heatproof.errors import UserError
from heatproof.explainers.adapters.foreign import Arguments, Foreign, library, unwrapped
from heatproof.explainers.adapters.isolation import Adapter, check_network, foreign_maps
from heatproof.explainers.baselines import REFERENCES
from heatproof.models import Model
from heatproof.models.loaders.sklearn import SklearnNetwork
from heatproof.types import STRICT, Batch


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


@dataclass(frozen=True, config=STRICT)
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

    method: Literal["gradient", "deep", "partition", "tree"]
    background: Background = 0.0
    arguments: Arguments = None

    @property
    def stochastic(self) -> bool:  # type: ignore[override]
        """Whether the seed matters; for a partition it decides between halves that are equally worth cutting."""
        return self.method in ("gradient", "partition")

    def check(self, model: Model, shape: Sequence[int]) -> None:
        """Refuse a model that is no plain network, and a background or samples that the method cannot use."""
        check_network(self._label, model)
        library("shap", "shap")
        if self.method == "tree" and not isinstance(model.module, SklearnNetwork):
            raise UserError(
                f"{self._label} explains trees of scikit-learn, and {model.name} is a network"
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
        if isinstance(self.background, str):
            if self.method != "partition" or len(shape) != 3:
                raise UserError(
                    f"a masker such as {self.background!r} is for the partition of images"
                )
        else:
            self._samples(shape)

    def __call__(self, model: Model, batch: Batch, target: Tensor, seed: int) -> Tensor:
        """Maps (B, …) for the classes `target` (B,)."""
        shap = library("shap", "shap")
        shape, arguments = tuple(batch.x.shape[1:]), unwrapped(self.arguments)
        background: Any = self.background
        if not isinstance(background, str):
            samples = self._samples(shape)
            background = model.inputs(Batch(tuple(map(str, range(len(samples)))), samples)).detach()

        def compute(network: nn.Module, inputs: Tensor, classes: Tensor) -> Any:
            if self.method == "tree":
                return _tree(shap, model.module, inputs, int(classes[0]))
            score = ClassScore(network, int(classes[0])).eval()
            if self.method == "partition":
                return _partition(shap, score, background, inputs, arguments)
            explain = (shap.GradientExplainer if self.method == "gradient" else shap.DeepExplainer)(
                score, background
            )
            return explain.shap_values(inputs, **arguments)[..., 0]

        return foreign_maps(
            self._label, compute, model, batch, target, seed, draws=self.stochastic, alone=True
        )

    def _samples(self, shape: Sequence[int]) -> Tensor:
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


def _tree(shap: Any, network: Any, inputs: Tensor, target: int) -> Any:
    """Values (1, F) of one sample's class; boosted trees of two classes have those of the second only."""
    values = np.asarray(shap.TreeExplainer(network.estimator).shap_values(inputs.cpu().numpy()))
    if values.ndim == 3:
        return values[..., target]
    return (
        -values if target == 0 and len(getattr(network.estimator, "classes_", ())) == 2 else values
    )


def _partition(
    shap: Any, score: nn.Module, background: Any, inputs: Tensor, arguments: dict[str, Any]
) -> Any:
    """Owen values of one sample; SHAP cuts images in two with the channels last."""
    is_image = inputs.ndim == 4

    def predict(rows: Any) -> Any:
        given = torch.as_tensor(np.asarray(rows), dtype=torch.float32, device=inputs.device)
        with torch.no_grad():
            return score(given.permute(0, 3, 1, 2) if is_image else given).cpu().numpy()

    if is_image:
        own = inputs.permute(0, 2, 3, 1).cpu().numpy()
        fill = (
            background
            if isinstance(background, str)
            else background[0].permute(1, 2, 0).cpu().numpy()
        )
        masker = shap.maskers.Image(fill, own.shape[1:])
    else:
        own = inputs.cpu().numpy()
        masker = shap.maskers.Partition(background.cpu().numpy())
    values = shap.PartitionExplainer(predict, masker)(own, **arguments).values[..., 0]
    return values.transpose(0, 3, 1, 2) if is_image else values

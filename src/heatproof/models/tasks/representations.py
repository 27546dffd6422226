"""Numbers to explain of models without labels: what is read off a representation."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal

import numpy as np
import torch
from pydantic import BeforeValidator, Field
from torch import Tensor
from torch.nn.functional import cosine_similarity, normalize

from heatproof.errors import UserError
from heatproof.models.network import scores_in
from heatproof.models.tasks.contract import FIXED, Aux, BaseTask, Named, at, repeated_column
from heatproof.types import parameter_class

Reading = Literal["self", "norm", "unit", "cosine"]
Vectors = tuple[tuple[float, ...], ...]


def _unit_vectors(reference: Any) -> Vectors | None:
    """Return the user's reference vectors (M, D), scaled to length 1, as nested tuples; None for None.

    They are given as vectors, as one vector (D,), or as the path of an `.npy`, or of an `.npz` with `x`.
    """
    if reference is None:
        return None
    if isinstance(reference, str | Path):
        reference = _stored_vectors(Path(reference).expanduser())
    try:
        vectors = torch.as_tensor(reference, dtype=torch.float64).detach().cpu()
    except (TypeError, ValueError, RuntimeError) as error:
        raise UserError(
            f"reference must be vectors (M, D), a tensor or the path of an .npy or .npz, got {type(reference).__name__}"
        ) from error
    vectors = vectors[None] if vectors.ndim == 1 else vectors
    if vectors.ndim != 2 or not vectors.numel() or not bool(vectors.isfinite().all()):
        raise UserError(
            f"reference must be finite vectors (M, D), got shape {tuple(vectors.shape)}"
        )
    if bool((vectors.norm(dim=1) == 0).any()):
        raise UserError("reference has a vector of zeros, which has no direction")
    return tuple(map(tuple, normalize(vectors, dim=1).tolist()))


def _stored_vectors(path: Path) -> np.ndarray[Any, Any]:
    """Return the array in an .npy file, or the array `x` in an .npz file."""
    try:
        content = np.load(path, allow_pickle=False)
        if isinstance(content, np.ndarray):
            return content
        return np.asarray(content["x"])
    except (OSError, ValueError, KeyError) as error:
        raise UserError(
            f"cannot read reference vectors from {str(path)!r}: an .npy, or an .npz with x, was expected ({error})"
        ) from error


@parameter_class
class Representation(BaseTask):
    """A representation h(x), (B, D), of a model without labels: `read` says which number of it is explained.

    self     ⟨h(x), h(x₀)⟩ with the sample x₀ as it is, label-free feature importance (Crabbé and van der Schaar 2022)
    norm     ‖h(x)‖₂
    unit     h_u(x), the entry of number `unit`
    cosine   (1/M) Σ_r cos(h(x), r) over the vectors r of `reference`, such as the representations of a corpus

    The prediction is unchanged while the cosine of the representations is at least `least_cosine`. The table has the
    number, then the D entries. Representations with positions, (B, C, H, W), are flattened.

    >>> task = Representation(read="cosine", reference=[[1.0, 0.0], [0.0, 2.0]])
    >>> task.table(torch.tensor([[3.0, 0.0]]), {}).tolist()
    [[0.5, 3.0, 0.0]]
    """

    name: ClassVar[str] = "representation"
    read: Reading = "self"
    unit: Annotated[int, Field(ge=0)] | None = None
    reference: Annotated[Vectors | None, BeforeValidator(_unit_vectors)] = None
    least_cosine: Annotated[float, Field(gt=-1, le=1)] = 0.9

    def __post_init__(self) -> None:
        """Check that `unit` and `reference` are given where `read` needs them, and only there."""
        for needed, value in (("unit", self.unit), ("cosine", self.reference)):
            parameter = "unit" if needed == "unit" else "reference"
            if self.read == needed and value is None:
                raise UserError(f"read: {needed} needs {parameter}")
            if self.read != needed and value is not None:
                raise UserError(f"{parameter} is for read: {needed}, got read: {self.read}")

    @property
    def readout(self) -> str:
        """Return in words which number of the representation is explained."""
        words = {
            "self": "the inner product of the representation with that of the untouched sample",
            "norm": "the length of the representation",
            "unit": f"unit {self.unit} of the representation",
            "cosine": f"the mean cosine of the representation with {self._reference_text}",
        }
        return words[self.read]

    @property
    def unchanged(self) -> str:
        """How similar the representations must be."""
        return f"the representation keeps a cosine of at least {self.least_cosine:g}"

    @property
    def fixes(self) -> str:
        """The representation of the untouched sample, where it is read."""
        return FIXED if self.read == "self" else ""

    @property
    def _reference_text(self) -> str:
        # With a digest, since a run may be resumed with the same vectors only.
        vectors = self.reference or ()
        digest = hashlib.sha256(repr(vectors).encode()).hexdigest()[:8]
        return f"{len(vectors)} vectors ({digest})"

    def table(self, output: Any, aux: Aux) -> Tensor:
        """Return the explained number and then the D entries of each representation, (B, 1 + D)."""
        h = scores_in(output).flatten(1)
        return torch.cat([self._number(h, aux)[:, None], h], 1)

    def _number(self, h: Tensor, aux: Aux) -> Tensor:
        """Return the explained number of each representation h (B, D), as `self.read` says, (B,).

        It is the product with the unchanged sample's representation, the length, one entry, or the mean cosine with the
        reference vectors.
        """
        if self.read == "self":
            return (h * aux[FIXED].to(h)).sum(1)
        if self.read == "norm":
            length: Tensor = h.norm(dim=1)
            return length
        if self.read == "unit":
            return at(h, repeated_column(self.name, self.unit, h))
        reference = torch.tensor(self.reference, dtype=h.dtype, device=h.device)
        if reference.shape[1] != h.shape[1]:
            raise UserError(
                f"the representation has {h.shape[1]} entries, but the reference vectors have {reference.shape[1]}"
            )
        # The reference vectors have length 1, so the product with their mean is the mean of the cosines.
        return normalize(h, dim=1) @ reference.mean(0)

    def target(self, table: Tensor) -> Tensor:
        """Return the explained column of each row (B,): the first one, which has the number."""
        return repeated_column(self.name, 0, table)

    def same(self, before: Tensor, after: Tensor, target: Tensor) -> Tensor:
        """Return whether representations before and after a change have a cosine of at least `self.least_cosine`."""
        return cosine_similarity(before[..., 1:], after[..., 1:], dim=-1) >= self.least_cosine

    def change(self, before: Tensor, after: Tensor, target: int, named: Named) -> str:
        """Return a sentence saying how similar the representations before and after a change are."""
        cosine = float(cosine_similarity(before[1:], after[1:], dim=0))
        return f"the representation moved: its cosine is {cosine:.2f}, below {self.least_cosine:g}"

    def fix(self, output: Any, aux: Aux) -> Tensor:
        """The representation of the sample as it is, (B, D)."""
        return scores_in(output).flatten(1).detach()


def resolved_reference(task: Any, folder: Path) -> Any:
    """Return a task of a study file, with the path of its reference vectors relative to the folder of the file."""
    parameters = task.get(Representation.name) if isinstance(task, dict) else None
    if not isinstance(parameters, dict) or not isinstance(parameters.get("reference"), str):
        return task
    path = str(folder / Path(parameters["reference"]).expanduser())
    return {Representation.name: {**parameters, "reference": path}}

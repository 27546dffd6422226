"""Guards: outputs that are not what a task reads, told by the network's layers or by the numbers it gives."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from inspect import Parameter, signature
from typing import TYPE_CHECKING

from scipy import stats
from torch import Tensor, nn

from heatproof.errors import UserError
from heatproof.models.tasks import Task

if TYPE_CHECKING:
    from heatproof.models import Model

_SQUASHING = {nn.Softmax: "softmax", nn.Softmax2d: "softmax", nn.Sigmoid: "sigmoid"}
ALMOST = 1e-3
"""How far from 1 a sum of probabilities may be for rounding."""


def refuse_squashed(module: nn.Module, name: str, task: Task) -> None:
    """Refuse a network whose last layer, as far as that is sure, makes probabilities where a task reads logits.

    >>> from heatproof.models.tasks import Classification
    >>> refuse_squashed(nn.Sequential(nn.Linear(3, 2), nn.Softmax(1)), "net", Classification())
    Traceback (most recent call last):
    heatproof.errors.UserError: net ends in a softmax, but classification reads logits; leave it off, or ...
    """
    last = module
    while isinstance(last, nn.Sequential) and len(last):
        last = last[-1]
    layer = _SQUASHING.get(type(last))
    if layer is not None and reads_logits(task):
        raise UserError(
            f"{name} ends in a {layer}, but {task.name} reads logits; leave it off, {or_say(task)}"
        )


def has_one_output(module: nn.Module) -> bool:
    """Whether the last layer of a network, as far as that is sure, has one output.

    >>> has_one_output(nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 1))), has_one_output(nn.Identity())
    (True, False)
    """
    layers = [part for part in module.modules() if isinstance(part, nn.Linear)]
    return bool(layers) and layers[-1].out_features == 1


def refuse_probabilities(table: Tensor, name: str, task: Task) -> None:
    """Refuse a table (R, K) of logits whose rows are all at least 0 and sum to 1: they have been through a softmax.

    >>> from heatproof.models.tasks import Classification
    >>> refuse_probabilities(torch.tensor([[0.5, 0.5], [2.0, -1.0]]), "net", Classification())
    """
    if not reads_logits(task) or table.shape[1] < 2 or len(table) < 2:
        return
    between = ((table > 0) & (table < 1)).any()  # zeros and ones alone are no trace of a softmax
    if bool(between & ((table >= 0).all(1) & ((table.double().sum(1) - 1).abs() < ALMOST)).all()):
        raise UserError(
            f"the outputs of {name} are probabilities: at least 0, and of every sample they sum to 1; {task.name} "
            f"reads logits. Leave the softmax off, {or_say(task)}"
        )


def check_arguments(model: Model, aux: Iterable[str]) -> None:
    """Refuse data that do not bring what a network's `forward` asks for beside x, or bring what it does not take.

    >>> from heatproof.models import Model
    >>> check_arguments(Model(nn.Bilinear(2, 2, 2)), ())
    Traceback (most recent call last):
    heatproof.errors.UserError: Bilinear takes input2 beside its first input, which the data do not bring; ...
    """
    try:
        taken = list(signature(model.module.forward).parameters.values())
    except (TypeError, ValueError):  # a scripted network does not say
        return
    given = {name for name in aux if not name.startswith("_")}
    if model.embedding is None and taken and taken[0].kind is not Parameter.VAR_POSITIONAL:
        taken = taken[1:]
    named = [
        p for p in taken if p.kind in (Parameter.POSITIONAL_OR_KEYWORD, Parameter.KEYWORD_ONLY)
    ]
    lost = [p.name for p in named if p.default is Parameter.empty and p.name not in given]
    if lost and model.embedding is None:
        dense = "graphs come dense, as adjacency (B, N, N) and mask (B, N): wrap it in one that takes these names"
        by_name = f"give open_data({{'x': …, '{lost[0]}': …}}), aux of a Batch, or aux_{lost[0]} in an .npz"
        raise UserError(
            f"{model.name} takes {' and '.join(lost)} beside its first input, which the data do not bring; "
            f"{dense if 'edge_index' in lost else by_name}, or wrap the network in one that takes x alone"
        )
    unknown = given - {p.name for p in named}
    if unknown and not any(p.kind is Parameter.VAR_KEYWORD for p in taken):
        known = ", ".join(p.name for p in named) or "nothing"
        raise UserError(
            f"the data bring {', '.join(sorted(unknown))}, and {model.name} takes {known} beside x; wrap it in one "
            "whose forward has these names"
        )


def missing_normalisation(module: nn.Module) -> str | None:
    """What the source of a network says of its normalisation, where that is known from the network itself.

    timm keeps it with the network; image models of transformers nearly all have one, in their image processor.

    >>> missing_normalisation(nn.Linear(1, 1)) is None
    True
    """
    timm = getattr(module, "pretrained_cfg", None)
    if isinstance(timm, Mapping) and timm.get("mean") and timm.get("std"):
        return f"timm gives mean={tuple(timm['mean'])}, std={tuple(timm['std'])} with it"
    config = getattr(module, "config", None)
    if (
        type(module).__module__.startswith("transformers.")
        and getattr(config, "image_size", None) is not None
    ):
        return "transformers normalises in its image processor, preprocessor_config.json"
    if type(module).__module__.startswith("torchvision.models"):
        return "torchvision normalises in the transforms of its weights"
    return None


def untrained_head(module: nn.Module) -> str | None:
    """Why the last linear layer looks as if it was never trained, or None.

    Freshly made layers keep their initial distribution to the last digit; trained ones do not. A layer with
    fewer than 1,000 weights is not judged.
    """
    linear = [(n, m) for n, m in module.named_modules() if isinstance(m, nn.Linear)]
    if not linear or linear[-1][1].weight.numel() < 1000:
        return None
    name, head = linear[-1]
    every = max(1, head.weight.numel() // 100_000)
    weight = head.weight.detach().float().cpu().reshape(-1)[::every].numpy()
    if weight.std() == 0:
        return f"the weights of {name!r} are all {weight[0]:g}"
    bound = head.in_features**-0.5  # a trained layer has weights beyond it, if only by a little
    inside = float(head.weight.detach().abs().max()) <= bound * (1 + 1e-6)
    if inside and stats.kstest(weight, stats.uniform(-bound, 2 * bound).cdf).pvalue > 0.01:
        return f"the weights of {name!r} have PyTorch's initial distribution"
    bias_is_new = head.bias is None or not bool(head.bias.any())
    if bias_is_new and any(
        stats.kstest(weight / s, stats.norm.cdf).pvalue > 0.01 for s in (0.01, 0.02)
    ):
        return f"the weights of {name!r} have a usual initial distribution and its bias is zero"
    return None


def reads_logits(task: Task) -> bool:
    """Whether a task reads logits because nobody said otherwise."""
    return getattr(task, "outputs", "said") is None


def or_say(task: Task) -> str:
    """How to say what the outputs are."""
    return f"or say what they are: task={{'{task.name}': {{'outputs': 'probabilities'}}}} (or 'logits')"

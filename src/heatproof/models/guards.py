"""Checks that a network fits its task and its data, from its layers and from the numbers it gives."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from inspect import Parameter, signature
from typing import TYPE_CHECKING

import torch
from scipy import stats
from torch import Tensor, nn

from heatproof.errors import ProbabilitiesError, UserError, counted
from heatproof.models.tasks import Task

if TYPE_CHECKING:
    from heatproof.models import Model

_SQUASHING = {nn.Softmax: "softmax", nn.Softmax2d: "softmax", nn.Sigmoid: "sigmoid"}
LARGEST_MEAN = 2.0
"""The mean of a channel above which pixels cannot be in [0, 1]; those of 0 to 255 are around 100."""
ALMOST = 1e-3
"""How far from 1 rounding may move a sum of probabilities."""


def refuse_squashed(module: nn.Module, name: str, task: Task) -> None:
    """Raise `UserError` for a network that ends in a softmax or sigmoid where the task reads logits.

    Only the end of a `Sequential` is certain to be the last layer of the pass; other networks are not judged.

    >>> from heatproof.models.tasks import Classification
    >>> refuse_squashed(nn.Sequential(nn.Linear(3, 2), nn.Softmax(1)), "net", Classification())
    Traceback (most recent call last):
    heatproof.errors.ProbabilitiesError: net ends in a softmax, but classification reads logits; leave it off, or ...
    """
    last = module
    while isinstance(last, nn.Sequential) and len(last):
        last = last[-1]
    squashing = _SQUASHING.get(type(last))
    if squashing is not None and reads_logits(task):
        raise ProbabilitiesError(
            f"{name} ends in a {squashing}, but {task.name} reads logits; leave it off, {or_say(task)}"
        )


def has_one_output(module: nn.Module) -> bool:
    """Whether the last linear layer of a network, in the order of definition, has one output.

    >>> has_one_output(nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 1))), has_one_output(nn.Identity())
    (True, False)
    """
    layers = [layer for layer in module.modules() if isinstance(layer, nn.Linear)]
    return bool(layers) and layers[-1].out_features == 1


def refuse_probabilities(table: Tensor, name: str, task: Task) -> None:
    """Raise `UserError` for a table (R, K) of logits whose rows are all at least 0 and sum to 1, as after a softmax.

    >>> from heatproof.models.tasks import Classification
    >>> refuse_probabilities(torch.tensor([[0.5, 0.5], [2.0, -1.0]]), "net", Classification())
    """
    if not reads_logits(task) or table.shape[1] < 2 or len(table) < 2:
        return
    sums_to_1 = (table.double().sum(1) - 1).abs() < ALMOST
    is_distribution = (table >= 0).all(1) & sums_to_1
    # Zeros and ones alone are no trace of a softmax.
    is_fraction = (table > 0) & (table < 1)
    has_fractions = is_fraction.any()
    if bool(has_fractions & is_distribution.all()):
        raise ProbabilitiesError(
            f"the outputs of {name} are probabilities: at least 0, and of every sample they sum to 1; {task.name} "
            f"reads logits. Leave the softmax off, {or_say(task)}"
        )


def check_arguments(model: Model, aux: Iterable[str]) -> None:
    """Raise `UserError` unless the data bring just the arguments that a network's `forward` takes beside x.

    `aux` are the names of the auxiliary tensors of the data.

    >>> from heatproof.models import Model
    >>> check_arguments(Model(nn.Bilinear(2, 2, 2)), ())
    Traceback (most recent call last):
    heatproof.errors.UserError: Bilinear takes input2 beside its first input, which the data do not bring; ...
    """
    try:
        parameters = list(signature(model.module.forward).parameters.values())
    except (TypeError, ValueError):  # a scripted network does not say
        return
    # The first parameter is x, unless there is only `*args`, or x goes in by name as the vectors of an embedding.
    begins_with_x = bool(parameters) and parameters[0].kind is not Parameter.VAR_POSITIONAL
    if model.embedding is None and begins_with_x:
        parameters = parameters[1:]
    by_name = [
        parameter
        for parameter in parameters
        if parameter.kind in (Parameter.POSITIONAL_OR_KEYWORD, Parameter.KEYWORD_ONLY)
    ]
    # Auxiliary tensors whose name begins with an underscore are for the task, not for the network.
    brought = {name for name in aux if not name.startswith("_")}
    missing = []
    for parameter in by_name:
        is_required = parameter.default is Parameter.empty
        if is_required and parameter.name not in brought:
            missing.append(parameter.name)
    if missing and model.embedding is None:
        if "edge_index" in missing:
            advice = "graphs come dense, as adjacency (B, N, N) and mask (B, N): wrap it in one that takes these names"
        else:
            name = missing[0]
            advice = (
                f"give open_data({{'x': …, '{name}': …}}), aux of a Batch, or aux_{name} in an .npz"
            )
        raise UserError(
            f"{model.name} takes {' and '.join(missing)} beside its first input, which the data do not bring; "
            f"{advice}, or wrap the network in one that takes x alone"
        )
    surplus = brought - {parameter.name for parameter in by_name}
    takes_any = any(parameter.kind is Parameter.VAR_KEYWORD for parameter in parameters)
    if surplus and not takes_any:
        names = ", ".join(parameter.name for parameter in by_name) or "nothing"
        raise UserError(
            f"the data bring {', '.join(sorted(surplus))}, and {model.name} takes {names} beside x; wrap it in one "
            "whose forward has these names"
        )


def missing_normalisation(module: nn.Module) -> str | None:
    """Return a sentence on the normalisation that a network's library uses with it, for a warning; None if unknown.

    timm keeps it with the network; image models of transformers nearly all have one, in their image processor.

    >>> missing_normalisation(nn.Linear(1, 1)) is None
    True
    """
    library = type(module).__module__
    timm = getattr(module, "pretrained_cfg", None)
    if isinstance(timm, Mapping) and timm.get("mean") and timm.get("std"):
        return f"timm gives mean={tuple(timm['mean'])}, std={tuple(timm['std'])} with it"
    image_size = getattr(getattr(module, "config", None), "image_size", None)
    if library.startswith("transformers.") and image_size is not None:
        return "transformers normalises in its image processor, preprocessor_config.json"
    if library.startswith("torchvision.models"):
        return "torchvision normalises in the transforms of its weights"
    return None


def untrained_head(module: nn.Module) -> str | None:
    """Return why the last linear layer of a network looks as if it was never trained; None if it does not.

    The weights of a new layer follow the distribution that they were drawn from; those of a trained one do not. PyTorch
    draws weights of `Linear` uniformly from ±1/√(in_features); transformers and timm from a normal distribution of
    deviation 0.02 or 0.01 with biases of 0. A Kolmogorov-Smirnov test tells. A layer with fewer than 1,000 weights is
    not judged.
    """
    linear = [(name, m) for name, m in module.named_modules() if isinstance(m, nn.Linear)]
    if not linear or linear[-1][1].weight.numel() < 1000:
        return None
    name, head = linear[-1]
    step = max(1, head.weight.numel() // 100_000)
    weights = head.weight.detach().float().cpu().reshape(-1)[::step].numpy()
    if weights.std() == 0:
        return f"the weights of {name!r} are all {weights[0]:g}"

    bound = head.in_features**-0.5  # a trained layer has weights beyond it, if only by a little
    is_inside = float(head.weight.detach().abs().max()) <= bound * (1 + 1e-6)
    uniform = stats.uniform(-bound, 2 * bound)
    if is_inside and stats.kstest(weights, uniform.cdf).pvalue > 0.01:
        return f"the weights of {name!r} have PyTorch's initial distribution"

    if head.bias is not None and bool(head.bias.any()):
        return None
    for deviation in (0.01, 0.02):
        if stats.kstest(weights / deviation, stats.norm.cdf).pvalue > 0.01:
            return f"the weights of {name!r} have a usual initial distribution and its bias is zero"
    return None


def reads_logits(task: Task) -> bool:
    """Whether a task reads logits because nobody said what the outputs are."""
    return getattr(task, "outputs", "not a parameter of this task") is None


def or_say(task: Task) -> str:
    """Return the advice to say what the outputs are."""
    return f"or say what they are: task={{'{task.name}': {{'outputs': 'probabilities'}}}} (or 'logits')"


def refuse_nan_weights(model: Model) -> None:
    """Raise `UserError` for a network with trainable weights that are NaN or infinite.

    >>> from heatproof.models import Model
    >>> net = nn.Linear(2, 2)
    >>> _ = net.weight.data.fill_(float("nan"))
    >>> refuse_nan_weights(Model(net))
    Traceback (most recent call last):
    heatproof.errors.UserError: 'weight' of Linear has 4 values that are not finite (NaN or infinite); ...
    """
    for name, values in model.module.named_parameters():
        if values.is_floating_point() and not bool(torch.isfinite(values).all()):
            count = int((~torch.isfinite(values)).sum())
            noun = "value that is" if count == 1 else "values that are"
            raise UserError(
                f"{name!r} of {model.name} has {count} {noun} not finite (NaN or infinite); load trained weights, or "
                "an earlier checkpoint"
            )


def refuse_byte_range(model: Model, shape: Sequence[int]) -> None:
    """Raise `UserError` for a mean or std of pixels from 0 to 255: images are in [0, 1] here.

    >>> from heatproof.models import Model
    >>> refuse_byte_range(Model(nn.Flatten(), mean=(123.7, 116.3, 103.5)), (3, 8, 8))
    Traceback (most recent call last):
    heatproof.errors.UserError: mean=[123.7, 116.3, 103.5] of Flatten is for pixels from 0 to 255, and images ...
    """
    if len(shape) != 3:
        return
    for name, values in (("mean", model.mean), ("std", model.std)):
        if values is not None and max(values) > LARGEST_MEAN:
            in_bytes = [round(value, 3) for value in values]
            in_unit = [round(value / 255, 4) for value in values]
            raise UserError(
                f"{name}={in_bytes} of {model.name} is for pixels from 0 to 255, and images are in [0, 1] here; give "
                f"{name}={in_unit}"
            )


def refuse_single_image(model: Model, count: int, shape: Sequence[int]) -> None:
    """Raise `UserError` for `count` samples (H, W) that are the channels of one image for a network of images.

    >>> from heatproof.models import Model
    >>> refuse_single_image(Model(nn.Conv2d(3, 8, 3)), 3, (32, 32))
    Traceback (most recent call last):
    heatproof.errors.UserError: the data look like a single image (3, 32, 32) without a batch axis; give x[None]
    """
    layers = (m for m in model.module.modules() if isinstance(m, nn.Conv1d | nn.Conv2d | nn.Linear))
    first = next(layers, None)
    if len(shape) == 2 and isinstance(first, nn.Conv2d) and first.in_channels == count:
        raise UserError(
            f"the data look like a single image {(count, *shape)} without a batch axis; give x[None]"
        )


def refuse_no_values(model: Model) -> None:
    """Raise `UserError` for a network on the device meta, which has shapes and no weights."""
    if model.device.type == "meta":
        raise UserError(
            f"{model.name} is on the device meta, where weights have no values; load them: "
            "net.to_empty(device='cpu') and net.load_state_dict(weights)"
        )


def first_channels(module: nn.Module) -> int | None:
    """Return how many channels the first convolution of pictures reads, in the order of definition; None without one.

    >>> first_channels(nn.Sequential(nn.Conv2d(2, 8, 3), nn.Conv2d(8, 4, 1)))
    2
    """
    for layer in module.modules():
        if isinstance(layer, nn.Conv2d):
            return layer.in_channels
    return None


def why_not_read(module: nn.Module, shape: Sequence[int]) -> str:
    """Return a sentence saying that a network's first layer reads other data than samples of this shape; else "".

    >>> why_not_read(nn.Conv2d(3, 8, 3), (1, 28, 28))
    'its first layer reads 3 channels, and samples have 1'
    >>> why_not_read(nn.Linear(5, 2), (7,))
    'its first layer reads 5 values, and samples have 7'
    """
    layers = (m for m in module.modules() if isinstance(m, nn.Conv1d | nn.Conv2d | nn.Linear))
    first = next(layers, None)
    if isinstance(first, nn.Linear):
        if shape[-1] != first.in_features:
            return f"its first layer reads {counted(first.in_features, 'value')}, and samples have {shape[-1]}"
        return ""
    if first is None:
        return ""
    dimensions = 3 if isinstance(first, nn.Conv2d) else 2
    kind = "pictures (channels, height, width)" if dimensions == 3 else "series (channels, steps)"
    if len(shape) != dimensions:
        return f"its first layer reads {kind}"
    if shape[0] != first.in_channels:
        return f"its first layer reads {counted(first.in_channels, 'channel')}, and samples have {shape[0]}"
    return ""


def refuse_wrong_class_count(table: Tensor, model: Model) -> None:
    """Raise `UserError` for a classifier whose outputs (R, K) are not as many as the names of its classes."""
    classes = model.classes
    if classes is None or model.task.name != "classification" or table.shape[1] == len(classes):
        return
    names = ", ".join(map(repr, classes[:3])) + (", …" if len(classes) > 3 else "")
    raise UserError(
        f"{model.name} has {table.shape[1]} outputs, and classes are {len(classes)} names ({names}); give one for "
        "each output, in their order"
    )


def refuse_random_outputs(first: Tensor, second: Tensor, name: str) -> None:
    """Raise `UserError` for two tables (R, K) of the same samples that differ by more than rounding.

    >>> refuse_random_outputs(torch.ones(1, 2), torch.ones(1, 2), "net")
    """
    if not torch.allclose(first, second, rtol=1e-2, atol=1e-3, equal_nan=True):
        gap = float((first - second).abs().max())
        raise UserError(
            f"{name} gives other outputs for the same samples in a second pass (by up to {gap:.2g}); dropout or noise "
            "is on in eval mode: use nn.Dropout, or F.dropout(x, p, training=self.training)"
        )

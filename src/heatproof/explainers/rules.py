"""DeepLIFT and guided backpropagation: methods with their own backward rule for non-linear functions.

A torch function mode around the forward pass intercepts the calls of these functions; there are no hooks on modules.
So functional calls, modules that are used many times and in-place activations all follow the rule, and nothing is
left on the model.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.overrides import TorchFunctionMode

from heatproof.errors import UserError
from heatproof.explainers.background import Background, BackgroundField, NumberOrSample
from heatproof.explainers.gradient import (
    FromBaseline,
    input_gradient,
    normalised,
    quadrature,
    rows_of,
    slices,
)
from heatproof.explainers.undefined import NEEDS_VECTORS
from heatproof.models import Model
from heatproof.types import Batch, Explainer, parameter_class

_PIECEWISE_LINEAR: dict[str, Callable[..., Any]] = {
    "relu": F.relu,
    "relu6": F.relu6,
    "hardtanh": F.hardtanh,
    "threshold": F.threshold,
    "leaky_relu": F.leaky_relu,
    "prelu": F.prelu,
    "selu": F.selu,
    "hardswish": F.hardswish,
    "hardsigmoid": F.hardsigmoid,
    "clamp": torch.clamp,
    "clip": torch.clip,
    "clamp_min": torch.clamp_min,
    "clamp_max": torch.clamp_max,
}
"""Functions whose derivative jumps (selu and hardswish are only piecewise smooth)."""
_SMOOTH: dict[str, Callable[..., Any]] = {
    "elu": F.elu,
    "celu": F.celu,
    "gelu": F.gelu,
    "silu": F.silu,
    "mish": F.mish,
    "softplus": F.softplus,
    "logsigmoid": F.logsigmoid,
    "sigmoid": torch.sigmoid,
    "expit": torch.sigmoid,
    "tanh": torch.tanh,
}
_SOFTMAX: dict[str, Callable[..., Any]] = {
    "softmax": torch.softmax,
    "log_softmax": torch.log_softmax,
}
_MAX_POOLING: dict[str, Callable[..., Any]] = {
    "max_pool1d": F.max_pool1d,
    "max_pool2d": F.max_pool2d,
    "max_pool3d": F.max_pool3d,
    "adaptive_max_pool1d": F.adaptive_max_pool1d,
    "adaptive_max_pool2d": F.adaptive_max_pool2d,
    "adaptive_max_pool3d": F.adaptive_max_pool3d,
}
_FUNCTIONS = {**_PIECEWISE_LINEAR, **_SMOOTH, **_SOFTMAX, **_MAX_POOLING}
"""The functions that have a rule, by name, in the variant that does not work in place."""
ELEMENTWISE = (*_PIECEWISE_LINEAR, *_SMOOTH)
"""Names of the activation functions."""


def _spellings() -> dict[Any, str]:
    """Return the name of every torch function and tensor method that computes one of `_FUNCTIONS`, by the function.

    One activation has many spellings: torch.relu, F.relu, Tensor.relu and so on. Names of in-place variants end in an
    underscore.
    """
    names: dict[Any, str] = {}
    for name in _FUNCTIONS:
        for spelling in (name, f"{name}_"):
            for namespace in (torch, F, Tensor, torch.special, torch._C._nn):
                function = getattr(namespace, spelling, None)
                if function is not None:
                    names[function] = spelling
    return names


_NAMES = _spellings()


@dataclasses.dataclass(frozen=True)
class _Call:
    """One call of a non-linear function: its name, its input `x`, and `compute`, the function of that input alone.

    `parameters` and `options` are the other arguments of the call, by position and by name.
    """

    name: str
    x: Tensor
    compute: Callable[[Tensor], Any]
    parameters: tuple[Any, ...]
    options: dict[str, Any]


class _Intercept(TorchFunctionMode):
    """Pass every call of a known non-linear function to `replace`, and continue the network with what that returns."""

    def __init__(self, replace: Callable[[_Call], Tensor]) -> None:
        super().__init__()
        self.replace = replace

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Compute a torch function that the network calls: by `self.replace` if it has a backward rule, else as torch does.

        torch calls this for every function inside the context. In-place calls write the result back into their input.
        """
        options = dict(kwargs or {})
        spelling = _NAMES.get(func)
        if spelling is None or options.get("return_indices") or options.get("out") is not None:
            return func(*args, **options)
        in_place = bool(options.pop("inplace", False)) or spelling.endswith("_")
        options.pop("_stacklevel", None)
        x, *rest = args if args else (options.pop("input"),)
        name = spelling.removesuffix("_")
        # No rule for functions of two tensors (except PReLU's weight), for softmax without a dimension, or for integers.
        other_arguments = (*rest, *options.values())
        has_tensor_argument = any(isinstance(value, Tensor) for value in other_arguments)
        is_binary = has_tensor_argument and name != "prelu"
        has_no_dimension = name in _SOFTMAX and not rest and options.get("dim") is None
        if is_binary or has_no_dimension or not x.is_floating_point():
            return func(*args, **(kwargs or {}))

        def compute(tensor: Tensor) -> Any:
            return _FUNCTIONS[name](tensor, *rest, **options)

        result = self.replace(_Call(name, x, compute, tuple(rest), options))
        return x.copy_(result) if in_place else result


class _WithPullback(torch.autograd.Function):
    """A function with its own backward rule: compute(x) forwards, pullback(gradient) backwards."""

    @staticmethod
    def forward(
        ctx: Any, x: Tensor, compute: Callable[[Tensor], Tensor], pullback: Callable[..., Tensor]
    ) -> Tensor:
        ctx.pullback = pullback
        return compute(x)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None, None]:
        return ctx.pullback(gradients[0]), None, None


@parameter_class
class DeepLift(FromBaseline):
    """(x − b) · m with the multipliers m of DeepLIFT's rescale rule; (B, …) in the shape of the input.

    The method of Shrikumar, Greenside and Kundaje (ICML 2017). With Δ the difference between the pass of the input and
    the pass of the baseline, an elementwise function passes Δout/Δin back in place of its derivative. Max-pooling
    divides Δout between the two winners. Softmax passes its Jacobian averaged over the segment between the two inputs,
    which generalises Δout/Δin to several variables. Everything else keeps its derivative. The maps sum to
    f_t(x) − f_t(b) for networks of linear layers (convolution, batch normalisation in eval mode, average pooling) and
    these functions; products of activations and layer normalisation break the sum. `baseline` b is one value of the
    normalised input, or a sample in the data's own units. With a `background` the map is the mean of those with each of
    its rows as the baseline, as in `shap.DeepExplainer`; in a study of tables these are the reference samples.

    >>> model = Model(torch.nn.Sequential(torch.nn.Linear(3, 8), torch.nn.ReLU(), torch.nn.Linear(8, 2)))
    >>> batch, target = Batch(("a",), torch.rand(1, 3)), torch.tensor([1])
    >>> total = DeepLift()(model, batch, target, seed=0).sum()
    >>> torch.allclose(total, model.logits(batch.x)[0, 1] - model.logits(0 * batch.x)[0, 1], atol=1e-5)
    True
    """

    name: ClassVar[str] = "deep_lift"
    requires = ("gradients", "layers")
    hooks_into_network = True
    cost = "2 passes and a gradient"

    baseline: NumberOrSample | None = None
    background: BackgroundField = None

    def fixed_baselines(self, model: Model, batch: Batch) -> list[tuple[Tensor, float]] | None:
        """Return the baselines (…) of all samples, as normalised inputs, with their weights."""
        if not isinstance(self.baseline, Background):
            return super().fixed_baselines(model, batch)
        if self.background is not None:
            raise UserError(f"{self.name} takes a sample as baseline or a background, not both")
        values, weights = self.baseline.values(self.name, model, batch)
        return list(zip(values, weights.tolist(), strict=True))

    def __call__(self, model: Model, batch: Batch, target: Tensor, seed: int) -> Tensor:
        """Return DeepLIFT's maps (B, …) of the classes `target` (B,), the weighted mean over all baselines."""
        inputs = normalised(model, batch)
        maps = []
        for rows in slices(len(inputs), model.rows):
            aux = rows_of(batch.aux, rows, inputs.device)
            total: Tensor | None = None
            for baseline, weight in self.fixed_baselines(model, batch) or ():
                one_map = self._pass_maps(model, inputs[rows], aux, target[rows], baseline)
                weighted = one_map if weight == 1 else weight * one_map
                total = weighted if total is None else total + weighted
            assert total is not None  # because a background has rows
            maps.append(total)
        return torch.cat(maps)

    def _pass_maps(
        self,
        model: Model,
        inputs: Tensor,
        aux: dict[str, Tensor],
        target: Tensor,
        baseline: Tensor,
    ) -> Tensor:
        """Return DeepLIFT's maps (B, …) of a few inputs against one baseline.

        The baseline goes through the network in a pass of its own, so that no pass exceeds `model.rows`. Samples
        without auxiliary tensors have the same baseline pass, so one row of it suffices for all of them. That fails
        for layers which do not keep the samples in the first dimension; then the baseline gets as many rows as the input.
        """
        n = len(inputs)
        # Auxiliary tensors differ among samples, and with them their baseline passes.
        fewest_rows = n if aux else 1
        try:
            return self._rescaled_maps(
                model, inputs, aux, target, baseline, baseline_rows=fewest_rows
            )
        except _PassesDiffer:
            pass  # try again with a row for each sample
        try:
            return self._rescaled_maps(model, inputs, aux, target, baseline, baseline_rows=n)
        except _PassesDiffer:
            raise UserError(
                f"{model.name} calls other functions for the baseline than for the input, so DeepLIFT cannot "
                "compare them; use integrated_gradients"
            ) from None

    def _rescaled_maps(
        self,
        model: Model,
        inputs: Tensor,
        aux: dict[str, Tensor],
        target: Tensor,
        baseline: Tensor,
        baseline_rows: int,
    ) -> Tensor:
        """Return DeepLIFT's maps (B, …) from a pass of the baseline and a pass of the inputs, matched call by call.

        First the baseline goes through the network, and the inputs of every non-linear function are recorded. Then the
        input does; where it meets the same function, the rescale rule compares it with what was recorded. The baseline
        has as many rows as the input, or one that stands for all.
        """
        references: list[_Call] = []
        has_one_baseline_row = baseline_rows < len(inputs)
        # The rows that layers see: a model may fill a pass up with copies to a size that its device prefers.
        rows_of_baseline_pass = model.size_of(baseline_rows)
        rows_of_input_pass = model.size_of(len(inputs))

        def record(call: _Call) -> Tensor:
            """Keep the input of a call, without the copies of the single baseline row."""
            x = call.x.detach()
            if has_one_baseline_row and len(x) == rows_of_baseline_pass:
                x = x[:1]
            references.append(dataclasses.replace(call, x=x.clone()))
            return call.compute(call.x)  # type: ignore[no-any-return]

        baselines = baseline.expand_as(inputs[:baseline_rows])
        with torch.no_grad(), _Intercept(record):
            logits = model.logits(baselines.clone(), aux).expand(len(inputs), -1)
        baseline_scores = logits.gather(1, target.to(logits.device)[:, None]).squeeze(1)

        remaining = iter(references)
        rows_to_share = rows_of_input_pass if has_one_baseline_row else None
        rescale = _Intercept(partial(_rescaled, rows_to_share, remaining))
        multipliers, scores = input_gradient(model, inputs, aux, target, rescale)
        if next(remaining, None) is not None:
            raise _PassesDiffer
        maps = (inputs - baselines) * multipliers

        # Without any intercepted call the maps are the plain gradient's, which are right for linear networks only.
        difference = scores - baseline_scores
        gap = (maps.flatten(1).sum(1) - difference).abs()
        if not references and bool((gap > 0.01 * (1 + difference.abs())).any()):
            raise UserError(
                f"DeepLIFT met no non-linear function that it has a rule for in {model.name}, which is not linear; a "
                "scripted or compiled model hides them: pass the original module, or use integrated_gradients"
            )
        return maps


class _PassesDiffer(Exception):
    """The pass of the baseline does not match the pass of the input, call by call."""


def _rescaled(rows_to_share: int | None, references: Iterator[_Call], call: _Call) -> Tensor:
    """Return the value of a non-linear call in the input's pass, with DeepLIFT's rescale rule as its backward rule.

    The rule compares the call with the same call in the baseline's pass, the next of `references`. If a single baseline
    row serves all inputs, `rows_to_share` is the number of rows of the input's pass: a call with so many rows is
    compared with a reference of one row.
    """
    reference = next(references, None)
    if reference is None or reference.name != call.name:
        raise _PassesDiffer
    one_row_for_all = (
        len(reference.x) == 1
        and len(call.x) == rows_to_share
        and reference.x.shape[1:] == call.x.shape[1:]
    )
    if not one_row_for_all and reference.x.shape != call.x.shape:
        raise _PassesDiffer
    if not call.x.requires_grad:
        return call.compute(call.x)  # type: ignore[no-any-return]
    with torch.no_grad():
        out = call.compute(call.x)
    if call.name in _MAX_POOLING:
        pullback = _pool_pullback(call, reference.x.expand_as(call.x))
    elif call.name in _SOFTMAX:
        pullback = partial(_averaged_pullback, call, reference.x.expand_as(call.x))
    else:
        pullback = partial(torch.mul, _multiplier(call, out, reference.x))
    return _WithPullback.apply(call.x, lambda x: out, pullback)  # type: ignore[no-any-return, no-untyped-call]


def _difference(x: Tensor, reference: Tensor) -> Tensor:
    """Return x − reference, and 0 where both are the same infinity, whose difference would be NaN."""
    return torch.where(x == reference, torch.zeros_like(x), x - reference)


def _smallest_divisor(x: Tensor, smooth: bool = False) -> float:
    """Return the smallest |Δin| to divide by.

    It is a normal number of x's type. For smooth functions it also leaves some digits after the cancellation in Δout.
    """
    if smooth:
        return max(1e-3, 100 * torch.finfo(x.dtype).eps)
    return max(1e-10, torch.finfo(x.dtype).smallest_normal)


def _multiplier(call: _Call, out: Tensor, reference: Tensor) -> Tensor:
    """Return DeepLIFT's multiplier of an elementwise function at every position: Δout / Δin.

    Δ is the difference between the input's pass (`call`, `out`) and the baseline's pass (`reference`). Where Δin is too
    small to divide by, the multiplier is the derivative half-way between the two. A smooth function's quotient loses
    digits to cancellation well before Δin is 0, while the derivative at the middle errs by O(Δin²) only. Where the
    derivative jumps, no point in between has the right one.
    """
    x = call.x.detach()
    rectifies = _rectifies(call)
    delta = x - reference if rectifies else _difference(x, reference)
    # False for the NaN of a rectifier's ∞ − ∞ as well.
    divisible = delta.abs() >= _smallest_divisor(x, call.name in _SMOOTH)
    with torch.no_grad():
        quotient = (out - call.compute(reference)).div_(delta)
    if rectifies:
        return torch.where(divisible, quotient, _passing(call, out))
    with torch.enable_grad():
        middle = (reference + delta / 2).requires_grad_()
        (derivative,) = torch.autograd.grad(call.compute(middle).sum(), middle)
    return torch.where(divisible, quotient, derivative)


def _averaged_pullback(call: _Call, reference: Tensor, gradient: Tensor) -> Tensor:
    """Return the gradient by a softmax's input, with its Jacobian averaged over the line from reference to input.

    `gradient` is that by its output. The average Jacobian, by Gauss–Legendre quadrature, takes Δin exactly to Δout: it
    is DeepLIFT's multiplier for a function of several variables. A softmax does not change when all of its inputs grow
    by the same number, so its multipliers sum to 0. Where inputs share a large part, such as 10⁵, a sum that is 0 up to
    rounding only would break completeness; so they are computed in float64 and centred.
    """
    x = call.x.detach().double()
    reference = reference.double()
    gradient = gradient.double()
    delta = _difference(x, reference)
    multipliers = torch.zeros_like(x)
    nodes, weights = quadrature("gausslegendre", 16)
    for node, weight in zip(nodes.tolist(), weights.tolist(), strict=True):
        with torch.enable_grad():
            point = (reference + node * delta).requires_grad_()
            (pulled,) = torch.autograd.grad(call.compute(point), point, gradient)
        multipliers += weight * pulled
    multipliers -= multipliers.mean(_argument(call, 0, "dim"), keepdim=True)
    return multipliers.to(call.x.dtype)


def _pool_pullback(call: _Call, reference: Tensor) -> Callable[[Tensor], Tensor]:
    """Return DeepLIFT's backward rule of a max-pooling call: a function from the output's gradient to the input's.

    Δout is divided between two positions of a window: the maximum of the input and that of the reference. Δout =
    (max(out, ref) − ref) + (out − max(out, ref)). The first part goes to the input's winner in the window, the second
    to the reference's, each divided by Δin there. Shares of overlapping windows add up.

    If the reference at the input's winner equals the reference's maximum, as in every window of a constant reference,
    that position is the winner of both and passes the gradient on: a choice among equals would depend on rounding and
    orientation.
    """
    dimensions = int(call.name[-2])
    pool_with_indices = getattr(F, f"{call.name}_with_indices")
    x = call.x.detach()
    zeros = torch.zeros_like(x).flatten(-dimensions)

    def winners(tensor: Tensor) -> tuple[Tensor, Tensor]:
        """Return the maximum of each window and its position."""
        out, index = pool_with_indices(tensor, *call.parameters, **call.options)
        return out.flatten(-dimensions), index.flatten(-dimensions)

    with torch.no_grad():
        out, winner = winners(x)
        reference_out, reference_winner = winners(reference)
        reference_at_winner = reference.flatten(-dimensions).gather(-1, winner)
        same_winner = reference_at_winner >= reference_out - 1e-6 * reference_out.abs()
        gained = torch.where(same_winner, 0, (out - reference_out).clamp_min(0))
        lost = torch.where(same_winner, 0, (out - reference_out).clamp_max(0))
        delta = _difference(x, reference).flatten(-dimensions)
        indivisible = delta.abs() < _smallest_divisor(x)

    def pullback(gradient: Tensor) -> Tensor:
        """Return the gradient by the input (B, …), given that by the output."""
        gradient = gradient.flatten(-dimensions)
        # A position may win in several overlapping windows; `scatter_add` sums what they pass back to it.
        derivative = zeros.scatter_add(-1, winner, gradient)
        passed_on = zeros.scatter_add(-1, winner, gradient * same_winner)
        shares = zeros.scatter_add(-1, winner, gradient * gained)
        shares = shares.scatter_add(-1, reference_winner, gradient * lost)
        pulled = torch.where(indivisible, derivative, passed_on + shares / delta)
        return pulled.view(x.shape)

    return pullback


@parameter_class
class _PositiveGradient(Explainer):
    """Base class of methods in which every ReLU passes back only the positive part of the gradient that it gets."""

    name: ClassVar[str]
    requires = ("gradients", "layers")
    undefined_on = NEEDS_VECTORS
    hooks_into_network = True
    cost = "1 pass and its gradient"
    only_where_active: ClassVar[bool]
    """Whether a ReLU passes it on only where it was active in the forward pass, as in the plain gradient."""

    def __call__(self, model: Model, batch: Batch, target: Tensor, seed: int) -> Tensor:
        """Return gradients (B, …) of the classes `target` (B,) in which ReLUs pass back positive parts only."""
        has_rectifier = False

        def guide(call: _Call) -> Tensor:
            """Return the value of a call; that of a ReLU passes back only the positive part of its gradient."""
            nonlocal has_rectifier
            if not _rectifies(call):
                return call.compute(call.x)  # type: ignore[no-any-return]
            has_rectifier = True
            with torch.no_grad():
                out = call.compute(call.x)
            passing = _passing(call, out) if self.only_where_active else torch.ones_like(out)
            return _WithPullback.apply(  # type: ignore[no-any-return, no-untyped-call]
                call.x, lambda x: out, lambda gradient: gradient.clamp_min(0).mul_(passing)
            )

        inputs = normalised(model, batch)
        maps, _ = input_gradient(model, inputs, batch.aux, target, _Intercept(guide))
        if not has_rectifier:
            raise UserError(
                f"{self.name} changes the gradient of ReLUs only and {model.name} has none, so it would equal the "
                "plain gradient; use saliency or input_x_gradient"
            )
        return maps


@parameter_class
class GuidedBackprop(_PositiveGradient):
    """The gradient in which every ReLU passes back max(0, gradient) only; (B, …) in the shape of the input.

    The rule of Springenberg et al. (2015). It also holds for relu6, hardtanh, threshold and clamps from below at 0.

    >>> net = torch.nn.Sequential(torch.nn.Linear(3, 8), torch.nn.ReLU(), torch.nn.Linear(8, 2))
    >>> batch, target = Batch(("a",), torch.rand(1, 3)), torch.tensor([1])
    >>> GuidedBackprop()(Model(net), batch, target, seed=0).shape
    torch.Size([1, 3])
    """

    name: ClassVar[str] = "guided_backprop"
    only_where_active: ClassVar[bool] = True


@parameter_class
class Deconvolution(_PositiveGradient):
    """The gradient in which every ReLU passes back max(0, gradient), active or not; (B, …) in the shape of the input.

    The deconvolution of Zeiler and Fergus (ECCV 2014), as Captum computes it; guided backpropagation passes gradients
    back through active ReLUs only.

    >>> net = torch.nn.Sequential(torch.nn.Linear(3, 8), torch.nn.ReLU(), torch.nn.Linear(8, 2))
    >>> batch, target = Batch(("a",), torch.rand(1, 3)), torch.tensor([1])
    >>> Deconvolution()(Model(net), batch, target, seed=0).shape
    torch.Size([1, 3])
    """

    name: ClassVar[str] = "deconvolution"
    only_where_active: ClassVar[bool] = False


def _passing(call: _Call, out: Tensor) -> Tensor:
    """Return where the derivative of a ReLU-like call is 1, boolean; `out` is the value of the call.

    That is strictly inside its range; torch's clamps have derivative 1 at the ends of the range as well.
    """
    if call.name in ("clamp", "clip", "clamp_min"):
        return out == call.x.detach()
    if call.name == "relu6":
        top = 6.0
    elif call.name == "hardtanh":
        top = _argument(call, 1, "max_val", 1.0)
    else:
        return out > 0
    return (out > 0) & (out < top)


def _rectifies(call: _Call) -> bool:
    """Return whether a call computes a ReLU: 0 below 0 and x above it, perhaps with an upper limit as relu6 has."""
    if call.name in ("relu", "relu6"):
        return True
    if call.name == "threshold":
        threshold, value = _argument(call, 0, "threshold"), _argument(call, 1, "value")
        return bool(threshold == 0 and value == 0)
    if call.name == "hardtanh":
        return bool(_argument(call, 0, "min_val") == 0)
    if call.name in ("clamp", "clip", "clamp_min"):
        return bool(_argument(call, 0, "min") == 0)
    return False


def _argument(call: _Call, position: int, name: str, default: Any = None) -> Any:
    """Return an argument of a call that may be given by position or by name."""
    if len(call.parameters) > position:
        return call.parameters[position]
    return call.options.get(name, default)

"""Methods with their own backward rule for non-linear functions: DeepLIFT and guided backpropagation.

The functions are met where they are called, by a torch function mode around the forward pass, not by hooks on
modules. So functional calls, modules that are used many times and in-place activations all follow the rule, and
nothing is left on the model.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator
from functools import partial
from typing import Annotated, Any, ClassVar

import torch
import torch.nn.functional as F
from pydantic import Field
from pydantic.dataclasses import dataclass
from torch import Tensor
from torch.overrides import TorchFunctionMode

from heatproof.errors import UserError
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
from heatproof.types import STRICT, Batch, Explainer

_KINKED: dict[str, Callable[..., Any]] = {
    **{
        name: getattr(F, name)
        for name in ("relu", "relu6", "hardtanh", "threshold", "leaky_relu", "prelu", "selu")
    },
    **{name: getattr(F, name) for name in ("hardswish", "hardsigmoid")},
    **{name: getattr(torch, name) for name in ("clamp", "clip", "clamp_min", "clamp_max")},
}
_SMOOTH: dict[str, Callable[..., Any]] = {
    **{
        name: getattr(F, name)
        for name in ("elu", "celu", "gelu", "silu", "mish", "softplus", "logsigmoid")
    },
    **{"sigmoid": torch.sigmoid, "expit": torch.sigmoid, "tanh": torch.tanh},
}
_NORMALISING: dict[str, Callable[..., Any]] = {
    "softmax": torch.softmax,
    "log_softmax": torch.log_softmax,
}
_POOLING: dict[str, Callable[..., Any]] = {
    name: getattr(F, name)
    for n in (1, 2, 3)
    for name in (f"max_pool{n}d", f"adaptive_max_pool{n}d")
}
_PLAIN = {**_KINKED, **_SMOOTH, **_NORMALISING, **_POOLING}
ELEMENTWISE = (*_KINKED, *_SMOOTH)
"""Names of the activation functions."""
_NAMES: dict[Any, str] = {
    found: name + suffix
    for name in _PLAIN
    for suffix in ("", "_")
    for space in (torch, F, Tensor, torch.special, torch._C._nn)
    if (found := getattr(space, name + suffix, None)) is not None
}


@dataclasses.dataclass(frozen=True)
class _Call:
    """One use of a non-linear function: its name, its tensor, and the function of that tensor alone."""

    name: str
    x: Tensor
    compute: Callable[[Tensor], Any]
    parameters: tuple[Any, ...]
    options: dict[str, Any]


class _Intercept(TorchFunctionMode):
    """Hands every call of a known non-linear function to `swap` and gives the network what that returns."""

    def __init__(self, swap: Callable[[_Call], Tensor]) -> None:
        super().__init__()
        self.swap = swap

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        options = dict(kwargs or {})
        name = _NAMES.get(func)
        if name is None or options.get("return_indices") or options.get("out") is not None:
            return func(*args, **options)
        in_place = bool(options.pop("inplace", False)) or name.endswith("_")
        options.pop("_stacklevel", None)
        x, *rest = args if args else (options.pop("input"),)
        plain = name.removesuffix("_")
        bound_by_tensor = plain != "prelu" and any(
            isinstance(v, Tensor) for v in (*rest, *options.values())
        )
        no_dimension = plain in _NORMALISING and not rest and options.get("dim") is None
        if bound_by_tensor or no_dimension or not x.is_floating_point():
            return func(*args, **(kwargs or {}))

        def compute(tensor: Tensor) -> Any:
            return _PLAIN[plain](tensor, *rest, **options)

        result = self.swap(_Call(plain, x, compute, tuple(rest), options))
        return x.copy_(result) if in_place else result


class _WithPullback(torch.autograd.Function):
    """value = compute(x) forwards, pullback(gradient) backwards."""

    @staticmethod
    def forward(
        ctx: Any, x: Tensor, compute: Callable[[Tensor], Tensor], pullback: Callable[..., Tensor]
    ) -> Tensor:
        ctx.pullback = pullback
        return compute(x)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None, None]:
        return ctx.pullback(gradients[0]), None, None


@dataclass(frozen=True, config=STRICT)
class DeepLift(FromBaseline):
    """(x − b) · m with the multipliers m of DeepLIFT's rescale rule; (B, …) in the shape of the input.

    An elementwise function passes Δout/Δin back in place of its derivative, Δ being the difference between the pass
    of the input and that of the baseline; max-pooling shares Δout between the two winners; softmax passes its Jacobian
    averaged on the segment between the two, which is what Δout/Δin is for one number. Everything else keeps its
    derivative. The maps sum to f_t(x) − f_t(b) for networks of linear layers (convolution, batch normalisation in
    eval mode, average pooling) and these functions; products of activations and layer normalisation do not keep the
    sum. `baseline` b is one value of the normalised input.

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

    baseline: Annotated[float, Field(allow_inf_nan=False)] = 0.0

    def __call__(self, model: Model, batch: Batch, target: Tensor, seed: int) -> Tensor:
        """Maps (B, …) for the classes `target` (B,)."""
        inputs = normalised(model, batch)
        cuts = slices(len(inputs), model.rows)
        return torch.cat(
            [
                self._rows(model, inputs[c], rows_of(batch.aux, c, inputs.device), target[c])
                for c in cuts
            ]
        )

    def _rows(self, model: Model, inputs: Tensor, aux: dict[str, Tensor], target: Tensor) -> Tensor:
        # The baseline goes through the network in a pass of its own, so a pass never exceeds model.rows; calls of the
        # two passes are matched by their order. Where samples differ in nothing but x, one row stands for all.
        try:
            return self._against(model, inputs, aux, target, len(inputs) if aux else 1)
        except _OtherShape:  # a layer that does not keep the samples in the first dimension
            try:
                return self._against(model, inputs, aux, target, len(inputs))
            except _OtherShape:
                raise UserError(
                    f"{model.name} calls other functions for the baseline than for the input, so DeepLIFT cannot "
                    "compare them; use integrated_gradients"
                ) from None

    def _against(
        self, model: Model, inputs: Tensor, aux: dict[str, Tensor], target: Tensor, rows: int
    ) -> Tensor:
        references: list[_Call] = []
        lone = (
            model.size_of(rows) if rows < len(inputs) else 0
        )  # the rows of a pass whose first stands for all

        def record(call: _Call) -> Tensor:
            met = call.x.detach()
            references.append(
                dataclasses.replace(call, x=(met[:1] if len(met) == lone else met).clone())
            )
            return call.compute(call.x)  # type: ignore[no-any-return]

        baseline = torch.full_like(inputs[:rows], self.baseline)
        with torch.no_grad(), _Intercept(record):
            logits = model.logits(baseline.clone(), aux)
        start = (
            logits.expand(len(inputs), -1).gather(1, target.to(logits.device)[:, None]).squeeze(1)
        )
        waiting = iter(references)
        during = _Intercept(partial(_rescaled, model.size_of(len(inputs)) if lone else 0, waiting))
        multipliers, end = input_gradient(model, inputs, aux, target, during)
        if next(waiting, None) is not None:
            raise _OtherShape
        maps = (inputs - baseline) * multipliers
        gap = (maps.flatten(1).sum(1) - (end - start)).abs()
        if not references and bool((gap > 0.01 * (1 + (end - start).abs())).any()):
            raise UserError(
                f"DeepLIFT met no non-linear function that it has a rule for in {model.name}, which is not linear; a "
                "scripted or compiled model hides them: pass the original module, or use integrated_gradients"
            )
        return maps


class _OtherShape(Exception):
    """The pass of the baseline does not match that of the input, call by call."""


def _rescaled(rows: int, references: Iterator[_Call], call: _Call) -> Tensor:
    """`rows` is the size of the pass where one row of a reference stands for all of them, else 0."""
    reference = next(references, None)
    if reference is None or reference.name != call.name:
        raise _OtherShape
    alone = (
        len(reference.x) == 1 and len(call.x) == rows and reference.x.shape[1:] == call.x.shape[1:]
    )
    if not alone and reference.x.shape != call.x.shape:
        raise _OtherShape
    if not call.x.requires_grad:
        return call.compute(call.x)  # type: ignore[no-any-return]
    with torch.no_grad():
        out = call.compute(call.x)
    if call.name in _POOLING:
        pullback = _pool_pullback(call, reference.x.expand_as(call.x))
    elif call.name in _NORMALISING:
        pullback = partial(
            _averaged_pullback, call.compute, call.x.detach(), reference.x.expand_as(call.x)
        )
    else:
        pullback = partial(torch.mul, _multiplier(call, out, reference.x))
    return _WithPullback.apply(call.x, lambda x: out, pullback)  # type: ignore[no-any-return, no-untyped-call]


def _difference(x: Tensor, reference: Tensor) -> Tensor:
    """x − reference, with 0 where both are the same infinity."""
    return torch.where(x == reference, torch.zeros_like(x), x - reference)


def _least(x: Tensor, smooth: bool = False) -> float:
    """The smallest Δin to divide by: above what x's type takes for 0, and for smooth functions above its digits."""
    return (
        max(1e-3, 100 * torch.finfo(x.dtype).eps)
        if smooth
        else max(1e-10, torch.finfo(x.dtype).smallest_normal)
    )


def _multiplier(call: _Call, out: Tensor, reference: Tensor) -> Tensor:
    """Δout/Δin, and the derivative half-way where Δin is too small for the quotient.

    A smooth function's quotient loses digits to cancellation well before Δin is 0, while the derivative at the middle
    errs by O(Δin²) only. Where the derivative jumps, no point in between has the right one.
    """
    x, rectifies = call.x.detach(), _rectifies(call)
    delta = x - reference if rectifies else _difference(x, reference)
    large = delta.abs() >= _least(x, call.name in _SMOOTH)  # not where both are the same infinity
    with torch.no_grad():
        quotient = (out - call.compute(reference)).div_(delta)
    if rectifies:
        return torch.where(large, quotient, _passing(call, out))
    with torch.enable_grad():
        middle = (reference + delta / 2).requires_grad_()
        (derivative,) = torch.autograd.grad(call.compute(middle).sum(), middle)
    return torch.where(large, quotient, derivative)


def _averaged_pullback(
    compute: Callable[[Tensor], Tensor], x: Tensor, reference: Tensor, gradient: Tensor
) -> Tensor:
    """The gradient pulled back through the Jacobian, averaged on the segment from the reference to x."""
    delta = _difference(x, reference)
    total = torch.zeros_like(x)
    for node, weight in zip(*(v.tolist() for v in quadrature("gausslegendre", 16)), strict=True):
        with torch.enable_grad():
            point = (reference + node * delta).requires_grad_()
            (pulled,) = torch.autograd.grad(compute(point), point, gradient)
        total += weight * pulled
    return total


def _pool_pullback(call: _Call, reference: Tensor) -> Callable[[Tensor], Tensor]:
    """Δout = (max(out, ref) − ref) + (out − max(out, ref)): the first part goes to the input's winner in the window,
    the second to the reference's, each as a share of Δin there. Shares of overlapping windows add up.

    Where the reference at the input's winner is as large as its own, as in every window of a constant one, that place
    is the winner of both and passes the gradient on; a choice among equals would depend on rounding and orientation.
    """
    dimensions = int(call.name[-2])
    indexed = getattr(F, f"{call.name}_with_indices")
    x = call.x.detach()
    flat = torch.zeros_like(x).flatten(-dimensions)

    def winners(tensor: Tensor) -> tuple[Tensor, Tensor]:
        out, index = indexed(tensor, *call.parameters, **call.options)
        return out.flatten(-dimensions), index.flatten(-dimensions)

    with torch.no_grad():
        (out, index), (base, base_index) = winners(x), winners(reference)
        shared = reference.flatten(-dimensions).gather(-1, index) >= base - 1e-6 * base.abs()
        gained = torch.where(shared, 0, (out - base).clamp_min(0))
        lost = torch.where(shared, 0, (out - base).clamp_max(0))
        delta = _difference(x, reference).flatten(-dimensions)

    def pullback(gradient: Tensor) -> Tensor:
        gradient = gradient.flatten(-dimensions)
        derivative = flat.scatter_add(-1, index, gradient)
        direct = flat.scatter_add(-1, index, gradient * shared)
        shares = flat.scatter_add(-1, index, gradient * gained).scatter_add(
            -1, base_index, gradient * lost
        )
        return torch.where(delta.abs() < _least(x), derivative, direct + shares / delta).view(
            x.shape
        )

    return pullback


@dataclass(frozen=True, config=STRICT)
class GuidedBackprop(Explainer):
    """The gradient in which every ReLU passes back max(0, gradient) only; (B, …) in the shape of the input.

    ReLU-like are relu, relu6 and clamps from below at 0, called in any way.

    >>> net = torch.nn.Sequential(torch.nn.Linear(3, 8), torch.nn.ReLU(), torch.nn.Linear(8, 2))
    >>> batch, target = Batch(("a",), torch.rand(1, 3)), torch.tensor([1])
    >>> GuidedBackprop()(Model(net), batch, target, seed=0).shape
    torch.Size([1, 3])
    """

    name: ClassVar[str] = "guided_backprop"
    requires = ("gradients", "layers")
    undefined_on = NEEDS_VECTORS
    hooks_into_network = True
    cost = "1 pass and its gradient"

    def __call__(self, model: Model, batch: Batch, target: Tensor, seed: int) -> Tensor:
        """Maps (B, …) for the classes `target` (B,)."""
        met: set[str] = set()

        def guide(call: _Call) -> Tensor:
            if not _rectifies(call):
                return call.compute(call.x)  # type: ignore[no-any-return]
            met.add(call.name)
            with torch.no_grad():
                out = call.compute(call.x)
            passing = _passing(call, out)
            rule = (lambda x: out, lambda gradient: gradient.clamp_min(0).mul_(passing))
            return _WithPullback.apply(call.x, *rule)  # type: ignore[no-any-return, no-untyped-call]

        maps, _ = input_gradient(
            model, normalised(model, batch), batch.aux, target, _Intercept(guide)
        )
        if not met:
            raise UserError(
                f"guided_backprop changes the gradient of ReLUs only and {model.name} has none, so it would equal the "
                "plain gradient; use saliency or input_x_gradient"
            )
        return maps


def _passing(call: _Call, out: Tensor) -> Tensor:
    """Where a rectifier's derivative is 1, boolean: strictly inside its range, for torch's clamps at its ends too."""
    if call.name in ("clamp", "clip", "clamp_min"):
        return out == call.x.detach()
    top = {
        "relu6": 6.0,
        "hardtanh": [*call.parameters[1:], call.options.get("max_val", 1.0)][0],
    }.get(call.name)
    return out > 0 if top is None else (out > 0) & (out < top)


def _rectifies(call: _Call) -> bool:
    lower = (
        call.parameters[0]
        if call.parameters
        else call.options.get("min", call.options.get("min_val"))
    )
    if call.name == "threshold":
        value = call.parameters[1] if len(call.parameters) > 1 else call.options.get("value")
        return call.options.get("threshold", lower) == 0 and value == 0
    return call.name in ("relu", "relu6") or (
        call.name in ("hardtanh", "clamp", "clip", "clamp_min") and lower == 0
    )

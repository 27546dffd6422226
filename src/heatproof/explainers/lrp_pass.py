"""A forward pass whose backward pass propagates relevance, with a rule for every function that networks consist of."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from typing import Any, TypeAlias

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.overrides import TorchFunctionMode, resolve_name

from heatproof.errors import UserError
from heatproof.explainers.attention_parts import attend, attend_heads
from heatproof.explainers.lrp_rules import Affine, Rule, epsilon_rule, stabilised
from heatproof.explainers.rules import ELEMENTWISE
from heatproof.models import Model

ALTERNATIVE = "integrated_gradients, or write that part with functions of torch.nn"
Pullback: TypeAlias = Callable[[Tensor], "tuple[Tensor | None, ...]"]
"""Relevance of a function's output → relevance of each of its inputs."""


class _WithRelevance(torch.autograd.Function):
    """A value that was computed elsewhere, with a backward pass of its own.

    The value comes from a function without arguments: a tensor among the inputs would be returned as a view, which
    the network may not change in place.
    """

    @staticmethod
    def forward(
        ctx: Any, value: Callable[[], Tensor], pullback: Pullback, *inputs: Tensor
    ) -> Tensor:
        ctx.pullback = pullback
        return value()

    @staticmethod
    def backward(ctx: Any, *relevance: Tensor) -> tuple[Tensor | None, ...]:
        with torch.no_grad():
            return None, None, *ctx.pullback(relevance[0])


def _functions(*names: str) -> set[Any]:
    """Return every torch function and tensor method that computes one of the functions called `names`.

    For "add" these are torch.add, Tensor.add, the in-place add_, and the operators __add__, __iadd__ and __radd__.
    """
    functions = set()
    for name in names:
        for spelling in (name, f"{name}_", f"__{name}__", f"__i{name}__", f"__r{name}__"):
            for namespace in (torch, F, Tensor, torch.special, torch._C._nn):
                function = getattr(namespace, spelling, None)
                if callable(function):
                    functions.add(function)
    return functions


_CONVOLUTIONS = {
    F.conv1d,
    F.conv2d,
    F.conv3d,
    F.conv_transpose1d,
    F.conv_transpose2d,
    F.conv_transpose3d,
}
_ONE_TO_ONE = _functions(
    *ELEMENTWISE, "layer_norm", "group_norm", "rms_norm", "instance_norm", "div", "truediv", "neg"
)
"""Functions that pass relevance on unchanged: activations, and normalisation or a sign as a fixed scaling."""
_AVERAGES = _functions(
    "mean",
    "sum",
    "avg_pool1d",
    "avg_pool2d",
    "avg_pool3d",
    "adaptive_avg_pool1d",
    "adaptive_avg_pool2d",
    "adaptive_avg_pool3d",
)
_ADD = _functions("add")
_SUBTRACT_FROM = {torch.rsub, Tensor.__rsub__}
_SUBTRACT = _functions("sub") - _SUBTRACT_FROM
_MULTIPLY = _functions("mul")
_BILINEAR = _functions("matmul", "bmm", "einsum")
_SOFTMAX = _functions("softmax")
_ROUTING = _functions(
    "reshape",
    "view",
    "view_as",
    "permute",
    "transpose",
    "flatten",
    "unflatten",
    "contiguous",
    "clone",
    "squeeze",
    "unsqueeze",
    "chunk",
    "split",
    "cat",
    "concat",
    "stack",
    "expand",
    "expand_as",
    "getitem",
    "pad",
    "roll",
    "to",
    "float",
    "half",
    "double",
    "type",
    "type_as",
    "dropout",
    "dropout2d",
    "dropout3d",
    "alpha_dropout",
    "narrow",
    "feature_dropout",
    "movedim",
    "swapaxes",
    "swapdims",
    "unbind",
    "index_select",
    "gather",
    "select",
    "hstack",
    "pixel_shuffle",
    "pixel_unshuffle",
    "channel_shuffle",
    "flip",
    "masked_fill",
    "where",
    "amax",
    "max",
    "vstack",
    "max_pool1d",
    "max_pool2d",
    "max_pool3d",
    "adaptive_max_pool1d",
    "adaptive_max_pool2d",
    "adaptive_max_pool3d",
    "setitem",
    "copy",
    "requires_grad",
    "tensor_split",
    "split_with_sizes",
)
"""Functions that only move values: their derivative is right for relevance as it is."""


class Relevance(TorchFunctionMode):
    """A context in which the backward pass propagates relevance: R_in of every function from its R_out.

    `rule_of(layer, is_first)` gives the rule of a linear layer. A function of activations without a rule is an error
    that names it, because its plain derivative would silently take the place of a rule. `layers` counts the linear
    layers of the pass.

    Every method below computes a function's value without a graph, and attaches a pullback that takes the relevance of
    the output to that of the inputs.
    """

    def __init__(self, rule_of: Callable[[Affine, bool], Rule], epsilon: float, model: str) -> None:
        super().__init__()
        self.rule_of, self.epsilon, self.model = rule_of, epsilon, model
        self.layers = 0
        self._last: tuple[Tensor, Affine, bool] | None = None

    def __enter__(self) -> Any:
        self._last = None
        self._first = True
        return super().__enter__()  # type: ignore[no-untyped-call]

    def __exit__(self, *failure: Any) -> None:
        # The graph of `_last` refers to this object through C++, where the garbage collector cannot see the cycle.
        self._last = None
        super().__exit__(*failure)  # type: ignore[no-untyped-call]

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Compute a torch function of the network with the relevance rule that belongs to it.

        Functions without activations, and those that only move values, are left to torch.
        """
        options = dict(kwargs or {})
        if not any(tensor.requires_grad for tensor in _tensors((args, options))):
            return func(*args, **options)
        handler = self._handler(func)
        if handler is None:
            result = func(*args, **options)
            carries_gradient = any(
                tensor.requires_grad and tensor.is_floating_point() for tensor in _tensors(result)
            )
            if carries_gradient and func not in _ROUTING:
                name = resolve_name(func) or str(func)
                raise UserError(
                    f"lrp has no rule for {name}, which {self.model} applies to activations; use {ALTERNATIVE}"
                )
            return result
        name = getattr(func, "__name__", "")
        has_in_place_name = name.endswith("_") and not name.startswith("__")
        in_place = bool(options.pop("inplace", False)) or has_in_place_name
        if not in_place:
            return handler(*args, **options)
        target, *rest = args
        return target.copy_(handler(target.clone(), *rest, **options))

    def _handler(self, func: Any) -> Callable[..., Any] | None:
        """Return the method of this class that computes a torch function with an LRP rule; None if it has no rule."""
        if func in _CONVOLUTIONS or func is F.linear:
            return partial(self._linear, func)
        if func is torch.addmm:
            return self._addmm
        if func in (F.batch_norm, torch.batch_norm):
            return self._batch_norm
        if func in (F.scaled_dot_product_attention, F.multi_head_attention_forward):
            return self._attention(func)
        if func in _ONE_TO_ONE:
            return partial(self._one_to_one, func)
        if func in _AVERAGES:
            return partial(self._average, func)
        if func in _ADD:
            return self._add
        if func in _SUBTRACT:
            return self._subtract
        if func in _SUBTRACT_FROM:
            return lambda a, b, **options: self._subtract(b, a, **options)
        if func in _MULTIPLY:
            return self._multiply
        if func in _BILINEAR:
            return partial(self._bilinear, func)
        if func in _SOFTMAX:
            return self._softmax
        return None

    def _attention(self, func: Any) -> Callable[..., Any]:
        """Return a replacement for a fused attention function, made of products and a softmax, which have LRP rules."""
        product = partial(self._bilinear, torch.matmul)
        scale = partial(self._one_to_one, torch.mul)
        attention = partial(attend, product, self._softmax, scale)
        if func is F.scaled_dot_product_attention:
            return attention
        linear = partial(self._linear, F.linear)
        refusal = f"lrp has no rule for the attention of {self.model}, which adds to its keys; use {ALTERNATIVE}"
        return partial(attend_heads, linear, attention, refusal)

    def _linear(
        self,
        func: Any,
        x: Tensor,
        weight: Tensor,
        bias: Tensor | None = None,
        *rest: Any,
        **options: Any,
    ) -> Tensor:
        """Return a convolution or `F.linear` of x, whose backward pass propagates relevance by the layer's LRP rule."""

        def apply(x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
            return func(x, weight, bias, *rest, **options)  # type: ignore[no-any-return]

        convolves = func is not F.linear
        return self._affine(Affine(x, weight, bias, apply, convolves, weight), self._first)

    def _addmm(self, bias: Tensor, x: Tensor, weight: Tensor) -> Tensor:
        """Return bias + x @ weight with an LRP rule: a linear layer in the form that transformers' Conv1D has."""
        return self._affine(Affine(x, weight.T, bias, F.linear, False, weight), self._first)

    def _affine(self, layer: Affine, is_first: bool) -> Tensor:
        """Return the value of a linear layer, whose backward pass propagates relevance by the rule chosen for it.

        The layer is remembered in `self._last`, because a batch normalisation that follows is folded into it.
        """
        rule = self.rule_of(layer, is_first)
        self._first = False
        self.layers += 1
        bias = None if layer.bias is None else layer.bias.detach()
        fixed = replace(layer, x=layer.x.detach(), weight=layer.weight.detach(), bias=bias)
        with torch.no_grad():
            value = fixed.apply(fixed.x, fixed.weight, fixed.bias)

        def pullback(relevance: Tensor) -> tuple[Tensor]:
            return (rule(fixed, relevance, self.epsilon),)

        result = _with_pullback(value, pullback, layer.x)
        self._last = (result, layer, is_first)
        return result

    def _batch_norm(
        self,
        x: Tensor,
        mean: Tensor,
        var: Tensor,
        weight: Tensor | None = None,
        bias: Tensor | None = None,
        training: bool = False,
        momentum: float = 0.1,
        eps: float = 1e-5,
    ) -> Tensor:
        """Return a batch normalisation in eval mode, with relevance by the rule of a linear layer.

        It is linear. Right behind a linear layer it is folded into that, as LRP is usually defined; elsewhere it is a
        layer of its own.
        """
        scale = (var + eps).rsqrt() * (1.0 if weight is None else weight)
        shift = (0.0 if bias is None else bias) - mean * scale
        if self._last is not None and self._last[0] is x:
            _, layer, is_first = self._last
            self.layers -= 1  # the folded layer counts once
            return self._affine(_folded(layer, scale, shift), is_first)

        per_channel = (1, -1, *[1] * (x.ndim - 2))

        def apply(x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
            scaled = x * weight.reshape(per_channel)
            return scaled if bias is None else scaled + bias.reshape(per_channel)

        # It does not count as the first layer: the rules of that (flat, box) are for pixels.
        was_first = self._first
        result = self._affine(Affine(x, scale, shift, apply, False), False)
        self._first = was_first
        return result

    def _one_to_one(self, func: Any, x: Tensor, *rest: Any, **options: Any) -> Tensor:
        """Return func(x), whose input gets the relevance of its output unchanged: R_in = R_out, as for activations."""
        with torch.no_grad():
            value = func(x.detach(), *rest, **options)
        return _with_pullback(value, lambda relevance: (relevance,), x)

    def _average(self, func: Any, x: Tensor, *rest: Any, **options: Any) -> Tensor:
        """Return a mean or a sum z of x, with relevance by LRP's ε rule.

        Each summand gets the relevance in proportion to what it adds to the result: x ⊙ ∂z/∂xᵀ (R / z), with z moved
        away from 0 by ε.
        """
        with torch.enable_grad():
            point = x.detach().requires_grad_()
            z = func(point, *rest, **options)

        def pullback(relevance: Tensor) -> tuple[Tensor]:
            share = relevance / stabilised(z.detach(), self.epsilon)
            (pulled,) = torch.autograd.grad(z, point, share)
            return (point.detach() * pulled,)

        return _with_pullback(z.detach(), pullback, x)

    def _add(self, a: Any, b: Any, *, alpha: float = 1) -> Tensor:
        """Return a + alpha · b, with relevance by LRP's ε rule: each summand gets its share of the sum, R · summand / sum."""
        terms = [torch.as_tensor(a), torch.as_tensor(b)]
        summands = [terms[0].detach(), terms[1].detach() * alpha]
        value = summands[0] + summands[1]

        def pullback(relevance: Tensor) -> tuple[Tensor, ...]:
            """Return the relevance of both terms: each one's share of the sum's relevance."""
            share = relevance / stabilised(value, self.epsilon)
            # `sum_to_size` undoes the broadcasting of the smaller term.
            return tuple(
                (summand * share).sum_to_size(term.shape)
                for summand, term in zip(summands, terms, strict=True)
            )

        return _with_pullback(value, pullback, *terms)

    def _subtract(self, a: Any, b: Any, *, alpha: float = 1) -> Tensor:
        return self._add(a, b, alpha=-alpha)

    def _multiply(self, a: Any, b: Any) -> Tensor:
        """Return a ⊙ b, with relevance by rule: two activations of the same size get half of the relevance each.

        An activation that is broadcast scales the other one, like a gate, and gets none; nor does a constant or a
        parameter.
        """
        factors = [torch.as_tensor(a), torch.as_tensor(b)]
        value = (factors[0] * factors[1]).detach()
        is_activation, receives = [], []
        for factor in factors:
            is_active = factor.requires_grad and not isinstance(factor, torch.nn.Parameter)
            is_activation.append(is_active)
            receives.append(is_active and factor.numel() == value.numel())
        if not any(receives):
            receives = is_activation

        def pullback(relevance: Tensor) -> tuple[Tensor, ...]:
            """Return the relevance of each factor: an equal share, or 0."""
            share = relevance / sum(receives)
            by_factor = []
            for factor, is_receiver in zip(factors, receives, strict=True):
                if is_receiver:
                    by_factor.append(share.sum_to_size(factor.shape))
                else:
                    by_factor.append(torch.zeros_like(factor))
            return tuple(by_factor)

        return _with_pullback(value, pullback, *factors)

    def _bilinear(self, func: Any, *args: Any) -> Tensor:
        """Return a matrix product with relevance by rule.

        If one factor is fixed, it is a linear layer. For two activations, such as attention times values, each factor
        gets half of the relevance that the ε rule gives (AttnLRP, Achtibat et al. 2024).
        """
        equation = [arg for arg in args if not isinstance(arg, Tensor | list | tuple)]  # of einsum
        a, b = _tensors(args)
        a_is_activation = a.requires_grad and not isinstance(a, torch.nn.Parameter)
        b_is_activation = b.requires_grad and not isinstance(b, torch.nn.Parameter)
        if not (a_is_activation and b_is_activation):

            def apply(x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
                factors = (x, weight) if a_is_activation else (weight, x)
                return func(*equation, *factors)  # type: ignore[no-any-return]

            x, weight = (a, b) if a_is_activation else (b, a)
            return self._affine(Affine(x, weight, None, apply, False, weight), self._first)
        a_point, b_point = a.detach().requires_grad_(), b.detach().requires_grad_()
        with torch.enable_grad():
            product = func(*equation, a_point, b_point)

        def pullback(relevance: Tensor) -> tuple[Tensor, Tensor]:
            """Return factor ⊙ its gradient for the shares R / 2z, for both factors."""
            share = relevance / (2 * stabilised(product.detach(), self.epsilon))
            by_a, by_b = torch.autograd.grad(product, (a_point, b_point), share)
            return a_point.detach() * by_a, b_point.detach() * by_b

        return _with_pullback(product.detach(), pullback, a, b)

    def _softmax(self, x: Tensor, dim: int = -1, *rest: Any, **options: Any) -> Tensor:
        """Return the softmax s of x, with relevance by AttnLRP's rule, from its Taylor expansion at x.

        The input j gets x_j (R_j − s_j Σ_k R_k), where R is the relevance of the outputs (Achtibat et al. 2024).
        """
        fixed = x.detach()
        value = fixed.softmax(dim)

        def pullback(relevance: Tensor) -> tuple[Tensor]:
            shared = relevance - value * relevance.sum(dim, keepdim=True)
            # Masked scores are −∞, and −∞ · 0 would be NaN.
            return (torch.where(torch.isfinite(fixed), fixed * shared, 0),)

        return _with_pullback(value, pullback, x)


class _Reached(Exception):
    """Ends a pass at the first linear layer, whose input it holds."""

    def __init__(self, x: Tensor) -> None:
        super().__init__()
        self.x = x


def first_layer_input(
    model: Model, inputs: Tensor, aux: Mapping[str, Tensor], epsilon: float
) -> Tensor | None:
    """Return the input of a network's first linear layer in a pass of `inputs` (B, …); None without a linear layer.

    The pass ends there: the function that chooses LRP rules is called at every linear layer, and raises at the first.
    """

    def stop_at_first(layer: Affine, is_first: bool) -> Rule:
        if is_first:
            raise _Reached(layer.x.detach())
        return epsilon_rule  # a batch normalisation before the first layer

    try:
        with torch.enable_grad(), Relevance(stop_at_first, epsilon, model.name):
            model.logits(inputs.clone().requires_grad_().clone(), aux)
    except _Reached as reached:
        return reached.x
    return None


def _folded(layer: Affine, scale: Tensor, shift: Tensor) -> Affine:
    """Return a linear layer that computes scale · z + shift, where z is the output of `layer`.

    So the batch normalisation behind a layer becomes part of its weights and bias. The weights of a transposed
    convolution have their output channels in the second dimension, others in the first.
    """
    is_transposed = layer.convolves and layer.weight.shape[0] != len(scale)
    output_first = (1, -1) if is_transposed else (-1, 1)
    weight_scale = scale.reshape(*output_first, *[1] * (layer.weight.ndim - 2))
    scaled_bias = 0.0 if layer.bias is None else layer.bias * scale
    return replace(layer, weight=layer.weight * weight_scale, bias=scaled_bias + shift)


def _with_pullback(value: Tensor, pullback: Pullback, *inputs: Tensor) -> Tensor:
    """Return `value` as the result of a function of `inputs` whose backward pass is `pullback`.

    `pullback` takes the relevance of the value and returns that of each input.
    """
    # A detached copy: `pullback` may hold `value`, and a result that is `value` would keep its own graph alive.
    detached = value.detach()
    result: Tensor = _WithRelevance.apply(lambda: detached, pullback, *inputs)  # type: ignore[no-untyped-call]
    return result


def _tensors(values: Any) -> list[Tensor]:
    """Return all tensors in nested lists, tuples and dictionaries, in order."""
    if isinstance(values, Tensor):
        return [values]
    if isinstance(values, dict):
        values = values.values()
    elif not isinstance(values, tuple | list):
        return []
    tensors = []
    for value in values:
        tensors.extend(_tensors(value))
    return tensors

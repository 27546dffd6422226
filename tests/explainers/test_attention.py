"""Attention rollout and Chefer's relevance, against sums by hand and against the attention that libraries return."""

from __future__ import annotations

import functools
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from heatproof import AttentionRollout, Batch, Chefer, Model, UserError
from heatproof.explainers import attention_parts
from support.fixed import normal
from support.vit_shapes import Swin, TimmViT, TorchvisionViT, TransformersViT, seeded_vit

TARGET = torch.tensor([0, 1, 2])
IMAGES = Batch(
    ("a", "b", "c"), torch.rand(3, 3, 16, 16, generator=torch.Generator().manual_seed(0))
)
BOTH = (AttentionRollout(), Chefer())


class TwoLayers(nn.Module):
    """Texts of four tokens, one head, two layers; `fused` decides who computes the attention."""

    def __init__(self, fused: bool = False) -> None:
        super().__init__()
        generator = torch.Generator().manual_seed(3)

        def drawn(*shape: int) -> nn.Parameter:
            return nn.Parameter(torch.randn(shape, generator=generator, dtype=torch.float64) * 0.6)

        self.embed = nn.Embedding(7, 3, _weight=drawn(7, 3))
        self.queries, self.keys, self.values = (
            nn.ParameterList(drawn(3, 3) for _ in range(2)) for _ in range(3)
        )
        self.head, self.fused = drawn(3, 4), fused

    def forward(self, ids: Tensor) -> Tensor:
        x = self.embed(ids)[:, None]
        for q, k, v in zip(self.queries, self.keys, self.values, strict=True):
            if self.fused:
                x = x + F.scaled_dot_product_attention(x @ q, x @ k, x @ v, scale=1.0)
            else:
                x = x + ((x @ q) @ (x @ k).transpose(-2, -1)).softmax(-1) @ (x @ v)
        return (x[:, 0, 0].tanh() @ self.head).float()


def by_hand(net: TwoLayers, ids: np.ndarray, target: int) -> tuple[np.ndarray, np.ndarray]:
    """Rollout and Chefer's relevance of one text, with derivatives by differences of a forward pass in numpy."""
    parts = [[p.detach().numpy() for p in group] for group in (net.queries, net.keys, net.values)]
    head, embedded = net.head.detach().numpy(), net.embed.weight.detach().numpy()[ids]

    def forward(added: np.ndarray) -> tuple[float, list[np.ndarray]]:
        x, attention = embedded, []
        for layer, (q, k, v) in enumerate(zip(*parts, strict=True)):
            scores = np.exp((x @ q) @ (x @ k).T)
            attention.append(scores / scores.sum(1, keepdims=True) + added[layer])
            x = x + attention[-1] @ (x @ v)
        return float(np.tanh(x[0]) @ head[:, target]), attention

    n, step = len(ids), 1e-6
    _, attention = forward(np.zeros((2, n, n)))
    slope = np.zeros((2, n, n))
    for place in np.ndindex(slope.shape):
        added = np.zeros_like(slope)
        added[place] = step
        slope[place] = (forward(added)[0] - forward(-added)[0]) / (2 * step)
    rollout, relevance = np.eye(n), np.eye(n)
    for a, g in zip(attention, slope, strict=True):
        rollout = (a + np.eye(n)) / 2 @ rollout
        relevance = relevance + np.maximum(a * g, 0) @ relevance
    return rollout[0], (relevance - np.eye(n))[0]


@pytest.mark.parametrize("fused", [False, True])
def test_both_equal_a_calculation_by_hand(fused):
    net = TwoLayers(fused)
    ids = torch.tensor([[1, 2, 3, 4], [6, 0, 5, 2]])
    model, batch = Model(net, embedding="embed"), Batch(("a", "b"), ids)
    found = [explainer(model, batch, TARGET[:2], 0) for explainer in BOTH]
    for row in range(2):
        expected = by_hand(net, ids[row].numpy(), row)
        for maps, values in zip(found, expected, strict=True):
            assert values.max() > 1e-3
            np.testing.assert_allclose(maps[row].numpy(), values, rtol=1e-4, atol=1e-6)


class Spare(TwoLayers):
    """Attends once more, and reads nothing of it."""

    def forward(self, ids: Tensor) -> Tensor:
        x = self.embed(ids)[:, None]
        F.scaled_dot_product_attention(x, x, x)
        return super().forward(ids)


def test_attention_that_nobody_reads_has_no_part_in_the_relevance():
    batch = Batch(("a", "b"), torch.tensor([[1, 2, 3, 4], [6, 0, 5, 2]]))
    spare, plain = (
        Chefer()(Model(kind(True), embedding="embed"), batch, TARGET[:2], 0)
        for kind in (Spare, TwoLayers)
    )
    torch.testing.assert_close(spare, plain)


@pytest.mark.parametrize("explainer", BOTH)
@pytest.mark.parametrize(
    "shape", [TorchvisionViT, TimmViT, TransformersViT, lambda: TimmViT(2, "avg")]
)
def test_every_shape_gives_maps_that_a_batch_does_not_change(explainer, shape):
    torch.manual_seed(0)
    model = Model(shape())
    maps = explainer(model, IMAGES, TARGET, 0)
    alone = torch.cat([explainer(model, IMAGES[[i]], TARGET[[i]], 0) for i in range(3)])
    assert maps.shape == IMAGES.x.shape
    assert float(maps.flatten(1).std(1).min()) > 0
    torch.testing.assert_close(maps, alone, rtol=1e-4, atol=1e-7)


@pytest.mark.parametrize("pool", ["token", "avg"])
def test_what_the_output_is_read_from_is_found(pool):
    """After a mean over patches every patch's row counts, with a class token only its own."""
    torch.manual_seed(0)
    net = TimmViT(1, pool)
    kept = []
    for block in net.blocks:
        block.attn.attn_drop.register_forward_hook(lambda *given: kept.append(given[2].detach()))
    net.eval()(IMAGES.x)
    joint = torch.eye(17)
    for attention in kept:
        joint = (attention.mean(1) + torch.eye(17)) / 2 @ joint
    row = joint[:, 0] if pool == "token" else joint[:, 1:].mean(1)
    expected = F.interpolate(row[:, 1:].reshape(3, 1, 4, 4), size=(16, 16), mode="bilinear")
    torch.testing.assert_close(
        AttentionRollout()(Model(net), IMAGES, TARGET, 0), expected.expand_as(IMAGES.x)
    )


@pytest.mark.parametrize("explainer", BOTH)
def test_sixteen_bits_change_little(explainer):
    batch = Batch(
        ("a", "b", "c"), torch.rand(3, 3, 32, 32, generator=torch.Generator().manual_seed(0))
    )
    exact, rounded = Model(seeded_vit()), Model(seeded_vit()).use("bfloat16")
    a, b = (explainer(model, batch, TARGET, 0).flatten(1) for model in (exact, rounded))
    assert float(F.cosine_similarity(a, b).min()) > 0.95


def test_what_has_no_attention_is_refused_by_name():
    convolutional = nn.Sequential(
        nn.Conv2d(3, 4, 3), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(4, 4)
    )
    with pytest.raises(UserError, match=r"chefer.*attention"):
        Chefer()(Model(convolutional), IMAGES, TARGET, 0)
    with pytest.raises(UserError, match="tokens"):
        AttentionRollout()(Model(Swin(permute=True)), IMAGES, TARGET, 0)
    with pytest.raises(UserError, match=r"images.*texts"):
        Chefer()(Model(nn.Linear(3, 2)), Batch(("a",), torch.rand(1, 3)), TARGET[:1], 0)


@pytest.mark.parametrize("explainer", BOTH)
def test_the_networks_of_timm(explainer):
    timm = pytest.importorskip(
        "timm", reason="timm is not installed, or its torchvision does not fit this torch"
    )
    net = timm.create_model(
        "vit_tiny_patch16_224", img_size=16, patch_size=4, depth=2, num_classes=5
    ).eval()
    fused = explainer(Model(net), IMAGES, TARGET, 0)
    for block in net.blocks:
        block.attn.fused_attn = False
    torch.testing.assert_close(
        fused, explainer(Model(net), IMAGES, TARGET, 0), rtol=1e-4, atol=1e-7
    )
    assert float(fused.std()) > 0


def test_the_networks_of_transformers_return_the_attention_that_is_rolled_out():
    transformers = pytest.importorskip("transformers", reason="transformers is not installed")
    torch.manual_seed(0)
    sizes = {
        "hidden_size": 16,
        "num_hidden_layers": 2,
        "num_attention_heads": 2,
        "intermediate_size": 32,
    }
    bert = transformers.BertConfig(
        vocab_size=50, num_labels=3, attn_implementation="eager", **sizes
    )
    net = transformers.BertForSequenceClassification(bert).eval()
    mask = torch.ones(3, 9, dtype=torch.int64)
    mask[1, 6:] = 0
    batch = Batch(("a", "b", "c"), torch.randint(5, 50, (3, 9)), {"attention_mask": mask})
    joint = torch.eye(9)
    for attention in net(batch.x, attention_mask=mask, output_attentions=True).attentions:
        joint = (attention.mean(1) + torch.eye(9)) / 2 @ joint
    model = Model(net, embedding="bert.embeddings.word_embeddings")
    torch.testing.assert_close(AttentionRollout()(model, batch, TARGET, 0), joint[:, 0].detach())
    assert bool((Chefer()(model, batch, TARGET, 0)[1, 6:] == 0).all())


def test_attention_taken_apart() -> None:
    q, k, v = (normal(2, 4, 5, 3, seed=i) for i in range(3))
    product, softmax, scaled = torch.matmul, lambda s: s.softmax(-1), torch.mul
    mask = torch.zeros(5, 5).masked_fill(
        torch.ones(5, 5).triu(2).bool(), -torch.inf
    ) + 0.3 * torch.eye(5)
    for options in (
        {},
        {"is_causal": True},
        {"attn_mask": mask},
        {"attn_mask": mask > -1},
        {"scale": 0.2},
    ):
        wanted = nn.functional.scaled_dot_product_attention(q, k, v, **options)
        assert torch.allclose(
            attention_parts.attend(product, softmax, scaled, q, k, v, **options), wanted, atol=1e-5
        )
    few = attention_parts.attend(product, softmax, scaled, q, k[:, :2], v[:, :2], enable_gqa=True)
    repeated = (t[:, :2].repeat_interleave(2, 1) for t in (k, v))
    assert torch.allclose(few, nn.functional.scaled_dot_product_attention(q, *repeated), atol=1e-5)
    layer = nn.MultiheadAttention(6, 2)
    for i, weight in enumerate(layer.parameters()):
        weight.data.copy_(normal(*weight.shape, seed=i))
    x = normal(4, 3, 6)
    padded = torch.tensor([[0, 0, 0, 1], [0] * 4, [0, 1, 0, 1]]).bool()
    whole = functools.partial(attention_parts.attend, product, softmax, scaled)
    heads = functools.partial(attention_parts.attend_heads, nn.functional.linear, whole, "no")
    given: tuple[Any, ...] = (
        6,
        2,
        layer.in_proj_weight,
        layer.in_proj_bias,
        None,
        None,
        False,
        0.0,
    )
    given += (layer.out_proj.weight, layer.out_proj.bias)
    each, reference = normal(6, 4, 4, seed=9), nn.functional.multi_head_attention_forward
    hidden = torch.zeros(3, 4).masked_fill(padded, -torch.inf)
    for mask, gone in (
        (None, None),
        (None, hidden),
        (each, None),
        (each, hidden),
        (each[0], hidden),
    ):
        options = {"attn_mask": mask, "key_padding_mask": gone}
        wanted = reference(x, x, x, *given, training=False, need_weights=False, **options)[0]
        assert torch.allclose(heads(x, x, x, *given, **options)[0], wanted, atol=1e-5)
        if gone is not None:
            options["key_padding_mask"] = padded
            assert torch.allclose(heads(x, x, x, *given, **options)[0], wanted, atol=1e-5)
    for wrong in ({"use_separate_proj_weight": True}, {"bias_k": x}, {"add_zero_attn": True}):
        positional = [
            *given[:4],
            wrong.get("bias_k"),
            None,
            wrong.get("add_zero_attn", False),
            *given[7:],
        ]
        rest = {key: value for key, value in wrong.items() if key == "use_separate_proj_weight"}
        with pytest.raises(UserError, match="no"):
            heads(x, x, x, *positional, **rest)

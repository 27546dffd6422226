"""Small networks with the module structure and names of torchvision, timm and transformers."""

from __future__ import annotations

from collections import OrderedDict
from types import SimpleNamespace

import torch
from torch import Tensor, nn


class TorchvisionBlock(nn.Module):
    def __init__(self, dim: int, heads: int) -> None:
        super().__init__()
        self.ln_1 = nn.LayerNorm(dim)
        self.self_attention = nn.MultiheadAttention(dim, heads, batch_first=True)
        self.dropout = nn.Dropout(0.1)
        self.ln_2 = nn.LayerNorm(dim)
        self.mlp = nn.Sequential(
            nn.Linear(dim, 2 * dim), nn.GELU(), nn.Dropout(0.1), nn.Linear(2 * dim, dim)
        )

    def forward(self, input: Tensor) -> Tensor:
        x = self.ln_1(input)
        x, _ = self.self_attention(x, x, x, need_weights=False)
        x = self.dropout(x) + input
        return x + self.mlp(self.ln_2(x))


class TorchvisionEncoder(nn.Module):
    def __init__(self, tokens: int, dim: int, heads: int, depth: int) -> None:
        super().__init__()
        self.pos_embedding = nn.Parameter(torch.randn(1, tokens, dim) * 0.1)
        self.dropout = nn.Dropout(0.1)
        self.layers = nn.Sequential(
            OrderedDict((f"encoder_layer_{i}", TorchvisionBlock(dim, heads)) for i in range(depth))
        )
        self.ln = nn.LayerNorm(dim)

    def forward(self, input: Tensor) -> Tensor:
        return self.ln(self.layers(self.dropout(input + self.pos_embedding)))


class TorchvisionViT(nn.Module):
    def __init__(
        self, size: tuple[int, int] = (16, 16), patch: int = 4, dim: int = 8, depth: int = 2
    ) -> None:
        super().__init__()
        tokens = (size[0] // patch) * (size[1] // patch) + 1
        self.conv_proj = nn.Conv2d(3, dim, patch, patch)
        self.class_token = nn.Parameter(torch.randn(1, 1, dim))
        self.encoder = TorchvisionEncoder(tokens, dim, 2, depth)
        self.heads = nn.Sequential(OrderedDict(head=nn.Linear(dim, 4)))

    def forward(self, x: Tensor) -> Tensor:
        tokens = self.conv_proj(x).flatten(2).permute(0, 2, 1)
        tokens = torch.cat([self.class_token.expand(len(x), -1, -1), tokens], 1)
        return self.heads(self.encoder(tokens)[:, 0])


class TimmAttention(nn.Module):
    def __init__(self, dim: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.qkv = nn.Linear(dim, 3 * dim)
        self.q_norm, self.k_norm = nn.LayerNorm(dim // heads), nn.LayerNorm(dim // heads)
        self.attn_drop = nn.Dropout(0.0)
        self.proj = nn.Linear(dim, dim)

    def forward(self, x: Tensor) -> Tensor:
        rows, tokens, dim = x.shape
        q, k, v = (
            self.qkv(x).reshape(rows, tokens, 3, self.heads, -1).permute(2, 0, 3, 1, 4).unbind(0)
        )
        q, k = self.q_norm(q), self.k_norm(k)
        weights = self.attn_drop((q @ k.transpose(-2, -1) * q.shape[-1] ** -0.5).softmax(-1))
        return self.proj((weights @ v).transpose(1, 2).reshape(rows, tokens, dim))


class TimmBlock(nn.Module):
    def __init__(self, dim: int, heads: int) -> None:
        super().__init__()
        self.norm1 = nn.LayerNorm(dim)
        self.attn = TimmAttention(dim, heads)
        self.norm2 = nn.LayerNorm(dim)
        self.mlp = nn.Sequential(
            OrderedDict(fc1=nn.Linear(dim, 2 * dim), act=nn.GELU(), fc2=nn.Linear(2 * dim, dim))
        )

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.attn(self.norm1(x))
        return x + self.mlp(self.norm2(x))


class TimmPatchEmbed(nn.Module):
    def __init__(self, patch: int, dim: int) -> None:
        super().__init__()
        self.proj = nn.Conv2d(3, dim, patch, patch)
        self.norm = nn.Identity()

    def forward(self, x: Tensor) -> Tensor:
        return self.norm(self.proj(x).flatten(2).transpose(1, 2))


class TimmViT(nn.Module):
    """`prefix` tokens: class, distillation and register tokens; `pool` is `token` or `avg`."""

    def __init__(
        self, prefix: int = 1, pool: str = "token", size: int = 16, patch: int = 4, dim: int = 8
    ) -> None:
        super().__init__()
        self.num_prefix_tokens = prefix
        self.pool = pool
        self.patch_embed = TimmPatchEmbed(patch, dim)
        self.cls_token = nn.Parameter(torch.randn(1, prefix, dim))
        self.pos_embed = nn.Parameter(torch.randn(1, (size // patch) ** 2 + prefix, dim) * 0.1)
        self.pos_drop = nn.Dropout(0.0)
        self.blocks = nn.Sequential(*(TimmBlock(dim, 2) for _ in range(3)))
        self.norm = nn.LayerNorm(dim) if pool == "token" else nn.Identity()
        self.fc_norm = nn.Identity() if pool == "token" else nn.LayerNorm(dim)
        self.head = nn.Linear(dim, 4)

    def forward(self, x: Tensor) -> Tensor:
        x = torch.cat([self.cls_token.expand(len(x), -1, -1), self.patch_embed(x)], 1)
        x = self.norm(self.blocks(self.pos_drop(x + self.pos_embed)))
        x = x[:, 0] if self.pool == "token" else x[:, self.num_prefix_tokens :].mean(1)
        return self.head(self.fc_norm(x))


class TransformersLayer(nn.Module):
    def __init__(self, dim: int) -> None:
        super().__init__()
        self.layernorm_before = nn.LayerNorm(dim)
        self.attention = TimmAttention(dim, 2)
        self.layernorm_after = nn.LayerNorm(dim)
        self.intermediate = nn.Sequential(
            OrderedDict(dense=nn.Linear(dim, 2 * dim), intermediate_act_fn=nn.GELU())
        )
        self.output = nn.Linear(2 * dim, dim)

    def forward(self, hidden_states: Tensor, head_mask: Tensor | None = None) -> tuple[Tensor]:
        hidden_states = self.attention(self.layernorm_before(hidden_states)) + hidden_states
        return (
            self.output(self.intermediate(self.layernorm_after(hidden_states))) + hidden_states,
        )


class TransformersViT(nn.Module):
    """`prefix=2` is the distilled DeiT; the layers are called by keyword when `keyword`."""

    def __init__(
        self, prefix: int = 1, keyword: bool = False, size: int = 16, patch: int = 4, dim: int = 8
    ) -> None:
        super().__init__()
        self.keyword = keyword
        self.vit = nn.Module()
        self.vit.embeddings = nn.Module()
        self.vit.embeddings.cls_token = nn.Parameter(torch.randn(1, prefix, dim))
        self.vit.embeddings.position_embeddings = nn.Parameter(
            torch.randn(1, (size // patch) ** 2 + prefix, dim) * 0.1
        )
        self.vit.embeddings.patch_embeddings = nn.Module()
        self.vit.embeddings.patch_embeddings.projection = nn.Conv2d(3, dim, patch, patch)
        self.vit.encoder = nn.Module()
        self.vit.encoder.layer = nn.ModuleList(TransformersLayer(dim) for _ in range(2))
        self.vit.layernorm = nn.LayerNorm(dim)
        self.classifier = nn.Linear(dim, 4)

    def forward(self, pixel_values: Tensor) -> SimpleNamespace:
        embeddings = self.vit.embeddings
        tokens = embeddings.patch_embeddings.projection(pixel_values).flatten(2).transpose(1, 2)
        hidden = torch.cat([embeddings.cls_token.expand(len(tokens), -1, -1), tokens], 1)
        hidden = hidden + embeddings.position_embeddings
        for layer in self.vit.encoder.layer:
            hidden = (layer(hidden_states=hidden) if self.keyword else layer(hidden, None))[0]
        return SimpleNamespace(logits=self.classifier(self.vit.layernorm(hidden)[:, 0]))


class SwinBlock(nn.Module):
    """Attention over the whole map in place of shifted windows; the tensors lie as in Swin: (B, H, W, C)."""

    def __init__(self, dim: int) -> None:
        super().__init__()
        self.norm1 = nn.LayerNorm(dim)
        self.attn = TimmAttention(dim, 2)
        self.norm2 = nn.LayerNorm(dim)
        self.mlp = nn.Sequential(nn.Linear(dim, 2 * dim), nn.GELU(), nn.Linear(2 * dim, dim))

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.attn(self.norm1(x).flatten(1, 2)).view_as(x)
        return x + self.mlp(self.norm2(x))


class Permute(nn.Module):
    def __init__(self, *order: int) -> None:
        super().__init__()
        self.order = order

    def forward(self, x: Tensor) -> Tensor:
        return x.permute(*self.order)


class Swin(nn.Module):
    """torchvision's permutes before pooling; timm's (`permute=False`) pools the channels-last map."""

    def __init__(self, permute: bool, dim: int = 8) -> None:
        super().__init__()
        stem = nn.Sequential(nn.Conv2d(3, dim, 4, 4), Permute(0, 2, 3, 1), nn.LayerNorm(dim))
        self.features = nn.Sequential(stem, nn.Sequential(SwinBlock(dim), SwinBlock(dim)))
        self.norm = nn.LayerNorm(dim)
        self.permute = Permute(0, 3, 1, 2) if permute else None
        self.avgpool = nn.AdaptiveAvgPool2d(1)
        self.head = nn.Linear(dim, 4)

    def forward(self, x: Tensor) -> Tensor:
        x = self.norm(self.features(x))
        if self.permute is None:
            return self.head(x.mean((1, 2)))
        return self.head(self.avgpool(self.permute(x)).flatten(1))


def seeded_vit(size: int = 32) -> nn.Module:
    """A vision transformer with attention that is far from uniform; its weights are drawn in a way of their own."""
    net = TimmViT(size=size)
    generator = torch.Generator().manual_seed(2)
    with torch.no_grad():
        for parameter in net.parameters():
            parameter.copy_(torch.randn(parameter.shape, generator=generator) * 0.5)
    return net.eval()

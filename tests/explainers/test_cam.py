"""Grad-CAM against Captum and against maps computed by hand, on networks of the usual libraries' shapes."""

from __future__ import annotations

import gc
import itertools
from collections import OrderedDict, namedtuple

import captum.attr
import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from heatproof import Batch, Model, UserError
from heatproof.explainers import cam_layer as feature_maps
from heatproof.explainers.cam import GradCAM, GradCAMPlusPlus, HiResCAM, LayerCAM
from heatproof.explainers.cam_layer import find_layer, token_grid
from support.vit_shapes import Permute, Swin, TimmBlock, TimmViT, TorchvisionViT, TransformersViT

TARGET = torch.tensor([0, 1, 2])


def seeded(net: nn.Module) -> nn.Module:
    generator = torch.Generator().manual_seed(1)
    with torch.no_grad():
        for parameter in net.parameters():
            parameter.add_(torch.randn(parameter.shape, generator=generator) * 0.3)
    return net.eval()


def batch_of(*shape: int) -> Batch:
    x = torch.rand(3, *shape, generator=torch.Generator().manual_seed(0))
    return Batch(("a", "b", "c"), x)


IMAGES = batch_of(3, 16, 16)


class ConvNet(nn.Module):
    """As DenseNet: the features end with a norm, and a functional ReLU works on them in place."""

    def __init__(self) -> None:
        super().__init__()
        self.features = nn.Sequential(
            OrderedDict(
                conv0=nn.Conv2d(3, 8, 3), relu0=nn.ReLU(), pool0=nn.MaxPool2d(2), conv1=nn.Conv2d(8, 6, 3),
                norm5=nn.BatchNorm2d(6),
            )
        )  # fmt: skip
        self.classifier = nn.Linear(6, 4)

    def forward(self, x: Tensor) -> Tensor:
        out = F.relu(self.features(x), inplace=True)
        return self.classifier(F.adaptive_avg_pool2d(out, (1, 1)).flatten(1))


class ReusedReLU(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Conv2d(3, 8, 3, 2), nn.Conv2d(8, 6, 3)
        self.act = nn.ReLU6()
        self.pool, self.head = nn.AdaptiveAvgPool2d(1), nn.Linear(6, 4)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.pool(self.act(self.second(self.act(self.first(x))))).flatten(1))


def by_hand(features: Tensor, gradient: Tensor, size: tuple[int, int], relu: bool = True) -> Tensor:
    """Grad-CAM of (B, C, h, w), one loop per sample and channel."""
    maps = []
    for a, g in zip(features, gradient, strict=True):
        one = sum(g[c].mean() * a[c] for c in range(len(a)))
        maps.append(one.relu() if relu else one)
    return F.interpolate(
        torch.stack(maps)[:, None], size=size, mode="bilinear", align_corners=False
    )


def assert_map(ours: Tensor, wanted: Tensor, relative: float = 1e-4) -> None:
    wanted = wanted.detach().expand_as(ours)
    assert float(wanted.abs().max()) > 1e-6
    assert float((ours - wanted).abs().max() / wanted.abs().max()) < relative


class TestConvolutional:
    @pytest.mark.parametrize("relu", [True, False])
    @pytest.mark.parametrize("layer", [None, "features.norm5", "features.relu0"])
    def test_captum(self, layer, relu):
        model = Model(seeded(ConvNet()), mean=0.5, std=0.2)
        x = model.inputs(IMAGES)
        reference = captum.attr.LayerGradCam(model.module, model.layer(layer or "features"))
        theirs = reference.attribute(x, TARGET, relu_attributions=relu).detach()
        theirs = captum.attr.LayerAttribution.interpolate(theirs, (16, 16), "bilinear")
        assert_map(GradCAM(layer=layer, relu=relu)(model, IMAGES, TARGET, 0), theirs)

    @pytest.mark.parametrize(("height", "width"), [(16, 16), (24, 12), (17, 30)])
    def test_the_last_map_is_found(self, height, width):
        site = find_layer(Model(seeded(ConvNet())), (3, height, width))
        assert (site.path, site.side, site.layout) == ("features", "output", "channels_first")

    def test_a_module_used_many_times_is_read_at_its_last_use(self):
        model = Model(seeded(ReusedReLU()))
        assert find_layer(model, (3, 16, 16)).path == "act"
        net = model.module
        features = net.act(net.second(net.act(net.first(IMAGES.x)))).requires_grad_()
        logits = net.head(net.pool(features).flatten(1))
        (gradient,) = torch.autograd.grad(logits[range(3), TARGET].sum(), features)
        assert_map(
            GradCAM(relu=False)(model, IMAGES, TARGET, 0),
            by_hand(features, gradient, (16, 16), relu=False),
        )

    def test_layers_that_the_output_does_not_use_are_passed_over(self):
        class Auxiliary(ConvNet):
            def __init__(self) -> None:
                super().__init__()
                self.extra = nn.Conv2d(6, 2, 1)

            def forward(self, x: Tensor) -> Tensor:
                self.extra(self.features(x))
                return super().forward(x)

        model = Model(seeded(Auxiliary()))
        assert find_layer(model, (3, 16, 16)).path == "features"
        with pytest.raises(UserError, match="'extra'"):
            GradCAM(layer="extra")(model, IMAGES, TARGET, 0)

    def test_a_pool_to_a_fixed_size_is_not_the_layer(self):
        net = nn.Sequential(
            nn.Conv2d(3, 4, 3, 2), nn.AdaptiveAvgPool2d(7), nn.Flatten(), nn.Linear(4 * 49, 4)
        )
        assert find_layer(Model(seeded(net)), (3, 16, 16)).path == "0"

    def test_a_map_of_zeros_is_returned_as_it_is(self):
        net = nn.Sequential(
            nn.Conv2d(3, 4, 3), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(4, 4)
        )
        model = Model(seeded(net))
        model.module[-1].weight.fill_(-1)
        assert not GradCAM()(model, IMAGES, TARGET, 0).any()


def last_block_reference(
    block_input: Tensor, rest, prefix: int, size: tuple[int, int], grid: tuple[int, int]
) -> Tensor:
    tokens = block_input.detach().requires_grad_()
    (gradient,) = torch.autograd.grad(rest(tokens)[range(3), TARGET].sum(), tokens)

    def lay(t: Tensor) -> Tensor:
        return torch.stack(
            [image[prefix:].reshape(*grid, -1).permute(2, 0, 1) for image in t.detach()]
        )

    return by_hand(lay(tokens), lay(gradient), size, relu=False)


class TestTransformers:
    @pytest.mark.parametrize(("height", "width"), [(16, 16), (8, 24)])
    def test_torchvision(self, height, width):
        model = Model(seeded(TorchvisionViT((height, width))))
        site = find_layer(model, (3, height, width))
        assert (site.path, site.side, site.grid) == (
            "encoder.layers.encoder_layer_1", "input", (height // 4, width // 4),
        )  # fmt: skip
        net, batch = model.module, batch_of(3, height, width)
        tokens = torch.cat(
            [net.class_token.expand(3, -1, -1), net.conv_proj(batch.x).flatten(2).transpose(1, 2)],
            1,
        )
        tokens = net.encoder.layers[0](tokens + net.encoder.pos_embedding)

        def rest(t: Tensor) -> Tensor:
            return net.heads(net.encoder.ln(net.encoder.layers[1](t))[:, 0])

        wanted = last_block_reference(tokens, rest, 1, (height, width), site.grid)
        assert_map(GradCAM(relu=False)(model, batch, TARGET, 0), wanted)

    @pytest.mark.parametrize(
        ("prefix", "pool"),
        [(0, "avg"), *((n, pool) for n in (1, 2, 5) for pool in ("token", "avg"))],
    )
    def test_timm(self, prefix, pool):
        model = Model(seeded(TimmViT(prefix, pool)))
        site = find_layer(model, (3, 16, 16))
        assert (site.path, site.side, site.grid) == ("blocks.2", "input", (4, 4))
        net = model.module
        tokens = (
            torch.cat([net.cls_token.expand(3, -1, -1), net.patch_embed(IMAGES.x)], 1)
            + net.pos_embed
        )
        tokens = net.blocks[1](net.blocks[0](tokens))

        def rest(t: Tensor) -> Tensor:
            t = net.norm(net.blocks[2](t))
            return net.head(net.fc_norm(t[:, 0] if pool == "token" else t[:, prefix:].mean(1)))

        assert_map(
            GradCAM(relu=False)(model, IMAGES, TARGET, 0),
            last_block_reference(tokens, rest, prefix, (16, 16), (4, 4)),
        )

    @pytest.mark.parametrize("prefix", [1, 2])
    @pytest.mark.parametrize("keyword", [False, True])
    def test_transformers(self, prefix, keyword):
        model = Model(seeded(TransformersViT(prefix, keyword)))
        site = find_layer(model, (3, 16, 16))
        assert (site.path, site.side, site.grid) == ("vit.encoder.layer.1", "input", (4, 4))
        vit, embeddings = model.module.vit, model.module.vit.embeddings
        patches = embeddings.patch_embeddings.projection(IMAGES.x).flatten(2).transpose(1, 2)
        tokens = (
            torch.cat([embeddings.cls_token.expand(3, -1, -1), patches], 1)
            + embeddings.position_embeddings
        )
        tokens = vit.encoder.layer[0](tokens)[0]

        def rest(t: Tensor) -> Tensor:
            return model.module.classifier(vit.layernorm(vit.encoder.layer[1](t)[0])[:, 0])

        assert_map(
            GradCAM(relu=False)(model, IMAGES, TARGET, 0),
            last_block_reference(tokens, rest, prefix, (16, 16), (4, 4)),
        )

    def test_the_image_tokens_behind_the_last_block_carry_no_gradient(self):
        """What the search avoids: behind the last attention, the class token alone is read."""
        model = Model(seeded(TimmViT()))
        assert not GradCAM(layer="blocks.2", relu=False)(model, IMAGES, TARGET, 0).any()
        assert GradCAM(relu=False)(model, IMAGES, TARGET, 0).any()

    def test_blocks_split_in_two_step_back_to_where_the_image_counts(self):
        """A list of (attention, feed-forward) pairs: before the last feed-forward only the class token counts."""

        class Half(nn.Module):
            def __init__(self, inner: nn.Module) -> None:
                super().__init__()
                self.norm, self.inner = nn.LayerNorm(8), inner

            def forward(self, x: Tensor) -> Tensor:
                return x + self.inner(self.norm(x))

        class Pairs(nn.Module):
            def __init__(self) -> None:
                super().__init__()
                whole = TimmViT()
                self.patch_embed, self.cls_token, self.head = (
                    whole.patch_embed,
                    whole.cls_token,
                    whole.head,
                )
                self.layers = nn.ModuleList(
                    nn.ModuleList([Half(block.attn), Half(block.mlp)])
                    for block in (TimmBlock(8, 2), TimmBlock(8, 2))
                )

            def forward(self, x: Tensor) -> Tensor:
                x = torch.cat([self.cls_token.expand(len(x), -1, -1), self.patch_embed(x)], 1)
                for attention, feed_forward in self.layers:
                    x = feed_forward(attention(x))
                return self.head(x[:, 0])

        assert find_layer(Model(seeded(Pairs())), (3, 16, 16)).path == "layers.1.0"

    def test_a_named_norm_is_read_at_its_output(self):
        model = Model(seeded(TorchvisionViT()))
        path = "encoder.layers.encoder_layer_1.ln_1"
        site = find_layer(model, (3, 16, 16), path)
        assert (site.path, site.side, site.layout, site.grid) == (path, "output", "tokens", (4, 4))
        assert GradCAM(layer=path, relu=False)(model, IMAGES, TARGET, 0).any()

    @pytest.mark.parametrize("permute", [True, False])
    def test_channels_last_maps(self, permute):
        model = Model(seeded(Swin(permute)))
        site = find_layer(model, (3, 16, 16))
        assert (site.path, site.layout) == (
            ("permute", "channels_first") if permute else ("norm", "channels_last")
        )
        features = (
            model.module.norm(model.module.features(IMAGES.x)).permute(0, 3, 1, 2).requires_grad_()
        )
        (gradient,) = torch.autograd.grad(
            model.module.head(features.mean((2, 3)))[range(3), TARGET].sum(), features
        )
        assert_map(
            GradCAM(relu=False)(model, IMAGES, TARGET, 0),
            by_hand(features, gradient, (16, 16), relu=False),
        )
        named = find_layer(model, (3, 16, 16), "features.1.1")
        assert named.layout == "channels_last"

    def test_channels_last_in_the_middle_of_a_convolutional_network(self):
        """As ConvNeXt: a block permutes, normalises and permutes back."""
        block = nn.Sequential(
            nn.Conv2d(8, 8, 3, padding=1), Permute(0, 2, 3, 1), nn.LayerNorm(8), Permute(0, 3, 1, 2)
        )
        net = nn.Sequential(
            OrderedDict(
                features=nn.Sequential(nn.Conv2d(3, 8, 4, 4), block), avgpool=nn.AdaptiveAvgPool2d(1),
                flat=nn.Flatten(), head=nn.Linear(8, 4),
            )
        )  # fmt: skip
        site = find_layer(Model(seeded(net)), (3, 16, 16))
        assert (site.path, site.layout) == ("features", "channels_first")


class TestErrors:
    def test_a_wrong_name_lists_the_nearest(self):
        model = Model(ConvNet())
        with pytest.raises(UserError, match=r"nearest are .*features\.norm5"):
            GradCAM(layer="features.norm4").check(model, (3, 16, 16))
        with pytest.raises(UserError, match=r"nearest are .*features\.norm5"):
            GradCAM(layer="features.norm4")(model, IMAGES, TARGET, 0)

    def test_only_images(self):
        with pytest.raises(UserError, match=r"\(100,\)"):
            GradCAM().check(Model(nn.Flatten()), (100,))

    def test_no_feature_map(self):
        model = Model(nn.Sequential(nn.Flatten(), nn.Linear(3 * 16 * 16, 4)), name="Flat")
        with pytest.raises(UserError, match="Flat"):
            GradCAM()(model, IMAGES, TARGET, 0)
        with pytest.raises(UserError, match=r"'1'.*Flat"):
            GradCAM(layer="1")(model, IMAGES, TARGET, 0)


@pytest.mark.parametrize("net", [ConvNet, TorchvisionViT, TransformersViT, lambda: Swin(False)])
def test_batch_size_makes_no_difference_and_no_hook_stays(net):
    model = Model(seeded(net()))
    wanted = GradCAM(relu=False)(model, IMAGES, TARGET, 0)
    for rows in (1, 2, 64):
        model.rows = rows
        with torch.no_grad():
            single = torch.cat(
                [GradCAM(relu=False)(model, IMAGES[[i]], TARGET[[i]], 0) for i in range(3)]
            )
        assert_map(single, wanted, 1e-5)
        assert_map(GradCAM(relu=False)(model, IMAGES, TARGET, 0), wanted, 1e-5)
    for part in model.module.modules():
        assert not part._forward_hooks and not part._forward_pre_hooks


def test_hooks_go_even_when_the_network_fails():
    class Failing(ConvNet):
        def forward(self, x: Tensor) -> Tensor:
            raise ArithmeticError(str(super().forward(x).shape))

    model = Model(Failing())
    with pytest.raises(ArithmeticError):
        GradCAM()(model, IMAGES, TARGET, 0)
    assert not any(part._forward_hooks for part in model.module.modules())


def test_the_layer_is_sought_once_and_forgotten_with_the_model():
    passes = []

    class Counting(ConvNet):
        def forward(self, x: Tensor) -> Tensor:
            passes.append(len(x))
            return super().forward(x)

    model = Model(Counting())
    for _ in range(3):
        GradCAM()(model, IMAGES, TARGET, 0)
    assert passes == [1, 3, 3, 3]
    held = len(feature_maps._SITES)
    del model
    gc.collect()
    assert len(feature_maps._SITES) < held


def test_token_grids():
    assert token_grid(197, (3, 224, 224)) == (14, 14)
    assert token_grid(201, (3, 224, 224)) == (14, 14)
    assert token_grid(6 * 8 + 1, (3, 96, 128)) == (6, 8)
    assert token_grid(64 + 4, (3, 32, 32), prefix=4) == (8, 8)
    assert token_grid(15, (3, 32, 32), prefix=1) is None
    assert token_grid(2, (3, 224, 224)) is None


def test_a_head_of_zeros_still_has_a_layer() -> None:
    net = nn.Sequential(
        nn.Conv2d(3, 4, 3), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(4, 2)
    )
    nn.init.zeros_(net[4].weight)
    assert find_layer(Model(net), (3, 8, 8)).path == "1"


def activations_and_gradients(net: nn.Module, layer: nn.Module) -> tuple[Tensor, Tensor]:
    kept: list[Tensor] = []
    handle = layer.register_forward_hook(lambda *given: kept.append(given[2]))
    scores = net(IMAGES.x.clone().requires_grad_())
    handle.remove()
    chosen = scores.gather(1, TARGET[:, None]).sum()
    return kept[0].detach(), torch.autograd.grad(chosen, kept[0])[0]


def four_layers() -> nn.Sequential:
    layers = (
        nn.Conv2d(3, 6, 3),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Conv2d(6, 5, 3),
        nn.ReLU(),
        nn.Flatten(),
    )
    return seeded(nn.Sequential(*layers, nn.Linear(125, 4)))


@pytest.mark.parametrize("kind", [GradCAMPlusPlus, LayerCAM, HiResCAM])
def test_the_kin_of_grad_cam_follow_their_formulas_place_by_place(kind):
    net = four_layers()
    features, gradients = activations_and_gradients(net, net[4])
    small = torch.zeros(3, 1, 5, 5)
    for row, channel in itertools.product(range(3), range(5)):
        a, g = features[row, channel], gradients[row, channel]
        if kind is GradCAMPlusPlus:
            alpha = torch.where(g != 0, g**2 / (2 * g**2 + a.sum() * g**3), 0)
            small[row, 0] += (alpha * g.clamp(min=0)).nansum() * a
        else:
            small[row, 0] += (g.clamp(min=0) if kind is LayerCAM else g) * a
    expected = F.interpolate(small.clamp(min=0), size=(16, 16), mode="bilinear").expand(
        -1, 3, -1, -1
    )
    assert float(expected.amax()) > 0
    torch.testing.assert_close(
        kind()(Model(net), IMAGES, TARGET, 0), expected, rtol=1e-4, atol=1e-6
    )


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("kind", [GradCAM, GradCAMPlusPlus, LayerCAM, HiResCAM])
def test_the_kin_of_grad_cam_agree_with_pytorch_grad_cam(kind):
    library = pytest.importorskip(
        "pytorch_grad_cam", reason="grad-cam is not installed, or its torchvision does not fit"
    )
    chosen = pytest.importorskip("pytorch_grad_cam.utils.model_targets").ClassifierOutputTarget
    layers = (
        nn.Conv2d(3, 6, 3, padding=1),
        nn.ReLU(),
        nn.Conv2d(6, 5, 3, padding=1),
        nn.ReLU(),
        nn.Flatten(),
    )
    net = seeded(
        nn.Sequential(*layers, nn.Linear(5 * 256, 4))
    )  # maps of the input's size: nothing is enlarged
    theirs = getattr(library, kind.__name__)(model=net, target_layers=[net[3]])
    expected = torch.as_tensor(
        theirs(input_tensor=IMAGES.x, targets=[chosen(int(t)) for t in TARGET])
    )
    ours = kind("3")(Model(net), IMAGES, TARGET, 0)[:, 0]
    ours = ours - ours.flatten(1).amin(1)[:, None, None]  # the library scales each map to [0, 1]
    ours = ours / ours.flatten(1).amax(1)[:, None, None]
    assert float((ours - expected).norm() / expected.norm()) < 1e-3


def test_a_list_of_layers_without_norms_holds_no_blocks():
    """They take and give tokens too, but the map before them is what a head that averages reads."""

    class Tokens(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.embed, self.head = nn.Conv2d(3, 6, 4, 4), nn.Linear(6, 4)
            self.layers = nn.ModuleList(nn.Sequential(nn.Linear(6, 6), nn.GELU()) for _ in range(2))

        def forward(self, x: Tensor) -> Tensor:
            tokens = self.embed(x).flatten(2).transpose(1, 2)
            for layer in self.layers:
                tokens = layer(tokens)
            return self.head(tokens.mean(1))

    assert find_layer(Model(seeded(Tokens())), (3, 16, 16)).path == "embed"


def test_token_grids_follow_the_maps_that_were_seen_and_the_shape_of_the_image():
    assert token_grid(18, (3, 32, 32), ((4, 4), (8, 8))) == (4, 4)
    assert token_grid(34, (3, 33, 64), ((4, 8),)) == (4, 8)
    assert token_grid(53, (3, 224, 224), ((7, 7),), 4) == (7, 7)
    assert token_grid(33, (3, 32, 64)) == (4, 8)
    assert token_grid(1, (3, 8, 8)) is None


class NamedPair(nn.Module):
    def forward(self, x: Tensor):
        return Pair("text", torch.tanh(x), torch.tensor([1]))


Pair = namedtuple("Pair", ("words", "first", "number"))


class Tuples(nn.Module):
    """Channels last in the middle, and a layer that gives a named tuple."""

    def __init__(self) -> None:
        super().__init__()
        self.conv, self.norm = nn.Conv2d(3, 4, 2, stride=2), nn.LayerNorm(4)
        self.pair, self.head = NamedPair(), nn.Linear(4, 4)

    def forward(self, x: Tensor) -> Tensor:
        x = self.norm(self.conv(x).permute(0, 2, 3, 1))
        return self.head(self.pair(x=x).first.mean((1, 2)))


def test_a_layer_may_give_a_named_tuple_with_channels_last():
    model = Model(seeded(Tuples()))
    found = find_layer(model, (3, 8, 6))
    assert (found.path, found.layout, found.grid) == ("pair", "channels_last", (4, 3))
    assert find_layer(model, (3, 8, 6), "conv").layout == "channels_first"
    # The head reads the mean of what the layer gives, so each gradient is a weight over the number of places.
    features = torch.tanh(model.module.norm(model.module.conv(IMAGES.x).permute(0, 2, 3, 1)))
    small = (features * model.module.head.weight[TARGET][:, None, None] / 64).sum(3)[:, None]
    wanted = F.interpolate(small, size=(16, 16), mode="bilinear")
    assert_map(GradCAM(relu=False)(model, IMAGES, TARGET, 0), wanted)
    with pytest.raises(UserError, match="head"):
        find_layer(model, (3, 8, 6), "head")

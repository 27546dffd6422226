"""Make the pictures of the docs.

    python docs/make_figures.py RUN             `docs/reading.md`: the charts of the report of a run, the hold
                                                sheet of README and tutorials, and the report itself
    python docs/make_figures.py --explainers    `docs/explainers.md`: maps of every family, of one photograph

A picture is named after the axis and its chart, `docs/figures/symmetry-boxes.svg`, or after the family of explainers.
"""

from __future__ import annotations

import argparse
import io
from html import escape
from pathlib import Path
from typing import Any

import numpy as np
import torch
from PIL import Image
from torch import Tensor, nn

import heatproof
from heatproof import Batch, Model
from heatproof.maps.overlay import overlaid
from heatproof.report.canvas import flowed
from heatproof.report.images import Album, is_signed, photo
from heatproof.report.page_parts import Chart
from heatproof.report.sections import sections_of
from heatproof.results.names import TITLES
from heatproof.runs.study.registry import EXPLAINERS, build

FIGURES = Path(__file__).parent / "figures"
INCHES, WIDE = 8.5, 1800
SIDE, GAP, WORDS = 128, 8, 18
PHOTOGRAPH = "cat"
PATCHES = {"patches": {"size": 28}}
FAMILIES: dict[str, list[Any]] = {
    "gradients": [
        "saliency",
        "input_x_gradient",
        "integrated_gradients",
        {"smoothgrad": {"samples": 20}},
    ],
    "rules": ["deep_lift", "guided_backprop", "lrp", {"lrp": {"composite": "epsilon_plus_flat"}}],
    "cams": [
        {name: {"layer": "_blocks.10"}}
        for name in ("grad_cam", "grad_cam_plus_plus", "layer_cam", "hires_cam")
    ],
    "asking": [
        {"lime": {"samples": 300, "features": PATCHES}},
        {"kernel_shap": {"samples": 300, "features": PATCHES}},
        {"rise": {"samples": 300}},
        {"occlusion": {"window": 28, "stride": 14}},
    ],
    "controls": ["random", "sobel", "weight_noise"],
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("run", type=Path, nargs="?", help="a run directory")
    parser.add_argument(
        "--explainers",
        nargs="*",
        metavar="FAMILY",
        help="maps of explainers, of all families or some",
    )
    parser.add_argument("--out", type=Path, default=FIGURES, help="where the pictures go")
    given = parser.parse_args()
    given.out.mkdir(parents=True, exist_ok=True)
    if given.run is not None:
        charts(given.run, given.out)
    for family in given.explainers or ([*FAMILIES, "attention"] if given.explainers == [] else ()):
        target = given.out / f"explainers-{family}.svg"
        target.write_text(
            attention_maps() if family == "attention" else photograph_maps(FAMILIES[family]),
            "utf-8",
        )
        print(f"{target}  {target.stat().st_size / 1000:.0f} kB")


def charts(path: Path, out: Path) -> None:
    run = heatproof.read(path)
    section = sections_of(run.results(), run.samples(), run.manifest, Album())[0]
    picture = Image.open(io.BytesIO(run.proof_sheet().encoded("png", "Proof sheet", INCHES)))
    picture.convert("RGB").resize((WIDE, picture.height * WIDE // picture.width)).save(
        out.parent / "proof-sheet.jpg", quality=88
    )
    run.report(out.parent / "demo-report.html")
    for axis in section.axes:
        for part in axis.parts:
            if isinstance(part, Chart):
                target = out / f"{axis.result.title.lower()}-{part.key}.svg"
                target.write_bytes(flowed(part.shown, INCHES)[0].encoded("svg", part.alt, INCHES))
                print(f"{target}  {target.stat().st_size / 1000:.0f} kB")


def photograph_maps(specs: list[Any]) -> str:
    data = heatproof.open_data("bundled:photographs", size=224)
    place = next(i for i, sample in enumerate(data.ids) if PHOTOGRAPH in sample)
    return row_of_maps(
        heatproof.load_model("bundled:efficientnet-lite0"), data.load([place]).batch, specs
    )


def row_of_maps(model: Model, batch: Batch, specs: list[Any]) -> str:
    """A photograph and its maps side by side, as SVG."""
    target = model.logits(model.inputs(batch)).argmax(1)
    picture = (batch.x[0].permute(1, 2, 0).numpy() * 255).round().astype(np.uint8)
    tiles = [("", photo(picture, SIDE))]
    for spec in specs:
        explainer = build("explainer", EXPLAINERS, spec)
        maps = explainer(model, batch, target, 0)[0].sum(0).detach().numpy()
        extra = f" {explainer.composite}" if spec != "lrp" and explainer.name == "lrp" else ""
        tiles.append(
            (
                TITLES[explainer.name] + extra.replace("_", " "),
                photo(overlaid(picture, maps, is_signed(maps)), SIDE),
            )
        )
    width = len(tiles) * (SIDE + GAP)
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {SIDE + WORDS}" width="{width}">'
    ]
    for number, (words, uri) in enumerate(tiles):
        x = number * (SIDE + GAP)
        parts.append(f'<image x="{x}" y="{WORDS}" width="{SIDE}" height="{SIDE}" href="{uri}"/>')
        parts.append(
            f'<text x="{x}" y="13" font-family="sans-serif" font-size="11" fill="#808890">{escape(words)}</text>'
        )
    return "\n".join([*parts, "</svg>\n"])


class SmallTransformer(nn.Module):
    """A vision transformer of 64 patches and a class token."""

    def __init__(self, dim: int = 48) -> None:
        super().__init__()
        self.patches = nn.Conv2d(3, dim, 4, 4)
        self.token, self.place = (nn.Parameter(torch.randn(1, n, dim) * 0.1) for n in (1, 65))
        layer = (
            nn.TransformerEncoderLayer(dim, 4, 2 * dim, 0.0, batch_first=True, norm_first=True)
            for _ in range(3)
        )
        self.blocks, self.head = nn.Sequential(*layer), nn.Linear(dim, 2)

    def forward(self, x: Tensor) -> Tensor:
        tokens = self.patches(x).flatten(2).transpose(1, 2)
        return self.head(
            self.blocks(torch.cat([self.token.expand(len(x), -1, -1), tokens], 1) + self.place)[
                :, 0
            ]
        )


def drawings(n: int, generator: torch.Generator) -> tuple[Tensor, Tensor]:
    """Discs and crosses at random places on noise, (n, 3, 32, 32), and which they are."""
    place = torch.arange(32.0)
    centre = torch.rand(n, 2, 1, generator=generator) * 16 + 8
    down, across = ((place - centre[:, i]).abs() for i in (0, 1))
    down, across = down[:, :, None], across[:, None]
    label = torch.randint(2, (n,), generator=generator)
    disc = down**2 + across**2 < 30
    cross = ((down < 2) & (across < 7)) | ((across < 2) & (down < 7))
    shape = torch.where(label[:, None, None] == 0, disc, cross).float()
    noise = torch.rand(n, 3, 32, 32, generator=generator)
    return 0.4 * noise + 0.6 * shape[:, None], label


def attention_maps() -> str:
    """No trained transformer comes with heatproof, so a small one learns to tell discs from crosses first."""
    torch.manual_seed(0)
    generator, net = torch.Generator().manual_seed(0), SmallTransformer()
    optimiser = torch.optim.Adam(net.parameters(), 1e-3)
    for _ in range(500):
        images, labels = drawings(64, generator)
        loss = nn.functional.cross_entropy(net(images - 0.5), labels)
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
    images, labels = drawings(256, generator)
    print(
        f"accuracy on drawings {float((net(images - 0.5).argmax(1) == labels).float().mean()):.2f}"
    )
    specs = ["attention_rollout", "chefer", "grad_cam", "integrated_gradients"]
    return row_of_maps(
        Model(net.eval(), mean=(0.5,) * 3, std=(1.0,) * 3), Batch(("x",), images[:1]), specs
    )


if __name__ == "__main__":
    main()

"""Make the pictures of the docs.

    python docs/make_figures.py RUN             `docs/reading.md`: charts of the report of a run, the first screen
                                                that README and tutorials show, and the report itself
    python docs/make_figures.py --explainers    `docs/explainers.md`: maps of every family, of one photograph

A picture is named after the axis and its chart, `docs/figures/symmetry-boxes.svg`, or after the family of explainers.
The first screen is drawn by the "Copy picture" button of the page, in headless Chromium.
"""

from __future__ import annotations

import argparse
import base64
import io
import sys
import tempfile
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
INCHES, WIDE = 8.5, 1720
WINDOW = 1366
"""Width of the browser's window in pixels; the picture of the first screen has twice as many."""
READING = (
    "stability-scores",
    "certificates-rates",
    "symmetry-boxes",
    "faithfulness-curves",
    "faithfulness-ranking",
    "dependence-scores",
    "localisation-scores",
    "agreement-matrix",
    "agreement-frontier-stability-faithfulness",
)
"""The charts that the pages show."""
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
    page = out.parent / "demo-report.html"
    run.report(page)
    first_screen(page, WIDE).save(
        out.parent / "verdict.jpg", quality=88, optimize=True, progressive=True
    )
    for axis in section.axes:
        for part in axis.parts:
            name = f"{axis.result.title.lower()}-{getattr(part, 'key', '')}"
            if isinstance(part, Chart) and name in READING:
                target = out / f"{name}.svg"
                target.write_bytes(flowed(part.shown, INCHES)[0].encoded("svg", part.alt, INCHES))
                print(f"{target}  {target.stat().st_size / 1000:.0f} kB")


def first_screen(page: Path, width: int) -> Image.Image:
    """Return the picture that "Copy picture" of a report makes, `width` pixels wide."""
    sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))
    from support.chromium import Chromium

    browser = Chromium(Path(tempfile.mkdtemp()))
    try:
        browser.open(page, WINDOW, 1000)
        browser.wait(
            "(!document.querySelector('.mini') || document.querySelector('.mini .tile'))"
            " && [...document.querySelectorAll('.verdict img')].every(i => i.naturalWidth)"
        )
        # The button copies to the clipboard; the drawing is taken where the page hands it over.
        browser.run(
            "window.drawing = null; const toBlob = HTMLCanvasElement.prototype.toBlob;"
            "HTMLCanvasElement.prototype.toBlob = function (...args) {"
            " window.drawing = this.toDataURL('image/png'); toBlob.apply(this, args); }; 0"
        )
        browser.run("document.querySelector('[data-picture]').click()")
        browser.wait("window.drawing")
        address = str(browser.run("window.drawing"))
    finally:
        browser.close()
    drawing = Image.open(io.BytesIO(base64.b64decode(address.split(",")[1])))
    opaque = Image.new("RGB", drawing.size, drawing.getpixel((0, 0))[:3])
    opaque.paste(drawing, mask=drawing.getchannel("A"))
    return opaque.resize((width, round(drawing.height * width / drawing.width)), Image.LANCZOS)


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

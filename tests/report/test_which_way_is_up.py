"""Pictures and maps are the same way up in every form: SVG, PNG, PDF, notebook and page.

The picture has a red quarter at its upper left, a green one at its upper right, a blue one at its lower left and a white one
at its lower right. The map is hot in its upper left corner alone. What is written is rendered and its pixels are read back.
"""

from __future__ import annotations

import base64
import io
import shutil
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from PIL import Image

import heatproof
from heatproof.maps.overlay import overlaid
from heatproof.report.canvas import Picture, Plot, Sheet, flowed
from heatproof.report.figures import WIDTHS, write
from heatproof.report.images import draw_map, photo
from heatproof.runs.run import Run
from support import small
from support.chromium import BROWSER, Chromium

Pixels = NDArray[np.uint8]
Look = Callable[[float, float], NDArray[np.float64]]
"""The colour of a picture at a place; (0, 0) is its upper left corner and (1, 1) its lower right one."""

RED, GREEN, BLUE, WHITE = (255, 0, 0), (0, 255, 0), (0, 0, 255), (255, 255, 255)
SIDE, HOT = small.SIZE, small.SIZE // 4
METHOD = "corner"


def quarters(side: int = SIDE) -> Pixels:
    """The picture with four colours, (side, side, 3)."""
    half = side // 2
    pixels = np.zeros((side, side, 3), np.uint8)
    pixels[:half, :half] = RED
    pixels[:half, half:] = GREEN
    pixels[half:, :half] = BLUE
    pixels[half:, half:] = WHITE
    return pixels


def hot_corner() -> NDArray[np.float32]:
    """The map that is hot in its upper left corner."""
    values = np.zeros((SIDE, SIDE), np.float32)
    values[:HOT, :HOT] = 1
    return values


def corner(model: Any, batch: Any, target: torch.Tensor, seed: int) -> torch.Tensor:
    """An explainer that gives every sample the same map."""
    return torch.from_numpy(hot_corner()).expand(len(batch.x), 1, -1, -1)


corner.stochastic = False  # type: ignore[attr-defined]


def look_at(page: Pixels, x: float, y: float, width: float, height: float) -> Look:
    """Look at the picture that lies in this rectangle of a rendered page, given in its pixels."""

    def look(across: float, down: float) -> NDArray[np.float64]:
        row, column = int(y + down * height), int(x + across * width)
        around = page[row - 1 : row + 2, column - 1 : column + 2, :3]
        return np.median(around.reshape(-1, 3), axis=0).astype(np.float64)

    return look


def shows_the_quarters(look: Look) -> None:
    places = {(0.25, 0.25): RED, (0.75, 0.25): GREEN, (0.25, 0.75): BLUE, (0.75, 0.75): WHITE}
    for place, colour in places.items():
        assert np.abs(look(*place) - colour).max() < 40, (place, look(*place), colour)


def shows_the_map_on_the_quarters(look: Look) -> None:
    def tint(place: tuple[float, float]) -> float:
        return float(np.ptp(look(*place)))

    assert tint((0.12, 0.12)) > 60, "the upper left corner is hot"
    cold = [(0.88, 0.12), (0.12, 0.88), (0.88, 0.6), (0.38, 0.38)]
    assert all(tint(place) < 16 for place in cold), [look(*place) for place in cold]
    # Under the map the picture is grey, and its shades still tell its quarters: white, green, red and blue, from light to dark.
    red, green, blue, white = (
        look(*place).mean() for place in ((0.38, 0.38), (0.75, 0.25), (0.25, 0.75), (0.75, 0.6))
    )
    assert white > green + 5 and green > red + 5 and red > blue + 5


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    image = torch.from_numpy(quarters()).permute(2, 0, 1) / 255
    stability = {"stability": {"perturbations": ["jpeg"], "k": 50}}
    found: Run = heatproof.evaluate(
        small.model(),
        image.expand(2, -1, -1, -1).clone(),
        [corner, "random"],
        {"stability": stability},
        tmp_path_factory.mktemp("up") / "run",
    )
    return found


@pytest.fixture(scope="module")
def files(run: Run, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Suffix -> the proof sheet as `heatproof figures` writes it."""
    pytest.importorskip("matplotlib", reason="figures need matplotlib")
    written = write(run, tmp_path_factory.mktemp("figures"), ("svg", "png", "pdf"), ["proof-sheet"])
    return {path.suffix: path for path in written}


@pytest.fixture(scope="module")
def browser() -> Iterator[Chromium]:
    if BROWSER is None:
        pytest.skip("no chromium or chrome binary on this machine")
    running = Chromium()
    yield running
    running.close()


def opened(path: Path) -> Pixels:
    with Image.open(path) as picture:
        return np.asarray(picture.convert("RGB"))


def on_paper(run: Run) -> Sheet:
    """The proof sheet as `heatproof figures` lays it on paper."""
    (sheet,) = flowed([Plot("", run.proof_sheet())], WIDTHS["text"])
    return sheet


def is_upright(page: Pixels, sheet: Sheet) -> None:
    """Every input of the sheet shows the quarters, and the maps of the method lie on them; the page is as wide as the sheet."""
    scale = page.shape[1] / sheet.width
    placed = [piece for piece in sheet.pieces if isinstance(piece, Picture)]
    looks = [
        look_at(page, scale * p.x, scale * p.y, scale * p.width, scale * p.height) for p in placed
    ]
    rows = sorted({p.y for p in placed})
    by_row = [[look for p, look in zip(placed, looks, strict=True) if p.y == row] for row in rows]
    inputs, maps_of_method, maps_of_control = by_row
    assert len(inputs) == len(maps_of_method) == len(maps_of_control) == 2
    for look in inputs:
        shows_the_quarters(look)
    for look in maps_of_method:
        shows_the_map_on_the_quarters(look)


def screenshot_of(svg: Path, sheet: Sheet, browser: Chromium, folder: Path) -> Pixels:
    """An SVG file as a browser draws it, cut to the width of the sheet."""
    browser.open(
        svg, 1280, 900
    )  # a narrower window would count as a phone, which scales what it shows
    browser.run("Promise.all([...document.querySelectorAll('image')].map((i) => i.decode()))")
    browser.picture(folder / "seen.png")
    return opened(folder / "seen.png")[:, : round(sheet.width)]


def test_png_is_upright(run: Run, files: dict[str, Path]) -> None:
    is_upright(opened(files[".png"]), on_paper(run))


@pytest.mark.skipif(
    shutil.which("pdftoppm") is None, reason="rendering a PDF needs pdftoppm (poppler-utils)"
)
def test_pdf_is_upright(run: Run, files: dict[str, Path], tmp_path: Path) -> None:
    command = ["pdftoppm", "-png", "-r", "200", "-singlefile", files[".pdf"], tmp_path / "page"]
    subprocess.run(command, check=True)
    is_upright(opened(tmp_path / "page.png"), on_paper(run))


def test_svg_is_upright(
    run: Run, files: dict[str, Path], browser: Chromium, tmp_path: Path
) -> None:
    sheet = on_paper(run)
    is_upright(screenshot_of(files[".svg"], sheet, browser, tmp_path), sheet)


def test_what_a_notebook_shows_is_upright(run: Run, browser: Chromium, tmp_path: Path) -> None:
    sheet = run.proof_sheet()
    (tmp_path / "cell.svg").write_text(sheet._repr_svg_(), encoding="utf-8")
    is_upright(screenshot_of(tmp_path / "cell.svg", sheet, browser, tmp_path), sheet)


def test_the_page_is_upright(run: Run, browser: Chromium, tmp_path: Path) -> None:
    browser.open(run.report(tmp_path / "report.html"), 1280)
    images = "[...document.querySelectorAll('.proof img')]"
    browser.wait(f"document.querySelector('.proof .map') && {images}.every((i) => i.naturalWidth)")
    browser.picture(tmp_path / "seen.png", whole=True)
    page = opened(tmp_path / "seen.png")

    def looks(selector: str) -> list[Look]:
        box = "(({ left, top, width, height }) => [left + scrollX, top + scrollY, width, height])"
        every = f"[...document.querySelectorAll('{selector}')]"
        places = browser.run(f"{every}.map((i) => {box}(i.getBoundingClientRect()))")
        return [look_at(page, *place) for place in places]

    inputs = looks(".proof [data-input] img")
    maps = looks(f'.proof tr[data-method="{METHOD}"] [data-cell] .map')
    assert len(inputs) == len(maps) == 2
    for look in inputs:
        shows_the_quarters(look)
    for look in maps:
        shows_the_map_on_the_quarters(look)


@pytest.mark.parametrize(("width", "height"), [(40, 40), (90, 30), (25, 60)])
def test_a_picture_lies_where_the_sheet_puts_it(width: int, height: int, tmp_path: Path) -> None:
    pytest.importorskip("matplotlib", reason="figures need matplotlib")
    sheet = Sheet(200, 100)
    sheet.add(Picture(100, 10, width, height, quarters()))
    (tmp_path / "sheet.png").write_bytes(sheet.encoded("png", "a picture", inches=2))
    page = opened(tmp_path / "sheet.png")
    scale = page.shape[1] / sheet.width
    shows_the_quarters(look_at(page, 100 * scale, 10 * scale, width * scale, height * scale))
    around = page.copy()
    around[int(9 * scale) : int((11 + height) * scale), int(99 * scale) :] = 255
    assert (around == 255).all(), "nothing is drawn elsewhere"


def test_pictures_of_the_page_and_maps_on_paper_are_upright() -> None:
    def decoded(uri: str) -> Pixels:
        content = base64.b64decode(uri.split(",", 1)[1])
        return np.asarray(Image.open(io.BytesIO(content)).convert("RGB"))

    shows_the_quarters(look_at(decoded(photo(quarters(64))), 0, 0, 64, 64))
    grey = decoded(draw_map(hot_corner(), signed=False)).mean(axis=2)
    assert grey[2:6, 2:6].min() > 200 and grey[:, 12:].max() < 50 and grey[12:].max() < 50
    paper = overlaid(quarters(), hot_corner(), signed=False)
    shows_the_map_on_the_quarters(look_at(paper, 0, 0, SIDE, SIDE))

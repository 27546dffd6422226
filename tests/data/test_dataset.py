"""Data: every way in, every Pillow mode, stable ids and fingerprints, and errors that are recorded or explained."""

from __future__ import annotations

import io
import struct
import zlib
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
from PIL import Image, ImageOps
from torch.utils.data import DataLoader, Dataset, IterableDataset, TensorDataset

from heatproof.data import images, open_data
from heatproof.data.files import LARGEST_PICTURE
from heatproof.errors import UserError
from heatproof.types import Batch


def pixels(*shape: int, seed: int = 0) -> torch.Tensor:
    return torch.rand(*shape, generator=torch.Generator().manual_seed(seed))


def photo(seed: int = 0, size: tuple[int, int] = (40, 30)) -> Image.Image:
    values = np.random.default_rng(seed).integers(0, 256, (size[1], size[0], 3), dtype=np.uint8)
    return Image.fromarray(values)


def encoded(picture: Image.Image, kind: str = "PNG", **options: object) -> bytes:
    buffer = io.BytesIO()
    picture.save(buffer, kind, **options)
    return buffer.getvalue()


def only(path: Path, **options: object) -> torch.Tensor:
    loaded = open_data(path, **options).load([0])
    assert not loaded.errors
    return loaded.batch.x[0]


# Tensors, arrays and batches


def test_tensor_keeps_its_values_and_gets_padded_ids() -> None:
    x = pixels(12, 3, 5, 7)
    data = open_data(x)
    assert data.ids[:2] == ("0000", "0001") and len(data) == 12
    assert (data.kind, data.shape) == ("image", (3, 5, 7))
    loaded = data.load([7, 2])
    assert loaded.batch.ids == ("0007", "0002") and loaded.batch.label is None and not loaded.errors
    assert torch.equal(loaded.batch.x, x[[7, 2]])


def test_ids_grow_with_the_data() -> None:
    ids = open_data(torch.zeros(10_001, 2)).ids
    assert ids[0] == "00000" and ids[-1] == "10000" and list(ids) == sorted(ids)


def test_pairs_numpy_and_labels() -> None:
    x, y = pixels(4, 1, 6, 6).double().numpy(), np.array([3, 1, 2, 0], dtype=np.int32)
    x.setflags(write=False)
    batch = open_data((x, y)).load(range(4)).batch
    assert (
        batch.x.dtype == torch.float32
        and batch.label is not None
        and batch.label.dtype == torch.int64
    )
    assert batch.label.tolist() == [3, 1, 2, 0]
    by_id = open_data(x, labels={"0002": 9}).load([2, 3]).batch.label
    assert by_id is not None and by_id.tolist() == [9, -1]


@pytest.mark.parametrize(("shape", "expected"), [((5, 2, 9), (2, 9)), ((5, 4), (4,))])
def test_series_and_tables(shape: tuple[int, ...], expected: tuple[int, ...]) -> None:
    data = open_data(pixels(*shape) * 40 - 20)
    assert (data.kind, data.shape) == ("array", expected)


def test_batch_keeps_ids_labels_and_aux() -> None:
    batch = Batch(
        ("cat", "dog"), pixels(2, 3), {"mask": torch.tensor([[1], [0]])}, torch.tensor([5, 6])
    )
    back = open_data(batch).load([1, 0]).batch
    assert back.ids == ("dog", "cat") and back.aux["mask"].tolist() == [[0], [1]]
    assert back.label is not None and back.label.tolist() == [6, 5]


def test_tensor_is_resized_only_on_request() -> None:
    x = pixels(2, 3, 40, 60)
    assert open_data(x).shape == (3, 40, 60)
    assert open_data(x, size=16).shape == (3, 16, 16)
    flat = open_data(torch.full((1, 3, 40, 60), 0.25), size=16, resize="crop").load([0]).batch.x
    torch.testing.assert_close(flat, torch.full((1, 3, 16, 16), 0.25))


@pytest.mark.parametrize(
    ("source", "message"),
    [
        (torch.zeros(2, 3, 4, 4, dtype=torch.uint8), "255"),
        (torch.full((2, 3, 4, 4), 200.0), "255"),
        (torch.full((2, 3, 4, 4), -1.5), r"Model\(mean=…, std=…\)"),
        (torch.zeros(2, 8, 8, 3), r"permute\(0, 3, 1, 2\)"),
        (torch.zeros(2, 5, 8, 8), "1 or 3 channels, got 5"),
        (torch.full((2, 3, 4, 4), float("nan")), "not finite"),
        (torch.tensor([[1.0, float("inf")]]), "not finite"),
        (torch.zeros(2, 3072), r"shape=\[3, 32, 32\]"),
        (torch.zeros(2, 7, dtype=torch.int64), "floating-point"),
        (torch.zeros(5), "first axis"),
        (torch.zeros(0, 3, 4, 4), "is empty"),
        (np.array(["a", "b"]), "numbers"),
        ((torch.zeros(3, 2), torch.zeros(2)), "2 labels"),
        ((torch.zeros(2, 2), torch.tensor([0.5, 1])), r"0\.5"),
        (Batch(("a", "a"), torch.zeros(2, 3)), "repeats 'a'"),
        ({"x": 1}, "dict"),
        (3.5, "float"),
        (DataLoader(TensorDataset(torch.zeros(2, 2)), collate_fn=list), "collate_fn"),
    ],
)
def test_mistakes_are_explained(source: object, message: str) -> None:
    with pytest.raises(UserError, match=message):
        open_data(source)


def test_shape_says_what_a_row_is() -> None:
    x = pixels(2, 3072)
    assert open_data(x, shape=(3, 32, 32)).kind == "image"
    assert open_data(x, shape=[3072]).kind == "array"
    assert open_data(pixels(2, 5, 4, 4), shape=(5, 4, 4)).shape == (5, 4, 4)
    with pytest.raises(UserError, match="31, 31"):
        open_data(x, shape=(3, 31, 31))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"size": 0}, "size.* 0"),
        ({"size": "big"}, "size.*big"),
        ({"resize": "squish"}, "'squish'.*'squash'"),
        ({"limit": 0}, "limit.* 0"),
        ({"labels": [1]}, "1 label"),
    ],
)
def test_bad_options(options: dict[str, object], message: str) -> None:
    with pytest.raises(UserError, match=message):
        open_data(pixels(2, 3, 4, 4), **options)


def test_opened_data_passes_through() -> None:
    data = open_data((pixels(5, 3, 4, 4), torch.arange(5)))
    again = open_data(data.limit(3), name="three", limit=2)
    assert again.name == "three" and again.ids == data.ids[:2]
    assert len(data.limit(99)) == 5
    with pytest.raises(UserError, match="open already"):
        open_data(data, size=8)


# Datasets


class Items(Dataset[object]):
    def __init__(self, items: list[object]) -> None:
        self.items = items

    def __len__(self) -> int:
        return len(self.items)

    def __getitem__(self, index: int) -> object:
        item = self.items[index]
        if isinstance(item, Exception):
            raise item
        return item


@pytest.mark.parametrize(
    ("wrap", "label"),
    [
        (lambda x: x, None),
        (lambda x: (x,), None),
        (lambda x: (x, 4), 4),
        (lambda x: [x, torch.tensor(4), "more"], 4),
        (lambda x: {"image": x, "label": np.int64(4)}, 4),
        (lambda x: {"pixel_values": x.numpy(), "labels": 4}, 4),
    ],
)
def test_dataset_items_of_every_form(wrap: object, label: int | None) -> None:
    x = pixels(3, 3, 6, 6)
    data = open_data(Items([wrap(image) for image in x]))  # type: ignore[operator]
    assert (data.name, data.kind, data.shape) == ("Items", "image", (3, 6, 6))
    batch = data.load([2, 0]).batch
    assert torch.equal(batch.x, x[[2, 0]])
    assert (None if batch.label is None else batch.label.tolist()) == (
        None if label is None else [4, 4]
    )


def test_dataset_of_pillow_images_is_squashed() -> None:
    data = open_data(Items([(photo(0), 1), (photo(1, (20, 50)), 0)]), size=16)
    assert data.shape == (3, 16, 16) and data.load([0, 1]).batch.x.shape == (2, 3, 16, 16)
    assert open_data(Items([photo()])).shape == (3, 224, 224)


def test_dataset_ids_of_its_own() -> None:
    items = Items(list(pixels(2, 4)))
    items.ids = ["left", "right"]  # type: ignore[attr-defined]
    assert open_data(items).ids == ("left", "right")
    items.ids = ["left"]  # type: ignore[attr-defined]
    with pytest.raises(UserError, match=r"2 items.*1 id"):
        open_data(items)


def test_items_that_cannot_be_read_are_recorded() -> None:
    good = pixels(3, 4, 4)
    bad = [
        OSError("disk on fire"),
        ValueError("odd"),
        torch.full((3, 4, 4), float("nan")),
        SyntaxError("chunk"),
    ]
    data = open_data(Items([bad[0], good, *bad[1:]]))
    loaded = data.load(range(5))
    assert data.shape == (3, 4, 4) and loaded.batch.ids == ("0001",)
    assert list(loaded.errors) == ["0000", "0002", "0003", "0004"]
    assert (
        loaded.errors["0000"] == "OSError: disk on fire" and "not finite" in loaded.errors["0003"]
    )
    nothing = data.load([0, 2])
    assert (
        len(nothing.batch) == 0
        and nothing.batch.x.shape == (0, 3, 4, 4)
        and len(nothing.errors) == 2
    )


def test_unreadable_bytes_have_a_stable_reason() -> None:
    class Opens(Items):
        def __getitem__(self, index: int) -> object:
            return Image.open(io.BytesIO(b"nonsense"))

    assert "0x" not in open_data(Opens([0])).load([0]).errors["0000"]


def test_a_mistake_in_the_code_of_a_dataset_is_not_hidden() -> None:
    with pytest.raises(AttributeError, match="oops"):
        open_data(Items([AttributeError("oops")]))


@pytest.mark.parametrize(
    ("item", "message"),
    [
        ("text", r"\bstr\b"),
        ({"picture": 1}, "picture"),
        ((), "item 0 of Items"),
        ((torch.zeros(3, 4, 4), "cat"), "label of item 0 of Items.*cat"),
        (torch.zeros(4, 4, 3), r"permute"),
        (torch.full((3, 4, 4), 255.0), "255"),
    ],
)
def test_items_of_the_wrong_kind_are_explained(item: object, message: str) -> None:
    with pytest.raises(UserError, match=message):
        open_data(Items([item]))


def test_items_must_share_a_shape() -> None:
    data = open_data(Items([torch.zeros(4), torch.zeros(5)]))
    with pytest.raises(UserError, match=r"'0001' has \(5,\)"):
        data.load([0, 1])


def test_limits_and_groups_that_do_not_fit_are_refused() -> None:
    data = open_data(torch.zeros(3, 4))
    for limit, message in (
        (True, "limit.*True"),
        (2.5, r"limit.*2\.5"),
        (0, "limit.* 0"),
    ):
        with pytest.raises(UserError, match=message):
            data.limit(limit)  # type: ignore[arg-type]
    with pytest.raises(UserError, match=r"3 samples.*2 groups"):
        data.grouped(["a", "b"])


def test_pictures_too_large_to_read_are_recorded(tmp_path: Path) -> None:
    with (tmp_path / "huge.png").open("wb") as file:
        file.truncate(LARGEST_PICTURE + 1)  # a hole: it takes no room
    photo(0, (8, 8)).save(tmp_path / "good.png")
    loaded = open_data(tmp_path, size=8).load(range(2))
    assert loaded.batch.ids == ("good.png",)
    assert (
        f"{LARGEST_PICTURE + 1} bytes; at most {LARGEST_PICTURE} are read"
        in loaded.errors["huge.png"]
    )
    wide = Image.new("1", (images.MAX_PIXELS // 1000 + 1, 1000))
    with pytest.raises(Image.DecompressionBombError, match=f"{wide.width}.*1000"):
        images.decode(wide, 8)


def test_iterable_datasets_are_refused() -> None:
    class Stream(IterableDataset[int]):
        def __len__(self) -> int:
            return 1

        def __iter__(self) -> Iterator[int]:
            return iter([1])

    with pytest.raises(UserError, match="Stream"):
        open_data(Stream())


# One picture


SPECIAL = {
    "1": 1,
    "LAB": (137, 128, 128),
    "I": 32896,
    "I;16": 32896,
    "I;16B": 32896,
    "F": 128 / 255,
    "LA": (128, 128),
    "RGBA": (128, 128, 128, 128),
}


def in_mode(mode: str) -> Image.Image:
    """Grey 128 of 255 in every mode (LA and RGBA half transparent, so 191 on white)."""
    if mode in SPECIAL:
        return Image.new(mode, (8, 8), SPECIAL[mode])
    return (
        Image.new("L", (8, 8), 128).convert("RGB" if mode not in ("L", "P") else "L").convert(mode)
    )


MODES = {
    **dict.fromkeys(
        ("L", "P", "RGB", "RGBX", "CMYK", "YCbCr", "HSV", "LAB", "I", "I;16", "I;16B", "F"),
        128 / 255,
    ),
    **dict.fromkeys(("LA", "RGBA"), 191 / 255),
    "1": 1.0,
}


@pytest.mark.parametrize(("mode", "grey"), MODES.items(), ids=list(MODES))
def test_every_mode_becomes_rgb_in_the_unit_interval(mode: str, grey: float) -> None:
    x = images.decode(in_mode(mode), size=None)
    assert x.shape == (3, 8, 8) and x.dtype == torch.float32
    torch.testing.assert_close(x, torch.full_like(x, grey), atol=2.5 / 255, rtol=0)


def test_palettes_with_alpha() -> None:
    picture = Image.new("P", (4, 4), 1)
    picture.putpalette([0, 0, 0, 255, 0, 0])
    assert images.decode(picture, None)[:, 0, 0].tolist() == [1, 0, 0]
    back = images.decode(encoded(picture, transparency=1), None)
    assert back.unique().tolist() == [1], "the transparent colour shows the white ground"
    many = images.decode(encoded(picture, transparency=b"\x00\x80"), None)
    assert many[:, 0, 0].tolist() == pytest.approx([1, 0.5, 0.5], abs=0.01)
    pa_image = Image.new("PA", (4, 4), (0, 0))
    pa_image.putpalette([9, 9, 9])
    assert images.decode(pa_image, None).unique().tolist() == [1]


@pytest.mark.parametrize(
    "what",
    [
        "1/PNG",
        "L/JPEG",
        "LA/PNG",
        "P/GIF",
        "RGBA/WEBP",
        "CMYK/JPEG",
        "CMYK/TIFF",
        "YCbCr/TIFF",
        "LAB/TIFF",
        "I;16/PNG",
        "I;16/TIFF",
        "I/TIFF",
        "F/TIFF",
    ],
)
def test_modes_survive_files(tmp_path: Path, what: str) -> None:
    mode, kind = what.split("/")
    path = tmp_path / f"picture.{kind.lower()}"
    path.write_bytes(encoded(in_mode(mode), kind))
    try:
        with Image.open(path) as written:
            written.load()
    except OSError as error:
        pytest.skip(f"this Pillow cannot read back its own {what}: {error}")
    x = only(path, size=None)
    torch.testing.assert_close(x, torch.full_like(x, MODES[mode]), atol=4 / 255, rtol=0)


@pytest.mark.parametrize("picture", [Image.new("I", (4, 4), 70_000), Image.new("F", (4, 4), 200.0)])
def test_grey_without_a_known_range_is_refused(picture: Image.Image) -> None:
    with pytest.raises(ValueError, match="range"):
        images.decode(picture, None)


@pytest.mark.parametrize("kind", ["JPEG", "PNG", "TIFF"])
@pytest.mark.parametrize("orientation", range(1, 9))
def test_exif_orientation_is_undone(kind: str, orientation: int) -> None:
    upright = Image.new("RGB", (32, 16))
    upright.paste((255, 0, 0), (0, 0, 16, 8))
    upright.paste((0, 0, 255), (16, 8, 32, 16))
    undo = {2: 0, 3: 3, 4: 1, 5: 5, 6: 2, 7: 6, 8: 4}  # the inverse of what a viewer does
    stored = upright if orientation == 1 else upright.transpose(Image.Transpose(undo[orientation]))
    exif = Image.Exif()
    exif[0x0112] = orientation
    options = {"quality": 95, "subsampling": 0} if kind == "JPEG" else {}
    blob = encoded(stored, kind, exif=exif, **options)
    seen = images.decode(blob, None)
    torch.testing.assert_close(seen, images.decode(upright, None), atol=0.05, rtol=0)
    reference = ImageOps.exif_transpose(Image.open(io.BytesIO(blob)))
    assert torch.equal(seen, images.decode(reference, None))


def test_first_frame_of_many() -> None:
    frames = [Image.new("RGB", (6, 6), colour) for colour in ("red", "blue")]
    for kind in ("GIF", "PNG", "TIFF", "WEBP"):
        options = {"lossless": True} if kind == "WEBP" else {}
        x = images.decode(
            encoded(frames[0], kind, save_all=True, append_images=frames[1:], **options), None
        )
        assert x[:, 0, 0].round().tolist() == [1, 0, 0], kind


def test_squash_is_pillows_and_crop_takes_the_centre() -> None:
    picture = photo(3, (64, 32))
    expected = (
        np.asarray(picture.resize((16, 16), Image.Resampling.BILINEAR)).transpose(2, 0, 1) / 255
    )
    torch.testing.assert_close(
        images.decode(picture, 16), torch.tensor(expected, dtype=torch.float32)
    )
    sides = Image.new("RGB", (64, 32), "black")
    sides.paste("white", (18, 0, 46, 32))  # the central 28 of the 32 pixels of the short side
    assert images.decode(sides, 28, "crop").unique().tolist() == [1]
    assert images.decode(sides, 28, "squash").min() == 0


def test_tensor_resizing_agrees_with_pillow() -> None:
    picture = photo(4, (50, 35))
    for resize in ("squash", "crop"):
        ours = images.resize_tensor(images.decode(picture, None)[None], 20, resize)[0]
        torch.testing.assert_close(ours, images.decode(picture, 20, resize), atol=1.6 / 255, rtol=0)


# Folders


def make_folder(root: Path) -> None:
    for name in ("b/2.png", "b/1.PNG", "a/deep/er/ünïcode 图.jpg", "a/x.bmp"):
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        photo(len(name)).save(root / name)
    (root / "b" / "notes.txt").write_text("not a picture")
    (root / "b" / ".hidden.png").write_bytes(encoded(photo()))
    (root / ".cache").mkdir()
    (root / ".cache" / "c.png").write_bytes(encoded(photo()))


def test_folder_is_recursive_sorted_and_labelled(tmp_path: Path) -> None:
    make_folder(tmp_path)
    data = open_data(str(tmp_path), size=16)
    assert data.ids == ("a/deep/er/ünïcode 图.jpg", "a/x.bmp", "b/1.PNG", "b/2.png")
    assert data.class_names == ("a", "b") and data.shape == (3, 16, 16)
    loaded = data.load([3, 0, 1, 2])
    assert loaded.batch.ids == tuple(data.ids[i] for i in (3, 0, 1, 2)) and not loaded.errors
    assert loaded.batch.label is not None and loaded.batch.label.tolist() == [1, 0, 0, 1]
    torch.testing.assert_close(loaded.batch.x[0], images.decode(tmp_path / "b/2.png", 16))


def test_loose_pictures_have_no_labels(tmp_path: Path) -> None:
    make_folder(tmp_path)
    photo().save(tmp_path / "loose.png")
    data = open_data(tmp_path)
    assert data.class_names is None and data.load([0]).batch.label is None and len(data) == 5


def test_linked_folders_are_followed_without_end(tmp_path: Path) -> None:
    make_folder(tmp_path / "real")
    (tmp_path / "set").mkdir()
    (tmp_path / "set" / "c").symlink_to(tmp_path / "real" / "b", target_is_directory=True)
    (tmp_path / "set" / "loop").symlink_to(tmp_path / "set", target_is_directory=True)
    assert open_data(tmp_path / "set").ids == ("c/1.PNG", "c/2.png")


def test_native_sizes_must_agree(tmp_path: Path) -> None:
    photo(0, (8, 8)).save(tmp_path / "a.png")
    photo(0, (9, 8)).save(tmp_path / "b.png")
    data = open_data(tmp_path, size=None)
    assert data.shape == (3, 8, 8) and data.load([0]).batch.x.shape == (1, 3, 8, 8)
    with pytest.raises(UserError, match=r"'b\.png'.*\(3, 8, 9\).*size"):
        data.load([0, 1])


def huge_png(width: int, height: int) -> bytes:
    def chunk(kind: bytes, body: bytes) -> bytes:
        return (
            struct.pack(">I", len(body)) + kind + body + struct.pack(">I", zlib.crc32(kind + body))
        )

    header = struct.pack(">IIBBBBB", width, height, 8, 0, 0, 0, 0)
    return (
        b"\x89PNG\r\n\x1a\n"
        + chunk(b"IHDR", header)
        + chunk(b"IDAT", zlib.compress(b"\x00"))
        + chunk(b"IEND", b"")
    )


def test_broken_files_are_recorded_and_the_rest_is_read(tmp_path: Path) -> None:
    whole = encoded(photo(), "JPEG")
    (tmp_path / "1-whole.jpg").write_bytes(whole)
    (tmp_path / "2-truncated.jpg").write_bytes(whole[: len(whole) // 2])
    (tmp_path / "3-empty.jpg").write_bytes(b"")
    (tmp_path / "4-text.jpg").write_text("this is not a picture")
    (tmp_path / "5-bomb.png").write_bytes(huge_png(50_000, 50_000))
    (tmp_path / "6-warned.png").write_bytes(huge_png(10_000, 10_000))
    (tmp_path / "7-script.jpg").write_bytes(
        b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 9 9\nshowpage\n"
    )
    (tmp_path / "8-chunk.png").write_bytes(encoded(photo())[:40] + b"\x00" * 40)
    (tmp_path / "9-gone.png").symlink_to(tmp_path / "nowhere.png")
    before = Image.MAX_IMAGE_PIXELS
    data = open_data(tmp_path, size=8)
    loaded = data.load(range(len(data)))
    assert loaded.batch.ids == ("1-whole.jpg",)
    assert [name[0] for name in loaded.errors] == list("23456789")
    for name, words in (
        ("2-truncated.jpg", "truncated"),
        ("5-bomb.png", "bomb"),
        ("6-warned.png", "bomb"),
    ):
        assert words in loaded.errors[name]
    assert (
        "not a picture" in loaded.errors["4-text.jpg"]
        and "not a picture" in loaded.errors["7-script.jpg"]
    )
    assert before == Image.MAX_IMAGE_PIXELS and len(data.fingerprint) == 64


def test_folders_without_pictures_and_wrong_paths(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="no pictures"):
        open_data(tmp_path)
    (tmp_path / "photos").mkdir()
    (tmp_path / "table.xlsx").write_text("a,b")
    with pytest.raises(UserError, match="photos"):
        open_data(tmp_path / "fotos")
    with pytest.raises(UserError, match="photos"):
        open_data(tmp_path / "potos" / "cats")
    with pytest.raises(UserError, match=r"table\.xlsx"):
        open_data(tmp_path / "table.xlsx")


def test_batches_do_not_depend_on_neighbours(tmp_path: Path) -> None:
    make_folder(tmp_path)
    data = open_data(tmp_path, size=12)
    together = data.load(range(4)).batch.x
    for position in range(4):
        assert torch.equal(data.load([position]).batch.x[0], together[position])


# npz


def test_npz_of_floats_and_bytes(tmp_path: Path) -> None:
    x = (np.random.default_rng(0).random((3, 3, 6, 5)) * 255).astype(np.uint8)
    np.savez(tmp_path / "f.npz", x=x / 255, y=[1, 0, 2], ids=["p", "q", "r"])
    np.savez(
        tmp_path / "u.npz",
        images=x.transpose(0, 2, 3, 1),
        labels=[1, 0, 2],
        classes=["a", "b", "c"],
    )
    np.savez(tmp_path / "g.npz", data=x[:, 0])
    floats, whole, grey = (open_data(tmp_path / f"{name}.npz") for name in "fug")
    assert (
        floats.ids == ("p", "q", "r")
        and whole.class_names == ("a", "b", "c")
        and grey.shape == (1, 6, 5)
    )
    a, b = floats.load(range(3)).batch, whole.load(range(3)).batch
    torch.testing.assert_close(a.x, b.x)
    assert a.label is not None and a.label.tolist() == [1, 0, 2]
    alpha = np.zeros((1, 2, 2, 4), dtype=np.uint8)
    np.savez(tmp_path / "alpha.npz", x=alpha)
    assert open_data(tmp_path / "alpha.npz").load([0]).batch.x.unique().tolist() == [1]


def test_flattened_bytes_need_a_shape(tmp_path: Path) -> None:
    rows = np.arange(2 * 3072, dtype=np.int64).reshape(2, 3072).astype(np.uint8)
    np.savez(tmp_path / "cifar.npz", data=rows, labels=[6, 9])
    with pytest.raises(UserError, match=r"shape=\[3, 32, 32\]"):
        open_data(tmp_path / "cifar.npz")
    batch = open_data(tmp_path / "cifar.npz", shape=[3, 32, 32]).load([1]).batch
    np.testing.assert_allclose(batch.x[0].numpy(), rows[1].reshape(3, 32, 32) / 255, rtol=1e-6)


def test_npz_of_jpeg_blobs(tmp_path: Path) -> None:
    blobs = [encoded(photo(i, (12, 12)), "JPEG") for i in range(3)]
    blobs[1] = blobs[1][:80]
    offsets = np.cumsum([0] + [len(b) for b in blobs])
    jpeg = np.frombuffer(b"".join(blobs), dtype=np.uint8)
    np.savez(
        tmp_path / "j.npz", jpeg=jpeg, offsets=offsets, labels=[2, 1, 0], classes=["x", "y", "z"]
    )
    data = open_data(tmp_path / "j.npz", size=None)
    loaded = data.load([2, 1, 0])
    assert (
        loaded.batch.ids == ("0002", "0000")
        and list(loaded.errors) == ["0001"]
        and data.shape == (3, 12, 12)
    )
    assert loaded.batch.label is not None and loaded.batch.label.tolist() == [0, 2]
    assert torch.equal(loaded.batch.x[0], images.decode(blobs[2], None))
    np.savez(tmp_path / "k.npz", jpeg=jpeg, offsets=offsets[::-1])
    with pytest.raises(UserError, match="offsets"):
        open_data(tmp_path / "k.npz")


def test_npz_that_cannot_be_used(tmp_path: Path) -> None:
    np.savez(tmp_path / "other.npz", weights=np.zeros(3))
    np.savez(tmp_path / "objects.npz", x=np.array([{}, {}], dtype=object))
    (tmp_path / "text.npz").write_text("no")
    blob = np.frombuffer(encoded(photo(0, (10, 10))), np.uint8)
    np.savez(tmp_path / "ids.npz", jpeg=blob, offsets=[0, len(blob)], ids=["a", "b"])
    np.savez(tmp_path / "offsets.npz", jpeg=blob, offsets=[len(blob), 0])
    cases = [("other", "weights"), ("objects", "objects.npz"), ("text", "text.npz")]
    cases += [("ids", "1 picture.*2 ids"), ("offsets", "`offsets`")]
    for name, message in cases:
        with pytest.raises(UserError, match=message):
            open_data(tmp_path / f"{name}.npz")


# Parquet


def test_parquet_in_both_layouts(tmp_path: Path) -> None:
    blobs = [encoded(photo(i, (10, 10))) for i in range(5)]
    pq.write_table(
        pa.table({"image": blobs, "label": [0, 1, None, 1, 0]}),
        tmp_path / "flat.parquet",
        row_group_size=2,
    )
    rows = [{"bytes": blob, "path": f"p{i}.png"} for i, blob in enumerate(blobs)]
    hub = pa.table({"image": rows, "label": [0, 1, 0, 1, 0]})
    info = b'{"info": {"features": {"label": {"names": ["cat", "dog"]}}}}'
    pq.write_table(
        hub.replace_schema_metadata({b"huggingface": info}),
        tmp_path / "hub.parquet",
        row_group_size=3,
    )
    flat, nested = (
        open_data(tmp_path / "flat.parquet", size=10),
        open_data(tmp_path / "hub.parquet", size=10),
    )
    assert (
        flat.ids[0] == "0000" and nested.ids[0] == "p0.png" and nested.class_names == ("cat", "dog")
    )
    expected = torch.stack([images.decode(blobs[i], 10) for i in (4, 0, 2)])
    for data in (flat, nested):
        assert torch.equal(data.load([4, 0, 2]).batch.x, expected)
    label = flat.load([0, 1, 2]).batch.label
    assert label is not None and label.tolist() == [0, 1, -1]


def test_parquet_ids_and_missing_bytes(tmp_path: Path) -> None:
    blob = encoded(photo(0, (10, 10)))
    table = pa.table({"id": ["k", "l", "m"], "image": [blob, None, b"junk"]})
    pq.write_table(table, tmp_path / "t.parquet")
    loaded = open_data(tmp_path / "t.parquet", size=4).load([0, 1, 2])
    assert (
        loaded.batch.ids == ("k",)
        and "no image bytes" in loaded.errors["l"]
        and "not a picture" in loaded.errors["m"]
    )
    same = [{"bytes": blob, "path": "same.png"}] * 2
    pq.write_table(pa.table({"image": same}), tmp_path / "same.parquet")
    assert open_data(tmp_path / "same.parquet").ids == ("0000", "0001")
    pq.write_table(pa.table({"id": [7, 7], "image": [blob, blob]}), tmp_path / "twice.parquet")
    with pytest.raises(UserError, match="repeats '7'"):
        open_data(tmp_path / "twice.parquet")


def test_parquet_that_cannot_be_used(tmp_path: Path) -> None:
    pq.write_table(pa.table({"depiction": [1.5]}), tmp_path / "name.parquet")
    pq.write_table(pa.table({"image": ["text"]}), tmp_path / "type.parquet")
    (tmp_path / "text.parquet").write_text("no parquet here")
    for name, message in (
        ("name", "depiction"),
        ("type", "image.*string"),
        ("text", "text.parquet"),
    ):
        with pytest.raises(UserError, match=message):
            open_data(tmp_path / f"{name}.parquet")


# Fingerprints


def test_fingerprint_of_tensors_sees_every_value_label_and_id() -> None:
    x = pixels(300, 1, 2, 2)
    base = open_data(x).fingerprint
    changed = x.clone()
    changed[299, 0, 1, 1] = 1 - changed[299, 0, 1, 1]
    assert open_data(x.clone()).fingerprint == base
    others = [
        open_data(changed),
        open_data((x, torch.zeros(300))),
        open_data(Batch(tuple(f"i{i}" for i in range(300)), x)),
        open_data(x, size=4),
        open_data(x, limit=299),
    ]
    assert len({base, *(other.fingerprint for other in others)}) == 6
    assert open_data(changed, limit=299).fingerprint == open_data(x, limit=299).fingerprint


def test_fingerprint_of_files(tmp_path: Path) -> None:
    make_folder(tmp_path)
    base = open_data(tmp_path).fingerprint
    assert open_data(tmp_path).fingerprint == base
    assert (
        len(
            {
                base,
                open_data(tmp_path, size=64).fingerprint,
                open_data(tmp_path, resize="crop").fingerprint,
            }
        )
        == 3
    )
    with (tmp_path / "b" / "2.png").open("ab") as file:
        file.write(b"x")
    assert open_data(tmp_path).fingerprint != base


def test_fingerprint_of_large_files_sees_both_ends(tmp_path: Path) -> None:
    body = bytearray(b"\x07" * 300_000)
    seen = set()
    for place in (None, 0, 299_999):
        changed = bytearray(body)
        if place is not None:
            changed[place] = 9
        (tmp_path / "a.png").write_bytes(bytes(changed))
        seen.add(open_data(tmp_path).fingerprint)
    assert len(seen) == 3


def test_fingerprint_of_datasets() -> None:
    x = pixels(100, 4)
    base = open_data(Items(list(x))).fingerprint
    assert open_data(Items(list(x))).fingerprint == base
    assert open_data(Items(list(x + 1))).fingerprint != base
    assert open_data(Items([*x[:99], OSError("gone")])).fingerprint != base


def test_fingerprint_of_parquet_and_npz(tmp_path: Path) -> None:
    found = set()
    for seed in (0, 1, 1):
        blob = encoded(photo(seed, (9, 9)))
        pq.write_table(pa.table({"image": [blob]}), tmp_path / "t.parquet")
        np.savez(
            tmp_path / "t.npz", jpeg=np.frombuffer(blob, dtype=np.uint8), offsets=[0, len(blob)]
        )
        found.add(
            (
                open_data(tmp_path / "t.parquet").fingerprint,
                open_data(tmp_path / "t.npz").fingerprint,
            )
        )
    assert len(found) == 2


def test_data_can_be_sent_to_another_process(tmp_path: Path) -> None:
    import pickle

    make_folder(tmp_path)
    pq.write_table(pa.table({"image": [encoded(photo())]}), tmp_path / "t.parquet")
    for source in (tmp_path / "b", tmp_path / "t.parquet", pixels(2, 3, 4, 4)):
        data = open_data(source)
        back = pickle.loads(pickle.dumps(data))
        assert (
            torch.equal(back.load([0]).batch.x, data.load([0]).batch.x)
            and back.fingerprint == data.fingerprint
        )


def test_samples_have_the_shape_that_was_said_or_that_of_the_first():
    data = open_data(pixels(3, 3, 8, 8), name="noise")
    unknown = replace(data, shape=None)
    assert unknown.load([2, 0]).batch.x.shape == (2, 3, 8, 8)
    assert unknown.load([2, 0]).batch.ids == ("0002", "0000")
    with pytest.raises(UserError, match=r"\(3, 9, 9\).*'0001'.*\(3, 8, 8\)"):
        replace(data, shape=(3, 9, 9)).load([1])

"""Points on the surfaces of ModelNet's objects: meshes in `.off` files, and points drawn already in `.h5` files."""

from __future__ import annotations

import hashlib
import stat
from collections.abc import Iterator, Sequence
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from heatproof import rand
from heatproof.data.arrays import open_items
from heatproof.data.choices import Choice, grouped, one_split, ranked, whole_labels
from heatproof.data.dataset import Data, Sample, by_position, checked_length, unreadable
from heatproof.data.images import READ_ERRORS
from heatproof.data.text import as_text, unpacked
from heatproof.errors import UserError, retry

POINTS = 1000
"""As many points as the invariance paper takes of every object."""
LARGEST_MESH = 2**28
"""Bytes of a mesh, and of the points of one `.h5` file (64 times as many), beyond which it is not read."""
_PARTS = ("train", "test")
_LOOKED_AT = 5
"""How many folders are searched for meshes."""

Array = NDArray[Any]


# ---- meshes ----------------------------------------------------------------------------------------------------------


def is_mesh_folder(folder: Path) -> bool:
    """Whether a folder has `.off` files in it, or in CLASS/train and CLASS/test as ModelNet has them."""
    subfolders = sorted(path for path in folder.iterdir() if path.is_dir())
    # A few are enough to know ModelNet's layout; a folder of pictures may have thousands.
    for class_folder in (folder, *subfolders[:_LOOKED_AT]):
        for meshes in (class_folder, *(class_folder / part for part in _PARTS)):
            if next(meshes.glob("*.off"), None) is not None:
                return True
    return False


def open_meshes(path: Path, choice: Choice, points: int | None = None) -> Data:
    """Open sets (points, 3) of points on the surfaces of meshes: one `.off` file, or a folder of them.

    In ModelNet's layout, CLASS/train/CLASS_0001.off, `split` chooses the part, and classes are the top-level folders. Points
    are uniform by area, drawn by the id of the mesh, centred, and scaled into the unit ball. A damaged mesh is recorded as
    an error.
    """
    points = checked_length(points, POINTS)
    if path.is_file():
        files, root, name = [path], path.parent, path.stem
    else:
        files, name = _files_of_split(path, choice.split)
        root = path
    ids = [file.relative_to(root).as_posix() for file in files]
    labels, class_names = None, None
    if all("/" in sample_id for sample_id in ids):
        # A class keeps its number where a part has no mesh of it.
        every_class = [folder.name for folder in root.iterdir() if folder.is_dir()]
        labels, class_names = ranked([sample_id.split("/")[0] for sample_id in ids], every_class)
    return Data(
        name=name,
        ids=tuple(ids),
        readers=partial(by_position, _drawn_points, (files, ids, points)),
        content=partial(_mesh_content, files, points),
        kind="array",
        shape=(points, 3),
        class_names=class_names,
        labels=whole_labels(labels, name),
    )


def _files_of_split(folder: Path, split: str | None) -> tuple[list[Path], str]:
    """Return the mesh files of a folder, and the name of the data.

    In ModelNet's layout, CLASS/train and CLASS/test, `split` says which part; the name then ends with the part.
    """
    by_part = {}
    for part in _PARTS:
        files = sorted(folder.glob(f"*/{part}/*.off"))
        if files:
            by_part[part] = files
    name = folder.resolve().name
    if by_part:
        files = one_split(str(folder), split, by_part)
        chosen = next(part for part, files_of_part in by_part.items() if files_of_part is files)
        return files, f"{name}-{chosen}"
    if split is not None:
        raise UserError(
            f"{str(folder)!r} has no folders CLASS/train and CLASS/test, so split={split!r} names none"
        )
    return sorted([*folder.glob("*.off"), *folder.glob("*/*.off")]), name


def _drawn_points(files: Sequence[Path], ids: Sequence[str], points: int, position: int) -> Sample:
    """Return points on the surface of a mesh."""
    content = _mesh_bytes(files[position])
    vertices, triangles = parse_off(content)
    key = rand.keys(0, (ids[position],), "points of a mesh")
    drawn = surface_points(vertices, triangles, points, key)
    return Sample(in_unit_ball(drawn), digest=hashlib.sha256(content).hexdigest())


def _mesh_bytes(file: Path) -> bytes:
    """Return the content of a file. A pipe or a device is not opened: reading it may never end."""
    status = file.stat()
    if not stat.S_ISREG(status.st_mode):
        raise ValueError("not a file, but a folder, a pipe or a device")
    if status.st_size > LARGEST_MESH:
        raise ValueError(f"the mesh has {status.st_size} bytes; at most {LARGEST_MESH} are read")
    return file.read_bytes()


def _mesh_content(files: Sequence[Path], points: int, positions: Sequence[int]) -> Iterator[bytes]:
    """Yield what identifies the meshes at `positions`: the digest of each file, and the type of error of unreadable ones."""
    yield f"{points} points".encode()
    for position in positions:
        file = files[position]
        try:
            yield hashlib.sha256(retry(partial(_mesh_bytes, file))).digest()
        except READ_ERRORS as error:
            yield unreadable(error, file)


def parse_off(content: bytes) -> tuple[Array, Array]:
    """Return vertices (V, 3) and triangles (T, 3) of a mesh in the Object File Format; `ValueError` if it is damaged.

    Polygons become fans of triangles. Some files of ModelNet lack the line break behind OFF, as in "OFF490 518 0".

    >>> vertices, triangles = parse_off(b"OFF 4 1 0 0 0 0 1 0 0 1 1 0 0 1 0 4 0 1 2 3")
    >>> triangles.tolist()
    [[0, 1, 2], [0, 2, 3]]
    """
    lines = [line.partition(b"#")[0] for line in content.splitlines()]
    words = b"\n".join(lines).split()
    if not words or not words[0].startswith(b"OFF"):
        raise ValueError(f"not an OFF mesh: it begins with {content[:12]!r}")
    words[:1] = [words[0][3:]] if len(words[0]) > 3 else []
    vertex_count, face_count = _whole_numbers(words[:2])
    if vertex_count < 3 or face_count < 1:
        raise ValueError(f"a mesh of {vertex_count} vertices and {face_count} faces has no surface")
    first_face = 3 + 3 * vertex_count  # behind three counts
    # A face takes at least four words, so that a false count is found before anything of its size is made.
    if len(words) < first_face + 4 * face_count:
        raise ValueError(
            f"truncated: {vertex_count} vertices and {face_count} faces need more than {len(words)} numbers"
        )
    vertices = np.array(words[3:first_face], dtype=np.float64).reshape(-1, 3)
    if not np.isfinite(vertices).all():
        raise ValueError("vertices that are not finite (NaN or infinite)")
    triangles = _triangles(words[first_face:], face_count)
    if triangles.min() < 0 or triangles.max() >= vertex_count:
        raise ValueError(
            f"a face names the vertex {triangles.max()}, but there are {vertex_count} from 0 on"
        )
    return vertices, triangles


def _whole_numbers(words: Sequence[bytes]) -> list[int]:
    """Return the numbers of vertices and faces."""
    if len(words) < 2:
        raise ValueError("truncated: the numbers of vertices and faces are missing")
    return [int(word) for word in words]


def _triangles(words: Sequence[bytes], face_count: int) -> Array:
    """Return the triangles (T, 3) of a mesh from the words of its faces: each the number of corners, then the corners.

    A polygon with more than three corners becomes a fan of triangles that share its first corner.
    """
    # Most meshes have triangles only, which are read at once.
    if len(words) == 4 * face_count:
        faces = np.array(words, dtype=np.int64).reshape(-1, 4)
        if (faces[:, 0] == 3).all():
            return faces[:, 1:]
    triangles = []
    start = 0
    for _ in range(face_count):
        corner_count = int(words[start]) if start < len(words) else 0
        corners = [int(word) for word in words[start + 1 : start + 1 + corner_count]]
        if corner_count < 3 or len(corners) < corner_count:
            raise ValueError("truncated: a face lacks corners")
        for second, third in pairwise(corners[1:]):
            triangles.append((corners[0], second, third))
        start += 1 + corner_count
    return np.array(triangles, dtype=np.int64)


def surface_points(vertices: Array, triangles: Array, n: int, key: Tensor) -> Tensor:
    """Return n points (n, 3) float64 on the surface of a mesh, uniform by area, from a random `key` (1,)."""
    a, b, c = (torch.from_numpy(vertices[triangles[:, corner]]) for corner in range(3))
    areas = torch.linalg.cross(b - a, c - a).norm(dim=1) / 2
    area_up_to = areas.cumsum(0)
    total = area_up_to[-1]
    if not total > 0:
        raise ValueError("the faces of the mesh have no area")
    uniform = rand.uniform(key, (4, n))[0].double()
    # A face is drawn with a probability proportional to its area: the first whose cumulated area reaches a random share
    # of the total. Two numbers of 23 bits are one of 46, so that the smallest of many faces can be drawn.
    drawn_area = (uniform[0] + (uniform[1] - 0.5) * 2**-23) * total
    face = torch.searchsorted(area_up_to, drawn_area.clamp(min=0)).clamp(max=len(areas) - 1)
    # Uniform in a triangle: (1 − √u) a + √u (1 − v) b + √u v c (Osada et al. 2002).
    root, v = uniform[2].sqrt()[:, None], uniform[3][:, None]
    drawn: Tensor = (1 - root) * a[face] + root * (1 - v) * b[face] + root * v * c[face]
    return drawn


def in_unit_ball(points: Tensor) -> Tensor:
    """Return points (n, 3) float32 with their mean at the origin and the farthest at distance 1."""
    centred = points - points.mean(0)
    radius = centred.norm(dim=1).max()
    if not radius > 0:
        raise ValueError("all points of the surface are the same")
    scaled: Tensor = centred / radius
    return scaled.float()


# ---- points in HDF5 --------------------------------------------------------------------------------------------------


def open_h5(path: Path, choice: Choice, points: int | None = None) -> Data:
    """Open the first `points` of the points (N, P, 3) in `.h5` files, in the layout of `modelnet40_ply_hdf5_2048`.

    `path` is a file, or the folder, of which `split` chooses the part by the names `ply_data_train0.h5`. The names of the
    classes stand in `shape_names.txt` beside. Needs h5py.
    """
    points = checked_length(points, POINTS)
    if path.is_file():
        name, files = path.stem, [path]
    else:
        by_split = grouped(path.glob("*.h5"))
        files = one_split(str(path), choice.split, by_split)
        name = next(split for split, same in by_split.items() if same is files)
    clouds, labels = [], []
    for file in files:
        of_file, labels_of_file = _read_h5(file, points)
        clouds.append(of_file)
        labels += labels_of_file
    class_names = _shape_names(files[0].with_name("shape_names.txt"))
    if class_names is not None and max(labels) >= len(class_names):
        raise UserError(
            f"{str(path)!r} has the label {max(labels)}, but shape_names.txt names {len(class_names)} classes"
        )
    clouds_of_all = torch.from_numpy(np.concatenate(clouds))
    return open_items(
        name,
        [_finite(cloud) for cloud in clouds_of_all],
        _cloud,
        prepared=f"first {points} points",
        shape=(points, 3),
        labels=labels,
        class_names=class_names,
    )


def _read_h5(file: Path, points: int) -> tuple[Array, list[int]]:
    """Return the first points (N, points, 3) of each object of a file, and the labels."""
    try:
        import h5py  # type: ignore[import-not-found, unused-ignore]
    except ImportError:
        raise UserError(f'{str(file)!r} needs h5py: pip install "heatproof[hdf5]"') from None
    try:
        with h5py.File(file, "r") as content:
            data, label = (_plain_dataset(content, name, file) for name in ("data", "label"))
            if data.ndim != 3 or data.shape[2] != 3 or data.dtype.kind != "f":
                raise UserError(
                    f"{str(file)!r}: data is {data.dtype} of shape {data.shape}; floats (N, points, 3) were expected"
                )
            if data.shape[1] < points:
                raise UserError(
                    f"{str(file)!r} has {data.shape[1]} points of every object; give length={data.shape[1]} or less"
                )
            if data.nbytes > 64 * LARGEST_MESH or label.size != len(data) or not len(data):
                raise UserError(
                    f"{str(file)!r} has {data.nbytes} bytes of points for {label.size} labels; "
                    f"one label for each of {len(data)} objects was expected"
                )
            clouds = np.asarray(data[:, :points], dtype=np.float32)
            labels = np.asarray(label[()]).reshape(-1).tolist()
    except UserError:
        raise
    except (OSError, KeyError, ValueError, RuntimeError, TypeError) as error:
        raise UserError(f"cannot read {str(file)!r} as HDF5: {error}") from error
    numbers = whole_labels(labels, file.name) or ()
    return clouds, list(numbers)


def _plain_dataset(content: Any, name: str, file: Path) -> Any:
    """Return a dataset that is stored in the file itself: links and virtual datasets could name other files."""
    import h5py

    link = content.get(name, getlink=True)
    dataset = content[name] if isinstance(link, h5py.HardLink) else None
    is_inside = (
        isinstance(dataset, h5py.Dataset) and not dataset.external and not dataset.is_virtual
    )
    if not is_inside:
        listed = ", ".join(content) or "none"
        raise UserError(
            f"{str(file)!r} has no plain dataset {name!r}; ModelNet's files have data and label, this has {listed}"
        )
    return dataset


def _shape_names(file: Path) -> tuple[str, ...] | None:
    if not file.is_file():
        return None
    lines = as_text(unpacked(file), str(file)).splitlines()
    return tuple(line.strip() for line in lines if line.strip())


def _finite(cloud: Tensor) -> tuple[Tensor] | ValueError:
    if bool(cloud.isfinite().all()):
        return (cloud,)
    return ValueError("points that are not finite (NaN or infinite)")


def _cloud(item: tuple[Tensor]) -> Sample:
    return Sample(item[0])

"""ONNX graphs, computed by onnxruntime: for the methods that need no gradient."""

from __future__ import annotations

import hashlib
import importlib
import re
from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor, nn

from heatproof.data import existing
from heatproof.errors import UserError, nearest, unknown
from heatproof.models.network import Parts

PROBABILITIES = "probabilities"
_TYPES: dict[str, Any] = {
    "tensor(float)": np.float32,
    "tensor(double)": np.float64,
    "tensor(float16)": np.float16,
}
_TYPES |= {"tensor(int64)": np.int64, "tensor(int32)": np.int32, "tensor(bool)": np.bool_}


class OnnxNetwork(nn.Module):
    """An ONNX graph as a network: x (B, …) and auxiliary tensors by name -> class scores (B, classes).

    The first input is x. The output is `logits`, or else the first one of floating-point numbers; probabilities, by
    their name or with `probabilities=True`, become logarithms. A graph made for a fixed number of inputs is called with
    that many. It is computed on the CPU, wherever the inputs are, and gives no gradient.
    """

    differentiable: ClassVar[bool] = False

    def __init__(self, path: str | Path, probabilities: bool = False) -> None:
        super().__init__()
        self.path = str(existing(Path(path)))
        digest = content_digest(Path(self.path))
        self.register_buffer(
            "digest", torch.frombuffer(bytearray(digest), dtype=torch.uint8).clone()
        )
        session = _session(self.path, digest)
        names = {out.name: out.type for out in session.get_outputs()}
        floats = [
            n
            for n, kind in names.items()
            if kind in ("tensor(float)", "tensor(double)", "tensor(float16)")
        ]
        if not floats:
            raise UserError(
                f"{Path(path).name} puts out {', '.join(map(str, names.values()))}; scores are needed"
            )
        self.output = "logits" if "logits" in floats else floats[0]
        self.log = probabilities or "prob" in self.output.lower()

    def forward(self, x: Tensor, **aux: Tensor) -> Tensor:
        """Class scores (B, classes) on the device of x."""
        if x.requires_grad and torch.is_grad_enabled():
            raise UserError(f"{Path(self.path).name} is an ONNX graph, which gives no gradient")
        session = _session(self.path, bytes(self.get_buffer("digest").cpu().numpy()))
        first, *others = session.get_inputs()
        for other in others:
            if other.name not in aux:
                close = nearest(other.name, aux) or sorted(aux)
                raise UserError(
                    f"{Path(self.path).name} has an input {other.name!r} beside {first.name!r}, which the data lack; "
                    f"they have {', '.join(close) or 'no auxiliary tensors'}"
                )
        given = {first.name: _array(x, first)} | {
            other.name: _array(aux[other.name], other) for other in others
        }
        size = first.shape[0] if first.shape and isinstance(first.shape[0], int) else None
        scores = torch.from_numpy(_in_sizes(session, self.output, given, len(x), size)).to(
            x.device, torch.float32
        )
        return scores.clamp(min=torch.finfo(torch.float32).tiny).log() if self.log else scores

    def extra_repr(self) -> str:
        """The name of the file and what is read of it."""
        return f"{Path(self.path).name}, output={self.output}"


def load_onnx(rest: str) -> Parts:
    """`model.onnx`, or `model.onnx@probabilities` where the output has been through a softmax."""
    path, _, what = rest.rpartition("@") if rest.endswith(f"@{PROBABILITIES}") else (rest, "", "")
    if not path.endswith(".onnx"):
        wrong = path.rpartition("@")[2] if "@" in path else path
        raise (
            unknown("kind of output", wrong, [PROBABILITIES])
            if "@" in path
            else UserError(f"{wrong!r} is not an .onnx file")
        )
    return Parts(OnnxNetwork(path, what == PROBABILITIES))


def content_digest(path: Path) -> bytes:
    """sha256 of the file and of all others that hold its weights: those it names and those named after it."""
    content = path.read_bytes()
    named = {path.parent / name for name in external_data(content)}
    digest = hashlib.sha256(content)
    for part in sorted({*named, *path.parent.glob(f"{path.name}*")} - {path}):
        if part.is_file():
            digest.update(part.name.encode() + b"|")
            with part.open("rb") as file:
                while block := file.read(2**20):
                    digest.update(block)
    return digest.digest()


def external_data(content: bytes) -> list[str]:
    """The files that an ONNX graph keeps weights in: the entries `location` of its tensors.

    >>> external_data(b"...\\x0a\\x08location\\x12\\x0bweights.bin...")
    ['weights.bin']
    """
    names = []
    for found in re.finditer(rb"\x0a\x08location\x12([\x80-\xff]*[\x00-\x7f])", content):
        length = sum(
            (byte & 127) << 7 * i for i, byte in enumerate(found[1])
        )  # as protocol buffers write numbers
        names.append(content[found.end() : found.end() + length].decode("utf-8", "replace"))
    return [name for name in dict.fromkeys(names) if "\0" not in name]


@lru_cache(maxsize=8)
def _session(path: str, digest: bytes) -> Any:
    """The graph, ready to compute; kept outside the network, which is copied and sent to other processes."""
    runtime = importlib.import_module("onnxruntime")
    options = runtime.SessionOptions()
    options.intra_op_num_threads = torch.get_num_threads()
    options.log_severity_level = 3
    state = importlib.import_module("onnxruntime.capi.onnxruntime_pybind11_state")
    problems = (
        state.Fail,
        state.InvalidGraph,
        state.InvalidProtobuf,
        state.InvalidArgument,
        state.NotImplemented,
    )
    try:
        return runtime.InferenceSession(path, options, providers=["CPUExecutionProvider"])
    except (*problems, state.NoSuchFile, state.RuntimeException) as error:
        raise UserError(
            f"cannot read {path!r} as an ONNX graph: {str(error).splitlines()[0]}"
        ) from error


def _array(values: Tensor, wanted: Any) -> Any:
    return values.detach().cpu().numpy().astype(_TYPES.get(wanted.type, np.float32), copy=False)


def _in_sizes(
    session: Any, output: str, given: Mapping[str, Any], rows: int, size: int | None
) -> Any:
    """The output for all rows; where the graph has a fixed size, the last part is filled up with copies of its row."""
    step = size or max(1, rows)
    found = []
    for start in range(0, rows, step):
        part = {name: values[start : start + step] for name, values in given.items()}
        lacking = 0 if size is None else size - min(step, rows - start)
        if lacking:
            part = {
                name: np.concatenate([v, np.repeat(v[-1:], lacking, 0)]) for name, v in part.items()
            }
        found.append(session.run([output], part)[0][: step - lacking])
    return np.concatenate(found)

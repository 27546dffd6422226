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
_FLOATS = frozenset(_TYPES)
_TYPES |= {"tensor(int64)": np.int64, "tensor(int32)": np.int32, "tensor(bool)": np.bool_}


class OnnxNetwork(nn.Module):
    """An ONNX graph as a network: x (B, …) and auxiliary tensors by name -> class scores (B, classes).

    The first input is x. The output is `logits`, or else the first one of floating-point numbers; probabilities, by
    their name or with `probabilities=True`, become logarithms. A graph made for a fixed number of inputs is called with
    that many. It is computed on the CPU, wherever the inputs are, and gives no gradient.
    """

    differentiable: ClassVar[bool] = False

    def __init__(self, path: str | Path, probabilities: bool = False) -> None:
        """Open the graph, and choose the output that has the class scores."""
        super().__init__()
        self.path = str(existing(Path(path)))
        digest = content_digest(Path(self.path))
        # As a buffer, it is part of the model's fingerprint.
        self.register_buffer(
            "digest", torch.frombuffer(bytearray(digest), dtype=torch.uint8).clone()
        )
        session = _session(self.path, digest)
        types = {output.name: output.type for output in session.get_outputs()}
        float_outputs = [name for name, type_ in types.items() if type_ in _FLOATS]
        if not float_outputs:
            raise UserError(
                f"{Path(path).name} puts out {', '.join(map(str, types.values()))}; scores are needed"
            )
        self.output = "logits" if "logits" in float_outputs else float_outputs[0]
        self.log = probabilities or "prob" in self.output.lower()

    def forward(self, x: Tensor, **aux: Tensor) -> Tensor:
        """Return class scores (B, classes) on the device of x, computed by ONNX Runtime on the CPU.

        The graph's further inputs are taken from `aux` by name. Probabilities become their logarithms.
        """
        file_name = Path(self.path).name
        if x.requires_grad and torch.is_grad_enabled():
            raise UserError(f"{file_name} is an ONNX graph, which gives no gradient")
        session = _session(self.path, bytes(self.get_buffer("digest").cpu().numpy()))
        first, *others = session.get_inputs()
        arrays = {first.name: _array(x, first)}
        for other in others:
            if other.name not in aux:
                close = nearest(other.name, aux) or sorted(aux)
                raise UserError(
                    f"{file_name} has an input {other.name!r} beside {first.name!r}, which the data lack; "
                    f"they have {', '.join(close) or 'no auxiliary tensors'}"
                )
            arrays[other.name] = _array(aux[other.name], other)
        has_fixed_size = first.shape and isinstance(first.shape[0], int)
        size = first.shape[0] if has_fixed_size else None
        outputs = _in_sizes(session, self.output, arrays, len(x), size)
        scores = torch.from_numpy(outputs).to(x.device, torch.float32)
        if not self.log:
            return scores
        return scores.clamp(min=torch.finfo(torch.float32).tiny).log()

    def extra_repr(self) -> str:
        """The name of the file and what is read of it."""
        return f"{Path(self.path).name}, output={self.output}"


def load_onnx(rest: str) -> Parts:
    """Return the network in an ONNX file, by its path.

    In `model.onnx@probabilities`, the ending says that the graph's output has been through a softmax.
    """
    path, _, output_kind = rest.rpartition("@")
    if output_kind == PROBABILITIES and path:
        has_probabilities = True
    else:
        path, has_probabilities = rest, False
    if not path.endswith(".onnx"):
        if "@" in path:
            raise unknown("kind of output", path.rpartition("@")[2], [PROBABILITIES])
        raise UserError(f"{path!r} is not an .onnx file")
    return Parts(OnnxNetwork(path, has_probabilities))


def content_digest(path: Path) -> bytes:
    """Return the sha256 of an ONNX file and of the files beside it that hold its weights.

    Those are the files that it names, and those whose names begin with its own.
    """
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
    """Return the files that an ONNX graph keeps weights in: the entries `location` of its tensors.

    The bytes are those of a protocol buffer: field 1 (`0a`) of 8 bytes, "location", then field 2 (`12`), the length of
    the name in groups of 7 bits, the lowest first, and the name.

    >>> external_data(b"...\\x0a\\x08location\\x12\\x0bweights.bin...")
    ['weights.bin']
    """
    names = []
    for match in re.finditer(rb"\x0a\x08location\x12([\x80-\xff]*[\x00-\x7f])", content):
        length = 0
        for i, byte in enumerate(match[1]):
            length += (byte & 127) << 7 * i
        names.append(content[match.end() : match.end() + length].decode("utf-8", "replace"))
    return [name for name in dict.fromkeys(names) if "\0" not in name]


@lru_cache(maxsize=8)
def _session(path: str, digest: bytes) -> Any:
    """Return an ONNX Runtime session for the graph at a path; cached by the path and the content's `digest`.

    Sessions are kept outside the network object, because that is copied and sent to other processes.
    """
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


def _array(values: Tensor, graph_input: Any) -> Any:
    """Return a tensor as an array of the type of the graph's input."""
    dtype = _TYPES.get(graph_input.type, np.float32)
    return values.detach().cpu().numpy().astype(dtype, copy=False)


def _in_sizes(
    session: Any, output: str, arrays: Mapping[str, Any], rows: int, size: int | None
) -> Any:
    """Return a graph's `output` for all `rows` of its input `arrays`.

    A graph may be made for passes of a fixed `size`: then rows go in chunks, and the last chunk is padded with copies of
    its last row, whose outputs are dropped.
    """
    step = size or max(1, rows)
    outputs = []
    for start in range(0, rows, step):
        chunk = {name: values[start : start + step] for name, values in arrays.items()}
        missing = 0 if size is None else size - min(step, rows - start)
        if missing:
            for name, values in chunk.items():
                chunk[name] = np.concatenate([values, np.repeat(values[-1:], missing, 0)])
        outputs.append(session.run([output], chunk)[0][: step - missing])
    return np.concatenate(outputs)

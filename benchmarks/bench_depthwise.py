"""Filters of single channels on a GPU: our kernel against cuDNN, forwards and the gradient by the input.

    python benchmarks/bench_depthwise.py

The layers are ConvNeXt-T's (7 × 7) on batches of 256 photographs of 224 px, in float16 with channels last, and some of
MobileNetV2's and EfficientNet's, which stay with cuDNN. Both sides run in one process on the same values, and what they
compute is compared. Ours adds a bias, here of zeros; for cuDNN that would be a kernel more, which compilers merge.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor
from torch.nn import functional as F

LAYERS = {  # channels, pixels on a side, side of the filter
    "ConvNeXt-T, stage 1": (96, 56, 7),
    "ConvNeXt-T, stage 2": (192, 28, 7),
    "ConvNeXt-T, stage 3": (384, 14, 7),
    "ConvNeXt-T, stage 4": (768, 7, 7),
    "EfficientNet-B0": (240, 28, 5),
    "MobileNetV2": (144, 56, 3),
}
IMAGES, CALLS, WARM = 256, 20, 5


def milliseconds(call: Callable[[], Tensor]) -> float:
    """Of one call on the device."""
    for _ in range(WARM):
        call()
    begun, ended = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    torch.cuda.synchronize()
    begun.record()
    for _ in range(CALLS):
        call()
    ended.record()
    torch.cuda.synchronize()
    return begun.elapsed_time(ended) / CALLS


def main() -> None:
    if not torch.cuda.is_available():
        print("torch sees no GPU here; this compares kernels of one")
        return
    from heatproof.kernels.depthwise import depthwise

    print(
        f"{'':22}{'cuDNN, ms':>18}{'heatproof, ms':>18}{'times as fast':>18}{'largest difference':>22}"
    )
    for name, (channels, side, filters) in LAYERS.items():
        drawn = torch.Generator("cuda").manual_seed(0)
        sizes = (
            (IMAGES, channels, side, side),
            (IMAGES, channels, side, side),
            (channels, 1, filters, filters),
        )
        given = [
            torch.randn(size, generator=drawn, device="cuda", dtype=torch.float16) for size in sizes
        ]
        x, back, weight = (values.to(memory_format=torch.channels_last) for values in given)
        bias = torch.zeros(channels, device="cuda", dtype=torch.float16)
        around, once = filters // 2, [1, 1]
        fixed = (
            [channels],
            once,
            [around] * 2,
            once,
            False,
            [0, 0],
            channels,
            [True, False, False],
        )
        pairs = [
            (
                lambda: F.conv2d(x, weight, padding=around, groups=channels),  # noqa: B023
                lambda: depthwise(x, weight, bias, [around] * 2),  # noqa: B023
            ),
            (
                lambda: torch.ops.aten.convolution_backward(back, x, weight, *fixed)[0],  # noqa: B023
                lambda: depthwise(back, weight, None, [filters - 1 - around] * 2, True),  # noqa: B023
            ),
        ]
        gap = max(
            float((theirs() - ours()).abs().max() / theirs().abs().max()) for theirs, ours in pairs
        )
        theirs, ours = ([milliseconds(pair[side]) for pair in pairs] for side in (0, 1))
        columns = [f"{a:.3f} {b:.3f}" for a, b in (theirs, ours)]
        columns.append(" ".join(f"{a / b:.2f}" for a, b in zip(theirs, ours, strict=True)))
        print(
            f"{name:22}" + "".join(f"{text:>18}" for text in columns) + f"{gap:>22.1e}", flush=True
        )
    print("forwards, then backwards")


if __name__ == "__main__":
    main()

"""How many model passes each test takes, and which inputs go through the network more than once.

    python benchmarks/bench_passes.py [--samples 24] [--callers]

Every input that goes through the network is remembered by its digest, with the weights and with who asked: a test, a
method, or the engine. A *repeat* is an input that the same weights have computed before. Repeats *in a method* are part
of how it works, such as a gradient of an input that was predicted before, or come from another method that explains the
same sample; repeats *in a test* are work that could be shared. The network is the small one of the tests.
"""

from __future__ import annotations

import os

os.environ.setdefault("OMP_NUM_THREADS", "1")

import argparse
import sys
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from hashlib import blake2b
from pathlib import Path
from types import FrameType
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

import torch
from torch import Tensor

import heatproof
from heatproof import Model
from heatproof.runs.engine import Engine
from support.small import model, pictures

METHODS = ["saliency", "input_x_gradient", "grad_cam", "gradient_shap"]
SETTINGS: dict[str, dict[str, Any]] = {
    "stability": {"perturbations": "fass-paper", "k": 100},
    "faithfulness": {},
    "certificate": {"radii": [1, 2, 4], "features": {"patches": {"size": 4}}},
    "certificate of 4 features": {"radii": [1, 2], "features": {"patches": {"size": 16}}},
    "symmetry": {"group": "dihedral"},
    "dependence": {"k": 100},
    "agreement": {"k": 100},
}


@dataclass(frozen=True)
class Caller:
    """Who asked for a pass: the running test, "method" or "test", and the functions that lead to the model."""

    test: str
    origin: str
    functions: str


@dataclass
class Ledger:
    """The inputs that went through the network: `seen` by digest, and passes and repeats by caller.

    `repeated_from` counts the pairs (who computed it first, who computed it again).
    """

    running_test: str = "engine"
    seen: dict[bytes, Caller] = field(default_factory=dict)
    passes: Counter[Caller] = field(default_factory=Counter)
    repeats: Counter[Caller] = field(default_factory=Counter)
    repeated_from: Counter[tuple[Caller, Caller]] = field(default_factory=Counter)

    def record(self, weights: bytes, inputs: Tensor) -> None:
        """Note that these inputs (B, …) go through a network with these weights."""
        caller = caller_of(sys._getframe(1), self.running_test)
        for row in inputs.detach():
            key = blake2b(weights + row.contiguous().numpy().tobytes(), digest_size=16).digest()
            self.passes[caller] += 1
            if key in self.seen:
                self.repeats[caller] += 1
                self.repeated_from[self.seen[key], caller] += 1
            self.seen.setdefault(key, caller)


def caller_of(frame: FrameType | None, test: str) -> Caller:
    """Return who asked for a pass, from the frames of heatproof above it."""
    functions = []
    origin = "test"
    while frame is not None:
        path = frame.f_code.co_filename
        if "heatproof/explainers/" in path:
            origin = "method"
        is_of_interest = "heatproof/axes/" in path or "heatproof/explainers/" in path
        if is_of_interest or path.endswith("heatproof/subject.py"):
            functions.append(frame.f_code.co_qualname)
        frame = frame.f_back
    return Caller(test, origin, " < ".join(functions[:6]))


def weights_digest(net: Model) -> bytes:
    """Return a digest of the weights, which some tests change."""
    digest = blake2b(digest_size=8)
    for value in net.module.state_dict().values():
        digest.update(value.contiguous().numpy().tobytes())
    return digest.digest()


def count_passes(samples: int, tests: Mapping[str, Any]) -> Ledger:
    """Run the tests together and return what went through the network."""
    ledger = Ledger()
    forward = Model._forward
    run_evaluation = Engine._run_evaluation

    def counted_forward(self: Model, inputs: Tensor, *rest: Any) -> Tensor:
        ledger.record(weights_digest(self), inputs)
        return forward(self, inputs, *rest)

    def named_evaluation(self: Engine, job: Any, name: str, *rest: Any) -> None:
        ledger.running_test = name
        run_evaluation(self, job, name, *rest)
        ledger.running_test = "engine"

    Model._forward = counted_forward  # type: ignore[method-assign]
    Engine._run_evaluation = named_evaluation  # type: ignore[method-assign]
    try:
        heatproof.evaluate(
            model(), pictures(samples)[0], METHODS, dict(tests), shard_size=8, show_progress=False
        )
    finally:
        Model._forward = forward  # type: ignore[method-assign]
        Engine._run_evaluation = run_evaluation  # type: ignore[method-assign]
    return ledger


def main() -> None:
    """Print passes and repeats of each test, and with --callers who repeats whose passes."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--samples", type=int, default=24)
    parser.add_argument("--callers", action="store_true", help="who repeats whose passes")
    given = parser.parse_args()
    torch.set_num_threads(1)
    tests = {name: {name.split()[0]: settings} for name, settings in SETTINGS.items()}
    ledger = count_passes(given.samples, tests)

    print("| test | passes | repeats in methods | repeats in the test |\n|---|---|---|---|")
    for test in ("engine", *SETTINGS):
        counts = Counter[str]()
        for caller, passes in ledger.passes.items():
            if caller.test == test:
                counts["passes"] += passes
                counts[caller.origin] += ledger.repeats[caller]
        print(f"| {test} | {counts['passes']:,} | {counts['method']:,} | {counts['test']:,} |")
    if given.callers:
        for (first, again), number in ledger.repeated_from.most_common(60):
            print(f"\n{number:,} of {again.test} ({again.origin}): {again.functions}")
            print(f"   first in {first.test} ({first.origin}): {first.functions}")


if __name__ == "__main__":
    main()

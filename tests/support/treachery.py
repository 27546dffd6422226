"""An explainer that fails in a worker. It is importable there, where a test module is not."""

from __future__ import annotations

import os
import signal
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from heatproof.errors import UserError
from heatproof.runs import atomic


@dataclass(frozen=True)
class Treacherous:
    """A map of the input itself, by a method that does something else first, once or always."""

    marker: str
    deed: str
    once: bool = True
    run: str = ""
    kind: ClassVar[str] = "feature"
    stochastic: ClassVar[bool] = False

    def __call__(self, model, batch, target, seed):
        # The parent never explains, so whoever comes here is a worker; the first to make the marker does the deed.
        if self.deed and (not self.once or atomic.create_atomically(Path(self.marker), b"")):
            if self.deed == "kill":
                if self.run:  # as another thread of this process would that is just writing there
                    Path(
                        self.run, f".torn.{atomic.this_host()}-{os.getpid()}.{'0' * 8}.tmp"
                    ).write_bytes(b"half")
                os.kill(os.getpid(), signal.SIGKILL)
            raise (
                ArithmeticError("no such luck")
                if self.deed == "raise"
                else UserError("this cannot work")
            )
        return model.inputs(batch)

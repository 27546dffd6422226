"""`heatproof init`: the first study file for a model and data."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import Annotated

import typer

from heatproof.cli.read import say
from heatproof.cli.run import AllowCode
from heatproof.errors import counted


def init(
    model: Annotated[
        str,
        typer.Argument(
            metavar="MODEL",
            help="A model file (.pt, .pth, .safetensors, .onnx, model.py), or a name as in a study file.",
        ),
    ],
    data: Annotated[
        str,
        typer.Argument(
            metavar="DATA",
            help="A folder of pictures, an .npz or .csv file, …, or a name as in a study file.",
        ),
    ],
    out: Annotated[Path, typer.Option(metavar="FILE", help="The study file to write.")] = Path(
        "study.yaml"
    ),
    architecture: Annotated[
        str | None,
        typer.Option(
            metavar="NAME",
            help="The architecture of a file of weights, such as torchvision:resnet18 or python:nets.py:make.",
            show_default=False,
        ),
    ] = None,
    allow_code: AllowCode = False,
) -> None:
    """Write a study file for a model and data, with comments on what to change.

    The kind of data, the image size, the normalisation, the classes and suitable methods and tests are detected from the
    files and a few passes. An existing file is not overwritten.
    """
    from heatproof.runs.study.starter import write_first_study

    plan = write_first_study(model, data, out, architecture=architecture, allow_code=allow_code)
    (source,) = plan.data.values()
    methods = counted(len(plan.explainers), "explainer")
    tests = counted(len(plan.evaluations), "test")
    say(f"wrote {out}: {methods} and {tests} on {counted(len(source.ids), 'sample')}")
    command = f"heatproof run {shlex.quote(str(out))} --limit 4"
    say(f"next: read its comments, then {command}{' --allow-code' if allow_code else ''}")

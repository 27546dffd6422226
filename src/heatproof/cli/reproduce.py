"""The command that reproduces a table or figure of one of the papers."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from heatproof.cli.read import PIPED, say, terminal_width
from heatproof.cli.run import AllowCode
from heatproof.errors import UserError


def reproduce(
    name: Annotated[
        str | None,
        typer.Argument(
            metavar="NAME", help="Such as fass-table-4; --list has all.", show_default=False
        ),
    ] = None,
    list_items: Annotated[
        bool, typer.Option("--list", help="List what can be reproduced.")
    ] = False,
    limit: Annotated[
        int | None,
        typer.Option(
            metavar="N",
            help="Samples of each data set; by default so few that it takes minutes.",
            show_default=False,
        ),
    ] = None,
    out: Annotated[
        Path, typer.Option(metavar="DIR", help="Where tables, figures and runs go.")
    ] = Path("reproductions"),
    data: Annotated[
        list[str] | None,
        typer.Option(
            metavar="[NAME=]DIR",
            help="Use the paper's data in place of the bundled or generated; of several data sets by name, such as "
            "ImageNet=DIR.",
        ),
    ] = None,
    model: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME",
            help="Use this model, named as in a study file, such as torchvision:resnet50; repeat it for several.",
        ),
    ] = None,
    allow_code: AllowCode = False,
) -> None:
    """Run a table or figure of a paper again, and print it beside the published numbers.

    Without --data and --model it uses what comes with heatproof, and says so. Rerun the command to resume.
    """
    from heatproof.reproduce.experiment import reproduce as run_again
    from heatproof.reproduce.items import item_files, read_item
    from heatproof.reproduce.show import text_of, write

    if list_items:
        items = [read_item(known) for known in item_files()]
        widest = max(len(item.name) for item in items)
        for item in items:
            say(f"{item.name:<{widest}}  {item.title}")
        return
    if name is None:
        raise UserError("name a table or figure, such as fass-table-4; --list has all")
    done = run_again(name, limit, out, _named_data(data or []), model or [], allow_code)
    say(text_of(done, terminal_width() or PIPED))
    say("")
    for path in write(done):
        say(path)


def _named_data(entries: list[str]) -> dict[str, str]:
    """Return name in the paper -> data; the name is "" where only the data are given.

    >>> _named_data(["ImageNet=photos/val"]), _named_data(["photos"])
    ({'ImageNet': 'photos/val'}, {'': 'photos'})
    """
    named = {}
    for entry in entries:
        name, separator, source = entry.partition("=")
        if separator:
            named[name] = source
        else:
            named[""] = entry
    return named

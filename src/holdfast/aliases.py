"""How large a YAML document is once its aliases are followed: a small file can stand for more than a machine holds."""

from __future__ import annotations

from typing import Any

import yaml

from holdfast.errors import UserError

MOST_NODES = 100_000


def check_unfolded(root: yaml.Node | None, name: str = "the file", most: int = MOST_NODES) -> None:
    """Refuse a document with more than `most` nodes when every alias is written out, or that contains itself.

    Counted without writing it out: each node once, from its parts.

    >>> check_unfolded(yaml.compose("a: &x [1, 2]\\nb: *x"))
    >>> check_unfolded(yaml.compose("a: &x [1, *x]"))
    Traceback (most recent call last):
    holdfast.errors.UserError: the file, line 1: an alias refers to what contains it
    >>> check_unfolded(yaml.compose("[&x [1, 2], &y [*x, *x], [*y, *y]]"), most=20)
    Traceback (most recent call last):
    holdfast.errors.UserError: the file has more than 20 entries with its aliases written out
    """
    sizes: dict[int, int] = {}
    open_nodes: set[int] = set()
    stack: list[tuple[Any, bool]] = [] if root is None else [(root, False)]
    while stack:  # not by recursion, which a deep document would exhaust
        node, done = stack.pop()
        parts = _parts(node)
        if done:
            open_nodes.discard(id(node))
            sizes[id(node)] = 1 + sum(sizes[id(part)] for part in parts)
            if sizes[id(node)] > most:
                raise UserError(f"{name} has more than {most} entries with its aliases written out")
        elif id(node) not in sizes:
            if id(node) in open_nodes:
                raise UserError(f"{name}, line {node.start_mark.line + 1}: an alias refers to what contains it")
            open_nodes.add(id(node))
            stack.append((node, True))
            stack.extend((part, False) for part in parts)


def _parts(node: Any) -> list[Any]:
    if isinstance(node, yaml.MappingNode):
        return [part for pair in node.value for part in pair]
    return list(node.value) if isinstance(node, yaml.SequenceNode) else []

"""A YAML document before its content is taken: its size with all aliases followed, keys given twice, and lines.

A small file with aliases can stand for more than a machine holds.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import yaml

from heatproof.errors import UserError

MOST_NODES = 100_000


def check_unfolded(root: yaml.Node | None, name: str = "the file", most: int = MOST_NODES) -> None:
    """Refuse a document with more than `most` nodes when every alias is written out, or that contains itself.

    Counted without writing it out: each node once, from its parts.

    >>> check_unfolded(yaml.compose("a: &x [1, 2]\\nb: *x"))
    >>> check_unfolded(yaml.compose("a: &x [1, *x]"))
    Traceback (most recent call last):
    heatproof.errors.UserError: the file, line 1: an alias refers to what contains it
    >>> check_unfolded(yaml.compose("[&x [1, 2], &y [*x, *x], [*y, *y]]"), most=20)
    Traceback (most recent call last):
    heatproof.errors.UserError: the file has more than 20 entries with its aliases written out
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
                raise UserError(
                    f"{name}, line {node.start_mark.line + 1}: an alias refers to what contains it"
                )
            open_nodes.add(id(node))
            stack.append((node, True))
            stack.extend((part, False) for part in parts)


def check_keys_once(node: Any, file: str) -> None:
    """Refuse a key that is given twice: YAML takes the last of the two in silence, and half of a study would be lost.

    >>> check_keys_once(yaml.compose("seed: 1\\nseed: 2"), "study.yaml")
    Traceback (most recent call last):
    heatproof.errors.UserError: study.yaml, line 2: 'seed' is given twice
    """
    if isinstance(node, yaml.MappingNode):
        seen: set[str] = set()
        for key, value in node.value:
            if isinstance(key, yaml.ScalarNode) and key.value != "<<":
                if key.value in seen:
                    raise UserError(
                        f"{file}, line {key.start_mark.line + 1}: {key.value!r} is given twice"
                    )
                seen.add(key.value)
            check_keys_once(value, file)
    elif isinstance(node, yaml.SequenceNode):
        for item in node.value:
            check_keys_once(item, file)


def line_of(node: Any, place: Iterable[str | int]) -> int:
    """The line of the deepest node on the way to `place`, by keys and numbers.

    >>> line_of(yaml.compose("a: 1\\nb:\\n  - 2\\n  - 3"), ("b", 1))
    4
    """
    line = 1 if node is None else node.start_mark.line + 1
    for step in place:
        if isinstance(node, yaml.MappingNode):
            match = [(k, v) for k, v in node.value if k.value == str(step)]
            if not match:
                break
            key, node = match[0]
            line = key.start_mark.line + 1
        elif (
            isinstance(node, yaml.SequenceNode) and isinstance(step, int) and step < len(node.value)
        ):
            node = node.value[step]
            line = node.start_mark.line + 1
        else:
            break
    return int(line)


def _parts(node: Any) -> list[Any]:
    """Return the nodes within a node: keys and values of a mapping, entries of a list."""
    if isinstance(node, yaml.MappingNode):
        nodes: list[Any] = []
        for key, value in node.value:
            nodes += [key, value]
        return nodes
    return list(node.value) if isinstance(node, yaml.SequenceNode) else []

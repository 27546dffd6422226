"""Registries whose entries are imported when they are looked up, so that a study imports only what it names."""

from __future__ import annotations

import importlib
from collections.abc import Iterator, Mapping
from typing import Any


class LazyRegistry(Mapping[str, Any]):
    """Objects by the names that a study file uses; listing the names and testing for one imports nothing.

    homes    name -> "module:Name", where the object is
    aliases  what people type instead -> name. An alias is no name: an error suggests the name for it. It is written
             without capitals and punctuation, see `fold`.

    >>> registry = LazyRegistry({"ordered": "collections:OrderedDict"}, {"od": "ordered"})
    >>> "ordered" in registry, registry["ordered"], registry.name_of_alias("OD")
    (True, <class 'collections.OrderedDict'>, 'ordered')
    """

    def __init__(self, homes: Mapping[str, str], aliases: Mapping[str, str] | None = None) -> None:
        self._homes = dict(homes)
        self._aliases = dict(aliases or {})

    def __getitem__(self, name: str) -> Any:
        """Import the object of this name."""
        module, _, attribute = self._homes[name].partition(":")
        return getattr(importlib.import_module(module), attribute)

    # `Mapping` would look the name up, and so import what belongs to it.
    def __contains__(self, name: object) -> bool:
        return name in self._homes

    def __iter__(self) -> Iterator[str]:
        return iter(self._homes)

    def __len__(self) -> int:
        return len(self._homes)

    def __or__(self, other: LazyRegistry) -> LazyRegistry:
        """Return a registry with the names of both."""
        return LazyRegistry(self._homes | other._homes, self._aliases | other._aliases)

    def name_of_alias(self, text: str) -> str | None:
        """Return the name that is meant by an alias; None for a text that is no alias."""
        return self._aliases.get(fold(text))

    def by_class_name(self, package: str, class_name: str) -> Any:
        """Return the registered object with this name in its module, for the `__getattr__` of the package it is in.

        >>> LazyRegistry({"ordered": "collections:OrderedDict"}).by_class_name("mine", "Ordered")
        Traceback (most recent call last):
        AttributeError: module 'mine' has no attribute 'Ordered'
        """
        for name, home in self._homes.items():
            if home.partition(":")[2] == class_name:
                return self[name]
        raise AttributeError(f"module {package!r} has no attribute {class_name!r}")


def fold(text: str) -> str:
    """Return a name in small letters, without anything that people write in different ways.

    >>> fold("Grad-CAM"), fold("grad_cam"), fold("GradCAM++")
    ('gradcam', 'gradcam', 'gradcamplusplus')
    """
    spelled_out = text.lower().replace("+", "plus")
    return "".join(character for character in spelled_out if character.isalnum())

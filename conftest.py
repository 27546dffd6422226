"""What every docstring's example may use without importing it."""

import pytest
import torch


@pytest.fixture(autouse=True)
def _names_in_doctests(doctest_namespace: dict[str, object]) -> None:
    doctest_namespace["torch"] = torch

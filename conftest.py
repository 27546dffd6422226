"""What every docstring's example may use without importing it, and where runs without a place go."""

import tempfile
from collections.abc import Iterator

import pytest
import torch


@pytest.fixture(autouse=True)
def _names_in_doctests(doctest_namespace: dict[str, object]) -> None:
    doctest_namespace["torch"] = torch


@pytest.fixture(autouse=True, scope="session")
def _runs_without_a_place_stay_with_the_tests(
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[None]:
    """A run without `out` lives in the system's temporary folder; those of the tests should not fill it."""
    before, tempfile.tempdir = tempfile.tempdir, str(tmp_path_factory.mktemp("runs"))
    yield
    tempfile.tempdir = before

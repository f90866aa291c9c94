"""The examples as modules."""

import importlib
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest

EXAMPLES = Path(__file__).parents[2] / "examples"


@pytest.fixture(scope="session")
def _examples_on_path() -> Iterator[None]:
    """Let the examples import each other, as they do when they run as scripts."""
    sys.path.insert(0, str(EXAMPLES))
    yield
    sys.path.remove(str(EXAMPLES))


@pytest.fixture(scope="session")
def embed_sentences(_examples_on_path: None) -> ModuleType:
    return importlib.import_module("embed_sentences")


@pytest.fixture(scope="session")
def quickstart(_examples_on_path: None) -> ModuleType:
    return importlib.import_module("quickstart")

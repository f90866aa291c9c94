"""Lets tests import the modules beside them, and gives them a small model with a decoder."""

import sys
from pathlib import Path

import pytest
import torch

# pytest's importlib mode does not put this directory on the path.
sys.path.insert(0, str(Path(__file__).parent))

import small_decoders


@pytest.fixture(scope="session", autouse=True)
def one_thread():
    """Let PyTorch run small models on one thread, where waiting for others takes longer."""
    count = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(count)


@pytest.fixture(scope="session")
def model():
    return small_decoders.small_model()


@pytest.fixture(scope="session")
def make(model):
    """Return a function that makes decoders of the model, closed at the end."""
    made = []

    def make(**options):
        made.append(small_decoders.noting_decoder(model, **options))
        return made[-1]

    yield make
    for each in made:
        each.close()


@pytest.fixture(scope="session")
def shared(make):
    return make()


@pytest.fixture
def decoder(shared):
    """Return a decoder that has not noted anything."""
    shared.kernel.reset()
    shared.kernel.added, shared.kernel.shared = [], []
    return shared

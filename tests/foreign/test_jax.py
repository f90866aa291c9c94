"""Derivatives of another framework by the ops `<op>_backward`."""

import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

PROGRAM = Path(__file__).with_name("jax_program.py")


@pytest.mark.skipif(find_spec("jax") is None, reason="the session `tests` installs JAX")
def test_gradients_are_those_of_the_formula():
    """In a process of its own: JAX starts threads, and other tests fork."""
    done = subprocess.run(
        [sys.executable, PROGRAM], capture_output=True, text=True, check=False, timeout=300
    )
    assert done.stdout == "gradients agree\n", done.stderr

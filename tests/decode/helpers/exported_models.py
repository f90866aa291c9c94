"""Exported models, and the program in C++ that runs commands on them."""

import contextlib
import shutil
import subprocess
from importlib import import_module
from pathlib import Path

import pytest

from tensor_ops_decode import PersistentKernel

INCLUDE = Path(__file__).parents[3] / "native" / "include"
SOURCES = Path(__file__).with_name("cpp_decoder")
LIMITS = {
    "max_num_batched_requests": 3,
    "max_num_batched_tokens": 32,
    "max_seq_length": 120,
    "num_workers": 2,
}


def export(model, target, **options):
    """Export a model with the limits of `LIMITS`, and return the folder."""
    with PersistentKernel(model=model, backend="python", **{**LIMITS, **options}) as kernel:
        kernel.export(target)
    return target


def words(*parts):
    """Return a command, or what one prints."""
    return " ".join(map(str, parts))


def library_path(backend="cpp"):
    """Return the library of a native backend, which is beside its Python module."""
    module = import_module(f"tensor_ops_{backend}")
    (path,) = Path(module.__file__).parent.glob(f"*tensor_ops_{backend}.*")
    return path


def compiled(compiler, source, folder, *options):
    """Compile a program of `SOURCES` into a folder, with warnings as errors."""
    path = shutil.which(compiler) or pytest.skip(f"{compiler} is not installed")
    program = folder / Path(source).stem
    checks = [*options, "-Wall", "-Wextra", "-Werror", "-pedantic", f"-I{INCLUDE}"]
    command = [path, SOURCES / source, *checks, "-o", program, "-ldl", "-lpthread"]
    subprocess.run(command, check=True)
    return program


class Driver:
    """The program `driver.cpp`, called with lines of commands.

    Without a library, it is that of the backend.
    """

    def __init__(self, program, library=None, backend="cpp"):
        library = library or library_path(backend)
        self._command = [program, library, f"tensor_ops_{backend}_backend"]

    def __call__(self, *lines):
        """Return the line that each command prints."""
        text = "".join(f"{line}\n" for line in lines)
        done = subprocess.run(
            self._command, input=text, capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, (done.stdout[-300:], done.stderr)
        printed = done.stdout.splitlines()
        assert len(printed) == len(lines)
        return [line.strip() for line in printed]

    @contextlib.contextmanager
    def session(self):
        """Yield what runs one command at a time, and returns the line that it prints."""
        pipe = subprocess.PIPE
        with subprocess.Popen(self._command, stdin=pipe, stdout=pipe, text=True) as process:

            def say(*parts):
                process.stdin.write(words(*parts) + "\n")
                process.stdin.flush()
                return process.stdout.readline().strip()

            yield say

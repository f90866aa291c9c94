"""Programs of the C++ interface, compiled here, and libraries that stand for backends."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

# pytest's importlib mode does not put this directory on the path.
sys.path.append(str(Path(__file__).parent))

from cpp_programs import COMPILERS, PROGRAMS, ROOT, WARNINGS, run_compiler


@pytest.fixture(scope="session")
def program(made_once):
    """A function that compiles a program of this folder once, and returns its path."""

    def compiled(name, *options, compiler=COMPILERS[0]):
        headers = ["-I", str(ROOT / "native/include")]
        source = str(PROGRAMS / f"{name}.cpp")
        settings = ["-std=c++17", *WARNINGS, *headers, *options]

        def make(path):
            run_compiler(compiler, *settings, source, "-o", str(path), "-pthread", "-ldl")

        return made_once((compiler, source, settings), name, make)

    return compiled


@pytest.fixture(scope="session")
def fake(tmp_path_factory):
    """A function that compiles the fake backend with some macros, and returns its path."""
    made = {}

    def compiled(folder=None, name="cpp", **macros):
        key = name, tuple(macros.items())
        file = f"libtensor_ops_{name}.so"
        if key not in made:
            path = tmp_path_factory.mktemp("fake") / file
            defined = [f"-DFAKE_NAME={name}"]
            defined += [f"-DFAKE_{macro}={value}" for macro, value in macros.items()]
            headers = ["-I", str(ROOT / "native/include")]
            settings = ["-std=gnu99", *WARNINGS, "-fvisibility=hidden", "-shared", "-fPIC"]
            if "INITIALISER" in macros or "ENTRY_ASKS" in macros or "NO_ENTRY" in macros:
                settings.append("-Wno-unused-const-variable")
            source = str(PROGRAMS / "fake_backend.c")
            compiler = os.environ.get("CC", "cc")
            run_compiler(compiler, *settings, *headers, *defined, source, "-o", str(path))
            made[key] = path
        if folder is None:
            return made[key]
        folder.mkdir(parents=True, exist_ok=True)
        return Path(shutil.copy(made[key], folder / file))

    return compiled


@pytest.fixture
def run(tmp_path):
    """A function that runs a program with nothing in its environment but what it is given."""
    home = tmp_path / "home"

    def done(path, *arguments, check=True, **environment):
        variables = {"HOME": str(home), "PATH": os.defpath, **environment}
        command = [str(path), *map(str, arguments)]
        # A program that does not come back has two threads, or one twice, waiting for a lock.
        finished = subprocess.run(
            command,
            env=variables,
            cwd=tmp_path,
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        assert not check or finished.returncode == 0, finished.stdout + finished.stderr
        return finished

    return done


@pytest.fixture
def ask(program, run, tmp_path):
    """A function that has a program ask the registry, and returns its lines."""
    path = program("ask", "-rdynamic")

    def asked(*questions, folders=(tmp_path / "libraries",), **environment):
        environment.setdefault("TENSOR_OPS_BACKEND_PATH", os.pathsep.join(map(str, folders)))
        done = run(path, *questions, **environment)
        return [*done.stdout.splitlines(), *done.stderr.splitlines()]

    return asked


@pytest.fixture
def libraries(tmp_path):
    return tmp_path / "libraries"

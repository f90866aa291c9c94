"""The C++ backend's library on another system, which programs of this folder are compiled for.

``nox -s windows``, ``musl`` and ``portable`` build the library and describe the system in a file,
for ``--system``: ``name``, the commands of its ``c`` and ``c++`` compilers, the ``launcher`` that
runs a program of it here, the ``library`` and the ``levels`` that it is to be run at. Programs find
the libraries of their compiler in the folders of ``runtime``.
"""

import sys
from pathlib import Path

import pytest

from other_system import System, read_system

ROOT = Path(__file__).parents[2]
PROGRAMS = Path(__file__).with_name("programs")
sys.path.append(str(ROOT / "tests/cpp_api"))  # what the examples print


@pytest.fixture(scope="session")
def system(request):
    """The system that the tests are about."""
    given = request.config.getoption("--system")
    if given is None:
        pytest.skip("no --system was given: 'nox -s windows musl portable' say what one is")
    return read_system(given)


@pytest.fixture(scope="session")
def here():
    """This machine and its own library, where the tests' Python package has it."""
    import tensor_ops_cpp

    (library,) = Path(tensor_ops_cpp.__file__).parent.glob("*tensor_ops_cpp.*")
    levels = tensor_ops_cpp.get_optimization_info()["cpu_levels"]
    linked = ["-pthread", "-ldl"]
    return System("here", ["cc"], ["c++"], [], str(library), levels, linked=linked)


@pytest.fixture(scope="session")
def program(system, tmp_path_factory):
    """A function that compiles a program of this folder for a system once."""
    made = {}

    def compiled(name, of=system):
        if (name, of.name) not in made:
            folder = tmp_path_factory.mktemp(f"{name}-{of.name}")
            target = folder / (f"{name}.exe" if of.is_windows else name)
            made[name, of.name] = of.compile(PROGRAMS / f"{name}.cpp", target)
        return made[name, of.name]

    return compiled


def pytest_generate_tests(metafunc):
    if "level" in metafunc.fixturenames:
        given = metafunc.config.getoption("--system")
        metafunc.parametrize("level", read_system(given).levels if given else [""])

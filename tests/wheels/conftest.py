"""The files in dist/, and empty environments of several Pythons to install them in.

``nox -s wheels`` builds the files and runs these tests but for the rehearsal of a release, which
``nox -s release`` runs with the tests for one Python; ``nox -s wheels_sample`` builds those of two
packages and runs the tests that are marked as its sample. A Python that this machine lacks is
skipped, and says so; what one needs is downloaded to a folder, and installed from there without
network.
"""

from pathlib import Path

import pytest

import interpreters
from interpreters import HERE, NATIVE, PACKAGES, PYTHONS, ROOT, Interpreter, tag_of

# It takes minutes and a compiler of its own, and is built for the Python that runs this only.
BUILT_ONCE = {"tensor-ops-cuda"}
# Packages whose sdist and wheel are in the folder that the sample is about.
IN_SAMPLE = {"tensor-ops", "tensor-ops-decode"}


def pytest_generate_tests(metafunc):
    if "package" in metafunc.fixturenames:
        chosen = {package: [pytest.mark.sample] for package in IN_SAMPLE}
        each = [pytest.param(package, marks=chosen.get(package, [])) for package in PACKAGES]
        metafunc.parametrize("package", each)
    if "native_package" in metafunc.fixturenames:
        metafunc.parametrize("native_package", NATIVE)


@pytest.fixture(scope="session")
def dist(request):
    """The folder of the sdists and wheels; the checks of this folder are of nothing else."""
    given = request.config.getoption("--dist-folder")
    if given is None:
        pytest.skip("no --dist-folder was given: run 'nox -s wheels', which builds what is in it")
    return Path(given).resolve()


@pytest.fixture(scope="session")
def sdist(dist):
    """A function from a package to its sdist."""
    return lambda package: _only(dist.glob(f"{package.replace('-', '_')}-*.tar.gz"))


@pytest.fixture(scope="session")
def wheel(dist):
    """A function from a package to its wheel for this Python, which was built from the sdist."""

    def find(package):
        tag = tag_of(HERE) if package in NATIVE else "py3"
        return _only(dist.glob(f"{package.replace('-', '_')}-*-{tag}-*.whl"))

    return find


@pytest.fixture(
    scope="session",
    params=[
        pytest.param(version, marks=[pytest.mark.other_python] if version != HERE else [])
        for version in PYTHONS
    ],
)
def interpreter(request, tmp_path_factory, dist):
    """Each Python in turn, with wheels of the native packages for it in dist/."""
    return _interpreter(request.param, tmp_path_factory, dist)


@pytest.fixture(scope="session")
def this_interpreter(tmp_path_factory, dist):
    """A Python of the version that runs the tests."""
    return _interpreter(HERE, tmp_path_factory, dist)


def _interpreter(version, tmp_path_factory, dist):
    executable = interpreters.executable(version)
    if executable is None:
        pytest.skip(f"this machine has no python{version}, on the PATH or of pyenv")
    found = Interpreter(version, executable, tmp_path_factory.mktemp(f"python{version}-"))
    for package in NATIVE:
        stem, tag = package.replace("-", "_"), tag_of(version)
        if package not in BUILT_ONCE and not list(dist.glob(f"{stem}-*-{tag}-*.whl")):
            # From the tree, not from the sdist: test_contents.py holds the two beside each other.
            found.pip("wheel", "--no-deps", "-w", dist, ROOT / "packages" / package)
    return found


def _only(paths):
    found = list(paths)
    assert len(found) == 1, found
    return found[0]


def pytest_terminal_summary(terminalreporter, config):
    given = config.getoption("--dist-folder")
    if given is None:
        return
    terminalreporter.section("wheels and sdists", sep="-")
    for path in sorted(Path(given).iterdir()):
        terminalreporter.write_line(f"{path.stat().st_size / 1e6:8.2f} MB  {path.name}")

"""Launchers of several processes, as far as they are installed: MPICH, Open MPI and torchrun."""

import importlib.util
import os
import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest

LAUNCHERS = ("mpich", "openmpi", "torchrun")
ALL_ON_THIS_MACHINE = {
    # Open MPI's drivers for networks take seconds to start, and one complains of another's absence.
    "OMPI_MCA_pml": "ob1",
    "OMPI_MCA_btl": "self,sm",
    "OMPI_MCA_osc": "^ucx",
    "OMP_NUM_THREADS": "1",  # without it, torchrun says that it has chosen this
}


class Launcher:
    """Starts programs on several ranks.

    Attributes
    ----------
    name : str
    seconds : int
        After a fault of one rank, all have ended so soon.
    """

    def __init__(self, name, words):
        self.name, self._words = name, words
        self.seconds = 10 if name == "torchrun" else 5

    def start(self, world_size, *words, text=None, environment=None):
        """Start a program of Python; its input is a text."""
        count = f"--nproc-per-node={world_size}" if self.name == "torchrun" else f"-n {world_size}"
        python = [] if self.name == "torchrun" else [sys.executable]
        if self.name == "torchrun" and words[0] == "-m":
            python, words = ["-m"], words[1:]
        command = [*self._words, *count.split(), *python, *map(str, words)]
        made = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL if text is None else subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            errors="replace",
            env={**os.environ, **ALL_ON_THIS_MACHINE, **(environment or {})},
            start_new_session=True,  # Ctrl-C at the tests is not for it
        )
        if text is not None:
            made.stdin.write(text)
            made.stdin.close()
            made.stdin = None
        return made


def pytest_generate_tests(metafunc):
    if "launcher" in metafunc.fixturenames:
        chosen = metafunc.config.getoption("--launcher") or LAUNCHERS
        metafunc.parametrize("launcher", chosen, indirect=True)


@pytest.fixture
def launcher(request):
    """A launcher of ranks."""
    name = request.param
    found = _torchrun() if name == "torchrun" else _mpiexec(name)
    if found is None:
        message = f"{name} is not installed"
        if name in request.config.getoption("--launcher"):
            pytest.fail(message)
        pytest.skip(message)
    return Launcher(name, found)


@pytest.fixture
def shared_model(folder, tmp_path):
    """A folder for what ranks write, with the model of bytes in it."""
    (tmp_path / "model").symlink_to(folder)
    return tmp_path


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A folder with a small model of random weights, whose tokens are bytes."""
    from byte_models import save_model  # which needs PyTorch

    made = tmp_path_factory.mktemp("model")
    save_model(made)
    return made


def _torchrun():
    if importlib.util.find_spec("torch") is None:
        return None
    return [sys.executable, "-m", "torch.distributed.run"]


def _mpiexec(name):
    path = Path(sysconfig.get_path("scripts"), "mpiexec")
    if not path.exists() or importlib.util.find_spec("mpi4py") is None:
        return None
    done = subprocess.run([path, "--version"], capture_output=True, text=True, check=False)
    is_open = "Open MPI" in done.stdout or "prte" in done.stdout.lower()
    if is_open != (name == "openmpi"):
        return None
    # Tests may run as root, and on fewer cores than there are ranks.
    options = ["--oversubscribe"] if is_open else []
    options += ["--allow-run-as-root"] if is_open and os.getuid() == 0 else []
    return [str(path), *options]

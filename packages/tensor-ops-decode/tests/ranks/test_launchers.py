"""The launcher of a process, by the variables that it leaves."""

import pytest

from tensor_ops_decode.ranks.launchers import Launch, launch

TORCHRUN = {"RANK": "1", "WORLD_SIZE": "2", "TORCHELASTIC_RUN_ID": "x", "MASTER_ADDR": "localhost"}
OPEN_MPI = {"OMPI_COMM_WORLD_RANK": "1", "OMPI_COMM_WORLD_SIZE": "2", "PMIX_RANK": "1"}
MPICH = {"PMI_RANK": "1", "PMI_SIZE": "2"}


@pytest.mark.parametrize(
    ("environment", "expected"),
    [
        (TORCHRUN, Launch("torchrun", "torch", 1, 2)),
        (OPEN_MPI, Launch("the mpiexec of Open MPI", "mpi", 1, 2)),
        (MPICH, Launch("the mpiexec of MPICH", "mpi", 1, 2)),
        ({"PALS_RANKID": "3"}, Launch("the mpiexec of Cray PALS", "mpi", 3, None)),
        ({"PMIX_RANK": "3"}, Launch("a launcher with PMIx", "mpi", 3, None)),
        # A script that starts PyTorch by mpiexec sets the variables of torch.distributed too.
        (MPICH | {"RANK": "1", "WORLD_SIZE": "2", "MASTER_ADDR": "a"}, "the mpiexec of MPICH"),
        # torchrun, started once on each machine.
        (MPICH | TORCHRUN, "torchrun"),
        ({"RANK": "0", "WORLD_SIZE": "1", "MASTER_ADDR": "a"}, "a launcher of torch.distributed"),
    ],
)
def test_launchers_are_told_apart(environment, expected):
    found = launch(environment)
    assert (found.launcher if isinstance(expected, str) else found) == expected


@pytest.mark.parametrize(
    "environment",
    [
        {},
        {"RANK": "1", "WORLD_SIZE": "2"},  # which many programs use for themselves
        {"PMI_RANK": "2", "PMI_SIZE": "2"},
        {"PMI_RANK": "one", "PMI_SIZE": "2"},
        {"SLURM_PROCID": "0", "SLURM_NTASKS": "2"},  # a script that runs once has them too
    ],
)
def test_others_are_none(environment):
    assert launch(environment) is None

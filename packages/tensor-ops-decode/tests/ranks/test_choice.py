"""Which ranks a kernel gets, by its arguments and by what started the process."""

import sys

import pytest

from tensor_ops_decode.errors import RankError
from tensor_ops_decode.ranks.choice import chosen_ranks
from tensor_ops_decode.ranks.communicator import ONE_RANK

LAUNCHED = {"PMI_RANK": "0", "PMI_SIZE": "2"}


def test_a_process_alone_has_one_rank():
    assert chosen_ranks(None, None, None, "m") is ONE_RANK
    assert chosen_ranks("local", 1, 0, "m") is ONE_RANK


def test_ranks_of_one_process_are_the_default():
    ranks = chosen_ranks(None, 3, 2, "m")
    assert (ranks.name, ranks.world_size, ranks.rank, ranks.num_here) == ("local", 3, 2, 3)


@pytest.mark.parametrize(
    ("arguments", "kind", "message"),
    [
        ((None, 0, None), ValueError, "world_size must be a positive integer, got 0"),
        ((None, None, -1), ValueError, "mpi_rank must be an integer, 0 or larger, got -1"),
        ((None, 2, 2), ValueError, "mpi_rank must be from 0 to 1, as world_size is 2; got 2"),
        ((None, None, 1), ValueError, "mpi_rank must be from 0 to 0, as world_size is 1; got 1"),
        (
            (None, 2, None),
            ValueError,
            "mpi_rank is missing: with world_size=2 in one process, make",
        ),
        (("nccl", 2, 0), ValueError, "communicator must be one of 'mpi', 'torch', 'local'"),
        ((5, 2, 0), TypeError, "communicator must be one of .* got 5"),
    ],
)
def test_wrong_arguments_say_what_to_do(arguments, kind, message):
    with pytest.raises(kind, match=message):
        chosen_ranks(*arguments, "m")


def test_what_started_the_process_decides(monkeypatch):
    for name, value in LAUNCHED.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setitem(sys.modules, "mpi4py", None)
    with pytest.raises(RankError, match="need mpi4py, which is not installed: pip install 'mpi4py"):
        chosen_ranks(None, None, None, "m")
    assert chosen_ranks("local", None, None, "m") is ONE_RANK


def test_pytorch_is_needed_for_its_groups(monkeypatch):
    monkeypatch.setitem(sys.modules, "torch", None)
    with pytest.raises(RankError, match="need PyTorch, which cannot be imported"):
        chosen_ranks("torch", None, None, "m")

"""Errors of a rank that does not have what the others have."""

import pytest

from tensor_ops_decode.errors import RankError
from tensor_ops_decode.ranks.agreement import check_alike


def test_equal_facts_are_taken():
    check_alike([{"backend": "cpp", "program": "12"}] * 3)


@pytest.mark.parametrize(
    ("backends", "rank", "message"),
    [
        (
            ["cpp", "python"],
            1,
            "rank 1 has another backend than rank 0: python, not cpp; start all",
        ),
        (["cpp", "python", "python"], 0, "rank 0 has another backend than rank 1: cpp, not python"),
        (["cpp", "cpp", "python"], 2, "rank 2 has another backend than rank 0: python, not cpp"),
    ],
)
def test_the_one_that_differs_is_named(backends, rank, message):
    with pytest.raises(RankError, match=message) as caught:
        check_alike([{"version": "1", "backend": each} for each in backends])
    assert caught.value.rank == rank


def test_a_fact_that_is_missing_differs():
    with pytest.raises(RankError, match="rank 1 has another weights than rank 0: none, not 12"):
        check_alike([{"weights": "12"}, {}])

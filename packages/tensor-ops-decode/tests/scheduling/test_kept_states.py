"""States that are kept behind pages: which are found, and which are overwritten."""

from tensor_ops_decode.scheduling.snapshots import Snapshots

NONE = frozenset()


def known(*pages):
    return lambda: set(pages)


def test_a_state_is_found_behind_its_page():
    snapshots = Snapshots(range(5, 8))
    assert snapshots.take(NONE, known()) == 5
    snapshots.keep(1, 5)
    assert 1 in snapshots
    assert 2 not in snapshots
    assert snapshots.find(1) == 5
    assert snapshots.take(NONE, known(1)) == 6


def test_one_that_is_not_kept_is_taken_again():
    snapshots = Snapshots(range(2))
    assert snapshots.take(NONE, known()) == 0
    assert snapshots.take(NONE, known()) == 0
    assert snapshots.take({0}, known()) == 1
    assert snapshots.take({0, 1}, known()) is None


def test_the_one_that_went_unused_for_longest_is_overwritten():
    snapshots = Snapshots(range(3))
    for page in (7, 8, 9):
        snapshots.keep(page, snapshots.take(NONE, known(7, 8, 9)))
    snapshots.find(7)
    assert snapshots.take(NONE, known(7, 8, 9)) == 1
    assert 8 not in snapshots
    assert snapshots.take({1, 2}, known(7, 8, 9)) == 0  # the next oldest is in use
    assert [page in snapshots for page in (7, 9)] == [False, True]


def test_those_behind_pages_that_are_gone_are_overwritten_first():
    snapshots = Snapshots(range(3))
    for page in (7, 8, 9):
        snapshots.keep(page, snapshots.take(NONE, known(7, 8, 9)))
    assert snapshots.take(NONE, known(7, 8)) == 2
    assert 9 not in snapshots


def test_a_second_state_behind_a_page_is_not_kept():
    snapshots = Snapshots(range(2))
    snapshots.keep(7, 0)
    snapshots.keep(7, 1)
    assert snapshots.find(7) == 0
    assert snapshots.take(NONE, known(7)) == 1
    snapshots.forget(None)
    snapshots.forget(7)  # which has been wanted
    assert 7 in snapshots


def test_one_that_nobody_wanted_can_be_forgotten():
    snapshots = Snapshots(range(2))
    assert snapshots.keep(7, 0)
    assert not snapshots.keep(7, 1)
    snapshots.forget(7)
    assert 7 not in snapshots


def test_there_may_be_none():
    assert not Snapshots(range(4, 4))
    assert Snapshots(range(4, 4)).take(NONE, known()) is None

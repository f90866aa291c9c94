"""States that are kept after some full pages, so that other requests can go on from there.

What a state is after a token cannot be computed from what it is later. So a prompt that begins as
another one did goes on from the last page of both after which the states were kept.

Tested by tests/decode/scheduling/test_snapshots.py and packages/tensor-ops-decode/tests/scheduling.
"""

from collections.abc import Callable, Sequence, Set

__all__ = ["Snapshots", "length_in_common"]


class Snapshots:
    """Which of the states is the one after which full page.

    A page is given by its number, which stands for all tokens up to its end. An interrupt may come
    between any two lines here: a state that is written but not kept is one that is free.
    """

    def __init__(self, states: range) -> None:
        self._states = states
        self._found: set[int] = set()  # pages behind which one was wanted
        self._kept: dict[int, int] = {}  # by page; the one that is to be overwritten first, first

    def __bool__(self) -> bool:
        return bool(self._states)

    def __contains__(self, page: int) -> bool:
        return page in self._kept

    def find(self, page: int) -> int:
        """Return the state after a page, which is kept, and overwrite others before it."""
        self._kept[page] = state = self._kept.pop(page)
        self._found.add(page)
        return state

    def num_to_last(self, pages: Sequence[int]) -> int:
        """Return how many of these pages there are up to the last one whose state is kept."""
        kept = [count for count, page in enumerate(pages, 1) if page in self._kept]
        return max(kept, default=0)

    def take(self, in_use: Set[int], known: Callable[[], Set[int]]) -> int | None:
        """Return a state that may be overwritten, None if all are in use.

        Those go first that are kept after no page, or after one that is not known any more; then
        the one that went unused for longest.
        """
        pages = known()
        for page in self._kept.keys() - pages:
            del self._kept[page]
        self._found &= pages
        kept = set(self._kept.values())
        for state in self._states:
            if state not in kept and state not in in_use:
                return state
        for page, state in self._kept.items():
            if state not in in_use:
                del self._kept[page]
                return state
        return None

    def keep(self, page: int, state: int) -> bool:
        """Note that a state is the one after a page; return whether it is, and no other one."""
        return self._kept.setdefault(page, state) == state

    def forget(self, page: int | None) -> None:
        """Let the state after a page be overwritten, unless it has been wanted."""
        if page is not None and page not in self._found:
            self._kept.pop(page, None)


def length_in_common(first: Sequence[int], second: Sequence[int], page_size: int) -> int:
    """Return how many tokens two sequences begin with alike, in full pages.

    Examples
    --------
    >>> length_in_common([1, 2, 3, 4, 5], [1, 2, 3, 4, 9], 2)
    4
    """
    length, most = 0, min(len(first), len(second)) // page_size * page_size
    while length < most and (
        first[length : length + page_size] == second[length : length + page_size]
    ):
        length += page_size
    return length

"""Which pages of the caches belong to which request."""

from __future__ import annotations

from tensor_ops_decode.node_kind import Array

__all__ = ["PageTable"]


class PageTable:
    """The pages of the requests, allotted as their sequences grow.

    Parameters
    ----------
    table : ndarray of int32, shape (slots, pages of the longest sequence)
        The executable's own, kept up to date.
    num_pages : int
    page_size : int
        In tokens.

    Examples
    --------
    >>> import numpy as np
    >>> pages = PageTable(np.zeros((2, 4), np.int32), num_pages=6, page_size=16)
    >>> pages.hold({0: 20, 1: 1})
    >>> pages.num_free
    3
    """

    def __init__(self, table: Array, num_pages: int, page_size: int) -> None:
        self._table = table
        self._num_pages = num_pages
        self._page_size = page_size
        self._held: dict[int, int] = {}  # how many pages each slot has

    @property
    def num_free(self) -> int:
        """How many pages no request has."""
        return self._num_pages - sum(self._held.values())

    def pages_for(self, length: int) -> int:
        """Return how many pages a sequence of this length takes."""
        return -(-length // self._page_size)

    def first_without(self, lengths: dict[int, int]) -> int | None:
        """Return the first slot for whose sequence no page would be left, None if all fit."""
        num_free = self.num_free
        for slot, length in lengths.items():
            num_free -= max(0, self._missing(slot, length))
            if num_free < 0:
                return slot
        return None

    def hold(self, lengths: dict[int, int]) -> None:
        """Give each slot the pages for a sequence of this length, which there must be."""
        missing = {slot: self._missing(slot, length) for slot, length in lengths.items()}
        if max(missing.values(), default=0) <= 0:
            return
        free = self._free()
        for slot, count in missing.items():
            for _ in range(count):
                held = self._held.get(slot, 0)
                # The page is the slot's once it is counted, so that an interrupt loses none.
                self._table[slot, held] = free.pop()
                self._held[slot] = held + 1

    def release(self, slot: int) -> None:
        """Take back the pages of a slot."""
        self._held.pop(slot, None)

    def _missing(self, slot: int, length: int) -> int:
        return self.pages_for(length) - self._held.get(slot, 0)

    def _free(self) -> list[int]:
        """Return the free pages, the lowest last."""
        used = {int(page) for slot, n in self._held.items() for page in self._table[slot, :n]}
        return [page for page in reversed(range(self._num_pages)) if page not in used]

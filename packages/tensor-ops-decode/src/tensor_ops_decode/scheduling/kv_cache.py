"""Which pages of the caches belong to which request, and which of them hold the same tokens.

Keys and values of a token depend on the tokens before it and on nothing else. A page that is full
therefore serves every sequence that begins with the same tokens: requests share it as long as they
go on, and it stays to be found after that, until its memory is needed.

Tested by tests/decode/scheduling/test_shared_prefixes.py and
packages/tensor-ops-decode/tests/scheduling.
"""

import itertools
from collections.abc import Mapping, Sequence, Set
from typing import NamedTuple, TypeAlias

import numpy as np

from tensor_ops_decode.kinds.kind import Array

__all__ = ["Beginning", "FullPage", "PageTable"]

#: Attention reads this many positions at once, fastest if their pages have consecutive numbers.
_POSITIONS_TOGETHER = 128
#: What a full page holds: the number of the full page before it, 0 if none is, and its own tokens.
Beginning: TypeAlias = tuple[int, tuple[int, ...]]


class FullPage(NamedTuple):
    """A full page. Its number is not used again, so that it stands for all tokens up to its end."""

    number: int
    page: int
    holds: Beginning


class _Slot(NamedTuple):
    """The pages of a slot: how many, and what is known of the first ones, which are full."""

    num_pages: int
    full: list[FullPage]


class PageTable:
    """The pages of the requests, allotted as their sequences grow.

    Pages are in groups of consecutive numbers. The group of a slot's last page is left to that slot
    as long as other groups have free pages, or pages whose contents can be forgotten.

    An interrupt may come between any two lines here. So the pages of a slot change in one
    assignment, and which pages are free is not kept but found out. The `table` is the executable's
    own, kept up to date: a row for each slot.
    """

    def __init__(self, table: Array, num_pages: int, page_size: int) -> None:
        self._table = table
        self._num_pages = num_pages
        self._page_size = page_size
        # Groups are smaller in small caches: at most a 32nd of all pages waits for its slots.
        most = min(_POSITIONS_TOGETHER // page_size, num_pages // (32 * len(table)))
        self._group_size = 1 << max(most, 1).bit_length() - 1
        self._slots: dict[int, _Slot] = {}
        # The one that is to be overwritten first is the first.
        self._known: dict[Beginning, FullPage] = {}
        self._numbers = itertools.count(1)

    @property
    def slots(self) -> Set[int]:
        """The slots that have pages."""
        return self._slots.keys()

    @property
    def num_free(self) -> int:
        """How many pages no request has."""
        return self._num_pages - int(np.count_nonzero(self._used()))

    def pages_for(self, length: int) -> int:
        """Return how many pages a sequence of this length takes."""
        return -(-length // self._page_size)

    def num_missing(self, lengths: Mapping[int, int]) -> int:
        """Return how many pages slots need that are to come to these lengths."""
        return sum(self._missing(slot, length) for slot, length in lengths.items())

    def first_without(self, lengths: dict[int, int]) -> int | None:
        """Return the first slot for whose sequence no page would be left, None if all fit."""
        missing = {slot: self._missing(slot, length) for slot, length in lengths.items()}
        if not any(missing.values()):
            return None
        num_free = self.num_free
        for slot, count in missing.items():
            num_free -= count
            if num_free < 0:
                return slot
        return None

    def hold(self, lengths: dict[int, int]) -> None:
        """Give each slot the pages for a sequence of this length, which there must be."""
        missing = {slot: self._missing(slot, length) for slot, length in lengths.items()}
        if not any(missing.values()):
            return
        free = self._free()
        for slot, count in missing.items():
            for _ in range(count):
                pages = self._pages_of(slot)
                page = self._next_page(slot, free)
                free[page] = False
                self._table[slot, pages.num_pages] = page
                self._slots[slot] = pages._replace(num_pages=pages.num_pages + 1)

    def release(self, slot: int) -> None:
        """Take back the pages of a slot; what the full ones hold can still be found."""
        pages = self._slots.pop(slot, None)
        for full in reversed(pages.full if pages else []):  # a page is found by those before it
            if self._known.get(full.holds) == full:
                self._known[full.holds] = self._known.pop(full.holds)

    def note_full(self, slot: int, tokens: Sequence[int], length: int) -> None:
        """Note how many tokens of a slot the caches have, so that others find its full pages."""
        full = self._pages_of(slot).full
        for index in range(len(full), length // self._page_size):
            holds = self._beginning(full, tokens)
            if holds not in self._known:
                page = int(self._table[slot, index])
                self._known[holds] = FullPage(next(self._numbers), page, holds)
            full.append(self._known[holds])

    def next_beginning(self, slot: int, tokens: Sequence[int]) -> Beginning | None:
        """Return what the next full page of a slot will hold; None unless its tokens are known.

        The last of them does not count, for it must go through the model to be followed by another.
        """
        full = self._pages_of(slot).full
        if (len(full) + 1) * self._page_size >= len(tokens):
            return None
        return self._beginning(full, tokens)

    def find(self, slot: int, tokens: Sequence[int]) -> list[FullPage]:
        """Return the full pages that a slot has, and those known to hold what follows them."""
        pages = self._pages_of(slot)
        full = pages.full.copy()
        if pages.num_pages > len(full):  # it fills a page of its own
            return full
        while (len(full) + 1) * self._page_size < len(tokens):
            found = self._known.get(self._beginning(full, tokens))
            if found is None:
                break
            full.append(found)
        return full

    def share(self, slot: int, full: list[FullPage]) -> int:
        """Give a slot full pages that `find` has returned for it.

        Returns how many tokens its full pages hold.
        """
        pages = self._pages_of(slot)
        if len(full) > pages.num_pages:
            for index in range(pages.num_pages, len(full)):
                self._table[slot, index] = full[index].page
            self._slots[slot] = _Slot(len(full), full)
        return len(self._pages_of(slot).full) * self._page_size

    @property
    def known(self) -> set[int]:
        """The numbers of the full pages that can be found."""
        return {full.number for full in self._known.values()}

    def number_of(self, slot: int, length: int) -> int:
        """Return the number of the full page of a slot that ends at a length."""
        return self._pages_of(slot).full[length // self._page_size - 1].number

    def _pages_of(self, slot: int) -> _Slot:
        return self._slots.get(slot) or self._slots.setdefault(slot, _Slot(0, []))

    def _missing(self, slot: int, length: int) -> int:
        return max(0, self.pages_for(length) - self._pages_of(slot).num_pages)

    def _beginning(self, full: list[FullPage], tokens: Sequence[int]) -> Beginning:
        """Return what the page after these would hold."""
        start, number = len(full) * self._page_size, full[-1].number if full else 0
        return number, tuple(tokens[start : start + self._page_size])

    def _used(self) -> Array:
        """Return which pages requests have."""
        used = np.zeros(self._num_pages, bool)
        for slot, pages in self._slots.items():
            used[self._table[slot, : pages.num_pages]] = True
        return used

    def _free(self) -> Array:
        """Return for each page whether no request has it and nothing known is in it."""
        free = ~self._used()
        free[[full.page for full in self._known.values()]] = False
        return free

    def _next_page(self, slot: int, free: Array) -> int:
        """Return the page that follows those of a slot: the one behind its last page if it is free.

        Else it is the first free one of the group that has most of them, which no slot fills as
        long as there is such a group. If there is none, the pages that went unused for longest are
        forgotten first, which frees them.
        """
        behind = self._last_page(slot) + 1
        if 0 < behind < self._num_pages and free[behind]:
            return behind
        unclaimed = self._unclaimed(free)
        if not unclaimed.any():
            self._forget_oldest(free)
            unclaimed = self._unclaimed(free)
        pages = np.flatnonzero(unclaimed if unclaimed.any() else free)
        groups = pages // self._group_size
        return int(pages[groups == np.bincount(groups).argmax()][0])

    def _last_page(self, slot: int) -> int:
        """Return the last page of a slot, -1 if it has none."""
        num_pages = self._pages_of(slot).num_pages
        return int(self._table[slot, num_pages - 1]) if num_pages else -1

    def _unclaimed(self, free: Array) -> Array:
        """Return which of the free pages are in groups that no slot fills."""
        unclaimed = free.copy()
        for slot, pages in self._slots.items():
            if pages.num_pages:
                begin = self._last_page(slot) // self._group_size * self._group_size
                unclaimed[begin : begin + self._group_size] = False
        return unclaimed

    def _forget_oldest(self, free: Array) -> None:
        """Free the page that went unused for longest, and the next ones that are in its group."""
        used = self._used()
        unused = (full for full in self._known.values() if not used[full.page])
        by_group = itertools.groupby(unused, lambda full: full.page // self._group_size)
        for full in list(next(by_group, (0, ()))[1]):
            del self._known[full.holds]
            free[full.page] = True

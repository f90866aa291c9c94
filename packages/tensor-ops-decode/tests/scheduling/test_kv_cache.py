"""Pages of the caches: whom they belong to, who shares them, and what is overwritten."""

import itertools

import numpy as np
import pytest

from tensor_ops_decode.scheduling.kv_cache import PageTable

SIZE = 4


def table(slots=4, pages=10, num_pages=12):
    return PageTable(np.full((slots, pages), -1, np.int32), num_pages, SIZE)


def grow_in_turn(pages, slots, num_pages, size):
    for length in range(size, num_pages * size + 1, size):
        for slot in slots:
            pages.hold({slot: length})


def share(pages, slot, tokens):
    """Give a slot the full pages that are known to hold what its tokens begin with."""
    return pages.share(slot, pages.find(slot, tokens))


def feed(pages, slot, tokens):
    """Bring tokens into a slot's pages; return how many were there."""
    shared = share(pages, slot, tokens)
    assert pages.first_without({slot: len(tokens)}) is None
    pages.hold({slot: len(tokens)})
    pages.note_full(slot, tokens, len(tokens))
    return shared


def test_a_beginning_in_whole_pages_is_shared():
    pages = table()
    tokens = list(range(10))
    assert feed(pages, 0, tokens) == 0
    assert feed(pages, 1, [*tokens, 11, 12]) == 8
    assert feed(pages, 2, [*tokens[:7], 99]) == 4
    assert feed(pages, 3, [99, *tokens[1:]]) == 0
    assert pages.num_free == 12 - 3 - 1 - 1 - 3


def test_the_last_token_is_never_shared():
    pages = table()
    feed(pages, 0, list(range(8)))
    assert feed(pages, 1, list(range(8))) == 4
    assert feed(pages, 2, list(range(9))) == 8


def test_equal_tokens_after_other_ones_are_not_shared():
    pages = table()
    feed(pages, 0, [1] * 4 + [2] * 4 + [3])
    assert feed(pages, 1, [9] * 4 + [2] * 4 + [3]) == 0


def test_pages_are_found_after_their_slot_is_released_until_others_need_them():
    pages = table(num_pages=4)
    first, second = [1] * 9, [2] * 9
    feed(pages, 0, first)
    pages.release(0)
    assert pages.num_free == 4
    assert feed(pages, 1, first) == 8
    pages.release(1)
    assert feed(pages, 0, second) == 0  # of the first one's pages, the later is overwritten
    pages.release(0)
    assert feed(pages, 1, first) == 4


def test_pages_in_use_are_not_overwritten():
    pages = table(num_pages=4)
    feed(pages, 0, [1] * 9)
    assert pages.first_without({1: 5}) == 1
    feed(pages, 1, [2] * 4)
    pages.release(1)
    assert feed(pages, 2, [1] * 8 + [3]) == 8
    assert pages.first_without({2: 13}) == 2


def test_a_page_that_holds_something_else_now_is_not_found():
    pages = table(num_pages=3)
    feed(pages, 0, [1] * 4 + [5] * 4 + [6])
    pages.release(0)
    feed(pages, 0, [2] * 12)
    pages.release(0)
    # The page that followed the first one does not follow the page in its place.
    assert feed(pages, 0, [2] * 4 + [5] * 4 + [6]) == 4


def test_what_a_slot_fills_next_is_named_by_all_before_it():
    pages = table()
    feed(pages, 0, [1] * 4)
    feed(pages, 1, [1] * 5)
    tokens = [1] * 4 + [2] * 5
    assert pages.next_beginning(0, tokens) == pages.next_beginning(1, tokens)
    assert pages.next_beginning(0, tokens) != pages.next_beginning(2, tokens)
    assert pages.next_beginning(0, tokens[:8]) is None


@pytest.mark.parametrize("size", [16, 32, 128, 256])
def test_slots_that_grow_in_turn_have_groups_of_consecutive_pages(size):
    rows, group = np.full((3, 16), -1, np.int32), max(1, 128 // size)
    pages = PageTable(rows, 1024, size)
    for _ in range(2):
        grow_in_turn(pages, range(3), 16, size)
        groups = rows.reshape(-1, group)
        np.testing.assert_array_equal(groups, groups[:, :1] + np.arange(group))
        np.testing.assert_array_equal(groups[:, 0] % group, 0)
        assert len(np.unique(rows)) == rows.size
        pages.release(1)
        pages.release(2)


def test_a_slot_begins_the_group_that_has_most_free_pages():
    rows, size = np.full((3, 64), -1, np.int32), 16
    pages = PageTable(rows, 768, size)
    feed(pages, 0, [1] * 3 * size)
    pages.release(0)
    pages.hold({1: 10 * size})
    np.testing.assert_array_equal(rows[1, :10], np.arange(8, 18))
    pages.hold({2: size})
    assert rows[2, 0] == 24


@pytest.mark.parametrize(
    ("slots", "num_pages", "size", "expected"),
    [
        (4, 127, 16, 1),
        (4, 511, 16, 2),
        (4, 512, 16, 4),
        (4, 1023, 16, 4),
        (4, 1024, 16, 8),
        (4, 4096, 16, 8),
        (3, 300, 8, 2),
        (4, 1024, 48, 2),
    ],
)
def test_groups_are_a_small_part_of_the_pages(slots, num_pages, size, expected):
    rows = np.full((slots, 16), -1, np.int32)
    grow_in_turn(PageTable(rows, num_pages, size), range(2), 16, size)
    assert np.flatnonzero(np.diff(rows[0]) != 1)[0] + 1 == expected


def test_no_two_slots_fill_a_group_that_is_partly_free():
    rows, size = np.full((3, 8), -1, np.int32), 16
    pages = PageTable(rows, 768, size)
    for group in range(96):
        feed(pages, 0, [group] * 5 * size)
        pages.release(0)
    grow_in_turn(pages, range(3), 3, size)
    np.testing.assert_array_equal(rows[:, :3], [[5, 6, 7], [13, 14, 15], [21, 22, 23]])


def test_what_went_unused_for_longest_is_forgotten_a_group_at_a_time():
    rows, size = np.full((2, 512), -1, np.int32), 16
    pages = PageTable(rows, 512, size)
    prompts = [[number] * (128 * size) for number in range(4)]
    for tokens in prompts:
        feed(pages, 0, tokens)
        pages.release(0)
    assert pages.num_free == 512
    grow_in_turn(pages, range(2), 8, size)
    # The last pages of the first prompt: a page is found by those before it.
    np.testing.assert_array_equal(rows[:, :8], np.arange(120, 128) - [[0], [8]])
    assert [len(pages.find(2, [*tokens, 9])) for tokens in prompts] == [112, 128, 128, 128]


def test_the_beginning_of_a_conversation_is_forgotten_after_its_end():
    rows, size = np.full((2, 512), -1, np.int32), 16
    pages = PageTable(rows, 512, size)
    feed(pages, 0, [3] * 512 * size)
    pages.release(0)
    chats, groups = [[1] * 128 * size, [2] * 120 * size], []
    for length in range(4 * size, 129 * size, 4 * size):
        for tokens in chats:
            feed(pages, 0, tokens[:length])
            groups.append({int(page) // 8 for page in rows[0, : min(length, len(tokens)) // size]})
            pages.release(0)
    assert groups[-2] & groups[-1]  # groups have pages of both
    feed(pages, 0, [4] * 264 * size)
    pages.release(0)
    pages.hold({0: 12 * size})
    assert [len(pages.find(1, [*tokens, 9])) for tokens in chats] == [116, 120]


def test_a_small_cache_forgets_a_page_at_a_time():
    rows, size = np.full((1, 8), -1, np.int32), 16
    pages = PageTable(rows, 8, size)
    tokens = [1] * 8 * size
    feed(pages, 0, tokens)
    pages.release(0)
    feed(pages, 0, [2])
    assert len(pages.find(1, [*tokens, 9])) == 7


def test_groups_that_others_fill_are_used_up_too():
    rows, size = np.full((2, 511), -1, np.int32), 16
    pages = PageTable(rows, 512, size)
    grow_in_turn(pages, range(2), 1, size)
    pages.hold({0: 511 * size})
    assert pages.num_free == 0
    assert sorted([*rows[0], rows[1, 0]]) == list(range(512))


# Pages in a small cache, and in one with groups of eight, the last of which has three.
@pytest.mark.parametrize(("slots", "num_pages", "longest"), [(4, 14, 10), (3, 803, 800)])
def test_no_sequence_ever_has_a_page_with_other_tokens_than_its_own(slots, num_pages, longest):
    draw = np.random.default_rng(0)
    rows = np.full((slots, longest), -1, np.int32)
    pages = PageTable(rows, num_pages, SIZE)
    content = [None] * num_pages  # of each full page, what stands for all tokens up to its end
    running, num_shared, num_refused = {}, 0, 0
    for _ in range(4000):
        slot = int(draw.integers(slots))
        if slot not in running:
            blocks = draw.integers(2, size=draw.integers(1, longest))
            tokens = np.repeat(blocks, SIZE).tolist() + [7] * int(draw.integers(1, SIZE))
            names = list(itertools.accumulate(blocks, lambda *pair: hash(pair), initial=0))[1:]
            shared = share(pages, slot, tokens)
            num_shared += shared > 0
            running[slot] = tokens, names, shared
        elif draw.integers(3) == 0:
            del running[slot]
            pages.release(slot)
        else:
            tokens, names, done = running[slot]
            end = min(done + int(draw.integers(1, longest - 1)), len(tokens))
            if pages.first_without({slot: end}) is not None:
                num_refused += 1
                continue
            pages.hold({slot: end})
            for index in range(done // SIZE, -(-end // SIZE)):
                content[rows[slot, index]] = names[index] if (index + 1) * SIZE <= end else None
            pages.note_full(slot, tokens, end)
            running[slot] = tokens, names, max(end, share(pages, slot, tokens))
        for slot, (_, names, done) in running.items():
            for index in range(done // SIZE):
                assert content[rows[slot, index]] == names[index]
    assert num_shared > 100
    assert num_refused > 100

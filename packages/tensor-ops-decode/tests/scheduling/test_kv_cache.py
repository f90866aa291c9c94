"""Pages of the caches: whom they belong to, who shares them, and what is overwritten."""

import numpy as np

from tensor_ops_decode.scheduling.kv_cache import PageTable

SIZE = 4


def table(slots=4, pages=10, num_pages=12):
    return PageTable(np.full((slots, pages), -1, np.int32), num_pages, SIZE)


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


def test_no_sequence_ever_has_a_page_with_other_tokens_than_its_own():
    draw, slots, num_pages = np.random.default_rng(0), 4, 14
    rows = np.full((slots, 10), -1, np.int32)
    pages = PageTable(rows, num_pages, SIZE)
    content = [()] * num_pages  # of each page, all tokens of the sequence that wrote there last
    running, num_shared, num_refused = {}, 0, 0
    for _ in range(4000):
        slot = int(draw.integers(slots))
        if slot not in running:
            blocks = draw.integers(2, size=draw.integers(1, 10))
            tokens = np.repeat(blocks, SIZE).tolist() + [7] * int(draw.integers(1, SIZE))
            shared = share(pages, slot, tokens)
            num_shared += shared > 0
            running[slot] = tokens, shared
        elif draw.integers(3) == 0:
            del running[slot]
            pages.release(slot)
        else:
            tokens, done = running[slot]
            end = min(done + int(draw.integers(1, 9)), len(tokens))
            if pages.first_without({slot: end}) is not None:
                num_refused += 1
                continue
            pages.hold({slot: end})
            for position in range(done, end):
                content[rows[slot, position // SIZE]] = tokens[: position + 1]
            pages.note_full(slot, tokens, end)
            running[slot] = tokens, max(end, share(pages, slot, tokens))
        for slot, (tokens, done) in running.items():
            for last in range(SIZE, done + 1, SIZE):
                assert content[rows[slot, last // SIZE - 1]] == tokens[:last]
    assert num_shared > 100
    assert num_refused > 100

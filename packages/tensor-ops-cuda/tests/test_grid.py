"""Blocks that run at once: what they see of each other, where they wait, what may be launched."""

import ctypes
from enum import IntEnum

import numpy as np
import pytest
from emulated import CudaError
from emulated_kernels import Order, unsanitized

pytestmark = unsanitized

THREADS, ROUNDS = 64, 3
KIB = 1024
POISON = 0xFFFFFFFF


def zeros(kernels, count):
    return kernels.array(np.zeros(count, np.uint32))


def summed(values, rounds):
    """Return the values after some rounds of the kernel that adds up all of them."""
    own = np.arange(len(values), dtype=np.uint32)
    for _ in range(rounds):
        sums = own.copy()
        for value in values:
            sums = 3 * sums + value
        values = sums
    return values


@pytest.mark.parametrize("order", Order)
@pytest.mark.parametrize("blocks", [1, 2, 3, 5])
def test_blocks_meet_at_the_barrier(blocks, order, kernels, rng):
    kernels.emulatedSetOrder(order, blocks)
    values = rng.integers(0, 2**32, (2, blocks * THREADS), np.uint32)
    on_device, counter = kernels.array(values), zeros(kernels, 1)
    for _ in range(2):  # the counter is as the last launch left it
        kernels.run("exchange_sums", blocks, THREADS, on_device, counter, ROUNDS)
        values = np.stack([values[0], summed(values[0], ROUNDS)])
        found = kernels.values(on_device, values.size).reshape(values.shape)
        assert (found[1] == values[1]).all()
        values[0] = found[0]


@pytest.mark.parametrize(
    ("left_out", "last"), [(0, 7), (1, 0), (2, 0)], ids=["none", "release", "acquire"]
)
def test_a_word_is_seen_after_release_and_acquire(left_out, last, kernels):
    kernels.emulatedSetOrder(Order.FIRST_READY, 0)  # in which no word is seen early
    kernels.emulatedLeaveOut(left_out)
    word, counters, seen = (zeros(kernels, count) for count in (1, 2, 3))
    kernels.run("hand_over", word, counters, seen)
    assert kernels.values(seen, 3).tolist() == [7, 0, last]
    assert kernels.values(word, 1) == 7


def test_a_word_may_be_seen_early(kernels):
    found = set()
    for seed in range(30):
        kernels.emulatedSetOrder(Order.RANDOM, seed)
        kernels.emulatedLeaveOut(1)
        word, counters, seen = (zeros(kernels, count) for count in (1, 2, 3))
        kernels.run("hand_over", word, counters, seen)
        found.add(int(kernels.values(seen, 3)[2]))
    assert found == {0, 7}


def test_a_grid_that_hangs_names_block_and_wait(kernels):
    with pytest.raises(CudaError, match="cudaErrorLaunchTimeout") as error:
        kernels.run("hang", 3, zeros(kernels, 1), 1, 0)
    each = "1 at a counter (wait 24), 63 at the block's barrier (wait 25)"
    found = str(error.value)
    assert f"all threads wait: block 0: {each}; block 1: no thread waits; block 2: {each}" in found


def test_a_block_that_hangs_names_its_waits(kernels):
    with pytest.raises(CudaError, match="cudaErrorLaunchTimeout") as error:
        kernels.run("hang", 1, zeros(kernels, 1), -1, 8)
    assert "8 at a numbered barrier (wait 120), 56 at the block's barrier (wait 20)" in str(
        error.value
    )


def test_blocks_of_an_ordinary_launch_need_not_run_at_once(kernels):
    kernels.run("without_attribute", 1, zeros(kernels, 1))
    with pytest.raises(CudaError, match=r"all threads wait: block 0: 1 at a counter \(wait 24\)"):
        kernels.run("without_attribute", 2, zeros(kernels, 1))


def test_after_a_failure_everything_fails_until_it_is_forgotten(kernels):
    counter = zeros(kernels, 1)
    with pytest.raises(CudaError):
        kernels.run("hang", 2, counter, 1, 0)
    with pytest.raises(CudaError, match="cudaErrorLaunchTimeout"):
        zeros(kernels, 1)
    kernels.emulatedForgetFailure()
    kernels.run("hang", 2, zeros(kernels, 1), -1, 0)


def test_time_passes_while_all_wait(kernels):
    seconds = zeros(kernels, 1)
    kernels.run("give_up", zeros(kernels, 1), seconds)
    assert kernels.values(seconds, 1) == 5


@pytest.mark.parametrize("order", Order)
@pytest.mark.parametrize("absent", [-1, 0, 1, 2])
def test_blocks_give_up_waiting_for_one_that_never_comes(absent, order, kernels):
    kernels.emulatedSetOrder(order, 3)
    have_met = kernels.array(np.full(6, POISON, np.uint32))
    kernels.run("meet_at_most", 3, zeros(kernels, 1), absent, have_met)
    found = kernels.values(have_met, 6).reshape(3, 2)
    for block, both in enumerate(found):  # all threads of a block hear of it
        assert both.tolist() == [POISON if block == absent else absent < 0] * 2


def test_lanes_in_different_functions_are_an_error(kernels):
    with pytest.raises(CudaError, match="lanes of a warp are in different functions: block 0"):
        kernels.run("diverge", zeros(kernels, 32))


def test_threads_that_meet_at_different_waits_are_an_error(kernels):
    kernels.emulatedSetOrder(Order.FIRST_READY, 0)
    with pytest.raises(CudaError, match="threads meet at different waits") as error:
        kernels.run("meet_elsewhere")
    waits = "32 at the block's barrier (wait 31), 1 at the block's barrier (wait 32)"
    assert f"block 0: {waits}" in str(error.value)


class Access(IntEnum):
    """As the kernel `misaligned` has it: what is read or written, of 16 bytes or of 4."""

    PUBLISH = 0
    OBSERVE = 1
    ADD = 2
    ACQUIRE = 3
    COPY_FROM = 4
    COPY_TO = 5


@pytest.mark.parametrize("access", Access)
def test_a_misaligned_address_is_an_error(access, kernels):
    size = 4 if access in {Access.ADD, Access.ACQUIRE} else 16
    for offset in (0, size):
        kernels.run("misaligned", access, zeros(kernels, 17), offset)
    message = f"block 0, thread 0: an address is not a multiple of the {size} bytes at it"
    for offset in (1, size // 2, size + size // 2):
        with pytest.raises(CudaError, match=message):
            kernels.run("misaligned", access, zeros(kernels, 17), offset)
        kernels.emulatedForgetFailure()


def rounds_of(kernels, order, seed, *, warps=4, rounds=5):
    """Return which thread ran in each turn, where warps do not wait for each other."""
    kernels.emulatedSetOrder(order, seed)
    count = 32 * warps * (rounds + 1)
    log = zeros(kernels, count)
    kernels.run("log_order", 1, 32 * warps, log, zeros(kernels, 1), rounds)
    return kernels.values(log, count)


def test_threads_run_in_order_if_that_is_chosen(kernels):
    threads = np.arange(128)
    assert (rounds_of(kernels, Order.FIRST_READY, 0)[:128] == threads).all()


def test_the_seed_decides_on_the_order(kernels):
    first, same, other = (rounds_of(kernels, Order.RANDOM, seed) for seed in (1, 1, 2))
    assert (first == same).all()
    assert (first != other).any()


def test_a_warp_falls_behind_by_all_rounds(kernels):
    """If nothing holds the others back; which warp it is depends on the seed."""
    behind = set()
    for seed in range(12):
        warps = rounds_of(kernels, Order.WARP_BEHIND, seed) // 32
        last = warps[-1]
        assert (warps[-32 * 6 :] == last).all()
        behind.add(int(last))
    assert len(behind) > 1


def touch(kernels, size, blocks=1):
    words = zeros(kernels, 2 * blocks)
    kernels.run("touch_shared", blocks, words, size)
    return kernels.values(words, 2 * blocks)


def blocks_of_multiprocessor(kernels, threads, size):
    blocks = ctypes.c_int(-1)
    kernels.blocks_of_multiprocessor(ctypes.byref(blocks), threads, size)
    return blocks.value


@pytest.fixture
def large_shared(kernels):
    kernels.ask_for_shared(227 * KIB)
    yield
    kernels.ask_for_shared(48 * KIB)


def test_shared_memory_is_new_for_every_block(kernels):
    assert (touch(kernels, 48 * KIB, 5) == POISON).all()


def test_more_shared_memory_has_to_be_asked_for(kernels):
    with pytest.raises(CudaError, match="cudaErrorInvalidValue"):
        touch(kernels, 48 * KIB + 4)


@pytest.mark.usefixtures("large_shared")
def test_a_block_has_up_to_227_kib(kernels):
    assert (touch(kernels, 227 * KIB) == POISON).all()
    with pytest.raises(CudaError, match="cudaErrorInvalidValue"):
        touch(kernels, 227 * KIB + 4)


def test_228_kib_are_refused(kernels):
    with pytest.raises(CudaError, match="cudaErrorInvalidValue"):
        kernels.ask_for_shared(228 * KIB)


@pytest.mark.usefixtures("large_shared")
def test_all_blocks_must_find_room_at_once(kernels):
    assert blocks_of_multiprocessor(kernels, 512, 227 * KIB) == 1
    assert blocks_of_multiprocessor(kernels, 512, 100 * KIB) == 2
    assert blocks_of_multiprocessor(kernels, 512, 0) == 4
    assert blocks_of_multiprocessor(kernels, 512, 228 * KIB) == 0
    touch(kernels, 227 * KIB, 4)
    with pytest.raises(CudaError, match="cudaErrorCooperativeLaunchTooLarge"):
        touch(kernels, 227 * KIB, 5)
    kernels.emulatedSetMultiprocessors(5)
    touch(kernels, 227 * KIB, 5)

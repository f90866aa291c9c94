"""Weights of mapped files are packed little by little while steps run, with the same results."""

import json
import mmap
import weakref
from collections.abc import Mapping
from itertools import pairwise

import numpy as np
import pytest
from decode_llama import LAYERS, WORDS, Llama, run_alone, run_step

import tensor_ops_cpp

TOKENS = np.random.default_rng(7).integers(0, WORDS, 60)
FORMATS = ("q4_K", "q6_K", "q8_0", "q4_0", "bf16", "f16", "f32")
LLAMA = Llama(formats=FORMATS)
MATRICES = {name for name in LLAMA.tensors if name[0] in "qkvogud" or name == "head"}
STEPS = 8


@pytest.fixture
def mapped(tmp_path):
    """The tensors in a file that is mapped for reading alone, rows at odd addresses too."""
    path, places, at = tmp_path / "weights", {}, 1
    with path.open("wb") as file:
        for name, tensor in LLAMA.tensors.items():
            at += at % 2 == 0  # bytes begin at odd addresses
            at += -at % tensor.itemsize
            file.seek(at)
            places[name] = at
            at += file.write(np.ascontiguousarray(tensor).data)
    with path.open("rb") as file:
        memory = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
    return {
        name: np.frombuffer(memory, tensor.dtype, tensor.size, places[name]).reshape(tensor.shape)
        for name, tensor in LLAMA.tensors.items()
    }


def compiled(tensors, **given):
    return tensor_ops_cpp.compile_program(json.dumps(LLAMA.program), tensors, **given)


def share_of(num_workers):
    """So many bytes that each worker packs after a step that all are packed after some steps."""
    return LLAMA.compile().packed_size // num_workers // STEPS + 1


@pytest.mark.parametrize("is_default", [True, False])
@pytest.mark.parametrize("num_workers", [1, 3])
@pytest.mark.parametrize("chunk", [1, 3, 20, 40])
def test_each_step_has_the_same_bits(mapped, num_workers, chunk, is_default):
    share = is_default or share_of(num_workers)
    expected = LLAMA.compile()
    made = compiled(mapped, packs_in_steps=share, num_workers=num_workers)
    for first in range(0, len(TOKENS), chunk):
        part = [(0, first, TOKENS[first : first + chunk])]
        for right, found in zip(run_step(expected, part)[0], run_step(made, part)[0], strict=True):
            assert right.tobytes() == found.tobytes()
    expected.close()
    made.close()


def test_weights_are_packed_when_some_steps_have_run(mapped):
    made = compiled(mapped, packs_in_steps=share_of(1), num_workers=1)
    for number in range(STEPS + 1):  # the first one packs nothing
        assert not made.is_packed
        run_step(made, [(0, number, TOKENS[number : number + 1])])
    assert made.is_packed
    # Nothing is read from the files any more, but for the rows that are looked up.
    expected = LLAMA.compile()
    assert b"".join(made.packed()) == b"".join(expected.packed())


def test_small_models_are_packed_after_the_second_step(mapped):
    made = compiled(mapped, packs_in_steps=True)
    run_step(made, [(0, 0, TOKENS[:1])])
    assert not made.is_packed
    run_step(made, [(0, 1, TOKENS[1:2])])
    assert made.is_packed
    expected = LLAMA.compile()
    assert b"".join(made.packed()) == b"".join(expected.packed())


def test_the_matrix_of_the_logits_is_packed_by_steps_without_logits(mapped):
    made, expected = compiled(mapped, packs_in_steps=share_of(2), num_workers=2), LLAMA.compile()
    arrays = made.arrays
    for position in range(2 * STEPS):
        arrays["tokens"][0], arrays["slots"][0] = TOKENS[position], 0
        arrays["positions"][0] = position
        arrays["page_table"][0] = np.arange(len(arrays["page_table"][0]))
        made.run(1, 0)
    assert made.is_packed
    assert b"".join(made.packed()) == b"".join(expected.packed())


@pytest.mark.parametrize("steps", [0, 1, 5])
@pytest.mark.parametrize("ask", ["packed", "read_bandwidth"])
def test_what_needs_packed_weights_packs_the_rest(mapped, steps, ask):
    made, expected = compiled(mapped, packs_in_steps=share_of(1), num_workers=1), LLAMA.compile()
    if steps:
        run_alone(made, TOKENS[:steps], 1)
    getattr(made, ask)()
    assert made.is_packed
    assert b"".join(made.packed()) == b"".join(expected.packed())
    assert run_alone(made, TOKENS, 4)[0].tobytes() == run_alone(expected, TOKENS, 4)[0].tobytes()


def test_a_step_that_is_profiled_or_searched_for_nan_is_a_step(mapped):
    made, expected = compiled(mapped, packs_in_steps=share_of(2), num_workers=2), LLAMA.compile()
    for executable in (made, expected):
        run_step(executable, [(0, 0, TOKENS[:8])])
    for _ in range(3):
        made.profile(8, 8)
        assert made.first_nan(8, 8, 0) is None
    assert made.arrays["logits"][:8].tobytes() == expected.arrays["logits"][:8].tobytes()


def test_arrays_in_other_memory_are_packed_at_once():
    """The caller may change them."""
    tensors = {name: tensor.copy() for name, tensor in LLAMA.tensors.items()}
    made = compiled(tensors, packs_in_steps=True)
    assert made.is_packed
    for name in MATRICES:
        tensors[name].view(np.uint8)[...] = 0
    expected = LLAMA.compile()
    assert run_alone(made, TOKENS, 8)[0].tobytes() == run_alone(expected, TOKENS, 8)[0].tobytes()


def test_a_file_that_is_mapped_for_writing_is_other_memory(tmp_path):
    path = tmp_path / "weights"
    path.write_bytes(bytes(4 * WORDS * LLAMA.width))
    embedding = np.memmap(path, np.float32, "r+", shape=(WORDS, LLAMA.width))
    for array in (embedding, np.memmap(path, np.float32, "c", shape=embedding.shape)):
        array.flags.writeable = False
        made = compiled(LLAMA.tensors | {"embedding": array}, packs_in_steps=True)
        assert made.is_packed
        made.close()


def test_the_plan_counts_what_packing_takes(mapped):
    program = json.dumps(LLAMA.program)
    planned = tensor_ops_cpp.program_memory(program, num_workers=2, options=None)
    assert compiled(mapped, packs_in_steps=True, num_workers=2).memory == planned


def test_all_is_packed_at_once_unless_asked(mapped):
    assert compiled(mapped).is_packed
    sizes = []
    made = compiled(mapped, progress=lambda done, size: sizes.append((done, size)))
    assert sizes[-1] == (made.packed_size, made.packed_size)
    assert len(sizes) == 4 * LAYERS + 1


class Copies(Mapping):
    """Tensors that are copied when they are looked up, and the references to the copies."""

    def __init__(self, tensors):
        self.tensors, self.alive = tensors, {}

    def __getitem__(self, name):
        copy = self.tensors[name].copy()
        self.alive[name] = weakref.ref(copy)
        return copy

    def __iter__(self):
        return iter(self.tensors)

    def __len__(self):
        return len(self.tensors)

    def __contains__(self, name):
        return name in self.tensors

    def names(self):
        return {name for name, reference in self.alive.items() if reference() is not None}


@pytest.mark.parametrize("num_workers", [1, 3])
def test_arrays_are_let_go_as_they_are_packed(num_workers):
    copies, left = Copies(LLAMA.tensors), []
    matrices = {name for name in MATRICES if "bias" not in name}

    def progress(done, size):
        left.append(copies.names() & matrices)

    made = compiled(copies, num_workers=num_workers, progress=progress)
    assert left[0] == matrices - {"q0", "k0", "v0"}
    assert all(after < before for before, after in pairwise(left))
    assert left[-1] == set()
    assert copies.names() == {"embedding"}  # whose rows are looked up
    expected = LLAMA.compile()
    part = [(0, 0, TOKENS[:20])]
    for right, found in zip(run_step(expected, part)[0], run_step(made, part)[0], strict=True):
        assert right.tobytes() == found.tobytes()
    made.close()
    assert copies.names() == set()

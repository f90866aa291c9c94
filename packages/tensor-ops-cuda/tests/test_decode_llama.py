"""The kernel of decode steps, with the models that it is for."""

import dataclasses
import itertools

import numpy as np
import pytest
from largest_errors import SUMS_BOUND
from random_llama import Llama, answers, check_answers, fill

import tensor_ops_cuda
from tensor_ops_decode import reference

pytestmark = pytest.mark.usefixtures("device")

PROMPT, OTHERS = [5, 6, 7, 9, 3, 4], [[1, 2, 3, 4, 5, 6], [9, 8, 7, 6, 5, 4], [7] * 6]
TOGETHER = [*OTHERS[:2], PROMPT, *OTHERS, PROMPT[::-1], OTHERS[0]]
FORMATS = ("q8_0", "q4_0", "bf16")
# The most that rounding activations to two terms, and keys and values to float16, may change in a
# logit. The logits of the models here are about 3.
BOUND = 2e-3
SPAN = 64  # positions that a block attends to by itself, in contexts that are not long

TINY = Llama(layers=1, hidden=64, heads=2, kv_heads=1, intermediate=64, vocabulary=90)
MODELS = {
    "several spans": dataclasses.replace(TINY, length=200),
    "window": dataclasses.replace(TINY, length=200, window=70),
    "long spans": dataclasses.replace(TINY, length=8300, requests=1),
    "float32 cache": Llama("bf16", cache="float32", rotation="interleaved"),
    "eight heads on one": Llama("q4_0", heads=8, kv_heads=1, head_size=64, hidden=256),
    "heads of 256": Llama(heads=2, kv_heads=1, head_size=256, layers=1),
    "groups of three": Llama(heads=9, kv_heads=3, head_size=96, hidden=288, layers=1),
    "tied head of another type": Llama("q4_0", head_kind="q8_0", is_tied=True),
    "several panels of integers": Llama("q4_0", intermediate=2080, layers=1),
    "several panels of bfloat16": Llama(
        "bf16", hidden=1100, intermediate=600, vocabulary=331, layers=1
    ),
    "odd pages": Llama(page=5),
    "selected behind the layers": Llama(selects_early=False),
}


def compiled(llama, num_workers=None, options=None):
    program, tensors = llama.program()
    return tensor_ops_cuda.compile_program(
        program.to_json(), tensors, num_workers=num_workers, options=options
    )


def answer(llama, prompts=(PROMPT,), num_workers=None, which=0, chunks=None, options=None):
    """Return the tokens and the bits of the logits that follow one of several prompts."""
    executable = compiled(llama, num_workers, options)
    tokens, logits = answers(executable, prompts, chunks)[which]
    executable.close()
    return tokens, logits.tobytes()


@pytest.mark.parametrize("kind", FORMATS)
def test_tokens_are_those_of_the_reference(kind):
    program, tensors = Llama(kind).program()
    prompts = [PROMPT, *OTHERS]
    meant = answers(reference.compile_program(program.to_json(), tensors), prompts)
    found = answers(compiled(Llama(kind)), prompts)
    check_answers(found, meant, BOUND)


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.sampled(2, "name")
def test_models_of_all_shapes(name):
    llama = MODELS[name]
    length = 2 * SPAN + 9 if llama.length > 2 * SPAN else 11
    prompt = np.random.default_rng(1).integers(0, llama.vocabulary, length).tolist()
    chunks = [llama.tokens] * (length // llama.tokens) + [length % llama.tokens]
    program, tensors = llama.program()
    right = reference.compile_program(program.to_json(), tensors)
    found, meant = (
        answers(executable, [prompt], chunks, 2) for executable in (compiled(llama, 2), right)
    )
    check_answers(found, meant, SUMS_BOUND if llama.cache == "float32" else BOUND)


@pytest.mark.parametrize("kind", FORMATS)
@pytest.mark.sampled(3, "kind")
def test_a_request_has_the_same_bits_whoever_computes_it(kind, block_counts, each_order):
    llama = Llama(kind)
    alone = answer(llama, num_workers=3)
    for blocks in block_counts:
        assert answer(llama, num_workers=blocks) == alone
    assert answer(llama, chunks=(1, 2, 3), num_workers=2) == alone
    for count in (3, 8):
        assert answer(llama, TOGETHER[:count], num_workers=4, which=2) == alone
    for _ in each_order():
        assert answer(llama, num_workers=3) == alone


def wide(kind, blocks):
    """Return a Llama whose every matrix has a tile of 16 rows for each block, and several panels.

    With a group of 4 query heads for each key, as usual.
    """
    hidden = -(-16 * blocks // 256) * 256
    return Llama(
        kind, layers=1, hidden=hidden, heads=hidden // 64, kv_heads=hidden // 256, head_size=64,
        intermediate=max(hidden, 768 if kind == "bf16" else 2304),
        vocabulary=max(16 * blocks, 300), length=320,
    )  # fmt: skip


@pytest.mark.sampled(3, "kind")
@pytest.mark.parametrize("kind", FORMATS)
def test_blocks_that_all_have_tiles_leave_the_same_bits(
    kind, block_counts, each_order, is_emulated
):
    """On a GPU in thousands of steps after hundreds of positions, in which a race would show."""
    length, chunk, num_steps, rounds = (2, 2, 1, 1) if is_emulated else (200, 5, 64, None)
    counts = [4] if is_emulated else block_counts[-2:]
    llama = wide(kind, counts[-1])
    program, tensors = llama.program()
    text, draw = program.to_json(), np.random.default_rng(1)
    prompts = draw.integers(0, llama.vocabulary, (8, length)).tolist()

    def bits(executable, requests):
        found = answers(executable, prompts[:requests], [chunk] * (length // chunk), num_steps)
        return [(tokens, logits.tobytes()) for tokens, logits in found]

    made = [tensor_ops_cuda.compile_program(text, tensors, num_workers=each) for each in counts]
    alone, together = (bits(made[-1], requests) for requests in (1, 8))
    assert alone[0] == together[0]
    for _ in itertools.islice(each_order(), rounds):
        for executable in made:
            assert bits(executable, 1) == alone
            assert bits(executable, 8) == together


@pytest.mark.parametrize("kind", FORMATS)
def test_products_of_cuda_cores_are_in_float32(kind):
    llama, options = Llama(kind, cache="float32", layers=1), {"use_cutlass_kernel": False}
    program, tensors = llama.program()
    prompts = [PROMPT, *OTHERS, PROMPT[::-1]]
    meant = answers(reference.compile_program(program.to_json(), tensors), prompts)
    found = answers(compiled(llama, options=options), prompts)
    check_answers(found, meant, SUMS_BOUND)
    assert answer(llama, num_workers=1, options=options) == (found[0][0], found[0][1].tobytes())


def test_steps_in_a_row_are_the_steps_one_by_one():
    executable = compiled(Llama())
    (tokens, logits), (other, _) = answers(executable, [PROMPT, OTHERS[0]], num_steps=5)
    again = compiled(Llama())
    single = [answers(again, [PROMPT, OTHERS[0]], num_steps=1)]
    for position in range(7, 11):
        arrays = again.arrays
        arrays["tokens"][:2] = arrays["next"][:2, 0]
        arrays["positions"][:2] = position
        again.run(2, 2)
        single.append([int(each) for each in arrays["next"][:2, 0]])
    assert tokens[2:] == [each[0] for each in single[1:]]
    assert other[2:] == [each[1] for each in single[1:]]
    assert again.arrays["logits"][0].tobytes() == logits[-1].tobytes()


def test_steps_end_after_an_end_token():
    executable = compiled(Llama())
    tokens, _ = answers(executable, [PROMPT], num_steps=6)[0]
    again = compiled(Llama())
    answers(again, [PROMPT], num_steps=1)
    arrays = again.arrays
    arrays["tokens"][0], arrays["positions"][0] = tokens[1], len(PROMPT) + 1
    end = next(token for token in tokens[2:] if token not in tokens[:2])
    expected = tokens[2 : tokens.index(end) + 1]
    found = again.run_steps(1, 5, "next", [[299, end]])
    assert found[:, 0].tolist() == expected
    assert arrays["positions"][0] == len(PROMPT) + len(expected)


def test_a_batch_of_more_than_eight_runs_in_groups():
    llama = dataclasses.replace(Llama(), requests=11)
    prompts = [[i + 1, 2 * i + 1] for i in range(11)]
    together = answers(compiled(llama), prompts, num_steps=2)
    for i in (0, 7, 10):
        tokens, logits = answers(compiled(llama), [prompts[i]], num_steps=2)[0]
        assert together[i][0] == tokens
        assert together[i][1].tobytes() == logits.tobytes()


def test_tokens_are_drawn_as_elsewhere():
    llama = Llama(chooser="sample")
    program, tensors = llama.program()
    found = []
    for module in (reference, tensor_ops_cuda):
        executable = module.compile_program(program.to_json(), tensors)
        executable.arrays["temperature"][:] = [0, 1.5] * 4
        executable.arrays["seed"][:] = 3
        executable.arrays["num_edits"][0] = 1
        executable.arrays["edited_tokens"][0, 0] = 80
        executable.arrays["edit_biases"][0, 0] = 100
        executable.arrays["edit_penalties"][0, 0] = 1
        found.append([tokens for tokens, _ in answers(executable, [PROMPT, *OTHERS])])
    assert found[0] == found[1]
    assert set(found[1][0]) == {80}


def test_nan_is_found_where_it_begins():
    llama = Llama()
    program, tensors = llama.program()
    tensors["1.mlp_norm"][5] = np.nan
    executable = tensor_ops_cuda.compile_program(program.to_json(), tensors)
    with pytest.raises(ValueError, match="must be from 0 to 299, got -1"):
        answers(executable, [PROMPT])
    assert executable.arrays["next"][0, 0] == -1
    arrays = executable.arrays
    arrays["tokens"][0], arrays["positions"][0] = 4, len(PROMPT)
    found = executable.first_nan(1, 1, 0)
    assert program.nodes[found].name == "1.gate_up"
    assert executable.first_nan(1, 1, 1) is None


@pytest.mark.sampled(2, "cache")
@pytest.mark.parametrize("cache", ["float16", "float32"])
def test_nan_of_a_matrix_is_that_of_the_node_of_the_reference(cache):
    program, tensors = dataclasses.replace(TINY, kind="bf16", cache=cache).program()
    for name in ("table", "0.q", "0.k", "0.v", "0.up", "head"):
        spoilt = tensors[name].copy()
        spoilt.reshape(-1)[[3, -3]] = 0x7FC0
        found = []
        for module in (reference, tensor_ops_cuda):
            executable = module.compile_program(program.to_json(), tensors | {name: spoilt})
            # Slot 0 has tokens in two groups, and slot 1 in the second.
            fill(executable, [0, *range(1, 11)], [*range(10), 0], [0] * 10 + [1], [9, 10])
            executable.run(11, 2)
            found.append([executable.first_nan(11, 2, slot) for slot in range(3)])
            executable.close()
        assert found[0] == found[1], name
        assert found[1][0] is not None


def test_the_time_of_a_step_is_that_of_its_nodes():
    executable = compiled(Llama())
    answers(executable, [PROMPT])
    times = executable.profile(1, 1)
    assert times["seconds"] > 0
    assert times["work"].sum() == pytest.approx(times["seconds"])

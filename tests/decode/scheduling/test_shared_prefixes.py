"""Prompts that begin alike: they share pages of the caches, and are answered as if they did not."""

import functools

import numpy as np
import pytest

import tensor_ops_decode

PAGE, VOCABULARY, WIDTH, HEADS, SIZE = 8, 60, 32, 2, 8
SYSTEM = "You are a helpful assistant. "  # three pages, and five tokens
PROMPTS = [SYSTEM + text for text in ("Why?", "What is this about?", "Write a poem.", "W")]
SETTINGS = {"max_new_tokens": 5, "ignore_eos": True, "logprobs": 2}
OPTIONS = {"max_num_batched_requests": 4, "max_num_batched_tokens": 40, "page_size": PAGE}


@pytest.fixture
def load(folder, backend):
    """Return a function that opens the model anew, with nothing in its caches."""
    models = []

    def load(**options):
        models.append(tensor_ops_decode.load(folder, backend, **(OPTIONS | options)))
        return models[-1]

    yield load
    for model in models:
        model.close()


@pytest.fixture
def right(folder, backend):
    """The answer to each prompt by a model that has seen no other."""
    return answers_alone(folder, backend)


@functools.cache
def answers_alone(folder, backend):
    answers = []
    with tensor_ops_decode.load(folder, backend, **OPTIONS) as model:
        for prompt in PROMPTS:
            answers += model.generate(prompt, **SETTINGS)
            model.kernel.reset()
    assert all(answer.shared_tokens == 0 for answer in answers)
    return answers


class Counting:
    """An executable that counts the tokens that go through the model."""

    def __init__(self, executable):
        self.arrays, self.close, self._run = executable.arrays, executable.close, executable.run
        self.num_tokens = 0

    def run(self, num_tokens, num_selected):
        self.num_tokens += num_tokens
        self._run(num_tokens, num_selected)


@pytest.mark.parametrize("tokens", [4, 9, 40, 200])
def test_prompts_together_read_their_beginning_once(load, right, backend, wrap_executables, tokens):
    made = wrap_executables(backend, Counting)
    model = load(max_num_batched_tokens=tokens)
    answers = model.generate(PROMPTS, **SETTINGS)
    assert answers == right
    assert [answer.shared_tokens for answer in answers] == [0, 24, 24, 24]
    # The last token of an answer is not fed.
    fed = sum(len(answer.prompt_tokens) + len(answer.tokens) - 1 for answer in answers)
    assert made[-1].num_tokens == fed - 3 * 24


def test_a_prompt_after_another_finds_its_pages(load, right):
    model = load()
    for prompt, expected, shared in zip(PROMPTS, right, [0, 24, 24, 24], strict=True):
        (answer,) = model.generate(prompt, **SETTINGS)
        assert (answer, answer.shared_tokens) == (expected, shared)
    # All but the last token, in whole pages.
    (again,) = model.generate(PROMPTS[1], **SETTINGS)
    assert (again, again.shared_tokens) == (right[1], (len(PROMPTS[1]) - 1) // PAGE * PAGE)


def test_a_conversation_finds_the_answer_before_it(load):
    model = load()
    (first,) = model.generate(PROMPTS[0], **SETTINGS | {"max_new_tokens": 20})
    following = [*first.prompt_tokens, *first.tokens, 1, 2, 3]
    (second,) = model.generate([following], **SETTINGS)
    # The last token of the answer was not fed.
    length = len(first.prompt_tokens) + len(first.tokens) - 1
    assert second.shared_tokens == length // PAGE * PAGE > len(first.prompt_tokens)
    assert second == load().generate([following], **SETTINGS)[0]


class Interrupted(Counting):
    """An executable that is interrupted at one of its steps: before it, or after an odd one."""

    num_steps, at = 0, None

    def run(self, *counts):
        step, self.num_steps = self.num_steps, self.num_steps + 1
        if step != self.at or step % 2:
            super().run(*counts)
        if step == self.at:
            raise KeyboardInterrupt


def test_an_interrupt_leaves_right_pages(load, right, backend, wrap_executables):
    made = wrap_executables(backend, Interrupted)
    for at in range(0, 12, 3):
        model = load(max_num_batched_tokens=9)
        made[-1].at = at
        with pytest.raises(KeyboardInterrupt):
            model.generate(PROMPTS, **SETTINGS)
        assert model.generate(PROMPTS, **SETTINGS) == right


def test_removing_a_prompt_that_others_wait_for_lets_them_go_on(load, right):
    kernel = load(max_num_batched_tokens=9).kernel
    prompts = [list(answer.prompt_tokens) for answer in right]
    settings = {**SETTINGS, "logprobs": None}
    requests = [kernel.add_request(prompt, **settings) for prompt in prompts]
    kernel()
    kernel.remove(requests.pop(0))
    while kernel.requests:
        kernel()
    for request, answer in zip(requests, right[1:], strict=True):
        assert kernel.tokens(request) == list(answer.tokens)
    assert [kernel.num_shared(request) for request in requests] == [8, 24, 24]


def test_a_lack_of_pages_leaves_right_ones(load, right):
    # Room for one of the sequences, and for a page of another.
    model = load(max_num_pages=7)
    assert model.generate(PROMPTS, **SETTINGS) == right
    kernel = model.kernel
    kernel.reset()
    settings = {**SETTINGS, "logprobs": None}
    first = kernel.add_request(list(right[1].prompt_tokens), **settings)
    kernel()
    kernel()
    second = kernel.add_request([9] * 24, **settings)
    with pytest.raises(tensor_ops_decode.CapacityError):
        kernel()
    kernel.remove(second)
    while kernel.requests:
        kernel()
    assert kernel.tokens(first) == list(right[1].tokens)
    assert model.generate(PROMPTS, **SETTINGS) == right


def test_pages_that_are_needed_are_taken_from_prompts_that_have_ended(load, right):
    model = load(max_num_pages=8)
    for _ in range(3):
        for prompt, expected in zip(PROMPTS, right, strict=True):
            assert model.generate(prompt, **SETTINGS) == [expected]
        other = [list(range(7, 60))]
        assert model.generate(other, **SETTINGS)[0].shared_tokens == 0


def test_pages_that_are_shared_leave_room_for_another_request(load, right):
    kernel = load(max_num_pages=8).kernel
    settings = {**SETTINGS, "logprobs": None}
    for number in (0, 3):
        kernel.add_request(list(right[number].prompt_tokens), **settings)
    # Five pages for each of the two, until they share three.
    assert not kernel.has_room(PAGE)
    kernel()
    kernel()
    assert kernel.has_room(PAGE)
    assert not kernel.has_room(PAGE + 1)


def test_reset_forgets_all_pages(load):
    model = load()
    model.generate(PROMPTS, **SETTINGS)
    model.kernel.reset()
    assert model.generate(PROMPTS[0], **SETTINGS)[0].shared_tokens == 0


def kernel_by_hand(backend, *, paged, window=0):
    """Return a compiled kernel of one attention layer."""
    draw = np.random.default_rng(1)
    kernel = tensor_ops_decode.PersistentKernel(backend=backend, max_seq_length=64, **OPTIONS)

    def weight(name, *shape):
        return kernel.attach_input(draw.standard_normal(shape, np.float32), name=name)

    def value(name, columns, dtype="float32"):
        return kernel.new_tensor((OPTIONS["max_num_batched_tokens"], columns), dtype, name=name)

    table = weight("table", VOCABULARY, WIDTH)
    x = kernel.embed_layer(weight=table, output=value("x", WIDTH))
    columns = 3 * HEADS * SIZE
    qkv = kernel.linear_layer(
        input=x, weight=weight("qkv", columns, WIDTH), output=value("qkv of x", columns)
    )
    add = kernel.paged_attention_layer if paged else kernel.attention_layer
    heads = {"num_heads": HEADS, "num_kv_heads": HEADS, "window": window}
    attended = add(input=qkv, output=value("attended", HEADS * SIZE), **heads)
    o = weight("o", WIDTH, HEADS * SIZE)
    y = kernel.linear_with_residual_layer(
        input=attended, weight=o, residual=x, output=value("y", WIDTH)
    )
    logits = kernel.linear_layer(input=y, weight=table, output=value("logits", VOCABULARY))
    kernel.argmax_layer(input=logits, output=value("next", 1, "int32"))
    kernel.compile()
    return kernel


@pytest.mark.parametrize(("paged", "window"), [(True, 0), (True, 5), (True, 11), (False, 0)])
def test_windows_share_pages_and_contiguous_caches_do_not(backend, paged, window):
    draw = np.random.default_rng(2)
    system = draw.integers(VOCABULARY, size=21).tolist()
    prompts = [system + draw.integers(VOCABULARY, size=size).tolist() for size in (3, 9, 14)]

    def answers(kernel, prompts):
        requests = [kernel.add_request(prompt, **SETTINGS) for prompt in prompts]
        while kernel.requests:
            kernel()
        shared = [kernel.num_shared(request) for request in requests]
        return [kernel.logprobs(request) for request in requests], shared

    right = []
    for prompt in prompts:
        with kernel_by_hand(backend, paged=paged, window=window) as kernel:
            right += answers(kernel, [prompt])[0]
    with kernel_by_hand(backend, paged=paged, window=window) as kernel:
        expected = [0, 16, 16] if paged else [0, 0, 0]
        assert answers(kernel, prompts) == (right, expected)
        expected = [16, 24, 32] if paged else [0, 0, 0]
        assert answers(kernel, prompts) == (right, expected)

"""Prompts of models with states that begin alike: they go on from snapshots, and are the same."""

import inspect
import sys

import numpy as np
import pytest
import torch

from greedy_models import open_kernel
from small_families import MODELS, small_model
from tensor_ops.extension import machine
from tensor_ops_decode import Program, State
from tensor_ops_decode.scheduling.prompt_lookup import PromptLookup
from tensor_ops_decode.scheduling.requests import Requests

PAGE, WORDS, NEW = 4, 331, 6
OPTIONS = {"max_num_batched_requests": 4, "max_num_batched_tokens": 24, "page_size": PAGE}
DRAW = np.random.default_rng(3)
SYSTEM = DRAW.integers(0, WORDS, 22).tolist()  # five pages, and two tokens
PROMPTS = [SYSTEM + DRAW.integers(0, WORDS, count).tolist() for count in (9, 3, 17, 1)]
FAMILIES = ("LFM2", "Qwen 3.5", "Qwen 3.5 MoE", "Granite 4")

pytestmark = pytest.mark.sampled(3, "folder", "backend", "seed")


class Counting:
    """An executable that counts the tokens that go through the model."""

    def __init__(self, executable):
        self._executable, self.num_tokens = executable, 0

    def __getattr__(self, name):
        return getattr(self._executable, name)

    def run(self, num_tokens, num_selected):
        self.num_tokens += num_tokens
        self._executable.run(num_tokens, num_selected)


@pytest.fixture(scope="module", params=FAMILIES, ids=lambda name: name.replace(" ", "-"))
def folder(request, tmp_path_factory):
    made = tmp_path_factory.mktemp("model")
    small_model(request.param).save_pretrained(made)
    return made


@pytest.fixture
def opened(folder, backend):
    """Return a function that opens and compiles a kernel anew."""
    kernels = []

    def opened(**options):
        kernels.append(open_kernel(folder, backend=backend, **(OPTIONS | options)))
        kernels[-1].compile()
        return kernels[-1]

    yield opened
    for kernel in kernels:
        kernel.close()


def answers(kernel, prompts, count=NEW):
    """Return the tokens and last logits of prompts that run together, and what each shared."""
    requests = [kernel.add_request(each, ignore_eos=True, max_new_tokens=count) for each in prompts]
    logits = {}
    while kernel.requests:
        for request in kernel():
            logits[request] = np.array(kernel.logits(request))
    shared = [kernel.num_shared(request) for request in requests]
    return [(kernel.tokens(each), logits[each].tolist()) for each in requests], shared


def run_to_the_end(kernel):
    while kernel.requests:
        kernel()


def one_by_one(kernel, prompts, count=NEW):
    found = [answers(kernel, [prompt], count) for prompt in prompts]
    return [each for (each,), _ in found], [shared for _, (shared,) in found]


def alone(kernel, prompts, count=NEW):
    """Return the answers of requests that find nothing in the caches."""
    found = []
    for prompt in prompts:
        kernel.reset()
        found += answers(kernel, [prompt], count)[0]
    return found


def test_prompts_together_compute_their_beginning_once(opened, backend, wrap_executables):
    made = wrap_executables(backend, Counting)
    right = alone(opened(), PROMPTS)
    found, shared = answers(opened(), PROMPTS)
    assert found == right
    assert shared == [0, 20, 20, 20]
    fed = sum(len(prompt) + NEW - 1 for prompt in PROMPTS)
    assert made[-1].num_tokens == fed - 3 * 20


def test_a_prompt_after_another_goes_on_from_its_snapshots(opened):
    kernel = opened()
    right = alone(kernel, PROMPTS)
    kernel.reset()
    # The first two have nothing in common but what the second finds to be common to both.
    found, shared = one_by_one(kernel, PROMPTS)
    assert found == right
    assert shared == [0, 0, 20, 20]
    # All but the last token, in whole pages.
    found, shared = one_by_one(kernel, PROMPTS)
    assert found == right
    assert shared == [(len(prompt) - 1) // PAGE * PAGE for prompt in PROMPTS]


def test_a_conversation_goes_on_behind_the_answer(opened):
    kernel = opened()
    ((tokens, _),), _ = answers(kernel, PROMPTS[:1], 80)
    following = [PROMPTS[0] + tokens + [1, 2, 3]]
    found, shared = answers(kernel, following)
    assert shared == [64]
    assert found == alone(kernel, following)


@pytest.mark.parametrize("count", [1, 2])
def test_few_snapshots_serve_whom_they_fit(opened, count):
    kernel = opened(max_num_snapshots=count)
    right = alone(kernel, PROMPTS)
    kernel.reset()
    assert one_by_one(kernel, PROMPTS)[0] == right
    assert answers(kernel, PROMPTS)[0] == right
    assert one_by_one(kernel, PROMPTS[-1:] * 2)[1][1] == 20


def test_without_snapshots_every_prompt_is_computed(opened):
    kernel = opened(max_num_snapshots=0)
    right = alone(kernel, PROMPTS)
    kernel.reset()
    for _ in range(2):
        assert one_by_one(kernel, PROMPTS) == (right, [0] * 4)


def test_reset_forgets_them(opened):
    kernel = opened()
    answers(kernel, PROMPTS)
    kernel.reset()
    assert answers(kernel, PROMPTS[:1])[1] == [0]


def test_steps_in_a_row_stop_where_one_is_taken(opened):
    kernel = opened()
    ((tokens, _),) = alone(kernel, PROMPTS[:1], 80)
    kernel.reset()
    request = kernel.add_request(PROMPTS[0], ignore_eos=True, max_new_tokens=80)
    while kernel.requests:
        kernel.run(100)
    assert kernel.tokens(request) == tokens
    following = [PROMPTS[0] + tokens + [1, 2, 3]]
    found, shared = answers(kernel, following)
    assert shared == [64]
    assert found == alone(kernel, following)


def test_guesses_that_were_wrong_are_undone(opened, monkeypatch):
    """Three of four guesses are right, one after another."""
    prompts, draw = PROMPTS[:3], np.random.default_rng(7)
    kernel, guessing = opened(), opened(num_speculative_tokens=3)
    right = alone(kernel, prompts, 40)
    known = [prompt + tokens for prompt, (tokens, _) in zip(prompts, right, strict=True)]

    def propose(_, tokens, count):
        (whole,) = (each for each in known if each[: len(tokens)] == tokens)
        following = whole[len(tokens) : len(tokens) + count]
        return [token if draw.random() < 0.75 else (token + 1) % WORDS for token in following]

    monkeypatch.setattr(PromptLookup, "propose", propose)
    requests = [guessing.add_request(each, ignore_eos=True, max_new_tokens=40) for each in prompts]
    steps = 0
    while guessing.requests:
        guessing()
        steps += 1
    assert [guessing.tokens(request) for request in requests] == [tokens for tokens, _ in right]
    assert all(guessing.num_accepted(request) > 15 for request in requests)
    assert steps < 35
    monkeypatch.undo()
    # What is in the caches is right too.
    following = [
        prompt + tokens + [3, 2, 1] for prompt, (tokens, _) in zip(prompts, right, strict=True)
    ]
    assert answers(guessing, following)[0] == alone(kernel, following)


def test_removing_one_that_others_wait_for_lets_them_go_on(opened):
    kernel = opened(max_num_batched_tokens=8)
    right = alone(kernel, PROMPTS)
    kernel.reset()
    first, *others = [
        kernel.add_request(prompt, ignore_eos=True, max_new_tokens=NEW) for prompt in PROMPTS
    ]
    kernel()
    kernel.remove(first)
    run_to_the_end(kernel)
    assert [kernel.tokens(each) for each in others] == [tokens for tokens, _ in right[1:]]


class Interrupted(Counting):
    """An executable that is interrupted at one of its steps: before it, or after an odd one."""

    step, at = 0, None

    def run(self, *counts):
        step, self.step = self.step, self.step + 1
        if step != self.at or step % 2:
            super().run(*counts)
        if step == self.at:
            raise KeyboardInterrupt


def test_an_interrupt_leaves_right_states(opened, backend, wrap_executables):
    made = wrap_executables(backend, Interrupted)
    right = alone(opened(), PROMPTS)
    for at in range(0, 10, 3):
        kernel = opened(max_num_batched_tokens=9)
        made[-1].at = at
        requests = [
            kernel.add_request(prompt, ignore_eos=True, max_new_tokens=NEW) for prompt in PROMPTS
        ]
        with pytest.raises(KeyboardInterrupt):
            run_to_the_end(kernel)
        run_to_the_end(kernel)
        assert [kernel.tokens(request) for request in requests] == [each for each, _ in right]


@pytest.mark.parametrize("line", ["self._active", "self._snapshots = ", "self._pages = "])
def test_an_interrupted_reset_leaves_no_states_of_other_prompts(opened, line):
    kernel = opened()
    right = alone(kernel, PROMPTS[:1])
    kernel.reset()
    answers(kernel, [PROMPTS[1][::-1]])
    lines = inspect.getsource(sys.modules[Requests.__module__]).splitlines()

    def interrupt(frame, event, _):
        if event == "line" and line in lines[frame.f_lineno - 1]:
            raise KeyboardInterrupt
        return interrupt

    def trace(frame, event, _):
        return interrupt if frame.f_code is Requests.clear.__code__ else None

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        with pytest.raises(KeyboardInterrupt):
            kernel.reset()
    finally:
        sys.settrace(before)
    answers(kernel, [PROMPTS[2][::-1]])
    assert one_by_one(kernel, PROMPTS[:1])[0] == right


def test_one_may_wait_for_tokens_that_another_was_given(opened):
    kernel = opened(max_num_batched_tokens=8)
    first = kernel.add_request(PROMPTS[0][:8], choose=False)
    kernel()
    kernel.extend(first, PROMPTS[0][8:])
    second = kernel.add_request(PROMPTS[0] + [1, 2], ignore_eos=True, max_new_tokens=1)
    while second in kernel.requests:
        kernel()
    assert kernel.num_shared(second) == len(PROMPTS[0]) // PAGE * PAGE


def test_one_that_another_went_on_from_is_kept(opened):
    kernel, prompt = opened(), PROMPTS[0]
    short, long = (
        kernel.add_request(prompt, ignore_eos=True, max_new_tokens=count) for count in (50, 90)
    )
    while kernel.requests:
        kernel()
    following = [prompt + kernel.tokens(short) + [1]]
    assert kernel.tokens(long)[:50] == kernel.tokens(short)
    assert answers(kernel, following)[1] == [64]


def test_a_next_turn_may_leave_out_the_last_tokens(opened):
    kernel, prompt = opened(), PROMPTS[0]
    answers(kernel, [prompt])
    last = (len(prompt) - 1) // PAGE * PAGE
    assert answers(kernel, [prompt[: last - 1] + [1] * 9])[1] == [last - PAGE]


def test_an_executor_that_names_no_states_has_none(opened, backend, wrap_executables):
    class Old(Counting):
        @property
        def arrays(self):
            arrays = self._executable.arrays
            return {name: each for name, each in arrays.items() if "state" not in name}

    right = alone(opened(max_num_snapshots=0), PROMPTS)
    wrap_executables(backend, Old)
    assert answers(opened(num_speculative_tokens=2), PROMPTS) == (right, [0] * 4)


def test_by_default_there_are_as_many_as_memory_has_room_for(folder, backend, monkeypatch):
    def snapshots(memory, **options):
        monkeypatch.setattr(machine, "usable_memory", lambda: memory)
        with open_kernel(folder, backend=backend, **(OPTIONS | options)) as kernel:
            return kernel.explain().limits.num_snapshots

    assert snapshots(None) == snapshots(2**40) == 2 + 2 * 4
    smallest = {"max_seq_length": PAGE, "max_num_pages": 1, "max_num_snapshots": 0}
    with open_kernel(folder, backend=backend, **(OPTIONS | smallest)) as kernel:
        kernel.compile()
        memory = kernel.explain().memory
    state, total = memory["states"] // 4, sum(memory.values())
    assert snapshots(total + 11 * state, max_seq_length=PAGE, max_num_pages=1) == 2
    assert snapshots(total, max_seq_length=PAGE, max_num_pages=1) == 0
    assert snapshots(2**40, max_num_snapshots=np.int64(3)) == 3
    with pytest.raises(ValueError, match="max_num_snapshots must be at most"):
        snapshots(2**40, max_num_snapshots=2**31 - 1, num_speculative_tokens=2)


def test_an_exported_model_has_those_that_were_asked_for(folder, backend, tmp_path):
    for given, expected in ((None, 0), (3, 3)):
        with open_kernel(folder, backend=backend, **OPTIONS, max_num_snapshots=given) as kernel:
            kernel.export(tmp_path / str(given))
        text = (tmp_path / str(given) / "program.json").read_text(encoding="utf-8")
        assert Program.from_json(text).limits.extra_states == expected


def test_they_take_the_memory_that_is_stated(opened):
    kernel = opened(max_num_snapshots=5, num_speculative_tokens=2)
    explained = kernel.explain()
    assert explained.as_dict()["limits"]["max_num_snapshots"] == 5
    states = [each for each in kernel.program.caches.values() if isinstance(each, State)]
    of_request = sum(4 * each.rows * each.columns for each in states)
    assert explained.reads.states == of_request
    # A request, and each of its guesses; each state begins at a line of the processor's cache.
    number = 4 * (1 + 2) + 5
    expected = number * of_request
    assert expected <= explained.memory["states"] <= expected + 64 * number * len(states)
    assert explained.memory["caches"] == (
        kernel.program.limits.num_pages * PAGE * explained.reads.cache_per_token
    )
    assert "of states of each request" in str(explained)


def random_hybrid(draw, folder):
    """Write a small model of a random family with states, of random layers and sizes."""
    family = draw.choice([*FAMILIES, "LFM2 MoE", "Qwen 3 Next", "Granite 4 MoE"])
    states = "conv" if family.startswith("LFM2") else "linear_attention"
    count = int(draw.integers(2, 5))
    layers = draw.choice([states, "full_attention"], count).tolist()
    layers[int(draw.integers(count))] = states
    if "full_attention" not in layers:
        layers.append("full_attention")
    changed = {"layer_types": layers, "num_hidden_layers": len(layers)}
    changed["initializer_range"] = float(draw.uniform(0.1, 0.3))
    if family == "LFM2":
        changed["full_attn_idxs"] = [i for i, each in enumerate(layers) if each != states]
    if states == "conv":
        changed["conv_L_cache"] = int(draw.integers(2, 6))
    elif family.startswith("Granite"):
        groups = int(draw.choice([1, 2, 3]))
        changed |= {
            "mamba_n_groups": groups,
            "mamba_n_heads": 6 * int(draw.choice([1, 2, 4])),
            "mamba_d_state": int(draw.integers(2, 17)),
            "mamba_d_conv": int(draw.integers(2, 6)),
        }
    else:
        keys = int(draw.integers(1, 4))
        changed |= {
            "linear_num_key_heads": keys,
            "linear_num_value_heads": keys * int(draw.integers(1, 4)),
            "linear_key_head_dim": int(draw.integers(3, 17)),
            "linear_value_head_dim": int(draw.integers(3, 17)),
            "linear_conv_kernel_dim": int(draw.integers(2, 6)),
        }
    assert family in MODELS
    torch.manual_seed(int(draw.integers(2**31)))
    small_model(family, **changed).save_pretrained(folder)


FEW, MANY = range(3), range(100)


@pytest.mark.parametrize(
    "seed", [*FEW, *(pytest.param(n, marks=pytest.mark.nightly) for n in MANY if n not in FEW)]
)
def test_requests_of_random_models_have_the_bits_of_each_alone(seed, backend, tmp_path):
    """Thirty of them join, leave, share what they begin with, guess, and are cancelled."""
    draw = np.random.default_rng(seed)
    random_hybrid(draw, tmp_path)
    options = {
        "max_num_batched_requests": 3,
        "max_num_batched_tokens": int(draw.integers(9, 30)),
        "page_size": int(draw.choice([1, 3, 4, 8])),
        "num_speculative_tokens": int(draw.integers(0, 3)),
        "max_num_snapshots": int(draw.integers(0, 7)),
    }
    stems = [draw.integers(0, WORDS, draw.integers(1, 30)).tolist() for _ in range(4)]

    def prompt():
        stem = stems[draw.integers(len(stems))]
        return (
            stem[: int(draw.integers(1, len(stem) + 1))]
            + draw.integers(0, WORDS, draw.integers(0, 12)).tolist()
        )

    waiting = [(prompt(), int(draw.integers(1, 12))) for _ in range(30)]
    with open_kernel(tmp_path, backend=backend, **options) as kernel:
        kernel.compile()
        running, found = {}, []
        while waiting or running:
            while waiting and len(running) < 3:
                given, count = waiting.pop()
                number = kernel.add_request(given, ignore_eos=True, max_new_tokens=count)
                running[number] = given, count
            kernel.run(int(draw.integers(1, 4)))
            for number, (given, count) in list(running.items()):
                if kernel.finish_reason(number):
                    tokens = kernel.tokens(number)
                    found.append((given, count, tokens))
                    stems.append(given + tokens)  # a conversation may go on
                if kernel.finish_reason(number) or draw.random() < 0.05:
                    kernel.remove(number)
                    del running[number]
        assert len(found) > 15
        for given, count, tokens in found:
            ((right, _),) = alone(kernel, [given], count)
            assert tokens == right

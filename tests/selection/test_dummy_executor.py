"""A plug-in whose executor is a few lines runs requests through all that kernels share."""

import numpy as np
import pytest

from tensor_ops_decode import CapacityError, PersistentKernel
from tensor_ops_decode.program import Program

WORDS = 256  # of the model that a kernel runs which is given none
PROMPTS = [1, 2, 3], [200], list(range(20, 57))
NUMBERS_OF_SLOTS = {
    **dict.fromkeys(["temperature", "top_p", "min_p"], np.float32),
    **dict.fromkeys(["top_k", "num_edits"], np.int32),
    "seed": np.uint64,
}
EDITS = {"edited_tokens": np.int32, "edit_biases": np.float32, "edit_penalties": np.float32}


class Dummy:
    """Runs programs without their weights: a token is a function of the last and its position."""

    num_workers, options = 1, {}

    def __init__(self, program, tensors, *, num_workers, options, progress):
        self._program = program = Program.from_json(program)
        limits = program.limits
        of_tokens = ("tokens", "positions", "slots")
        self.arrays = {name: np.zeros(limits.max_tokens, np.int32) for name in of_tokens}
        self.arrays["selected"] = np.zeros(limits.max_selected, np.int32)
        pages = limits.max_requests, limits.pages_per_request
        self.arrays["page_table"] = np.zeros(pages, np.int32)
        for name, dtype in NUMBERS_OF_SLOTS.items():
            self.arrays[name] = np.zeros(limits.max_requests, dtype)
        for name, dtype in EDITS.items():
            shape = limits.max_requests, limits.edits_per_request
            self.arrays[name] = np.zeros(shape, dtype)
        for name in program.outputs:
            value = program.values[name]
            rows = limits.max_tokens if value.rows == "tokens" else limits.max_selected
            self.arrays[name] = np.zeros((rows, value.columns), value.dtype)
        self.memory = {"arrays": sum(each.nbytes for each in self.arrays.values())}
        self.rows, self.is_closed = [], False

    def run(self, num_tokens, num_selected):
        tokens = np.arange(num_tokens)
        for name in self._program.outputs:
            is_selected = self._program.values[name].rows == "selected"
            of_rows = self.arrays["selected"][:num_selected] if is_selected else tokens
            chosen = following(self.arrays["tokens"][of_rows], self.arrays["positions"][of_rows])
            to = self.arrays[name][: len(chosen)]
            to[:] = chosen[:, None] if to.shape[1] == 1 else np.eye(to.shape[1])[chosen]

    def run_steps(self, num_tokens, num_steps, output, end_tokens):
        chosen = []
        while True:
            self.run(num_tokens, num_tokens)
            chosen.append(self.arrays[output][:num_tokens, 0].copy())
            pairs = zip(chosen[-1], end_tokens, strict=True)
            if len(chosen) == num_steps or any(token in ends for token, ends in pairs):
                self.rows.append(len(chosen))
                return np.array(chosen)
            self.arrays["tokens"][:num_tokens] = chosen[-1]
            self.arrays["positions"][:num_tokens] += 1

    def close(self):
        self.is_closed = True


def following(tokens, positions):
    return (3 * tokens + positions) % WORDS


def continued(prompt, count):
    """Return the tokens by which the executor continues a prompt."""
    tokens = list(prompt)
    for position in range(len(prompt) - 1, len(prompt) + count - 1):
        tokens.append(int(following(tokens[-1], position)))
    return tokens[len(prompt) :]


@pytest.fixture
def make(install):
    """Return a function that makes compiled kernels which the dummy runs.

    The executable of each is added to the list `made` of the function.
    """

    def compile_program(program, tensors, **arguments):
        make.made.append(Dummy(program, tensors, **arguments))
        return make.made[-1]

    install(
        "dummy",
        CAPABILITIES={"runs_programs": True},
        supports_program=lambda program: None,
        compile_program=compile_program,
    )

    def make(**options):
        kernel = PersistentKernel(backend="dummy", max_num_batched_requests=3, **options)
        kernel.compile()
        return kernel

    make.made = []
    return make


@pytest.mark.parametrize("page_size", [1, 8, 16])
def test_requests_are_continued(make, page_size):
    with make(max_num_batched_tokens=16, max_seq_length=80, page_size=page_size) as kernel:
        requests = [kernel.add_request(prompt, max_new_tokens=20) for prompt in PROMPTS]
        while kernel.requests:
            kernel.run(100)
        for request, prompt in zip(requests, PROMPTS, strict=True):
            assert kernel.tokens(request) == continued(prompt, 20)
            assert kernel.finish_reason(request) == "length"
        (executable,) = make.made
        assert kernel.explain().memory == executable.memory
        assert max(executable.rows) > 1  # steps in a row
    assert executable.is_closed


def test_an_end_token_ends_a_request_and_others_go_on(make):
    expected = continued(PROMPTS[1], 30)
    end = next(token for i, token in enumerate(expected[5:], 5) if token not in expected[:i])
    kernel = make(eos_token_id=end)
    request = kernel.add_request(PROMPTS[1])
    other = kernel.add_request(PROMPTS[0], ignore_eos=True, max_new_tokens=40)
    while kernel.requests:
        kernel.run(7)
    assert kernel.tokens(request) == expected[: expected.index(end) + 1]
    assert kernel.tokens(other) == continued(PROMPTS[0], 40)


def test_logits_are_read_after_single_steps(make):
    kernel = make()
    request = kernel.add_request(PROMPTS[0], logprobs=2)
    step = kernel()
    assert step == {request: continued(PROMPTS[0], 1)[0]}
    assert np.argmax(kernel.logits(request)) == step[request]


def test_capacity_is_the_limits_own(make):
    kernel = make(max_seq_length=12)
    request = kernel.add_request(PROMPTS[0])
    assert kernel.run(100)[request] == continued(PROMPTS[0], 10)
    with pytest.raises(CapacityError, match="has come to max_seq_length, 12 tokens"):
        kernel.run(1)

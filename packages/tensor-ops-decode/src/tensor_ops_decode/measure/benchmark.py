"""Measures how a kernel reads a prompt and decodes, beside what its threads read from memory."""

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from tensor_ops_decode.arguments import whole
from tensor_ops_decode.kernel.persistent_kernel import PersistentKernel
from tensor_ops_decode.program import Program
from tensor_ops_decode.program.step_rules import vocabulary
from tensor_ops_decode.scheduling.request import check_lengths
from tensor_ops_decode.scheduling.step_times import StepProfile

__all__ = ["ProfiledStep", "Round", "Samples", "measure", "random_prompt"]

# As many as one call of the executor decodes of a small model while text is generated.
_TOKENS_OF_ROUND = 8


class Round(NamedTuple):
    """Tokens that were decoded in a row, and a reading of the weights right after them.

    They are next to each other because the speed of memory may change from second to second. The
    seconds are of all tokens, and the bandwidth is in bytes per second.
    """

    tokens: int
    seconds: float
    bandwidth: float


class ProfiledStep(NamedTuple):
    """A step that was profiled.

    The context is the tokens of the request up to its end, and the seconds are those of the whole
    call.
    """

    tokens: int
    context: int
    seconds: float
    profile: StepProfile


@dataclass
class Samples:
    """Times that have been measured so far.

    A step of `decode` is one more token after each round, by a call of its own.
    """

    prompt: list[ProfiledStep] = field(default_factory=list)
    rounds: list[Round] = field(default_factory=list)
    decode: list[ProfiledStep] = field(default_factory=list)


def random_prompt(program: Program, prompt_tokens: int, new_tokens: int) -> list[int]:
    """Return a prompt for `measure` of a kernel that runs a program.

    Raises ValueError if there are more tokens than the program takes.
    """
    count = whole("prompt_tokens", prompt_tokens)
    check_lengths(program, count, _most_tokens(whole("new_tokens", new_tokens)))
    tokens: list[int] = np.random.default_rng(0).integers(0, vocabulary(program), count).tolist()
    return tokens


def measure(
    kernel: PersistentKernel,
    prompt: list[int],
    new_tokens: int,
    samples: Samples,
    progress: Callable[[int, int], None] = lambda done, size: None,
) -> None:
    """Read a prompt, then decode `new_tokens` tokens after it, in rounds.

    The kernel is compiled, and without guesses; its requests are forgotten. The prompt is as
    `random_prompt` returns it. Each measurement is appended to the samples at once, so that an
    interrupt leaves those before it. `progress` is called with the tokens of rounds that are done,
    and how many are to be.
    """
    _warm_up(kernel, prompt)
    request = kernel.add_request(prompt, max_new_tokens=_most_tokens(new_tokens), ignore_eos=True)
    context = 0
    while context < len(prompt):
        tokens = min(len(prompt) - context, kernel.program.limits.max_tokens)
        context += tokens
        samples.prompt.append(_profiled(kernel, tokens, context))
    for done in range(0, new_tokens, _TOKENS_OF_ROUND):
        progress(done, new_tokens)
        tokens = min(_TOKENS_OF_ROUND, new_tokens - done)
        start = time.perf_counter()
        kernel.run(tokens)
        seconds = time.perf_counter() - start
        samples.rounds.append(Round(tokens, seconds, kernel.read_bandwidth()))
        context += tokens + 1
        samples.decode.append(_profiled(kernel, 1, context))
    kernel.remove(request)


def _most_tokens(new_tokens: int) -> int:
    """Return how many are decoded: in rounds, one after each, and the one after the prompt."""
    return new_tokens + -(-new_tokens // _TOKENS_OF_ROUND) + 1


def _warm_up(kernel: PersistentKernel, prompt: list[int]) -> None:
    """Run a few steps, so that memory is mapped and threads have started."""
    kernel.reset()
    kernel.add_request(prompt[:1], max_new_tokens=3, ignore_eos=True)
    while kernel.requests:
        kernel()
    kernel.reset()


def _profiled(kernel: PersistentKernel, tokens: int, context: int) -> ProfiledStep:
    start = time.perf_counter()
    profile = kernel.profile()
    return ProfiledStep(tokens, context, time.perf_counter() - start, profile)

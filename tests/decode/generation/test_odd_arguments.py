"""Odd values of every argument of the engine: they run, or are errors that name the argument."""

import math
import warnings

import numpy as np
import pytest

from tensor_ops import BackendFallbackWarning
from tensor_ops_decode import PersistentKernel, load


class Unusable:
    def __index__(self):
        raise RuntimeError("no integer")

    def __repr__(self):
        return "Unusable()"


ODD = [
    None, math.nan, math.inf, True, np.int64(3), np.float32(0.5), 1.5, 2**31, 2**63, 2**64, -1, 0,
    1e30, "", "x", b"x", [], [1], {}, np.array([1, 2]), object(), Unusable(),
]  # fmt: skip
KERNEL = [name for name in PersistentKernel.__init__.__kwdefaults__ if name not in ("cache",)]
REQUEST = [
    "max_new_tokens", "logprobs", "temperature", "top_k", "top_p", "min_p", "seed",
    "repetition_penalty", "logit_bias", "typical_p", "xtc_probability", "dry_multiplier",
    "dry_base", "dry_allowed_length", "dry_penalty_last_n", "dry_sequence_breakers",
    "no_such_argument",
]  # fmt: skip
# Names in messages that are not those of the arguments.
CALLED = {"tokens": "prompt", "prompts": "prompt", "request": "there is no request"}


@pytest.fixture(scope="module")
def model(folder):
    options = {"max_seq_length": 48, "max_num_batched_requests": 2}
    with load(folder, "python", **options) as model:
        yield model


def problem(name, value, run):
    """Say what is wrong with how a value is refused; None if it runs, or nothing is."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", BackendFallbackWarning)
            run(value)
    except (TypeError, ValueError, MemoryError) as error:
        words, message = CALLED.get(name, name), str(error)
        return None if words in message else f"{name}={value!r}: {message}"
    except FileNotFoundError as error:
        return None if repr(value) in str(error) else f"{name}={value!r}: {error}"
    except Exception as error:
        return f"{name}={value!r}: {error!r}"
    return None


def problems(name, run):
    return [found for value in ODD if (found := problem(name, value, run)) is not None]


@pytest.mark.parametrize("name", KERNEL)
def test_arguments_of_a_kernel(folder, name):
    given = {"model": folder, "backend": "python", "max_seq_length": 48}

    def make(value):
        PersistentKernel(**given | {name: value}).close()

    if name != "model":
        assert problems(name, make) == []
        given["model"] = None
    # "" is the folder that the tests run in.
    assert [each for each in problems(name, make) if "model=''" not in each] == []


@pytest.mark.parametrize("name", REQUEST)
def test_arguments_of_requests_and_of_generate(model, name):
    def add(value):
        model.kernel.reset()
        model.kernel.add_request([1, 2], **{"max_new_tokens": 2} | {name: value})
        model.kernel.run(2)

    def generate(value):
        model.kernel.reset()
        model.generate("hi", **{"max_new_tokens": 2} | {name: value})

    # So many new tokens are no wrong value, but more than there is room for.
    assert [each for each in problems(name, add) if "new ones are more than" not in each] == []
    assert problems(name, generate) == []


@pytest.mark.parametrize(
    ("name", "call"),
    [
        ("prompts", lambda model, value: model.generate(value, max_new_tokens=1)),
        ("prompts", lambda model, value: model.generate([value], max_new_tokens=1)),
        ("stream", lambda model, value: model.generate("x", max_new_tokens=1, stream=value)),
        ("num_steps", lambda model, value: model.kernel.run(value)),
        ("max_seconds", lambda model, value: model.kernel.run(1, max_seconds=value)),
        ("length", lambda model, value: model.kernel.has_room(value)),
        ("request", lambda model, value: model.kernel.tokens(value)),
        ("request", lambda model, value: model.kernel.finish_reason(value)),
        ("request", lambda model, value: model.kernel.error(value)),
        ("request", lambda model, value: model.kernel.remove(value)),
        (
            "template_variables",
            lambda model, value: model.chat(
                [{"role": "user", "content": "x"}], template_variables=value, max_new_tokens=1
            ),
        ),
    ],
)
def test_arguments_of_methods(model, name, call):
    def run(value):
        model.kernel.reset()
        model.kernel.add_request([1, 2], max_new_tokens=2)
        call(model, value)

    def is_right(message):  # tokens out of the vocabulary are named by themselves
        return name == "prompts" and "tokens must be from 0 to 259" in message

    assert [each for each in problems(name, run) if not is_right(each)] == []


@pytest.mark.parametrize("name", ["path", "progress", "no_such_argument"])
def test_arguments_of_load(folder, name):
    def load_with(value):
        given = {"path": folder, "backend": "python", "max_seq_length": 48}
        load(**given | {name: value}).close()

    assert [each for each in problems(name, load_with) if "path=''" not in each] == []


@pytest.mark.parametrize(
    ("tokens", "message"),
    [
        ([2**64], "got 18446744073709551616"),
        ([1, 2**63], "got 9223372036854775808"),
        ([1, -(2**70)], "got -1180591620717411303424"),
        ([260], "got 260"),
        (np.array([2**63], np.uint64), "got 9223372036854775808"),
    ],
)
def test_tokens_of_any_size_are_named(model, tokens, message):
    with pytest.raises(ValueError, match=f"tokens must be from 0 to 259, {message}"):
        model.kernel.add_request(tokens)
    with pytest.raises(ValueError, match=f"tokens must be from 0 to 259, {message}"):
        model.generate([list(tokens)])


@pytest.mark.parametrize("tokens", [2**31, 2**40, 260, [1, 300]])
def test_end_tokens_are_tokens_of_the_model(folder, tokens):
    with pytest.raises(ValueError, match="eos_token_id must "):
        PersistentKernel(model=folder, backend="python", eos_token_id=tokens)


def test_end_tokens_of_layers_by_hand_are_checked_once_these_are_known():
    with (
        PersistentKernel(backend="python", eos_token_id=256) as kernel,
        pytest.raises(ValueError, match="eos_token_id must have tokens from 0 to 255, got 256"),
    ):
        kernel.compile()


def test_steps_with_odd_sampling_are_refused_on_every_executor(folder, backend, wrap_executables):
    made = wrap_executables(backend, lambda executable: executable)
    with load(folder, backend, max_seq_length=48) as model:
        kernel = model.kernel
        for name, value in (
            ("temperature", math.nan), ("temperature", math.inf), ("temperature", -1),
            ("top_p", 7), ("top_p", math.nan), ("min_p", -0.5), ("top_k", -1),
        ):  # fmt: skip
            request = kernel.add_request([1, 2])
            made[0].arrays[name][0] = value
            with pytest.raises(ValueError, match=rf"{name}\[0\] must be"):
                kernel()
            kernel.remove(request)

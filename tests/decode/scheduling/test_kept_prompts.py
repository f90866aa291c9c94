"""Prompts that are kept in a file: others go on from them, in this process or another."""

import os
import shutil

import numpy as np
import pytest

import tensor_ops_decode
from greedy_models import open_kernel
from small_families import small_model
from tensor_ops import ConfigError
from tensor_ops_decode import Cache, FileFormatError
from tensor_ops_decode.kernel import prompt_file

PAGE, WORDS, NEW = 4, 331, 6
OPTIONS = {"max_num_batched_requests": 2, "max_num_batched_tokens": 24, "page_size": PAGE}
PROMPT = np.random.default_rng(3).integers(0, WORDS, 30).tolist()
FAMILIES = ("Qwen 3", "Gemma 2", "LFM2", "Qwen 3.5", "Granite 4", "Gemma 4", "DeepSeek V3")

pytestmark = pytest.mark.sampled(3, "folder", "backend", "seed")


@pytest.fixture(scope="module", params=FAMILIES, ids=lambda name: name.replace(" ", "-"))
def folder(request, tmp_path_factory):
    made = tmp_path_factory.mktemp("model")
    small_model(request.param).save_pretrained(made)
    return made


@pytest.fixture
def opened(folder, backend):
    """Return a function that opens and compiles a kernel anew."""
    kernels = []

    def opened(model=folder, **options):
        kernels.append(open_kernel(model, **({"backend": backend} | OPTIONS | options)))
        kernels[-1].compile()
        return kernels[-1]

    yield opened
    for kernel in kernels:
        kernel.close()


@pytest.fixture
def path(tmp_path):
    return tmp_path / "prompt"


def answer(kernel, prompt):
    """Return the tokens and the last logits of a request, and how many tokens it shared."""
    request = kernel.add_request(prompt, ignore_eos=True, max_new_tokens=NEW)
    while kernel.requests:
        if request in kernel():
            logits = kernel.logits(request).tolist()
    return kernel.tokens(request), logits, kernel.num_shared(request)


@pytest.mark.parametrize("dtype", ["float32", "int8"])
def test_another_kernel_goes_on_from_a_prompt(opened, path, dtype):
    kernel = opened(cache_dtype=dtype)
    tokens, logits, _ = answer(kernel, [*PROMPT, 7, 8])
    kernel.reset()
    assert kernel.save_prompt(path, PROMPT) == 28
    following = opened(cache_dtype=dtype, max_num_batched_tokens=9, max_seq_length=100)
    assert following.load_prompt(path) == 28
    assert answer(following, [*PROMPT, 7, 8]) == (tokens, logits, 28)


class Watched:
    """An executable that counts its steps."""

    def __init__(self, executable):
        self._executable, self.num_steps = executable, 0

    def __getattr__(self, name):
        return getattr(self._executable, name)

    def run(self, num_tokens, num_selected):
        self.num_steps += 1
        self._executable.run(num_tokens, num_selected)


def test_what_is_known_is_not_computed_again(opened, path, backend, wrap_executables):
    made = wrap_executables(backend, Watched)
    kernel = opened()
    right = answer(kernel, PROMPT)[:2]
    before = made[-1].num_steps
    assert kernel.save_prompt(path, PROMPT[:28]) == 28
    assert made[-1].num_steps == before
    kernel.reset()
    kernel.load_prompt(path)
    assert answer(kernel, PROMPT) == (*right, 28)


def test_requests_in_between_are_not_disturbed(opened, path):
    kernel = opened()
    right = answer(kernel, [5, 6, 7])[0]
    kernel.reset()
    request = kernel.add_request([5, 6, 7], ignore_eos=True, max_new_tokens=NEW)
    kernel()
    kernel.save_prompt(path, PROMPT)
    kernel()
    kernel.load_prompt(path)
    while kernel.requests:
        kernel()
    assert kernel.tokens(request) == right


def test_a_file_of_something_else_is_refused(opened, path, tmp_path, folder):
    opened().save_prompt(path, PROMPT)
    other = tmp_path / "other"
    shutil.copytree(folder, other)
    weights = bytearray((other / "model.safetensors").read_bytes())
    weights[8 + int.from_bytes(weights[:8], "little") + 1] ^= 1  # in the first tensor
    (other / "model.safetensors").write_bytes(weights)
    for expected, kernel in {
        "page_size was '4', and is '8' now": opened(page_size=8),
        "program was": opened(cache_dtype="float16"),
        "weights was": opened(other),
    }.items():
        with pytest.raises(FileFormatError, match=rf"prompt: {expected}.*save the prompt again"):
            kernel.load_prompt(path)
        assert answer(kernel, PROMPT)[2] == 0


def test_a_damaged_file_is_refused(opened, path):
    kernel = opened()
    kernel.save_prompt(path, PROMPT)
    whole = path.read_bytes()
    for place in (3, 40, len(whole) // 2, len(whole) - 1):
        path.write_bytes(whole[:place] + bytes([whole[place] ^ 0x10]) + whole[place + 1 :])
        with pytest.raises(FileFormatError):
            kernel.load_prompt(path)
    for content in (b"", whole[:-5], whole + b"more", b"{}" * 50):
        path.write_bytes(content)
        with pytest.raises(FileFormatError):
            kernel.load_prompt(path)
    path.write_bytes(whole)
    assert kernel.load_prompt(path) == 28


def test_a_file_that_others_can_write_is_refused(opened, path):
    kernel = opened()
    kernel.save_prompt(path, PROMPT)
    os.chmod(path, 0o666)
    with pytest.raises(ConfigError, match="others"):
        kernel.load_prompt(path)


def test_a_file_is_replaced_as_a_whole(opened, path, monkeypatch):
    kernel = opened()
    kernel.save_prompt(path, PROMPT)
    before = path.read_bytes()

    def fail(*given):
        raise OSError("no space left")

    with monkeypatch.context() as patched:
        patched.setattr(prompt_file.os, "replace", fail)
        with pytest.raises(OSError, match="no space left"):
            kernel.save_prompt(path, PROMPT[:9])
    assert [path.read_bytes()] == [each.read_bytes() for each in path.parent.iterdir()]
    assert path.read_bytes() == before
    assert kernel.save_prompt(path, PROMPT[:9]) == 8
    assert kernel.load_prompt(path) == 8


def test_what_cannot_be_kept_is_an_error(opened, path):
    kernel = opened(max_num_pages=8)
    with pytest.raises(ValueError, match="a page has 4 tokens, and the prompt 3"):
        kernel.save_prompt(path, [1, 2, 3])
    with pytest.raises(ValueError, match=f"tokens must be from 0 to {WORDS - 1}, got {WORDS}"):
        kernel.save_prompt(path, [WORDS] * 8)
    kernel.save_prompt(path, PROMPT)
    kernel.add_request([1] * 8, ignore_eos=True)
    kernel()
    kernel()
    with pytest.raises(ValueError, match=r"needs 7 pages, and . are free"):
        kernel.load_prompt(path)
    kernel.reset()
    assert kernel.load_prompt(path) == 28
    with pytest.raises(NotADirectoryError):
        kernel.save_prompt(path / "no folder", PROMPT)


def test_a_model_with_states_needs_a_snapshot(opened, path):
    kernel = opened(max_num_snapshots=0)
    if not kernel.explain().reads.states:
        assert kernel.save_prompt(path, PROMPT) == 28
        return
    with pytest.raises(ValueError, match=r"save_prompt: .* keeps no prompts: .*max_num_snapshots"):
        kernel.save_prompt(path, PROMPT)
    with pytest.raises(ValueError, match=r"load_prompt: .* keeps no prompts"):
        kernel.load_prompt(path)


def test_pages_and_states_of_wrong_numbers_and_sizes_are_refused(opened, backend, wrap_executables):
    made = wrap_executables(backend, Watched)
    kernel = opened()
    executable, limits = made[-1], kernel.program.limits
    row = executable.read_pages([0])
    caches = [each for each in kernel.program.caches.values() if isinstance(each, Cache)]
    assert row.shape == (1, PAGE * sum(each.bytes_per_token for each in caches))
    with pytest.raises(ValueError, match=f"a page must be from 0 to {limits.num_pages - 1}"):
        executable.read_pages([limits.num_pages])
    with pytest.raises(ValueError, match="bytes"):
        executable.write_pages([0], row[:, 1:])
    executable.write_pages([1], row)
    np.testing.assert_array_equal(executable.read_pages([1]), row)
    if kernel.explain().reads.states:
        with pytest.raises(ValueError, match=f"a state must be from 0 to {limits.num_states - 1}"):
            executable.read_state(limits.num_states)


def test_a_model_keeps_texts(backend, tmp_path):
    from byte_models import save_model

    save_model(tmp_path / "model")
    path, text = tmp_path / "prompt", "You are a helpful assistant. Why?"
    with tensor_ops_decode.load(tmp_path / "model", backend) as model:
        (right,) = model.generate(text, max_new_tokens=5, ignore_eos=True)
        assert model.save_prompt(path, text) == 32
    with tensor_ops_decode.load(tmp_path / "model", backend) as model:
        assert model.load_prompt(path) == 32
        (found,) = model.generate(text, max_new_tokens=5, ignore_eos=True)
        assert (found, found.shared_tokens) == (right, 32)

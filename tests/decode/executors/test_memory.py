"""How long sequences may be by default, and what is more than the memory."""

import shutil
import subprocess
import sys
import tracemalloc
from dataclasses import replace

import pytest

import tensor_ops_decode
from byte_models import save_model
from tensor_ops import backends
from tensor_ops.extension import machine
from tensor_ops_decode import reference
from tensor_ops_decode.models import decoder_of
from tensor_ops_decode.models.rope import Rope

CONTEXT, PAGE = 128, 8
# Keys and values of two layers of two heads of 16 in float32, a row of two tables, what edits the
# logits of four requests, and their part of a page's number.
TOKEN = 2 * 2 * 2 * 16 * 4 + 2 * 8 * 4 + 4 * 12 + 4 * 4 // PAGE


@pytest.fixture
def memory(monkeypatch, folder):
    """Return a function that lets the machine have so much memory for caches and their tables."""

    def limit(size, executor=reference, model=folder):
        if size is not None:
            program = open_kernel(model, max_seq_length=1, max_num_pages=1).program
            needed = executor.program_memory(program.to_json())
            size += sum(needed.values()) - needed["caches"]
        limit_memory(monkeypatch, executor, size)

    return limit


def open_kernel(folder, backend="python", **options):
    return tensor_ops_decode.PersistentKernel(
        backend=backend,
        model=folder,
        **{"page_size": PAGE, "max_num_batched_requests": 4} | options,
    )


def limit_memory(monkeypatch, module, size):
    """Let the executables of a module take so many bytes, of the process or of a device."""
    monkeypatch.setattr(machine, "usable_memory", lambda: size)
    if hasattr(module, "program_memory_limit"):
        monkeypatch.setattr(module, "program_memory_limit", lambda: size)


def module_of(backend):
    """Return the module that runs the programs of a backend."""
    return reference if backend == "python" else backends.load(backend).module


def test_memory_that_suffices_leaves_the_model_to_decide(folder, memory):
    memory(2 * 4 * CONTEXT * TOKEN)
    explanation = open_kernel(folder).explain()
    assert explanation.limits.max_seq_length == CONTEXT
    assert explanation.limits.num_pages == 4 * CONTEXT // PAGE
    assert "longest sequence decided by the model" in str(explanation)


def test_requests_share_the_pages_that_memory_has_room_for(folder, memory):
    memory(2 * 150 * TOKEN)
    explanation = open_kernel(folder).explain()
    assert explanation.limits.max_seq_length == CONTEXT
    assert explanation.limits.num_pages == 150 // PAGE


def test_little_memory_makes_sequences_shorter(folder, memory):
    memory(2 * 50 * TOKEN)
    explanation = open_kernel(folder).explain()
    assert explanation.limits.max_seq_length == 48
    assert explanation.limits.num_pages == 6
    assert explanation.length_by == "memory"


def test_a_claim_of_billions_of_positions_is_not_taken_at_its_word(
    tmp_path, memory, backend, runnable
):
    """A kernel takes what was planned, so that it compiles."""
    shutil.copytree(runnable, tmp_path, dirs_exist_ok=True)
    executor = module_of(backend)
    path = tmp_path / "config.json"
    path.write_text(path.read_text("utf-8").replace(" 128,", f" {2**31 - 1},"), "utf-8")
    memory(2**40, executor, runnable)
    explanation = tensor_ops_decode.PersistentKernel(model=tmp_path, backend=backend).explain()
    assert (explanation.limits.max_seq_length, explanation.length_by) == (2**20, "the default")
    memory(2 * 4900 * TOKEN, executor, runnable)
    options = {"max_num_batched_requests": 4, "cache_dtype": "float32"}
    with tensor_ops_decode.load(tmp_path, backend, **options) as model:
        kernel = model.kernel
        assert kernel.explain().length_by == "memory"
        assert 4000 < kernel.program.limits.max_seq_length <= 5000
        taken = kernel.explain().memory
        assert taken == executor.program_memory(kernel.program.to_json())
        assert sum(taken.values()) <= machine.usable_memory()


LIMITED = r"""
import re, resource, sys
import tensor_ops_decode, tensor_ops_decode.text
used = int(re.search(r"VmSize:\s+(\d+) kB", open("/proc/self/status").read())[1])
limit = used * 1024 + 300 * 2**20
resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
kernel = tensor_ops_decode.PersistentKernel(model=sys.argv[1], backend="python")
print(kernel.program.limits.longest, kernel.explain().length_by)
kernel.compile()
try:
    tensor_ops_decode.PersistentKernel(model=sys.argv[1], backend="python", max_seq_length=2**26)
except MemoryError as error:
    print(error)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="other systems do not keep the limit")
def test_the_limit_of_the_address_space_is_heeded(tmp_path):
    save_model(tmp_path)
    path = tmp_path / "config.json"
    path.write_text(path.read_text("utf-8").replace(" 128,", f" {2**31 - 1},"), "utf-8")
    command = [sys.executable, "-c", LIMITED, tmp_path]
    done = subprocess.run(command, capture_output=True, encoding="utf-8", check=False)
    assert done.returncode == 0, done.stderr
    length, error = done.stdout.splitlines()
    assert length.endswith("memory")
    assert 2048 < int(length.split()[0]) < 2**20
    assert "the process may have" in error


@pytest.mark.parametrize(("context", "length", "by"), [(128, 128, "the model"), (9999, 2048, None)])
def test_memory_that_is_unknown_leaves_a_default(tmp_path, memory, context, length, by):
    save_model(tmp_path)
    config = (tmp_path / "config.json").read_text("utf-8")
    (tmp_path / "config.json").write_text(config.replace(" 128,", f" {context},"), "utf-8")
    memory(None)
    explanation = open_kernel(tmp_path).explain()
    assert (explanation.limits.max_seq_length, explanation.length_by) == (
        length,
        by or "the default",
    )


def test_what_is_asked_for_is_had_while_memory_has_room_for_one_request(folder, memory):
    memory(300 * TOKEN)
    explanation = open_kernel(folder, max_seq_length=200).explain()
    assert explanation.limits.max_seq_length == 200
    assert explanation.limits.num_pages == 200 // PAGE
    assert explanation.length_by == "max_seq_length"
    assert open_kernel(folder, max_num_pages=30).explain().limits.num_pages == 30


@pytest.mark.parametrize("options", [{"max_seq_length": 10**9}, {"max_num_pages": 10**9}])
def test_more_than_the_memory_is_an_error_that_says_how_much_for_what(folder, options):
    with pytest.raises(MemoryError) as caught:
        open_kernel(folder, **{"max_seq_length": 10**9} | options)
    message = str(caught.value)
    assert "needs at least" in message
    assert "rotary tables 64000000000" in message
    assert "give a smaller max_seq_length" in message


def test_the_stand_in_says_it_too_before_anything_is_allocated():
    kernel = tensor_ops_decode.PersistentKernel(backend="python", max_seq_length=10**9)
    with pytest.raises(MemoryError, match=r"caches \d{13}, rotary tables \d{11}\).*10{9}"):
        kernel.compile()


def test_a_model_with_two_rotations_has_the_sequences_of_the_short_one(folder):
    decoder = decoder_of(tensor_ops_decode.open_weights(folder))
    assert decoder.usual_context == CONTEXT
    both = Rope((1.0,), 1.0, long_frequencies=(0.5,), short_length=32)
    assert replace(decoder, ropes=(both, both)).usual_context == 32


@pytest.mark.parametrize("cache_dtype", ["float32", "float16", "int8"])
@pytest.mark.parametrize("page_size", [1, 4, 16, 24])
def test_what_is_planned_is_what_is_taken(runnable, backend, cache_dtype, page_size, monkeypatch):
    options = {"cache_dtype": cache_dtype, "page_size": page_size, "num_workers": 3}
    options |= {"max_seq_length": 50, "max_num_batched_tokens": 20}
    options["max_num_pages"] = 60  # else there would be fewer where memory is short
    text = open_kernel(runnable, **options).program.to_json()
    reason = module_of(backend).supports_program(text)
    if reason is not None:
        assert cache_dtype in reason
        pytest.skip(reason)
    options["backend"] = backend
    with open_kernel(runnable, **options) as kernel:
        planned = module_of(backend).program_memory(text, num_workers=3)
        kernel.compile()
        assert kernel.explain().memory == planned
        taken = sum(planned.values())
    limit_memory(monkeypatch, module_of(backend), taken)
    with open_kernel(runnable, **options) as kernel:
        kernel.compile()
    limit_memory(monkeypatch, module_of(backend), taken - 1)
    expected = rf"needs at least {taken} bytes .*caches \d+.* may have {taken - 1};"
    with pytest.raises(MemoryError, match=expected):
        open_kernel(runnable, **options)


def test_options_are_heeded_by_what_is_planned(runnable, backend):
    module = module_of(backend)
    chosen = {"python": {"dtype": "float64"}, "cpp": {"activations": "float32"}}.get(backend)
    program = open_kernel(runnable, max_seq_length=50, quantize="q8_0").program.to_json()
    planned = [module.program_memory(program, options=each) for each in (None, chosen)]
    assert (planned[0] == planned[1]) == (chosen is None)
    for wrong in ({"dtype": "int3"}, {"activations": "int3"}):
        with pytest.raises(ValueError, match=r"'float32'|valid: activations"):
            module.program_memory(program, options=wrong)


def test_the_reference_takes_what_it_says(folder):
    """A tensor that several nodes share is kept once, and counted once."""
    kernel = open_kernel(folder, max_seq_length=4096, max_num_batched_tokens=8, quantize="q8_0")
    tracemalloc.start()
    try:
        kernel.compile()
        taken = tracemalloc.get_traced_memory()[0]
    finally:
        tracemalloc.stop()
    assert sum(kernel.explain().memory.values()) == pytest.approx(taken, rel=0.05)
    kernel.close()


def test_a_size_beyond_any_memory_is_a_memory_error(runnable, backend):
    large = {"max_seq_length": 2**31 - 1, "max_num_batched_requests": 2**12}
    with pytest.raises(MemoryError):
        open_kernel(runnable, backend, **large, max_num_batched_tokens=2**12)


def test_an_executor_that_does_not_say_is_counted_with_what_any_needs(folder, monkeypatch):
    monkeypatch.delattr(reference, "program_memory")
    caches = 2 * 2 * 7 * PAGE * 2 * 16 * 4
    monkeypatch.setattr(machine, "usable_memory", lambda: caches)
    expected = rf"weights \d+, caches {caches}, rotary tables 3200, arrays \d+\)"
    with pytest.raises(MemoryError, match=expected):
        open_kernel(folder, max_seq_length=50, max_num_pages=7)


def test_an_executor_with_memory_of_its_own_is_asked_for_it(folder, monkeypatch):
    with open_kernel(folder) as kernel:
        program = kernel.program
    needed = reference.program_memory(program.to_json())
    monkeypatch.setattr(machine, "usable_memory", lambda: 1)  # the process has no room
    own = 2 * sum(needed.values())
    monkeypatch.setattr(reference, "program_memory_limit", lambda: own, raising=False)
    assert open_kernel(folder).explain().limits == program.limits
    own = sum(needed.values()) - needed["caches"] + 2 * 150 * TOKEN
    assert open_kernel(folder).explain().limits.num_pages < program.limits.num_pages
    own = 10_000
    with pytest.raises(MemoryError, match="the device of 'python' may have 10000;"):
        open_kernel(folder, max_seq_length=50, max_num_pages=7)

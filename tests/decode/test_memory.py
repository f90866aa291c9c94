"""How long sequences may be by default, and what is more than the memory."""

import subprocess
import sys
from dataclasses import replace

import pytest

import tensor_ops_decode
from byte_models import save_model
from tensor_ops.extension import machine
from tensor_ops_decode.memory_plan import memory_of
from tensor_ops_decode.models import decoder_of
from tensor_ops_decode.models.rope import Rope

CONTEXT, PAGE = 128, 8
# Keys and values of two layers of two heads of 16 in float32, a row of two tables, and what edits
# the logits of four requests.
TOKEN = 2 * 2 * 2 * 16 * 4 + 2 * 8 * 4 + 4 * 12


@pytest.fixture
def memory(monkeypatch, folder):
    """Return a function that lets the machine have so much memory for caches and their tables."""
    needed = memory_of(open_kernel(folder, max_seq_length=1).program)

    def limit(size):
        size = None if size is None else needed["weights"] + needed["arrays"] + size
        monkeypatch.setattr(machine, "usable_memory", lambda: size)

    return limit


def open_kernel(folder, **options):
    return tensor_ops_decode.PersistentKernel(
        backend="python", model=folder, page_size=PAGE, max_num_batched_requests=4, **options
    )


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


def test_a_claim_of_billions_of_positions_is_not_taken_at_its_word(tmp_path, memory, backend):
    """What a kernel takes is what was planned, so that it compiles."""
    save_model(tmp_path)
    path = tmp_path / "config.json"
    path.write_text(path.read_text("utf-8").replace(" 128,", f" {2**31 - 1},"), "utf-8")
    memory(2**40)
    explanation = tensor_ops_decode.PersistentKernel(model=tmp_path, backend=backend).explain()
    assert (explanation.limits.max_seq_length, explanation.length_by) == (2**20, "the default")
    memory(2 * 5000 * TOKEN)
    with tensor_ops_decode.load(tmp_path, backend, max_num_batched_requests=4) as model:
        kernel = model.kernel
        assert kernel.explain().length_by == "memory"
        assert 4000 < kernel.program.limits.max_seq_length <= 5000
        needed = memory_of(kernel.program)
        taken = kernel.explain().memory
        assert sum(needed.values()) <= machine.usable_memory()
        assert taken["caches"] <= needed["caches"]


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

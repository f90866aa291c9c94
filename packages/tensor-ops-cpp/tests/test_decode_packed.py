"""Packed weights that are kept: written by one executable, read in place by others."""

import gc
import hashlib
import json

import numpy as np
import pytest
from decode_llama import WORDS, Llama, run_alone
from weight_blocks import BLOCKS, NUMBERS

import tensor_ops_cpp

TOKENS = np.random.default_rng(5).integers(0, WORDS, 30)
LLAMA = Llama(formats=("q4_K", "q8_0", "f16"))
TABLES = ("cos", "sin", "embedding")
# Digests of a weight of each format in the layout that kTileLayout numbers: where the tiles of a
# format change, raise that number and put the new digest here, or kept files would be read wrongly.
DIGESTS = {
    "bf16": "0a03b9314d2ec992",
    "f8_e4m3": "93e4b68007d4f5f1",
    "f16": "49cd8d6e0416a429",
    "f32": "e3803a4ad075ee3a",
    "iq2_s": "906338103cbc4345",
    "iq2_xs": "ebaad53b1d4379af",
    "iq2_xxs": "6a5fd2acd8f4c0e1",
    "iq3_s": "c68ee242c045337d",
    "iq3_xxs": "4133f0f41dc5ed9a",
    "iq4_nl": "6e4e9290dfb924c4",
    "iq4_xs": "2ad34a2b53638f9c",
    "mxfp4": "0ab14dc4827ce4a6",
    "nvfp4": "d15d801de59918ae",
    "q2_K": "0aab652d14bd4c23",
    "q3_K": "606ae16f3a209a6f",
    "q4_0": "6e4e9290dfb924c4",
    "q4_1": "7657522fdda7fea4",
    "q4_K": "9f9989730e6929f1",
    "q4_zp": "1272a3acd3a22764",
    "q5_0": "2720718f72ee420e",
    "q5_1": "fb71795dd6ab2a84",
    "q5_K": "76ebf977a1c61e25",
    "q6_K": "926955e7b63cddba",
    "q8_0": "7664501d386dc175",
    "tq1_0": "82efe024dc958469",
    "tq2_0": "6a4129ec1f7a7820",
}


def bits(executable):
    return run_alone(executable, TOKENS, 4)[0].tobytes()


def packed_weights(executable):
    data = b"".join(executable.packed())
    assert len(data) == executable.packed_size
    # At an address as kept files have it in memory.
    memory = np.zeros(executable.packed_size + 64, np.uint8)
    start = -memory.ctypes.data % 64
    memory[start : start + executable.packed_size] = np.frombuffer(data, np.uint8)
    return memory[start : start + executable.packed_size]


def without_matrices():
    slots = {
        name
        for node in LLAMA.program["nodes"]
        for slot, names in node["weights"].items()
        if slot == "weight" and node["kind"] not in ("embed", "rms_norm")
        for name in names
    }
    return {name: tensor for name, tensor in LLAMA.tensors.items() if name not in slots}


@pytest.mark.parametrize("size", [1, 63, 64, 1000, 2**20, 3 * 2**20 + 77])
def test_other_bytes_have_another_checksum(size):
    data = np.random.default_rng(size).integers(0, 256, size, np.uint8)
    places = sorted({0, size - 1, *np.random.default_rng(1).integers(0, size, 40).tolist()})
    numbers = [tensor_ops_cpp.packed_checksum(data, num_workers=each) for each in (1, 3)]
    assert numbers[0] == numbers[1]
    for place in places:
        data[place] ^= 0x80
        numbers.append(tensor_ops_cpp.packed_checksum(data))
        data[place] ^= 0x80
    numbers += [tensor_ops_cpp.packed_checksum(data[:-1].copy())]
    numbers += [tensor_ops_cpp.packed_checksum(np.append(data, np.uint8(0)))]
    assert len(set(numbers)) == len(numbers) - 1


def test_changes_that_sums_do_not_see_have_another_checksum():
    """Signs that change in pairs, and pieces that change places."""
    data = np.random.default_rng(3).integers(0, 256, 3 * 2**20, np.uint8)
    expected = tensor_ops_cpp.packed_checksum(data)
    for first, second, size in ((7, 71, 1), (64, 128, 64), (0, 2**20, 2**20)):
        other = data.copy()
        other[first : first + size], other[second : second + size] = (
            data[second : second + size] ^ 0x80,
            data[first : first + size] ^ 0x80,
        )
        assert tensor_ops_cpp.packed_checksum(other) != expected
        other[first : first + size] ^= 0x80
        other[second : second + size] ^= 0x80
        assert tensor_ops_cpp.packed_checksum(other) != expected
    assert tensor_ops_cpp.packed_checksum(data) == expected


def test_a_checksum_is_of_a_vector_of_bytes():
    for wrong in (np.zeros(4, np.float32), np.zeros((2, 2), np.uint8), np.zeros(8, np.uint8)[::2]):
        with pytest.raises(TypeError, match="packed_checksum: packed must be a contiguous vector"):
            tensor_ops_cpp.packed_checksum(wrong)
    with pytest.raises(ValueError, match=r"^num_workers must be from 1 to"):
        tensor_ops_cpp.packed_checksum(np.zeros(4, np.uint8), num_workers=0)


@pytest.mark.parametrize("num_workers", [1, 3, 5])
def test_any_number_of_threads_reads_what_any_wrote(num_workers):
    with_two = LLAMA.compile(num_workers=2)
    packed = packed_weights(with_two)
    packed.flags.writeable = False
    made = tensor_ops_cpp.compile_program(
        json.dumps(LLAMA.program), without_matrices(), num_workers=num_workers, packed=packed
    )
    assert made.memory["mapped weights"] == len(packed)
    assert made.memory["weights"] + len(packed) == with_two.memory["weights"]
    assert bits(made) == bits(with_two)
    assert np.array_equal(packed_weights(made), packed)
    assert made.read_bandwidth() > 0
    with_two.close()
    made.close()


def test_packed_weights_live_as_long_as_the_executable():
    expected = LLAMA.compile()
    made = tensor_ops_cpp.compile_program(
        json.dumps(LLAMA.program), without_matrices(), packed=packed_weights(expected)
    )
    assert bits(made) == bits(expected)
    made.close()


@pytest.mark.parametrize(
    ("change", "error", "message"),
    [
        (lambda p: p[:-64], ValueError, r"packed must have the \d+ bytes .* got \d+$"),
        (lambda p: np.r_[p, p], ValueError, r"packed must have the \d+ bytes"),
        (lambda p: np.r_[np.uint8(0), p][1:], ValueError, "packed must begin at a multiple of 64"),
        (lambda p: p.view(np.int8), TypeError, "packed must be a contiguous vector of uint8"),
        (lambda p: p[::2], TypeError, "packed must be a contiguous vector of uint8"),
        (lambda p: p[np.newaxis], TypeError, "packed must be a contiguous vector of uint8"),
        (lambda p: p.tolist()[:8], TypeError, "packed must be a contiguous vector of uint8"),
    ],
)
def test_other_bytes_are_refused(change, error, message):
    packed = packed_weights(LLAMA.compile())
    with pytest.raises(error, match=message):
        LLAMA.compile(packed=change(packed))


@pytest.mark.parametrize("is_mapped", [False, True])
def test_parts_outlive_the_executable(is_mapped):
    made = LLAMA.compile()
    if is_mapped:
        made = LLAMA.compile(packed=packed_weights(made))
    parts, data = made.packed(), packed_weights(made).tobytes()
    made.close()
    with pytest.raises(RuntimeError, match="packed: the executable is closed"):
        made.packed()
    del made
    gc.collect()
    assert b"".join(parts) == data
    with pytest.raises(ValueError, match="read-only"):
        parts[0][0] = 0


def test_the_layout_tells_formats_and_shapes():
    layouts = {
        tensor_ops_cpp.packed_layout(json.dumps(llama.program))
        for llama in (LLAMA, Llama(), Llama(formats=("q4_K", "q8_0", "bf16")))
    }
    assert len(layouts) == 3
    assert all(layout.startswith("tiles 1 of 16 rows: ") for layout in layouts)
    longer = {**LLAMA.program, "limits": {**LLAMA.program["limits"], "num_pages": 161}}
    assert tensor_ops_cpp.packed_layout(json.dumps(longer)) in layouts
    with pytest.raises(ValueError, match="program must be an object"):
        tensor_ops_cpp.packed_layout("[]")


@pytest.mark.parametrize("name", sorted(DIGESTS))
def test_tiles_are_those_that_kept_files_have(name):
    llama = Llama(formats=(name, "f32"))
    for weight in llama.tensors.values():
        data = weight.reshape(-1).view(np.uint8)
        data[:] = np.arange(data.size) * 7 % 251
    made = llama.compile(num_workers=1)
    assert hashlib.sha256(packed_weights(made)).hexdigest()[:16] == DIGESTS[name]
    made.close()


def test_every_format_has_a_digest():
    assert DIGESTS.keys() == BLOCKS.keys() | NUMBERS.keys()

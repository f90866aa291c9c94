"""Packed weights that were kept, with any damage: the first logits are those of the whole file.

A file that is damaged is written again with a warning. Only damage that changes nothing of what is
read, such as of a space in the header, is mapped without a word.
"""

import tempfile
import warnings
from pathlib import Path

import numpy as np
from choices import Choices
from model_bytes import replace

from tensor_ops import PersistentKernel
from tensor_ops_decode.weights.safetensors import header_of, open_safetensors

__all__ = ["RUNS", "try_input"]

RUNS = 100  # of test_found.py
SEEDS = [bytes([way, 3, 200, 7, 99, 1, 2, 3, 4]) for way in range(8)]
CONFIG = """{"model_type": "llama", "architectures": ["LlamaForCausalLM"], "hidden_size": 32,
"intermediate_size": 32, "num_hidden_layers": 1, "num_attention_heads": 2, "vocab_size": 32,
"num_key_value_heads": 1, "max_position_embeddings": 32, "rms_norm_eps": 1e-5,
"eos_token_id": 3, "rope_theta": 10000.0, "hidden_act": "silu", "tie_word_embeddings": true}"""
LAYER = {
    "input_layernorm": (32,), "post_attention_layernorm": (32,), "self_attn.q_proj": (32, 32),
    "self_attn.k_proj": (16, 32), "self_attn.v_proj": (16, 32), "self_attn.o_proj": (32, 32),
    "mlp.gate_proj": (32, 32), "mlp.up_proj": (32, 32), "mlp.down_proj": (32, 32),
}  # fmt: skip
SHAPES = {"model.embed_tokens.weight": (32, 32), "model.norm.weight": (32,)}
SHAPES |= {f"model.layers.0.{name}.weight": shape for name, shape in LAYER.items()}


def _save(folder, seed):
    folder.mkdir()
    draw = np.random.default_rng(seed)
    arrays = {name: draw.standard_normal(shape, np.float32) for name, shape in SHAPES.items()}
    sizes = {name: ("F32", each.shape, each.nbytes) for name, each in arrays.items()}
    data = b"".join(each.tobytes() for each in arrays.values())
    (folder / "model.safetensors").write_bytes(header_of({}, sizes) + data)
    (folder / "config.json").write_text(CONFIG, encoding="utf-8")


def _first_logits(model, cache):
    """Return the bits of the first logits, and what was done about the file."""
    kernel = PersistentKernel(
        model=model, backend="cpp", cache=cache, quantize="q4_0", num_workers=1
    )
    try:
        kernel.compile()
        request = kernel.add_request([1, 2, 5], max_new_tokens=1, ignore_eos=True)
        kernel()
        return kernel.logits(request).tobytes(), kernel.explain().packed_file[:10]
    finally:
        kernel.close()


_folder = tempfile.TemporaryDirectory(prefix="fuzz-packed-files-")
MODELS = [Path(_folder.name, name) for name in ("model", "other")]
WHOLE = []
for _seed, _model in enumerate(MODELS):
    _save(_model, _seed)
    _kept = _model.with_suffix(".kept")
    _kept.mkdir()
    _expected = _first_logits(_model, _kept)[0]
    (_file,) = _kept.iterdir()
    WHOLE.append((_file, _file.read_bytes(), _expected))
FILE, DATA, EXPECTED = WHOLE[0]
OTHER = WHOLE[1][1]
assert len(OTHER) == len(DATA)
assert WHOLE[1][2] != EXPECTED
TENSORS = [(each.offset, each.size) for each in open_safetensors(FILE)[0].values()]
BEGIN = min(offset for offset, _ in TENSORS)
HEADER = len(DATA[:BEGIN].rstrip())


def try_input(data):
    damaged = _damaged(Choices(data))
    replace(FILE, damaged)
    with warnings.catch_warnings(record=True) as warned:
        warnings.simplefilter("always")
        logits, what = _first_logits(MODELS[0], FILE.parent)
    assert logits == EXPECTED
    if what == "mapped fro":
        assert damaged[BEGIN:] == DATA[BEGIN:]
        assert not warned
    else:
        assert what == "written to"
        assert FILE.read_bytes() == DATA
        assert all("cannot be used; the model is packed again" in str(w.message) for w in warned)
        # Only a file that says that it is of another model, or of an older layout, has no warning.
        assert warned or damaged[:BEGIN] != DATA[:BEGIN]


def _damaged(choices):
    damaged = bytearray(DATA)
    for _ in range(1 + choices.below(3)):
        way, place = choices.below(8), _place(choices, len(damaged))
        length = 1 + choices.below(64)
        if way == 0:
            damaged[place] ^= 1 << choices.below(8)
        elif way == 1:
            damaged[place : place + length] = choices.rest()[:length]
        elif way == 2:
            del damaged[place:]
        elif way == 3:
            damaged += bytes(length)
        elif way == 4:  # what another model has there
            damaged[place : place + length] = OTHER[place : place + length]
        elif way == 5:  # pieces that change places
            other = _place(choices, len(damaged))
            first, second = damaged[place : place + length], damaged[other : other + length]
            damaged[place : place + len(second)] = second
            damaged[other : other + len(first)] = first
        elif way == 6:
            damaged[BEGIN:] = OTHER[BEGIN:]
        else:
            damaged[place : place + length] = bytes(length)
        if not damaged:
            break
    return bytes(damaged)


def _place(choices, size):
    """Return a place of the header as often as one of the tensors."""
    number = choices.below(65536)
    return min(number % HEADER if choices.below(2) else BEGIN + number, size - 1)

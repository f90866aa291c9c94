"""Models of every family against transformers: the same greedy tokens, from both kinds of files."""

import copy
import json

import numpy as np
import pytest
import torch
from safetensors.numpy import load_file, save_file

from gguf_models import write_gguf
from greedy_models import assert_same, expected, greedy, open_kernel
from small_families import MODELS, ONLY_SAFETENSORS, small_model

PROMPT_LENGTHS = (3, 17)
MLPS = ("mlp", "block_sparse_moe", "feed_forward", "shared_mlp")


@pytest.fixture(scope="module", params=MODELS, ids=lambda name: name.replace(" ", "-"))
def model(request, tmp_path_factory):
    """A folder and a GGUF file of the same model, prompts, and what transformers says to them."""
    model = small_model(request.param)
    folder, prompts = tmp_path_factory.mktemp("model"), some_prompts()
    files = saved(model, folder, is_gguf_too=request.param not in ONLY_SAFETENSORS)
    return files, prompts, [expected(model, prompt) for prompt in prompts]


def saved(model, folder, dtype=torch.float32, *, is_gguf_too=True):
    copy.deepcopy(model).to(dtype).save_pretrained(folder)
    if not is_gguf_too:
        return (folder,)
    write_gguf(model, folder / "model.gguf")
    return folder, folder / "model.gguf"


def some_prompts():
    draw = np.random.default_rng(7)
    return [draw.integers(0, 331, length).tolist() for length in PROMPT_LENGTHS]


@pytest.mark.sampled(2, "model", "backend")
def test_greedy_tokens_are_those_of_transformers(model, backend):
    files, prompts, right = model
    for file in files:
        with open_kernel(file, backend=backend) as kernel:
            kernel.compile()
            assert_same(greedy(kernel, prompts), right)


@pytest.mark.sampled(2, "backend")
def test_alone_and_together_bits_are_the_same(model, backend):
    (folder, *_), prompts, _ = model
    with open_kernel(folder, backend=backend) as kernel:
        kernel.compile()
        together = greedy(kernel, prompts)
    with open_kernel(folder, backend=backend, max_num_batched_tokens=3) as kernel:
        kernel.compile()
        alone = greedy(kernel, prompts[1:])
    assert alone[0][0] == together[1][0]
    assert np.array_equal(alone[0][1], together[1][1])


def test_only_attention_of_the_last_layer_is_of_all_tokens(model):
    (folder, *_), _, _ = model
    with open_kernel(folder, backend="python") as kernel:
        program = kernel.program
    of_all = [
        matrix
        for node in program.nodes
        for matrix in node.weights.get("weight", ())
        if {program.values[value].rows for value in node.outputs.values()} == {"tokens"}
    ]
    last = max(int(name.split(".")[2]) for name in of_all if ".layers." in name)
    in_last = {name.split(".")[3] for name in of_all if f".layers.{last}." in name}
    attention = {"input_layernorm", "self_attn", "post_attention_layernorm"}
    # What these have instead of attention changes a state at each token.
    assert in_last <= {*attention, "operator_norm", "conv", "linear_attn", "mamba"}
    mlps = [f".layers.{last}.{name}." for name in MLPS]
    assert any(mlp in name for name in program.tensors for mlp in mlps)


def longrope(**factors):
    return {
        "original_max_position_embeddings": 96,
        "rope_parameters": {
            "rope_type": "longrope",
            "rope_theta": 10000.0,
            "partial_rotary_factor": 0.5,
            "short_factor": [1.0, 1.1, 1.3],
            "long_factor": [1.5, 2.5, 4.0],
            **factors,
        },
    }


@pytest.mark.parametrize(("max_seq_length", "which"), [(96, "short_factor"), (128, "long_factor")])
def test_the_longest_sequence_chooses_the_factors_of_longrope(
    tmp_path, backend, max_seq_length, which
):
    files = saved(small_model("Phi 3", **longrope()), tmp_path)
    # transformers changes from one to the other on the way, so it is given the same twice.
    factors = longrope()["rope_parameters"][which]
    model = small_model("Phi 3", **longrope(short_factor=factors, long_factor=factors))
    right = [expected(model, prompt) for prompt in some_prompts()]
    for file in files:
        with open_kernel(file, backend=backend, max_seq_length=max_seq_length) as kernel:
            kernel.compile()
            assert_same(greedy(kernel, some_prompts()), right)


def test_norms_stored_in_bfloat16_have_one_added_in_float32(tmp_path, backend):
    model = small_model("Gemma 2")
    for parameter in model.parameters():
        parameter.data = parameter.data.bfloat16().float()
    right = [expected(model, prompt) for prompt in some_prompts()]
    folder, *_ = saved(model, tmp_path, torch.bfloat16)
    with open_kernel(folder, backend=backend, cache_dtype="float32") as kernel:
        kernel.compile()
        assert {tensor.type for tensor in kernel.program.tensors.values()} == {"f32", "bf16"}
        assert_same(greedy(kernel, some_prompts()), right)


def test_gpt_oss_in_the_blocks_of_its_folder(tmp_path, backend):
    model = small_model("gpt-oss", hidden_size=64, intermediate_size=32)
    model.save_pretrained(tmp_path)
    tensors = load_file(tmp_path / "model.safetensors")
    for name, parameter in model.named_parameters():
        if not name.endswith(("experts.gate_up_proj", "experts.down_proj")):
            continue
        matrices = parameter.detach().swapaxes(1, 2).contiguous()
        blocks, scales = blocks_and_scales(matrices.numpy())
        tensors |= {f"{name}_blocks": blocks, f"{name}_scales": scales}
        del tensors[name]
        # What transformers has on a CPU.
        values = np.stack([MXFP4[blocks & 15], MXFP4[blocks >> 4]], axis=-1)
        values = np.ldexp(values.reshape(*scales.shape, 32), scales[..., None].astype(int) - 127)
        values = torch.from_numpy(values.reshape(matrices.shape).astype(np.float32))
        parameter.data = values.swapaxes(1, 2).contiguous()
    save_file(tensors, tmp_path / "model.safetensors")
    config = json.loads((tmp_path / "config.json").read_text(encoding="utf-8"))
    config["quantization_config"] = {"quant_method": "mxfp4"}
    (tmp_path / "config.json").write_text(json.dumps(config), encoding="utf-8")
    right = [expected(model, prompt, 16) for prompt in some_prompts()]
    options = {"activations": "float32"} if backend == "cpp" else {}
    with open_kernel(tmp_path, backend=backend, cache_dtype="float32", **options) as kernel:
        kernel.compile()
        assert "mxfp4" in {tensor.type for tensor in kernel.program.tensors.values()}
        assert_same(greedy(kernel, some_prompts(), 16), right)


MXFP4 = np.array([0, 0.5, 1, 1.5, 2, 3, 4, 6, -0.0, -0.5, -1, -1.5, -2, -3, -4, -6])


def blocks_and_scales(values):
    """Return values rounded to MXFP4 as a folder has them: pairs of neighbours, and exponents."""
    blocks = values.reshape(*values.shape[:-1], -1, 32)
    exponents = np.floor(np.log2(np.abs(blocks).max(axis=-1))).astype(int) - 2
    scaled = np.ldexp(blocks, -exponents[..., None])
    codes = np.abs(scaled[..., None] - MXFP4).argmin(axis=-1).astype(np.uint8)
    return codes[..., ::2] | codes[..., 1::2] << 4, (exponents + 127).astype(np.uint8)

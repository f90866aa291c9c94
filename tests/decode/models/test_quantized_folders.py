"""Folders quantized to FP8, by GPTQ and by AWQ: the tokens of transformers with what they mean."""

import functools
import json

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file
from transformers import AutoModelForCausalLM

from exported_models import LIMITS, Driver, export, words
from greedy_models import assert_same, expected, greedy, open_kernel
from quantized_folders import awq, fp8, gptq, write_quantized
from small_families import small_model
from tensor_ops_decode.weights import FileFormatError, open_weights

PROMPTS = [[3, 200, 17], list(range(40, 57))]
NEW_TOKENS = 24
SIZES = {"hidden_size": 128, "intermediate_size": 192, "head_dim": 32}
Q = "model.layers.0.self_attn.q_proj.weight"
FP8 = {"quant_method": "fp8", "fmt": "e4m3", "weight_block_size": [128, 128]}
GPTQ = {"quant_method": "gptq", "bits": 4, "group_size": 64, "desc_act": False}
AWQ = {"quant_method": "awq", "bits": 4, "zero_point": True, "version": "gemm"}


def compressed(strategy, **more):
    weights = {"num_bits": 8, "type": "float", "symmetric": True, "strategy": strategy, **more}
    groups = {"group_0": {"targets": ["Linear"], "weights": weights}}
    return {
        "quant_method": "compressed-tensors",
        "format": "float-quantized",
        "config_groups": groups,
        "kv_cache_scheme": None,
    }


def of_scales(**options):
    return functools.partial(fp8, ending="_scale", scale_dtype=torch.bfloat16, **options)


# What config.json says, what makes tensors like that, and the types that weights have here.
METHODS = {
    "FP8 in blocks": (FP8, fp8, {"f8_e4m3"}),
    "FP8 in small blocks": (
        FP8 | {"weight_block_size": [48, 64]},
        functools.partial(fp8, block=(48, 64)),
        {"f8_e4m3"},
    ),
    "FP8 of a tensor": (compressed("tensor"), of_scales(block=(None, None)), {"f8_e4m3"}),
    "FP8 of a channel": (compressed("channel"), of_scales(block=(1, None)), {"f8_e4m3"}),
    "FP8 of a block": (
        compressed("block", block_structure=[64, 128]),
        of_scales(block=(64, 128)),
        {"f8_e4m3"},
    ),
    "GPTQ": (GPTQ | {"checkpoint_format": "gptq"}, gptq, {"q4_zp"}),
    "GPTQ of version 2": (
        GPTQ | {"checkpoint_format": "gptq_v2"},
        functools.partial(gptq, version=2),
        {"q4_zp"},
    ),
    "GPTQ of version 2, under another name": (
        GPTQ | {"format": "GPTQ_V2"},
        functools.partial(gptq, version=2),
        {"q4_zp"},
    ),
    "FP8 with powers of two": (
        FP8 | {"scale_fmt": "ue8m0"},
        functools.partial(fp8, scale_dtype=torch.float8_e8m0fnu),
        {"f8_e4m3"},
    ),
    "GPTQ, centred": (GPTQ, functools.partial(gptq, is_centred=True), {"q4_0"}),
    "GPTQ in one group": (
        GPTQ | {"group_size": -1},
        functools.partial(gptq, group=None),
        {"q4_zp"},
    ),
    "AWQ": (AWQ, awq, {"q4_zp"}),
    "AWQ in small groups": (AWQ | {"group_size": 32}, functools.partial(awq, group=32), {"q4_zp"}),
}
FAMILIES = {
    "Qwen 3": SIZES | {"tie_word_embeddings": True},
    "Qwen 3 MoE": SIZES | {"moe_intermediate_size": 64},
    "GLM 4.7 Flash": SIZES
    | {"head_dim": 32, "moe_intermediate_size": 64, "q_lora_rank": 64, "kv_lora_rank": 64}
    | {"qk_nope_head_dim": 32, "qk_rope_head_dim": 32, "v_head_dim": 32},
}


def quantized(tmp_path, family, method):
    """Return a folder, what its tensors mean, and the model that transformers has of that."""
    quantization, convert, _ = METHODS[method]
    folder, meant = tmp_path / "quantized", tmp_path / "meant"
    for path in (folder, meant):
        small_model(family, **FAMILIES[family]).save_pretrained(path)
    tensors = write_quantized(folder, meant, quantization, convert)
    return folder, tensors, AutoModelForCausalLM.from_pretrained(meant, dtype=torch.float32)


def options_of(backend):
    options = {"activations": "float32"} if backend == "cpp" else {}
    return options | {"backend": backend, "cache_dtype": "float32"}


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("method", METHODS)
@pytest.mark.sampled(2, "backend", "family", "method")
def test_tokens_are_those_of_transformers(tmp_path, backend, family, method):
    folder, _, model = quantized(tmp_path, family, method)
    right = [expected(model, prompt, NEW_TOKENS) for prompt in PROMPTS]
    with open_kernel(folder, **options_of(backend)) as kernel:
        kernel.compile()
        types = {tensor.type for tensor in kernel.program.tensors.values()}
        assert types - {"f32"} == METHODS[method][2]
        assert_same(greedy(kernel, PROMPTS, NEW_TOKENS), right)


@pytest.mark.parametrize("method", METHODS)
def test_weights_are_exactly_what_the_folder_means(tmp_path, method):
    folder, meant, _ = quantized(tmp_path, "Qwen 3", method)
    weights = open_weights(folder)
    assert set(weights.names) == set(meant)
    for name, values in meant.items():
        assert weights.header(name).shape == tuple(values.shape)
        assert np.array_equal(weights.tensor(name).values(), values.float().numpy())


@pytest.mark.parametrize("method", ["FP8 in blocks", "GPTQ", "AWQ"])
def test_kept_weights_and_an_exported_model_say_the_same(tmp_path, cpp, driver_program, method):
    folder, _, _ = quantized(tmp_path, "Qwen 3", method)
    options = options_of(cpp) | LIMITS
    found = []
    for _ in range(2):
        with open_kernel(folder, **options, cache=tmp_path) as kernel:
            kernel.compile()
            found.append(greedy(kernel, PROMPTS, NEW_TOKENS))
    assert len(list(tmp_path.glob("quantized.*.safetensors"))) == 1
    for (tokens, logits), (again, same_logits) in zip(*found, strict=True):
        assert tokens == again
        assert np.array_equal(logits, same_logits)
    del options["backend"]
    exported = export(folder, tmp_path / "exported", **options)
    lines = [words("open", exported, 2)]
    for index, prompt in enumerate(PROMPTS):
        lines += ["sequence", words("append", index, *prompt)]
    said = Driver(driver_program)(*lines, f"generate {NEW_TOKENS} 0 1")[-1]
    assert said == " ".join(f"{words(*tokens)} ;" for tokens, _ in found[0])


def changed(folder, change):
    """Change the tensors of a folder, and open it."""
    tensors = load_file(folder / "model.safetensors")
    change(tensors)
    save_file(tensors, folder / "model.safetensors")
    return open_weights(folder)


def test_nan_of_e4m3_makes_its_block_nan(tmp_path):
    folder, meant, _ = quantized(tmp_path, "Qwen 3", "FP8 in blocks")
    weights = changed(folder, lambda found: found[Q].view(torch.uint8)[3, 70].fill_(0x7F))
    values, right = weights.tensor(Q).values(), meant[Q].numpy()
    assert np.isnan(values[3, 64:]).all()
    right[3, 64:] = values[3, 64:] = 0
    assert np.array_equal(values, right)


def test_scales_of_activations_are_not_weights(tmp_path):
    folder, meant, _ = quantized(tmp_path, "Qwen 3", "FP8 of a tensor")
    scales = {Q.replace("weight", "input_scale"): torch.ones(())}
    assert set(changed(folder, lambda found: found.update(scales)).names) == set(meant)


def test_zero_points_of_version_1_may_be_zero(tmp_path):
    """One is subtracted from a whole word, and added again."""
    module = Q.removesuffix(".weight")
    folder, _, _ = quantized(tmp_path, "Qwen 3", "GPTQ")

    stored = np.array([0x70 - 0x11111111 & 0xFFFFFFFF], np.uint32).view(np.int32)
    tensor = changed(
        folder, lambda found: found[f"{module}.qzeros"].copy_(torch.from_numpy(stored))
    ).tensor(Q)
    zeros = tensor.data.reshape(len(tensor.data), -1, 19)[:, :, 2]
    assert zeros[:8, 0].tolist() == [0, 7, 0, 0, 0, 0, 0, 0]


def said(kernel):
    with kernel:
        kernel.compile()
        return greedy(kernel, PROMPTS, 4)


def test_kept_weights_are_those_of_one_meaning(tmp_path, cpp):
    folder, _, _ = quantized(tmp_path, "Qwen 3", "GPTQ")
    options = options_of(cpp) | {"cache": tmp_path}
    first = said(open_kernel(folder, **options))
    config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    config["quantization_config"]["checkpoint_format"] = "gptq_v2"
    (folder / "config.json").write_text(json.dumps(config), encoding="utf-8")
    second = said(open_kernel(folder, **options))
    assert not np.array_equal(first[0][1], second[0][1])
    assert np.array_equal(second[0][1], said(open_kernel(folder, **options_of(cpp)))[0][1])


def test_parts_may_be_in_several_files(tmp_path):
    folder, meant, _ = quantized(tmp_path, "Qwen 3", "FP8 in blocks")
    tensors = load_file(folder / "model.safetensors")
    (folder / "model.safetensors").unlink()
    of_scales = {name for name in tensors if name.endswith("_scale_inv")}
    shard_of = {name: f"{'ab'[name in of_scales]}.safetensors" for name in tensors}
    for shard in {*shard_of.values()}:
        of_shard = {name: each for name, each in tensors.items() if shard_of[name] == shard}
        save_file(of_shard, folder / shard)
    index = json.dumps({"weight_map": shard_of})
    (folder / "model.safetensors.index.json").write_text(index, encoding="utf-8")
    weights = open_weights(folder)
    assert len(weights.files) == 2
    assert np.array_equal(weights.tensor(Q).values(), meant[Q].numpy())
    scale = tensors[f"{Q}_scale_inv"].numpy().tobytes()
    assert weights.beginning(Q, 4)[4:] == scale


@pytest.mark.parametrize("given", [{}, {"qzeros": None}, {"g_idx": torch.zeros(128).long()}])
def test_integers_without_all_they_need_are_named(tmp_path, given):
    folder, _, _ = quantized(tmp_path, "Qwen 3", "GPTQ")
    module = Q.removesuffix("weight")

    def change(found):
        if not given:
            found[Q] = torch.zeros(128, 128)
        for name, made in given.items():
            found.pop(module + name)
            if made is not None:
                found[module + name] = made

    with pytest.raises(FileFormatError, match=r"q_proj\.qweight"):
        changed(folder, change).header(Q)


@pytest.mark.parametrize(
    ("method", "part", "made", "words"),
    [
        ("FP8 in blocks", "weight_scale_inv", torch.ones(3, 1), "one for each block of 128 rows"),
        (
            "FP8 in blocks",
            "weight",
            torch.zeros(128, 100, dtype=torch.float8_e4m3fn),
            r"\[128, 100\]; expected columns in multiples of 64",
        ),
        ("GPTQ", "qzeros", torch.zeros(2, 15, dtype=torch.int32), "are no GPTQ or AWQ weights"),
        ("GPTQ", "scales", torch.ones(3, 128).half(), "are no GPTQ or AWQ weights"),
        ("GPTQ", "scales", torch.full((2, 128), 1e-9), "expected scales of type F16"),
        ("GPTQ", "g_idx", torch.arange(128, dtype=torch.int32) % 2, r"\(desc_act\), which is not"),
        ("AWQ", "qweight", torch.zeros(128, dtype=torch.int32), "are no GPTQ or AWQ weights"),
    ],
)
def test_parts_that_do_not_fit_are_refused(tmp_path, method, part, made, words):
    folder, _, _ = quantized(tmp_path, "Qwen 3", method)
    name = Q.removesuffix("weight") + part
    weights = changed(folder, lambda found: found.update({name: made}))
    with pytest.raises(FileFormatError, match=words):
        weights.tensor(Q)


@pytest.mark.parametrize(
    ("method", "change", "words"),
    [
        ("FP8 in blocks", {"fmt": "e5m2"}, "fmt is 'e5m2'; only 'e4m3' is"),
        ("FP8 in blocks", {"weight_block_size": [0, 128]}, "rows and columns of a block, got [0,"),
        ("FP8 in blocks", {"quant_method": "quark"}, "weights quantized by 'quark' are not"),
        ("FP8 of a tensor", {"format": "pack-quantized"}, "format is 'pack-quantized'; only"),
        ("FP8 of a tensor", {"kv_cache_scheme": {"num_bits": 8}}, "kv_cache_scheme is"),
        ("FP8 of a tensor", compressed("group"), "strategy is 'group'; supported are tensor,"),
        ("FP8 of a tensor", compressed("tensor", type="int"), "type is 'int'; only 'float'"),
        ("GPTQ", {"bits": 8}, "bits is 8; only 4 is supported"),
        ("GPTQ", {"checkpoint_format": "marlin"}, "checkpoint_format is 'marlin'; supported are"),
        (
            "GPTQ, centred",
            {"format": "marlin"},
            "checkpoint_format is 'marlin'; supported are gptq, gptq_v2",
        ),
        ("AWQ", {"version": "gemv"}, "version is 'gemv'; supported are gemm"),
        ("AWQ", {"zero_point": False}, "zero_point is False; only True"),
        ("AWQ", {"backend": "llm-awq"}, "backend is 'llm-awq', which is not supported"),
        ("FP8 in blocks", {"expert_dtype": "fp4"}, "expert_dtype is 'fp4'; only 'fp8' is"),
        (
            "FP8 of a tensor",
            {"transform_config": {"config_groups": {"R4": {}}}},
            "transform_config",
        ),
        ("FP8 of a tensor", {"sparsity_config": {"format": "sparse-24"}}, "format is 'sparse-24'"),
    ],
)
def test_other_ways_of_quantizing_are_refused_by_name(tmp_path, method, change, words):
    folder, _, _ = quantized(tmp_path, "Qwen 3", method)
    config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    config["quantization_config"] |= change
    (folder / "config.json").write_text(json.dumps(config), encoding="utf-8")
    with pytest.raises(FileFormatError) as caught:
        open_kernel(folder, backend="python")
    assert words in str(caught.value)

"""Models with latent attention: older files, quantized matrices, and what does not fit."""

import json

import gguf
import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file

from family_files import Files
from gguf_models import write_gguf
from greedy_models import assert_same, expected, greedy, open_kernel
from running_shards import Shards
from small_families import small_model
from tensor_ops_decode import FileFormatError, ProgramError, shard
from tensor_ops_decode.executors.sources import TensorArrays
from tensor_ops_decode.models import decoder_of

PROMPTS = [[3, 200, 17], list(range(40, 57))]
NEW_TOKENS = 16
SIZES = {"kv_lora_rank": 32, "num_hidden_layers": 2}
KV_B = ".self_attn.kv_b_proj.weight"


def with_matrices(model, kind):
    """Return the matrices of latents in the bytes of a type, after the model has what they mean."""
    matrices = {}
    type_ = gguf.GGMLQuantizationType[kind.upper()]
    for key, parameter in model.named_parameters():
        if key.endswith(KV_B):
            values = parameter.data.numpy()
            stored = values if kind == "f32" else gguf.quants.quantize(values, type_)
            matrices[key] = stored, kind
            if kind != "f32":
                parameter.data = torch.from_numpy(gguf.quants.dequantize(stored, type_))
    return matrices


def types_of(kernel):
    program = kernel.program
    found = [node for node in program.nodes if node.kind == "head_linear"]
    return {program.tensors[node.weights["weight"][0]].type for node in found}


@pytest.mark.parametrize(
    ("kind", "types"), [("f32", {"f32"}), ("q8_0", {"f32", "q8_0"}), ("q4_0", {"f32", "q4_0"})]
)
@pytest.mark.parametrize("family", ["DeepSeek V3", "DeepSeek V2 Lite"])
def test_older_files_have_one_matrix_for_keys_and_values(tmp_path, backend, family, kind, types):
    model = small_model(family, **SIZES)
    matrices = with_matrices(model, kind)
    write_gguf(model, tmp_path / "model.gguf", matrices)
    right = [expected(model, prompt, NEW_TOKENS) for prompt in PROMPTS]
    options = {"activations": "float32"} if backend == "cpp" else {}
    with open_kernel(
        tmp_path / "model.gguf", backend=backend, cache_dtype="float32", **options
    ) as kernel:
        kernel.compile()
        assert types_of(kernel) == types
        assert_same(greedy(kernel, PROMPTS, NEW_TOKENS), right)


def test_a_folder_in_bfloat16_is_not_made_wider(tmp_path):
    small_model("DeepSeek V3").to(torch.bfloat16).save_pretrained(tmp_path)
    with open_kernel(tmp_path, backend="python") as kernel:
        assert types_of(kernel) == {"bf16"}
        assert {cache.dtype for cache in kernel.program.caches.values()} == {"float16"}
        sizes = {cache.sizes for cache in kernel.program.caches.values()}
    assert sizes == {(1, 24, 8)}


@pytest.mark.parametrize("dtype", ["float16", "int8"])
def test_smaller_caches_say_nearly_the_same(tmp_path, backend, dtype):
    small_model("GLM 4.7 Flash").save_pretrained(tmp_path)
    found = []
    for cache_dtype in ("float32", dtype):
        with open_kernel(tmp_path, backend=backend, cache_dtype=cache_dtype) as kernel:
            kernel.compile()
            found.append(greedy(kernel, PROMPTS[1:], 1)[0][1])
    error = np.abs(found[1] - found[0]).max()
    assert 0 < error < {"float16": 0.02, "int8": 0.2}[dtype]


@pytest.mark.parametrize(("quantize", "world_size"), [(None, 3), ("q8_0", 2)])
def test_ranks_divide_the_heads_and_have_all_latents(tmp_path, executor, quantize, world_size):
    """Blocks of 32 columns of ``o_proj`` are two heads."""
    small_model("GLM 4.7 Flash", hidden_size=64).save_pretrained(tmp_path)
    options = {"cache_dtype": "float32", "quantize": quantize, "max_num_batched_requests": 1}
    with open_kernel(tmp_path, backend="python", **options) as kernel:
        program = kernel.program
    arrays = TensorArrays(program, {})
    found = [Shards(executor, program, arrays, count) for count in (1, world_size)]
    (whole, right), (tokens, logits) = (each.greedy(PROMPTS[1][:8], 4) for each in found)
    for each in found:
        each.close()
    assert tokens == whole
    assert np.abs(logits[0] - right[0]).max() < (1e-4 if quantize is None else 5e-2)
    shards = [shard(program, rank, world_size) for rank in range(world_size)]
    kinds = ("head_linear", "latent_attention")
    for of_ranks in zip(*(each.nodes for each in shards), strict=True):
        if of_ranks[0].kind in kinds:
            heads = [node.attributes["num_heads"] for node in of_ranks]
            assert heads == ([2, 1, 1] if quantize is None else [2, 2])
    assert {tuple(each.caches.items()) for each in shards} == {tuple(program.caches.items())}
    with pytest.raises(ProgramError, match=f"at most {4 if quantize is None else 2}, got 5"):
        shard(program, 0, 5)


@pytest.mark.parametrize(
    ("family", "change", "words"),
    [
        ("DeepSeek V3", {"num_key_value_heads": 2}, "num_key_value_heads is 2; only 4 is"),
        ("DeepSeek V3", {"kv_lora_rank": 23}, "kv_a_proj_with_mqa.weight' has shape (32, 48)"),
        ("DeepSeek V3", {"v_head_dim": 9}, "o_proj.weight' has shape (48, 40), expected (48, 36)"),
        ("DeepSeek V3", {"q_lora_rank": None}, "self_attn.q_proj.weight', shape (80, 48), is mis"),
        ("DeepSeek V3", {"qk_nope_head_dim": 0}, "qk_nope_head_dim must be a positive integer"),
        ("DeepSeek V3", {"n_group": None}, "n_group is missing"),
        ("DeepSeek V3", {"n_group": 3}, "3 experts are to be of 2 groups, of 3 groups of 8"),
        ("DeepSeek V3", {"topk_group": 5}, "expected groups of one size that have as many"),
        ("DeepSeek V2", {"topk_method": "noaux_tc"}, "topk_method must be 'greedy' or"),
        ("DeepSeek V2", {"norm_topk_prob": True}, "norm_topk_prob is True; only False is"),
        ("GLM 4.7 Flash", {"mlp_layer_types": ["dense"]}, "for each of 2 layers, got ['dense']"),
        ("GLM 4.7 Flash", {"mlp_layer_types": ["dense"] * 2}, "mlp.gate_proj.weight', shape"),
    ],
)
def test_what_does_not_fit_is_refused_by_name(tmp_path, family, change, words):
    small_model(family).save_pretrained(tmp_path)
    config = json.loads((tmp_path / "config.json").read_text(encoding="utf-8"))
    (tmp_path / "config.json").write_text(json.dumps(config | change), encoding="utf-8")
    with pytest.raises(FileFormatError) as caught:
        open_kernel(tmp_path, backend="python")
    assert words in str(caught.value)


GGUF = {
    "general.architecture": "deepseek2",
    "deepseek2.block_count": 2,
    "deepseek2.embedding_length": 48,
    "deepseek2.feed_forward_length": 100,
    "deepseek2.context_length": 128,
    "deepseek2.attention.head_count": 4,
    "deepseek2.attention.head_count_kv": 1,
    "deepseek2.attention.layer_norm_rms_epsilon": 1e-6,
    "deepseek2.attention.kv_lora_rank": 24,
    "deepseek2.attention.key_length": 32,
    "deepseek2.attention.value_length": 24,
    "deepseek2.attention.key_length_mla": 20,
    "deepseek2.attention.value_length_mla": 10,
    "deepseek2.rope.dimension_count": 8,
    "deepseek2.expert_count": 8,
    "deepseek2.expert_used_count": 2,
    "deepseek2.expert_feed_forward_length": 28,
    "deepseek2.expert_shared_count": 1,
    "deepseek2.leading_dense_block_count": 1,
}


def gguf_decoder(names=(), **changed):
    return decoder_of(Files(GGUF | changed, names))


def test_a_folder_without_the_matrix_of_latents_is_refused(tmp_path):
    small_model("DeepSeek V3").save_pretrained(tmp_path)
    tensors = load_file(tmp_path / "model.safetensors")
    del tensors[f"model.layers.1{KV_B}"]
    save_file(tensors, tmp_path / "model.safetensors", {"format": "pt"})
    with pytest.raises(FileFormatError, match=r"'model.layers.1.*kv_b_proj.weight', .* is missing"):
        open_kernel(tmp_path, backend="python")


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"deepseek2.attention.key_length_mla": 8}, "must be more than the 8 elements that are"),
        ({"deepseek2.expert_gating_func": 4}, "expert_gating_func must be 1 or 2, got 4"),
        ({"deepseek2.expert_gating_func": 1.5}, "expert_gating_func must be a positive integer"),
        ({"deepseek2.attention.kv_lora_rank": 0}, "attention.kv_lora_rank must be a positive"),
    ],
)
def test_keys_of_gguf_files_that_do_not_fit_are_refused(change, words):
    with pytest.raises(FileFormatError) as caught:
        gguf_decoder(**change)
    assert words in str(caught.value)


def test_scores_with_a_bias_are_of_sigmoid_where_a_file_does_not_say():
    without, with_bias = gguf_decoder(), gguf_decoder(["blk.1.exp_probs_b.bias"])
    assert (without.experts.scoring, without.experts.group_score) == ("softmax", "best")
    assert (with_bias.experts.scoring, with_bias.experts.group_score) == (
        "sigmoid",
        "sum_of_best_two",
    )


def test_yarn_multiplies_the_scale_by_the_square_of_its_magnitude():
    yarn = {
        "deepseek2.rope.scaling.type": "yarn",
        "deepseek2.rope.scaling.factor": 40.0,
        "deepseek2.rope.scaling.original_context_length": 64,
        "deepseek2.rope.scaling.yarn_log_multiplier": 0.0707,
    }
    decoder = gguf_decoder(**yarn)
    assert decoder.scale == pytest.approx(20**-0.5 * (1 + 0.0707 * np.log(40)) ** 2)
    assert decoder.ropes[0].factor == 1

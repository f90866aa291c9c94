"""LoRA adapters beside a model, against transformers with the weights merged in float32."""

import json

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file

import tensor_ops_decode
from adapters import ALL, write_adapter
from gguf_models import write_gguf
from greedy_models import BOUND, greedy, open_kernel
from small_families import small_model
from tensor_ops_decode import FileFormatError

COUNT = 3
PROMPTS = [np.random.default_rng(7).integers(0, 331, count).tolist() for count in (1, 5, 11)]
# The family, whether its file is a GGUF, which matrices have pairs, and what the adapter says.
CASES = {
    "all matrices": ("Qwen 3", False, ALL, {}),
    "all matrices of a GGUF": ("Qwen 3", True, ALL, {}),
    "rows that llama.cpp permutes": ("Mistral without a window", True, ALL, {"use_rslora": True}),
    "parts of products": ("Qwen 2", False, ("q_proj", "v_proj", "up_proj"), {"r": 3}),
    "last parts": ("Qwen 2", True, ("k_proj", "v_proj", "gate_proj"), {"lora_alpha": 4}),
    "bfloat16": ("Qwen 3", False, ALL, {"dtype": torch.bfloat16}),
    "float16": ("Qwen 3", False, ("o_proj", "down_proj"), {"dtype": torch.float16}),
    "patterns and the head": (
        "Qwen 3",
        False,
        ("q_proj", "k_proj", "up_proj", "gate_proj", "lm_head"),
        {
            "rank_pattern": {"k_proj": 7, r"layers\.1\.mlp\.up_proj": 2},
            "alpha_pattern": {"model.layers.0.self_attn.q_proj": 3},
        },
    ),
    "fused matrices": ("Phi 3", False, ("qkv_proj", "gate_up_proj", "o_proj", "down_proj"), {}),
    "fused matrices of a GGUF": ("Phi 3", True, ("qkv_proj", "gate_up_proj"), {}),
    "norms behind products": ("Gemma 2", False, ALL, {}),
    "factors of the residual": ("Granite 3", True, ALL, {}),
    "rows of gates": ("Qwen 3.5", False, (*ALL, "in_proj_qkv", "out_proj"), {}),
}


@pytest.fixture(scope="module")
def small(tmp_path_factory):
    """A model, its folder, an adapter and its folder."""
    folder = tmp_path_factory.mktemp("lora")
    model = small_model("Qwen 3", num_hidden_layers=1)
    model.save_pretrained(folder / "model")
    return folder / "model", folder / "adapter", write_adapter(folder / "adapter", model)


def opened(path, adapter, **options):
    return open_kernel(path, adapter=adapter, cache_dtype="float32", **options)


def answers(path, adapter, **options):
    """Return the tokens after each prompt, all at once, and the logits of the last ones."""
    with opened(path, adapter, **options) as kernel:
        kernel.compile()
        return greedy(kernel, PROMPTS, COUNT)


@torch.no_grad()
def assert_like(found, merged, other=None):
    """Assert that logits are those of a model, and tokens, and that another has other logits."""
    for prompt, (tokens, logits) in zip(PROMPTS, found, strict=True):
        given = torch.tensor([prompt + tokens[:-1]])
        right = merged(given).logits[0, len(prompt) - 1 :]
        assert np.abs(logits - right[-1].numpy()).max() < BOUND
        # The likeliest ones, or as likely: both logits may be off by the bound.
        chosen = right.gather(-1, torch.tensor(tokens)[:, None])[:, 0]
        assert (right.max(-1).values - chosen).max() < 2 * BOUND
    if other is not None:
        assert np.abs(logits - other(given).logits[0, -1].numpy()).max() > 100 * BOUND


@pytest.mark.parametrize("case", CASES)
def test_tokens_are_those_of_merged_weights(tmp_path, case, cpp):
    family, is_gguf, targets, changed = CASES[case]
    model = small_model(family)
    path = tmp_path / ("model.gguf" if is_gguf else "model")
    if is_gguf:
        write_gguf(model, path)
    else:
        model.save_pretrained(path)
    merged = write_adapter(tmp_path / "adapter", model, targets, **changed)
    assert_like(answers(path, tmp_path / "adapter", backend=cpp), merged, model)


def test_a_backend_that_runs_a_model_runs_it_with_an_adapter(small, backend):
    path, adapter, merged = small
    assert_like(answers(path, adapter, backend=backend), merged)


def test_the_program_has_products_beside_those_of_the_model(small):
    path, adapter, _ = small
    with opened(path, adapter, backend="python") as kernel:
        described = kernel.explain()
        program = str(kernel.program).splitlines()
    assert described.adapter == f"{adapter}, 7 matrices of rank 4"
    assert f"  adapter: {described.adapter}" in str(described).splitlines()
    kinds = [line.partition(" = ")[2].partition("(")[0] for line in program]
    # Each of four products takes two more, and a sum.
    assert kinds.count("linear") == 4 + 4 + 3 + 1
    assert kinds.count("head_linear") == 1  # of gate and up, which have one shape
    assert kinds.count("add") == 2 + 4
    assert kinds.count("rms_norm") == 3 + 2  # a product with a norm runs as one phase
    assert described.reads.weights["linear"]["f32"] > 0


def test_matrices_of_an_adapter_are_quantized_as_others_are(tmp_path):
    model = small_model("Qwen 3", num_hidden_layers=1, hidden_size=64)
    model.save_pretrained(tmp_path / "model")
    write_adapter(tmp_path / "adapter", model)
    with opened(
        tmp_path / "model", tmp_path / "adapter", backend="python", quantize="q4_0"
    ) as kernel:
        types = {name: each.type for name, each in kernel.program.tensors.items()}
    gate = "model.layers.0.mlp.gate_proj.weight"
    assert (types[gate], types[f"{gate}.down"]) == ("q4_0", "q4_0")
    assert types[f"{gate}.up"] == "f32"  # whose rows of 4 numbers are no whole blocks
    assert types["lm_head.weight"] == "q8_0"


def test_a_pair_of_another_factor_is_packed_again(small, tmp_path, cache, cpp):
    path, _, _ = small
    with opened(path, None, backend=cpp, cache=cache) as kernel:
        kernel.compile()
    for alpha in (8, 2, 8):
        folder = tmp_path / f"{alpha}"
        right = write_adapter(folder, small_model("Qwen 3", num_hidden_layers=1), lora_alpha=alpha)
        assert_like(answers(path, folder, backend=cpp, cache=cache), right)
    assert len(list(cache.iterdir())) == 3


def test_an_exported_model_has_the_adapter(small, tmp_path):
    path, adapter, _ = small
    with opened(path, adapter, backend="python") as kernel:
        kernel.export(tmp_path / "exported")
    found = load_file(tmp_path / "exported" / "weights.safetensors")
    of_adapter = load_file(adapter / "adapter_model.safetensors")
    name = "model.layers.0.self_attn.o_proj"
    right = 2 * of_adapter[f"base_model.model.{name}.lora_B.weight"]
    assert torch.equal(found[f"{name}.weight.up"], right)


def test_a_model_in_memory_has_an_adapter(small):
    path, adapter, merged = small
    config = json.loads((path / "config.json").read_text(encoding="utf-8"))
    weights = tensor_ops_decode.ArrayWeights(config, load_file(path / "model.safetensors"))
    assert_like(answers(weights, adapter, backend="python"), merged)


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"peft_type": "LOHA"}, "peft_type is 'LOHA'; only 'LORA' is supported"),
        ({"bias": "lora_only"}, "bias is 'lora_only'; only 'none' is supported"),
        ({"use_dora": True}, "use_dora is True, which is not supported; merge the adapter"),
        ({"fan_in_fan_out": True}, "fan_in_fan_out is True"),
        ({"modules_to_save": ["lm_head"]}, r"modules_to_save is \['lm_head'\]"),
        ({"layer_replication": [[0, 1], [0, 1]]}, "layer_replication is"),
        ({"trainable_token_indices": [1]}, r"trainable_token_indices is \[1\]"),
        ({"target_parameters": ["experts"]}, "target_parameters is"),
        ({"of_tomorrow": {"a": 1}}, "of_tomorrow is {'a': 1}, which is not supported"),
        ({"init_lora_weights": "pissa"}, "init_lora_weights is 'pissa', which changes the weights"),
        ({"init_lora_weights": 1}, "init_lora_weights is 1, which changes"),
        ({"alpha_pattern": {"(": 2}}, r"alpha_pattern has '\(': missing \)"),
        ({"alpha_pattern": {"a{99999999999}": 2}}, "the repetition number is too large"),
        ({"alpha_pattern": {"q_proj": "2"}}, "q_proj must be a positive number, got '2'"),
        ({"alpha_pattern": []}, "alpha_pattern must be an object"),
        ({"r": 5}, r"q_proj.lora_A.weight' has shape \(4, 48\), expected \(5, 48\)"),
        ({"r": None}, "r is missing"),
        ({"lora_alpha": 0}, "lora_alpha must be a positive number, got 0"),
        ({"use_rslora": 1}, "use_rslora must be true or false"),
    ],
)
def test_settings_of_other_adapters_are_refused_by_name(small, tmp_path, changed, message):
    write_adapter(tmp_path, small_model("Qwen 3", num_hidden_layers=1), ["q_proj"])
    config = tmp_path / "adapter_config.json"
    values = json.loads(config.read_text(encoding="utf-8"))
    config.write_text(json.dumps({**values, **changed}), encoding="utf-8")
    with pytest.raises(FileFormatError, match=message) as raised:
        opened(small[0], tmp_path, backend="python")
    assert str(tmp_path) in str(raised.value)


Q = "base_model.model.model.layers.0.self_attn.q_proj"


@pytest.mark.parametrize(
    ("added", "message"),
    [
        ({f"{Q}.lora_magnitude_vector": (80,)}, "lora_magnitude_vector' is not supported"),
        ({f"{Q}.lora_B.bias": (80,)}, "lora_B.bias' is not supported"),
        ({"base_model.model.lm_head.weight": (331, 48)}, "lm_head.weight' is not supported"),
        (
            {f"{Q.replace('0', '1')}.lora_A.weight": (4, 48)},
            "a pair for 'model.layers.1.self_attn.q_proj', but .* has no tensor .* another model",
        ),
        ({f"{Q}.lora_A.weight": (4, 44)}, r"lora_A.weight' has shape \(4, 44\), expected"),
        ({f"{Q}.lora_B.weight": (80, 3)}, r"lora_B.weight' has shape \(80, 3\), expected"),
        ({f"{Q[:-6]}k_proj.lora_A.weight": (4, 48)}, "lora_B.weight of .*k_proj' is missing"),
        (
            {
                "base_model.model.model.embed_tokens.lora_A.weight": (4, 48),
                "base_model.model.model.embed_tokens.lora_B.weight": (331, 4),
            },
            "'model.embed_tokens.weight' is used by 'embed'; an adapter can only be beside",
        ),
    ],
)
def test_tensors_of_other_adapters_are_refused_by_name(small, tmp_path, added, message):
    write_adapter(tmp_path, small_model("Qwen 3", num_hidden_layers=1), ["q_proj"])
    file = tmp_path / "adapter_model.safetensors"
    tensors = load_file(file) | {name: torch.zeros(shape) for name, shape in added.items()}
    save_file(tensors, file)
    with pytest.raises(FileFormatError, match=message) as raised:
        opened(small[0], tmp_path, backend="python")
    assert str(tmp_path) in str(raised.value)


@pytest.mark.parametrize(
    ("family", "target", "message"),
    [
        ("Qwen 2 MoE", "shared_expert_gate", r"shared_expert_gate\.weight' chooses experts"),
        ("DeepSeek V3", "kv_b_proj", r"kv_b_proj\.weight' is used by 'head_linear'"),
    ],
)
def test_matrices_of_other_nodes_have_no_pairs(tmp_path, family, target, message):
    model = small_model(family)
    model.save_pretrained(tmp_path / "model")
    write_adapter(tmp_path / "adapter", model, [target])
    with pytest.raises(FileFormatError, match=message):
        opened(tmp_path / "model", tmp_path / "adapter", backend="python")


def test_an_adapter_of_another_gguf_architecture_is_refused(tmp_path):
    model = small_model("LFM2")
    write_gguf(model, tmp_path / "model.gguf")
    write_adapter(tmp_path / "adapter", model, ["q_proj"])
    with pytest.raises(FileFormatError, match=r"are supported for llama, .*, and not for 'lfm2'"):
        opened(tmp_path / "model.gguf", tmp_path / "adapter", backend="python")


def test_what_is_no_adapter_is_refused(small, tmp_path):
    with pytest.raises(FileFormatError, match=r"expected adapter_config.json and adapter_model"):
        opened(small[0], tmp_path, backend="python")
    with pytest.raises(TypeError, match="adapter must be a folder, got 3"):
        opened(small[0], 3, backend="python")
    with pytest.raises(ValueError, match="adapter needs model=; leave it out for layers by hand"):
        opened(None, small[1], backend="python")


def test_ranks_share_no_adapter(small):
    with pytest.raises(ValueError, match="adapter needs one rank, and there are 2; merge it"):
        opened(small[0], small[1], backend="python", world_size=2, mpi_rank=0, communicator="local")

"""Gemma 4: folders of models of more than text, requests together, and what does not fit."""

import json

import gguf
import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file

from changing_requests import answers, assert_alone_the_same
from gguf_models import write_gguf
from greedy_models import assert_same, expected, greedy, open_kernel
from small_families import small_model
from tensor_ops_decode import FileFormatError

PROMPTS = [[3, 200, 17], list(range(40, 57))]
FAMILIES = ("Gemma 4", "Gemma 4 MoE")
WORDS, SLOTS = 331, 3


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    """The folder of each model of text, and the model."""
    found = {}
    for name in FAMILIES:
        found[name] = tmp_path_factory.mktemp("model"), small_model(name)
        found[name][1].save_pretrained(found[name][0])
    return found


@pytest.fixture(params=FAMILIES, ids=lambda name: name.replace(" ", "-"))
def folder(request, folders):
    return folders[request.param]


def settings_of(path):
    return json.loads((path / "config.json").read_text(encoding="utf-8"))


def write(path, tensors, config):
    save_file(tensors, path / "model.safetensors", {"format": "pt"})
    (path / "config.json").write_text(json.dumps(config), encoding="utf-8")
    return path


def with_unused(tensors, model):
    """Add what files may have of the layers that share keys and values."""
    found, config = dict(tensors), model.config
    for layer in range(
        config.num_hidden_layers - config.num_kv_shared_layers, len(model.model.layers)
    ):
        attention = f"model.layers.{layer}.self_attn."
        found[f"{attention}k_norm.weight"] = torch.ones(config.per_layer_config[layer].head_dim)
        for name in ("k_proj", "v_proj"):
            found[f"{attention}{name}.weight"] = torch.zeros(2, config.hidden_size)
    return found


def test_the_text_of_a_model_with_images_is_run(folder, backend, tmp_path):
    path, model = folder
    tensors = with_unused(load_file(path / "model.safetensors"), model)
    named = {
        name.replace("model.", "model.language_model.", 1): each for name, each in tensors.items()
    }
    named["model.vision_tower.patch_embedder.input_proj.weight"] = torch.zeros(2, 3)
    config = {
        "architectures": ["Gemma4ForConditionalGeneration"],
        "text_config": settings_of(path),
        "vision_config": {"depth": 2},
        "tie_word_embeddings": True,
    }
    right = [expected(model, prompt, 16) for prompt in PROMPTS]
    with open_kernel(write(tmp_path, named, config), backend=backend) as kernel:
        kernel.compile()
        assert_same(greedy(kernel, PROMPTS, 16), right)


@pytest.mark.sampled(2, "folder", "backend")
def test_requests_that_join_leave_and_share_pages_have_the_bits_of_each_alone(folder, backend):
    path, _ = folder
    draw = np.random.default_rng(5)
    begin = draw.integers(0, WORDS, 11).tolist()
    requests = [
        (
            begin[: draw.integers(0, 12)] + draw.integers(0, WORDS, draw.integers(1, 14)).tolist(),
            int(draw.integers(1, 12)),
        )
        for _ in range(30)
    ]
    options = {"backend": backend, "max_num_batched_tokens": 9, "num_speculative_tokens": 2}
    with open_kernel(path, **options) as kernel:
        kernel.compile()
        found = answers(kernel, requests, SLOTS, draw)
        assert len(found) > 15
        assert_alone_the_same(kernel, requests, found)


def test_layers_that_keep_nothing_compute_selected_tokens_alone(folders):
    path, _ = folders["Gemma 4"]
    with open_kernel(path, backend="python") as kernel:
        program = kernel.program
    readers = [node for node in program.nodes if node.kind == "shared_attention"]
    assert [node.attributes["cache"] for node in readers] == [
        "layer.1.cache",
        "layer.2.cache",
        "layer.1.cache",
    ]
    assert {program.values[node.outputs["output"]].rows for node in readers} == {"selected"}
    assert len(program.caches) == 3


CHANGES = {
    "Gemma 4": [
        ({"attention_bias": True}, "tensor 'model.layers.0.self_attn.q_proj.bias' is missing"),
        ({"hidden_activation": "silu"}, "hidden_activation is 'silu'; only 'gelu_pytorch_tanh'"),
        ({"use_bidirectional_attention": "all"}, "use_bidirectional_attention is 'all'; only"),
        ({"num_kv_shared_layers": 6}, "num_kv_shared_layers is 6 of 6 layers, but layer 0, with a"),
        ({"num_kv_shared_layers": 5}, "layer 1, without a window, has none before these whose"),
        ({"num_kv_shared_layers": -1}, "num_kv_shared_layers must be a positive integer, got -1"),
        ({"num_kv_shared_layers": 2}, "layers.3.self_attn.k_proj.weight', shape (40, 48), is miss"),
        ({"num_kv_shared_layers": 4}, "layers.2.mlp.gate_proj.weight' has shape (100, 48), expect"),
        ({"per_layer_config": {"one": {}}}, "must name layers by their numbers, got 'one'"),
        ({"per_layer_config": {"01": 20}}, "01 must be an object, got 20"),
        ({"per_layer_config": {"1": {"skip": True}}}, "per_layer_config has 'skip' for layer 1"),
        ({"per_layer_config": {"1": {"head_dim": 0}}}, "head_dim must be a positive integer, got"),
        ({"per_layer_config": {"2": {"num_key_value_heads": 3}}}, "layer 4 has 2 heads of 12 elem"),
        ({"num_key_value_heads": 3}, "keys and values must divide the 4 heads of queries, got 3"),
        ({"per_layer_config": {"1": {"head_dim": 20}}}, "layer 3 has 2 heads of 12 elements, but"),
        ({"hidden_size_per_layer_input": 8}, "embed_tokens_per_layer.weight' has shape (331, 60)"),
        ({"hidden_size_per_layer_input": 0}, "has no place in this family of models"),
        ({"layer_types": ["full_attention"]}, "layer_types must be a list of 6 types"),
        ({"vocab_size": 330}, "embed_tokens.weight' has shape (331, 48), expected (330, 48)"),
    ],
    "Gemma 4 MoE": [
        ({"top_k_experts": 7}, "top_k_experts must be at most the 6 experts, got 7"),
        ({"top_k_experts": None}, "top_k_experts is missing"),
        ({"num_experts": 5}, "router.proj.weight' has shape (6, 48), expected (5, 48)"),
        ({"moe_intermediate_size": 27}, "experts.gate_up_proj' has shape (6, 56, 48), expected"),
        ({"enable_moe_block": 1}, "enable_moe_block must be true or false, got 1"),
        ({"enable_moe_block": False}, "has no place in this family of models"),
        ({"attention_k_eq_v": False}, "self_attn.v_proj.weight', shape (20, 48), is missing"),
    ],
}
ROPE = {"rope_type": "proportional", "rope_theta": 1e6}
CHANGES["Gemma 4"] += [
    (
        {"rope_parameters": {"full_attention": ROPE | change, "sliding_attention": {}}},
        words,
    )
    for change, words in [
        ({"partial_rotary_factor": 1.5}, "partial_rotary_factor must be at most 1, got 1.5"),
        ({"rope_theta": None}, "rope_theta is missing"),
        ({"rope_type": "3d"}, "the rope type '3d' is not supported"),
    ]
]


@pytest.mark.parametrize(
    ("name", "change", "words"),
    [(name, *each) for name, changes in CHANGES.items() for each in changes],
)
def test_what_does_not_fit_is_refused_by_name(folders, name, change, words, tmp_path):
    path, _ = folders[name]
    write(tmp_path, load_file(path / "model.safetensors"), settings_of(path) | change)
    with pytest.raises(FileFormatError) as caught:
        open_kernel(tmp_path, backend="python")
    assert words in str(caught.value)


@pytest.mark.parametrize(
    ("scale", "words"),
    [
        (torch.ones(2), "layers.1.layer_scalar' must have one value: (2,)"),
        (torch.tensor([torch.nan]), "layers.1.layer_scalar' must be finite, got nan"),
        (None, "layers.1.layer_scalar' must have one value: it is missing"),
    ],
)
def test_the_factor_of_a_layer_must_be_one_number(folder, scale, words, tmp_path):
    path, _ = folder
    tensors = load_file(path / "model.safetensors")
    tensors["model.layers.1.layer_scalar"] = scale
    if scale is None:
        del tensors["model.layers.1.layer_scalar"]
    write(tmp_path, tensors, settings_of(path))
    with pytest.raises(FileFormatError) as caught:
        open_kernel(tmp_path, backend="python")
    assert words in str(caught.value)


def test_the_factor_of_a_layer_is_part_of_it(folder, backend, tmp_path):
    path, model = folder
    tensors = load_file(path / "model.safetensors")
    tensors["model.layers.1.layer_scalar"] = torch.tensor([-0.75])
    layer = model.model.layers[1]
    before = layer.layer_scalar.clone()
    layer.layer_scalar.copy_(torch.tensor([-0.75]))
    right = [expected(model, prompt, 4) for prompt in PROMPTS]
    layer.layer_scalar.copy_(before)
    with open_kernel(write(tmp_path, tensors, settings_of(path)), backend=backend) as kernel:
        kernel.compile()
        assert_same(greedy(kernel, PROMPTS, 4), right)


@pytest.fixture(scope="module")
def written(tmp_path_factory):
    """The keys and the tensors of a GGUF file."""
    path = tmp_path_factory.mktemp("gguf") / "model.gguf"
    write_gguf(small_model("Gemma 4"), path)
    reader = gguf.GGUFReader(path)
    fields = {
        name: field.contents()
        for name, field in reader.fields.items()
        if not name.startswith("GGUF.")
    }
    return fields, {each.name: np.array(each.data) for each in reader.tensors}


def write_again(path, fields, tensors):
    """Write a GGUF file of keys and tensors."""
    writer = gguf.GGUFWriter(path, fields["general.architecture"])
    adds = {bool: writer.add_bool, int: writer.add_uint32, float: writer.add_float32}
    for name, value in fields.items():
        if name != "general.architecture":
            adds.get(type(value), writer.add_array)(name, value)
    for name, values in tensors.items():
        writer.add_tensor(name, values)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"attention.key_length_swa": None}, "attention.key_length_swa is missing"),
        ({"attention.value_length_swa": 10}, "value_length_swa is 10; only 12 is supported"),
        ({"rope.dimension_count_swa": 10}, "dimension_count_swa is 10; only 12 is supported"),
        ({"attention.sliding_window_pattern": 6}, "must be a list of 6 flags or more, got 6"),
        ({"attention.sliding_window_pattern": [True]}, "must be a list of 6 flags or more"),
        ({"attention.head_count_kv": [2, 2]}, "must have a number for each of 6 layers, got 2"),
        ({"attention.head_count_kv": [2, 2, 2, 2, 0, 2]}, "head_count_kv[4] must be a positive"),
        ({"attention.head_count_kv": [2, 3, 2, 3, 2, 3]}, "divide the 4 heads of queries, got 3"),
        ({"attention.shared_kv_layers": 9}, "attention.shared_kv_layers is 9 of 6 layers"),
        ({"feed_forward_length": 100}, "blk.3.ffn_gate.weight' has shape (200, 48), expected (10"),
        ({"attention.sliding_window": None}, "attention.sliding_window is missing"),
        ({"embedding_length_per_layer_input": None}, "has no place in this family of models"),
    ],
)
def test_a_file_of_gguf_that_does_not_fit_is_refused_by_name(written, change, words, tmp_path):
    fields, tensors = written
    changed = fields | {f"gemma4.{name}": value for name, value in change.items()}
    changed = {name: value for name, value in changed.items() if value is not None}
    with pytest.raises(FileFormatError) as caught:
        open_kernel(write_again(tmp_path / "model.gguf", changed, tensors), backend="python")
    assert words in str(caught.value)


def test_a_file_of_gguf_says_which_pairs_stand_still(written, tmp_path):
    fields, tensors = written
    rest = {name: each for name, each in tensors.items() if name != "rope_freqs.weight"}
    with pytest.raises(FileFormatError, match=r"tensor 'rope_freqs\.weight' is missing"):
        open_kernel(write_again(tmp_path / "model.gguf", fields, rest), backend="python")


def test_a_file_of_gguf_may_have_what_is_not_used(written, backend, tmp_path):
    fields, tensors = written
    unused = {
        f"blk.5.attn_{name}.weight": np.zeros(shape, np.float32)
        for name, shape in {"k": (40, 48), "v": (40, 48), "k_norm": 20}.items()
    }
    model = small_model("Gemma 4")
    right = [expected(model, prompt, 8) for prompt in PROMPTS]
    path = write_again(tmp_path / "model.gguf", fields, tensors | unused)
    with open_kernel(path, backend=backend) as kernel:
        kernel.compile()
        assert_same(greedy(kernel, PROMPTS, 8), right)

"""A model in memory as the engine takes it: nothing is copied, and what is released is free."""

import subprocess
import sys
import textwrap

import pytest
import torch
from model_families import FAMILIES, greedy, small_model

from tensor_ops_torch import UnsupportedModelError, decoder
from tensor_ops_torch.decoding.memory_model import array_weights, check_devices
from tensor_ops_torch.decoding.named_modules import named_modules_of, weights_of


def stored(model, **how):
    return array_weights(
        model, weights_of(named_modules_of(model, merge=False)), release=False, **how
    )


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
def test_tensors_are_the_models_own_memory(dtype):
    model = small_model(dtype=dtype, tied=False)
    weights = stored(model)
    assert set(weights.names) == model.state_dict().keys()
    for name, parameter in model.named_parameters():
        found = weights.tensor(name)
        assert found.data.ctypes.data == parameter.data_ptr()
        assert found.data.nbytes == parameter.nbytes
        assert found.shape == tuple(parameter.shape)


@pytest.mark.parametrize("family", FAMILIES)
def test_it_says_what_the_files_of_the_model_say(family, tmp_path):
    from tensor_ops_decode import PersistentKernel

    model = small_model(family, eos_token_id=[7, 9])
    model.save_pretrained(tmp_path)
    with (
        PersistentKernel(model=tmp_path, backend="python") as of_files,
        PersistentKernel(model=stored(model), backend="python") as of_memory,
    ):
        made, right = of_memory.program, of_files.program
        assert (made.values, made.caches) == (right.values, right.caches)
        # Files have the matrices of each expert, or other names for those of all.
        if {*made.tensors} != {*right.tensors}:
            assert "expert_linear" in {node.kind for node in made.nodes}
            return
        text = of_memory.program.to_json()
        assert text.count("in memory") > 10
        for file in (tmp_path / "model.safetensors", f"the {type(model).__name__} in memory"):
            text = text.replace(str(file), "")
        assert text == of_files.program.to_json().replace(str(tmp_path / "model.safetensors"), "")


def test_a_head_that_only_the_configuration_ties_is_its_own():
    model = small_model()
    model.lm_head.weight = torch.nn.Parameter(torch.randn_like(model.lm_head.weight))
    with decoder(model) as fast:
        assert "lm_head.weight" in fast.kernel.program.tensors
        assert torch.equal(greedy(fast, 8), greedy(model, 8))


def test_a_weight_that_is_not_contiguous_is_copied():
    model = small_model()
    layer = model.model.layers[0].mlp.up_proj
    expected = greedy(model, 8)
    layer.weight = torch.nn.Parameter(layer.weight.detach().T.contiguous().T)
    assert not layer.weight.is_contiguous()
    with decoder(model) as fast:
        assert torch.equal(greedy(fast, 8), expected)


def test_weights_elsewhere_than_the_backend_computes_are_refused():
    model = small_model()
    weights = weights_of(named_modules_of(model, merge=False))
    check_devices(weights, "cpp")
    check_devices(weights, "cuda:0")  # which takes what is on the host
    model.to("meta")
    weights = weights_of(named_modules_of(model, merge=False))
    with pytest.raises(
        UnsupportedModelError, match=r"is on meta, where the backend 'cpp' does not"
    ):
        check_devices(weights, "cpp")


# Prints the bytes of a model, of its largest tensor, and what else was in memory, at most and in
# the end: for one that is released, one that is packed in fewer bits too, and one that is kept.
MEASURED = """
    import gc
    import torch
    from tensor_ops.extension import machine
    from transformers import LlamaConfig, LlamaForCausalLM
    from tensor_ops_torch import decoder

    heads = dict(num_attention_heads=8, num_key_value_heads=8, tie_word_embeddings=False)
    sizes = dict(hidden_size=512, intermediate_size=2048, num_hidden_layers=12, vocab_size=16000)
    config = LlamaConfig(**sizes, **heads, max_position_embeddings=64)
    options = dict(max_num_batched_requests=1, max_num_batched_tokens=16, max_seq_length=64)

    def model():
        with torch.device("meta"):
            made = LlamaForCausalLM(config)
        made = made.to_empty(device="cpu").eval()
        made.model.rotary_emb = type(made.model.rotary_emb)(config)
        with torch.no_grad():
            for parameter in made.parameters():
                parameter.fill_(0.01)
        return made

    decoder(model(), release=True, **options).close()  # imports and first uses take memory too
    for how in ({"release": True}, {"release": True, "quantize": "q8_0"}, {}):
        made = model()
        weights = [parameter.nbytes for parameter in made.parameters()]
        gc.collect()
        with open("/proc/self/clear_refs", "w") as file:
            file.write("5")
        before = machine.memory_of_process()["used"]
        fast = decoder(made, **how, **options)
        after = machine.memory_of_process()
        print(sum(weights), max(weights), after["peak"] - before, after["used"] - before)
        fast.close()
        del fast, made
"""


@pytest.mark.skipif(sys.platform != "linux", reason="the system tells no peak of memory")
@pytest.mark.nightly
def test_memory_is_at_most_one_model_and_one_tensor():
    command = [sys.executable, "-c", textwrap.dedent(MEASURED)]
    out = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    rows = [[int(word) for word in line.split()] for line in out.splitlines()]
    other = 8 << 20  # caches, scratch, threads, and what malloc has not given back
    for model, largest, peak, left in rows[:2]:
        assert peak < largest + other, (model, largest, peak, left)
    released, quantized, kept = rows
    assert released[3] < other
    assert quantized[3] < -quantized[0] // 2
    assert kept[2] > kept[0] // 2

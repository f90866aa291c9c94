"""Matrices that are quantized as they are packed: which, to what, and that they run."""

import gguf
import numpy as np
import pytest
import transformers
from safetensors.numpy import load_file

import tensor_ops
import tensor_ops_decode
from tensor_ops_decode.executors.sources import TensorArrays
from tensor_ops_decode.program import Limits, Program, Tensor
from tensor_ops_decode.program.builder import Builder
from tensor_ops_decode.program.quantized import quantized_program


def is_matrix_of_a_layer(name):
    return "layers" in name and "norm" not in name


@pytest.mark.parametrize("name", ["q8_0", "q4_0", "q4_1", "q5_0", "q5_1"])
def test_matrices_of_layers_are_those_that_ggml_quantizes_to(folder, name):
    with tensor_ops.PersistentKernel(model=folder, backend="python", quantize=name) as kernel:
        program = kernel.program
    types = {each: tensor.type for each, tensor in program.tensors.items()}
    expected = {each: name if is_matrix_of_a_layer(each) else "f32" for each in types}
    assert types == expected | {"lm_head.weight": "q8_0"}
    arrays = TensorArrays(Program.from_json(program.to_json()), {})
    for each, values in load_file(folder / "model.safetensors").items():
        kind = gguf.GGMLQuantizationType[types[each].upper()]
        quantized = np.atleast_2d(gguf.quants.quantize(values, kind)).view(np.uint8)
        assert np.array_equal(arrays[each], quantized)


@pytest.mark.parametrize("name", ["q8_0", "q4_0", "q5_1"])
def test_backends_answer_alike_with_quantized_matrices(folder, cpp, name):
    tokens = []
    for backend, options in (("python", {}), (cpp, {"activations": "float32"})):
        with tensor_ops_decode.load(folder, backend, quantize=name, **options) as model:
            tokens.append(model.generate("Once", max_new_tokens=12, ignore_eos=True)[0].tokens)
    assert tokens[0] == tokens[1]


def test_a_matrix_of_embeddings_and_logits_is_quantized_for_both():
    builder, source = Builder(Limits(1, 4, 1, 6, 4, 2)), {"file": "a", "tensor": "t"}
    table = builder.tensor("t", Tensor("f16", (9, 64), {**source, "transform": ["plus_one"]}))
    looked_up = builder.tensor("u", Tensor("f16", (9, 64), {**source, "transform": []}))
    narrow = builder.tensor("n", Tensor("f16", (48, 64), {**source, "transform": []}))
    odd = builder.tensor("o", Tensor("f16", (64, 48), {**source, "transform": []}))
    x = builder.add("embed", {"tokens": "tokens"}, {"weight": table}, output="x")
    y = builder.add("embed", {"tokens": "tokens"}, {"weight": looked_up}, output="y")
    few = builder.add("linear", {"x": y}, {"weight": [narrow]}, output="few")
    many = builder.add("linear", {"x": few}, {"weight": [odd]}, output="many")
    total = builder.add("add", {"a": x, "b": many}, output="total")
    chosen = builder.add("select", {"x": total}, output="chosen")
    logits = builder.add("linear", {"x": chosen}, {"weight": [table]}, output="logits")
    tensors = quantized_program(builder.program([logits]), "q4_0").tensors
    assert tensors["t"].type == "q8_0"
    assert tensors["t"].source["transform"] == ["plus_one", "quantize:q8_0"]
    assert {each: tensors[each].type for each in "uno"} == {"u": "f16", "n": "q4_0", "o": "f16"}


def test_a_head_of_any_type_is_quantized_and_embeddings_are_looked_up_as_they_were():
    builder, source = Builder(Limits(1, 4, 1, 6, 4, 2)), {"file": "a", "tensor": "t"}
    table = builder.tensor("t", Tensor("q8_0", (9, 64), {**source, "transform": []}))
    layer = builder.tensor("l", Tensor("q8_0", (64, 64), {**source, "transform": []}))
    x = builder.add("embed", {"tokens": "tokens"}, {"weight": table}, output="x")
    y = builder.add("linear", {"x": x}, {"weight": [layer]}, output="y")
    chosen = builder.add("select", {"x": y}, output="chosen")
    logits = builder.add("linear", {"x": chosen}, {"weight": [table]}, output="logits")
    program = quantized_program(builder.program([logits]), None, "q4_0")
    assert {name: each.type for name, each in program.tensors.items()} == {
        "t": "q8_0",
        "l": "q8_0",
        "t, q4_0": "q4_0",
    }
    assert program.tensors["t, q4_0"].source["transform"] == ["quantize:q4_0"]
    assert program.nodes[0].weights == {"weight": ("t",)}
    assert program.nodes[-1].weights == {"weight": ("t, q4_0",)}


@pytest.mark.parametrize("name", [None, "q8_0"])
def test_backends_answer_alike_with_a_quantized_head(folder, cpp, name):
    tokens = []
    for backend, options in (("python", {}), (cpp, {"activations": "float32"})):
        options |= {"quantize": name, "quantize_head": "q4_1"}
        with tensor_ops_decode.load(folder, backend, **options) as model:
            assert model.kernel.program.tensors["lm_head.weight"].type == "q4_1"
            tokens.append(model.generate("Once", max_new_tokens=12, ignore_eos=True)[0].tokens)
    assert tokens[0] == tokens[1]


def test_another_type_is_an_error_before_the_model_is_opened():
    with pytest.raises(ValueError, match=r"quantize must be one of q4_0, .*, q8_0, .*'q6_K'"):
        tensor_ops.PersistentKernel(model="missing", quantize="q6_K")
    with pytest.raises(ValueError, match="quantize needs model="):
        tensor_ops.PersistentKernel(quantize="q8_0")
    with pytest.raises(ValueError, match=r"quantize_head must be one of q4_0, .*, q8_0, .*'f16'"):
        tensor_ops.PersistentKernel(model="missing", quantize_head="f16")


@pytest.mark.parametrize("argument", ["quantize", "quantize_head"])
def test_what_has_no_whole_blocks_is_a_warning(tmp_path, argument):
    config = transformers.LlamaConfig(
        hidden_size=24,
        intermediate_size=40,
        num_hidden_layers=1,
        num_attention_heads=2,
        num_key_value_heads=2,
        vocab_size=50,
    )
    transformers.LlamaForCausalLM(config).save_pretrained(tmp_path)
    with pytest.warns(UserWarning, match=rf"{argument}='q8_0' quantizes nothing: .* blocks of 32"):
        tensor_ops.PersistentKernel(backend="python", model=tmp_path, **{argument: "q8_0"}).close()

"""A model in memory, as arrays: what a kernel takes from it, and when its arrays are given up."""

import ml_dtypes
import numpy as np
import pytest

from tensor_ops_decode import (
    ArrayWeights,
    DeferredArray,
    FileFormatError,
    PersistentKernel,
    reference,
)

SIZES = {"hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 1, "vocab_size": 40}
CONFIG = {
    **SIZES,
    "architectures": ["LlamaForCausalLM"],
    "num_attention_heads": 2,
    "max_position_embeddings": 32,
    "tie_word_embeddings": True,
}
SHAPES = {
    "model.embed_tokens.weight": (40, 32),
    "model.norm.weight": (32,),
    "model.layers.0.input_layernorm.weight": (32,),
    "model.layers.0.post_attention_layernorm.weight": (32,),
    **{f"model.layers.0.self_attn.{name}_proj.weight": (32, 32) for name in "qkvo"},
    "model.layers.0.mlp.gate_proj.weight": (64, 32),
    "model.layers.0.mlp.up_proj.weight": (64, 32),
    "model.layers.0.mlp.down_proj.weight": (32, 64),
}


def arrays(dtype=np.float32):
    draw = np.random.default_rng(0)
    return {name: draw.standard_normal(shape).astype(dtype) for name, shape in SHAPES.items()}


class OfDlpack:
    """An array of a library that NumPy knows nothing of."""

    def __init__(self, array):
        self.array, self.shape, self.dtype = array, array.shape, array.dtype

    def __dlpack__(self, **how):
        return self.array.__dlpack__(**how)

    def __dlpack_device__(self):
        return self.array.__dlpack_device__()


def written(weights, **options):
    with PersistentKernel(model=weights, backend="python", max_seq_length=16, **options) as kernel:
        kernel.compile()
        request = kernel.add_request([1, 2, 3], max_new_tokens=8)
        while kernel.requests:
            kernel()
        return kernel.tokens(request)


@pytest.mark.parametrize("dtype", [np.float32, np.float16, ml_dtypes.bfloat16])
def test_tensors_are_views_of_the_arrays(dtype):
    given = arrays(dtype)
    weights = ArrayWeights(CONFIG, given)
    for name, array in given.items():
        found = weights.tensor(name)
        assert np.shares_memory(found.data, array)
        assert np.array_equal(found.values(), array.astype(np.float32))
        header = weights.header(name)
        assert (header.type, header.shape) == (found.type, found.shape)
        assert header.type == {"float32": "f32", "float16": "f16"}.get(str(array.dtype), "bf16")
    assert weights.names == tuple(SHAPES)
    assert weights.files == ()


def test_arrays_of_any_kind_are_the_same_model():
    given = arrays()
    right = written(ArrayWeights(CONFIG, given))
    others = {name: OfDlpack(array) for name, array in given.items()}
    assert written(ArrayWeights(CONFIG, others)) == right
    deferred = {
        name: DeferredArray(array.shape, "float32", lambda array=array: array)
        for name, array in given.items()
    }
    assert written(ArrayWeights(CONFIG, deferred)) == right
    turned = {name: np.asfortranarray(array) for name, array in given.items()}
    assert written(ArrayWeights(CONFIG, turned)) == right


def test_a_kernel_is_exported_as_that_of_a_file_is(tmp_path):
    given = arrays()
    with PersistentKernel(model=ArrayWeights(CONFIG, given), backend="python") as kernel:
        kernel.export(tmp_path / "exported")
    assert (tmp_path / "exported" / "weights.safetensors").stat().st_size > 4 * 40 * 32


def test_it_says_how_generation_ends():
    wrong = {"generation_config": {"eos_token_id": "end"}, "name": "a model"}
    with pytest.raises(FileFormatError, match="the generation configuration of a model: eos_token"):
        PersistentKernel(model=ArrayWeights(CONFIG, arrays(), **wrong), backend="python")
    right = written(ArrayWeights(CONFIG, arrays()))
    ending = ArrayWeights(CONFIG, arrays(), generation_config={"eos_token_id": right[2]})
    assert written(ending) == right[: right.index(right[2]) + 1]


@pytest.mark.parametrize("options", [{}, {"quantize": "q8_0", "quantize_head": "q4_0"}])
def test_each_tensor_is_released_once_after_its_last_use(options):
    made, released = [], []

    def deferred(name, array):
        def make():
            assert name not in released
            made.append(name)
            return array

        return DeferredArray(array.shape, "float32", make)

    given = {name: deferred(name, array) for name, array in arrays().items()}
    weights = ArrayWeights(CONFIG, given, release=released.append)
    assert written(weights, **options) == written(ArrayWeights(CONFIG, arrays()), **options)
    assert sorted(released) == sorted(SHAPES)
    # Rows are looked up in what was given, and the head is quantized to another type.
    assert made.count("model.embed_tokens.weight") == (2 if options else 1)


def bfloat16_weights(**options):
    return ArrayWeights(CONFIG, arrays(ml_dtypes.bfloat16), **options)


@pytest.mark.parametrize(
    ("has", "given", "activations", "decided_by"),
    [
        (True, {}, "bfloat16", "the model, since python multiplies it faster here"),
        (False, {}, None, "the default, since python multiplies bfloat16 no faster here"),
        (None, {}, None, "the default"),
        (True, {"quantize": "q8_0"}, None, "the default"),
        (True, {"quantize_head": "q8_0"}, "bfloat16", "the model, since python multiplies it"),
        (True, {"activations": "float32"}, "float32", "activations="),
        (False, {"activations": "bfloat16"}, "bfloat16", "activations="),
    ],
)
def test_activations_are_those_of_the_model_where_products_are_faster_with_them(
    monkeypatch, has, given, activations, decided_by
):
    if has is not None:
        monkeypatch.setattr(reference, "has_bfloat16_products", lambda: has, raising=False)

    def explained(**how):
        with PersistentKernel(model=bfloat16_weights(**how), backend="python", **given) as kernel:
            return kernel.explain()

    found = explained(activations="bfloat16")
    assert found.options == ({} if activations is None else {"activations": activations})
    assert found.activations_by.startswith(decided_by)
    assert (f"  activations decided by {decided_by}" in str(found)) == (activations is not None)
    unsaid = explained()
    assert unsaid.options.get("activations") == given.get("activations")
    with pytest.raises(ValueError, match="activations of ArrayWeights must be 'bfloat16' or None"):
        bfloat16_weights(activations="int8")


def test_what_kernels_do_not_run_is_refused_by_name():
    with pytest.raises(FileFormatError, match=r"tensor 'norm' is of dtype float64.*bfloat16"):
        ArrayWeights(CONFIG, {"norm": np.ones(3)})
    with pytest.raises(FileFormatError, match=r"tensor 'norm' of shape \(0,\) has no values"):
        ArrayWeights(CONFIG, {"norm": np.ones(0, np.float32)})
    with pytest.raises(KeyError, match="the model in memory has no tensor 'other'"):
        ArrayWeights(CONFIG, {}).tensor("other")
    config = CONFIG | {"rms_norm_eps": "small"}
    with pytest.raises(FileFormatError, match="the configuration of the model in memory: rms_norm"):
        PersistentKernel(model=ArrayWeights(config, arrays()), backend="python")
    with pytest.raises(ValueError, match="cache keeps the packed weights of files"):
        PersistentKernel(model=ArrayWeights(CONFIG, arrays()), cache=True)


def test_a_deferred_array_must_be_what_it_was_announced_as():
    for shape, dtype in (((3,), np.float32), ((2,), np.float16)):
        array = np.ones(shape, dtype)
        deferred = DeferredArray((2,), "float32", lambda array=array: array)
        with pytest.raises(ValueError, match="expected float32 of shape"):
            ArrayWeights({}, {"norm": deferred}).tensor("norm")

"""The layers that `kernels` puts in the place of those of transformers, by their names."""

from functools import reduce
from operator import or_
from types import MethodType

import pytest
import torch
from torch import nn
from transformers import AutoModelForCausalLM, Gemma3TextConfig, LlamaConfig, Qwen3Config
from transformers.activations import ACT2FN
from transformers.models.gpt_oss import modeling_gpt_oss
from transformers.models.llama import modeling_llama
from transformers.models.nanochat import modeling_nanochat
from transformers.models.nemotron_h.modeling_nemotron_h import NemotronHRMSNorm
from transformers.models.olmo2 import modeling_olmo2
from transformers.models.qwen3_5.modeling_qwen3_5 import Qwen3_5RMSNorm
from transformers.models.qwen3_next.modeling_qwen3_next import Qwen3NextRMSNormGated
from transformers.utils.import_utils import is_kernels_available

import tensor_ops
import tensor_ops_torch
from tensor_ops_torch.kernel_layers import OpLayer

WIDTH = 32
SIZES = {
    "vocab_size": 96,
    "hidden_size": 64,
    "intermediate_size": 96,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 16,
}
# The layers of each family that are marked, by their class of ours.
FAMILIES = {
    LlamaConfig: {"_RMSNorm": 5, "_SiLU": 2},
    Qwen3Config: {"_RMSNorm": 9, "_SiLU": 2},
    Gemma3TextConfig: {"_GELUTanh": 2},
}
LAYERS = {
    "RMSNorm": [modeling_llama.LlamaRMSNorm, modeling_olmo2.Olmo2RMSNorm, NemotronHRMSNorm],
    "RMSNormGated": [Qwen3NextRMSNormGated],
    "RMSNormZeroCentered": [Qwen3_5RMSNorm],
}
ACTIVATIONS = {
    "FastGELU": "gelu_fast",
    "GeLU": "gelu",
    "GeluTanh": "gelu_pytorch_tanh",
    "NewGELU": "gelu_new",
    "SiLU": "silu",
}
NORMS = [(name, each) for name, classes in LAYERS.items() for each in classes]
needs_kernels = pytest.mark.skipif(
    not is_kernels_available(), reason="needs a version of kernels that transformers takes"
)


@pytest.fixture
def called(monkeypatch):
    """The names of the ops that layers have called."""
    names = []

    def recorded(op):
        def run(*args):
            names.append(op.__name__)
            return op(*args)

        return run

    module = tensor_ops_torch.kernel_mapping.__globals__
    for name in ("_gelu", "_rms_norm", "_rope", "_silu", "_silu_mul"):
        monkeypatch.setitem(module, name, recorded(module[name]))
    return names


def bound(name, module):
    """The forward that `kernels` would give a module."""
    return MethodType(OpLayer(name).load().forward, module)


def norm(kind, dtype=torch.float32):
    module = kind(WIDTH).to(dtype)
    nn.init.uniform_(module.weight, -1, 1)
    return module


def rows(*shape, dtype=torch.float32):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(0)).to(dtype)


class Function(nn.Module):
    """A function as the module that `kernels` makes of it."""

    def __init_subclass__(cls, function):
        cls.forward = lambda self, *args: function(*args)


def rotation_of(source):
    class Rotation(Function, function=source.apply_rotary_pos_emb):
        pass

    return bound("rotary_pos_emb", Rotation())


def rotated(width=16, dtype=torch.float32):
    """Queries, keys, cosines and sines."""
    angles = rows(1, 3, width // 2).repeat(1, 1, 2)
    q, k = rows(1, 4, 3, width, dtype=dtype), rows(1, 2, 3, width, dtype=dtype)
    return q, k, angles.cos().to(dtype), angles.sin().to(dtype)


def test_every_layer_is_there_for_the_cpu():
    mapping = tensor_ops_torch.kernel_mapping()
    assert set(mapping) == {*LAYERS, *ACTIVATIONS, "rotary_pos_emb"}
    for name, by_device in mapping.items():
        assert by_device["cpu"] == OpLayer(name)
        assert "cuda" not in by_device or "cuda" in tensor_ops.list_available_backends()


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
@pytest.mark.parametrize(("name", "kind"), NORMS)
def test_norms(called, name, kind, dtype):
    module = norm(kind, dtype)
    args = [rows(2, 3, WIDTH, dtype=dtype)] * (2 if name == "RMSNormGated" else 1)
    y = bound(name, module)(*args)
    assert called
    # The module rounds up to three times by half of an epsilon, the ops up to twice.
    rtol = 3 * torch.finfo(dtype).eps
    torch.testing.assert_close(y, module(*args), rtol=rtol, atol=rtol / 100)


@pytest.mark.parametrize(("name", "key"), ACTIVATIONS.items())
def test_activations(called, name, key):
    x = rows(2, WIDTH)
    y = bound(name, ACT2FN[key])(x)
    assert len(called) == 1
    torch.testing.assert_close(y, ACT2FN[key](x))


@pytest.mark.parametrize(("name", "kind"), NORMS)
def test_gradients_of_norms(called, name, kind):
    module = norm(kind)
    args = [rows(2, WIDTH).requires_grad_() for _ in range(2 if name == "RMSNormGated" else 1)]
    wanted = [*args, module.weight]
    own = torch.autograd.grad(module(*args).square().sum(), wanted)
    ours = torch.autograd.grad(bound(name, module)(*args).square().sum(), wanted)
    assert called
    torch.testing.assert_close(ours, own)


@pytest.mark.parametrize(
    ("x_dtype", "weight_dtype"),
    [(torch.float64, torch.float64), (torch.bfloat16, torch.float32)],
)
@pytest.mark.parametrize("kind", [modeling_llama.LlamaRMSNorm, Qwen3NextRMSNormGated])
def test_other_dtypes_are_computed_by_the_module(called, kind, x_dtype, weight_dtype):
    module = norm(kind, weight_dtype)
    gated = kind is Qwen3NextRMSNormGated
    args = [rows(2, WIDTH, dtype=x_dtype)] * (2 if gated else 1)
    y = bound("RMSNormGated" if gated else "RMSNorm", module)(*args)
    torch.testing.assert_close(y, module(*args), rtol=0, atol=0)
    assert not called


def test_a_gate_that_is_not_silu_is_computed_by_the_module(called):
    module = norm(Qwen3NextRMSNormGated)
    module.activation = "sigmoid"
    x = rows(2, WIDTH)
    torch.testing.assert_close(bound("RMSNormGated", module)(x, -x), module(x, -x))
    assert not called


@pytest.mark.parametrize("source", [modeling_llama, modeling_olmo2])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_rotations(called, source, dtype):
    args = rotated(dtype=dtype)
    results = rotation_of(source)(*args)
    assert called.count("rope") >= 2
    # The function rounds each of its products.
    tolerance = {"rtol": 0.02, "atol": 0.02} if dtype is torch.bfloat16 else {}
    torch.testing.assert_close(results, source.apply_rotary_pos_emb(*args), **tolerance)


def test_rotations_in_the_other_direction_are_computed_by_the_function(called):
    args = rotated()
    results = rotation_of(modeling_nanochat)(*args)
    torch.testing.assert_close(results, modeling_nanochat.apply_rotary_pos_emb(*args))


def test_rotations_by_half_of_the_cosines_are_computed_by_the_function():
    q, k, cos, sin = rotated()
    args = (q, k, cos[..., :8], sin[..., :8])
    results = rotation_of(modeling_gpt_oss)(*args)
    torch.testing.assert_close(results, modeling_gpt_oss.apply_rotary_pos_emb(*args))


def test_rotations_by_two_angles_are_computed_by_the_function():
    q, k, cos, sin = rotated()
    cos[..., 3] = 0.5
    args = (q, k, cos, sin)
    results = rotation_of(modeling_llama)(*args)
    torch.testing.assert_close(results, modeling_llama.apply_rotary_pos_emb(*args))


@needs_kernels
@pytest.mark.parametrize("config", FAMILIES, ids=lambda each: each.__name__)
class TestModels:
    @pytest.fixture
    def model(self, config):
        torch.manual_seed(0)
        model = AutoModelForCausalLM.from_config(config(**SIZES)).eval()
        yield model
        # The function that rotates is one of all models of a family.
        _kernelize(model, "INFERENCE", mapping={})

    def test_tokens(self, called, model, config):
        tokens = torch.randint(3, 90, (2, 7))
        options = {"max_new_tokens": 12, "do_sample": False, "pad_token_id": 0}
        own = model.generate(tokens, **options)
        _kernelize(model, "INFERENCE")
        classes = [_class_of(each) for each in model.modules()]
        assert {name: classes.count(name) for name in FAMILIES[config]} == FAMILIES[config]
        assert torch.equal(model.generate(tokens, **options), own)
        assert "rope" in called

    def test_training(self, called, model, config):
        model.train()
        tokens = torch.randint(3, 90, (2, 7))
        model(tokens, labels=tokens).loss.backward()
        own = {name: each.grad for name, each in model.named_parameters()}
        model.zero_grad()
        _kernelize(model, "TRAINING")
        model(tokens, labels=tokens).loss.backward()
        assert called
        for name, each in model.named_parameters():
            torch.testing.assert_close(each.grad, own[name], rtol=1e-4, atol=1e-5)

    def test_compiled_models_keep_their_rotation(self, model, config):
        _kernelize(model, "INFERENCE", "TORCH_COMPILE")
        assert any(_class_of(each) in FAMILIES[config] for each in model.modules())
        attention = model.get_submodule("model.layers.0.self_attn")
        for each in attention._kernel_funcs.values():
            assert _class_of(each) != "_Rotation"


@needs_kernels
def test_transformers_own_switch(called, tmp_path):
    from kernels import use_kernel_mapping

    AutoModelForCausalLM.from_config(LlamaConfig(**SIZES)).save_pretrained(tmp_path)
    with use_kernel_mapping(tensor_ops_torch.kernel_mapping()):
        model = AutoModelForCausalLM.from_pretrained(tmp_path, use_kernels=True)
    model(torch.tensor([[1, 2, 3]]))
    assert {"rms_norm", "rope", "silu"} <= set(called)
    _kernelize(model, "INFERENCE", mapping={})


def _kernelize(model, *modes, mapping=None):
    from kernels import Mode, kernelize, use_kernel_mapping

    mode = reduce(or_, (Mode[each] for each in modes))
    chosen = tensor_ops_torch.kernel_mapping() if mapping is None else mapping
    with use_kernel_mapping(chosen, inherit_mapping=False):
        kernelize(model, mode=mode, device="cpu")


def _class_of(module):
    return module.forward.__qualname__.partition(".")[0]

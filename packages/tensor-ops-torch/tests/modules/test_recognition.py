"""Modules that are recognised give what they gave, in each dtype."""

import copy

import pytest
import torch
from small_models import Fused, GemmaNorm, SwiGLU, draw
from torch import nn
from torch.nn import functional
from transformers.activations import ACT2FN
from transformers.models.cohere.modeling_cohere import CohereLayerNorm
from transformers.models.deepseek_v4.modeling_deepseek_v4 import DeepseekV4UnweightedRMSNorm
from transformers.models.gemma4.modeling_gemma4 import Gemma4RMSNorm
from transformers.models.llama.modeling_llama import LlamaRMSNorm
from transformers.models.llama4.modeling_llama4 import Llama4TextRMSNorm
from transformers.models.moshi.modeling_moshi import MoshiRMSNorm
from transformers.models.nanochat.modeling_nanochat import NanoChatRMSNorm
from transformers.models.nemotron_h.modeling_nemotron_h import NemotronHRMSNorm
from transformers.models.olmo.modeling_olmo import OlmoLayerNorm
from transformers.models.olmo2.modeling_olmo2 import Olmo2RMSNorm
from transformers.models.pocket_tts.modeling_pocket_tts import PocketTTSFlowLayerNorm
from transformers.models.t5.modeling_t5 import T5LayerNorm

from tensor_ops_torch import swap_modules

DTYPES = [torch.float32, torch.bfloat16, torch.float16, torch.float64]
WIDTH = 64
NORMS = {
    "Llama": (lambda: LlamaRMSNorm(WIDTH), "rms_norm"),
    "OLMo 2": (lambda: Olmo2RMSNorm(WIDTH), "rms_norm"),
    "Nemotron-H": (lambda: NemotronHRMSNorm(WIDTH), "rms_norm"),
    "T5": (lambda: T5LayerNorm(WIDTH), "rms_norm"),
    "Gemma": (lambda: GemmaNorm(WIDTH), "rms_norm"),
    "Gemma 4": (lambda: Gemma4RMSNorm(WIDTH), "rms_norm"),
    "Moshi": (lambda: MoshiRMSNorm(WIDTH), "rms_norm"),
    "Llama 4": (lambda: Llama4TextRMSNorm(WIDTH), "rms_norm"),
    "NanoChat": (NanoChatRMSNorm, "rms_norm"),
    "DeepSeek V4": (lambda: DeepseekV4UnweightedRMSNorm(eps=1e-6), "rms_norm"),
    "eps of None": (lambda: nn.RMSNorm(WIDTH), "rms_norm"),
    "eps": (lambda: nn.RMSNorm(WIDTH, eps=1e-3), "rms_norm"),
    "layer norm": (lambda: nn.LayerNorm(WIDTH), "layer_norm"),
    "layer norm without bias": (lambda: nn.LayerNorm(WIDTH, bias=False), "layer_norm"),
    "layer norm of long rows": (lambda: nn.LayerNorm(5000), "layer_norm"),
    "BERT's eps": (lambda: nn.LayerNorm(WIDTH, eps=1e-12), "layer_norm"),
    "Cohere": (lambda: CohereLayerNorm(WIDTH), "layer_norm"),
    "Pocket TTS": (lambda: PocketTTSFlowLayerNorm(WIDTH, eps=1e-6), "layer_norm"),
    "OLMo": (lambda: OlmoLayerNorm(WIDTH), "layer_norm"),
}
# These round after each step in half types, as an op does not.
IN_FLOAT32_ALONE = {"Pocket TTS"}


def width_of(module):
    return next((each.numel() for each in module.parameters()), WIDTH)


@pytest.mark.parametrize("name", NORMS)
def test_norms(name):
    make, op = NORMS[name]
    module = make()
    with torch.no_grad():
        for each in module.parameters():
            each.copy_(draw(each.numel()) / 2 + 0.5)
    reference = copy.deepcopy(module)
    assert swap_modules(module, strict=True).counts == {op: 1}
    for scale in (1.0, 1e3, 1e-3, 1e-6):
        x = draw(4, width_of(module), scale=scale)
        torch.testing.assert_close(module(x), reference(x), rtol=3e-6, atol=3e-6)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("name", NORMS)
def test_norms_in_their_own_dtype(name, dtype):
    """Swapped or refused, a result differs by 2 ULP of each of the two at most."""
    module = NORMS[name][0]().to(dtype)
    reference = copy.deepcopy(module)
    report = swap_modules(module)
    x = draw(16, width_of(module), dtype=dtype)
    found, wanted = module(x), reference(x)
    assert found.dtype == wanted.dtype
    ulp = torch.finfo(dtype).eps
    tolerance = {2: 4 * ulp, 4: 4e-6, 8: 1e-6}[dtype.itemsize]
    torch.testing.assert_close(found, wanted, rtol=tolerance, atol=tolerance)
    if dtype.itemsize == 2 and name not in IN_FLOAT32_ALONE:
        assert report.counts


ACTIVATIONS = {
    "SiLU": (nn.SiLU(), "silu"),
    "GELU": (nn.GELU(), "gelu"),
    "GELU, tanh": (nn.GELU("tanh"), "gelu"),
    "Softmax": (nn.Softmax(-1), "softmax"),
    "silu": (ACT2FN["silu"], "silu"),
    "gelu": (ACT2FN["gelu"], "gelu"),
    "gelu_new": (ACT2FN["gelu_new"], "gelu"),
    "gelu_fast": (ACT2FN["gelu_fast"], "gelu"),
    "gelu_pytorch_tanh": (ACT2FN["gelu_pytorch_tanh"], "gelu"),
}


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("name", ACTIVATIONS)
def test_activations(name, dtype):
    module, op = ACTIVATIONS[name]
    module = copy.deepcopy(module)
    x = torch.cat((torch.linspace(-9, 9, 999), torch.tensor([1e4, -1e4, 0, 1e-3]))).to(dtype)
    wanted = module(x)
    assert swap_modules(module, strict=True).counts == {op: 1}
    # torch's own half kernels are within one ULP, and the hand-made ones run as they are.
    ulp = torch.finfo(dtype).eps
    torch.testing.assert_close(module(x), wanted, rtol=max(2 * ulp, 3e-6), atol=1e-6)


def test_an_activation_that_rounds_at_every_step_keeps_doing_so_in_half_types():
    """It is tens of ULP off; to replace it would change results, if only for the better."""
    module, x = copy.deepcopy(ACT2FN["gelu_new"]), torch.linspace(-4, 0, 99).bfloat16()
    wanted = module(x)
    assert (wanted.float() - functional.gelu(x.float(), approximate="tanh")).abs().max() > 1e-3
    swap_modules(module, strict=True)
    assert torch.equal(module(x), wanted)


class OtherActivation(SwiGLU):
    def __init__(self, act):
        super().__init__()
        self.act = act


class ByFunction(SwiGLU):
    def forward(self, x):
        return self.down(functional.silu(self.gate(x)) * self.up(x))


class Dropped(OtherActivation):
    def __init__(self, drop):
        super().__init__(nn.SiLU())
        self.drop = drop

    def forward(self, x):
        hidden = self.act(self.gate(x)) * self.up(x)
        hidden = self.drop(hidden)
        result = self.down(hidden)
        return result  # noqa: RET504 -- as models have it


MLPS = {
    "SwiGLU": (SwiGLU, "silu_mul"),
    "square": (lambda: SwiGLU(16, 16), "silu_mul"),
    "GeGLU": (lambda: OtherActivation(nn.GELU()), "gelu_mul"),
    "GeGLU, tanh": (lambda: OtherActivation(nn.GELU("tanh")), "gelu_mul"),
    "by a function": (ByFunction, "silu_mul"),
    "dropout": (lambda: Dropped(nn.Dropout(0.5)), "silu_mul"),
    "a norm for dropout": (lambda: Dropped(nn.LayerNorm(48)), "silu_mul"),
    "fused": (lambda: Fused(16), "silu_mul"),
    "fused GeGLU": (lambda: Fused(16, activation=nn.GELU), "gelu_mul"),
}


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("name", MLPS)
def test_gated_mlps(name, dtype):
    make, op = MLPS[name]
    torch.manual_seed(0)
    module = make().to(dtype)
    reference = copy.deepcopy(module)
    assert swap_modules(module, strict=True).counts[op] == 1
    x = draw(5, 16, dtype=dtype)
    torch.manual_seed(1)
    found = module(x)
    torch.manual_seed(1)
    wanted = reference(x)
    ulp = torch.finfo(dtype).eps
    torch.testing.assert_close(found, wanted, rtol=8 * ulp, atol=8 * ulp)
    found.square().sum().backward()
    wanted.square().sum().backward()
    for own, other in zip(module.parameters(), reference.parameters(), strict=True):
        torch.testing.assert_close(own.grad, other.grad, rtol=64 * ulp, atol=64 * ulp)

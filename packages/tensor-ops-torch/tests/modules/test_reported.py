"""Unusual modules that are swapped, modules that are only reported, and their surroundings."""

import copy
import importlib

import pytest
import torch
from torch import nn
from torch.nn import functional
from transformers.models.nanochat.modeling_nanochat import NanoChatRMSNorm
from transformers.models.olmo.modeling_olmo import OlmoLayerNorm

from tensor_ops_torch import restore_model, swap_modules, swap_report

X = torch.randn(3, 5, 16, generator=torch.Generator().manual_seed(0))


def same(module, counts, x=X, **options):
    """Check what is swapped of a module, and that it gives what it gave."""
    right = module(x)
    assert swap_modules(module, strict=True, **options).counts == counts
    torch.testing.assert_close(module(x), right, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(
    ("module", "op"),
    [
        (nn.LayerNorm(16, elementwise_affine=False), "layer_norm"),
        (nn.LayerNorm(16, bias=False), "layer_norm"),
        (nn.RMSNorm(16, elementwise_affine=False), "rms_norm"),
        (nn.LayerNorm(16, eps=0.1), "layer_norm"),
        (OlmoLayerNorm(16), "layer_norm"),
        (NanoChatRMSNorm(), "rms_norm"),
        (nn.Softmax(-1), "softmax"),
    ],
)
def test_norms_without_weights_and_softmax(module, op):
    same(module, {op: 1})


def test_a_norm_without_a_weight_keeps_its_length():
    """PyTorch raises for rows of another."""
    module = nn.LayerNorm(16, elementwise_affine=False)
    swap_modules(module)
    with pytest.raises(RuntimeError, match="normalized_shape"):
        module(X[..., :8])
    weightless = NanoChatRMSNorm()
    swap_modules(weightless)
    right = restore_model(copy.deepcopy(weightless))(X[..., :8])
    torch.testing.assert_close(weightless(X[..., :8]), right)


class QuickGelu(nn.Module):
    def forward(self, x):
        return x * torch.sigmoid(1.702 * x)


class Experts(nn.Module):
    def __init__(self):
        super().__init__()
        self.gate_up = nn.Parameter(torch.zeros(4, 32, 16))
        self.down = nn.Parameter(torch.zeros(4, 16, 16))
        self.act = nn.SiLU()

    def forward(self, x, index):
        gate, up = functional.linear(x, self.gate_up[index]).chunk(2, dim=-1)
        return functional.linear(self.act(gate) * up, self.down[index])


@pytest.mark.parametrize(
    ("module", "missing"), [(QuickGelu(), "quick_gelu"), (Experts(), "grouped MLP")]
)
def test_what_no_op_computes_is_said_and_no_error(module, missing):
    report = swap_modules(module, strict=True)
    assert [each.missing for each in report.missing] == [missing]
    assert "no op of tensor_ops" in report.missing[0].reason
    assert not report.refused


class Affine(nn.Module):
    def __init__(self):
        super().__init__()
        self.weight, self.bias = (nn.Parameter(torch.ones(16)) for _ in range(2))

    def forward(self, x):
        return x * self.weight + self.bias


def test_what_is_no_norm_is_not_reported():
    assert not swap_modules(nn.Sequential(Affine(), nn.Linear(16, 16)), strict=True).entries
    text = str(swap_report(Affine()))
    assert text == "0 modules swapped: nothing in the model looks like an op of tensor_ops"


def by_hand(x, eps):
    return x * torch.rsqrt(x.square().mean(-1, keepdim=True) + eps)


class ByHand(nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.rand(16))
        self.epsilon = 1e-3

    def forward(self, x):
        return self.weight * by_hand(x, self.epsilon)


class Cubed(ByHand):
    def forward(self, x):
        return by_hand(x, self.epsilon) * self.weight**3


def test_trusted_classes():
    assert not swap_report(ByHand()).counts
    module = nn.Sequential(ByHand())
    same(module, {"rms_norm": 1}, trust=[ByHand])
    module[0].epsilon = 1.0
    torch.testing.assert_close(module(X), restore_model(copy.deepcopy(module))(X))
    report = swap_modules(nn.Sequential(ByHand()), trust=[ByHand])
    assert "swapped, for its class is trusted" in str(report)
    assert report.entries[0].trusted
    (entry,) = swap_modules(Cubed(), trust=[Cubed]).refused
    assert entry.reason.startswith("its class is trusted, but its results on samples are those of")


# The guide names them; each has a norm of 64 elements, or no parameter.
NO_MORE = {
    "activations": "AccurateGELUActivation",
    "models.deberta.modeling_deberta": "DebertaLayerNorm",
    "models.esmc.modeling_esmc": "EsmcLayerNorm",
    "models.esmfold2.modeling_esmfold2": "EsmFold2LayerNorm",
    "models.gradium_phonon_tts.modeling_gradium_phonon_tts": "GradiumPhononTTSTimestepNorm",
    "models.imagegpt.modeling_imagegpt": "ImageGPTLayerNorm",
    "models.muse_spark.modeling_muse_spark": "MuseSparkTextCenteredRMSNorm",
    "models.qwen4_exp.modeling_qwen4_exp": "Qwen4ExpTextRMSNorm",
    "models.videoprism.modeling_videoprism": "VideoPrismLayerNorm",
    "models.xlstm.modeling_xlstm": "xLSTMRMSNorm",
}


@pytest.mark.parametrize("file", NO_MORE)
def test_trust_swaps_the_classes_that_are_swapped_no_more(file):
    kind = getattr(importlib.import_module(f"transformers.{file}"), NO_MORE[file])
    module = kind() if file == "activations" else kind(64)
    with torch.no_grad():
        for each in module.parameters():
            each.copy_(torch.linspace(0.5, 1.5, 64))
    (entry,) = swap_report(module).refused
    assert f"trust=[{kind.__name__}]" in entry.reason
    x = torch.randn(3, 64)
    right = module(x)
    assert swap_modules(module, strict=True, trust=[kind]).entries[0].trusted
    torch.testing.assert_close(module(x), right, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("wrong", [[ByHand()], ["ByHand"], [int], ByHand()])
def test_what_cannot_be_trusted(wrong):
    with pytest.raises(TypeError, match=r"expected classes of modules, such as \[MyNorm\]"):
        swap_modules(nn.SiLU(), trust=wrong)


@pytest.mark.filterwarnings("ignore:.*torch.jit:DeprecationWarning")
def test_torchscript_children():
    scripted = torch.jit.script(nn.Sequential(nn.LayerNorm(16), nn.Linear(16, 16)))
    model = nn.Sequential(nn.SiLU(), scripted)
    report = swap_modules(model)
    assert report.counts == {"silu": 1}
    assert [each.reason for each in report.refused] == ["it was compiled by torch.jit; swap before"]
    assert model(X).shape == X.shape


def test_default_dtype_and_device():
    try:
        torch.set_default_dtype(torch.bfloat16)
        with torch.device("meta"):
            model = nn.Sequential(nn.LayerNorm(16), nn.SiLU(), nn.RMSNorm(16), nn.GELU())
            report = swap_modules(model, strict=True)
        assert torch.get_default_dtype() is torch.bfloat16
    finally:
        torch.set_default_dtype(torch.float32)
    assert len(report.swapped) == 4


def test_modules_that_accelerate_offloads():
    accelerate = pytest.importorskip("accelerate")
    from accelerate.hooks import remove_hook_from_submodules

    model = nn.Sequential(nn.Linear(16, 16), nn.LayerNorm(16), nn.SiLU())
    right = model(X)
    accelerate.cpu_offload(model, execution_device=torch.device("cpu"))
    assert model[1].weight.device.type == "meta"
    assert swap_modules(model, strict=True).counts == {"layer_norm": 1, "silu": 1}
    torch.testing.assert_close(model(X), right)
    restore_model(model)
    torch.testing.assert_close(model(X), right, rtol=0, atol=0)
    swap_modules(model)
    remove_hook_from_submodules(model)
    assert swap_report(model).counts == {"layer_norm": 1, "silu": 1}
    torch.testing.assert_close(model(X), right)
    assert type(restore_model(model)[1]) is nn.LayerNorm


def test_a_model_that_was_saved_with_another_forward(monkeypatch):
    """Where the code differs from that which was read, nothing is known of it."""
    model = nn.Sequential(NanoChatRMSNorm())
    swap_modules(model)
    monkeypatch.setattr(NanoChatRMSNorm, "forward", lambda self, x: x + 1)
    with pytest.warns(UserWarning, match="its forward is another one here"):
        copied = copy.deepcopy(model)
    assert type(copied[0]) is NanoChatRMSNorm

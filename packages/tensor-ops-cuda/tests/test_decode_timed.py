"""Steps that benchmarks/gpu times on a GPU run here too, on an emulated device."""

import pytest

import tensor_ops_cuda
from decode_cuda.model import Shape
from decode_cuda.step_cases import MODELS, Model
from gpu import decode
from gpu.llama import KINDS, program_of

pytestmark = pytest.mark.usefixtures("device")

SMALL = Shape("small", 1, 64, 2, 1, 32, 64, 128, has_own_head=False)


@pytest.mark.parametrize("name", MODELS)
def test_models_that_are_timed_are_run(name):
    text, _ = program_of(MODELS[name].shape, "Q4_0", 8, 4096)
    assert tensor_ops_cuda.supports_program(text) is None


def test_times_are_told_of_each_number_of_blocks(monkeypatch):
    for count in ("ROUNDS", "CALLS", "PROFILES"):
        monkeypatch.setattr(decode, count, 1)
    model = Model(SMALL, ((1, 3), (2, 2)), fewer_blocks=(0.5,))
    figures = list(decode.figures(tensor_ops_cuda, model, steps=2))
    most = tensor_ops_cuda.devices()[0].compute_units
    cases = [(None, [1, 3]), (None, [2, 2]), (most // 2, [1, 3])]
    assert [(each["blocks"], each["shape"]) for each in figures] == cases * len(KINDS)
    for figure in figures:
        assert min(figure["us"]["tensor_ops_cuda"]) > 0
        if figure["shape"][0] == 1:
            assert figure["nodes"].keys() >= {"qkv", "attended", "o", "gate_up", "down", "logits"}

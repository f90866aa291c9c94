"""Which types of weights run here, as docs/backends/cuda.md says of models' files and folders."""

import dataclasses

import pytest

import tensor_ops_cuda
from tensor_ops_decode import PersistentKernel
from tensor_ops_decode.program.quantized import quantized_program

pytestmark = pytest.mark.usefixtures("device")

TABLE, HEAD = "model.embed_tokens.weight", "lm_head.weight"


@pytest.fixture(scope="module")
def programs(tmp_path_factory):
    """A function that returns the program of a folder: of a dtype, with one table or two."""
    pytest.importorskip("torch")
    pytest.importorskip("transformers")
    from byte_models import save_model

    def program(dtype, tied):
        folder = tmp_path_factory.mktemp(f"{dtype}-{tied}")
        save_model(folder, dtype=dtype, tied=tied)
        with PersistentKernel(model=folder, backend="python") as kernel:
            return kernel.program

    made = {
        (dtype, tied): program(dtype, tied)
        for dtype in ("bfloat16", "float16", "float32")
        for tied in (True, False)
    }
    return lambda dtype, tied: made[dtype, tied]


def refusal(program, quantize=None, head=None):
    text = quantized_program(program, quantize, head).to_json()
    return tensor_ops_cuda.supports_program(text)


@pytest.mark.parametrize("tied", [True, False])
@pytest.mark.parametrize("quantize", [None, "q8_0", "q4_0"])
def test_folders_of_bfloat16_run(programs, tied, quantize):
    assert refusal(programs("bfloat16", tied), quantize) is None


@pytest.mark.parametrize("dtype", ["float16", "float32"])
@pytest.mark.parametrize("quantize", ["q8_0", "q4_0"])
def test_other_folders_run_where_one_matrix_is_quantized_for_both(programs, dtype, quantize):
    assert "'embedding'" in refusal(programs(dtype, True))
    assert refusal(programs(dtype, True), quantize) is None
    assert f"'{TABLE}'" in refusal(programs(dtype, False), quantize)


def of_type(program, kind, *names):
    """Return a program whose matrices of these names are of a type, as a file may have them."""
    tensors = dict(program.tensors)
    for name in names:
        source = {**tensors[name].source, "transform": [f"quantize:{kind}"]}
        tensors[name] = dataclasses.replace(tensors[name], type=kind, source=source)
    return dataclasses.replace(program, tensors=tensors)


@pytest.mark.parametrize("kind", ["q4_1", "q5_0", "q5_1"])
def test_what_is_quantized_stays_and_is_refused(programs, kind):
    """As SmolLM2's own file in Q4_1: its table is of another type, which is run."""
    program = programs("bfloat16", True)
    matrices = [name for name in program.tensors if "layers" in name and "norm" not in name]
    file = quantized_program(of_type(program, kind, *matrices), "q8_0")
    for quantize in (None, "q8_0", "q4_0"):
        reason = refusal(file, quantize)
        assert f"runs matrices of q8_0, q4_0 and bf16, got {kind} (" in reason
        assert 'take a file of q8_0 or q4_0, or a folder of bf16, which quantize="q8_0"' in reason


def test_a_head_of_another_type_is_quantized_where_embeddings_have_a_table(programs):
    two = of_type(quantized_program(programs("bfloat16", False), "q4_0"), "q5_1", HEAD)
    assert f"got q5_1 ('{HEAD}')" in refusal(two)
    assert refusal(two, head="q8_0") is None
    one = of_type(quantized_program(programs("bfloat16", True), "q4_0"), "q5_1", TABLE)
    assert "'embedding'" in refusal(one, head="q8_0")

"""The explanation of a kernel: what it runs, and what activations are rounded to."""

import ml_dtypes
import numpy as np
import pytest

from tensor_ops import PersistentKernel
from tensor_ops.extension import load_backend
from tensor_ops_decode import ArrayWeights
from tensor_ops_decode.reference import ReferenceExecutable

CONFIG = {
    "architectures": ["LlamaForCausalLM"],
    "hidden_size": 32,
    "intermediate_size": 32,
    "num_hidden_layers": 1,
    "vocab_size": 40,
    "num_attention_heads": 2,
    "max_position_embeddings": 32,
    "tie_word_embeddings": True,
}
LAYER = "model.layers.0"
MATRICES = [
    *(f"{LAYER}.self_attn.{name}_proj.weight" for name in "qkvo"),
    *(f"{LAYER}.mlp.{name}_proj.weight" for name in ("gate", "up", "down")),
]
NORMS = [f"{LAYER}.{name}_layernorm.weight" for name in ("input", "post_attention")]


def weights(dtype):
    tensors = {name: np.zeros((32, 32), dtype) for name in MATRICES}
    tensors |= {name: np.ones(32, dtype) for name in [*NORMS, "model.norm.weight"]}
    return ArrayWeights(CONFIG, {"model.embed_tokens.weight": np.ones((40, 32), dtype), **tensors})


@pytest.fixture
def cpp():
    if load_backend("cpp").reason is not None:
        pytest.skip("the C++ backend is not available here")


DEFAULT, GIVEN = "the default", "activations="
NONE = "the weights, beside which none is rounded"


@pytest.mark.parametrize(
    ("dtype", "arguments", "activations", "decided_by"),
    [
        (np.float32, {}, "float32", DEFAULT),
        (np.float16, {}, "float32", DEFAULT),
        (ml_dtypes.bfloat16, {}, "float32", DEFAULT),
        (np.float32, {"activations": "int8"}, "float32", NONE),
        (np.float32, {"activations": "bfloat16"}, "float32", NONE),
        (np.float32, {"activations": "float32"}, "float32", GIVEN),
        (ml_dtypes.bfloat16, {"activations": "int8x2"}, "float32", NONE),
        (ml_dtypes.bfloat16, {"activations": "bfloat16"}, "bfloat16", GIVEN),
        (np.float32, {"quantize": "q8_0"}, "int8x2", DEFAULT),
        (np.float32, {"quantize": "q8_0", "activations": "int8"}, "int8", GIVEN),
        (np.float32, {"quantize_head": "q4_0"}, "int8x2", DEFAULT),
    ],
)
def test_activations_are_those_that_products_round_to(
    cpp, dtype, arguments, activations, decided_by
):
    with PersistentKernel(model=weights(dtype), backend="cpp", **arguments) as kernel:
        kernel.compile()
        found = kernel.explain()
    assert (found.options["activations"], found.activations_by) == (activations, decided_by)
    assert f"  options: activations {activations}," in str(found)
    assert f"  activations decided by {decided_by}\n" in str(found)


def test_a_kernel_runs_a_stand_in_unless_layers_are_added():
    kernel = PersistentKernel(backend="python")
    before = kernel.explain().model
    kernel.compile()
    assert before == kernel.explain().model
    assert before.startswith("a stand-in of 2 layers with random weights")
    other = PersistentKernel(backend="python")
    other.attach_input(np.ones(3, np.float32), name="norm")
    assert other.explain().model == "the layers described by hand"


def test_a_compiled_kernel_says_which_nodes_run_together(monkeypatch):
    phases = [[0], [1, 2], [3], [4, 5], [6, 7], [8, 9, 10], *([each] for each in range(11, 25))]
    monkeypatch.setattr(ReferenceExecutable, "phases", phases, raising=False)
    kernel = PersistentKernel(backend="python")
    assert kernel.explain().together == {}
    kernel.compile()
    explanation = kernel.explain()
    together = {"rms_norm+linear": 2, "linear+add": 1, "silu_mul+linear+add": 1}
    assert explanation.together == explanation.as_dict()["together"] == together
    listed = "rms_norm+linear 2, linear+add 1, silu_mul+linear+add 1"
    assert f"\n  runs together: {listed}\n" in str(explanation)
    assert kernel.profile().phases == phases


def test_an_executor_without_phases_runs_each_node_by_itself():
    with PersistentKernel(backend="python") as kernel:
        kernel.compile()
        assert kernel.explain().together == {}
        assert "runs together" not in str(kernel.explain())
        assert kernel.profile().phases == [[index] for index in range(len(kernel.program.nodes))]

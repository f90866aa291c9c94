"""Models for ONNX Runtime, made of the ops of tensor_ops."""

import numpy as np
import pytest

onnx = pytest.importorskip("onnx")
helper = onnx.helper

CPU = "CPUExecutionProvider"
CUDA = "CUDAExecutionProvider"
AZURE = "AzureExecutionProvider"
N = 96
RNG = np.random.default_rng(7)
WEIGHT, BIAS = (RNG.standard_normal(N, dtype=np.float32) for _ in range(2))


def model_of(*nodes, inputs=("x",), opset=20):
    """Return a model of nodes from `inputs` to y, over rows of length N."""
    real, shape = onnx.TensorProto.FLOAT, ["rows", N]
    constants = [
        helper.make_tensor(name, real, [N], value)
        for name, value in (("weight", WEIGHT), ("bias", BIAS))
        if any(name in node.input for node in nodes)
    ]
    graph = helper.make_graph(
        nodes,
        "graph",
        [helper.make_tensor_value_info(name, real, shape) for name in inputs],
        [helper.make_tensor_value_info("y", real, shape)],
        constants,
    )
    opsets = [helper.make_opsetid("", opset)]
    model = helper.make_model(graph, opset_imports=opsets, ir_version=10)
    onnx.checker.check_model(model)
    return model


def node(kind, inputs, output="y", **attributes):
    return helper.make_node(kind, inputs.split(), [output], **attributes)

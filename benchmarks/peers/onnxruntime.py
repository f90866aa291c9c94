"""ONNX Runtime: graphs of one or a few nodes, from its contrib ops and from the standard ones.

Results are new with ``run``; with an IO binding they go to memory that was bound before.
"""

import ctypes
import functools
from collections.abc import Callable
from typing import Any

import numpy as np
import onnxruntime
from onnx import TensorProto, helper

from comparison.cases import HEAD_DIM, Case, own_shape
from peers import UnsupportedError, Way
from tensor_ops.variants import VARIANTS

LABEL = "ONNX Runtime"
PACKAGES = ("onnxruntime", "onnx")

RMS_EPS, LAYER_EPS = 1e-6, 1e-5
OPSET = 23
MICROSOFT = "com.microsoft"
TYPES = {
    "float32": TensorProto.FLOAT,
    "float16": TensorProto.FLOAT16,
    "bfloat16": TensorProto.BFLOAT16,
    "float64": TensorProto.DOUBLE,
}

Array = Any
Node = Any

_threads = 1


def start(threads: int) -> None:
    """Remember the number of threads, which each session has of its own."""
    global _threads
    _threads = threads
    onnxruntime.set_default_logger_severity(4)  # a node without a kernel is an answer, not news


def ways(case: Case, values: dict[str, Array], out: tuple[Array, ...] | None) -> dict[str, Way]:
    """Return the contrib and the standard graph, those for which there are kernels."""
    inputs = {name: _folded(case, value) for name, value in values.items()}
    found, refused = {}, []
    for name, graph in GRAPHS[case.variant].items():
        try:
            session = _session(graph, case.variant, case.dtype, case.shape[-1])
            way = _running(case, session, inputs) if out is None else _bound(session, inputs, out)
            way.call()
        except Exception as error:  # those of its C++ code have no base of their own
            refused.append(f"{name}: {' '.join(str(error).split())[:160]}")
        else:
            found[name] = way
    if not found:
        raise UnsupportedError("; ".join(refused))
    return found


def _running(case: Case, session: Any, inputs: dict[str, Array]) -> Way:
    shape = own_shape(VARIANTS[case.variant].op, case.shape)
    if case.dtype != "bfloat16":
        call = functools.partial(session.run, None, inputs)
        return Way(call, lambda results: tuple(each.reshape(shape) for each in results))
    # run() itself takes NumPy's own dtypes only
    values = {name: _value(array) for name, array in inputs.items()}
    dtype = next(iter(inputs.values())).dtype
    call = functools.partial(session.run_with_ort_values, None, values)
    return Way(call, lambda results: tuple(_array(each, shape, dtype) for each in results))


def _bound(session: Any, inputs: dict[str, Array], out: tuple[Array, ...]) -> Way:
    binding = session.io_binding()
    shape = next(iter(inputs.values())).shape
    for name, array in inputs.items():
        binding.bind_ortvalue_input(name, _value(array))
    for output, array in zip(session.get_outputs(), out, strict=True):
        binding.bind_ortvalue_output(output.name, _value(array.reshape(shape)))
    return Way(functools.partial(session.run_with_iobinding, binding), lambda _: out)


def _value(array: Array) -> Any:
    """Return an OrtValue in the memory of an array."""
    if array.dtype.name != "bfloat16":
        return onnxruntime.OrtValue.ortvalue_from_numpy(array)
    make = onnxruntime.OrtValue.ortvalue_from_numpy_with_onnx_type
    return make(array.view(np.uint16), TYPES["bfloat16"])


def _array(value: Any, shape: tuple[int, ...], dtype: Any) -> Array:
    """Return a copy of what an OrtValue holds."""
    size = int(np.prod(shape)) * dtype.itemsize
    return np.frombuffer(ctypes.string_at(value.data_ptr(), size), dtype).reshape(shape)


def _folded(case: Case, array: Array) -> Array:
    """Return arrays of heads as RotaryEmbedding takes them: one batch, heads side by side."""
    if array.ndim < 3:
        return array
    is_angle = array.shape[-1] != own_shape(VARIANTS[case.variant].op, case.shape)[-1]
    return array.reshape((len(array), -1) if is_angle else (1, len(array), -1))


# --- graphs ------------------------------------------------------------------


# A session keeps all the memory that it ever used: only those of one case are kept.
@functools.lru_cache(maxsize=2)
def _session(graph: Callable[[int], list[Node]], variant: str, dtype: str, n: int) -> Any:
    op = VARIANTS[variant].op
    kind = TYPES[dtype]
    rank = 3 if variant.startswith("rope") else 2
    ranks = {"row_vector": 1, "half_rows": 2}
    inputs = [
        _info(name, kind, ranks.get(argument.role, rank))
        for name, argument in op.kinds.items()
        if argument.is_array
    ]
    outputs = [_info(name, kind, rank) for name in ("y", "total")[: op.outputs]]
    model = helper.make_model(
        helper.make_graph(graph(n), variant.replace(":", "_"), inputs, outputs),
        opset_imports=[helper.make_opsetid("", OPSET), helper.make_opsetid(MICROSOFT, 1)],
        ir_version=10,
    )
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = _threads
    options.inter_op_num_threads = 1
    return onnxruntime.InferenceSession(
        model.SerializeToString(), options, providers=["CPUExecutionProvider"]
    )


def _info(name: str, kind: int, rank: int) -> Any:
    return helper.make_tensor_value_info(name, kind, [None] * rank)


def _node(op: str, inputs: str, outputs: str = "y", domain: str = "", **attributes: Any) -> Node:
    """Return a node; names are separated by spaces, and ``-`` is an output that is not wanted."""
    made = [name.replace("-", "") for name in outputs.split()]
    return helper.make_node(op, inputs.split(), made, domain=domain, **attributes)


def _one(*arguments: Any, **attributes: Any) -> Callable[[int], list[Node]]:
    return lambda n: [_node(*arguments, **attributes)]


def _gated(*activation: Node) -> Callable[[int], list[Node]]:
    return lambda n: [*activation, _node("Mul", "a up")]


def _sigmoid_linear(x: str, y: str) -> list[Node]:
    return [_node("Sigmoid", x, "s"), _node("Mul", f"{x} s", y)]


def _rope(interleaved: int) -> Callable[[int], list[Node]]:
    """Take angles by position, the first row's being 0."""

    def nodes(n: int) -> list[Node]:
        return [
            _node("Constant", "", "first", value_ints=[0]),
            _node("RotaryEmbedding", "x first cos sin", domain=MICROSOFT, interleaved=interleaved),
        ]

    return nodes


def _standard_rope(interleaved: int) -> Callable[[int], list[Node]]:
    """Take angles by row, not by position: with a batch axis of one."""

    def nodes(n: int) -> list[Node]:
        heads = max(1, n // HEAD_DIM)
        return [
            _node("Constant", "", "axis", value_ints=[0]),
            _node("Unsqueeze", "cos axis", "c"),
            _node("Unsqueeze", "sin axis", "s"),
            _node("RotaryEmbedding", "x c s", interleaved=interleaved, num_heads=heads),
        ]

    return nodes


_QUICK: dict[str, Any] = {"domain": MICROSOFT, "alpha": 1.0}
_RMS: dict[str, Any] = {"axis": -1, "epsilon": RMS_EPS}

GRAPHS: dict[str, dict[str, Callable[[int], list[Node]]]] = {
    "silu": {
        "contrib": _one("QuickGelu", "x", **_QUICK),
        "standard": lambda n: _sigmoid_linear("x", "y"),
    },
    "silu_mul": {
        "contrib": _gated(_node("QuickGelu", "gate", "a", **_QUICK)),
        "standard": _gated(*_sigmoid_linear("gate", "a")),
    },
    "gelu:tanh": {
        "contrib": _one("FastGelu", "x", domain=MICROSOFT),
        "standard": _one("Gelu", "x", approximate="tanh"),
    },
    "gelu:none": {
        "contrib": _one("Gelu", "x", domain=MICROSOFT),
        "standard": _one("Gelu", "x"),
    },
    "gelu_mul:tanh": {
        "contrib": _gated(_node("FastGelu", "gate", "a", domain=MICROSOFT)),
        "standard": _gated(_node("Gelu", "gate", "a", approximate="tanh")),
    },
    "gelu_mul:none": {
        "contrib": _gated(_node("Gelu", "gate", "a", domain=MICROSOFT)),
        "standard": _gated(_node("Gelu", "gate", "a")),
    },
    "rms_norm": {
        "contrib": _one("SimplifiedLayerNormalization", "x weight", stash_type=1, **_RMS),
        "standard": _one("RMSNormalization", "x weight", **_RMS),
    },
    "add_rms_norm": {
        "contrib": _one(
            "SkipSimplifiedLayerNormalization",
            "x residual weight",
            "y - - total",
            domain=MICROSOFT,
            epsilon=RMS_EPS,
        ),
        "standard": lambda n: [
            _node("Add", "x residual", "total"),
            _node("RMSNormalization", "total weight", **_RMS),
        ],
    },
    "layer_norm": {
        "standard": _one("LayerNormalization", "x weight bias", axis=-1, epsilon=LAYER_EPS)
    },
    "softmax": {"standard": _one("Softmax", "x", axis=-1)},
    "rope": {"contrib": _rope(0), "standard": _standard_rope(0)},
    "rope:interleaved": {"contrib": _rope(1), "standard": _standard_rope(1)},
}

HAS = tuple(GRAPHS)

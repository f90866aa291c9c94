"""Numba: one fused loop per op, compiled for its dtype, parallel over rows or elements.

Sums may be reordered, which they must be to be vectorised; nothing else of ``fastmath`` is on, so
NaN and infinity keep their meaning. Numba has no half floats on CPUs.
"""

import functools
import math
from collections.abc import Callable
from typing import Any, cast

import numba
import numpy as np

from comparison.cases import Case
from peers import UnsupportedError, Way
from tensor_ops.variants import VARIANTS

LABEL = "Numba"
PACKAGES = ("numba", "llvmlite")

RMS_EPS, LAYER_EPS = 1e-6, 1e-5
FASTMATH = {"reassoc", "contract"}
# Below this number of elements, starting threads costs more than they bring.
PARALLEL_FROM = 2**15

Array = Any
Kernel = Callable[..., None]

_threads = 1


def start(threads: int) -> None:
    """Set the number of threads."""
    global _threads
    _threads = threads
    numba.set_num_threads(threads)


def ways(case: Case, values: dict[str, Array], out: tuple[Array, ...] | None) -> dict[str, Way]:
    """Return the kernel, and the making of its result where that is part of the call."""
    if case.dtype not in ("float32", "float64"):
        raise UnsupportedError(f"Numba has no {case.dtype} on CPUs")
    is_parallel = _threads > 1 and math.prod(case.shape) >= PARALLEL_FROM
    kernel = _compiled(case.variant, case.dtype, is_parallel)
    given = tuple(_flat(case, value) for value in values.values())
    if out is None:
        outputs = VARIANTS[case.variant].op.outputs
        return {"": Way(functools.partial(_allocate, kernel, given, outputs), _reader(values))}
    targets = tuple(_flat(case, array) for array in out)
    return {"": Way(functools.partial(kernel, *given, *targets), lambda _: out)}


def _allocate(kernel: Kernel, given: tuple[Array, ...], outputs: int) -> tuple[Array, ...]:
    made = tuple(np.empty_like(given[0]) for _ in range(outputs))
    kernel(*given, *made)
    return made


def _flat(case: Case, array: Array) -> Array:
    """Return arrays of elementwise ops as one long row, which is split most evenly."""
    op = VARIANTS[case.variant].op
    return array.reshape(-1) if op.kinds[op.first].role == "elements" else array


def _reader(values: dict[str, Array]) -> Callable[[Any], tuple[Array, ...]]:
    shape = next(iter(values.values())).shape
    return lambda made: tuple(each.reshape(shape) for each in made)


@functools.cache
def _compiled(variant: str, dtype: str, is_parallel: bool) -> Kernel:
    # Numbers of the dtype itself: a literal would make float32 expressions float64.
    kernel = KERNELS[variant](np.dtype(dtype).type)
    options: dict[str, Any] = {"fastmath": FASTMATH, "error_model": "numpy"}
    compiled: Any = numba.njit(kernel, parallel=is_parallel, **options)
    return cast(Kernel, compiled)


Real = Callable[[float], Any]


def silu(real: Real) -> Kernel:
    one = real(1)

    def kernel(x: Array, out: Array) -> None:
        for i in numba.prange(x.size):
            out[i] = x[i] / (one + math.exp(-x[i]))

    return kernel


def silu_mul(real: Real) -> Kernel:
    one = real(1)

    def kernel(gate: Array, up: Array, out: Array) -> None:
        for i in numba.prange(gate.size):
            out[i] = gate[i] / (one + math.exp(-gate[i])) * up[i]

    return kernel


def gelu_tanh(real: Real) -> Kernel:
    half, one, outer, cubic = real(0.5), real(1), real(math.sqrt(2 / math.pi)), real(0.044715)

    def kernel(x: Array, out: Array) -> None:
        for i in numba.prange(x.size):
            v = x[i]
            out[i] = half * v * (one + math.tanh(outer * (v + cubic * v * v * v)))

    return kernel


def gelu_mul_tanh(real: Real) -> Kernel:
    half, one, outer, cubic = real(0.5), real(1), real(math.sqrt(2 / math.pi)), real(0.044715)

    def kernel(gate: Array, up: Array, out: Array) -> None:
        for i in numba.prange(gate.size):
            v = gate[i]
            out[i] = half * v * (one + math.tanh(outer * (v + cubic * v * v * v))) * up[i]

    return kernel


def gelu_erf(real: Real) -> Kernel:
    half, one, root_half = real(0.5), real(1), real(math.sqrt(0.5))

    def kernel(x: Array, out: Array) -> None:
        for i in numba.prange(x.size):
            out[i] = half * x[i] * (one + math.erf(x[i] * root_half))

    return kernel


def gelu_mul_erf(real: Real) -> Kernel:
    half, one, root_half = real(0.5), real(1), real(math.sqrt(0.5))

    def kernel(gate: Array, up: Array, out: Array) -> None:
        for i in numba.prange(gate.size):
            out[i] = half * gate[i] * (one + math.erf(gate[i] * root_half)) * up[i]

    return kernel


def rms_norm(real: Real) -> Kernel:
    zero, one, eps = real(0), real(1), real(RMS_EPS)

    def kernel(x: Array, weight: Array, out: Array) -> None:
        n = x.shape[1]
        for row in numba.prange(x.shape[0]):
            squares = zero
            for i in range(n):
                squares += x[row, i] * x[row, i]
            scale = one / math.sqrt(squares / real(n) + eps)
            for i in range(n):
                out[row, i] = x[row, i] * scale * weight[i]

    return kernel


def add_rms_norm(real: Real) -> Kernel:
    zero, one, eps = real(0), real(1), real(RMS_EPS)

    def kernel(x: Array, residual: Array, weight: Array, out: Array, total: Array) -> None:
        n = x.shape[1]
        for row in numba.prange(x.shape[0]):
            squares = zero
            for i in range(n):
                v = x[row, i] + residual[row, i]
                total[row, i] = v
                squares += v * v
            scale = one / math.sqrt(squares / real(n) + eps)
            for i in range(n):
                out[row, i] = total[row, i] * scale * weight[i]

    return kernel


def layer_norm(real: Real) -> Kernel:
    zero, one, eps = real(0), real(1), real(LAYER_EPS)

    def kernel(x: Array, weight: Array, bias: Array, out: Array) -> None:
        n = x.shape[1]
        for row in numba.prange(x.shape[0]):
            total = zero
            for i in range(n):
                total += x[row, i]
            mean = total / real(n)
            squares = zero
            for i in range(n):
                squares += (x[row, i] - mean) * (x[row, i] - mean)
            scale = one / math.sqrt(squares / real(n) + eps)
            for i in range(n):
                out[row, i] = (x[row, i] - mean) * scale * weight[i] + bias[i]

    return kernel


def softmax(real: Real) -> Kernel:
    zero, one = real(0), real(1)

    def kernel(x: Array, out: Array) -> None:
        n = x.shape[1]
        for row in numba.prange(x.shape[0]):
            largest = x[row, 0]
            for i in range(n):
                largest = max(largest, x[row, i])
            total = zero
            for i in range(n):
                power = math.exp(x[row, i] - largest)
                out[row, i] = power
                total += power
            scale = one / total
            for i in range(n):
                out[row, i] *= scale

    return kernel


def rope(real: Real) -> Kernel:
    def kernel(x: Array, cos: Array, sin: Array, out: Array) -> None:
        half = x.shape[2] // 2
        for row in numba.prange(x.shape[0]):
            for head in range(x.shape[1]):
                for i in range(half):
                    a, b = x[row, head, i], x[row, head, half + i]
                    c, s = cos[row, 0, i], sin[row, 0, i]
                    out[row, head, i] = a * c - b * s
                    out[row, head, half + i] = b * c + a * s

    return kernel


def rope_interleaved(real: Real) -> Kernel:
    def kernel(x: Array, cos: Array, sin: Array, out: Array) -> None:
        half = x.shape[2] // 2
        for row in numba.prange(x.shape[0]):
            for head in range(x.shape[1]):
                for i in range(half):
                    a, b = x[row, head, 2 * i], x[row, head, 2 * i + 1]
                    c, s = cos[row, 0, i], sin[row, 0, i]
                    out[row, head, 2 * i] = a * c - b * s
                    out[row, head, 2 * i + 1] = b * c + a * s

    return kernel


KERNELS: dict[str, Callable[[Real], Kernel]] = {
    "silu": silu,
    "silu_mul": silu_mul,
    "gelu:tanh": gelu_tanh,
    "gelu:none": gelu_erf,
    "gelu_mul:tanh": gelu_mul_tanh,
    "gelu_mul:none": gelu_mul_erf,
    "rms_norm": rms_norm,
    "add_rms_norm": add_rms_norm,
    "layer_norm": layer_norm,
    "softmax": softmax,
    "rope": rope,
    "rope:interleaved": rope_interleaved,
}

HAS = tuple(KERNELS)

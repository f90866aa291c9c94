"""JAX, compiled by XLA for the CPU.

Memory is reused by donating the last result to the next call, which then writes into it.
"""

import os
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp

from comparison.cases import Case
from peers import UnsupportedError, Way

LABEL = "JAX"
PACKAGES = ("jax", "jaxlib")

RMS_EPS, LAYER_EPS = 1e-6, 1e-5

Array = Any


def start(threads: int) -> None:
    """Give XLA as many threads as asked for: it starts one for each processor it may use."""
    jax.config.update("jax_enable_x64", True)
    allowed = os.sched_getaffinity(0)
    os.sched_setaffinity(0, sorted(allowed)[:threads])
    jax.devices("cpu")
    for thread in os.listdir("/proc/self/task"):
        os.sched_setaffinity(int(thread), allowed)


def ways(case: Case, values: dict[str, Array], out: tuple[Array, ...] | None) -> dict[str, Way]:
    """Return the compiled function, each call of it waited for."""
    given = tuple(map(jnp.asarray, values.values()))
    formula = FORMULAS[case.variant]
    if out is None:
        compiled = jax.jit(formula)
        return {"": Way(lambda: jax.block_until_ready(compiled(*given)))}
    return {"": Way(_Donating(formula, given, len(out)))}


class _Donating:
    """A call that gives its last results to be written over."""

    def __init__(self, formula: Callable[..., Any], given: tuple[Array, ...], outputs: int) -> None:
        def with_room(room: Any, *values: Array) -> Any:
            return formula(*values)

        self._call = jax.jit(with_room, donate_argnums=0, keep_unused=True)
        self._given = given
        empty = tuple(jnp.zeros_like(given[0]) for _ in range(outputs))
        self._last: Any = empty if outputs > 1 else empty[0]
        before = _places(self())
        if _places(self()) != before:
            raise UnsupportedError("XLA takes new memory although the old is donated")

    def __call__(self) -> Any:
        self._last = jax.block_until_ready(self._call(self._last, *self._given))
        return self._last


def _places(results: Any) -> set[int]:
    return {each.unsafe_buffer_pointer() for each in jax.tree.leaves(results)}


def _wide(x: Array) -> Array:
    """Return half types in float32, for sums; XLA fuses the conversion."""
    return x.astype(jnp.promote_types(x.dtype, jnp.float32))


def rms_norm(x: Array, weight: Array) -> Array:
    wide = _wide(x)
    mean = jnp.mean(wide * wide, axis=-1, keepdims=True)
    return (wide * jax.lax.rsqrt(mean + RMS_EPS) * weight).astype(x.dtype)


def add_rms_norm(x: Array, residual: Array, weight: Array) -> tuple[Array, Array]:
    total = _wide(x) + residual
    mean = jnp.mean(total * total, axis=-1, keepdims=True)
    normal = total * jax.lax.rsqrt(mean + RMS_EPS) * weight
    return normal.astype(x.dtype), total.astype(x.dtype)


def layer_norm(x: Array, weight: Array, bias: Array) -> Array:
    wide = _wide(x)
    centred = wide - jnp.mean(wide, axis=-1, keepdims=True)
    variance = jnp.mean(centred * centred, axis=-1, keepdims=True)
    return (centred * jax.lax.rsqrt(variance + LAYER_EPS) * weight + bias).astype(x.dtype)


def rope(x: Array, cos: Array, sin: Array) -> Array:
    first, second = jnp.split(x, 2, axis=-1)
    return jnp.concatenate([first * cos - second * sin, second * cos + first * sin], axis=-1)


def rope_interleaved(x: Array, cos: Array, sin: Array) -> Array:
    even, odd = x[..., ::2], x[..., 1::2]
    return jnp.stack([even * cos - odd * sin, odd * cos + even * sin], axis=-1).reshape(x.shape)


FORMULAS: dict[str, Callable[..., Any]] = {
    "silu": jax.nn.silu,
    "silu_mul": lambda gate, up: jax.nn.silu(gate) * up,
    "gelu:tanh": lambda x: jax.nn.gelu(x, approximate=True),
    "gelu:none": lambda x: jax.nn.gelu(x, approximate=False),
    "gelu_mul:tanh": lambda gate, up: jax.nn.gelu(gate, approximate=True) * up,
    "gelu_mul:none": lambda gate, up: jax.nn.gelu(gate, approximate=False) * up,
    "rms_norm": rms_norm,
    "add_rms_norm": add_rms_norm,
    "layer_norm": layer_norm,
    "softmax": lambda x: jax.nn.softmax(x, axis=-1),
    "rope": rope,
    "rope:interleaved": rope_interleaved,
}

HAS = tuple(FORMULAS)

"""An op: its signature, the iteration of its kernels and the numbers that they take.

`op` is the decorator of the files in ``tensor_ops_opencl/ops``; the .cl file of the same stem has
the kernels. What the docstrings of all ops say alike is written here: `out`, what is returned and
what is raised. A declaration that has more to say of its results has `out` and "Returns" itself.
"""

import functools
import inspect
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from tensor_ops_opencl import device_arrays, host_arrays
from tensor_ops_opencl.arguments import Declaration, dtype_name
from tensor_ops_opencl.array_types import HOST_ARRAYS, array_type_of
from tensor_ops_opencl.call import Call
from tensor_ops_opencl.checks import check_outputs, check_values
from tensor_ops_opencl.iteration import Iteration

__all__ = ["OPS", "Op", "op"]

# Filled by the files in tensor_ops_opencl/ops, by name.
OPS: dict[str, Callable[..., Any]] = {}

#: Build options that say of the arguments of a role that they are float32 beside half elements.
WIDE_OPTIONS = {
    "rows": "-DWIDE_RESIDUAL",
    "row_vector": "-DWIDE_PARAMETERS",
    "half_rows": "-DWIDE_PARAMETERS",
}

_RESULT = """
out : array of the shape and dtype of `{first}`, optional
    Where the result goes: {full} itself or memory apart from the inputs.

Returns
-------
array of the shape and dtype of `{first}`
    `out` if it was given. A pyopencl array is complete when its events are."""
_RAISES = """

Raises
------
TypeError
    If an argument is no array where one is expected, or has another type or dtype than those above.
ValueError
    If a shape does not fit, a number or a choice is none of those above, or `out` cannot take the
    result.
DeviceError
    If there is no device, or it lacks the dtype.
MemoryError
    If the device has no memory left for the call."""

Numbers = Callable[..., tuple[np.generic, ...]]


class Op(Declaration):
    """One op, whose name is also the stem of its .cl file; its kinds are without `out`.

    `results_like` has, for each array that it returns, the argument whose dtype it has.
    """

    def __init__(
        self,
        declared: Callable[..., Any],
        iteration: Iteration,
        results_like: tuple[str, ...],
        numbers: Numbers | None,
    ) -> None:
        super().__init__(declared)
        self.iteration = iteration
        self.arrays = [name for name, kind in self.kinds.items() if kind.is_array]
        self.results_like = results_like or (self.arrays[0],)
        self._wide = [name for name, kind in self.kinds.items() if kind.wide]
        self._reals = [name for name, kind in self.kinds.items() if kind.role == "real"]
        self._switches = [n for n, kind in self.kinds.items() if kind.role in ("choice", "flag")]
        self._numbers = functools.lru_cache(maxsize=256)(numbers) if numbers else None

    def run(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Any:
        """Check a call and run it where its arrays are."""
        values = self.bind(args, kwargs)
        out = values.pop("out")
        first = self.arrays[0]
        x = values[first]
        arrays = array_type_of(self.name, first, x)
        check_values(self.name, self.kinds, values, arrays)
        if out is not None:
            out = check_outputs(self.name, self.results_like, self.kinds, values, out, arrays)
        dtype = dtype_name(self.name, first, x)
        numbers: tuple[np.generic, ...] = ()
        if self._numbers is not None:
            real = np.float64 if dtype == "float64" else np.float32
            numbers = self._numbers(real, *(values[name] for name in self._reals))
        call = Call(
            op=self.name,
            iteration=self.iteration,
            dtype=dtype,
            options=self._options(dtype, values),
            numbers=numbers,
            inputs={name: values[name] for name in self.arrays},
            kinds=self.kinds,
            results_like=self.results_like,
            out=out,
        )
        where = host_arrays if arrays is HOST_ARRAYS else device_arrays
        results = where.run(call)
        return results[0] if len(results) == 1 else results

    def _options(self, dtype: str, values: Mapping[str, Any]) -> tuple[str, ...]:
        chosen = [f"-DELEMENT_{dtype}"]
        first = values[self.arrays[0]].dtype
        for name in self._wide:
            option = WIDE_OPTIONS[self.kinds[name].role]
            value = values[name]
            if value is not None and value.dtype != first and option not in chosen:
                chosen.append(option)
        for name in self._switches:
            value = values[name]
            if isinstance(value, str):
                chosen.append(f"-D{name.upper()}_{value}")
            elif value:
                chosen.append(f"-D{name.upper()}")
        return tuple(chosen)


def op(
    iteration: Iteration, *, results_like: tuple[str, ...] = (), numbers: Numbers | None = None
) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Turn the declaration of an op into the function that runs it.

    Parameters
    ----------
    iteration : Iteration
        How its kernels iterate over the arrays.
    results_like : tuple of str, optional
        For each array that it returns, the argument whose dtype it has; without it the op returns
        one array in the dtype of the first argument.
    numbers : callable, optional
        The kernels' values of the op's real arguments: called with the type to compute in
        and these, it returns NumPy scalars.
    """

    def decorate(declared: Callable[..., Any]) -> Callable[..., Any]:
        new = Op(declared, iteration, results_like, numbers)
        run = new.run

        @functools.wraps(declared)
        def public(*args: Any, **kwargs: Any) -> Any:
            return run(args, kwargs)

        del public.__wrapped__
        public.__module__ = "tensor_ops_opencl"  # where callers, and pickle, find it
        public.__signature__ = new.signature  # type: ignore[attr-defined]
        public.__doc__ = _docstring(new, inspect.cleandoc(declared.__doc__ or ""))
        OPS[new.name] = public
        return public

    return decorate


def _docstring(new: Op, declared: str) -> str:
    """Return the docstring of a declaration with the sections that all ops share."""
    own, notes, rest = declared.partition("\n\nNotes\n")
    if "\nReturns\n" not in own:
        full = " itself, ".join(f"`{name}`" for name, kind in new.kinds.items() if kind.is_full)
        own += _RESULT.format(first=new.arrays[0], full=full)
    return f"{own}{_RAISES}{notes}{rest}"

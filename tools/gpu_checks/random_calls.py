"""Calls drawn at random, on every kind of array that is here, against the NumPy backend in float64.

    python tools/gpu_checks/random_calls.py --count 10000

A call that is wrong is printed with its number, which `--first` repeats.
"""

import argparse
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import numpy as np

sys.path.append(str(Path(__file__).parents[2] / "tests/conformance"))

import tensor_ops_cuda
from calls import HALVES, LAYOUTS, check, choices, draw_arguments, sprinkle
from tensor_ops.op.arguments import DTYPES
from tensor_ops.ops import OPS

LENGTHS = (1, 2, 3, 8, 31, 64, 100, 128, 257, 512, 1000, 1024, 2048, 4096, 5000, 8192, 16384)
LONG = (40_000, 65_536, 100_002)
# A long row is compared by NumPy in float64, which takes its time.
SHARE_OF_LONG = 0.01


def main() -> int:
    """Make the calls that the command line asks for; return the exit status."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", type=int, default=1000)
    parser.add_argument("--first", type=int, default=0, help="the number of the first call")
    parser.add_argument("--processes", type=int, default=1, help="how many share the calls")
    options = parser.parse_args()
    each = -(-options.count // options.processes)
    firsts = range(options.first, options.first + options.count, each)
    # Not forked, which CUDA does not survive.
    with ProcessPoolExecutor(options.processes, get_context("spawn")) as pool:
        made, wrong = map(sum, zip(*pool.map(_calls, firsts, [each] * len(firsts)), strict=True))
    print(f"{made} calls, {wrong} wrong")
    return 1 if wrong else 0


def _calls(first: int, count: int) -> tuple[int, int]:
    """Make calls and print those that are wrong, of which the 20th is the last; count both."""
    names = [name for name in OPS if hasattr(tensor_ops_cuda, name)]
    kinds, wrong = dict(_kinds()), 0
    print(f"arrays: {', '.join(kinds)}; ops: {', '.join(names)}", flush=True)
    for number in range(first, first + count):
        drawn: list[Any] = []
        try:
            _call(number, names, kinds, drawn)
        except Exception as error:
            wrong += 1
            print(f"call {number}, {drawn}: {type(error).__name__}: {error}", flush=True)
            if wrong == 20:
                break
    return number - first + 1, wrong


def _call(
    number: int, names: list[str], kinds: dict[str, Callable[[Any], Any]], drawn: list[Any]
) -> None:
    """Draw a call, say what it is in `drawn`, make it, and raise what is wrong with it."""
    random = np.random.default_rng(number)
    op = OPS[names[number % len(names)]]
    dtype = str(random.choice(list(DTYPES)))
    kind = str(random.choice(list(kinds)))
    n = int(random.choice(LONG if random.random() < SHARE_OF_LONG else LENGTHS))
    n += n % 2 if any(each.role == "half_rows" for each in op.kinds.values()) else 0
    most = max(1, 60_000 // n)
    leading = [
        (),
        (int(random.integers(1, most + 1)),),
        (2, int(random.integers(1, most // 2 + 2))),
    ]
    shape = (*leading[random.integers(len(leading))], n)
    mixtures = [(), *op.mixtures] if dtype in HALVES else [()]
    wide = mixtures[random.integers(len(mixtures))]
    values = draw_arguments(op, shape, dtype, f"random {number}", wide)
    sprinkle(op, values, f"random {number}", float(random.choice([0.0, 0.0, 0.02, 0.3])))
    options = choices(op)[random.integers(len(choices(op)))]
    in_place = op.outputs == 1 and random.random() < 0.3
    layouts = {name: str(random.choice(list(LAYOUTS))) for name in values}
    drawn += [op.name, dtype, wide, shape, kind, options, in_place, layouts]

    values = {name: LAYOUTS[layouts[name]](value) for name, value in values.items()}
    given = {name: kinds[kind](value) for name, value in values.items()}
    if in_place:
        given[op.first] = kinds[kind](np.array(values[op.first]))
        options = options | {"out": given[op.first]}
    expected = values | {name: value for name, value in options.items() if name != "out"}
    result = getattr(tensor_ops_cuda, op.name)(**given, **options)
    results = result if op.outputs > 1 else (result,)
    check(op, "cuda", expected, tuple(map(_as_numpy, results)))


def _kinds() -> Iterator[tuple[str, Callable[[Any], Any]]]:
    """Yield the kinds of arrays that are here, each with what makes one out of NumPy's."""
    yield "numpy", lambda array: array
    if hasattr(tensor_ops_cuda, "to_device"):
        yield "DeviceArray", tensor_ops_cuda.to_device
    try:
        import torch
    except ImportError:
        return
    if torch.cuda.is_available():
        yield "torch", _as_tensor


def _as_tensor(array: Any) -> Any:
    """Return a tensor with the strides of the array's rows; elements of a row are neighbours."""
    import torch

    plain = np.ascontiguousarray(array)
    if plain.dtype.name == "bfloat16":
        tensor = torch.from_numpy(plain.view(np.int16).copy()).view(torch.bfloat16).cuda()
    else:
        tensor = torch.from_numpy(plain.copy()).cuda()
    if array.flags.c_contiguous or array.ndim == 1:
        return tensor
    wide = torch.empty(
        (*tensor.shape[:-1], tensor.shape[-1] + 3), dtype=tensor.dtype, device="cuda"
    )
    view = wide[..., 1:-2]
    view.copy_(tensor)
    return view


def _as_numpy(result: Any) -> Any:
    if isinstance(result, np.ndarray):
        return result
    if hasattr(result, "numpy") and not hasattr(result, "cpu"):
        return result.numpy()
    import ml_dtypes
    import torch

    host = result.detach().cpu()
    if host.dtype == torch.bfloat16:
        return host.contiguous().view(torch.int16).numpy().view(ml_dtypes.bfloat16)
    return host.numpy()


if __name__ == "__main__":
    sys.exit(main())

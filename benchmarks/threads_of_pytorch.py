"""Speedup of calls on PyTorch's tensors by PyTorch's threads.

A call of tensor_ops_cpp takes turns with a function of PyTorch, whose threads spin after it, or
comes after idling. The same memory is given as a NumPy array, whose call has threads of the module,
and as a tensor, whose call has PyTorch's while they spin; both with two threads, and with one.
PyTorch's own function for the op stands beside them.

    python benchmarks/threads_of_pytorch.py --json benchmarks/results/threads_of_pytorch.json
"""

import functools
import random
import statistics
import time

import torch

import tensor_ops_cpp
from harness import command
from records import write_json
from threads import facts

THREADS = 2
SHAPES = ((256, 768), (128, 4096), (1024, 4096))
IDLE = 0.02
BLOCK, AFTER_IDLING = 60, 8
MATRIX = torch.randn(256, 256)
SITUATIONS = {
    "after silu of PyTorch": functools.partial(torch.nn.functional.silu, torch.randn(256, 768)),
    "after a matrix product of PyTorch": functools.partial(torch.mm, MATRIX, MATRIX),
    "after 20 ms of idling": functools.partial(time.sleep, IDLE),
}


def main():
    parser = command.parser(__doc__)
    parser.add_argument("--rounds", type=int, default=15, help="blocks of each kind")
    options = parser.parse_args()
    torch.set_num_threads(THREADS)
    tensor_ops_cpp.set_num_threads(THREADS)
    with torch.inference_mode():
        figures = [
            {
                "situation": situation,
                "shape": shape,
                "microseconds": measure(before, shape, options),
            }
            for situation, before in SITUATIONS.items()
            for shape in SHAPES
        ]
    for each in figures:
        print(each["situation"], each["shape"], each["microseconds"])
    content = facts() | {"torch": torch.__version__, "figures": figures}
    write_json(options.json, content)


def measure(before, shape, options):
    """Return the median microseconds of each way to compute silu right after `before`."""
    x = torch.randn(shape)
    array, out = x.numpy(), torch.empty_like(x)
    ways = {
        "one thread": functools.partial(tensor_ops_cpp.silu, x, out=out, num_threads=1),
        "own threads": functools.partial(tensor_ops_cpp.silu, array, out=out.numpy()),
        "PyTorch's threads": functools.partial(tensor_ops_cpp.silu, x, out=out),
        "PyTorch's function": functools.partial(torch.ops.aten.silu.out, x, out=out),
    }
    is_idle = before is SITUATIONS["after 20 ms of idling"]
    calls = AFTER_IDLING if is_idle else BLOCK
    found = {name: [] for name in ways}
    for _ in range(options.rounds):
        for name in random.sample(list(ways), len(ways)):
            call = ways[name]
            seconds = []
            for _ in range(calls):
                before()
                start = time.perf_counter()
                call()
                seconds.append(time.perf_counter() - start)
            found[name].append(statistics.median(seconds))
    return {name: round(1e6 * statistics.median(each), 1) for name, each in found.items()}


if __name__ == "__main__":
    main()

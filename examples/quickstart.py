"""A real model on the backend that is chosen here, then every op at the shapes of an LLM.

::

    python examples/quickstart.py

runs ``embed_sentences.py`` and prints, for each op and backend, the time, the speed-up over NumPy
and the largest error. It takes about half a minute, and exits with 1 if a result is wrong.
"""

import argparse
import sys
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import embed_sentences

import tensor_ops
from tensor_ops import benchmark, machine
from tensor_ops.benchmark import Result
from tensor_ops.timing import format_time

__all__ = ["main"]

UNITS = {"ulp": "ULP", "element": "relative", "row": "of row max", "terms": "of terms"}
HEAD = ("op", "shape", "backend", "NumPy", "time", "speed-up", "error (allowed)")


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the model and print the table."""
    options = _parser().parse_args(arguments)
    embed_sentences.main([])
    print(f"\n{len(tensor_ops.list_ops())} ops at LLM shapes, with their variants, float32\n")
    for label, text in _setting():
        print(f"{label:9}{text}")
    print()
    if not _print_table(_measured(options.seconds)):
        sys.exit("error: a result is wrong, see the table")


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        description="Run a real model, then measure every op against NumPy."
    )
    parser.add_argument(
        "--seconds", type=float, default=0.8, help="for each op and shape (default: 0.8)"
    )
    return parser


def _setting() -> Iterator[tuple[str, str]]:
    """Yield what the figures depend on."""
    facts = machine.facts()
    cpu = facts["cpu"] or facts["architecture"]
    yield "machine", f"{cpu}, {facts['usable_cpus']} CPUs to use"
    yield "system", f"{facts['os']}, Python {facts['python']}, NumPy {facts['numpy']}"
    decided_by = tensor_ops.get_backend_info()["decided_by"]
    yield "backend", f"{tensor_ops.get_backend()}, decided by {decided_by}"
    if tensor_ops.is_backend_available("cpp"):
        yield "cpp", _cpp_setting()


def _cpp_setting() -> str:
    # Only when it is installed: the example also runs on NumPy alone.
    from tensor_ops_cpp import get_optimization_info

    info: dict[str, Any] = get_optimization_info()
    threads = f"{info['num_threads']} threads"
    return f"SIMD level {info['level']} ({', '.join(info['features'])}), {threads}"


def _measured(seconds: float) -> Iterator[tuple[Result, Result]]:
    """Yield the plain expression's result beside each backend's, as they come.

    Our own NumPy backend, which is slower for being right to the bound, is shown where it is alone.
    """
    for case in benchmark.cases():
        plain, numpy, *others = benchmark.measure_op(case, seconds=seconds)
        for result in others or [numpy]:
            yield plain, result


def _print_table(pairs: Iterable[tuple[Result, Result]]) -> bool:
    """Print a line for each pair; return whether every result is right."""
    line = _line_format()
    print(line.format(*HEAD))
    right = True
    for plain, result in pairs:
        print(line.format(*_cells(plain, result)), flush=True)
        right = right and result.ok
    print(
        "\nNumPy is the plain expression that one would write without this library. "
        "\nThe error is the largest against the op in float64, in units in the last place, relative"
        "\nto the element, to the largest of its row or to its terms. What the op allows is in\n"
        "brackets.\n"
        "Next: docs/guides/backends.md, and 'tensor-ops bench --help' for your own shapes."
    )
    return right


def _line_format() -> str:
    """Return the format of a line, whose columns have room for every case and backend.

    Lines are printed as they come, so that the widths are known before the results are.
    """
    cases = benchmark.cases()
    backends = tensor_ops.get_available_backends(runs_programs=False)
    columns = ([each.op for each in cases], [_shape(each) for each in cases], backends)
    widths = [max(map(len, [name, *column])) for name, column in zip(HEAD, columns, strict=False)]
    return " ".join([*(f"{{:<{width}}}" for width in widths), "{:>8} {:>8} {:>8}  {}"])


def _shape(case: benchmark.Case) -> str:
    return "x".join(map(str, case.shape))


def _cells(plain: Result, result: Result) -> tuple[str, ...]:
    head = (result.case.op, _shape(result.case), result.backend)
    base = format_time(plain.timing.median) if plain.timing else "-"
    if result.timing is None or result.accuracy is None:
        return (*head, base, "-", "-", result.failure or result.unsupported or "")
    speedup = f"{result.speedup:.1f}x" if result.speedup else "-"
    return (*head, base, format_time(result.timing.median), speedup, _error(result))


def _error(result: Result) -> str:
    accuracy = result.accuracy
    assert accuracy is not None
    if accuracy.problem:
        return f"WRONG: {accuracy.problem}"
    text = f"{accuracy.error:.2g} ({accuracy.limit:.2g} {UNITS[result.bound.unit]})"
    return text if accuracy.within else f"WRONG: {text}"


if __name__ == "__main__":
    try:
        main()
    except KeyboardInterrupt:
        sys.exit(130)

"""``tensor-ops bench``: every backend against plain NumPy, at the shapes of language models."""

import json
import os
import sys
from argparse import ArgumentParser, Namespace
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

import tensor_ops
from tensor_ops import backends
from tensor_ops.backends.names import LAST_RESORT
from tensor_ops.cli import Commands, add_command, cases, values
from tensor_ops.files.output import figure_class_for, whole_file

if TYPE_CHECKING:
    from tensor_ops.benchmark import Case, Result

__all__ = ["add", "run"]

EXAMPLES = """\
examples:
  tensor-ops bench
  tensor-ops bench --ops rms_norm,silu --dtype float16,bfloat16 --shape 1x4096,2048x4096
  tensor-ops bench --ops gelu --ops rope:interleaved
  tensor-ops bench --backends cpp --seconds 5 --json times.json --plot times.svg

Speed-ups are over "plain NumPy", the expression that one would write without this library; "python"
is our NumPy backend. The error is the largest one against the NumPy body in float64.

Exits with 1 if a result is out of its bound or a backend fails, with 130 after Ctrl-C, which keeps
what was measured. Other packages add commands below this one, which tensor-ops --help lists."""


def add(commands: "Commands[ArgumentParser]") -> None:
    """Add this command's parser."""
    parser = add_command(
        commands,
        "bench",
        run,
        help="time and error of every backend against NumPy",
        description="Measure time and error of every op on every available backend.",
        epilog=EXAMPLES,
    )
    cases.add(parser, shapes="1x4096 128x4096", dtypes="float32")
    effort = parser.add_mutually_exclusive_group()
    effort.add_argument(
        "--seconds", type=values.seconds, default=1.0, help="for each op and shape; default: 1"
    )
    effort.add_argument("--repeats", metavar="N", type=values.count, help="rounds, not seconds")
    parser.add_argument("--json", metavar="FILE", type=Path, help="write every figure there")
    parser.add_argument(
        "--plot", metavar="FILE", type=Path, help="draw the times: .svg, .png or .pdf"
    )


def run(arguments: Namespace) -> int:
    """Measure, print, and write what was asked for."""
    figure = figure_class_for(arguments.parser, arguments.json, arguments.plot)
    from tensor_ops import benchmark

    names = cases.available(arguments.backends)
    wanted = benchmark.cases(
        arguments.ops, arguments.shape or benchmark.SHAPES, arguments.dtype or ("float32",)
    )
    results, interrupted = _measure(wanted, names, arguments)
    print(benchmark.format_table(results))
    if arguments.json:
        record = _record(arguments, names, results, interrupted)
        with whole_file(arguments.json) as path:
            path.write_text(json.dumps(record, indent=2) + "\n", encoding="utf-8")
    if figure and results:
        from tensor_ops.cli.plot import draw

        with whole_file(arguments.plot) as path:
            draw(results, figure).savefig(path)
    if interrupted:
        print(f"stopped after {len(results)} results", file=sys.stderr)
        return 130
    return 0 if all(result.ok for result in results) else 1


def _measure(
    wanted: "list[Case]", names: list[str], arguments: Namespace
) -> "tuple[list[Result], bool]":
    """Return the results, and whether Ctrl-C cut them short."""
    from tensor_ops import benchmark
    from tensor_ops.progress import ProgressBar

    results: list[Result] = []
    try:
        with ProgressBar(sys.stderr) as bar:
            for done, case in enumerate(wanted):
                bar.show(done, len(wanted), f"{done}/{len(wanted)}  {case}")
                results += benchmark.measure_op(
                    case, names, seconds=arguments.seconds, repeats=arguments.repeats
                )
    except KeyboardInterrupt:
        return results, True
    return results, False


def _record(
    arguments: Namespace, names: list[str], results: "list[Result]", interrupted: bool
) -> dict[str, Any]:
    from tensor_ops import machine

    given = {key: value for key, value in vars(arguments).items() if key not in ("run", "parser")}
    return {
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "machine": machine.facts(),
        "versions": {"tensor_ops": tensor_ops.__version__, "numpy": np.__version__},
        "backends": {name: backends.info(name) for name in dict.fromkeys((LAST_RESORT, *names))},
        "arguments": json.loads(json.dumps(given, default=str)),
        "environment": {
            k: v for k, v in os.environ.items() if k.startswith(("TENSOR_OPS_", "OMP_"))
        },
        "interrupted": interrupted,
        "results": [result.as_dict() for result in results],
    }

"""The command ``tensor-ops bench decode``."""

import argparse
import json
import sys
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from tensor_ops import TensorOpsError
from tensor_ops.extension import ProgressBar, figure_class_for, machine, whole_file
from tensor_ops_decode.commands.options import (
    add_running,
    kernel_options,
    model_parser,
    show_bytes,
)
from tensor_ops_decode.commands.ranks import check_one_process
from tensor_ops_decode.kernel.persistent_kernel import PersistentKernel
from tensor_ops_decode.measure.benchmark import Samples, measure, random_prompt
from tensor_ops_decode.measure.figures import DecodeFigures, node_times
from tensor_ops_decode.measure.report import draw, format_figures

__all__ = ["bench"]

EXAMPLES = """\
examples:
  tensor-ops bench decode SmolLM2-135M-Instruct.Q4_1.gguf
  tensor-ops bench decode model.gguf --num-workers 4 --prompt-tokens 1024 --new-tokens 64
  tensor-ops bench decode model.gguf --json decode.json --plot decode.svg

Reads a prompt of random tokens and decodes after it, in rounds. A round decodes eight tokens, lets
the same threads read the weights without computing, which gives the bandwidth of the memory, and
times each node of one more token. The time of a token has four parts, and the largest limits it:
  memory bandwidth      its bytes, over that bandwidth
  arithmetic            what the nodes take beyond that
  waiting for threads   the mean of the threads
  Python between steps  what a call takes besides its steps, of which it has eight

Exits with 130 after Ctrl-C, which keeps what was measured."""


def bench(argv: Sequence[str]) -> int:
    """Measure how fast a model decodes, and what limits it.

    This is ``tensor-ops bench decode``, with the words after the command's name.
    """
    parser = model_parser("bench decode", bench, EXAMPLES)
    add_running(parser)
    parser.add_argument("--prompt-tokens", type=int, default=256, help="default: 256")
    parser.add_argument("--new-tokens", type=int, default=128, help="default: 128")
    parser.add_argument("--json", metavar="FILE", type=Path, help="write every figure there")
    parser.add_argument(
        "--plot", metavar="FILE", type=Path, help="draw the shares: .svg, .png or .pdf"
    )
    arguments = parser.parse_args(argv)
    figure = figure_class_for(parser, arguments.json, arguments.plot)
    check_one_process("bench decode")
    try:
        return _run(arguments, figure)
    except (ValueError, TypeError) as error:
        raise TensorOpsError(str(error)) from error


def _run(arguments: argparse.Namespace, figure_class: Any) -> int:
    options = kernel_options(arguments)
    samples = Samples()
    with PersistentKernel(model=arguments.model, backend=arguments.backend, **options) as kernel:
        prompt = random_prompt(kernel.program, arguments.prompt_tokens, arguments.new_tokens)
        interrupted = _measure(kernel, prompt, arguments.new_tokens, samples)
        figures = DecodeFigures.of(kernel.program, samples)
        explanation = kernel.explain()
        nodes = node_times(kernel.program, samples.decode)
    name = Path(arguments.model).name
    settings = {**explanation.options, "num_workers": explanation.num_workers}
    listed = ", ".join(f"{key} {value}" for key, value in settings.items())
    print(f"{name} on {explanation.backend}: {listed}\n\n{format_figures(figures)}")
    if arguments.json:
        record = {
            "date": datetime.now(UTC).isoformat(timespec="seconds"),
            "machine": machine.facts(),
            "kernel": explanation.as_dict(),
            "interrupted": interrupted,
            "figures": figures.as_dict(),
            "nodes": nodes,
            "rounds": [each._asdict() for each in samples.rounds],
        }
        with whole_file(arguments.json) as path:
            path.write_text(json.dumps(record, indent=2) + "\n", encoding="utf-8")
    if figure_class:
        with whole_file(arguments.plot) as path:
            draw(figures, name, figure_class).savefig(path)
    if interrupted:
        print(f"stopped after {figures.decode.tokens} tokens", file=sys.stderr)
        return 130
    return 0


def _measure(kernel: PersistentKernel, prompt: list[int], tokens: int, samples: Samples) -> bool:
    """Fill the samples; return whether Ctrl-C cut them short, and pass it on if there are none."""
    try:
        with ProgressBar(sys.stderr) as bar:
            kernel.compile(progress=show_bytes(bar, "packing"))
            measure(
                kernel,
                prompt,
                tokens,
                samples,
                lambda done, size: bar.show(done, size, f"{done} of {size} tokens"),
            )
    except KeyboardInterrupt:
        if not samples.decode:
            raise
        return True
    return False

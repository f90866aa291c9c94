"""The options of commands that open a model, and what they show while it is packed."""

import argparse
from collections.abc import Callable, Sequence
from typing import Any, NoReturn

from tensor_ops.extension import ProgressBar, did_you_mean
from tensor_ops_decode.weights.transforms import QUANTIZED_TYPES

__all__ = ["add_guesses", "add_running", "kernel_options", "model_parser", "show_bytes"]


def model_parser(
    command: str, function: Callable[..., int], examples: str
) -> argparse.ArgumentParser:
    """Return the parser of a command that opens a model, with the options of its program.

    The first line of the function's docstring describes it, there as in ``tensor-ops --help``.
    """
    parser = _Parser(
        prog=f"tensor-ops {command}",
        description=(function.__doc__ or "").partition("\n")[0],
        epilog=examples,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    parser.add_argument("model", type=_path, help="a GGUF file, or a folder of Hugging Face")
    parser.add_argument(
        "--adapter", metavar="FOLDER", type=_path, help="a LoRA adapter for it, as peft saves it"
    )
    parser.add_argument("--backend", help="the backend that must run it")
    parser.add_argument("--max-seq-length", type=int, help="the longest prompt with its answer")
    parser.add_argument(
        "--activations",
        choices=("int8x2", "int8", "bfloat16", "float32"),
        help="what activations are rounded to beside integer weights, or beside bfloat16",
    )
    parser.add_argument(
        "--quantize",
        choices=QUANTIZED_TYPES,
        help="quantize floating-point matrices as they are packed",
    )
    parser.add_argument(
        "--quantize-head",
        choices=QUANTIZED_TYPES,
        help="quantize the matrix of the logits, of whatever type it is",
    )
    return parser


def add_running(parser: argparse.ArgumentParser) -> None:
    """Add the options of a kernel that runs the program."""
    parser.add_argument("--num-workers", type=int, help="threads; default: those of the machine")
    parser.add_argument(
        "--cache",
        metavar="FOLDER",
        type=_path,
        help="keep packed weights there, so that the model opens faster the next time",
    )


def add_guesses(parser: argparse.ArgumentParser) -> None:
    """Add the options of guessed tokens."""
    parser.add_argument(
        "--num-speculative-tokens",
        type=int,
        help="tokens that a step guesses, by the model or what was said before; default: 0",
    )
    parser.add_argument(
        "--draft-vocab-size",
        type=int,
        help="guess the first tokens of the vocabulary alone, sooner; default: all",
    )


def kernel_options(arguments: argparse.Namespace) -> dict[str, Any]:
    """Return the options that were given, by the names of the kernel's arguments."""
    names = ["num_workers", "max_seq_length", "num_speculative_tokens", "draft_vocab_size"]
    names += ["activations", "adapter", "quantize", "quantize_head", "cache", "cache_dtype"]
    names += ["max_num_batched_requests", "max_num_batched_tokens"]
    given = {name: getattr(arguments, name, None) for name in names}
    return {name: value for name, value in given.items() if value is not None}


class _Parser(argparse.ArgumentParser):
    """A parser that takes options before, between and after positional arguments.

    Dashes and underscores are the same in their names, as in those of the commands of tensor_ops.
    """

    def parse_args(  # type: ignore[override]
        self, args: Sequence[str], namespace: None = None
    ) -> argparse.Namespace:
        words = list(args)
        end = words.index("--") if "--" in words else len(words)
        for index, word in enumerate(words[:end]):
            if word.startswith("--"):
                name, equals, value = word.partition("=")
                words[index] = name.replace("_", "-") + equals + value
        return self.parse_intermixed_args(words, namespace)

    def error(self, message: str) -> NoReturn:
        if message.startswith("unrecognized arguments: -"):
            name = message.split()[2].partition("=")[0]
            hint = did_you_mean(name, self._option_string_actions)
            message += f"; {hint}what begins with a dash and is no option comes last, after --"
        super().error(message)


def _path(text: str) -> str:
    """Return a path; an empty one would be the folder that the command runs in."""
    if not text:
        raise argparse.ArgumentTypeError("the path is empty")
    return text


def show_bytes(bar: ProgressBar, what: str) -> Callable[[int, int], None]:
    """Return what shows of so many bytes of weights how many are done."""
    return lambda done, size: bar.show(done, size, f"{what} {done >> 20} of {size >> 20} MiB")

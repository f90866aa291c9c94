"""The command line: ``tensor-ops``, which is also ``python -m tensor_ops``."""

import argparse
import os
import sys
import warnings
from collections.abc import Sequence
from io import TextIOWrapper
from typing import Any

import tensor_ops
from tensor_ops import interrupts
from tensor_ops.cli import bench, configure_backend, doctor, explain, info, other_commands, tune
from tensor_ops.command_name import COMMAND
from tensor_ops.errors import BackendFallbackWarning, ConfigWarning, TensorOpsError

__all__ = ["main", "make_parser"]

EXAMPLES = """\
examples:
  tensor-ops configure_backend --show               what is configured, and where
  tensor-ops configure_backend --backend=cpp        prefer the C++ backend
  tensor-ops configure_backend --backend=cuda --force
                                                    CUDA, or an error at import
  tensor-ops test_capabilities                      machine, tools, backends, what runs and why
  tensor-ops explain rms_norm --dtype float16       which backend runs a call
  tensor-ops bench --ops rms_norm,silu --json times.json
  tensor-ops tune                                   measure which backend is the fastest

Dashes and underscores are the same in the names of commands and options."""


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command and return its exit status: 0, 1 for a failure, 130 for Ctrl-C.

    Parameters
    ----------
    argv : sequence of str, optional
        The words after the command's name; those of this process by default.

    Raises
    ------
    SystemExit
        With 2 for a usage error and 0 for ``--help`` and ``--version``, as argparse does it.
    """
    if sys.stderr is None:  # it is closed, and print() would write to standard output instead
        sys.stderr = open(os.devnull, "w")  # noqa: SIM115 - until the process ends
    try:
        try:
            interrupts.raise_from_here()
            return _main(sys.argv[1:] if argv is None else argv)
        finally:
            interrupts.end_from_here()
    except KeyboardInterrupt:
        return interrupts.STATUS


def _main(argv: Sequence[str]) -> int:
    if isinstance(sys.stdout, TextIOWrapper) and sys.stdout.errors == "strict":
        # A path may not be encodable. A command that has succeeded must not fail when it prints it.
        sys.stdout.reconfigure(errors="backslashreplace")
    try:
        try:
            return _run(argv)
        finally:
            # Flushed here and not when Python ends, so that a closed pipe is noticed in time.
            if sys.stdout is not None:
                sys.stdout.flush()
    except BrokenPipeError:
        _drop_output()
        return 1
    except (TensorOpsError, OSError, MemoryError) as error:
        text = " ".join(str(error).split()) or type(error).__name__
        print(f"{COMMAND}: error: {text}", file=sys.stderr)
        _drop_output()
        return 1


def _run(argv: Sequence[str]) -> int:
    with warnings.catch_warnings():
        warnings.simplefilter("always", BackendFallbackWarning)
        # Shown once, although the file is looked for several times.
        warnings.simplefilter("default", ConfigWarning)
        warnings.showwarning = _show_warning
        parser, commands = make_parser()
        words = _spelled(argv)
        # The metadata of installed packages is read only where a command may be one of theirs.
        if name := other_commands.below(words, commands):
            return other_commands.run(name, argv[2:])
        if not (words and words[0] in commands.choices):
            if words and words[0] in other_commands.names(commands):
                return other_commands.run(words[0], argv[1:])
            other_commands.add(commands)
        if words and words[0] in commands.choices:
            # One that has two names is called in its help as it was called here.
            commands.choices[words[0]].prog = f"{COMMAND} {words[0]}"
        arguments = parser.parse_args(words)
        status: int = arguments.run(arguments)
        return status


def make_parser() -> "tuple[argparse.ArgumentParser, argparse._SubParsersAction[Any]]":
    parser = argparse.ArgumentParser(
        prog=COMMAND,
        description="Configure, examine and measure the backends of tensor_ops.",
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    parser.add_argument(
        "--version", action="version", version=f"{COMMAND} {tensor_ops.__version__}"
    )
    commands = parser.add_subparsers(title="commands", metavar="COMMAND", required=True)
    for command in (configure_backend, doctor, info, explain, bench, tune):
        command.add(commands)
    return parser, commands


def _spelled(argv: Sequence[str]) -> list[str]:
    """Return the words with underscores in the command's name and dashes in those of options."""
    words = list(argv)
    for index, word in enumerate(words):
        if word.startswith("--"):
            name, equals, value = word.partition("=")
            words[index] = name.replace("_", "-") + equals + value
    for index, word in enumerate(words):
        if not word.startswith("-"):
            words[index] = word.replace("-", "_")
            break
    return words


def _show_warning(message: Warning | str, *place: object, **more: object) -> None:
    print(f"{COMMAND}: warning: {message}", file=sys.stderr)


def _drop_output() -> None:
    """Send what cannot be written nowhere, so that Python's end does not fail on it again."""
    if sys.stdout is None:
        return
    try:
        sys.stdout.flush()
    except OSError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


if __name__ == "__main__":
    sys.exit(main())

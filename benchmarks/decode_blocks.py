"""The command line of benchmarks whose records give blocks of docs/decode_performance.md."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

from harness import command

__all__ = ["run", "setting_of"]

Record = dict[str, Any]


def run(
    about: str | None,
    measure: Callable[[Any, int], Record],
    blocks: Callable[[Record], dict[str, str]],
    *,
    rounds: int = 9,
    nargs: str | None = None,
) -> None:
    """Measure models, print the blocks of the page, and write the record if that is asked for.

    Parameters
    ----------
    about : str
        The docstring of the script, whose first line is its description.
    measure : callable
        Called with the model, or the list of models, and the number of rounds; returns the record.
    blocks : callable
        Called with the record; returns the blocks by name.
    rounds : int, optional
        How many there are, unless the command line says otherwise.
    nargs : str, optional
        How many models there are, as argparse writes it; one by default.
    """
    parser = command.parser(about)
    parser.add_argument("model", nargs=nargs, type=Path, help="a GGUF file")
    parser.add_argument("--rounds", type=int, default=rounds, help="default: %(default)s")
    options = parser.parse_args()
    record = measure(options.model, options.rounds)
    command.show(record, blocks, options.json)


def setting_of(record: Record) -> str:
    """Return what was measured where, of a record of one model."""
    machine = f"{record['device']}; commit {record['commit']}; {record['how']['rounds']} rounds"
    return f"{record['model']}. {machine}."

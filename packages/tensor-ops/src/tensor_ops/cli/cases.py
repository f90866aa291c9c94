"""Options that say what is measured, which ``bench`` and ``tune`` share."""

from argparse import Action, ArgumentParser, Namespace
from collections.abc import Callable
from typing import Any

from tensor_ops import backends, registry
from tensor_ops.cli import values
from tensor_ops.config import state

__all__ = ["add", "available"]


def add(parser: ArgumentParser, shapes: str, dtypes: str) -> None:
    """Add the options; the texts say what holds without them."""
    _add_list(parser, "--ops", "OP", values.op, "an op, or a variant as in gelu:none; default: all")
    _add_list(parser, "--shape", "SHAPE", values.shape, f"default: {shapes}")
    _add_list(parser, "--dtype", "DTYPE", values.dtype, f"default: {dtypes}")
    _add_list(parser, "--backends", "NAME", values.backend, "default: all that are available")


def available(named: list[str] | None) -> list[str]:
    """Return the backends to measure: those that are named, in spite of a force, or all.

    Without names a forced one that is missing is an error, as at import.
    """
    if named is None:
        state.enforce()
        return registry.get_available_backends(runs_programs=False)
    for name in named:
        backends.require(name, "named by --backends")
    return named


class _Flatten(Action):
    """Join the lists that an option's words have become, also those of an earlier use."""

    def __call__(
        self, parser: ArgumentParser, namespace: Namespace, words: Any, option: str | None = None
    ) -> None:
        joined = [each for word in words for each in word]
        setattr(namespace, self.dest, [*(getattr(namespace, self.dest) or []), *joined])


def _add_list(
    parser: ArgumentParser, option: str, name: str, kind: Callable[[str], Any], text: str
) -> None:
    parser.add_argument(
        option,
        metavar=name,
        type=values.separated(kind),
        nargs="+",
        action=_Flatten,
        help=f"one or more, with spaces or commas between them; {text}",
    )

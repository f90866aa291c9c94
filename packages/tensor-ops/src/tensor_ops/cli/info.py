"""``tensor-ops info``: the facts of one backend."""

import json
from argparse import ArgumentParser, Namespace
from typing import Any

from tensor_ops import registry
from tensor_ops.cli import Commands, add_command, values

__all__ = ["add", "run"]


def add(commands: "Commands[ArgumentParser]") -> None:
    """Add this command's parser."""
    parser = add_command(
        commands,
        "info",
        run,
        help="facts about the backend that runs, or about a named one",
        description="Print what get_backend_info() knows about the backend that runs, or about a "
        "named one.",
    )
    parser.add_argument("name", metavar="NAME", nargs="?", type=values.backend)
    parser.add_argument("--json", action="store_true", help="print JSON")


def run(arguments: Namespace) -> int:
    """Print the facts."""
    if arguments.name is not None:
        _print(registry.get_backend_info(arguments.name), arguments.json)
        return 0
    chosen = registry.get_backend_info()
    facts = registry.get_backend_info(chosen["backend"])
    if arguments.json:
        print(json.dumps(chosen | {"info": facts}, indent=2))
        return 0
    _print(chosen, as_json=False)
    print()
    _print(facts, as_json=False)
    return 0


def _print(facts: dict[str, Any], as_json: bool) -> None:
    if as_json:
        print(json.dumps(facts, indent=2))
        return
    width = max(map(len, facts))
    for key, value in facts.items():
        print(f"{key:{width}}  {_text(key, value)}")


def _text(key: str, value: Any) -> str:
    if value is None:
        return "-"
    if key in ("max_memory", "max_shared_memory"):
        return f"{value} ({value / 2**30:.1f} GiB)" if value >= 2**30 else f"{value} bytes"
    if isinstance(value, (list, tuple)):
        return ", ".join(map(str, value))
    if isinstance(value, dict):
        return json.dumps(value)
    return str(value)

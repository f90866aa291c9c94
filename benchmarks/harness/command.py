"""The command line of benchmarks that show a record, and keep it if that is asked for."""

import argparse
import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from records import write_json

__all__ = ["figures_of", "parser", "show"]


def parser(about: str | None) -> argparse.ArgumentParser:
    """Return a parser that has ``--json``, with the first line of the script's docstring."""
    made = argparse.ArgumentParser(description=(about or "").partition("\n")[0])
    made.add_argument("--json", type=Path, help="write the figures here")
    return made


def show(record: Any, blocks: Callable[[Any], dict[str, str]], path: Path | None) -> None:
    """Print the blocks of a page that a record gives, and write the record if there is a path."""
    print("\n\n".join(blocks(record).values()))
    write_json(path, record)


def figures_of(script: str, *words: str, **environment: str) -> Any:
    """Return the JSON that a script prints in a process of its own."""
    done = subprocess.run(
        [sys.executable, "-W", "ignore", script, *words],
        env=os.environ | environment,
        check=True,
        stdout=subprocess.PIPE,
    )
    return json.loads(done.stdout)
